"""What pods hold besides capacity: claims for devices, or volumes, each with its objects.

Owns these objects as drivers, provisioners and controllers leave them, how pods name them, and how
they go when a pod has gone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from devkit.benchmarks import objects
from devkit.benchmarks.load import collection_path
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.wire import Wire

_MERGE_PATCH: Final = "application/merge-patch+json"
_STORAGE: Final = "fast"
_CSI_DRIVER: Final = "csi.example.com"


@dataclass(frozen=True, slots=True)
class Holding:
    """What every pod holds.

    `before` are the objects of *n* nodes. `made` gives a pod without a node what it holds: it
    changes the manifest, and returns the objects that have to be there first. `placed` does the
    same for the pod with a number that has a node, as if a scheduler had placed it; its objects
    may have a status.
    """

    before: Callable[[int], Iterable[Manifest]]
    made: Callable[[Manifest], list[Manifest]]
    placed: Callable[[Manifest, int, int], list[Manifest]]


async def create(wire: Wire, manifests: Iterable[Manifest]) -> None:
    """Create objects, and write the status of those that have one."""
    found = list(manifests)
    await wire.send_all(wire.encode("POST", collection_path(one), one) for one in found)
    await wire.send_all(
        wire.encode(
            "PATCH",
            f"{_path(one)}/status",
            {"status": one["status"]},
            content_type=_MERGE_PATCH,
        )
        for one in found
        if "status" in one
    )


async def remove(wire: Wire, manifests: Iterable[Manifest]) -> None:
    """Delete objects that nobody uses any more, as their controllers do."""
    found = list(manifests)
    await wire.send_all(wire.encode("DELETE", _path(one), {}) for one in found)
    free = {"metadata": {"finalizers": None}}
    await wire.send_all(
        wire.encode("PATCH", _path(one), free, content_type=_MERGE_PATCH) for one in found
    )


def _path(manifest: Manifest) -> str:
    return f"{collection_path(manifest)}/{manifest['metadata']['name']}"


# --- claims for devices ------------------------------------------------------------------------


def _slices(nodes: int) -> Iterable[Manifest]:
    yield objects.device_class()
    yield from map(objects.resource_slice, range(nodes))


def _claim(pod: Manifest) -> list[Manifest]:
    name, namespace = (pod["metadata"][key] for key in ("name", "namespace"))
    claim = objects.claim(0)
    claim["metadata"] = {"name": name, "namespace": namespace}
    named = {"name": "devices", "resourceClaimName": name}
    pod["spec"]["resourceClaims"] = [named]
    return [claim]


def _allocated_claim(pod: Manifest, number: int, nodes: int) -> list[Manifest]:
    (claim,) = _claim(pod)
    node = pod["spec"]["nodeName"]
    device = {
        "request": "devices",
        "driver": objects.DRIVER,
        "pool": node,
        "device": f"gpu-{number // nodes % objects.DEVICES_PER_NODE}",
    }
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    user = {
        "resource": "pods",
        "name": pod["metadata"]["name"],
        "uid": f"00000000-0000-4000-8000-{number:012d}",
    }
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    claim["status"] = {
        "allocation": {
            "devices": {"results": [device]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        },
        "reservedFor": [user],
    }
    return [claim]


# --- volumes -----------------------------------------------------------------------------------


def _storage_class(nodes: int) -> Iterable[Manifest]:
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _STORAGE},
        "provisioner": _CSI_DRIVER,
        "volumeBindingMode": "Immediate",
    }


def _volume(pod: Manifest, zones: Iterable[str] = ()) -> list[Manifest]:
    name, namespace = (pod["metadata"][key] for key in ("name", "namespace"))
    common: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": _STORAGE}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": common | {"resources": {"requests": {"storage": "8Gi"}}, "volumeName": name},
        "status": {"phase": "Bound"},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": common
        | {
            "capacity": {"storage": "8Gi"},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": _CSI_DRIVER, "volumeHandle": f"volume-of-{namespace}-{name}"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": name,
                "namespace": namespace,
            },
        },
        "status": {"phase": "Bound"},
    }
    if zones:
        there = {"key": objects.ZONE, "operator": "In", "values": [*zones]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [there]}]}
        volume["spec"]["nodeAffinity"] = {"required": terms}  # type: ignore[index]  # a dict
    data = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), data]
    return [volume, claim]


def _volume_in_zone(pod: Manifest, number: int, nodes: int) -> list[Manifest]:
    return _volume(pod, [f"zone-{number % nodes % objects.ZONES}"])


HOLDINGS: Final = {
    "nothing": Holding(lambda nodes: (), lambda pod: [], lambda pod, number, nodes: []),
    "claims": Holding(_slices, _claim, _allocated_claim),
    "volumes": Holding(_storage_class, _volume, _volume_in_zone),
}
