"""The scheduling loop, one turn at a time: pop, decide, assume, hand over to binding.

Owns the order of these steps and that nothing stops the loop: an exception costs one pod one
attempt. Plain code without I/O; the application calls it and decides when.
"""

from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from engine.binding.placement import Bindings, Outcomes, Placement, Preemptions, Rejection
from engine.caching.cache import AlreadyAssumed, Cache
from engine.framework.status import Code, Status
from engine.lib.clock import Clock
from engine.queueing.events import ASSIGNED_POD_DELETE
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.scheduling.scheduling_cycle import Decision, Scheduler
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="loop")


@dataclass(slots=True)
class DecisionCounts:
    """What was decided with one set of policies; bumped per decision, read by whoever watches.

    `slow` counts decisions that took longer than `slow_seconds`.
    """

    slow_seconds: float = float("inf")
    decisions: int = 0
    failed: int = 0
    slow: int = 0

    def count(self, seconds: float, failed: bool) -> None:
        """Count one decision."""
        self.decisions += 1
        if failed:
            self.failed += 1
        if seconds > self.slow_seconds:
            self.slow += 1


class SchedulingLoop:
    """Schedules pods, one a turn.

    Args:
        cache: Placed pods and nodes.
        queue: Pending pods.
        scheduler: Decides; replaced by `use` between two turns when the policies change.
        bindings: Takes placements.
        preemptions: Takes evictions; None to evict nobody.
        outcomes: Takes failures.
        metrics, clock: Measure.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        scheduler: Scheduler,
        bindings: Bindings,
        outcomes: Outcomes,
        metrics: Metrics,
        clock: Clock,
        preemptions: Preemptions | None = None,
    ) -> None:
        self._preemptions = preemptions
        self._cache = cache
        self._queue = queue
        self.scheduler = scheduler
        self.counts = DecisionCounts()
        self._bindings = bindings
        self._outcomes = outcomes
        self._metrics = metrics
        self._clock = clock
        self._policy_errors = metrics.loop_errors.labels("decide")

    def use(self, scheduler: Scheduler, counts: DecisionCounts) -> None:
        """Decide with *scheduler* from the next turn on, and count its decisions in *counts*."""
        self.scheduler = scheduler
        self.counts = counts

    def schedule_one(self) -> bool:
        """Take the next pod and decide it; False if none is ready."""
        queued = self._queue.pop()
        if queued is None:
            return False
        started_at = self._clock.monotonic()
        scheduler = self.scheduler
        try:
            self._attempt(queued, scheduler, started_at)
        except Exception as error:
            # A fault of ours or of a library. It costs this pod one attempt; the loop goes on.
            log.exception("Unexpected exception in a scheduling cycle", pod=queued.pod.key)
            self._policy_errors.inc()
            self._not_placed(
                queued,
                Rejection(f"{type(error).__name__}: {error}", is_error=True),
                scheduler,
                started_at,
            )
        return True

    def _attempt(self, queued: QueuedPod, scheduler: Scheduler, started_at: float) -> None:
        pod = queued.pod
        # 1. Pods that must not be tried: not ours any more, deleted meanwhile, already placed.
        if self._cache.get_pod(pod.uid) is not None:
            self._queue.done(pod.uid)  # assumed or bound: the watch will end its stay here
            return
        if scheduler.profile_of(pod) is None:
            self._queue.delete(pod)
            self._queue.done(pod.uid)
            return
        if pod.is_terminating:
            self._queue.done(pod.uid)
            self._outcomes.skipped_deleting(
                pod, profile=pod.scheduler_name, revision=scheduler.bundle.revision
            )
            return
        # 2. Decide, on the cluster as it is now.
        decision = scheduler.schedule(pod, self._cache.snapshot(), self._queue.nominator)
        seconds = self._clock.monotonic() - started_at
        self._metrics.algorithm_seconds.observe(seconds)
        self.counts.count(seconds, decision.is_error)
        for failure in (*decision.failures, *decision.ignored):
            self._metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if decision.node is None:
            self._nowhere(queued, decision, scheduler, started_at)
        else:
            self._place(queued, decision, decision.node, scheduler, started_at)

    def _nowhere(
        self, queued: QueuedPod, decision: Decision, scheduler: Scheduler, started_at: float
    ) -> None:
        """The pod fits nowhere, or a policy failed: start what was decided about it, requeue it."""
        pod = queued.pod
        if decision.eviction is not None and self._preemptions is not None:
            self._preemptions.start(
                pod,
                decision.eviction,
                profile=pod.scheduler_name,
                revision=decision.revision,
            )
        for action in decision.actions:
            self._bindings.run_beside(action, pod)
        self._not_placed(queued, _rejection(decision), scheduler, started_at)

    def _place(
        self,
        queued: QueuedPod,
        decision: Decision,
        node: str,
        scheduler: Scheduler,
        started_at: float,
    ) -> None:
        pod = queued.pod
        # 3. Count the pod on its node from now on, so that the next pod sees it there.
        try:
            assumed = self._cache.assume(pod, node)
        except AlreadyAssumed as error:
            log.debug("Skipped a placed pod", pod=pod.key, reason=str(error))
            self._queue.done(pod.uid)
            return
        with ExitStack() as undo:
            undo.callback(self._cache.forget, pod.uid)
            # 4. Hold what the cache does not count.
            for plugin, state in decision.reserves:
                undo.callback(plugin.unreserve, state, assumed, node)
                refusal = plugin.reserve(state, assumed, node)
                if refusal is not None:
                    undo.close()
                    self._queue.move(ASSIGNED_POD_DELETE, assumed, None)
                    self._not_placed(
                        queued,
                        _refusal(plugin.name, refusal),
                        scheduler,
                        started_at,
                    )
                    return
            # 5. The promise of a node is kept; the rest is waiting for the API server: it happens
            #    beside the next decisions.
            self._queue.nominator.remove(pod.uid)
            self._bindings.start(
                Placement(
                    queued=queued,
                    pod=assumed,
                    node=node,
                    profile=pod.scheduler_name,
                    revision=decision.revision,
                    started_at=started_at,
                    reserves=decision.reserves,
                )
            )
            undo.pop_all()  # handed over: letting go is the binding cycle's duty now

    def _not_placed(
        self, queued: QueuedPod, rejection: Rejection, scheduler: Scheduler, started_at: float
    ) -> None:
        self._outcomes.not_placed(
            queued,
            rejection,
            profile=queued.pod.scheduler_name,
            revision=scheduler.bundle.revision,
            started_at=started_at,
        )


def _rejection(decision: Decision) -> Rejection:
    if decision.is_error:
        return Rejection(decision.message(), is_error=True)
    return Rejection(
        decision.message(),
        is_error=False,
        rejectors=decision.diagnosis.rejectors,
        nominated_node=decision.nominated_node,
    )


def _refusal(plugin: str, status: Status) -> Rejection:
    """What a plugin that could not reserve has to say."""
    if status.code is Code.ERROR:
        message = f'running Reserve plugin "{plugin}": {status.message}'
        return Rejection(message, is_error=True)
    message = f"0/1 nodes are available: 1 {status.message}."
    return Rejection(message, is_error=False, rejectors=frozenset({plugin}))
