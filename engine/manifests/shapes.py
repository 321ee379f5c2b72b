"""The JSON types that a request body must have, checked before anything reads it.

Owns types only (`containers` is a list, a label value is text): what the values may be is
validation. Every field may be absent or null, and fields without a type here are kept as sent.
"""

from typing import Any, TypedDict

import msgspec

from engine.manifests import kinds
from engine.manifests.errors import undecodable
from engine.manifests.kinds import Kind

Json = dict[str, Any]
Texts = dict[str, str | None] | None
Amounts = dict[str, str | int | float | None] | None


class _Meta(TypedDict, total=False):
    name: str | None
    generateName: str | None
    namespace: str | None
    uid: str | None
    resourceVersion: str | None
    labels: Texts
    annotations: Texts
    finalizers: list[str] | None
    ownerReferences: list[dict[str, Any]] | None


class _Resources(TypedDict, total=False):
    requests: Amounts
    limits: Amounts


class _Port(TypedDict, total=False):
    containerPort: int | None
    hostPort: int | None
    protocol: str | None
    hostIP: str | None
    name: str | None


class _Container(TypedDict, total=False):
    name: str | None
    image: str | None
    resources: _Resources | None
    ports: list[_Port] | None
    restartPolicy: str | None


class _Toleration(TypedDict, total=False):
    key: str | None
    operator: str | None
    value: str | None
    effect: str | None
    tolerationSeconds: int | None


class _Expression(TypedDict, total=False):
    key: str | None
    operator: str | None
    values: list[str] | None


class _LabelSelector(TypedDict, total=False):
    matchLabels: Texts
    matchExpressions: list[_Expression] | None


class _SpreadConstraint(TypedDict, total=False):
    maxSkew: int | None
    topologyKey: str | None
    whenUnsatisfiable: str | None
    labelSelector: _LabelSelector | None


class _NodeTerm(TypedDict, total=False):
    matchExpressions: list[_Expression] | None
    matchFields: list[_Expression] | None


class _NodeSelector(TypedDict, total=False):
    nodeSelectorTerms: list[_NodeTerm] | None


class _PreferredNodes(TypedDict, total=False):
    weight: int | None
    preference: _NodeTerm | None


class _NodeAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: _NodeSelector | None
    preferredDuringSchedulingIgnoredDuringExecution: list[_PreferredNodes] | None


class _PodTerm(TypedDict, total=False):
    labelSelector: _LabelSelector | None
    namespaceSelector: _LabelSelector | None
    namespaces: list[str] | None
    topologyKey: str | None


class _PreferredPods(TypedDict, total=False):
    weight: int | None
    podAffinityTerm: _PodTerm | None


class _PodAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[_PodTerm] | None
    preferredDuringSchedulingIgnoredDuringExecution: list[_PreferredPods] | None


class _Affinity(TypedDict, total=False):
    nodeAffinity: _NodeAffinity | None
    podAffinity: _PodAffinity | None
    podAntiAffinity: _PodAffinity | None


class _Gate(TypedDict, total=False):
    name: str | None


class _PodSpec(TypedDict, total=False):
    containers: list[_Container] | None
    initContainers: list[_Container] | None
    nodeName: str | None
    schedulerName: str | None
    nodeSelector: Texts
    affinity: _Affinity | None
    tolerations: list[_Toleration] | None
    topologySpreadConstraints: list[_SpreadConstraint] | None
    schedulingGates: list[_Gate] | None
    priority: int | None
    priorityClassName: str | None
    preemptionPolicy: str | None
    runtimeClassName: str | None
    overhead: Amounts
    resources: _Resources | None
    restartPolicy: str | None
    hostNetwork: bool | None
    terminationGracePeriodSeconds: int | None
    volumes: list[dict[str, Any]] | None


class _Condition(TypedDict, total=False):
    type: str | None
    status: str | None
    reason: str | None
    message: str | None


class _PodStatus(TypedDict, total=False):
    phase: str | None
    conditions: list[_Condition] | None
    nominatedNodeName: str | None


class _PodShape(TypedDict, total=False):
    metadata: _Meta | None
    spec: _PodSpec | None
    status: _PodStatus | None


class _Taint(TypedDict, total=False):
    key: str | None
    value: str | None
    effect: str | None


class _NodeSpec(TypedDict, total=False):
    taints: list[_Taint] | None
    unschedulable: bool | None


class _NodeStatus(TypedDict, total=False):
    capacity: Amounts
    allocatable: Amounts
    conditions: list[_Condition] | None


class _NodeShape(TypedDict, total=False):
    metadata: _Meta | None
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _Shape(TypedDict, total=False):
    metadata: _Meta | None
    spec: dict[str, Any] | None
    status: dict[str, Any] | None


class _PriorityClass(_Shape, total=False):
    value: int | None
    globalDefault: bool | None
    preemptionPolicy: str | None


class _Gang(TypedDict, total=False):
    minCount: int | None


class _GroupPolicy(TypedDict, total=False):
    basic: dict[str, Any] | None
    gang: _Gang | None


class _GroupSpec(TypedDict, total=False):
    schedulingPolicy: _GroupPolicy | None
    disruptionMode: dict[str, dict[str, Any] | None] | None
    workloadRef: dict[str, str | None] | None
    priority: int | None
    priorityClassName: str | None


class _PodGroup(_Shape, total=False):
    spec: _GroupSpec | None  # type: ignore[misc]  # narrower


class _ConfigMap(_Shape, total=False):
    data: Texts
    binaryData: Texts
    immutable: bool | None


class _LeaseSpec(TypedDict, total=False):
    holderIdentity: str | None
    leaseDurationSeconds: int | None
    leaseTransitions: int | None
    acquireTime: str | None
    renewTime: str | None


class _Lease(_Shape, total=False):
    spec: _LeaseSpec | None  # type: ignore[misc]  # narrower than in the base on purpose


class _ServicePort(TypedDict, total=False):
    port: int | None
    protocol: str | None


class _ServiceSpec(TypedDict, total=False):
    type: str | None
    clusterIP: str | None
    ports: list[_ServicePort] | None
    selector: Texts


class _Service(_Shape, total=False):
    spec: _ServiceSpec | None  # type: ignore[misc]  # as above


class _Budget(_Shape, total=False):
    spec: "_BudgetSpec | None"  # type: ignore[misc]  # as above


class _BudgetSpec(TypedDict, total=False):
    selector: _LabelSelector | None


class _VolumeSpec(TypedDict, total=False):
    capacity: Amounts
    nodeAffinity: dict[str, Any] | None


class _Volume(_Shape, total=False):
    spec: _VolumeSpec | None  # type: ignore[misc]  # as above


class _ClaimSpec(TypedDict, total=False):
    resources: _Resources | None
    storageClassName: str | None


class _Claim(_Shape, total=False):
    spec: _ClaimSpec | None  # type: ignore[misc]  # as above


class _StorageCapacity(_Shape, total=False):
    capacity: str | int | float | None
    maximumVolumeSize: str | int | float | None


class _DeviceRequest(TypedDict, total=False):
    exactly: dict[str, Any] | None


class _Devices(TypedDict, total=False):
    requests: list[_DeviceRequest] | None


class _DeviceSpec(TypedDict, total=False):
    devices: _Devices | None


class _DeviceClaim(_Shape, total=False):
    spec: _DeviceSpec | None  # type: ignore[misc]  # as above


class _DeviceTemplateSpec(TypedDict, total=False):
    spec: _DeviceSpec | None


class _DeviceTemplate(_Shape, total=False):
    spec: _DeviceTemplateSpec | None  # type: ignore[misc]  # as above


class _RuntimeClass(_Shape, total=False):
    overhead: "_Overhead | None"
    scheduling: "_Scheduling | None"


class _Overhead(TypedDict, total=False):
    podFixed: Amounts


class _Scheduling(TypedDict, total=False):
    nodeSelector: Texts
    tolerations: list[_Toleration] | None


class _Series(TypedDict, total=False):
    count: int | None
    lastObservedTime: str | None


class _Event(_Shape, total=False):
    involvedObject: Texts
    regarding: Texts
    reason: str | None
    action: str | None
    message: str | None
    note: str | None
    type: str | None
    eventTime: str | None
    series: _Series | None
    reportingComponent: str | None
    reportingController: str | None
    reportingInstance: str | None
    source: Texts
    deprecatedSource: Texts


_SHAPES: dict[Kind, Any] = {
    kinds.PODS: _PodShape,
    kinds.NODES: _NodeShape,
    kinds.PRIORITY_CLASSES: _PriorityClass,
    kinds.POD_GROUPS: _PodGroup,
    kinds.ALPHA_POD_GROUPS: _PodGroup,
    kinds.CONFIG_MAPS: _ConfigMap,
    kinds.LEASES: _Lease,
    kinds.SERVICES: _Service,
    kinds.POD_DISRUPTION_BUDGETS: _Budget,
    kinds.PERSISTENT_VOLUMES: _Volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _Claim,
    kinds.CSI_STORAGE_CAPACITIES: _StorageCapacity,
    kinds.RESOURCE_CLAIMS: _DeviceClaim,
    kinds.RESOURCE_CLAIM_TEMPLATES: _DeviceTemplate,
    kinds.RUNTIME_CLASSES: _RuntimeClass,
    kinds.EVENTS: _Event,
    kinds.NEW_EVENTS: _Event,
}


def check_shape(kind: Kind, body: Json) -> None:
    """Refuse *body* with 400 if a field has a type that its kind cannot have."""
    try:
        msgspec.convert(body, _SHAPES.get(kind, _Shape))
    except msgspec.ValidationError as error:
        raise undecodable(kind, f"json: {error}") from error


# Maps in which null is a value: the empty text, or no amount.
_NULL_IN = {
    **dict.fromkeys(("labels", "annotations", "matchLabels", "nodeSelector", "data"), ""),
    **dict.fromkeys(("requests", "limits", "capacity", "allocatable", "overhead"), "0"),
}


def without_nulls(value: Any) -> Any:
    """*value* without null members: an absent field and a null one are the same."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if item is None:
                continue
            if key in _NULL_IN and isinstance(item, dict) and None in item.values():
                item = {name: _NULL_IN[key] if it is None else it for name, it in item.items()}
            kept[key] = without_nulls(item)
        return kept
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
