"""The API objects that the scheduler reads, as frozen typed records of only the fields it reads.

Owns decoding from JSON and the shape of every object; derived quantities (requests, ports, QoS)
live in `pod.py` and `node.py`. Field names are the API's in snake_case. Quantities stay strings
here: `quantity.py` gives them meaning, so that one malformed quantity never costs an object.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Base of every decoded record: immutable, unknown fields ignored, defaults left out."""


class OwnerReference(Record, frozen=True):
    """An owner of an object; `controller` marks the managing one."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Record, frozen=True):
    """Metadata of any object. Times are RFC 3339 strings as the API sends them.

    `unread` is no field of the API: the fields of the object whose values are not understood, each
    with what was expected and what came (see `partial_decoding`); usually none.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    unread: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, or None."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


# --- selectors -----------------------------------------------------------------------------


class LabelSelectorRequirement(Record, frozen=True):
    """One `matchExpressions` entry of a label selector: In, NotIn, Exists, DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True):
    """matchLabels AND matchExpressions. Empty matches everything; absent (None) nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorRequirement(Record, frozen=True):
    """One requirement of a node selector term: also Gt and Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Record, frozen=True):
    """Requirements that must all hold; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Record, frozen=True):
    """A weighted preference for nodes."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record, frozen=True):
    """Required and preferred node terms."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Record, frozen=True):
    """Pods (by label and namespace) that this pod wants near or far, by topology key."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Record, frozen=True):
    """A preferred pod affinity term."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record, frozen=True):
    """Required and preferred terms; used for affinity and for anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Record, frozen=True):
    """All affinity rules of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Record, frozen=True):
    """Which taints a pod tolerates. Empty key with Exists: all; empty effect: all effects."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Record, frozen=True):
    """How evenly pods of a selector spread over the values of a topology key."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


# --- pods ----------------------------------------------------------------------------------


class ResourceRequirements(Record, frozen=True):
    """Requests and limits by resource name; quantities as strings (or numbers, as sent)."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class ContainerPort(Record, frozen=True):
    """A port of a container; only those with a host port matter to scheduling."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")


class ContainerRestartRule(Record, frozen=True):
    """What is done when a container exits in some way."""

    action: str = ""


class VolumeMount(Record, frozen=True):
    """A volume in a container; only the options of its bind mount matter to scheduling."""

    bind_mount_options: tuple[str, ...] = ()


class Container(Record, frozen=True):
    """A container or an init container; `restart_policy` Always makes the latter a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class PersistentVolumeClaimVolumeSource(Record, frozen=True):
    """A volume that is a claim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class Volume(Record, frozen=True):
    """A volume of a pod. Sources that scheduling reads are typed or kept as plain data."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = msgspec.field(
        name="gcePersistentDisk", default=None
    )
    aws_elastic_block_store: dict[str, Any] | None = msgspec.field(
        name="awsElasticBlockStore", default=None
    )
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    image: dict[str, Any] | None = None


class PodSchedulingGate(Record, frozen=True):
    """A named reason not to schedule the pod yet."""

    name: str = ""


class PodResourceClaim(Record, frozen=True):
    """A device claim that the pod names, or a template for one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Record, frozen=True):
    """The pod group that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Record, frozen=True):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int | float] = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    service_account_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None


class PodCondition(Record, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ActuatedResources(Record, frozen=True):
    """What a kubelet has applied. Requests that are not reported (None) differ from none at all."""

    requests: dict[str, str | int | float] | None = None


class ContainerStatus(Record, frozen=True):
    """What a container really has: actuated and allocated resources (in-place resize)."""

    name: str = ""
    resources: ActuatedResources | None = None
    allocated_resources: dict[str, str | int | float] | None = None


class PodStatus(Record, frozen=True):
    """The observed state of a pod."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[dict[str, Any], ...] = ()
    extended_resource_claim_status: dict[str, Any] | None = None
    resources: ActuatedResources | None = None
    allocated_resources: dict[str, str | int | float] | None = None


class PodManifest(Record, frozen=True):
    """A pod as the API sends it. `pod.Pod` wraps it with what is derived."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- nodes ---------------------------------------------------------------------------------


class Taint(Record, frozen=True):
    """A mark that keeps pods away unless tolerated."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Record, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")
    pod_preemption_policy: dict[str, Any] | None = None


class ContainerImage(Record, frozen=True):
    """An image present on a node, with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeCondition(Record, frozen=True):
    """One condition of a node."""

    type: str = ""
    status: str = ""


class NodeStatus(Record, frozen=True):
    """What a node offers and holds."""

    allocatable: dict[str, str | int | float] = {}
    capacity: dict[str, str | int | float] = {}
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()


class NodeManifest(Record, frozen=True):
    """A node as the API sends it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- everything else -----------------------------------------------------------------------


class Namespace(Record, frozen=True):
    """A namespace: its labels are what namespace selectors match."""

    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(Record, frozen=True):
    """The pods that a service sends traffic to."""

    selector: dict[str, str] = {}


class Service(Record, frozen=True):
    """A service: its selector groups pods for default spreading."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Record, frozen=True):
    """Which pods are those of a ReplicaSet, StatefulSet or Deployment, and how many it wants."""

    selector: LabelSelector | None = None
    replicas: int | None = None


class Workload(Record, frozen=True):
    """A ReplicaSet, StatefulSet or Deployment: its selector groups pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class ReplicationControllerSpec(Record, frozen=True):
    """As `WorkloadSpec`, with a plain label selector."""

    selector: dict[str, str] = {}
    replicas: int | None = None


class ReplicationController(Record, frozen=True):
    """A ReplicationController: like a workload, with a plain label selector."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class JobSpec(Record, frozen=True):
    """Which pods are those of a Job, how many run at once, and how many have to complete."""

    selector: LabelSelector | None = None
    parallelism: int | None = None
    completions: int | None = None


class Job(Record, frozen=True):
    """A Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class PodDisruptionBudgetSpec(Record, frozen=True):
    """The pods that a budget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Record, frozen=True):
    """How many of them may go now, and which are going."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] = {}


class PodDisruptionBudget(Record, frozen=True):
    """A disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PlainObject(Record, frozen=True):
    """An object whose spec and status are kept as plain data."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class ManagedFields(Record, frozen=True):
    """Which client wrote fields of an object, and when."""

    manager: str = ""
    time: str = ""
    subresource: str = ""


class ManagedMeta(ObjectMeta, frozen=True):
    """Metadata with those who wrote the object."""

    managed_fields: tuple[ManagedFields, ...] = ()


class ConfigMap(Record, frozen=True):
    """A ConfigMap's text data, and what it holds in base64 because it is no text."""

    metadata: ManagedMeta = ManagedMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}

    @property
    def written_by(self) -> str:
        """The field manager that wrote it last; "" if that is not known."""
        latest = max(self.metadata.managed_fields, key=lambda one: one.time, default=None)
        return "" if latest is None else latest.manager


def _without_nulls(value: Any) -> Any:
    """*value* with every null member left out, as the API means an absent field."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value if v is not None]
    return value


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(kind: type[T], raw: bytes | str) -> T:
    """Decode one object of *kind* from its JSON text.

    Nulls where a list, map or string is expected count as absent. Raises
    `msgspec.ValidationError`, naming the path, when a field has a type that the API forbids.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    try:
        value: T = decoder.decode(raw)
    except msgspec.ValidationError:
        # Rare: a null in a place that the API writes as absent. The tolerant way costs a second
        # pass over plain data, which the common case must not pay.
        value = msgspec.convert(_without_nulls(msgspec.json.decode(raw)), kind, strict=False)
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """Build one object of *kind* from plain data (a decoded YAML or JSON manifest)."""
    return msgspec.convert(_without_nulls(value), kind, strict=False)
