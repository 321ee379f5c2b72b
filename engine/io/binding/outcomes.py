"""Reports what happens to pods: metrics, logs, events and conditions, in that order.

Owns the texts; they are kube-scheduler's, so that existing tools and people understand them. The
kernel has decided what happens; this carries out its instructions to report it.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from engine.core.framework.reasons import SCHEDULER_ERROR, SCHEDULING_GATED, kind_of
from engine.core.kernel.instructions import (
    ForgetReports,
    RepeatReports,
    ReportBound,
    ReportDeleting,
    ReportFailure,
    ReportGate,
    ReportGroupReleased,
    ReportHeld,
    ReportNomination,
    ReportThrottled,
    ReportWaiting,
)
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import THROTTLED_REASON, WAITING_REASON, Placement
from engine.io.binding.event_recorder import (
    NORMAL,
    WARNING,
    EventRecorder,
    Occurrence,
    pod_reference,
)
from engine.io.binding.failure_groups import FailureGroup, FailureGroups
from engine.io.binding.pod_status import PodStatusUpdater
from engine.lib.clock import Clock
from engine.telemetry import metrics as names
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="outcomes")

SCHEDULED_REASON: Final = "Scheduled"
FAILED_REASON: Final = "FailedScheduling"

#: The policy of `spec.schedulingGates`.
API_GATES: Final = "SchedulingGates"


class AttemptOutcomes:
    """Carries out the kernel's instructions to report something.

    Args:
        events, status: What users see.
        metrics: Count.
        clock: Measures.
        logs_attempts: Each attempt has a line in the log. Else equal pods that are rejected for a
            new reason have one, once an interval is over, and bindings none.
    """

    def __init__(
        self,
        *,
        events: EventRecorder,
        status: PodStatusUpdater,
        metrics: Metrics,
        clock: Clock,
        logs_attempts: bool = False,
    ) -> None:
        self._events = events
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._logs_attempts = logs_attempts
        self._failures = FailureGroups()

    # --- the log's groups --------------------------------------------------------------------

    def log_due(self) -> None:
        """Log the failed attempts of an interval that is over; to be called every second."""
        self._log_groups(self._failures.take_due(self._clock.monotonic()))

    def log_rest(self) -> None:
        """Log the failed attempts that wait for the end of their interval."""
        self._log_groups(self._failures.take())

    def _log_groups(self, groups: Iterable[FailureGroup]) -> None:
        for group in groups:
            example = group.example
            rejection = example.rejection
            write = log.warning if rejection.is_error else log.info
            write(
                "Cannot schedule pods" if rejection.is_error else "Unschedulable pods",
                pods=len(group.uids),
                example=example.pod.key,
                profile=example.profile,
                revision=example.revision,
                reason=rejection.message,
            )

    # --- what the binding cycle needs --------------------------------------------------------

    def preparing(self, placement: Placement) -> None:
        """Report the node that a pod is being prepared for, which may take minutes.

        Programs that add and remove nodes go by it. The API server clears it with the binding, and
        a rejection does if there is none.
        """
        self._status.nominate(placement.queued.pod, placement.node)

    def silence(self, placement: Placement) -> bool:
        """Drop reports of a pod that wait to be sent; False if one is on its way.

        A condition that arrives after the binding would say, for good, that a bound pod is not
        bound.
        """
        return self._status.withdraw(placement.queued.uid)

    async def silenced(self, placement: Placement) -> None:
        """Return when no report of the pod is on its way any more."""
        await self._status.withdrawn(placement.queued.uid)

    # --- instructions ------------------------------------------------------------------------

    def bound(self, report: ReportBound) -> None:
        """Report a binding that the API server has taken."""
        now = self._clock.monotonic()
        placement = report.placement
        queued, pod = placement.queued, placement.pod
        duration = now - placement.started_at
        self._metrics.profile(placement.profile).observe(names.SCHEDULED, duration)
        first = queued.initial_attempt_at
        since_first = now - (first if first is not None else now)
        self._metrics.pod_bound(queued.attempts, since_first)
        if queued.attempts <= 1 and not placement.reserves:
            self._metrics.bound_at_once(pod.manifest.spec.priority_class_name, since_first)
        if queued.was_flushed:
            self._metrics.scheduled_after_flush.inc()
        self._status.forget(pod.uid)
        if self._logs_attempts:
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
        self._events.record(
            pod_reference(pod),
            Occurrence(
                kind=NORMAL,
                reason=SCHEDULED_REASON,
                action="Binding",
                note=f"Successfully assigned {pod.key} to {placement.node}",
                controller=placement.profile,
                revision=placement.revision,
            ),
            repeats=False,
        )

    def failed(self, report: ReportFailure) -> None:
        """Report a failed attempt."""
        # 1. Metrics and log: the attempt counts whatever the state of the pod is now.
        pod, rejection = report.pod, report.rejection
        result = names.ERROR if rejection.is_error else names.UNSCHEDULABLE
        now = self._clock.monotonic()
        duration = now - report.started_at
        self._metrics.profile(report.profile).observe(result, duration)
        self._metrics.rejections.add(rejection.reason.token, now)
        owner = kind_of(rejection.reason.token).owner
        if owner is not None:
            self._metrics.failures.labels(owner.value, rejection.reason.token).inc()
        if not self._logs_attempts:
            self._failures.add(report, now)
        elif report.is_logged:
            write = log.warning if rejection.is_error else log.info
            write(
                "Cannot schedule pod" if rejection.is_error else "Unschedulable pod",
                pod=pod.key,
                profile=report.profile,
                revision=report.revision,
                attempts=report.attempts,
                tried_because=report.tried_because,
                duration_ms=round(duration * 1000, 1),
                reason=rejection.message,
            )
        if not report.is_queued:
            self._status.forget(pod.uid)
            return
        if not rejection.is_reported:
            if rejection.nominated_node is not None:
                self._status.nominate(pod, rejection.nominated_node)
            return
        # 2. The event, 3. the condition and the nominated node.
        self._record(pod, rejection.message, profile=report.profile, revision=report.revision)
        self._status.report(
            pod,
            reason=SCHEDULER_ERROR if rejection.is_error else rejection.reason.condition,
            message=rejection.message,
            nominated_node=rejection.nominated_node,
        )

    def deleting(self, report: ReportDeleting) -> None:
        """Report a pod that is being deleted and was not tried."""
        note = f"skip schedule deleting pod: {report.pod.key}"
        profile = report.pod.scheduler_name
        self._record(report.pod, note, profile=profile, revision=report.revision)

    def waiting(self, report: ReportWaiting) -> None:
        """Report that a pod has a node and what it waits for before it is bound."""
        placement = report.placement
        self._record(
            report.pod,
            report.text,
            kind=NORMAL,
            reason=WAITING_REASON,
            profile=placement.profile,
            revision=placement.revision,
        )
        # Not `Unschedulable`: more nodes would not help, and autoscalers go by that. They go by
        # the node, too: without its name it looks unused.
        self._status.report(
            report.pod,
            reason=WAITING_REASON,
            message=report.text,
            nominated_node=placement.node,
        )

    def group_released(self, report: ReportGroupReleased) -> None:
        """Log that the pods of a group have released their nodes."""
        if self._logs_attempts:
            log.info(
                "Released the nodes of a pod group",
                group=report.group,
                profile=report.profile,
                waited=report.waited,
            )

    def gated(self, report: ReportGate) -> None:
        """Report that a policy keeps a pod out of the queue; repeats are one event."""
        if report.policy == API_GATES and not report.has_failed:
            return  # the API server reports its own gates
        pod = report.pod
        message = f"gated by policy `{report.policy}`: {report.reason}"
        self._record(pod, message, profile=pod.scheduler_name, revision=report.revision)
        self._status.report(pod, reason=SCHEDULING_GATED, message=message)

    def held(self, report: ReportHeld) -> None:
        """Report that its queue may not start a pod now; repeats are one event."""
        pod = report.pod
        message = f"held by policy `{report.policy}`: {report.reason}"
        self._record(pod, message, profile=pod.scheduler_name, revision=report.revision)
        self._status.report(pod, reason=SCHEDULING_GATED, message=message)

    def throttled(self, report: ReportThrottled) -> None:
        """Report that a pod is not tried for now, and why; repeats are one event."""
        pod = report.pod
        message = f"throttled: {report.reason}"
        self._record(
            pod,
            message,
            reason=THROTTLED_REASON,
            profile=pod.scheduler_name,
            revision=report.revision,
        )
        self._status.report(pod, reason=THROTTLED_REASON, message=message)

    def nominated(self, report: ReportNomination) -> None:
        """Report that a pod is nominated for another node, or for none any more."""
        self._status.nominate(report.pod, report.node)

    def forget(self, instruction: ForgetReports) -> None:
        """Drop what is known of a pod's status, and what still waits to be written."""
        self._status.forget(instruction.uid)

    def repeat(self, instruction: RepeatReports) -> None:
        """Take in a new version of a pending pod."""
        self._status.seen(instruction.old, instruction.new)

    def _record(
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
        self._events.record(
            pod_reference(pod), Occurrence(kind, reason, "Scheduling", note, profile, revision)
        )
