"""The `PodScheduled` condition of pods that are not bound yet, and their nominated node.

Owns what is written and that it is written only when it changes; the API server itself sets the
condition to True when a pod is bound. The newest state of a pod replaces one that still waits to
be sent, and a binding makes both obsolete. A failed write is repeated for as long as the pod is
pending: autoscalers read the condition, and the pod may not be tried again for minutes.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from engine.core.framework.reasons import POD_SCHEDULED
from engine.core.model.pod import Pod
from engine.io.binding.binder import Backoff
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import ApiError, Conflict, Invalid, NotFound
from engine.io.kube.resources import PODS
from engine.lib import printable
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="pod_status")

#: A pod is not bound while a write of its status is in flight.
REQUEST_TIMEOUT: Final = 10.0
_TRIES: Final = 4
#: The pause when all tries have failed, at first and at most; one try follows each pause.
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 30.0

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _WantedStatus:
    """The wanted status of a pod. An empty reason keeps the condition, None the nomination."""

    reason: str
    message: str
    generation: int
    nominated: str | None

    def over(self, older: "_WantedStatus | None") -> "_WantedStatus":
        """This state, with what it does not set taken from *older*."""
        if older is None:
            return self
        newer = self if self.reason else older
        nominated = older.nominated if self.nominated is None else self.nominated
        return _WantedStatus(newer.reason, newer.message, newer.generation, nominated)


@dataclass(frozen=True, slots=True)
class _Retry:
    """A state that could not be written, and when to try again."""

    pod: Pod
    state: _WantedStatus
    due: float


class PodStatusUpdater:
    """Keeps the condition of pending pods up to date, with the capacity that bindings leave.

    Args:
        client: The API server.
        writer: Sends when bindings leave capacity.
        clock: Dates transitions.
        metrics: Counts patches by result.
        sleep: Waits between tries.
    """

    def __init__(
        self,
        client: ApiClient,
        writer: DeferredWriter,
        *,
        clock: Clock,
        metrics: Metrics,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._sleep = sleep
        self._rng = client.rng
        self._waiting: dict[str, tuple[Pod, _WantedStatus]] = {}
        # A pod is in one of the two at most. The last delay of each stays until its state is
        # written.
        self._retries: dict[str, _Retry] = {}
        self._pauses: dict[str, float] = {}
        self._writing: dict[str, asyncio.Event] = {}  # set when the write has ended
        self._sent: dict[str, asyncio.Event] = {}  # set when its request is answered, or given up
        # What was last written by this process, so that a pod retried before the informer shows
        # our own patch is not patched again.
        self._written: dict[str, _WantedStatus] = {}

    def report(
        self, pod: Pod, *, reason: str, message: str, nominated_node: str | None = None
    ) -> None:
        """Write into *pod*'s status why it is not bound yet, unless it is there already.

        Args:
            pod: As the informer last showed it.
            reason: `Unschedulable`, `SchedulerError`, `SchedulingGated`, `WaitingOnPermit`,
                `Throttled`, or the reason token of a policy that no node would satisfy.
            message: Written without control characters, and cut to `printable.LONGEST_MESSAGE`:
                it quotes others, and conditions have no limit of their own.
            nominated_node: New nominated node, "" to clear it, None to keep it.
        """
        generation = pod.manifest.metadata.generation
        message = printable.message(message)
        self._request(pod, _WantedStatus(reason, message, generation, nominated_node))

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Write *node_name* into *pod*'s status as its nominated node; "" clears it."""
        self._request(pod, _WantedStatus("", "", 0, node_name))

    async def flush(self, uid: str) -> None:
        """Write the queued status of this pod now, even while bindings are in progress.

        For a status that has to be stored before something else is done. A failure is logged, not
        raised.
        """
        while uid in self._waiting:
            under_way = self._writing.get(uid)
            if under_way is None:
                await self._write(uid)
            else:
                await under_way.wait()

    def withdraw(self, uid: str) -> bool:
        """Drop the queued status of this pod; False if a request is in flight."""
        is_waiting = self._waiting.pop(uid, None) is not None
        if self._retries.pop(uid, None) is not None or is_waiting:
            self._metrics.status_patches.labels("superseded").inc()
        return uid not in self._sent

    async def withdrawn(self, uid: str) -> None:
        """Return once no request about this pod's status is queued or in flight."""
        while not self.withdraw(uid):
            await self._sent[uid].wait()

    def _request(self, pod: Pod, state: _WantedStatus) -> None:
        waiting = self._waiting.get(pod.uid)
        if waiting is not None:
            # A newer state keeps those fields of the queued one that it does not set.
            self._waiting[pod.uid] = (pod, state.over(waiting[1]))
            return
        retry = self._retries.pop(pod.uid, None)
        if retry is not None:
            state = state.over(retry.state)
        if self._is_current(pod, state):
            return
        if state.nominated == self._nominated(pod):
            state = replace(state, nominated=None)
        if not self._submit(pod, state):
            self._metrics.status_patches.labels("failed").inc()
            self._retry_later(pod, state)

    def _submit(self, pod: Pod, state: _WantedStatus) -> bool:
        """Queue the write of *state*; False if the queue is full."""
        if not self._writer.submit(functools.partial(self._write, pod.uid), urgent=True):
            return False
        self._waiting[pod.uid] = (pod, state)
        return True

    def _retry_later(self, pod: Pod, state: _WantedStatus) -> None:
        """Keep a state that cannot be written now, for `retry`."""
        before = self._pauses.get(pod.uid)
        pause = FIRST_PAUSE if before is None else min(LONGEST_PAUSE, 2 * before)
        self._pauses[pod.uid] = pause
        self._retries[pod.uid] = _Retry(pod, state, self._clock.monotonic() + pause)

    def retry(self) -> None:
        """Write the states that are due for another attempt; to be called about once a second."""
        now = self._clock.monotonic()
        for uid, kept in [*self._retries.items()]:
            if kept.due <= now:
                if not self._submit(kept.pod, kept.state):
                    return
                del self._retries[uid]

    def forget(self, uid: str) -> None:
        """Drop all state of a pod that was bound or deleted, and its queued status."""
        self.withdraw(uid)
        self._written.pop(uid, None)
        self._pauses.pop(uid, None)

    def seen(self, old: Pod, new: Pod) -> None:
        """Note a new version of a pending pod: a status that others overwrote is written again."""
        written = self._written.get(new.uid)
        if written is not None and _shows(old, written) and not _shows(new, written):
            del self._written[new.uid]

    def _is_current(self, pod: Pod, state: _WantedStatus) -> bool:
        written = self._written.get(pod.uid)
        if state.nominated is not None and state.nominated != self._nominated(pod):
            return False
        if not state.reason:
            return True
        if written is not None and written.reason:
            return (written.reason, written.message, written.generation) == (
                state.reason,
                state.message,
                state.generation,
            )
        return _shows(pod, replace(state, nominated=None))

    def _nominated(self, pod: Pod) -> str:
        """The nominated node of *pod* in the API server, as far as is known here."""
        written = self._written.get(pod.uid)
        if written is not None and written.nominated is not None:
            return written.nominated
        return pod.nominated_node_name

    async def _write(self, uid: str) -> None:
        if uid in self._writing:
            return  # the write in progress takes the newest state
        ended = self._writing[uid] = asyncio.Event()
        try:
            await self._write_newest(uid)
        finally:
            del self._writing[uid]
            ended.set()

    async def _write_newest(self, uid: str) -> None:
        backoff = Backoff(self._rng)
        tries = 1 if uid in self._pauses else _TRIES
        for attempt in range(1, tries + 1):
            # Read again at each attempt: there may be a newer state, or the pod may be bound.
            waiting = self._waiting.get(uid)
            if waiting is None:
                return
            pod, state = waiting
            try:
                await self._send(pod, state)
            except ApiError as error:
                is_conflict = isinstance(error, Conflict)  # changed meanwhile
                may_pass = is_conflict or error.may_pass
                if may_pass and attempt < tries:
                    await self._sleep(backoff.next(error.retry_after))
                    continue
                # There may be a newer state by now, or the pod may be bound.
                newest = self._waiting.pop(uid, None)
                is_gone = isinstance(error, NotFound) or _has_another_uid(error)
                self._metrics.status_patches.labels("gone" if is_gone else "failed").inc()
                if not is_gone:
                    # An unavailable server fails all of them repeatedly: one warning is enough.
                    write = log.debug if may_pass and self._pauses else log.warning
                    write("Cannot report on a pod", pod=pod.key, reason=str(error), again=may_pass)
                if may_pass and newest is not None:
                    self._retry_later(*newest)
                else:
                    self._pauses.pop(uid, None)
                return
            self._metrics.status_patches.labels("written").inc()
            self._pauses.pop(uid, None)
            now_waiting = self._waiting.get(uid)
            if now_waiting is None:
                return  # bound or deleted meanwhile
            self._written[uid] = state.over(self._written.get(uid))
            if now_waiting[1] == state:
                del self._waiting[uid]
                return
            # A newer state was requested while this one was in flight.
            del self._waiting[uid]
            if not self._submit(*now_waiting):
                self._retry_later(*now_waiting)
            return

    async def _send(self, pod: Pod, state: _WantedStatus) -> None:
        answered = self._sent[pod.uid] = asyncio.Event()
        try:
            await self._client.patch(
                PODS,
                pod.name,
                self._patch(pod, state),
                pod.namespace,
                subresource="status",
                timeout=REQUEST_TIMEOUT,
            )
        finally:
            del self._sent[pod.uid]
            answered.set()

    def _patch(self, pod: Pod, state: _WantedStatus) -> bytes:
        """A strategic merge patch: conditions merge by type, the uid is a precondition."""
        status: dict[str, Any] = {}
        if state.reason:
            status["conditions"] = [self._condition(pod, state)]
        if state.nominated is not None:
            status["nominatedNodeName"] = state.nominated or None
        return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})

    def _condition(self, pod: Pod, state: _WantedStatus) -> dict[str, Any]:
        condition: dict[str, Any] = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": state.reason,
            "message": state.message,
        }
        if state.generation:
            condition["observedGeneration"] = state.generation
        written = self._written.get(pod.uid)
        was_false = (written is not None and written.reason != "") or any(
            known.type == POD_SCHEDULED and known.status == "False"
            for known in pod.manifest.status.conditions
        )
        if not was_false:
            now = datetime.fromtimestamp(self._clock.now(), UTC)
            condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            condition["lastProbeTime"] = None
        return condition


def _shows(pod: Pod, state: _WantedStatus) -> bool:
    """Whether the status of *pod* equals *state*."""
    if state.nominated is not None and state.nominated != pod.nominated_node_name:
        return False
    return not state.reason or any(
        condition.type == POD_SCHEDULED
        and condition.status == "False"
        and condition.reason == state.reason
        and condition.message == state.message
        for condition in pod.manifest.status.conditions
    )


def _has_another_uid(error: ApiError) -> bool:
    """Whether the patch was rejected because another pod has the name now: it carries the uid."""
    return isinstance(error, Invalid) and "metadata.uid: " in error.message
