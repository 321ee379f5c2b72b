"""The binding cycle: prepare, bind; many at once, each undone as a whole.

Owns the order of these steps, their undoing and how many run at once. The pod was assumed by the
scheduling loop; whatever way out but success is taken here, it is forgotten again.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from engine.binding.binder import BindingError, PodIsGone
from engine.binding.placement import Outcomes, Placement, PreBindError, Rejection
from engine.binding.waiting import tell_of_waiting
from engine.caching.cache import Cache
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.model.pod import Pod
from engine.queueing.events import ASSIGNED_POD_DELETE
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="binding_cycle")

#: Bindings in flight at once. Enough to keep the API server busy over its round trip; more only
#: makes each one wait longer there.
MOST_IN_FLIGHT: Final = 96
#: Why a pod was not bound whose preparation was called off.
CALLED_OFF: Final = "preempted by DefaultPreemption"


class Binds(Protocol):
    """What makes it so."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind, or raise `BindingError`."""
        ...


@runtime_checkable
class Sends(Binds, Protocol):
    """What can send a binding without a task of its own."""

    def send(self, pod: Pod, node_name: str) -> "asyncio.Future[bytes] | None":
        """Send the request at once. If the future ends well the pod is bound; None: use `bind`."""
        ...

    async def finish(self, pod: Pod, node_name: str, sent: "asyncio.Future[bytes] | None") -> None:
        """Go on as `bind` does with a request that was *sent*."""
        ...


class CycleOutcomes(Outcomes, Protocol):
    """Also told of what is not the end of an attempt yet."""

    def preparing(self, placement: Placement) -> None:
        """Somebody else has to do his part before the placement can be bound."""
        ...

    def silence(self, placement: Placement) -> bool:
        """Leave untold what waits to be told of the pod; False if some of it is on its way."""
        ...

    async def silenced(self, placement: Placement) -> None:
        """Return when nothing is on its way any more."""
        ...


class BindingCycle:
    """Runs binding cycles, at most `limit` at once.

    A pod that nothing has to be prepared for is bound by a callback: its request goes out when the
    cycle starts, and if the answer is good there was never a task. Every other answer, and every
    other pod, takes a task.

    Args:
        cache: Where the pod is assumed.
        queue: Told when the pod needs it no more, and that room was freed when a binding fails.
        binder: Talks to the API server.
        outcomes: Told how it ended, and if it takes its time.
        metrics, clock: Measure.
        limit: Most cycles in flight that do not wait for somebody else's work; `has_room` and
            `wait_for_room` keep the loop to it.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        binder: Binds,
        outcomes: CycleOutcomes,
        metrics: Metrics,
        clock: Clock,
        limit: int = MOST_IN_FLIGHT,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._binder = binder
        self._sender = binder if isinstance(binder, Sends) else None
        self._outcomes = outcomes
        self._metrics = metrics
        self._clock = clock
        self._limit = limit
        # Tasks, and the answers of requests that have none.
        self._tasks: set[asyncio.Future[Any]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._actions: set[asyncio.Task[None]] = set()
        # By the pod's uid, while plugins prepare it; and those that were called off meanwhile.
        self._preparing: dict[str, asyncio.Future[None]] = {}
        self._called_off: set[str] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._rest = asyncio.Event()  # none is at work
        self._rest.set()
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
        """Cycles in flight that do not wait for somebody else's work, such as a new volume."""
        return len(self._tasks) - len(self._waiting)

    @property
    def has_room(self) -> bool:
        """True if one more may start."""
        return self.at_work < self._limit

    def start(self, placement: Placement) -> None:
        """Start the cycle of an assumed pod; returns at once."""
        sent = self._send(placement)
        if sent is None:
            self._start_task(placement, None, 0.0)
            return
        # From here no event can change the outcome: the queue need not remember them.
        self._queue.done(placement.pod.uid)
        self._tasks.add(sent)
        self._update_room()
        sent.add_done_callback(
            functools.partial(self._answered, placement, self._clock.monotonic())
        )

    def _start_task(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> None:
        task = asyncio.ensure_future(self._run(placement, sent, sent_at))
        self._tasks.add(task)
        self._update_room()
        task.add_done_callback(self._ended)

    def _send(self, placement: Placement) -> "asyncio.Future[bytes] | None":
        """Send the binding, if that is all there is to do."""
        if self._sender is None or placement.reserves or not self._outcomes.silence(placement):
            return None
        try:
            return self._sender.send(placement.pod, placement.node)
        except Exception:  # a task meets the same, and undoes what has to be undone
            return None

    def _answered(
        self, placement: Placement, sent_at: float, sent: "asyncio.Future[bytes]"
    ) -> None:
        """The answer to a request that has no task has come."""
        if sent.cancelled():
            self._ended(sent)
            self._cache.forget(placement.pod.uid)
        elif sent.exception() is None:
            self._ended(sent)
            self._bound(placement, sent_at)
        else:
            self._start_task(placement, sent, sent_at)
            self._ended(sent)

    def call_off(self, uid: str) -> bool:
        """Send the pod of *uid* back that is being prepared; False if it is not, or is past that.

        Its room on the node is wanted for a more important pod.
        """
        preparing = self._preparing.get(uid)
        if preparing is None or preparing.done():
            return False
        self._called_off.add(uid)
        preparing.cancel()
        return True

    def run_beside(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        """Carry out *action*, what a plugin does about a pod that fits nowhere."""
        task = asyncio.ensure_future(self._guard(action, pod))
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)

    async def _guard(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        try:
            await action()
        except Exception:
            # The pod is in the queue already and is tried again in any case.
            log.exception("What a plugin does about an unschedulable pod failed", pod=pod.key)
            self._loop_errors.inc()

    async def wait_for_room(self) -> None:
        """Return when one more may start."""
        await self._room.wait()

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Wait for the cycles at work; those left after *timeout* seconds are given up.

        So are those that wait for somebody else's work, which may take minutes: the next scheduler
        waits for it. A cycle that is given up here leaves its binding to the API server: bound or
        not, the next scheduler sees it there. Returns how many were given up.
        """
        for action in self._actions:
            action.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rest.wait()
        left = list(self._tasks)
        await cancelled(left)
        return len(left)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if isinstance(task, asyncio.Task):
            self._waiting.discard(task)
        self._update_room()

    def _mark(self, cycle: asyncio.Task[None], placement: Placement, is_waiting: bool) -> None:
        """Take in whether *cycle* waits for somebody else's work."""
        if is_waiting and cycle in self._tasks:
            self._waiting.add(cycle)
            self._outcomes.preparing(placement)
        else:
            self._waiting.discard(cycle)
        self._update_room()

    def _update_room(self) -> None:
        if self.has_room:
            self._room.set()
        else:
            self._room.clear()
        if self.at_work:
            self._rest.clear()
        else:
            self._rest.set()

    async def _run(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> None:
        this = asyncio.current_task()
        assert this is not None
        tell_of_waiting(lambda is_waiting: self._mark(this, placement, is_waiting))
        try:
            rejection = await self._carry_out(placement, sent, sent_at)
        except Exception as error:
            # Nothing known raises here: a fault of ours. The pod must not be lost with it.
            log.exception("Unexpected exception in a binding cycle", pod=placement.pod.key)
            self._loop_errors.inc()
            rejection = Rejection(f"{type(error).__name__}: {error}", is_error=True)
        if rejection is None:
            return
        # The room that the pod held is free again; somebody may have been rejected for it.
        self._queue.move(ASSIGNED_POD_DELETE, placement.pod, None)
        self._outcomes.not_placed(
            placement.queued,
            rejection,
            profile=placement.profile,
            revision=placement.revision,
            started_at=placement.started_at,
        )

    async def _carry_out(
        self, placement: Placement, sent: "asyncio.Future[bytes] | None", sent_at: float
    ) -> Rejection | None:
        """Prepare, bind. None: bound. Anything else: all is undone, and this is why.

        The request may have been *sent* already.
        """
        pod, node = placement.pod, placement.node
        async with AsyncExitStack() as undo:
            # 1. The loop assumed the pod and plugins reserved what it needs; from here on letting
            #    go of it is this cycle's duty.
            undo.callback(self._cache.forget, pod.uid)
            for plugin, state in placement.reserves:
                undo.callback(plugin.unreserve, state, pod, node)
            # 2. From here no event can change the outcome: the queue need not remember them.
            self._queue.done(pod.uid)
            # 3. Make in the API what was reserved.
            try:
                await self._prepare(placement)
            except PreBindError as error:
                return Rejection(str(error), is_error=True)
            await self._outcomes.silenced(placement)
            # 4. Make it so.
            try:
                if sent is not None and self._sender is not None:
                    await self._sender.finish(pod, node, sent)
                else:
                    sent_at = self._clock.monotonic()
                    await self._binder.bind(pod, node)
            except BindingError as error:
                self._observe("Bind", "Error", placement, sent_at)
                self._seconds["failed"].observe(self._clock.monotonic() - sent_at)
                is_reported = not isinstance(error, PodIsGone)
                message = f"binding rejected: {error}"
                return Rejection(message, is_error=True, is_reported=is_reported)
            except asyncio.CancelledError:
                # Given up, and the request may yet arrive, or has: then what was made for the pod
                # is in use. The next scheduler sees both.
                undo.pop_all()
                self._cache.forget(pod.uid)
                raise
            undo.pop_all()  # bound: nothing left to undo
        self._bound(placement, sent_at)
        return None

    def _bound(self, placement: Placement, sent_at: float) -> None:
        """Count and tell that the API server has taken the binding."""
        try:
            self._observe("Bind", "Success", placement, sent_at)
            self._seconds["bound"].observe(self._clock.monotonic() - sent_at)
            self._outcomes.bound(placement)
        except Exception:
            # The pod is bound, whatever comes of telling so.
            log.exception("Unexpected exception after a binding", pod=placement.pod.key)
            self._loop_errors.inc()

    async def _prepare(self, placement: Placement) -> None:
        """Let plugins make what they reserved. Raises `PreBindError` if they cannot or must not."""
        if not placement.reserves:
            return
        uid = placement.pod.uid
        begun: list[str] = []
        preparing = asyncio.ensure_future(_pre_bind(placement, begun))
        self._preparing[uid] = preparing
        try:
            await preparing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if uid not in self._called_off or (task is not None and task.cancelling()):
                raise  # this whole cycle is given up
        finally:
            del self._preparing[uid]
            is_called_off = uid in self._called_off
            self._called_off.discard(uid)
        if is_called_off:
            at_work = begun[-1] if begun else placement.reserves[0][0].name
            raise PreBindError(_failed_in(at_work, CALLED_OFF))

    def _observe(self, point: str, status: str, placement: Placement, since: float) -> None:
        child = self._metrics.extension_point(point, status, placement.profile)
        child.observe(self._clock.monotonic() - since)


async def _pre_bind(placement: Placement, begun: list[str]) -> None:
    """Let each plugin make what it reserved; *begun* gets the names of those that began."""
    for plugin, state in placement.reserves:
        begun.append(plugin.name)
        try:
            await plugin.pre_bind(state, placement.pod, placement.node)
        except PreBindError as error:
            raise PreBindError(_failed_in(plugin.name, error)) from error


def _failed_in(plugin: str, reason: object) -> str:
    return f'running PreBind plugin "{plugin}": {reason}'
