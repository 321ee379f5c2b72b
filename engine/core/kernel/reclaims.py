"""Has pods of queues that borrow evicted, so that a request which has no room may start.

Owns what the runtime demands of any policy: which pods are candidates at all, how many go in a
minute, and that no queue takes back at once from the one it has just given to. Which of them go is
`scheduling.reclaim`'s, with the policy's hooks; evicting them is that of any preemption.

The room is claimed from then on: the taker is nominated, and counts in its queues as if it had it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.kernel.group_preemption import CLUSTER, Trial
from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.preemptions import Preemptions
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.placement import Placement, Preemption
from engine.core.scheduling.reclaim import Candidate, Plan
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Giver, Request, TreeHooks
from engine.core.sharing.sums import Contribution, PodPhase
from engine.policy.evaluator import PolicyFailure

# Between two looks for victims of a queue of which the first found none: a look sees every pod.
_AGAIN_SECONDS: Final = 1.0
# Pods that are looked at again each second, of those for which there were none.
_MOST_AGAIN: Final = 32
# Hooks see for how long a pod has run in steps, so that they need not be asked again each second.
_STEP_SECONDS: Final = 60
_MINUTE: Final = 60.0
# Nodes on which victims are looked for, of those where enough could go.
_MOST_NODES: Final = 8
# So many of the latest are kept for people.
_MOST_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """One reclaim: who took from whom.

    Attributes:
        at: When (monotonic seconds).
        taker, queue: The pod, as `namespace/name`, and its queue.
        victims: The pods that go, each with its queue and the stage at which it might be taken.
        is_reversal: A queue takes back from the one that took from it less than `minRuntime` ago.
    """

    at: float
    taker: str
    queue: str
    victims: tuple[tuple[str, str, int], ...]
    is_reversal: bool = False


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

    def queues_of(self, taker: str, victim: str) -> tuple[str, str] | None:
        """The queue that gives *victim* back for *taker*, and that of *taker*; None: it does not.

        Both are pods, as `namespace/name`. Known of the latest reclaims alone.
        """
        for one in reversed(self.latest):
            if one.taker == taker:
                for pod, giver, _ in one.victims:
                    if pod == victim:
                        return giver, one.queue
        return None

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
        node = ""

        def places() -> bool:
            nonlocal node
            decision = scheduler.schedule(
                queued.pod, self._cache.snapshot(), self._nominator, has_post_filters=False
            )
            node = decision.node or ""
            return decision.node is not None

        request = self._request_of([queued.pod], None)
        victims = self._find([queued.pod], request, queue, scheduler, places)
        if not victims:
            return None
        is_there = all(pod.node_name == node for pod in victims)
        return Preemption(node if is_there else CLUSTER, victims), node

    def for_group(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler, trial: Trial
    ) -> tuple[tuple[Pod, ...], dict[str, str]] | None:
        """The same for a group: the pods to evict, and by uid where its pods go then."""
        pods = [queued.pod for queued in members]
        queue = self._shares.place_of(pods[0])[0] if self.is_on else None
        if queue is None or not self._may_look(queue) or pods[0].uid in self._preemptions:
            return None
        placed: list[Placement] = []

        def places() -> bool:
            placed[:], _ = trial()
            return bool(placed)

        request = self._request_of(pods, key)
        victims = self._find(pods, request, queue, scheduler, places)
        if not victims:
            return None
        return victims, {placement.pod.uid: placement.node for placement in placed}

    def _may_look(self, queue: str) -> bool:
        if not self.is_on:
            return False
        now = self._time.monotonic()
        return now >= self._next_look.get(queue, now)

    def _find(
        self,
        taking: Sequence[Pod],
        request: Request,
        queue: str,
        scheduler: Scheduler,
        places: Callable[[], bool],
    ) -> tuple[Pod, ...]:
        pod = taking[0]
        hooks = self._shares.hooks
        assert hooks is not None, "asked only of a tree"
        if scheduler.missing_for_preemption(pod, self._cache.snapshot()) is not None:
            return ()
        pods: dict[str, Pod] = {}
        candidates = list(self._candidates(hooks, pod, queue, scheduler, pods))
        going = [
            one
            for uid, added in self._shares.contributions()
            if added.phase is PodPhase.LEAVING or self._preemptions.is_evicted(uid)
            if (one := self._cache.get_pod(uid)) is not None
        ]
        length = len(self._out)
        with self._cache.trial():
            gone: dict[str, Pod] = {}
            for one in going:
                self._cache.remove_pod(one)

            def fits(victims: Sequence[Candidate]) -> bool:
                wanted = {uid for one in victims for uid in one.uids}
                for uid in wanted - gone.keys():
                    gone[uid] = pods[uid]
                    self._cache.remove_pod(pods[uid])
                for uid in gone.keys() - wanted:
                    self._cache.add_pod(gone.pop(uid))
                return places()

            uids, own = [one.uid for one in going], [one.uid for one in taking]
            sets = self._sets(candidates, pods, request, is_placed=fits(()))
            plan = self._shares.plan(request, queue).plan(sets, fits, uids, own)
            if plan.victims and not fits(plan.victims):  # where it goes, with these gone
                plan = Plan()
        del self._out[length:]  # nothing of it has happened
        if not plan.victims:
            self._next_look[queue] = self._time.monotonic() + _AGAIN_SECONDS
        if plan.failure is not None:
            self._shares.note_failure(plan.failure.hook, queue, plan.failure)
            return ()
        victims = tuple(pods[uid] for one in plan.victims for uid in one.uids)
        if not victims or not self._is_in_budget(queue, len(victims)):
            return ()
        self._note(pod, queue, plan, pods)
        return victims

    def _sets(
        self,
        candidates: Sequence[Candidate],
        pods: Mapping[str, Pod],
        request: Request,
        *,
        is_placed: bool,
    ) -> Iterator[Sequence[Candidate]]:
        """Sets of candidates to choose from, one after the other.

        Where nodes are what is missing, of one node first: those on others would not help, and what
        the policy lets go would be used up by them. Of nodes those where the fewest have to go.
        """
        if not is_placed and request.pods == 1:
            on_node: dict[str, list[Candidate]] = {}
            for one in candidates:
                on_node.setdefault(pods[one.uids[0]].node_name, []).append(one)
            counts = {node: self._count_on(node, some, request) for node, some in on_node.items()}
            nodes = sorted((count, node) for node, count in counts.items() if count is not None)
            for _, node in nodes[:_MOST_NODES]:
                yield on_node[node]
        if candidates:
            yield candidates

    def _count_on(self, node: str, some: Sequence[Candidate], request: Request) -> int | None:
        """How many of *some* have to leave *node* for the request; None: all are too few."""
        info = self._cache.node_info(node)
        if info is None or info.node is None:
            return None
        lacks = {
            resource: amount
            + info.requested.get(resource, 0)
            - info.node.allocatable.get(resource, 0)
            for resource, amount in request.resources.items()
            if resource != "pods"
        }
        for count, one in enumerate(sorted(some, key=lambda one: one.order)):
            if all(amount <= 0 for amount in lacks.values()):
                return count
            for resource, amount in one.giver.resources:
                if resource in lacks:
                    lacks[resource] -= amount
        return len(some) if all(amount <= 0 for amount in lacks.values()) else None

    # --- candidates, and what is demanded of them --------------------------------------------

    def _candidates(
        self, hooks: TreeHooks, taker: Pod, queue: str, scheduler: Scheduler, pods: dict[str, Pod]
    ) -> Iterator[Candidate]:
        """Every pod of the tree that may go, whatever the policy says; *pods* get them by uid."""
        now = self._time.monotonic()
        limits = hooks.tree.limits
        sees_time = hooks.tree.mentions("running_seconds")
        found: list[tuple[Pod, Contribution, float]] = []
        for uid, added in self._shares.contributions():
            if added.phase is not PodPhase.ALLOCATED or not added.is_preemptible:
                continue
            ran = now - self._shares.allocated_at(uid)
            pod = self._cache.get_pod(uid)
            if pod is None or ran < limits.min_runtime or self._preemptions.is_evicted(uid):
                continue
            if self._gave(added.queue, queue, now, limits.min_runtime):
                continue
            if added.queue == queue and pod.priority >= taker.priority:
                continue  # within a queue only the more important one takes
            found.append((pod, added, ran))
        kept = self._kept(taker, [pod for pod, _, _ in found], scheduler)
        as_one = {pod.uid: unit for unit in self._groups.disrupted_as_one() for pod in unit.pods}
        alive = {pod.uid: (added, ran) for pod, added, ran in found if pod.uid not in kept}
        done = set[str]()
        for pod, added, ran in found:
            if pod.uid in kept or pod.uid in done:
                continue
            unit = as_one.get(pod.uid)
            members = (pod,) if unit is None else unit.pods
            if any(one.uid not in alive for one in members):
                continue  # a part of it has to stay
            done.update(one.uid for one in members)
            pods.update((one.uid, one) for one in members)
            yield _candidate(
                members, added, min(ran, *(alive[m.uid][1] for m in members)), sees_time
            )

    def _kept(self, taker: Pod, pods: Sequence[Pod], scheduler: Scheduler) -> set[str]:
        """Those that may never go: `victim_key` says so, or their budget is used up."""
        profile = scheduler.profile_of(taker)
        if profile is None or not pods:
            return set()
        snapshot = self._cache.snapshot()
        never = scheduler.kept(profile, pods, snapshot)
        if isinstance(never, PolicyFailure):
            return {pod.uid for pod in pods}
        budgets = Budgets(snapshot)
        violating, _ = budgets.split(pods, range(len(pods)))
        return {pod.uid for pod in never} | {pods[place].uid for place in violating}

    def _gave(self, giver: str, taker: str, now: float, least: float) -> bool:
        """True if *giver* got what it has from *taker* a moment ago: they would go in a circle."""
        took_at = self._took_at.get((giver, taker))
        return took_at is not None and now - took_at < least

    def _is_in_budget(self, queue: str, count: int) -> bool:
        """True if the queue may take so many in this minute; they count then."""
        hooks = self._shares.hooks
        assert hooks is not None, "asked only of a tree"
        now, most = self._time.monotonic(), hooks.tree.limits.victims_per_minute
        at = self._victims_at.setdefault(queue, deque())
        while at and at[0] <= now - _MINUTE:
            at.popleft()
        if len(at) + count > most and at:
            return False
        at.extend([now] * count)
        return True

    def _note(self, pod: Pod, queue: str, plan: Plan, pods: Mapping[str, Pod]) -> None:
        now = self._time.monotonic()
        victims = tuple(
            (pods[uid].key, one.queue, stage)
            for one, stage in zip(plan.victims, plan.stages, strict=True)
            for uid in one.uids
        )
        hooks = self._shares.hooks
        assert hooks is not None, "asked only of a tree"
        least = hooks.tree.limits.min_runtime or _MINUTE
        is_reversal = any(self._gave(giver, queue, now, least) for _, giver, _ in victims)
        self.reversals += is_reversal
        for _, giver, _ in victims:
            self.taken[queue, giver] = self.taken.get((queue, giver), 0) + 1
            if giver != queue:
                self._took_at[queue, giver] = now
        self.latest.append(Reclaimed(now, pod.key, queue, victims, is_reversal))


def _candidate(
    members: Sequence[Pod], added: Contribution, ran: float, sees_time: bool
) -> Candidate:
    amounts: dict[str, int] = {"pods": len(members)}
    for pod in members:
        for resource, amount in pod.requests.items():
            amounts[resource] = amounts.get(resource, 0) + amount
    priority = max(pod.priority for pod in members)
    seconds = int(ran) // _STEP_SECONDS * _STEP_SECONDS if sees_time else 0
    giver = Giver(tuple(sorted(amounts.items())), priority, added.is_preemptible, seconds)
    # The least important first; of equal ones those that started last.
    order = (priority, ran, members[0].uid)
    return Candidate(tuple(pod.uid for pod in members), added.queue, giver, order)
