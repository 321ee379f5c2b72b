"""Manifests of devices for tests: claims, slices, classes, and a pod that names claims."""

from typing import Any

from tests.builders import pod_manifest

Json = dict[str, Any]

DRIVER = "gpu.example.com"
API_VERSION = "resource.k8s.io/v1"


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Json:
    """A class of the devices for which all *expressions* hold."""
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": e}} for e in expressions], **spec},
    }


def resource_slice(node: str, *devices: str | Json, name: str = "", **spec: Any) -> Json:
    """The whole pool of a node: devices by name, or as manifests."""
    made = [{"name": device} if isinstance(device, str) else device for device in devices]
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": made,
            **spec,
        },
    }


def taint_rule(name: str, selector: Json | None, **taint: str) -> Json:
    """A rule that adds a taint to the devices of *selector*."""
    spec = {"taint": taint} | ({} if selector is None else {"deviceSelector": selector})
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def request(name: str = "r", device_class: str = "gpu", **exactly: Any) -> Json:
    """A request for devices of a class: one, unless *exactly* says otherwise."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def claim(name: str, *requests: Json, namespace: str = "default", **devices: Any) -> Json:
    """A claim with these requests; one for one device if there are none."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
    }


def claiming_pod(name: str, *claims: str, **words: Any) -> Json:
    """A pod that names claims."""
    named = [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
    spec = {"resourceClaims": named, **words.pop("spec", {})}
    return pod_manifest(name, spec=spec, **words)
