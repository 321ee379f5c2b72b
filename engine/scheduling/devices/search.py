"""The search for devices: the first way to satisfy all claims of a pod on one node.

Owns the order of trying, which is kube-scheduler's, and backtracking. All requests are met one
after another, each with the first devices that suit; when a later one cannot be met, the last
choice is changed. Steps are counted: an unlucky search ends, and says so.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.model.devices import MOST_RESULTS, DeviceClass, ResourceClaim
from engine.model.node import Node
from engine.scheduling.devices.allocated import AllocatedDevices
from engine.scheduling.devices.capacity import Amounts, Nanos, fits
from engine.scheduling.devices.constraints import Constraint
from engine.scheduling.devices.planning import DEAD, SUITS, UNKNOWN, ClassLookup, Planner, Steps
from engine.scheduling.devices.pools import DeviceId, Pool, PoolDevice, PoolId
from engine.scheduling.devices.requests import (
    AllocationError,
    NodeUnsuitable,
    RequestPlan,
    Wanted,
    is_kept_away,
    wants_all,
)
from engine.scheduling.devices.selectors import Selectors


@dataclass(frozen=True, slots=True)
class Chosen:
    """One device for one request. `consumed` is set where the device is shared."""

    wanted: Wanted
    device: PoolDevice
    consumed: Amounts | None


@dataclass(frozen=True, slots=True)
class ClaimChoice:
    """What was found for one claim, and what was wanted in the end for each request."""

    devices: tuple[Chosen, ...]
    wanted: tuple[tuple[Wanted, DeviceClass], ...]


# The result of a step of the search.
_FOUND: Final = "found"
_NOT_FOUND: Final = "not found"
_TOO_MANY: Final = "more devices than a claim may have"

# A step yields the step that it waits for and is sent its result; so the depth of a search
# is not the depth of Python's stack.
_Step = Generator[Any, str, str]
_NOTHING: Final[Mapping[str, int]] = {}


def _run(first: _Step) -> str:
    stack = [first]
    came_to: Any = None
    while True:
        try:
            child = stack[-1].send(came_to)
        except StopIteration as stop:
            stack.pop()
            came_to = stop.value
            if not stack:
                return str(came_to)
        else:
            stack.append(child)
            came_to = None


class Search:
    """One search, on one node, for the claims of one pod.

    Args:
        node: Where.
        pools: What the node reaches, in the order of trying.
        claims: What is asked for.
        class_of: Device classes by name.
        allocated: What is taken already.
        selectors: Compiled expressions.
        steps: How long it may take.
    """

    def __init__(
        self,
        node: Node,
        pools: Sequence[Pool],
        claims: Sequence[ResourceClaim],
        *,
        class_of: ClassLookup,
        allocated: AllocatedDevices,
        selectors: Selectors,
        steps: Steps,
    ) -> None:
        self._pools = pools
        self._pool_of: dict[PoolId, Pool] = {pool.id: pool for pool in pools}
        self._claims = claims
        self._allocated = allocated
        self._steps = steps
        self._planner = Planner(node, pools, class_of=class_of, selectors=selectors, steps=steps)
        self._devices = self._planner.devices
        self._plans: list[list[list[RequestPlan]]] = []
        self._constraints: list[list[Constraint]] = []
        # The state of the search; all of it is put back when a choice is taken back.
        self._taking: dict[DeviceId, set[int]] = {}  # by which claims, in this attempt
        self._consuming: dict[DeviceId, list[Amounts]] = {}
        self._counting: dict[PoolId, dict[str, Nanos]] = {}
        self._available: dict[PoolId, dict[str, Nanos]] = {}
        self._results: list[list[Chosen]] = [[] for _ in claims]
        self._picked: list[list[int]] = []

    def run(self) -> list[ClaimChoice] | None:
        """What was found for each claim, in their order; None if the node cannot satisfy them.

        Raises `AllocationError` if no node can, `NodeUnsuitable` if this one cannot for a reason
        worth reporting, and `OutOfSteps`.
        """
        for claim in self._claims:
            self._plans.append(self._planner.plans(claim))
            self._constraints.append(self._planner.constraints(claim))
        self._picked = [[0] * len(plans) for plans in self._plans]
        outcome = _run(self._claim(0))
        if outcome == _TOO_MANY:
            raise AllocationError("allocation max size exceeded")
        if outcome != _FOUND:
            if any(pool.problem is not None for pool in self._pools):
                raise NodeUnsuitable("invalid resource pools were encountered")
            return None
        choices = []
        for results, plans, picked in zip(self._results, self._plans, self._picked, strict=True):
            final = [options[i] for options, i in zip(plans, picked, strict=True)]
            wanted = tuple((plan.wanted, plan.device_class) for plan in final)
            choices.append(ClaimChoice(tuple(results), wanted))
        return choices

    # --- the steps ---------------------------------------------------------------------------

    def _claim(self, c: int) -> _Step:
        """Satisfy claim *c* and all after it."""
        if c == len(self._claims):
            return _FOUND
        outcome: str = yield self._request(c, 0)
        return outcome

    def _request(self, c: int, r: int) -> _Step:
        """Meet request *r* of claim *c* and everything after it."""
        plans = self._plans[c]
        if r == len(plans):
            outcome: str = yield self._claim(c + 1)
            # For this claim that is no more than a failure: another choice here may help there.
            return _NOT_FOUND if outcome == _TOO_MANY else outcome
        options = plans[r]
        if not options[0].wanted.parent:
            outcome = yield self._pick(c, r, options[0], 0, 0)
            return outcome
        all_too_many = True
        for i, plan in enumerate(options):
            outcome = yield self._pick(c, r, plan, 0, 0)
            if outcome == _FOUND:
                self._picked[c][r] = i
                return _FOUND
            all_too_many = all_too_many and outcome == _TOO_MANY
        return _TOO_MANY if all_too_many else _NOT_FOUND

    def _pick(self, c: int, r: int, plan: RequestPlan, count: int, start: int) -> _Step:
        """Pick the devices of a request from the *count*-th on, at place *start* or after it."""
        self._steps.spend(1)
        outcome: str
        if wants_all(plan.wanted):
            if not plan.all_devices:
                return _NOT_FOUND
            if count < plan.count:
                outcome = yield from self._pick_next_of_all(c, r, plan, count)
                return outcome
        if count >= plan.count:
            outcome = yield self._request(c, r + 1)
            return outcome
        if len(self._results[c]) + plan.count - count > MOST_RESULTS:
            return _TOO_MANY
        alive = plan.alive
        # Too few are left, whichever are picked next. (Not checked for the first one, so that every
        # selector is evaluated.)
        if count and len(alive) - start - alive.count(DEAD, start) < plan.count - count:
            return _NOT_FOUND
        for place in range(start, len(alive)):
            if not alive[place]:
                continue
            self._steps.spend(1)
            device = self._devices[place]
            if not self._is_candidate(c, plan, place, device):
                continue
            undo = self._take(c, plan, device)
            if undo is None:
                continue
            outcome = yield self._pick(c, r, plan, count + 1, place + 1)
            if outcome == _FOUND:
                return _FOUND
            undo()
            if outcome == _TOO_MANY:
                return _TOO_MANY
        return _NOT_FOUND

    def _pick_next_of_all(
        self, c: int, r: int, plan: RequestPlan, count: int
    ) -> Generator[Any, str, str]:
        """All devices are wanted: this one is, or there is no solution."""
        if len(self._results[c]) + plan.count - count > MOST_RESULTS:
            return _TOO_MANY
        device = plan.all_devices[count]
        undo = None
        if self._is_free(c, plan, device):
            undo = self._take(c, plan, device, must=True)
        if undo is None:
            return _NOT_FOUND
        outcome: str = yield self._pick(c, r, plan, count + 1, 0)
        if outcome != _FOUND:
            undo()
        return outcome

    # --- one device --------------------------------------------------------------------------

    def _is_free(self, c: int, plan: RequestPlan, device: PoolDevice) -> bool:
        taking = self._taking.get(device.id)
        if plan.wanted.admin_access:
            return not taking or c not in taking
        return not taking and not self._allocated.is_owned(device.id)

    def _is_candidate(self, c: int, plan: RequestPlan, place: int, device: PoolDevice) -> bool:
        """Whether *device* is free, suits the request and has what it takes; notes what is lost."""
        if not self._is_free(c, plan, device):
            if not plan.wanted.admin_access and self._allocated.is_owned(device.id):
                plan.alive[place] = DEAD
            return False
        if plan.alive[place] == UNKNOWN:
            is_suitable = (
                self._planner.suits(self._claims[c], plan, device)
                and self._planner.consumption(self._claims[c], plan, device) is not None
            )
            plan.alive[place] = SUITS if is_suitable else DEAD
            if not is_suitable:
                return False
        return True

    def _take(
        self, c: int, plan: RequestPlan, device: PoolDevice, *, must: bool = False
    ) -> Callable[[], None] | None:
        """Take *device* for a request; returns the undo, or None if it is not available.

        With *must* a constraint in the way is an error: no other device would do.
        """
        wanted = plan.wanted
        taken = self._planner.consumption(self._claims[c], plan, device)
        if taken is None or is_kept_away(device.record.taints, wanted.tolerations):
            return None
        # The first share of a device takes its counters, the next ones share them.
        is_shared_already = device.allows_many and (
            self._allocated.is_shared(device.id) or bool(self._consuming.get(device.id))
        )
        consumes = [] if is_shared_already else device.consumes
        if consumes and not self._has_counters(device):
            return None
        if not self._add_to_constraints(c, wanted, device):
            if must:
                raise AllocationError(
                    f"claim {self._claims[c].key}, request {wanted.name}: cannot add device "
                    f"{device.text} because a claim constraint would not be satisfied"
                )
            return None
        # Last, because a constraint that is in the way is the more serious problem.
        if not self._has_capacity(device, taken):
            self._remove_from_constraints(c, wanted)
            return None
        self._count(device, consumes, 1)
        if device.allows_many:
            self._consuming.setdefault(device.id, []).append(taken)
        else:
            self._taking.setdefault(device.id, set()).add(c)
        results = self._results[c]
        results.append(Chosen(wanted, device, taken if device.allows_many else None))

        def undo() -> None:
            results.pop()
            if device.allows_many:
                self._consuming[device.id].pop()
            else:
                self._taking[device.id].discard(c)
            self._count(device, consumes, -1)
            self._remove_from_constraints(c, wanted)

        return undo

    def _has_capacity(self, device: PoolDevice, taken: Amounts) -> bool:
        if not taken:
            return True
        allocating: Mapping[str, int] = _NOTHING
        shares = self._consuming.get(device.id)
        if shares:
            allocating = {name: sum(share[name].nanos for share in shares) for name in taken}
        return fits(taken, device.amounts, self._allocated.consumed(device.id), allocating)

    def _add_to_constraints(self, c: int, wanted: Wanted, device: PoolDevice) -> bool:
        constraints = self._constraints[c]
        for i, constraint in enumerate(constraints):
            if not constraint.add(wanted.request, wanted.sub_request, device):
                for added in constraints[:i]:
                    added.remove(wanted.request, wanted.sub_request)
                return False
        return True

    def _remove_from_constraints(self, c: int, wanted: Wanted) -> None:
        for constraint in self._constraints[c]:
            constraint.remove(wanted.request, wanted.sub_request)

    # --- counters ----------------------------------------------------------------------------

    def _has_counters(self, device: PoolDevice) -> bool:
        """Whether the pool has what *device* consumes, next to what this attempt has chosen."""
        pool = device.id[:2]
        available = self._available.get(pool)
        if available is None:
            available = self._available[pool] = self._counters_left(self._pool_of[pool])
        self._count(device, device.consumes, 1)
        counting = self._counting[pool]
        is_enough = all(
            counting.get(name, _NOTHING).get(counter, 0) <= left
            for name, lefts in available.items()
            for counter, left in lefts.items()
        )
        self._count(device, device.consumes, -1)
        return is_enough

    def _count(self, device: PoolDevice, consumes: list[tuple[str, Nanos]], sign: int) -> None:
        if not consumes:
            return
        counting = self._counting.setdefault(device.id[:2], {})
        for name, amounts in consumes:
            sums = counting.setdefault(name, {})
            for counter, amount in amounts.items():
                sums[counter] = sums.get(counter, 0) + sign * amount

    def _counters_left(self, pool: Pool) -> dict[str, Nanos]:
        left = {name: dict(amounts) for name, amounts in (pool.counter_sets or {}).items()}
        for part in (*pool.slices, *pool.others):
            for device in part.devices:
                if device.consumes and self._allocated.is_in_use(device.id):
                    for name, amounts in device.consumes:
                        for counter, amount in amounts.items():
                            left[name][counter] -= amount
        return left
