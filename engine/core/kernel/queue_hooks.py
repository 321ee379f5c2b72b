"""Asks the policies in force what the queue needs to know of a pod: its sort key, and its gate.

Owns what follows when a hook gives no answer: it is reported, and the throttle has it asked again.
"""

from engine.core.kernel.instructions import ReportGate, ReportThrottled
from engine.core.kernel.scheduler_selector import SchedulerSelector
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import SortKey
from engine.core.queueing.throttle import THROTTLE, Throttle, Work
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import PolicyFailure


class QueueHooks:
    """The queue's two questions about a pod, answered by the policies.

    Args:
        schedulers: The policies.
        throttle: Says which pods must not be tried, or asked about, for now.
    """

    def __init__(self, shared: Shared, schedulers: SchedulerSelector, throttle: Throttle) -> None:
        self._cache, self._metrics = shared.cache, shared.metrics
        self._time, self._out = shared.time, shared.out
        self._deciders = schedulers
        self._throttle = throttle

    def key_of(self, pod: Pod) -> SortKey:
        """The sort key of *pod*; by its priority, if no policy can say."""
        by_priority: SortKey = ((0, -pod.priority),)
        if self._throttle.why_throttled(Work.SORT_KEY, pod) is not None:
            return by_priority
        started = self._time.monotonic()
        key = self._deciders.of(pod).hooks.queue_key(pod, self._cache.snapshot())
        if isinstance(key, PolicyFailure):
            seconds = self._time.monotonic() - started
            self._throttle.hook_failed(Work.SORT_KEY, pod, [key], seconds)
            return by_priority
        self._throttle.succeeded(Work.SORT_KEY, pod)
        return key

    def gate_of(self, pod: Pod) -> Gate | None:
        """What keeps *pod* out of the queue, and its reason; None: it may be tried."""
        scheduler = self._deciders.of(pod)
        revision = scheduler.bundle.revision
        why = self._throttle.why_throttled(Work.GATE, pod)
        if why is None:
            gate, has_failed = self._ask_gate(pod, scheduler)
            if gate is not None:
                gate = scheduler.gate(pod, gate, self._cache.snapshot())
                self._out.append(ReportGate(pod, *gate, revision, has_failed))
                return gate
            why = self._throttle.why_throttled(Work.ATTEMPT, pod)
        if why is None:
            return None
        self._out.append(ReportThrottled(pod, why, revision))
        return Gate(THROTTLE, why, "Throttled")

    def _ask_gate(self, pod: Pod, scheduler: Scheduler) -> tuple[Gate | None, bool]:
        """The gate that the policies say, and if one of them gave no answer."""
        failures: list[PolicyFailure] = []
        started = self._time.monotonic()
        gate = scheduler.hooks.pre_enqueue(pod, self._cache.snapshot(), failures.append)
        seconds = self._time.monotonic() - started
        status = "Success" if gate is None else "Unschedulable"
        self._metrics.extension_point("PreEnqueue", status, pod.scheduler_name).observe(seconds)
        if not failures:
            self._throttle.succeeded(Work.GATE, pod)
            return gate, False
        self._throttle.hook_failed(Work.GATE, pod, failures, seconds)
        return gate, True
