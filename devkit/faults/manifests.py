"""What the users and controllers of a simulated cluster create, as manifests.

Owns what the objects look like. When they come and go is in `life`.
"""

from typing import Any, Final

from devkit.cluster import make_pod

Json = dict[str, Any]

NAMESPACE: Final = "default"
STORAGE_CLASS: Final = "local"
DEVICE_CLASS: Final = "gpu"
DRIVER: Final = "gpu.example.com"


def pod_with_claims(
    kind: str, owner: str, name: str, cpu: str, labels: dict[str, str], spec: Json
) -> list[Json]:
    """A pod of the workload *owner*, behind the claim that the pods of its *kind* have."""
    claims: list[Json] = []
    spec = dict(spec)
    if kind == "stateful":
        claims.append(_volume_claim(name))
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    if kind == "claimer":
        claims.append(_device_claim(name))
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    pod = make_pod(name, cpu=cpu, memory="64Mi", labels=labels, **spec)
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": owner,
            "uid": f"uid-of-{owner}",
            "controller": True,
        }
    ]
    return [*claims, pod]


def _volume_claim(name: str) -> Json:
    return _made(
        "v1",
        "PersistentVolumeClaim",
        name,
        NAMESPACE,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": STORAGE_CLASS,
        },
    )


def _device_claim(name: str) -> Json:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}]
    return _made(
        "resource.k8s.io/v1",
        "ResourceClaim",
        name,
        NAMESPACE,
        spec={"devices": {"requests": requests}},
    )


def pod_group(name: str, count: int, priority: str) -> Json:
    """A PodGroup, which wants the priority of its pods."""
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": count}}}
    if priority:
        spec["priorityClassName"] = priority
    return _made("scheduling.k8s.io/v1beta1", "PodGroup", name, NAMESPACE, spec=spec)


def replica_set(name: str, count: int, labels: dict[str, str]) -> Json:
    """The ReplicaSet of a deployment."""
    found = _made(
        "apps/v1",
        "ReplicaSet",
        name,
        NAMESPACE,
        spec={
            "replicas": count,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "i"}]},
            },
        },
    )
    found["metadata"]["labels"] = labels
    return found


def budget(name: str) -> Json:
    """A budget that lets one pod of a deployment be evicted at a time."""
    return _made(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        NAMESPACE,
        spec={"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
    )


def priority_class(name: str, value: int) -> Json:
    """A class of priorities."""
    return _made("scheduling.k8s.io/v1", "PriorityClass", name, value=value)


def storage_class() -> Json:
    """The class of volumes that are made where their pod is to run."""
    return _made(
        "storage.k8s.io/v1",
        "StorageClass",
        STORAGE_CLASS,
        provisioner="local.example.com",
        volumeBindingMode="WaitForFirstConsumer",
    )


def volume(name: str, claim: Json, node: str) -> Json:
    """A volume of *node*, bound to *claim*."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    metadata = claim["metadata"]
    return _made(
        "v1",
        "PersistentVolume",
        name,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "local": {"path": "/data"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
        status={"phase": "Bound"},
    )


def device_class() -> Json:
    """The class of all devices."""
    expression = f"device.driver == '{DRIVER}'"
    return _made(
        "resource.k8s.io/v1",
        "DeviceClass",
        DEVICE_CLASS,
        spec={"selectors": [{"cel": {"expression": expression}}]},
    )


def devices_of(node: str, count: int) -> Json:
    """The slice with the devices of *node*."""
    return _made(
        "resource.k8s.io/v1",
        "ResourceSlice",
        f"{node}-gpus",
        spec={
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{n}"} for n in range(count)],
        },
    )


def _made(version: str, kind: str, name: str, namespace: str = "", **members: Any) -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}
