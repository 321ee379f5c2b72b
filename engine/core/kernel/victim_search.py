"""Finds the pods that queues would give back for a request, and what keeps them if there are none.

Owns what the runtime demands of any candidate, and on which nodes victims are looked for first.
Which of the candidates go is `scheduling.reclaim`'s, with the policy's hooks. Changes nothing: in
the end the nodes and the sums are as they were, so that it runs on the state of a kernel as well as
on a copy in another thread.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.core.caching.snapshot import Snapshot
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.reclaim import Candidate, Plan, Reclaim
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Giver, Request
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.policy.evaluator import PolicyFailure

# Hooks see for how long a pod has run in steps, so that they need not be asked again each second.
_STEP_SECONDS: Final = 60
# For so long victims count in the budget of a queue.
MINUTE: Final = 60.0
# Nodes on which victims are looked for, of those where enough could go.
_MOST_NODES: Final = 8


class Nodes(Protocol):
    """Nodes whose pods can be taken away and put back: those of a `Cache`, or of a copy."""

    def trial(self) -> AbstractContextManager[None]:
        """Inside, pods can be removed and added; in the end all are as they were."""
        ...

    def snapshot(self) -> Snapshot:
        """The nodes as they are by now."""
        ...

    def node_info(self, name: str) -> NodeInfo | None:
        """The node *name* with its pods; None if it is not there."""
        ...

    def get_pod(self, uid: str) -> Pod | None:
        """The pod of *uid* that is on a node; None if there is none."""
        ...

    def remove_pod(self, pod: Pod) -> None:
        """Have *pod* gone."""
        ...

    def add_pod(self, pod: Pod) -> None:
        """Have *pod* back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What queues have at a moment, and what protects it.

    Attributes:
        sums, shares: Of the tree.
        total: What is divided at the root.
        allocated_at: When each pod was first seen on a node (monotonic seconds), by uid.
        evicted: The uids of pods that are on their way out.
        took_at: When the queue that took got it from the queue that gave, by both.
        units: The groups that are disrupted as one.
    """

    sums: QueueSums
    shares: TreeShares
    total: Amounts
    allocated_at: Mapping[str, float]
    evicted: Collection[str]
    took_at: Mapping[tuple[str, str], float]
    units: Sequence[DisruptionUnit]

    def copy(self) -> "Holdings":
        """The same for another thread, whatever becomes of the original."""
        return Holdings(
            sums=self.sums.copy(),
            shares=self.shares.copy(),
            total=dict(self.total),
            allocated_at=dict(self.allocated_at),
            evicted=frozenset(self.evicted),
            took_at=dict(self.took_at),
            units=tuple(self.units),
        )

    def free_at(self, uid: str, taker: str, least: float) -> float:
        """When the pod of *uid* may go for the queue *taker*: it has to have run for *least*."""
        added = self.sums.contribution(uid)
        took_at = None if added is None else self.took_at.get((added.queue, taker))
        started_at = self.allocated_at.get(uid)
        return max((at + least for at in (took_at, started_at) if at is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimCase:
    """A pod that waits, and what there is to take for it.

    Attributes:
        pod, queue: The pod, and the path of its queue.
        taking: The pods that ask: itself, or all of its group that wait, in the order of trying.
        least: How many of them have to start together.
        request: What they ask for.
        holdings: What queues have.
        victims_at: When its queue has taken others lately (monotonic seconds), the oldest first.
        now: Of which moment this is.
    """

    pod: Pod
    queue: str
    taking: Sequence[Pod]
    least: int
    request: Request
    holdings: Holdings
    victims_at: Sequence[float]
    now: float


@dataclass(slots=True)
class LeftOut:
    """How many pods on nodes were no candidates, and why.

    Attributes:
        young: They have not run for `minRuntime`.
        circular: Their queue has just taken from the one that takes.
        own: They are of the same queue, and not less important.
        kept: They are not preemptible, or `victim_key` or a disruption budget keeps them.
    """

    young: int = 0
    circular: int = 0
    own: int = 0
    kept: int = 0

    @property
    def for_now(self) -> bool:
        """True if some are candidates later."""
        return bool(self.young or self.circular)


@dataclass(slots=True)
class Found:
    """What was found.

    Attributes:
        pods: The victims; empty: there are none.
        node: Where a single pod goes then.
        plan: The same as the policy sees it.
        candidates: How many pods, or groups that go as one, could have gone.
        left_out: Which others could not.
    """

    pods: tuple[Pod, ...] = ()
    node: str = ""
    plan: Plan = field(default_factory=Plan)
    candidates: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)


class VictimSearch:
    """Looks for pods that may go.

    Args:
        holdings: What queues have.
        nodes: The cluster.
        scheduler: Whose policies are asked.
        check: Called between steps; what it raises ends the search.
    """

    def __init__(
        self,
        holdings: Holdings,
        nodes: Nodes,
        scheduler: Scheduler,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        hooks = scheduler.tree
        assert hooks is not None, "asked only of a tree"
        self._hooks = hooks
        self._holdings, self._nodes, self._scheduler = holdings, nodes, scheduler
        self._check = check

    def for_pod(
        self, pod: Pod, request: Request, queue: str, nominator: Nominator, now: float
    ) -> Found:
        """The pods that go for *pod*, of *queue*, at *now* (monotonic seconds)."""
        node = ""

        def places() -> bool:
            nonlocal node
            decision = self._scheduler.schedule(
                pod, self._nodes.snapshot(), nominator, has_post_filters=False
            )
            node = decision.node or ""
            return decision.node is not None

        found = self.find([pod], request, queue, places, now)
        found.node = node if found.pods else ""
        return found

    def for_case(self, case: ReclaimCase, nominator: Nominator, now: float) -> Found:
        """The pods that go for the one of *case*, or for its group, at *now*."""
        if len(case.taking) == 1:
            return self.for_pod(case.pod, case.request, case.queue, nominator, now)
        others = nominator.copy()  # those of the group count where they are placed
        for pod in case.taking:
            others.remove(pod.uid)

        def places() -> bool:
            with self._nodes.trial():
                return self._places_together(case.taking, case.least, others)

        return self.find(case.taking, case.request, case.queue, places, now)

    def _places_together(self, pods: Sequence[Pod], least: int, nominator: Nominator) -> bool:
        """Place *pods* one after the other; True if *least* of them, or else one, have nodes."""
        least, count = max(least, 1), 0
        for left, pod in zip(range(len(pods) - 1, -1, -1), pods, strict=True):
            decision = self._scheduler.schedule(
                pod, self._nodes.snapshot(), nominator, has_post_filters=False
            )
            if decision.is_error:
                return False
            if decision.node is not None:
                self._nodes.add_pod(pod.with_node(decision.node))
                count += 1
            if count + left < least:
                return False
        return count >= least

    def find(
        self,
        taking: Sequence[Pod],
        request: Request,
        queue: str,
        places: Callable[[], bool],
        now: float,
    ) -> Found:
        """The pods that go for *taking*, which have nodes once *places* is true."""
        found, nodes = Found(), self._nodes
        if self._scheduler.missing_for_preemption(taking[0], nodes.snapshot()) is not None:
            return found
        holdings, pods = self._holdings, dict[str, Pod]()
        candidates = list(self._candidates(taking[0], queue, pods, now, found.left_out))
        found.candidates = len(candidates)
        going = [
            one
            for uid, added in holdings.sums.contributions()
            if added.phase is PodPhase.LEAVING or uid in holdings.evicted
            if (one := nodes.get_pod(uid)) is not None
        ]
        with nodes.trial():
            gone: dict[str, Pod] = {}
            for one in going:
                nodes.remove_pod(one)

            def fits(victims: Sequence[Candidate]) -> bool:
                self._check()
                wanted = {uid for one in victims for uid in one.uids}
                for uid in wanted - gone.keys():
                    gone[uid] = pods[uid]
                    nodes.remove_pod(pods[uid])
                for uid in gone.keys() - wanted:
                    nodes.add_pod(gone.pop(uid))
                return places()

            uids, own = [one.uid for one in going], [one.uid for one in taking]
            sets = self._sets(candidates, pods, request, is_placed=fits(()))
            reclaim = Reclaim(
                self._hooks,
                holdings.sums,
                holdings.shares,
                holdings.total,
                request=request,
                leaf=queue,
                check=self._check,
            )
            plan = reclaim.plan(sets, fits, uids, own)
            if plan.victims and not fits(plan.victims):  # where it goes, with these gone
                plan = Plan(allowed=len(plan.victims))
        found.plan = plan
        if plan.failure is None:
            found.pods = tuple(pods[uid] for one in plan.victims for uid in one.uids)
        return found

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
        info = self._nodes.node_info(node)
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

    # --- candidates --------------------------------------------------------------------------

    def _candidates(
        self, taker: Pod, queue: str, pods: dict[str, Pod], now: float, left: LeftOut
    ) -> Iterator[Candidate]:
        """Every pod of the tree that may go, whatever the policy says; *pods* get them by uid."""
        holdings, tree = self._holdings, self._hooks.tree
        least, sees_time = tree.limits.min_runtime, tree.mentions("running_seconds")
        found: list[tuple[Pod, Contribution, float]] = []
        for uid, added in holdings.sums.contributions():
            if added.phase is not PodPhase.ALLOCATED:
                continue
            pod = self._nodes.get_pod(uid)
            if pod is None or uid in holdings.evicted:
                continue
            ran = now - holdings.allocated_at.get(uid, now)
            if added.queue == queue and pod.priority >= taker.priority:
                left.own += 1  # within a queue only the more important one takes
            elif not added.is_preemptible:
                left.kept += 1
            elif ran < least:
                left.young += 1
            elif took_lately(holdings.took_at, added.queue, queue, now, least):
                left.circular += 1
            else:
                found.append((pod, added, ran))
        kept = self._kept(taker, [pod for pod, _, _ in found])
        left.kept += len(kept)
        as_one = {pod.uid: unit for unit in holdings.units for pod in unit.pods}
        alive = {pod.uid: (added, ran) for pod, added, ran in found if pod.uid not in kept}
        done = set[str]()
        for pod, added, ran in found:
            if pod.uid in kept or pod.uid in done:
                continue
            unit = as_one.get(pod.uid)
            members = (pod,) if unit is None else unit.pods
            if any(one.uid not in alive for one in members):
                left.kept += 1  # a part of its group has to stay
                continue
            done.update(one.uid for one in members)
            pods.update((one.uid, one) for one in members)
            yield _candidate(
                members, added, min(ran, *(alive[m.uid][1] for m in members)), sees_time
            )

    def _kept(self, taker: Pod, pods: Sequence[Pod]) -> set[str]:
        """Those that may never go: `victim_key` says so, or their budget is used up."""
        profile = self._scheduler.profile_of(taker)
        if profile is None or not pods:
            return set()
        snapshot = self._nodes.snapshot()
        never = self._scheduler.kept(profile, pods, snapshot)
        if isinstance(never, PolicyFailure):
            return {pod.uid for pod in pods}
        budgets = Budgets(snapshot)
        violating, _ = budgets.split(pods, range(len(pods)))
        return {pod.uid for pod in never} | {pods[place].uid for place in violating}


def budget_wait(taken_at: Sequence[float], count: int, most: int, now: float) -> float:
    """Seconds until a queue may take *count* more, of *most* a minute; 0 if it may now.

    *taken_at* is when it took others, the oldest first. One request may need more than *most* if it
    is the first in a minute.
    """
    within = [at for at in taken_at if at > now - MINUTE]
    over = min(len(within) + count - most, len(within))
    return within[over - 1] + MINUTE - now if over > 0 else 0.0


def took_lately(
    took_at: Mapping[tuple[str, str], float], giver: str, taker: str, now: float, least: float
) -> bool:
    """True if *giver* got what it has from *taker* a moment ago: they would go in a circle."""
    at = took_at.get((giver, taker))
    return at is not None and now - at < least


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


class SnapshotNodes:
    """The nodes of *snapshot*, a copy, whose pods can be taken away for a while."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pods: dict[str, Pod] = {}
        for info in filter(None, snapshot.infos):
            self._pods.update(info.pods.items())

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Inside, pods can be removed and added; in the end all are as they were."""
        before = self._snapshot.infos.copy()
        try:
            yield
        finally:
            for slot, info in enumerate(before):
                if info is not None and self._snapshot.infos[slot] is not info:
                    self._snapshot.put(info.name, info)

    def snapshot(self) -> Snapshot:
        """The nodes as they are by now."""
        return self._snapshot

    def node_info(self, name: str) -> NodeInfo | None:
        """The node *name* with its pods; None if it is not there."""
        return self._snapshot.info(name)

    def get_pod(self, uid: str) -> Pod | None:
        """The pod of *uid* that is on a node, or was before the trial."""
        return self._pods.get(uid)

    def remove_pod(self, pod: Pod) -> None:
        """Have *pod* gone."""
        info = self._snapshot.info(pod.node_name)
        if info is not None and pod.uid in info.pods:
            self._snapshot.put(pod.node_name, info.without_pod(pod.uid))

    def add_pod(self, pod: Pod) -> None:
        """Have *pod* back."""
        info = self._snapshot.info(pod.node_name)
        if info is not None:
            self._snapshot.put(pod.node_name, info.with_pod(pod))
