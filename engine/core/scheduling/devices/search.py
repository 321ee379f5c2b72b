"""The search for devices: the first way to satisfy all claims of a pod on one node.

Owns the order of trying, which is kube-scheduler's, and backtracking. All requests are met one
after another, each with the first devices that suit; when a later one cannot be met, the last
choice is changed. Steps are counted: an unlucky search ends, and says so.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.model.devices import MOST_RESULTS, DeviceClass, ResourceClaim
from engine.core.model.node import Node
from engine.core.scheduling.devices.allocated import AllocatedDevices
from engine.core.scheduling.devices.capacity import Amounts, Nanos, fits
from engine.core.scheduling.devices.compatibility import CompatibilityGroups
from engine.core.scheduling.devices.constraints import Constraint, IncomparableAttribute
from engine.core.scheduling.devices.planning import (
    DEAD,
    SUITS,
    UNKNOWN,
    ClassLookup,
    Planner,
    Steps,
)
from engine.core.scheduling.devices.pools import DeviceId, Pool, PoolDevice, PoolId
from engine.core.scheduling.devices.requests import (
    AllocationError,
    NodeUnsuitable,
    RequestPlan,
    Wanted,
    claim_subject,
    is_kept_away,
    wants_all,
)


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
        steps: Steps,
    ) -> None:
        self._pools = pools
        self._pool_of: dict[PoolId, Pool] = {pool.id: pool for pool in pools}
        self._claims = claims
        self._allocated = allocated
        self._steps = steps
        self._planner = Planner(node, pools, class_of=class_of, steps=steps)
        self._devices = self._planner.devices
        self._plans: list[list[list[RequestPlan]]] = []
        self._constraints: list[list[Constraint]] = []
        # The state of the search; all of it is put back when a choice is taken back.
        self._taking: dict[DeviceId, set[int]] = {}  # by which claims, in this attempt
        self._consuming: dict[DeviceId, list[Amounts]] = {}
        self._counting: dict[PoolId, dict[str, Nanos]] = {}
        self._available: dict[PoolId, dict[str, Nanos]] = {}
        self._groups = CompatibilityGroups(self._pool_of, allocated)
        self._results: list[list[Chosen]] = [[] for _ in claims]
        self._picked: list[list[int]] = []
        self._order: list[tuple[int, int]] = []  # claims and their requests, as they are met

    def run(self) -> list[ClaimChoice] | None:
        """What was found for each claim, in their order; None if the node cannot satisfy them.

        Raises `AllocationError` if no node can, `NodeUnsuitable` if this one cannot for a reason
        worth reporting, and `OutOfSteps`.
        """
        for claim in self._claims:
            self._plans.append(self._planner.plans(claim))
            self._constraints.append(self._planner.constraints(claim))
        self._picked = [[0] * len(plans) for plans in self._plans]
        self._order = [(c, r) for c, plans in enumerate(self._plans) for r in range(len(plans))]
        outcome = _run(self._request(0)) if self._order else _FOUND
        if outcome == _TOO_MANY:
            keys = [claim.key for claim in self._claims]
            raise AllocationError("allocation max size exceeded", claim_subject(*keys))
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

    def _request(self, place: int) -> _Step:
        """Meet the request at *place*, of all claims', and everything after it."""
        c, r = self._order[place]
        options = self._plans[c][r]
        if options[0].wanted.parent:
            return self._alternatives(place, options)
        return self._meet(place, options[0])

    def _alternatives(self, place: int, options: Sequence[RequestPlan]) -> _Step:
        c, r = self._order[place]
        all_too_many = True
        for i, plan in enumerate(options):
            outcome: str = yield self._meet(place, plan)
            if outcome == _FOUND:
                self._picked[c][r] = i
                return _FOUND
            all_too_many = all_too_many and outcome == _TOO_MANY
        return _TOO_MANY if all_too_many else _NOT_FOUND

    def _meet(self, place: int, plan: RequestPlan) -> _Step:
        return self._take_all(place, plan) if wants_all(plan.wanted) else self._pick(place, plan)

    def _pick(self, place: int, plan: RequestPlan) -> _Step:
        """Pick the devices of a request, each time the next that suits; go back where that fails.

        Whatever is chosen is given back unless everything after it was met.
        """
        c = self._order[place][0]
        results, alive = self._results[c], plan.alive
        picked: list[tuple[int, Callable[[], None]]] = []  # with the way to give each back
        start = 0
        while True:
            self._steps.spend(1)
            left = plan.count - len(picked)
            if left <= 0:
                outcome = yield from self._rest(place)
                if outcome == _FOUND:
                    return _FOUND
            elif len(results) + left > MOST_RESULTS:
                outcome = _TOO_MANY
            # Too few are left, whichever are picked next. (Not checked for the first one, so that
            # every selector is evaluated.)
            elif picked and len(alive) - start - alive.count(DEAD, start) < left:
                outcome = _NOT_FOUND
            elif (found := self._next(c, plan, start)) is not None:
                picked.append(found)
                start = found[0] + 1
                continue
            else:
                outcome = _NOT_FOUND
            while picked:
                last, undo = picked.pop()
                undo()
                if outcome == _NOT_FOUND and (found := self._next(c, plan, last + 1)) is not None:
                    picked.append(found)
                    start = found[0] + 1
                    break
            else:
                return outcome

    def _next(self, c: int, plan: RequestPlan, start: int) -> tuple[int, Callable[[], None]] | None:
        """Take the first device from *start* on that will do: its place, and the undo."""
        alive = plan.alive
        for place in range(start, len(alive)):
            if not alive[place]:
                continue
            self._steps.spend(1)
            device = self._devices[place]
            if not self._is_candidate(c, plan, place, device):
                continue
            undo = self._take(c, plan, device)
            if undo is not None:
                return place, undo
        return None

    def _take_all(self, place: int, plan: RequestPlan) -> _Step:
        """Take all devices of a request: there is no other way to meet it."""
        c = self._order[place][0]
        undos: list[Callable[[], None]] = []
        outcome = _FOUND if plan.all_devices else _NOT_FOUND
        self._steps.spend(1)
        for count, device in enumerate(plan.all_devices):
            if len(self._results[c]) + plan.count - count > MOST_RESULTS:
                outcome = _TOO_MANY
                break
            undo = None
            if self._is_free(c, plan, device):
                undo = self._take(c, plan, device, must=True)
            if undo is None:
                outcome = _NOT_FOUND
                break
            undos.append(undo)
            self._steps.spend(1)
        if outcome == _FOUND:
            outcome = yield from self._rest(place)
        if outcome != _FOUND:
            for undo in reversed(undos):
                undo()
        return outcome

    def _rest(self, place: int) -> _Step:
        """Meet all requests after *place*; the outcome as the claim at *place* takes it."""
        if place + 1 == len(self._order):
            return _FOUND
        outcome: str = yield self._request(place + 1)
        is_other = self._order[place + 1][0] != self._order[place][0]
        # For this claim that is no more than a failure: another choice here may help there.
        return _NOT_FOUND if is_other and outcome == _TOO_MANY else outcome

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
        # Admin access looks at a device in the hands of others: it takes nothing of it.
        is_admin = wanted.admin_access
        # A share that was given out while the device allowed that keeps all of it.
        keeps = device.behaves.shares_keep_devices and not device.allows_many
        if keeps and not is_admin and self._allocated.is_shared(device.id):
            return None
        if not must and not self._has_capacity(device, taken, is_admin):
            return None
        # The first share of a device takes its counters, the next ones share them.
        is_shared_already = device.allows_many and (
            self._allocated.is_shared(device.id) or bool(self._consuming.get(device.id))
        )
        consumes = [] if is_shared_already or is_admin else device.consumes
        if consumes:
            if device.groups and not self._groups.admits(device):
                return None
            if not self._has_counters(device):
                return None
        if not self._add_to_constraints(c, wanted, device):
            if must:
                raise AllocationError(
                    f"claim {self._claims[c].key}, request {wanted.name}: cannot add device "
                    f"{device.text} because a claim constraint would not be satisfied",
                    claim_subject(self._claims[c].key),
                )
            return None
        # Last, because a constraint that is in the way is the more serious problem.
        if must and not self._has_capacity(device, taken, is_admin):
            self._remove_from_constraints(c, wanted)
            return None
        self._count(device, consumes, 1)
        if device.groups and consumes:
            self._groups.join(device)
        if device.allows_many:
            if not is_admin:
                self._consuming.setdefault(device.id, []).append(taken)
        else:
            self._taking.setdefault(device.id, set()).add(c)
        results = self._results[c]
        results.append(Chosen(wanted, device, taken if device.allows_many else None))

        def undo() -> None:
            results.pop()
            if device.allows_many:
                if not is_admin:
                    self._consuming[device.id].pop()
            else:
                self._taking[device.id].discard(c)
            if device.groups and consumes:
                self._groups.leave(device)
            self._count(device, consumes, -1)
            self._remove_from_constraints(c, wanted)

        return undo

    def _has_capacity(self, device: PoolDevice, taken: Amounts, is_admin: bool) -> bool:
        if not taken:
            return True
        if is_admin:
            return fits(taken, device.amounts, {}, {})
        allocating: Mapping[str, int] = _NOTHING
        shares = self._consuming.get(device.id)
        if shares:
            allocating = {name: sum(share[name].nanos for share in shares) for name in taken}
        return fits(taken, device.amounts, self._allocated.consumed(device.id), allocating)

    def _add_to_constraints(self, c: int, wanted: Wanted, device: PoolDevice) -> bool:
        constraints = self._constraints[c]
        for i, constraint in enumerate(constraints):
            try:
                is_added = constraint.add(wanted.request, wanted.sub_request, device)
            except IncomparableAttribute as error:
                key = self._claims[c].key
                text = f"claim {key}, request {wanted.name}: {error}"
                raise AllocationError(text, claim_subject(key)) from error
            if not is_added:
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
