"""Devices, the claims on them and the rules about them, as typed records.

Owns the shapes of resource.k8s.io/v1, of only the fields that an allocation reads or writes, and
the defaults that the API server would have filled in. What a claim gets is decided elsewhere.
"""

from typing import Any, Final

import msgspec

from engine.core.model.objects import NodeSelector, ObjectMeta

QuantityText = str | int | float

EXACT_COUNT: Final = "ExactCount"
ALL_DEVICES: Final = "All"
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXTENDED_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
#: What the API server takes: devices of one allocation, and alternatives of one request.
MOST_RESULTS: Final = 32
MOST_SUB_REQUESTS: Final = 8
#: The API group of PodGroups.
SCHEDULING_GROUP: Final = "scheduling.k8s.io"


class Record(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Base of every record here: immutable, unknown fields ignored, defaults left out."""


class ClaimMeta(ObjectMeta, frozen=True):
    """Metadata of a claim: what protects it from deletion counts too."""

    generate_name: str = ""
    finalizers: tuple[str, ...] = ()


# --- what drivers publish --------------------------------------------------------------------


class DeviceAttribute(Record, frozen=True):
    """One property of a device: exactly one of these is set, a value or a list of values."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: list[int] | None = msgspec.field(name="ints", default=None)
    bool_values: list[bool] | None = msgspec.field(name="bools", default=None)
    string_values: list[str] | None = msgspec.field(name="strings", default=None)
    version_values: list[str] | None = msgspec.field(name="versions", default=None)


class CapacityRange(Record, frozen=True):
    """Amounts that may be requested: from `min` in steps, at most `max`."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(Record, frozen=True):
    """How a request for a part of a capacity is rounded, and what it takes if it names none."""

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Record, frozen=True):
    """An amount of something that a device has."""

    value: QuantityText = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Record, frozen=True):
    """An amount that devices of a pool share."""

    value: QuantityText = 0


class CounterSet(Record, frozen=True):
    """Counters by name; devices consume of them."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(Record, frozen=True):
    """What a device consumes of one counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Record, frozen=True):
    """A mark that keeps claims away unless tolerated."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Record, frozen=True):
    """One device, or one way to cut a device."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Record, frozen=True):
    """Which pool a slice is of, and how many slices of this generation make it whole."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Record, frozen=True):
    """Devices of one pool, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Record, frozen=True):
    """A part of what a driver offers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# --- what administrators add -----------------------------------------------------------------


class DeviceTaintSelector(Record, frozen=True):
    """The devices of a rule: everything that is given must be equal; nothing given: all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record, frozen=True):
    """A taint, and the devices that it is added to. Without a selector it is added to none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Record, frozen=True):
    """A taint that an administrator adds to devices, in addition to those of their driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


# --- what claims ask for ---------------------------------------------------------------------


class CelSelector(Record, frozen=True):
    """An expression over `device`."""

    expression: str = ""


class DeviceSelector(Record, frozen=True):
    """Which devices suit; `cel` is the only kind there is."""

    cel: CelSelector | None = None


class DeviceToleration(Record, frozen=True):
    """Which taints a request tolerates. Empty key with Exists: all; empty effect: all effects."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Record, frozen=True):
    """Amounts wanted of a device's capacities."""

    requests: dict[str, QuantityText] = {}


class ExactDeviceRequest(Record, frozen=True):
    """A number of devices of a class, or all of them."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Any, ...] = ()


class DeviceSubRequest(Record, frozen=True):
    """One alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[Any, ...] = ()


class DeviceRequest(Record, frozen=True):
    """One named request: exactly this, or the first alternative that can be had."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Record, frozen=True):
    """What must hold over the devices of some requests (of all, if none is named)."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Record, frozen=True):
    """Parameters for drivers, passed on as they are."""

    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class DeviceClaim(Record, frozen=True):
    """The devices that a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


# --- what claims got -------------------------------------------------------------------------


class DeviceResult(Record, frozen=True):
    """One device that a request got."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, QuantityText] = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(Record, frozen=True):
    """Parameters for drivers, and where they came from: `FromClass` or `FromClaim`."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class DeviceAllocation(Record, frozen=True):
    """The devices of an allocation and their parameters."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Record, frozen=True):
    """What a claim got, and where it can be used (None: everywhere)."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None

    def is_same(self, other: "AllocationResult | None") -> bool:
        """True if *other* gives the same devices to the same requests."""
        return other is not None and self._given == other._given

    @property
    def skips_node_operations(self) -> bool:
        """Whether a device needs a node that can do without preparing it."""
        return any(result.skip_node_operations for result in self.devices.results)

    @property
    def _given(self) -> list[tuple[str | None, ...]]:
        results = self.devices.results
        return [(r.request, r.driver, r.pool, r.device, r.share_id) for r in results]


class ConsumerReference(Record, frozen=True):
    """An object that may use an allocated claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class Condition(Record, frozen=True):
    """One condition of an allocated device, as its driver reports it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Record, frozen=True):
    """What a driver reports of one allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Record, frozen=True):
    """The allocation of a claim and its users."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Record, frozen=True):
    """A claim on devices.

    `is_too_deep` is no field of the API: the claim has no allocation, and its parameters for
    drivers nest too deep to be decoded.
    """

    metadata: ClaimMeta = ClaimMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
    is_too_deep: bool = False

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def allocation(self) -> AllocationResult | None:
        """What it got; None while it has nothing."""
        return self.status.allocation

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the pod, or the PodGroup, with *uid* is among its users."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)

    def use_by_group(self, name: str) -> ConsumerReference | None:
        """The PodGroup *name* among its users, if it is there."""
        wanted = (SCHEDULING_GROUP, "podgroups", name)
        for consumer in self.status.reserved_for:
            if (consumer.api_group, consumer.resource, consumer.name) == wanted:
                return consumer
        return None


class DeviceClassConfiguration(Record, frozen=True):
    """Parameters for drivers, passed on as they are."""

    opaque: dict[str, Any] | None = None


class DeviceClassSpec(Record, frozen=True):
    """Which devices a class holds, and the extended resource that it stands for."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Record, frozen=True):
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
