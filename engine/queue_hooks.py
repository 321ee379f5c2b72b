"""Asks the policies in force what the queue wants to know of a pod: its place, and its gate.

Owns what follows when a hook gives no answer: it is counted, told in the log, and asked again.
"""

from collections.abc import Callable
from typing import Final

import structlog

from engine.caching.cache import Cache
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.queueing.events import GATE_FAILED, KEY_FAILED
from engine.queueing.failed_hooks import FailedHooks
from engine.queueing.queued_pod import SortKey
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.queueing.setbacks import SETBACK, OnFailed, Setbacks
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="queue")

#: The policy of `spec.schedulingGates`.
API_GATES: Final = "SchedulingGates"
#: Why a pod is gated that the policy was not asked about.
PUT_OFF: Final = "pre_enqueue() took too long for another pod; it is asked about this one later"


class QueueHooks:
    """The queue's two questions about a pod, answered by the policies.

    Args:
        cache: What the policies see.
        queue: The queue that asks; it is made later.
        scheduler: Of the policies in force.
        held_back: A gate of the runtime's own, which nobody is told of; None: none.
        setbacks: Puts off pods whose decisions would lose time.
        on_failed: Is told of a pod's hooks that gave no answer, and how many seconds they took.
        on_gated: Is told of a pod, the policy that keeps it out, why, and the revision.
        on_put_off: Is told of a pod that is put off, why, and the revision.
        metrics: Counts what fails, and how long gates take.
        clock: Time.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        queue: Callable[[], SchedulingQueue],
        scheduler: Callable[[], Scheduler],
        held_back: Callable[[Pod], tuple[str, str] | None],
        setbacks: Setbacks,
        on_failed: OnFailed,
        on_gated: Callable[[Pod, str, str, str], None],
        on_put_off: Callable[[Pod, str, str], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._held_back = held_back
        self._setbacks = setbacks
        self._on_failed = on_failed
        self._on_gated = on_gated
        self._on_put_off = on_put_off
        self._metrics = metrics
        self._clock = clock
        self._queue = queue
        self.forget()

    def forget(self) -> None:
        """Other policies decide from now on: every pod is to be asked about."""
        queue = self._queue
        self._failed_gates = FailedHooks(
            self._clock, lambda uid: queue().reconsider(uid, GATE_FAILED, only_gated=True)
        )
        self._failed_keys = FailedHooks(self._clock, lambda uid: queue().reorder(uid, KEY_FAILED))

    def key_of(self, pod: Pod) -> SortKey:
        """The place of *pod* in the order; by its priority, if no policy can say."""
        by_priority: SortKey = ((0, -pod.priority),)
        if self._failed_keys.puts_off(pod.uid, pod.scheduler_name) is not None:
            return by_priority
        started = self._clock.monotonic()
        key = self._scheduler().hooks.queue_key(pod, self._cache.snapshot())
        if isinstance(key, PolicyFailure):
            seconds = self._clock.monotonic() - started
            self._failed_keys.note(pod.uid, pod.scheduler_name, key.policy, seconds)
            self._on_failed(pod, [key], seconds)
            log.warning("Queue key failed; going by priority", pod=pod.key, reason=str(key))
            return by_priority
        self._failed_keys.forget(pod.uid)
        return key

    def gate_of(self, pod: Pod) -> tuple[str, str] | None:
        """The policy that keeps *pod* out of the queue and its reason; None: it may be tried."""
        if (held_back := self._held_back(pod)) is not None:
            return held_back
        scheduler = self._scheduler()
        failures: list[PolicyFailure] = []
        gate: tuple[str, str] | None
        if (policy := self._failed_gates.puts_off(pod.uid, pod.scheduler_name)) is not None:
            gate = policy, PUT_OFF
        else:
            started = self._clock.monotonic()
            gate = scheduler.hooks.pre_enqueue(pod, self._cache.snapshot(), failures.append)
            seconds = self._clock.monotonic() - started
            self._note_gate(pod, failures, seconds)
            status = "Success" if gate is None else "Unschedulable"
            self._metrics.extension_point("PreEnqueue", status, pod.scheduler_name).observe(seconds)
        if gate is None:
            return self._put_off(pod, scheduler.bundle.revision)
        # Gates of the API are told by the API server.
        if gate[0] != API_GATES or failures:
            self._on_gated(pod, *gate, scheduler.bundle.revision)
        return gate

    def retry(self) -> None:
        """Ask again where no answer came, if it is time. To be called every second or so."""
        self._failed_gates.retry()
        self._failed_keys.retry()
        self._setbacks.retry()

    def _put_off(self, pod: Pod, revision: str) -> tuple[str, str] | None:
        if not self._setbacks:
            return None
        why = self._setbacks.puts_off(pod.uid, pod.scheduler_name, pod.namespace)
        if why is None:
            return None
        self._on_put_off(pod, why, revision)
        return SETBACK, why

    def _note_gate(self, pod: Pod, failures: list[PolicyFailure], seconds: float) -> None:
        if not failures:
            self._failed_gates.forget(pod.uid)
            return
        self._failed_gates.note(pod.uid, pod.scheduler_name, failures[0].policy, seconds)
        self._on_failed(pod, failures, seconds)
        for failure in failures:
            log.warning("Gate failed; asking again later", pod=pod.key, reason=str(failure))
