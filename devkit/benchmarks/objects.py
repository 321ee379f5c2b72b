"""Nodes and pods as a cluster would have them: labels, addresses, conditions, images.

Deterministic: the same number gives the same object, on every machine.
"""

from typing import Any, Final

Manifest = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"

ZONES: Final = 10
NAMESPACE: Final = "bench"

_CREATED: Final = "2026-01-01T00:00:00Z"
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)
_IMAGES: Final = (
    ("registry.k8s.io/pause:3.10", 320_000),
    ("registry.example/agent:2.4", 84_000_000),
    ("registry.example/proxy:1.30", 61_000_000),
)


def namespace(name: str = NAMESPACE) -> Manifest:
    """The namespace of that name."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(
    number: int,
    *,
    name: str | None = None,
    zones: int = ZONES,
    cpu: str = "4",
    memory: str = "32Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    extended: dict[str, str] | None = None,
) -> Manifest:
    """The node with *number*: zones go round, everything else is like a cloud's machine pool.

    `extended` are extended resources.
    """
    name = name or f"node-{number:05d}"
    resources = {
        "cpu": cpu,
        "memory": memory,
        "pods": pods,
        "ephemeral-storage": "100Gi",
        **(extended or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME: name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m5.xlarge",
                REGION: "region-1",
                ZONE: f"zone-{number % zones}",
                "pool": f"pool-{number // zones % 4}",
                **(labels or {}),
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": f"10.{number // 256 % 256}.{number % 256}.0/24"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": f"172.16.{number // 256 % 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": "kubelet says so",
                    "lastHeartbeatTime": _CREATED,
                    "lastTransitionTime": _CREATED,
                }
                for kind, status, reason in _CONDITIONS
            ],
            "images": [{"names": [image], "sizeBytes": size} for image, size in _IMAGES],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": f"boot-{number}",
                "containerRuntimeVersion": "containerd://2.0.0",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.2",
                "machineID": f"machine-{number}",
                "operatingSystem": "linux",
                "osImage": "Linux",
                "systemUUID": f"system-{number}",
            },
        },
    }


def pod(
    name: str,
    *,
    namespace: str = NAMESPACE,
    labels: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    spec: Manifest | None = None,
) -> Manifest:
    """A pod with one container; `spec` is merged over what the words say."""
    resources: Manifest = {"requests": requests or {"cpu": "100m", "memory": "128Mi"}}
    if limits:
        resources["limits"] = limits
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {"app": "web"}},
        "spec": {
            "containers": [
                {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
            ],
            **(spec or {}),
        },
    }


def pod_group(name: str, min_count: int) -> Manifest:
    """The PodGroup whose pods are placed if that many of them fit."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


# --- devices -----------------------------------------------------------------------------------

DRIVER: Final = "gpu.example.com"
DEVICES_PER_NODE: Final = 8
#: Claims of so many kinds follow each other: for one device, for one by its memory, for two.
CLAIM_KINDS: Final = 3
_DEVICES: Final = "resource.k8s.io/v1"
_DEVICE_CLASS: Final = "gpu"


def device_class() -> Manifest:
    """The class of all devices, by a selector, as drivers' classes are."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {
        "apiVersion": _DEVICES,
        "kind": "DeviceClass",
        "metadata": {"name": _DEVICE_CLASS},
        "spec": {"selectors": [selector]},
    }


def resource_slice(number: int) -> Manifest:
    """The devices of `node`'s node with *number*, as its driver publishes them."""
    name = f"node-{number:05d}"
    return {
        "apiVersion": _DEVICES,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{device}",
                    "attributes": {
                        "model": {"string": f"model-{number % 4}"},
                        "uuid": {"string": f"gpu-{number:05d}-{device}"},
                        "numaNode": {"int": device // 4},
                    },
                    "capacity": {"memory": {"value": "40Gi" if number % 2 else "80Gi"}},
                }
                for device in range(DEVICES_PER_NODE)
            ],
        },
    }


def claim_name(number: int) -> str:
    """The name of `claim`'s claim with *number*."""
    return f"claim-{number:06d}"


def claim(number: int) -> Manifest:
    """The claim with *number*, of one of `CLAIM_KINDS` kinds."""
    kind = number % CLAIM_KINDS
    request: Manifest = {"deviceClassName": _DEVICE_CLASS, "count": 2 if kind == 2 else 1}
    if kind == 1:
        large = f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('60Gi'))"
        request["selectors"] = [{"cel": {"expression": large}}]
    return {
        "apiVersion": _DEVICES,
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim_name(number),
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-4000-9000-{number:012d}",
        },
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": request}]}},
    }
