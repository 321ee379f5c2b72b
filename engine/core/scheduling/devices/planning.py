"""Prepares requests for a search: their classes, counts, and which devices suit them.

Owns the checks that make a claim impossible everywhere, whatever is free, and the answers of
selectors. What is free is the search's.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from engine.core.model.devices import (
    EXACT_COUNT,
    MOST_RESULTS,
    DeviceClass,
    DeviceSelector,
    ResourceClaim,
)
from engine.core.model.node import Node
from engine.core.model.quantity import QuantityError
from engine.core.scheduling.devices.capacity import (
    Amounts,
    CapacityError,
    consumption,
    fits,
    requested_amounts,
    requested_in_full,
)
from engine.core.scheduling.devices.constraints import Constraint
from engine.core.scheduling.devices.pools import Pool, PoolDevice, device_reaches
from engine.core.scheduling.devices.requests import (
    AllocationError,
    PoolUnusable,
    RequestPlan,
    Wanted,
    alternatives,
    claim_subject,
    wants_all,
)
from engine.core.scheduling.devices.selectors import SelectorError, matches

ClassLookup = Callable[[str], DeviceClass | None]

DEAD: Final = 0
UNKNOWN: Final = 1
SUITS: Final = 2


class OutOfSteps(Exception):
    """The search took longer than it may."""


class Steps:
    """How much a search may still do: devices looked at, and the cost of their selectors."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self, steps: int) -> None:
        """Count *steps*. Raises `OutOfSteps` once there are none left."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


class _Selecting(NamedTuple):
    """What has a selector: its name in messages, and who is at fault if the selector fails."""

    text: str
    subject: str
    token: str


def _of_claim(claim: ResourceClaim) -> _Selecting:
    return _Selecting(f"claim {claim.key}", claim_subject(claim.key), "ClaimSelectorFailed")


def _of_class(device_class: DeviceClass) -> _Selecting:
    name = device_class.metadata.name
    return _Selecting(f"class {name}", f"deviceclass {name}", "ClassSelectorFailed")


class Planner:
    """Makes plans for the claims of one pod on one node.

    Args:
        node: Where.
        pools: What the node reaches, in the order of trying.
        class_of: Device classes by name.
        steps: Counts what selectors cost.
    """

    def __init__(
        self,
        node: Node,
        pools: Sequence[Pool],
        *,
        class_of: ClassLookup,
        steps: Steps,
    ) -> None:
        self._node = node
        self._pools = pools
        self._class_of = class_of
        self._steps = steps
        #: Every device that may be taken, in the order of trying.
        self.devices = [
            device
            for pool in pools
            if not pool.is_incomplete and pool.problem is None
            for part in pool.slices
            for device in part.devices
        ]

    def plans(self, claim: ResourceClaim) -> list[list[RequestPlan]]:
        """For each request of *claim*, the plans of its alternatives.

        Raises `AllocationError` if the claim cannot be satisfied on any node.
        """
        plans = []
        least = 0
        for request in claim.spec.devices.requests:
            options = alternatives(request)
            if not options:
                raise AllocationError(
                    f"claim {claim.key}, request {request.name}: unknown request type",
                    claim_subject(claim.key),
                )
            plans.append([self._plan(claim, wanted) for wanted in options])
            more = min(plan.count for plan in plans[-1])
            if least + more > MOST_RESULTS:
                raise AllocationError(
                    f"claim {claim.key}, request {request.name}: adding {more} devices exceeds "
                    f"the claim limit of {MOST_RESULTS}, with {least} already accounted for",
                    claim_subject(claim.key),
                )
            least += more
        return plans

    def constraints(self, claim: ResourceClaim) -> list[Constraint]:
        """The constraints of *claim*. Raises `AllocationError` for one of no known kind."""
        made = []
        for i, record in enumerate(claim.spec.devices.constraints):
            if record.match_attribute is None and record.distinct_attribute is None:
                raise AllocationError(
                    f"claim {claim.key}, constraint #{i}: "
                    "empty constraint (unsupported constraint type?)",
                    claim_subject(claim.key),
                )
            made.append(Constraint(record))
        return made

    def suits(self, claim: ResourceClaim, plan: RequestPlan, device: PoolDevice) -> bool:
        """Whether *device* is of the class, suits the request and is for the node.

        Raises `AllocationError` if a selector cannot be evaluated.
        """
        device_class = plan.device_class
        return (
            self._all_match(device_class.spec.selectors, device, _of_class(device_class))
            and self._all_match(plan.wanted.selectors, device, _of_claim(claim))
            and device_reaches(self._node, device)
        )

    def consumption(
        self, claim: ResourceClaim, plan: RequestPlan, device: PoolDevice
    ) -> Amounts | None:
        """What the request takes of *device*; None if the device cannot provide the amounts.

        Raises `AllocationError` for an amount that no device can provide.
        """
        if device not in plan.consumption:
            amounts, behaves = plan.amounts, device.behaves
            try:
                if amounts and behaves.names_in_full:
                    amounts = requested_in_full(amounts, device.driver, device.amounts)
                plan.consumption[device] = consumption(
                    amounts, device.amounts, refuses_negative=behaves.negative_amounts_fail
                )
            except CapacityError as error:
                name = device.record.name if wants_all(plan.wanted) else device.text
                raise AllocationError(
                    f"claim {claim.key}, request {plan.wanted.name}: "
                    f"checking capacity for device {name}: {error}",
                    claim_subject(claim.key),
                ) from error
        return plan.consumption[device]

    def _plan(self, claim: ResourceClaim, wanted: Wanted) -> RequestPlan:
        where, subject = f"claim {claim.key}, request {wanted.name}", claim_subject(claim.key)
        if wanted.has_derived_attributes:
            raise AllocationError(
                f"{where}: cannot handle request with derived attributes, the feature is disabled",
                subject,
            )
        for i, selector in enumerate(wanted.selectors):
            if selector.cel is None:
                raise AllocationError(
                    f"{where}, selector #{i}: CEL expression empty (unsupported selector type?)",
                    subject,
                )
        if not wanted.class_name:
            raise AllocationError(
                f"{where}: missing device class name (unsupported request type?)", subject
            )
        device_class = self._class_of(wanted.class_name)
        if device_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {wanted.class_name}: "
                f'deviceclass.resource.k8s.io "{wanted.class_name}" not found',
                f"deviceclass {wanted.class_name}",
                "ClassMissing",
            )
        try:
            amounts = requested_amounts(wanted.capacity)
        except QuantityError as error:
            raise AllocationError(f"{where}: capacity: {error}", subject) from error
        plan = RequestPlan(wanted, device_class, wanted.count, amounts)
        if wants_all(wanted):
            plan.all_devices = self._all_devices(claim, plan, where)
            plan.count = len(plan.all_devices)
        elif wanted.mode == EXACT_COUNT:
            plan.alive = bytearray([UNKNOWN]) * len(self.devices)
        else:
            raise AllocationError(f"{where}: unsupported count mode {wanted.mode}", subject)
        return plan

    def _all_devices(self, claim: ResourceClaim, plan: RequestPlan, where: str) -> list[PoolDevice]:
        chosen = []
        for pool in self._pools:
            if pool.is_incomplete or pool.problem is not None:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise PoolUnusable(
                    f"{where}: asks for all devices, "
                    f"but resource pool {pool.text} is currently {state}",
                    is_incomplete=pool.is_incomplete,
                )
            for part in pool.slices:
                chosen += [d for d in part.devices if self._is_wanted(claim, plan, d)]
        return chosen

    def _is_wanted(self, claim: ResourceClaim, plan: RequestPlan, device: PoolDevice) -> bool:
        """Whether *device* suits a request for all devices, whatever is left of its capacity."""
        self._steps.spend(1)
        if not self.suits(claim, plan, device):
            return False
        taken = self.consumption(claim, plan, device)
        return taken is not None and fits(taken, device.amounts, {}, {})

    def _all_match(
        self, selectors: Sequence[DeviceSelector], device: PoolDevice, of: "_Selecting"
    ) -> bool:
        for i, selector in enumerate(selectors):
            if selector.cel is None:
                raise AllocationError(
                    f"{of.text}: selector #{i}: CEL expression empty (unsupported selector type?)",
                    of.subject,
                    of.token,
                )
            try:
                is_match, cost = matches(selector.cel.expression, device)
            except SelectorError as error:
                where = f" on device {device.text}" if error.is_about_device else ""
                text = f"{of.text}: selector #{i}{where}: {error}"
                if error.is_device_at_fault:
                    subject = f"resourceslice {device.slice.name}"
                    raise AllocationError(text, subject, "InvalidDevice") from error
                raise AllocationError(text, of.subject, of.token) from error
            if cost:
                self._steps.spend(cost)
            if not is_match:
                return False
        return True
