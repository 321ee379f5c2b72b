"""What the API server fills into a new object: the defaults of each kind, and its first status.

Owns defaults that a scheduler can see (those of pods are in `pod_defaults`). Fields that no
scheduler reads are kept as they were sent.
"""

from collections.abc import Callable
from typing import Any

from engine.core.manifests import kinds, pod_defaults
from engine.core.manifests.kinds import Kind
from engine.core.manifests.limit_ranges import set_item_defaults
from engine.core.manifests.pod_defaults import canonical_amounts
from engine.core.manifests.schema import plain_amounts

Json = dict[str, Any]

_EMPTY_NODE_INFO = {
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
    "kernelVersion": "",
    "osImage": "",
    "containerRuntimeVersion": "",
    "kubeletVersion": "",
    "kubeProxyVersion": "",
    "operatingSystem": "",
    "architecture": "",
}


def _node(node: Json) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    for part in ("capacity", "allocatable"):
        if status.get(part):
            status[part] = canonical_amounts(kinds.NODES, status[part])
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for condition in status.get("conditions") or ():
        condition.setdefault("lastHeartbeatTime", None)
        condition.setdefault("lastTransitionTime", None)
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**_EMPTY_NODE_INFO, **(status.get("nodeInfo") or {})}
    if node["spec"].get("unschedulable") is False:
        del node["spec"]["unschedulable"]


def _namespace(namespace: Json) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "kubernetes.io/metadata.name": metadata.get("name", ""),
    }


def _service(service: Json) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _replicated(owner: Json) -> None:
    spec = owner.setdefault("spec", {})
    if spec.get("replicas") is None:
        spec["replicas"] = 1


def _storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _volume(volume: Json) -> None:
    spec = volume.setdefault("spec", {})
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec.setdefault("volumeMode", "Filesystem")


def _claim(claim: Json) -> None:
    spec = claim.setdefault("spec", {})
    pod_defaults.set_claim_defaults(spec)
    # Both names of the source of a claim's data say the same; of a source in another namespace,
    # and of one of another kind under the old name, the API server takes no notice.
    source, named = spec.get("dataSource"), spec.get("dataSourceRef")
    if named is not None and named.get("namespace"):
        named = None
    if named is None and not _is_old_source(source or {}):
        source = None
    for field, one in (("dataSource", source or named), ("dataSourceRef", named or source)):
        spec.pop(field, None)
        if one is not None:
            spec[field] = dict(one)


def _is_old_source(source: Json) -> bool:
    return (source.get("kind"), source.get("apiGroup") or "") in (
        ("PersistentVolumeClaim", ""),
        ("VolumeSnapshot", "snapshot.storage.k8s.io"),
    )


def _csi_driver(driver: Json) -> None:
    driver["spec"] = {**_CSI_DRIVER, **(driver.get("spec") or {})}
    driver["spec"]["volumeLifecycleModes"] = driver["spec"]["volumeLifecycleModes"] or [
        "Persistent"
    ]


_CSI_DRIVER: Json = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "volumeLifecycleModes": [],
    "requiresRepublish": False,
    "seLinuxMount": False,
    "preventPodSchedulingIfMissing": False,
}


def _claim_devices(spec: Json) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is None:
                continue
            if not one.get("allocationMode"):
                one["allocationMode"] = "ExactCount"
            if one["allocationMode"] == "ExactCount" and not one.get("count"):
                one["count"] = 1
            for toleration in one.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def _limit_range(limit_range: Json) -> None:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        set_item_defaults(item)


def _resource_claim(claim: Json) -> None:
    _claim_devices(claim.get("spec") or {})


def _resource_claim_template(template: Json) -> None:
    _claim_devices((template.get("spec") or {}).get("spec") or {})


def _priority_class(priority_class: Json) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if priority_class.get("globalDefault") is False:
        del priority_class["globalDefault"]


def _pod_group(group: Json) -> None:
    spec = group["spec"] = group.get("spec") or {}
    spec.setdefault("schedulingPolicy", {})
    spec.setdefault("disruptionMode", {"single": {}})
    # Fields of gates that are off by default.
    for field in ("preemptionPolicy", "parentCompositePodGroupName", "schedulingConstraints"):
        spec.pop(field, None)


def _pod(pod: Json) -> None:
    pod_defaults.set_defaults(pod.setdefault("spec", {}))


_DEFAULTS: dict[Kind, Callable[[Json], None]] = {
    kinds.PODS: _pod,
    kinds.NODES: _node,
    kinds.NAMESPACES: _namespace,
    kinds.SERVICES: _service,
    kinds.REPLICATION_CONTROLLERS: _replicated,
    kinds.REPLICA_SETS: _replicated,
    kinds.STATEFUL_SETS: _replicated,
    kinds.DEPLOYMENTS: _replicated,
    kinds.STORAGE_CLASSES: _storage_class,
    kinds.PERSISTENT_VOLUMES: _volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _claim,
    kinds.CSI_DRIVERS: _csi_driver,
    kinds.RESOURCE_CLAIMS: _resource_claim,
    kinds.RESOURCE_CLAIM_TEMPLATES: _resource_claim_template,
    kinds.LIMIT_RANGES: _limit_range,
    kinds.PRIORITY_CLASSES: _priority_class,
    kinds.POD_GROUPS: _pod_group,
    kinds.ALPHA_POD_GROUPS: _pod_group,
}


#: The kinds whose quantities are all brought to their canonical text.
_WITH_AMOUNTS = frozenset(
    {
        kinds.RESOURCE_CLAIMS,
        kinds.RESOURCE_CLAIM_TEMPLATES,
        kinds.RESOURCE_SLICES,
        kinds.PERSISTENT_VOLUMES,
        kinds.CSI_STORAGE_CAPACITIES,
        kinds.RUNTIME_CLASSES,
    }
)


def set_defaults(kind: Kind, manifest: Json) -> None:
    """Fill in what *manifest* leaves out. Refuses what cannot be decoded with 400."""
    if kind in _WITH_AMOUNTS:
        manifest.update(plain_amounts(kind, manifest))
    default = _DEFAULTS.get(kind)
    if default:
        default(manifest)


_INITIAL_STATUS: dict[Kind, Json] = {
    kinds.NAMESPACES: {"phase": "Active"},
    kinds.SERVICES: {"loadBalancer": {}},
    kinds.PERSISTENT_VOLUMES: {"phase": "Pending"},
    kinds.PERSISTENT_VOLUME_CLAIMS: {"phase": "Pending"},
    kinds.REPLICATION_CONTROLLERS: {"replicas": 0},
    kinds.REPLICA_SETS: {"replicas": 0},
    kinds.STATEFUL_SETS: {"replicas": 0, "availableReplicas": 0},
    kinds.POD_DISRUPTION_BUDGETS: {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
}


def initial_status(kind: Kind, manifest: Json, now: str) -> None:
    """Reset the status of a new object, as only its subresource may write it. Nodes keep theirs."""
    if kind is kinds.PODS:
        manifest["status"] = pod_defaults.initial_status(manifest["spec"], now)
    elif kind.has_status and kind is not kinds.NODES:
        manifest["status"] = dict(_INITIAL_STATUS.get(kind, {}))
