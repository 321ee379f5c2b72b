"""Asks the policies in force what the queue needs to know of a pod: its sort key, and its gate.

Owns what follows when a hook gives no answer: it is logged, and the throttle has it asked again.
"""

from collections.abc import Callable
from typing import Final

import structlog

from engine.caching.cache import Cache
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.queueing.queued_pod import SortKey
from engine.queueing.throttle import THROTTLE, Throttle, Work
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="queue")

#: The policy of `spec.schedulingGates`.
API_GATES: Final = "SchedulingGates"


class QueueHooks:
    """The queue's two questions about a pod, answered by the policies.

    Args:
        cache: What the policies see.
        scheduler: Of the policies in force.
        held_back: A gate of the runtime's own, which is not reported; None: none.
        throttle: Says which pods must not be tried, or asked about, for now.
        on_gated: Called with a pod, the policy that keeps it out, why, and the revision.
        on_throttled: Called with a pod that is throttled, why, and the revision.
        metrics: Counts what fails, and how long gates take.
        clock: Time.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        scheduler: Callable[[], Scheduler],
        held_back: Callable[[Pod], tuple[str, str] | None],
        throttle: Throttle,
        on_gated: Callable[[Pod, str, str, str], None],
        on_throttled: Callable[[Pod, str, str], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._held_back = held_back
        self._throttle = throttle
        self._on_gated = on_gated
        self._on_throttled = on_throttled
        self._metrics = metrics
        self._clock = clock

    def key_of(self, pod: Pod) -> SortKey:
        """The sort key of *pod*; by its priority, if no policy can say."""
        by_priority: SortKey = ((0, -pod.priority),)
        if self._throttle.why_throttled(Work.SORT_KEY, pod) is not None:
            return by_priority
        started = self._clock.monotonic()
        key = self._scheduler().hooks.queue_key(pod, self._cache.snapshot())
        if isinstance(key, PolicyFailure):
            seconds = self._clock.monotonic() - started
            self._throttle.hook_failed(Work.SORT_KEY, pod, [key], seconds)
            log.warning("Queue key failed; going by priority", pod=pod.key, reason=str(key))
            return by_priority
        self._throttle.succeeded(Work.SORT_KEY, pod)
        return key

    def gate_of(self, pod: Pod) -> tuple[str, str] | None:
        """What keeps *pod* out of the queue, and its reason; None: it may be tried."""
        if (held_back := self._held_back(pod)) is not None:
            return held_back
        scheduler = self._scheduler()
        revision = scheduler.bundle.revision
        why = self._throttle.why_throttled(Work.GATE, pod)
        if why is None:
            gate, has_failed = self._ask_gate(pod, scheduler)
            if gate is not None:
                # Gates of the API are reported by the API server.
                if gate[0] != API_GATES or has_failed:
                    self._on_gated(pod, *gate, revision)
                return gate
            why = self._throttle.why_throttled(Work.ATTEMPT, pod)
        if why is None:
            return None
        self._on_throttled(pod, why, revision)
        return THROTTLE, why

    def _ask_gate(self, pod: Pod, scheduler: Scheduler) -> tuple[tuple[str, str] | None, bool]:
        """The gate that the policies say, and if one of them gave no answer."""
        failures: list[PolicyFailure] = []
        started = self._clock.monotonic()
        gate = scheduler.hooks.pre_enqueue(pod, self._cache.snapshot(), failures.append)
        seconds = self._clock.monotonic() - started
        status = "Success" if gate is None else "Unschedulable"
        self._metrics.extension_point("PreEnqueue", status, pod.scheduler_name).observe(seconds)
        if not failures:
            self._throttle.succeeded(Work.GATE, pod)
            return gate, False
        self._throttle.hook_failed(Work.GATE, pod, failures, seconds)
        for failure in failures:
            log.warning("Gate failed; asking again later", pod=pod.key, reason=str(failure))
        return gate, True
