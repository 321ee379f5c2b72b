"""What the API server fills into a new object: the defaults of each kind, and its first status.

Owns defaults that a scheduler can see (those of pods are in `pod_defaults`). Fields that no
scheduler reads are kept as they were sent.
"""

from collections.abc import Callable
from typing import Any

from engine.manifests import kinds, pod_defaults
from engine.manifests.kinds import Kind
from engine.manifests.limit_ranges import set_item_defaults
from engine.manifests.pod_defaults import canonical_amounts
from engine.manifests.schema import plain_amounts

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
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


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
    if spec.get("capacity"):
        spec["capacity"] = canonical_amounts(kinds.PERSISTENT_VOLUMES, spec["capacity"])
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _claim(claim: Json) -> None:
    spec = claim.setdefault("spec", {})
    requests = (spec.get("resources") or {}).get("requests")
    if requests:
        spec["resources"]["requests"] = canonical_amounts(kinds.PERSISTENT_VOLUME_CLAIMS, requests)
    spec.setdefault("volumeMode", "Filesystem")


def _csi_driver(driver: Json) -> None:
    spec = driver.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("storageCapacity", False)
    spec.setdefault("preventPodSchedulingIfMissing", False)


def _storage_capacity(capacity: Json) -> None:
    kind = kinds.CSI_STORAGE_CAPACITIES
    for field in ("capacity", "maximumVolumeSize"):
        if capacity.get(field) is not None:
            capacity[field] = canonical_amounts(kind, {field: capacity[field]})[field]


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
    claim.update(plain_amounts(kinds.RESOURCE_CLAIMS, claim))
    _claim_devices(claim.get("spec") or {})


def _resource_claim_template(template: Json) -> None:
    template.update(plain_amounts(kinds.RESOURCE_CLAIM_TEMPLATES, template))
    _claim_devices((template.get("spec") or {}).get("spec") or {})


def _resource_slice(resource_slice: Json) -> None:
    resource_slice.update(plain_amounts(kinds.RESOURCE_SLICES, resource_slice))


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
    kinds.CSI_STORAGE_CAPACITIES: _storage_capacity,
    kinds.RESOURCE_CLAIMS: _resource_claim,
    kinds.RESOURCE_CLAIM_TEMPLATES: _resource_claim_template,
    kinds.RESOURCE_SLICES: _resource_slice,
    kinds.LIMIT_RANGES: _limit_range,
    kinds.PRIORITY_CLASSES: _priority_class,
    kinds.POD_GROUPS: _pod_group,
    kinds.ALPHA_POD_GROUPS: _pod_group,
}


def set_defaults(kind: Kind, manifest: Json) -> None:
    """Fill in what *manifest* leaves out. Refuses what cannot be decoded with 400."""
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
