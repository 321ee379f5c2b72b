"""What a claim asks for, request by request, in the form that the search works with.

Owns the defaults of requests, the checks that make a claim impossible everywhere, and the set of
devices of a request for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.core.model.devices import (
    ALL_DEVICES,
    EXACT_COUNT,
    CapacityRequirements,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
)
from engine.core.scheduling.devices.capacity import Amounts
from engine.core.scheduling.devices.pools import PoolDevice

_KEEPING_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


class AllocationError(Exception):
    """Nothing can be allocated, on any node: something is wrong with an object.

    Args:
        text: What, in kube-scheduler's words.
        subject: The object at fault.
        token: The reason token of the pod.
    """

    def __init__(self, text: str, subject: str, token: str = "InvalidClaim") -> None:
        super().__init__(text)
        self.subject = subject
        self.token = token


class NodeUnsuitable(Exception):
    """Nothing can be allocated on this node, for a reason worth reporting."""


class PoolUnusable(NodeUnsuitable):
    """All devices are asked for, and a pool that the node reaches cannot say which it has."""

    def __init__(self, text: str, *, is_incomplete: bool) -> None:
        super().__init__(text)
        self.is_incomplete = is_incomplete


def claim_subject(*keys: str) -> str:
    """Names claims as the objects at fault."""
    return f"resourceclaim {', '.join(keys)}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request or one alternative of a request; `parent` is the request of an alternative."""

    name: str
    parent: str
    class_name: str
    selectors: tuple[DeviceSelector, ...]
    mode: str
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: CapacityRequirements | None
    has_derived_attributes: bool = False

    @property
    def full_name(self) -> str:
        """As in results: `request` or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def request(self) -> str:
        """The name of the request that this is, or is an alternative of."""
        return self.parent or self.name

    @property
    def sub_request(self) -> str:
        """The name of the alternative; empty if it is not one."""
        return self.name if self.parent else ""


@dataclass(slots=True)
class RequestPlan:
    """A request prepared for the search: its class, device count, and what is known of candidates.

    `alive` has a 1 for each device of the node, in the order of trying, that may still suit.
    """

    wanted: Wanted
    device_class: DeviceClass
    count: int
    amounts: Amounts
    all_devices: list[PoolDevice] = field(default_factory=list)
    alive: bytearray = field(default_factory=bytearray)
    consumption: dict[PoolDevice, Amounts | None] = field(default_factory=dict)


def alternatives(request: DeviceRequest) -> list[Wanted]:
    """What *request* wants: itself, or its alternatives in the order of preference."""
    if request.first_available:
        return [
            Wanted(
                name=sub.name,
                parent=request.name,
                class_name=sub.device_class_name,
                selectors=tuple(sub.selectors),
                mode=sub.allocation_mode or EXACT_COUNT,
                count=_count(sub.allocation_mode, sub.count),
                admin_access=False,
                tolerations=tuple(sub.tolerations),
                capacity=sub.capacity,
                has_derived_attributes=bool(sub.derived_attributes),
            )
            for sub in request.first_available
        ]
    exactly = request.exactly
    if exactly is None:
        return []
    return [
        Wanted(
            name=request.name,
            parent="",
            class_name=exactly.device_class_name,
            selectors=tuple(exactly.selectors),
            mode=exactly.allocation_mode or EXACT_COUNT,
            count=_count(exactly.allocation_mode, exactly.count),
            admin_access=bool(exactly.admin_access),
            tolerations=tuple(exactly.tolerations),
            capacity=exactly.capacity,
            has_derived_attributes=bool(exactly.derived_attributes),
        )
    ]


def _count(mode: str, count: int) -> int:
    """How many; the API server's default where a manifest says nothing."""
    return 1 if count == 0 and mode in ("", EXACT_COUNT) else count


def wants_all(wanted: Wanted) -> bool:
    """Whether it is for all devices that suit."""
    return wanted.mode == ALL_DEVICES


def is_kept_away(taints: Sequence[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether one of *taints* is not tolerated."""
    return any(
        taint.effect in _KEEPING_AWAY and not any(_bears(t, taint) for t in tolerations)
        for taint in taints
    )


def _bears(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
