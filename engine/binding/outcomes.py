"""How attempts end: back to the queue, into metrics, events, conditions and logs, in that order.

Owns the order of these steps and the texts; kube-scheduler's, so that existing tools and eyes read
them. What the outcome is has been decided before.
"""

from collections.abc import Callable
from typing import Final

import structlog

from engine.binding.event_recorder import NORMAL, WARNING, EventRecorder, pod_reference
from engine.binding.placement import THROTTLED_REASON, WAITING_REASON, Placement, Rejection
from engine.binding.pod_status import (
    SCHEDULER_ERROR,
    SCHEDULING_GATED,
    UNSCHEDULABLE,
    PodStatusUpdater,
)
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.telemetry import metrics as names
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="outcomes")

SCHEDULED_REASON: Final = "Scheduled"
FAILED_REASON: Final = "FailedScheduling"


def _nobody(pod: Pod) -> None:
    """The default of `on_not_placed`."""


class AttemptOutcomes:
    """Carries out the ends of attempts.

    Args:
        queue: Where pods that were not placed go back to.
        recorder, status: Tell the user.
        metrics: Count.
        clock: Measures.
    """

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        recorder: EventRecorder,
        status: PodStatusUpdater,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._recorder = recorder
        self._status = status
        self._metrics = metrics
        self._clock = clock
        #: Told of each pod that was not placed, after it is back in the queue.
        self.on_not_placed: Callable[[Pod], None] = _nobody

    def preparing(self, placement: Placement) -> None:
        """Tell for which node a pod is being prepared, which may take minutes.

        Whoever adds and removes nodes goes by it. The API server clears it with the binding, and
        a rejection does if there is none.
        """
        self._status.nominate(placement.queued.pod, placement.node)

    def silence(self, placement: Placement) -> bool:
        """Leave untold what waits to be told of a pod; False if some of it is on its way.

        What arrives after the binding says of a bound pod that it is not, and nobody takes it back.
        """
        return self._status.withdraw(placement.queued.uid)

    async def silenced(self, placement: Placement) -> None:
        """Return when nothing is on its way any more."""
        await self._status.withdrawn(placement.queued.uid)

    def bound(self, placement: Placement) -> None:
        """Count and tell a binding that the API server has taken."""
        now = self._clock.monotonic()
        queued, pod = placement.queued, placement.pod
        duration = now - placement.started_at
        self._metrics.profile(placement.profile).observe(names.SCHEDULED, duration)
        first = queued.initial_attempt_at
        self._metrics.pod_bound(queued.attempts, now - (first if first is not None else now))
        self._status.forget(pod.uid)
        log.info(
            "Bound pod",
            pod=pod.key,
            node=placement.node,
            profile=placement.profile,
            revision=placement.revision,
            attempts=queued.attempts,
            tried_because=queued.tried_because,
            duration_ms=round(duration * 1000, 1),
        )
        self._recorder.record(
            pod_reference(pod),
            kind=NORMAL,
            reason=SCHEDULED_REASON,
            action="Binding",
            note=f"Successfully assigned {pod.key} to {placement.node}",
            controller=placement.profile,
            revision=placement.revision,
            repeats=False,
        )

    def not_placed(
        self,
        queued: QueuedPod,
        rejection: Rejection,
        *,
        profile: str,
        revision: str,
        started_at: float,
    ) -> None:
        """Count a failed attempt, requeue the pod and tell why."""
        # 1. Metrics: the attempt happened whatever became of the pod.
        result = names.ERROR if rejection.is_error else names.UNSCHEDULABLE
        duration = self._clock.monotonic() - started_at
        self._metrics.profile(profile).observe(result, duration)
        pod = queued.pod
        write = log.warning if rejection.is_error else log.info
        write(
            "Cannot schedule pod" if rejection.is_error else "Unschedulable pod",
            pod=pod.key,
            profile=profile,
            revision=revision,
            attempts=queued.attempts,
            tried_because=queued.tried_because,
            duration_ms=round(duration * 1000, 1),
            reason=rejection.message,
        )
        # 2. Back to the queue, which knows the pod's newest version and whether it still wants a
        #    node: it may have been deleted or bound by somebody else meanwhile.
        rejectors = frozenset[str]() if rejection.is_error else rejection.rejectors
        comes_back = self._queue.requeue(queued, rejectors)
        self.on_not_placed(pod)
        if not comes_back:
            self._status.forget(pod.uid)
            return
        # 3. The promise of a node, in force for the next decision.
        pod = queued.pod
        if rejection.nominated_node is not None:
            self._queue.nominator.nominate(pod, rejection.nominated_node)
        if not rejection.is_reported:
            if rejection.nominated_node is not None:
                self._status.nominate(pod, rejection.nominated_node)
            return
        # 4. The event, 5. the condition and the nominated node.
        self._tell(pod, rejection.message, profile=profile, revision=revision)
        self._status.report(
            pod,
            reason=SCHEDULER_ERROR if rejection.is_error else UNSCHEDULABLE,
            message=rejection.message,
            nominated_node=rejection.nominated_node,
        )

    def skipped_deleting(self, pod: Pod, *, profile: str, revision: str) -> None:
        """Tell that a pod that is being deleted was not tried."""
        note = f"skip schedule deleting pod: {pod.key}"
        self._tell(pod, note, profile=profile, revision=revision)

    def waiting(self, pod: Pod, text: str, placement: Placement) -> None:
        """Tell that a pod has a node and what it waits for before it is bound."""
        self._tell(
            pod,
            text,
            kind=NORMAL,
            reason=WAITING_REASON,
            profile=placement.profile,
            revision=placement.revision,
        )
        # Not `Unschedulable`: more nodes would not help, and autoscalers go by that. They go by
        # the node, too: without its name it looks unused.
        self._status.report(pod, reason=WAITING_REASON, message=text, nominated_node=placement.node)

    def gated(self, pod: Pod, policy: str, reason: str, *, profile: str, revision: str) -> None:
        """Tell that a policy keeps a pod out of the queue; repeats are one event."""
        message = f"gated by policy `{policy}`: {reason}"
        self._tell(pod, message, profile=profile, revision=revision)
        self._status.report(pod, reason=SCHEDULING_GATED, message=message)

    def throttled(self, pod: Pod, why: str, *, profile: str, revision: str) -> None:
        """Report that a pod is not tried for now, and why; repeats are one event."""
        message = f"throttled: {why}"
        self._tell(pod, message, reason=THROTTLED_REASON, profile=profile, revision=revision)
        self._status.report(pod, reason=THROTTLED_REASON, message=message)

    def _tell(
        self,
        pod: Pod,
        note: str,
        *,
        kind: str = WARNING,
        reason: str = FAILED_REASON,
        profile: str,
        revision: str,
    ) -> None:
        """Record an event about an attempt that did not, or not yet, bind *pod*."""
        self._recorder.record(
            pod_reference(pod),
            kind=kind,
            reason=reason,
            action="Scheduling",
            note=note,
            controller=profile,
            revision=revision,
        )
