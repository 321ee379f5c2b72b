"""Binding cycles: prepare and bind a placed pod, many at once, each ending with one event.

Owns the order of these steps and how many run at once. What the kernel holds for the placement is
the kernel's to release: each cycle ends with exactly one event.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from engine.core.kernel.events import BindingFailed, BindingGivenUp, Bound, Event
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement, PreBindError
from engine.io.binding.binder import BindingError, PodIsGone
from engine.io.binding.waiting import reporting_waits
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.telemetry.metrics import Metrics
from engine.telemetry.spans import step

log = structlog.get_logger(component="binding_cycle")

#: Bindings in flight at once. Enough to keep the API server busy over its round trip; more only
#: makes each one wait longer there.
MOST_IN_FLIGHT: Final = 96
#: The reason why a pod whose preparation was cancelled was not bound.
CANCELLED: Final = "preempted by DefaultPreemption"


class Binder(Protocol):
    """Binds pods."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind, or raise `BindingError`."""
        ...


@runtime_checkable
class Sender(Binder, Protocol):
    """Sends bindings without a task for each."""

    def send(self, pod: Pod, node_name: str) -> "asyncio.Future[bytes] | None":
        """Send the request at once. If the future ends well the pod is bound; None: use `bind`."""
        ...

    async def finish(self, pod: Pod, node_name: str, sent: "asyncio.Future[bytes] | None") -> None:
        """Go on as `bind` does with a request that was *sent*."""
        ...


class Reports(Protocol):
    """What is reported of a pod outside of the kernel's instructions."""

    def preparing(self, placement: Placement) -> None:
        """Another program has to do something before the placement can be bound."""
        ...

    def silence(self, placement: Placement) -> bool:
        """Drop reports of the pod that wait to be sent; False if one is on its way."""
        ...

    async def silenced(self, placement: Placement) -> None:
        """Return when no report is on its way any more."""
        ...


class BindingCycle:
    """Runs binding cycles, at most `limit` at once.

    A pod that nothing has to be prepared for is bound by a callback: its request goes out when the
    cycle starts, and if the answer is good there was never a task. Every other answer, and every
    other pod, takes a task.

    Args:
        binder: Talks to the API server.
        reports: Reports a pod whose preparation takes long; stopped before the pod is bound.
        report: Takes the event that a cycle ends with.
        metrics, clock: Measure.
        limit: Most cycles in flight that do not wait for another program; `has_capacity` and
            `wait_for_capacity` keep decisions to it.
    """

    def __init__(
        self,
        *,
        binder: Binder,
        reports: Reports,
        report: Callable[[Event], object],
        metrics: Metrics,
        clock: Clock,
        limit: int = MOST_IN_FLIGHT,
    ) -> None:
        self._binder = binder
        self._sender = binder if isinstance(binder, Sender) else None
        self._reports = reports
        self._report = report
        self._metrics = metrics
        self._clock = clock
        self._limit = limit
        # Tasks, and the answers of requests that have none.
        self._tasks: set[asyncio.Future[Any]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._actions: set[asyncio.Task[None]] = set()
        # By the pod's uid, while plugins prepare it: the cycle and its preparation.
        self._preparing: dict[str, tuple[asyncio.Task[Any], asyncio.Future[None]]] = {}
        self._cancelled: set[str] = set()  # of those
        self._capacity = asyncio.Event()
        self._capacity.set()
        self._idle = asyncio.Event()  # none is at work
        self._idle.set()
        self._seconds = {
            result: metrics.binding_seconds.labels(result) for result in ("bound", "failed")
        }
        self._loop_errors = metrics.loop_errors.labels("binding")

    @property
    def in_flight(self) -> int:
        """Cycles that have started and not ended."""
        return len(self._tasks)

    @property
    def at_work(self) -> int:
        """Cycles in flight that do not wait for another program, such as one that makes volumes."""
        return len(self._tasks) - len(self._waiting)

    @property
    def has_capacity(self) -> bool:
        """True if one more may start."""
        return self.at_work < self._limit

    def start(self, placement: Placement) -> None:
        """Start the cycle of an assumed pod; returns at once."""
        # No task for the common case, where there is nothing to do but to wait for an answer.
        sent = self._send(placement)
        if sent is None:
            self._start_task(placement, None, 0.0)
            return
        # Counted before the callback is added, which may run as soon as the loop goes on.
        self._tasks.add(sent)
        self._update_capacity()
        sent.add_done_callback(
            functools.partial(self._answered, placement, self._clock.monotonic())
        )

    def _start_task(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> None:
        task = asyncio.ensure_future(self._run(placement, sent, sent_at))
        self._tasks.add(task)
        self._update_capacity()
        task.add_done_callback(self._ended)

    def _send(self, placement: Placement) -> "asyncio.Future[bytes] | None":
        """Send the binding, if that is all there is to do."""
        # A report of the pod that is on its way could arrive after the binding, and say of a bound
        # pod that it fits nowhere. Those that wait are dropped; one that has left is waited for, in
        # a task.
        if self._sender is None or placement.reserves or not self._reports.silence(placement):
            return None
        try:
            return self._sender.send(placement.pod, placement.node)
        except Exception:  # a task meets the same, and reports it
            return None

    def _answered(
        self, placement: Placement, sent_at: float, sent: "asyncio.Future[bytes]"
    ) -> None:
        """The answer to a request that has no task has come."""
        if sent.cancelled():
            self._ended(sent)
            self._report(BindingGivenUp(placement))
        elif sent.exception() is None:
            self._ended(sent)
            self._bound(placement, sent_at)
        else:
            # In this order: between the two the cycle would not count, and `drain` might end
            # without it.
            self._start_task(placement, sent, sent_at)
            self._ended(sent)

    def cancel(self, uid: str) -> bool:
        """Stop preparing the pod with *uid*; False if it is not being prepared.

        Its capacity on the node is needed for a more important pod. The cycle ends as a failed one:
        at once while it waits for another program; else when its request is answered, because one
        that is cut off may still give a device to a claim.
        """
        cycle, preparing = self._preparing.get(uid, (None, None))
        if preparing is None or preparing.done():
            return False
        # Noted first: the preparation looks at it between two plugins, and a cycle that begins to
        # wait later is cancelled then (`_mark`).
        self._cancelled.add(uid)
        if cycle in self._waiting:
            preparing.cancel()
        return True

    def run(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        """Carry out *action*, what a plugin does about a pod that fits nowhere."""
        task = asyncio.ensure_future(self._guard(action, pod))
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)

    async def _guard(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        try:
            with step("plugin action"):
                await action()
        except Exception:
            # The pod is in the queue already and is tried again in any case.
            log.exception("Action of a plugin for an unschedulable pod failed", pod=pod.key)
            self._loop_errors.inc()

    async def wait_for_capacity(self) -> None:
        """Return when one more may start."""
        await self._capacity.wait()

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Wait for the cycles at work; those left after *timeout* seconds are given up.

        So are those that wait for another program, which may take minutes: the next scheduler
        waits for it. The outcome of a cycle that is given up here is up to the API server: the next
        scheduler sees there whether the pod is bound. Returns how many were given up.
        """
        # Nothing depends on their end: their pods are in the queue, and the next scheduler does the
        # same.
        for action in self._actions:
            action.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        left = list(self._tasks)
        await cancelled(left)
        return len(left)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        # Futures of requests are in `_tasks` too, and never wait for another program.
        self._tasks.discard(task)
        if isinstance(task, asyncio.Task):
            self._waiting.discard(task)
        self._update_capacity()

    def _mark(self, cycle: asyncio.Task[None], placement: Placement, is_waiting: bool) -> None:
        """Take in whether *cycle* waits for another program."""
        if is_waiting and cycle in self._tasks:
            self._waiting.add(cycle)
            uid = placement.pod.uid
            if uid in self._cancelled:
                self._preparing[uid][1].cancel()
            else:
                self._reports.preparing(placement)
        else:
            self._waiting.discard(cycle)
        self._update_capacity()

    def _update_capacity(self) -> None:
        if self.has_capacity:
            self._capacity.set()
        else:
            self._capacity.clear()
        if self.at_work:
            self._idle.clear()
        else:
            self._idle.set()

    async def _run(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            with reporting_waits(lambda is_waiting: self._mark(this, placement, is_waiting)):
                failure = await self._carry_out(placement, sent, sent_at)
        except asyncio.CancelledError:
            # Reported also then, as each cycle ends with one event: else the kernel would hold the
            # node for ever. That the pod may be bound all the same is what the event says.
            self._report(BindingGivenUp(placement))
            raise
        except Exception as error:
            # No known error gets here: this is a bug. The pod must not be lost because of it.
            log.exception("Unexpected exception in a binding cycle", pod=placement.pod.key)
            self._loop_errors.inc()
            failure = BindingFailed(placement, f"{type(error).__name__}: {error}")
        if failure is not None:
            self._report(failure)

    async def _carry_out(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> BindingFailed | None:
        """Prepare, bind. None: bound, and reported so. The request may have been *sent* already."""
        pod, node = placement.pod, placement.node
        # 1. Write to the API what was reserved.
        try:
            await self._prepare(placement)
        except PreBindError as error:
            return BindingFailed(placement, str(error))
        # 2. A condition that arrived after the binding would say that a bound pod is not bound.
        await self._reports.silenced(placement)
        # 3. Bind.
        try:
            if sent is not None and self._sender is not None:
                await self._sender.finish(pod, node, sent)
            else:
                sent_at = self._clock.monotonic()
                await self._binder.bind(pod, node)
        except BindingError as error:
            self._observe("Bind", "Error", placement, sent_at)
            self._seconds["failed"].observe(self._clock.monotonic() - sent_at)
            self._metrics.binding_failures.labels(error.cause).inc()
            is_reported = not isinstance(error, PodIsGone)
            return BindingFailed(placement, f"binding rejected: {error}", is_reported)
        self._bound(placement, sent_at)
        return None

    def _bound(self, placement: Placement, sent_at: float) -> None:
        """Measure and report that the API server has taken the binding."""
        try:
            self._observe("Bind", "Success", placement, sent_at)
            self._seconds["bound"].observe(self._clock.monotonic() - sent_at)
            self._report(Bound(placement))
        except Exception:
            # The pod is bound, whatever comes of reporting it.
            log.exception("Unexpected exception after a binding", pod=placement.pod.key)
            self._loop_errors.inc()

    async def _prepare(self, placement: Placement) -> None:
        """Let plugins make what they reserved. Raises `PreBindError` if they cannot or must not."""
        if not placement.reserves:
            return
        uid = placement.pod.uid
        cycle = asyncio.current_task()
        assert cycle is not None
        begun: list[str] = []
        preparing = asyncio.ensure_future(self._pre_bind(placement, begun))
        self._preparing[uid] = cycle, preparing
        try:
            await preparing
        except asyncio.CancelledError:
            # Both end here as a CancelledError: the preparation that `cancel` stopped, which fails
            # this placement alone, and a cycle that is given up, which has to end.
            if uid not in self._cancelled or cycle.cancelling():
                raise  # this whole cycle is given up
        finally:
            del self._preparing[uid], preparing  # its exception's traceback leads here
            is_cancelled = uid in self._cancelled
            self._cancelled.discard(uid)
        if is_cancelled:
            at_work = begun[-1] if begun else placement.reserves[0][0].name
            raise PreBindError(_failed_in(at_work, CANCELLED))

    async def _pre_bind(self, placement: Placement, begun: list[str]) -> None:
        """Let each plugin make what it reserved; *begun* gets the names of those that began."""
        # One after the other, in the profile's order: a later one may need what an earlier one
        # made.
        for plugin, state in placement.reserves:
            if placement.pod.uid in self._cancelled:
                return
            begun.append(plugin.name)
            try:
                with step(f"PreBind {plugin.name}"):
                    await plugin.pre_bind(state, placement.pod, placement.node)
            except PreBindError as error:
                raise PreBindError(_failed_in(plugin.name, error)) from error

    def _observe(self, point: str, status: str, placement: Placement, since: float) -> None:
        child = self._metrics.extension_point(point, status, placement.profile)
        child.observe(self._clock.monotonic() - since)


def _failed_in(plugin: str, reason: object) -> str:
    return f'running PreBind plugin "{plugin}": {reason}'
