"""Has pods of queues that borrow evicted, so that a request which has no room may start.

Owns when victims are looked for, how many go in a minute, and what is remembered of it. Which pods
are candidates is `victim_search`'s, and which of them go `scheduling.reclaim`'s, with the policy's
hooks; evicting them is that of any preemption.

The room is claimed from then on: the taker is nominated, and counts in its queues as if it had it.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.kernel.group_preemption import CLUSTER, Trial
from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.preemptions import Preemptions
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.shared import Shared
from engine.core.kernel.victim_search import (
    MINUTE,
    Found,
    Holdings,
    ReclaimCase,
    VictimSearch,
    budget_wait,
    took_lately,
)
from engine.core.model.pod import Pod
from engine.core.model.pod_group import NEVER
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.placement import Placement, Preemption
from engine.core.scheduling.reclaim import Plan
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Request
from engine.core.sharing.sums import PodPhase
from engine.core.sharing.tree import ROOT

# Between two looks for victims of a queue of which the first found none: a look sees every pod.
_AGAIN_SECONDS: Final = 1.0
# Pods that are looked at again each second, of those for which there were none.
_MOST_AGAIN: Final = 32
# So many of the latest are kept for people.
_MOST_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Shift:
    """What a queue had, or claimed, of a resource before a reclaim and has after it.

    Without what is on its way out already.

    Attributes:
        share: What it may have; None: no policy says.
    """

    queue: str
    resource: str
    before: int
    after: int
    share: int | None


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """One reclaim: who took from whom.

    Attributes:
        at: When (monotonic seconds).
        taker, queue: The pod, as `namespace/name`, and its queue.
        victims: The pods that go, each with its queue and the stage at which it might be taken.
        is_reversal: A queue takes back from the one that took from it less than `minRuntime` ago.
        shifts: Of the queue that takes and of each that gives, of the resource of which most is
            asked for, by what there is.
        policy: The one that governs the queues.
    """

    at: float
    taker: str
    queue: str
    victims: tuple[tuple[str, str, int], ...]
    is_reversal: bool = False
    shifts: tuple[Shift, ...] = ()
    policy: str = ""

    def giver_of(self, victim: str) -> str | None:
        """The queue that gives *victim*, `namespace/name`; None: none does."""
        return next((queue for pod, queue, _ in self.victims if pod == victim), None)


class Reclaims:
    """Finds pods that have to go for a request of a queue.

    Args:
        shares: The tree of queues.
        groups: Knows which pods are disrupted as one.
        nominator: Knows for whom pods were evicted.
        preemptions: Knows which pods are on their way out.
        request_of: What pods ask for together, one or those of a group.

    Attributes:
        latest: The latest reclaims, the newest at the end.
        reversals: How many of them took back, in all.
        taken: How many pods went, by the queues that took and gave.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        shares: QueueShares,
        groups: PodGroups,
        nominator: Nominator,
        preemptions: Preemptions,
        request_of: Callable[[Sequence[Pod], GroupKey | None], Request],
    ) -> None:
        self._cache, self._time, self._out = shared.cache, shared.time, shared.out
        self._request_of = request_of
        self._shares = shares
        self._groups = groups
        self._nominator = nominator
        self._preemptions = preemptions
        self._next_look: dict[str, float] = {}
        self._waiting: dict[str, QueuedPod] = {}
        self._again_at: float | None = None
        self._victims_at: dict[str, deque[float]] = {}
        # When the queue that took got it from the queue that gave, by both.
        self._took_at: dict[tuple[str, str], float] = {}
        self.latest: deque[Reclaimed] = deque(maxlen=_MOST_KEPT)
        self.reversals = 0
        self.taken: dict[tuple[str, str], int] = {}

    @property
    def is_on(self) -> bool:
        """True if the policy that governs the queues says who gives back."""
        hooks = self._shares.hooks
        return hooks is not None and hooks.has("reclaim")

    def for_taker(self, taker: str) -> Reclaimed | None:
        """The last reclaim for the pod *taker*, `namespace/name`, of the latest; None: none."""
        return next((one for one in reversed(self.latest) if one.taker == taker), None)

    def clear(self) -> None:
        """Other policies are in force: they may look at once."""
        self._next_look.clear()
        self._waiting.clear()
        self._again_at = None

    def again_at(self) -> float | None:
        """When `take_again` has pods (monotonic seconds); None: there are none."""
        return self._again_at if self._waiting else None

    def take_again(self) -> list[QueuedPod]:
        """Some of the pods for which no other had to go; by now one may."""
        now = self._time.monotonic()
        if self._again_at is None or now < self._again_at:
            return []
        self._again_at = now + _AGAIN_SECONDS
        uids = list(self._waiting)[:_MOST_AGAIN]
        return [self._waiting.pop(uid) for uid in uids]

    def look_again(self, queued: QueuedPod) -> None:
        """No other pod had to go for this one."""
        self._waiting[queued.uid] = queued
        if self._again_at is None:
            self._again_at = self._time.monotonic() + _AGAIN_SECONDS

    def for_pod(
        self, queued: QueuedPod, queue: str, scheduler: Scheduler
    ) -> tuple[Preemption, str] | None:
        """The pods to evict for *queued*, of *queue*, and where it goes then; None: none."""
        if not self._may_look(queue) or queued.uid in self._preemptions:
            return None
        request = self._request_of([queued.pod], None)
        search = VictimSearch(self._holdings(), self._cache, scheduler)
        with self._saying_nothing():
            found = search.for_pod(queued.pod, request, queue, self._nominator, self._now)
        victims = self._taken(queued.pod, request, queue, found)
        if not victims:
            return None
        is_there = all(pod.node_name == found.node for pod in victims)
        return Preemption(found.node if is_there else CLUSTER, victims), found.node

    def for_group(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> tuple[tuple[Pod, ...], dict[str, str]] | None:
        """The same for a group: the pods to evict, and by uid where its pods go then."""
        pods = [queued.pod for queued in members]
        if pods[0].manifest.spec.preemption_policy == NEVER:  # as all of its pods, and itself
            return None
        queue = self._shares.place_of(pods[0])[0] if self.is_on else None
        if queue is None or not self._may_look(queue) or pods[0].uid in self._preemptions:
            return None
        placed: list[Placement] = []

        def places() -> bool:
            placed[:], _ = trial()
            return bool(placed)

        request = self._request_of(pods, key)
        search = VictimSearch(self._holdings(), self._cache, scheduler)
        with self._saying_nothing():
            found = search.find(pods, request, queue, places, self._now)
        victims = self._taken(pods[0], request, queue, found)
        if not victims:
            return None
        return victims, {placement.pod.uid: placement.node for placement in placed}

    def case_of(self, pod: Pod) -> ReclaimCase | None:
        """What there is to take for *pod*, which waits, as a copy; None: queues give nothing."""
        if not self.is_on or pod.uid in self._preemptions:
            return None
        queue = self._shares.place_of(pod)[0]
        if queue is None:
            return None
        group = self._groups.tried_in(pod.uid)
        taking = [pod] if group is None else self._groups.pending_pods(group)
        request = self._request_of(taking, group)
        return ReclaimCase(
            pod=pod,
            queue=queue,
            taking=tuple(taking),
            least=request.least["pods"],
            request=request,
            holdings=self._holdings().copy(),
            victims_at=tuple(self._victims_at.get(queue, ())),
            now=self._now,
        )

    @property
    def _now(self) -> float:
        return self._time.monotonic()

    def _holdings(self) -> Holdings:
        return self._shares.holdings(
            evicted=self._preemptions.evicted,
            took_at=self._took_at,
            units=self._groups.disrupted_as_one(),
        )

    def _may_look(self, queue: str) -> bool:
        if not self.is_on:
            return False
        now = self._now
        return now >= self._next_look.get(queue, now)

    @contextlib.contextmanager
    def _saying_nothing(self) -> Iterator[None]:
        """Inside nothing happens in earnest: instructions are dropped in the end."""
        length = len(self._out)
        yield
        del self._out[length:]

    def _taken(self, pod: Pod, request: Request, queue: str, found: Found) -> tuple[Pod, ...]:
        """The victims of *found*, which go; none if the queue has had too many in this minute."""
        plan = found.plan
        if not plan.victims:
            self._next_look[queue] = self._now + _AGAIN_SECONDS
        if plan.failure is not None:
            self._shares.note_failure(plan.failure.hook, queue, plan.failure)
            return ()
        if not found.pods or not self._is_in_budget(queue, len(found.pods)):
            return ()
        self._note(pod, request, queue, found)
        return found.pods

    def _is_in_budget(self, queue: str, count: int) -> bool:
        """True if the queue may take so many in this minute; they count then."""
        hooks = self._shares.hooks
        assert hooks is not None, "asked only of a tree"
        now, at = self._now, self._victims_at.setdefault(queue, deque())
        while at and at[0] <= now - MINUTE:
            at.popleft()
        if budget_wait(at, count, hooks.tree.limits.victims_per_minute, now):
            return False
        at.extend([now] * count)
        return True

    def _note(self, pod: Pod, request: Request, queue: str, found: Found) -> None:
        now, plan = self._now, found.plan
        keys = {one.uid: one.key for one in found.pods}
        victims = tuple(
            (keys[uid], one.queue, stage)
            for one, stage in zip(plan.victims, plan.stages, strict=True)
            for uid in one.uids
        )
        hooks = self._shares.hooks
        assert hooks is not None, "asked only of a tree"
        least = hooks.tree.limits.min_runtime or MINUTE
        is_reversal = any(
            took_lately(self._took_at, giver, queue, now, least) for _, giver, _ in victims
        )
        self.reversals += is_reversal
        for _, giver, _ in victims:
            self.taken[queue, giver] = self.taken.get((queue, giver), 0) + 1
            if giver != queue:
                self._took_at[queue, giver] = now
        shifts, policy = self._shifts(request, queue, plan), hooks.tree.policy
        one = Reclaimed(now, pod.key, queue, victims, is_reversal, shifts, policy)
        self.latest.append(one)

    def _shifts(self, request: Request, queue: str, plan: Plan) -> tuple[Shift, ...]:
        """What the queues of *plan* have before and after it of what is asked for most."""
        total = self._shares.share_of(ROOT) or {}
        asked = request.resources
        # Pods are asked for by each request: they are what it is about where it asks for no more.
        names = sorted(asked.keys() - {"pods"}) or ["pods"]
        resource = max(names, key=lambda name: asked[name] / max(total.get(name, 0), 1))
        moves = {queue: asked[resource]}
        for one in plan.victims:
            gives = dict(one.giver.resources).get(resource, 0)
            moves[one.queue] = moves.get(one.queue, 0) - gives
        # What goes for others already does not count, though it is still there.
        going = Counter[str]()
        for uid in self._preemptions.evicted:
            added = self._shares.contribution(uid)
            if added is not None and added.phase is PodPhase.ALLOCATED:
                going[added.queue] += added.amounts.get(resource, 0)
        found = []
        for path, move in moves.items():
            leaving = self._shares.leaving(path, resource) + going[path]
            before = self._shares.taken(path, resource) - leaving
            share = self._shares.share_of(path)
            of = None if share is None else share.get(resource)
            found.append(Shift(path, resource, before, before + move, of))
        return tuple(found)
