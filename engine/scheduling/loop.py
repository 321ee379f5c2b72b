"""The scheduling loop, one turn at a time: pop, decide, assume, hand over to binding.

Owns the order of these steps and that nothing stops the loop: an exception costs one pod one
attempt. Plain code without I/O; the application calls it and decides when.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from engine.binding.placement import Bindings, Outcomes, Placement, Preemptions, Rejection
from engine.caching.cache import AlreadyAssumed, Cache
from engine.framework.status import Code, Status
from engine.lib.clock import Clock
from engine.policy.evaluator import PolicyFailure
from engine.queueing.events import ASSIGNED_POD_DELETE
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.queueing.throttle import Throttle, Work
from engine.queueing.transitions import Trigger
from engine.scheduling.decision import Decision, Explanation
from engine.scheduling.extenders import Answer, ExtenderFailure, Question
from engine.scheduling.journal import Journal
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="loop")


@dataclass(slots=True)
class DecisionCounts:
    """What was decided with one set of policies; bumped per decision, read by whoever watches.

    `slow` counts decisions that took longer than `slow_seconds`; `stalled` those that lost time to
    limits, `lost_seconds` in sum, but not over policies that are `unchanged`: going back to the
    revision before would not help.
    """

    slow_seconds: float = float("inf")
    unchanged: frozenset[str] = frozenset()
    decisions: int = 0
    failed: int = 0
    slow: int = 0
    stalled: int = 0
    lost_seconds: float = 0.0

    def count(self, seconds: float, failed: bool, lost: Sequence[PolicyFailure] = ()) -> None:
        """Count one decision, or a question that stands for one; *lost* are failures over time."""
        self.decisions += 1
        if failed:
            self.failed += 1
        if seconds > self.slow_seconds:
            self.slow += 1
        if any(loss.policy not in self.unchanged for loss in lost):
            self.stalled += 1
            self.lost_seconds += seconds


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
        journal: Told of every decision; None if nobody keeps a record.
        throttle: Holds back pods whose policies waste time; None: a new one.
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
        journal: Journal | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self._preemptions = preemptions
        self._throttle = Throttle(clock) if throttle is None else throttle
        self._journal = journal
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

    @property
    def asks_extenders(self) -> bool:
        """True if the policies in force want `turn` to be taken instead of `schedule_one`."""
        return self.scheduler.has_extenders

    def schedule_one(self) -> bool:
        """Take the next pod and decide it, asking no extender; False if none is ready."""
        queued = self._queue.pop()
        if queued is None:
            return False
        started_at = self._clock.monotonic()
        scheduler = self.scheduler
        try:
            if self._is_to_be_tried(queued, scheduler):
                # 2. Decide, on the cluster as it is now.
                if self._journal is not None:
                    self._journal.deciding(self._queue.nominator)
                decision = scheduler.schedule(
                    queued.pod, self._cache.snapshot(), self._queue.nominator
                )
                if self._journal is not None:
                    self._journal.decided(queued.pod, decision)
                self._conclude(queued, scheduler, decision, started_at)
        except Exception as error:
            self._lost(queued, error, scheduler, started_at)
        return True

    def turn(self) -> Generator[Question, Answer, bool]:
        """As `schedule_one`, but yields questions to extenders and goes on with the answers.

        Until it ends the snapshot stays as it was, whatever happens to the cluster meanwhile; no
        other turn may begin.
        """
        queued = self._queue.pop()
        if queued is None:
            return False
        started_at = self._clock.monotonic()
        scheduler = self.scheduler
        try:
            if self._is_to_be_tried(queued, scheduler):
                # 2. Decide, on the cluster as it is now.
                decision, waited = yield from self._decide_asking(queued, scheduler)
                # The watch went on meanwhile, and has told whoever waits of a pod that is gone.
                if self._wants_node(queued, scheduler):
                    self._conclude(queued, scheduler, decision, started_at, waited)
        except Exception as error:
            self._lost(queued, error, scheduler, started_at)
        return True

    def _decide_asking(
        self, queued: QueuedPod, scheduler: Scheduler
    ) -> Generator[Question, Answer, tuple[Decision, float]]:
        """The decision, and how many seconds of it were waiting for extenders."""
        waited = 0.0
        answers: list[Answer] = []
        if self._journal is not None:
            self._journal.deciding(self._queue.nominator)
        with self._cache.frozen() as snapshot:
            steps = scheduler.steps(queued.pod, snapshot, self._queue.nominator)
            try:
                question = next(steps)
                while True:
                    asked_at = self._clock.monotonic()
                    answer = yield question
                    waited += self._clock.monotonic() - asked_at
                    answers.append(answer)
                    question = steps.send(answer)
            except StopIteration as end:
                explanation: Explanation = end.value
                if self._journal is not None:
                    self._journal.decided(queued.pod, explanation.decision, answers)
                return explanation.decision, waited

    def _lost(
        self, queued: QueuedPod, error: Exception, scheduler: Scheduler, started_at: float
    ) -> None:
        """A fault of ours or of a library. It costs this pod one attempt; the loop goes on."""
        log.error("Unexpected exception in a scheduling cycle", pod=queued.pod.key, exc_info=error)
        self._policy_errors.inc()
        if self._journal is not None:
            self._journal.lost(queued.pod, error)
        self._not_placed(
            queued,
            Rejection(f"{type(error).__name__}: {error}", is_error=True),
            scheduler,
            started_at,
        )

    def _is_to_be_tried(self, queued: QueuedPod, scheduler: Scheduler) -> bool:
        pod = queued.pod
        # 1. Pods that must not be tried: already placed, not ours any more, deleted meanwhile.
        if self._cache.get_pod(pod.uid) is not None:
            # It was not ours for a while, and is still being bound from before that. The watch
            # will end its stay here, unless that fails.
            self._queue.requeue(queued)
            return False
        if scheduler.profile_of(pod) is None:
            self._queue.delete(pod)
            self._queue.done(pod.uid)
            return False
        if not self._wants_node(queued, scheduler):
            return False
        if self._throttle.why_throttled(Work.ATTEMPT, pod) is not None:
            self._queue.requeue_untried(queued, Trigger.THROTTLED)
            return False
        return True

    def _wants_node(self, queued: QueuedPod, scheduler: Scheduler) -> bool:
        """False if the pod is gone, placed by somebody else, not ours or on its way out by now."""
        pod = queued.pod
        if pod.uid not in self._queue:
            self._queue.done(pod.uid)
            return False
        if pod.is_terminating:
            self._queue.skip(pod.uid)
            self._outcomes.skipped_deleting(
                pod, profile=pod.scheduler_name, revision=scheduler.bundle.revision
            )
            return False
        return True

    def _conclude(
        self,
        queued: QueuedPod,
        scheduler: Scheduler,
        decision: Decision,
        started_at: float,
        waited: float = 0.0,
    ) -> None:
        """Count and carry out what was decided; *waited* seconds of it for extenders."""
        seconds = self._clock.monotonic() - started_at
        self._metrics.algorithm_seconds.observe(seconds)
        failures = (*decision.failures, *decision.ignored)
        # Policies are not to blame for extenders: those must not have them taken back.
        own = [failure for failure in failures if not isinstance(failure, ExtenderFailure)]
        # A score that failed costs a pod nothing that was placed all the same; preemption does.
        failed = bool(own) and decision.node is None
        lost = self._throttle.charge(Work.ATTEMPT, queued.pod, own, seconds - waited)
        self.counts.count(seconds - waited, failed, lost)
        for failure in failures:
            self._metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if lost:
            labels = lost[0].policy, queued.pod.scheduler_name
            self._metrics.lost_seconds.labels(*labels).inc(seconds - waited)
        if decision.node is None:
            self._nowhere(queued, decision, scheduler, started_at)
        else:
            self._place(queued, decision, decision.node, scheduler, started_at)
        if not lost:
            self._throttle.succeeded(Work.ATTEMPT, queued.pod)

    def _nowhere(
        self, queued: QueuedPod, decision: Decision, scheduler: Scheduler, started_at: float
    ) -> None:
        """The pod fits nowhere, or a policy failed: start what was decided about it, requeue it."""
        pod = queued.pod
        if decision.sought_victims:
            self._metrics.preemption_attempts.inc()
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
        info = self._cache.node_info(node)
        if info is None or info.node is None:  # since an extender was asked
            rejection = Rejection(f"node `{node}` is gone", is_error=True)
            self._not_placed(queued, rejection, scheduler, started_at)
            return
        # 3. Count the pod on its node from now on, so that the next pod sees it there.
        try:
            added = decision.annotations
            assumed = self._cache.assume(pod.with_annotations(added) if added else pod, node)
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
            self._queue.nominator.remove(pod.uid, placed_on=node)
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
