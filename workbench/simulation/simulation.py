"""Simulates a cluster in virtual time: the kernel, with bindings and evictions done at once.

Owns the agenda: the events due at a time, then decisions until no pod can be tried, then the next
time. Everything about pods is the kernel's, as in a running scheduler. Runs are deterministic: they
depend on neither real time nor randomness.
"""

import functools
import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from engine.core.framework.owner import Owner
from engine.core.kernel.at_once import AtOnce
from engine.core.kernel.claims_at_once import ClaimsAtOnce
from engine.core.kernel.events import (
    NODES,
    PODS,
    Bound,
    LeadershipAcquired,
    ObjectChanged,
    OtherFactsChanged,
    PreemptionEnd,
    RevisionSwitched,
    TimePassed,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import (
    Instruction,
    ReportDecision,
    ReportFailure,
    ReportGate,
    ReportHeld,
    ReportThrottled,
)
from engine.core.kernel.kernel import Kernel
from engine.core.model.clock_facts import clock_facts, next_step
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.events import CLOCK_STEPS
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.placement import Placement, Reserver
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib import garbage
from engine.lib.clock import VirtualClock
from engine.lib.time_zones import zone_of
from engine.policy.analysis import time_reads
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from engine.telemetry.metrics import Metrics
from workbench.queues.still_kernel import queue_objects
from workbench.simulation.workload import Arrival, Workload

# A pod is given up after so many failures of policies in a row, so that every run ends.
_MOST_ERRORS: Final = 5
# Steps of the clock that come after the last event: by then every hour of every weekday has come.
_MOST_SECONDS_OF_STEPS: Final = 7 * 24 * 3600.0
_MINUTE: Final = 60.0
# Pods for which no other had to go are looked at again within so many seconds, with their backoff
# and all; those for which one has are tried within as many.
_LOOK_SECONDS: Final = 30.0
# For so long queues may take from each other without an event.
_MOST_SECONDS_OF_TAKING: Final = 3600.0
# The order of what happens at one time, of which there are fewer events than this.
_PER_RANK: Final = 10**9
_ENDS: Final = 1
# Kinds of controllers whose pods belong to one node: they are deleted with it, and not recreated on
# another one.
_OF_ONE_NODE: Final = ("DaemonSet", "Node")


@dataclass(slots=True)
class Life:
    """The life of one pod, including the pods that a controller creates after an eviction.

    Times are seconds from the start of the simulation, None for what did not happen.

    Attributes:
        wants: The pod as it was created last.
        arrived_at: When that was.
        reason: Why its last attempt failed; empty if none did, or once it is placed.
        queue: Its queue, where the policies have a tree; "" if it is in none.
        errors: How many attempts in a row ended in an error.
        is_lost: It was evicted, and no controller recreates it.
    """

    wants: Pod
    arrived_at: float
    placed_at: float | None = None
    gone_at: float | None = None
    node: str = ""
    queue: str = ""
    reason: str = ""
    evictions: int = 0
    is_lost: bool = False
    has_failed: bool = False
    errors: int = 0
    reserves: tuple[tuple[Reserver, Any], ...] = field(default=(), repr=False)

    @property
    def is_placed(self) -> bool:
        """True while it is on a node."""
        return bool(self.node) and self.gone_at is None

    @property
    def is_pending(self) -> bool:
        """True while it is waiting for a node."""
        return not self.node and self.gone_at is None

    @property
    def waited(self) -> float | None:
        """Seconds until it got its last node; None if it got none, or lost it."""
        return None if self.placed_at is None else self.placed_at - self.arrived_at


class Simulation(AtOnce):
    """One run of a workload.

    `at_start` has the nodes of the pods that are placed at the start, by key, and `lost_at_start`
    those of them that were evicted and not recreated: they have no `Life`. `evicted_at` is when
    pods were evicted.

    Args:
        bundle: The policies.
        evaluator: Runs the bundle's program; closed by the caller.
        workload: What happens. Pods without a profile are counted, but not tried.
        on_moment: Called after each time at which something happened, when no pod can be tried.
        retries: False: a pod that fits nowhere is not retried, as in published comparisons.
    """

    def __init__(
        self,
        bundle: Bundle,
        evaluator: Evaluator,
        workload: Workload,
        *,
        on_moment: Callable[["Simulation"], None] | None = None,
        retries: bool = True,
    ) -> None:
        super().__init__()
        self.clock: VirtualClock = VirtualClock()
        world = workload.cluster.world()
        self.cache = world.cache
        self.cache.set_pod_type_labels(bundle.runtime.facts.pod_type_labels)
        shown = workload.cluster.show_facts(
            self.cache,
            bundle.runtime.facts,
            [one.pod for one in workload.arrivals],
            [change.node for change in workload.changes if change.node is not None],
        )
        self._moment = shown.moment
        self._zone = zone_of(bundle.runtime.facts.time_zone)
        self._clock_reads = time_reads(bundle.policies.values()).clock & shown.clock
        self.lives: dict[str, Life] = {}
        self.placed: dict[str, Pod] = {
            pod.uid: pod
            for info in world.snapshot.infos
            if info is not None
            for pod in info.pods.values()
        }
        self.at_start = {pod.key: pod.node_name for pod in self.placed.values()}
        self._still_there = set(self.placed)  # of the start, by uid
        self.lost_at_start: list[str] = []
        self._latest: dict[str, Arrival] = {}
        self._pending: set[str] = set()
        self.replaced: list[str] = []
        self.evictions = 0
        self.evicted_at: list[float] = []
        self._moved_at = 0.0  # when a pod got a node last, or was evicted
        self.decisions = 0
        self._on_moment = on_moment
        self._retries = retries
        plugins = make_plugins(
            self.cache.objects, clock=self.clock, claim_returns=ClaimsAtOnce(self._report)
        )
        self._scheduler = Scheduler(bundle, evaluator, plugins=plugins, has_extenders=False)
        self.kernel = self._make_kernel(plugins)
        self._report(RevisionSwitched(self._scheduler))
        self._report(LeadershipAcquired())
        for event in queue_objects(bundle.queue_tree, workload.cluster.others):
            self._report(event)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._plan(workload)

    def _make_kernel(self, plugins: Mapping[str, RuntimePlugin]) -> Kernel:
        return Kernel(
            self.cache,
            plugins,
            metrics=Metrics(CollectorRegistry()),
            # No periodic retry: a pod is tried again only after an event that may help it.
            retries=RetryTimes(max_unschedulable=math.inf),
        )

    @property
    def now(self) -> float:
        """Seconds from the start."""
        return self.clock.monotonic()

    @property
    def placed_count(self) -> int:
        """The number of arrived pods that are placed; excludes those placed at the start."""
        return len(self.placed) - len(self._still_there)

    @property
    def pending_count(self) -> int:
        """The number of pods that are waiting for a node."""
        return len(self._pending)

    # --- time ------------------------------------------------------------------------------

    def run(self, until: float = math.inf) -> None:
        """Run the workload to its end, or *until* so many seconds from the start."""
        with garbage.thresholds(*garbage.UNTIL_THE_END):
            if self._on_moment is not None and self._events and self._events[0][0] > 0:
                self._on_moment(self)  # the state before the first event
            while True:
                while self._events and self._events[0][0] <= until:
                    self._next_moment()
                if self._events:
                    return
                self._pass_steps(self.now + _MOST_SECONDS_OF_STEPS, is_over=True)
                if not self._events:
                    self._wait_until(math.inf)
                if not self._events:
                    break
            if self._on_moment is not None:
                self._on_moment(self)

    def _next_moment(self) -> None:
        """Go to the next event, or to what comes before it by then, and let that happen."""
        at = self._events[0][0]
        self._pass_steps(at)
        self._wait_until(at)
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        self._settle()
        if self._on_moment is not None:
            self._on_moment(self)

    def _soon(self, at: float) -> float:
        """*at*, or when the next event is if that is before: a pod that got a node may end."""
        return min(at, self._events[0][0]) if self._events else at

    def _plan(self, workload: Workload) -> None:
        """Fill the agenda. Among events at the same time, capacity is freed before pods arrive."""
        events: list[tuple[float, int, Callable[[], object]]] = []

        def plan(at: float, rank: int, act: Callable[[], object]) -> None:
            events.append((at, rank * _PER_RANK + len(events), act))

        for change in workload.changes:
            plan(change.at, 0, lambda c=change: self._change(c.name, c.node))  # type: ignore[misc]
        tree = self._scheduler.bundle.queue_tree
        for each in workload.queue_changes:
            for event in queue_objects(tree, [each.manifest]):
                shown = event if each.is_there else msgspec.structs.replace(event, object=None)
                plan(each.at, 0, functools.partial(self._report, shown))
        for at, key in workload.departures:
            plan(at, _ENDS, lambda k=key: self._leave(k))  # type: ignore[misc]
        for one in workload.arrivals:
            plan(one.at, 2, lambda a=one: self._arrive(a))  # type: ignore[misc]
            if one.until is not None:
                # A pod that arrives and ends at the same time arrives first.
                rank = _ENDS if one.until > one.at else 3
                plan(one.until, rank, lambda a=one: self._end(a))  # type: ignore[misc]
        heapq.heapify(events)
        self._events, self._planned = events, len(events)

    def _pass_steps(self, until: float, *, is_over: bool = False) -> None:
        """Pass the steps of the clock before *until*; if it *is_over*, while one may help a pod."""
        if not self._clock_reads:
            return
        while not is_over or self._waits_for_clock():
            now, end = self._moment + self.now, self._moment + until
            at = next_step(now, self._zone, self._clock_reads, until=end) - self._moment
            if at >= until:
                return
            self._wait_until(at)
            if self.now < at:
                return
            before = len(self.placed), len(self.kernel.permits)
            snapshot = self.cache.snapshot()
            clock = clock_facts(self._moment + at, self._zone, self._clock_reads)
            cluster = {**snapshot.cluster_facts, **clock}
            self._report(OtherFactsChanged(cluster, snapshot.type_facts, snapshot.pod_facts))
            self._settle()
            if self._on_moment is not None and before != (
                len(self.placed),
                len(self.kernel.permits),
            ):
                self._on_moment(self)

    def _waits_for_clock(self) -> bool:
        """True if a pod waits that a step of the clock may help."""
        queue = self.kernel.queue
        steps = [CLOCK_STEPS[name] for name in self._clock_reads]
        return any(
            queue.hints.is_interested(policy, step, is_gate=queued.gated_by is not None)
            for queued in queue.waiting_pods()
            for policy in ([queued.gated_by] if queued.gated_by else queued.rejectors)
            for step in steps
        )

    def _wait_until(self, at: float) -> None:
        """Advance the clock to *at*: waits in permit expire, and failed attempts are retried.

        Retries stop until the next event once several of them placed no more pods than ever since
        the last one, every wait in permit has expired, and pods of queues have run long enough to
        give back. They would change nothing, and every run has to end.
        """
        fruitless, most = 0, len(self.placed)
        permits = self.kernel.permits
        since = self.now
        patience_until = self._patience_until(since)
        while fruitless < _MOST_ERRORS or self.now < patience_until:
            wakes_at = self.kernel.wakes_at()
            at = self._soon(at)
            if wakes_at is None or wakes_at > at:
                break
            placed, waiting = len(self.placed), len(permits)
            self.clock.advance(wakes_at - self.now)
            self._report(TimePassed())
            self._settle()
            if len(self.placed) > placed or self._moved_at == self.now:
                patience_until = self._patience_until(since)
            # Queues may take what is free a few at a time, with a look in between that is none.
            fruitless = 0 if len(self.placed) > most else fruitless + 1
            most = max(most, len(self.placed))
            if self._on_moment is not None and (placed, waiting) != (
                len(self.placed),
                len(permits),
            ):
                self._on_moment(self)
        at = self._soon(at)
        if at != math.inf:
            self.clock.advance(max(0.0, at - self.now))
            self._report(TimePassed())

    def _patience_until(self, since: float) -> float:
        """Until when time alone may let a pod be placed; the last event was at *since*."""
        last = self.kernel.permits.last_expiry() or 0.0
        tree = self._scheduler.bundle.queue_tree
        if tree is None or not self.kernel.reclaims.is_on:
            return last
        # Pods that got their nodes last may be taken then, and victims of a minute are over.
        grown = max(tree.limits.min_runtime, _MINUTE) + _LOOK_SECONDS
        # Rules may have queues take from each other in turn, for ever.
        return max(last, min(self._moved_at + grown, since + grown + _MOST_SECONDS_OF_TAKING))

    # --- what the kernel reports -------------------------------------------------------------

    def _note(self, instruction: Instruction) -> None:
        match instruction:
            case ReportFailure():
                self._failed(instruction)
            case (
                ReportGate(pod=pod, reason=reason)
                | ReportThrottled(pod=pod, reason=reason)
                | ReportHeld(pod=pod, reason=reason)
            ):
                life = self.lives.get(pod.key)
                if life is not None and life.is_pending:
                    life.reason = reason
            case ReportDecision():
                self.decisions += 1

    def _failed(self, report: ReportFailure) -> None:
        pod, rejection = report.pod, report.rejection
        life = self.lives[pod.key]
        life.reason = rejection.message
        life.has_failed = rejection.is_error and rejection.reason.owner is Owner.POLICY
        life.errors = life.errors + 1 if rejection.is_error else 0
        if report.is_queued and (not self._retries or life.errors >= _MOST_ERRORS):
            self._report(ObjectChanged(PODS, pod, None))  # given up

    # --- events of the workload ------------------------------------------------------------

    def _change(self, name: str, node: Node | None) -> None:
        info = self.cache.node_info(name)
        known = info.node if info is not None else None
        if node is not None:
            self._report(ObjectChanged(NODES, known, node))
            return
        if info is None or known is None:
            return
        self._report(ObjectChanged(NODES, known, None))
        for pod in list(info.pods.values()):  # deleted with their node
            if pod.controller is not None and pod.controller.kind in _OF_ONE_NODE:
                self._leave(pod.key)
            else:
                self._evict(pod)

    def _arrive(self, arrival: Arrival) -> None:
        pod = arrival.pod
        self._latest[pod.key] = arrival
        before = self.lives.get(pod.key)
        # A pod of the same name is deleted first.
        if (before is not None or pod.key in self.at_start) and self._leave(pod.key):
            self.replaced.append(pod.key)
        if before is not None:
            self.lives[f"{pod.key}#{len(self.lives)}"] = before
        self.lives[pod.key] = life = Life(pod, self.now)
        self._pending.add(pod.key)
        self._want(pod, life)

    def _want(self, pod: Pod, life: Life) -> None:
        """Add the pod to the queue if it has a profile."""
        if self._scheduler.profile_of(pod) is None:
            life.reason = f"no profile is called `{pod.scheduler_name}`"
            return
        self._report(ObjectChanged(PODS, None, pod))
        life.queue = self.kernel.shares.queue_of(pod.uid) or ""

    def _end(self, arrival: Arrival) -> None:
        """End the pod, unless another one of its name has replaced it."""
        if self._latest.get(arrival.pod.key) is arrival:
            self._leave(arrival.pod.key)

    def _leave(self, key: str) -> bool:
        """Delete the pod *key*. False if there is none."""
        life = self.lives.get(key)
        if life is not None and life.gone_at is None:
            life.gone_at = self.now
            self._pending.discard(key)
            placed = self.placed.get(life.wants.uid)
            if placed is None:
                self._report(ObjectChanged(PODS, life.wants, None))
            else:
                self._free(placed, life)
            return True
        for pod in self.placed.values():
            if pod.key == key:
                self._free(pod, None)
                return True
        return False

    def _free(self, pod: Pod, life: Life | None) -> None:
        """Remove the pod from its node."""
        self.placed.pop(pod.uid, None)
        self._still_there.discard(pod.uid)
        for plugin, state in reversed(life.reserves if life is not None else ()):
            if isinstance(plugin, VolumeBinding):
                plugin.outlive(state)
            else:
                plugin.unreserve(state, pod, pod.node_name)
        self._report(ObjectChanged(PODS, pod, None))

    def _evict(self, pod: Pod) -> PreemptionEnd:
        """Evict the pod; its controller, if any, creates a replacement.

        Returns how the preemption ends if it is the last victim.
        """
        if pod.uid in self.kernel.permits:
            self._report(WaitingPodPreempted(pod.uid))
            return PreemptionEnd.IN_MEMORY
        self._delete_victim(pod)
        return PreemptionEnd.DONE

    def _delete_victim(self, pod: Pod) -> None:
        if pod.uid not in self.placed:
            return
        self.evictions += 1
        self.evicted_at.append(self.now)
        self._moved_at = self.now
        life = self.lives.get(pod.key)
        self._free(pod, life)
        if life is not None:
            life.evictions += 1
            life.node, life.placed_at, life.reserves = "", None, ()
        if pod.controller is None or pod.controller.kind == "Node":  # a static pod
            if life is not None:
                life.gone_at, life.is_lost = self.now, True
                life.reason = "evicted"
            else:
                self.lost_at_start.append(pod.key)
            return
        wants = pod.manifest if life is None else life.wants.manifest
        again = Pod(wants).unplaced().renamed(f"{pod.uid}+")
        if life is None:
            life = self.lives[pod.key] = Life(again, self.now, evictions=1)
        life.wants, life.arrived_at = again, self.now  # time on a node is no waiting time
        self._pending.add(pod.key)
        self._want(again, life)

    def _bind(self, placement: Placement) -> None:
        pod = placement.pod
        life = self.lives[pod.key]
        if self.cache.get_pod(pod.uid) is None or life.gone_at is not None:
            return
        life.node, life.placed_at, life.reason = placement.node, self.now, ""
        life.reserves = placement.reserves
        self.placed[pod.uid] = pod
        self._moved_at = self.now
        self._pending.discard(pod.key)
        self._report(Bound(placement))
        self._report(ObjectChanged(PODS, life.wants, pod))
        arrival = self._latest.get(pod.key)
        if arrival is not None and arrival.runs is not None:
            self._planned += 1
            end: Callable[[], object] = functools.partial(self._finish, life, pod.uid)
            rank = _ENDS * _PER_RANK + self._planned
            heapq.heappush(self._events, (self.now + arrival.runs, rank, end))

    def _finish(self, life: Life, uid: str) -> None:
        """End the pod of *uid*, unless it was evicted or deleted meanwhile."""
        if life.is_placed and life.wants.uid == uid:
            self._leave(life.wants.key)
