"""A cluster in virtual time: the engine itself, with an API server that does at once what is asked.

Owns the order of things: what comes at a moment, then as many scheduling cycles as there are pods
to try, then the next moment. Cache, queue, hints, permits and scheduling loop are the very ones of
a running scheduler. Nothing here knows real time or chance: the same workload gives the same run.
"""

import heapq
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry

from engine.binding.placement import Placement, Preemption, Rejection, Reserver
from engine.lib import garbage
from engine.lib.clock import VirtualClock
from engine.model.node import Node
from engine.model.pod import Pod
from engine.offline.workload import Arrival, Workload
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
)
from engine.queueing.hints import Hints
from engine.queueing.queued_pod import QueuedPod, SortKey
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.scheduling.loop import SchedulingLoop
from engine.scheduling.permit import Permits
from engine.scheduling.plugins.registry import make_plugins
from engine.scheduling.plugins.volume_binding import VolumeBinding
from engine.scheduling.pod_groups import PodGroups
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

# A pod whose policies keep failing is given up, so that a run has an end.
_MOST_ERRORS: Final = 5
# Between two looks at those who wait for leave, while nothing else happens.
_LEAVE_SECONDS: Final = 5.0
# Whose pods are each of one node: they go with it, and nothing makes them anew elsewhere.
_OF_ONE_NODE: Final = ("DaemonSet", "Node")


@dataclass(slots=True)
class Life:
    """What became of one pod.

    `wants` is the pod as it came, or came again after an eviction, which is when it arrived; times
    are seconds from the start, None: it did not happen.
    `reason` is why its last attempt failed; empty if none did, or once it is placed. `is_lost`: it
    was evicted, and nothing makes it anew.
    """

    wants: Pod
    arrived_at: float
    placed_at: float | None = None
    gone_at: float | None = None
    node: str = ""
    reason: str = ""
    evictions: int = 0
    is_lost: bool = False
    has_failed: bool = False
    is_ours: bool = True
    reserves: tuple[tuple[Reserver, Any], ...] = field(default=(), repr=False)

    @property
    def is_placed(self) -> bool:
        """True while it is on a node."""
        return bool(self.node) and self.gone_at is None

    @property
    def is_pending(self) -> bool:
        """True while it wants a node."""
        return not self.node and self.gone_at is None

    @property
    def waited(self) -> float | None:
        """Seconds until it got its node, the last one; None if it got none, or lost it."""
        return None if self.placed_at is None else self.placed_at - self.arrived_at


class Simulation:
    """One run of a workload.

    `at_start` says which pods (by key) were on which nodes at first, and `lost_at_start` which of
    them were evicted for good: a pod of the start has a life only if it is made anew.

    Args:
        bundle: The policies.
        evaluator: Of the bundle's program; not closed here.
        workload: What happens. Pods of schedulers without a profile are counted, and not tried.
        on_moment: Called after each moment at which something happened, when all is decided.
        retries: False: a pod that fits nowhere is not tried again, as in published comparisons.
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
        self.clock = VirtualClock()
        world = workload.cluster.world()
        self.cache = world.cache
        self.cache.set_pod_type_labels(bundle.runtime.facts.pod_type_labels)
        workload.cluster.show_facts(
            self.cache,
            bundle.runtime.facts,
            [one.pod for one in workload.arrivals],
            [change.node for change in workload.changes if change.node is not None],
        )
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
        self.decisions = 0
        self._on_moment = on_moment
        self._retries = retries
        plugins = make_plugins(self.cache.objects, clock=self.clock)
        self._scheduler = Scheduler(bundle, evaluator, plugins=plugins, has_extenders=False)
        self._queue = SchedulingQueue(
            self.clock,
            key_of=self._key_of,
            pre_enqueue=self._gate,
            # Hints are trusted: a pod that no event helps is not tried again.
            max_unschedulable=math.inf,
            hints=Hints.of(bundle, self.cache),
        )
        self._bound: list[Placement] = []
        self._victims: list[Pod] = []
        metrics = Metrics(CollectorRegistry())
        self._groups = PodGroups(self.cache)
        self._permits = Permits(
            groups=self._groups,
            cache=self.cache,
            queue=self._queue,
            bindings=self,
            outcomes=self,
            metrics=metrics,
            clock=self.clock,
        )
        self._permits.use(self._scheduler, lambda: list(self.placed.values()))
        self._loop = SchedulingLoop(
            cache=self.cache,
            queue=self._queue,
            scheduler=self._scheduler,
            bindings=self._permits,
            outcomes=self,
            metrics=metrics,
            clock=self.clock,
            preemptions=_Evictions(self._victims),
        )
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._plan(workload)

    @property
    def now(self) -> float:
        """Seconds from the start."""
        return self.clock.monotonic()

    @property
    def placed_count(self) -> int:
        """How many of the pods that came are on nodes; those of the start are not counted."""
        return len(self.placed) - len(self._still_there)

    @property
    def pending_count(self) -> int:
        """How many pods want a node and have none."""
        return len(self._pending)

    # --- time ------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry the whole workload out."""
        with garbage.thresholds(*garbage.UNTIL_THE_END):
            if self._on_moment is not None and self._events and self._events[0][0] > 0:
                self._on_moment(self)  # how it was until then
            while self._events:
                at = self._events[0][0]
                self._wait_until(at)
                while self._events and self._events[0][0] <= at:
                    heapq.heappop(self._events)[2]()
                self._settle()
                if self._on_moment is not None:
                    self._on_moment(self)
            self._wait_until(math.inf)
            if self._on_moment is not None:
                self._on_moment(self)

    def _plan(self, workload: Workload) -> None:
        """Put everything on the agenda; at one moment rooms become free before pods come."""
        events: list[tuple[float, int, Callable[[], object]]] = []

        def plan(at: float, rank: int, act: Callable[[], object]) -> None:
            events.append((at, rank * 10**9 + len(events), act))

        for change in workload.changes:
            plan(change.at, 0, lambda c=change: self._change(c.name, c.node))  # type: ignore[misc]
        for at, key in workload.departures:
            plan(at, 1, lambda k=key: self._leave(k))  # type: ignore[misc]
        for one in workload.arrivals:
            plan(one.at, 2, lambda a=one: self._arrive(a))  # type: ignore[misc]
            if one.until is not None:
                # One that is there for no time at all comes before it goes.
                rank = 1 if one.until > one.at else 3
                plan(one.until, rank, lambda a=one: self._end(a))  # type: ignore[misc]
        heapq.heapify(events)
        self._events = events

    def _wait_until(self, at: float) -> None:
        """Let time pass: waits for leave end, failed attempts are repeated.

        Repeating what failed is given up until the next event once it has not helped for a while:
        without it nothing changes, and a run has to have an end.
        """
        fruitless = 0
        while len(self._permits) or fruitless < _MOST_ERRORS:
            wait = self._queue.next_flush_in()
            wait = math.inf if wait is None else max(wait, 0.001)
            if len(self._permits):
                wait = min(wait, _LEAVE_SECONDS)
            if wait == math.inf or self.now + wait > at:
                break
            before = len(self.placed), len(self._permits)
            self.clock.advance(wait)
            self._queue.flush()
            self._settle()
            if before == (len(self.placed), len(self._permits)):
                fruitless += 1
            elif self._on_moment is not None:
                self._on_moment(self)
        if at != math.inf:
            self.clock.advance(max(0.0, at - self.now))
            self._queue.flush()

    def _settle(self) -> None:
        """Decide until nobody can be tried."""
        while True:
            self._permits.work()
            self._see()
            if not self._loop.schedule_one():
                if not self._victims and not self._bound:
                    return
            else:
                self.decisions += 1
            self._see()

    def _see(self) -> None:
        """What the watch would tell: who is bound, who is evicted."""
        while self._bound or self._victims:
            bound, self._bound = self._bound, []
            for placement in bound:
                self._seen_bound(placement)
            victims = list(self._victims)
            self._victims.clear()
            for victim in victims:
                self._evict(victim)

    # --- what happens ----------------------------------------------------------------------

    def _key_of(self, pod: Pod) -> SortKey:
        key = self._scheduler.hooks.queue_key(pod, self.cache.snapshot())
        return () if isinstance(key, PolicyFailure) else key

    def _gate(self, pod: Pod) -> tuple[str, str] | None:
        """Who keeps the pod from being tried, and why: as long as it is so, that is its reason."""
        gated = self._scheduler.hooks.pre_enqueue(pod, self.cache.snapshot())
        life = self.lives.get(pod.key)
        if gated is not None and life is not None and life.is_pending:
            life.reason = gated[1]
        return gated

    def _change(self, name: str, node: Node | None) -> None:
        if node is not None:
            self.cache.add_node(node)
            self._queue.move(NODE_ADD, None, node)
            return
        info = self.cache.node_info(name)
        if info is None or info.node is None:
            return
        self.cache.remove_node(name)
        self._queue.move(NODE_DELETE, info.node, None)
        for pod in list(info.pods.values()):  # they go with it
            if pod.controller is not None and pod.controller.kind in _OF_ONE_NODE:
                self._leave(pod.key)
            else:
                self._evict(pod)

    def _arrive(self, arrival: Arrival) -> None:
        pod = arrival.pod
        self._latest[pod.key] = arrival
        before = self.lives.get(pod.key)
        # The name is free again, or it is now.
        if (before is not None or pod.key in self.at_start) and self._leave(pod.key):
            self.replaced.append(pod.key)
        if before is not None:
            self.lives[f"{pod.key}#{len(self.lives)}"] = before
        self.lives[pod.key] = life = Life(pod, self.now)
        self._pending.add(pod.key)
        self._want(pod, life)

    def _want(self, pod: Pod, life: Life) -> None:
        """The pod wants a node, if somebody decides it."""
        if self._scheduler.profile_of(pod) is None:
            life.is_ours = False
            life.reason = f"no profile is called `{pod.scheduler_name}`"
            return
        self._groups.put(pod)
        self._queue.add(pod)

    def _end(self, arrival: Arrival) -> None:
        """The pod's time is over. Another one of its name, come since, is not meant."""
        if self._latest.get(arrival.pod.key) is arrival:
            self._leave(arrival.pod.key)

    def _leave(self, key: str) -> bool:
        """The pod of this name goes. False if none is there."""
        life = self.lives.get(key)
        if life is not None and life.gone_at is None:
            life.gone_at = self.now
            self._pending.discard(key)
            placed = self.placed.get(life.wants.uid)
            if placed is None:
                self._queue.delete(life.wants)
                self._permits.gone(life.wants.uid)
                assumed = self.cache.get_pod(life.wants.uid)
                if assumed is not None:
                    self._free(assumed, life)
            else:
                self._free(placed, life)
            return True
        for pod in self.placed.values():
            if pod.key == key:
                self._free(pod, None)
                return True
        return False

    def _free(self, pod: Pod, life: Life | None) -> None:
        """The pod holds its room no more."""
        self.placed.pop(pod.uid, None)
        self._still_there.discard(pod.uid)
        self.cache.remove_pod(pod)
        for plugin, state in reversed(life.reserves if life is not None else ()):
            if isinstance(plugin, VolumeBinding):
                plugin.outlive(state)
            else:
                plugin.unreserve(state, pod, pod.node_name)
        self._queue.move(ASSIGNED_POD_DELETE, pod, None)
        self._permits.gone(pod.uid)

    def _evict(self, pod: Pod) -> None:
        """The pod goes; where something takes care of it, another one comes in its place."""
        if self._permits.preempt(pod.uid):
            return
        if pod.uid not in self.placed:
            return
        self.evictions += 1
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
        life.wants, life.arrived_at = again, self.now  # while it was on a node it did not wait
        self._pending.add(pod.key)
        self._want(again, life)

    def _seen_bound(self, placement: Placement) -> None:
        pod = placement.pod
        life = self.lives[pod.key]
        if self.cache.get_pod(pod.uid) is None or life.gone_at is not None:
            return
        life.node, life.placed_at, life.reason = placement.node, self.now, ""
        life.reserves = placement.reserves
        self.placed[pod.uid] = pod
        self._pending.discard(pod.key)
        self._groups.put(pod)
        self.cache.add_pod(pod)
        self._queue.delete(pod)
        self._queue.move(ASSIGNED_POD_ADD, None, pod)
        self._permits.dropped(pod.uid)

    # --- the ports of the loop and of those who give leave ---------------------------------

    def start(self, placement: Placement) -> None:
        """Bind, as soon as the turn is over."""
        self._queue.done(placement.pod.uid)
        self._bound.append(placement)

    def run_beside(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        """What a plugin would write about a pod that fits nowhere is not written."""

    def bound(self, placement: Placement) -> None:
        """Told to `_seen_bound` by hand."""

    def waiting(self, pod: Pod, text: str, placement: Placement) -> None:
        """Nobody is there to be told."""

    def skipped_deleting(self, pod: Pod, *, profile: str, revision: str) -> None:
        """Nothing is on its way out here: what goes is gone."""

    def not_placed(
        self,
        queued: QueuedPod,
        rejection: Rejection,
        *,
        profile: str,
        revision: str,
        started_at: float,
    ) -> None:
        """The pod goes back to the queue, as in `binding.outcomes`."""
        pod = queued.pod
        life = self.lives[pod.key]
        life.reason, life.has_failed = rejection.message, rejection.is_error
        if not self._retries:
            self._queue.delete(pod)
        if rejection.is_error:
            if queued.error_count + 1 >= _MOST_ERRORS:
                self._queue.delete(pod)
            comes_back = self._queue.requeue(queued)
        else:
            comes_back = self._queue.requeue(queued, rejection.rejectors)
        self._permits.failed(pod)
        if comes_back and rejection.nominated_node is not None:
            self._queue.nominator.nominate(queued.pod, rejection.nominated_node)


class _Evictions:
    """Takes preemptions: the victims go as soon as the turn is over."""

    def __init__(self, victims: list[Pod]) -> None:
        self._victims = victims

    def start(self, preemptor: Pod, preemption: Preemption, *, profile: str, revision: str) -> None:
        """Have the victims go."""
        self._victims += preemption.victims

    def is_preempting(self, uid: str) -> bool:
        """Evictions are over before the next turn."""
        return False
