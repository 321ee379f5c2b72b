"""Writes that can wait: events and conditions are sent while nothing needs the connections more.

Owns when such a write is sent, not its content. Bindings and evictions change the cluster, events
and conditions describe it; under load the description waits, up to a limit, and is never lost
silently.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from engine.lib.clock import Clock
from engine.telemetry import spans

log = structlog.get_logger(component="deferred_writer")

Write = Callable[[], Awaitable[None]]

#: A write older than this goes out even while it should wait, one at a time.
PATIENCE: Final = 10.0
CONCURRENCY: Final = 16
CAPACITY: Final = 50_000
_POLL_SECONDS: Final = 0.02

#: When it was queued, the write, and the span that it is a part of.
_Waiting = tuple[float, Write, spans.Span | None]


class DeferredWriter:
    """Sends small writes in the order they came, urgent ones first, when there is capacity.

    Args:
        clock: Measures how long a write has waited.
        is_busy: True while bindings and evictions should have the API server to themselves.
        capacity: Most urgent writes that wait, and most others; `submit` refuses more.
        sleep: Waits between two looks at *is_busy*.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        is_busy: Callable[[], bool],
        capacity: int = CAPACITY,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._is_busy = is_busy
        self._capacity = capacity
        self._sleep = sleep
        self._urgent: deque[_Waiting] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._is_flushing = False

    def __len__(self) -> int:
        return len(self._urgent) + len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Writes that were sent and not yet answered."""
        return len(self._in_flight)

    def submit(self, write: Write, *, urgent: bool = False) -> bool:
        """Queue *write*; False if the queue is full and it was not taken.

        A write reports its own failures: whatever it raises is logged and goes no further.
        """
        queue = self._urgent if urgent else self._waiting
        if len(queue) >= self._capacity:
            return False
        queue.append((self._clock.monotonic(), write, spans.current.get()))
        self._arrived.set()
        return True

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        try:
            while True:
                self._arrived.clear()
                most = self._most_now()
                while len(self) and len(self._in_flight) < most:
                    self._send_next()
                if not len(self):
                    await self._arrived.wait()
                elif most:
                    self._has_ended.clear()
                    await self._has_ended.wait()
                else:
                    await self._sleep(_POLL_SECONDS)
        finally:
            for task in self._in_flight:
                task.cancel()

    async def flush(self, timeout: float) -> int:  # noqa: ASYNC109  # returns what is left
        """Send everything now, busy or not; the number of writes left after *timeout* seconds."""
        self._is_flushing = True
        self._arrived.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while len(self) or self._in_flight:
                    if self._in_flight:
                        await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await asyncio.sleep(0)
        return len(self) + len(self._in_flight)

    def _most_now(self) -> int:
        """How many writes may be in flight."""
        if self._is_flushing or not self._is_busy():
            return CONCURRENCY
        return int(len(self) > 0 and self._oldest_wait() >= PATIENCE)

    def _oldest_wait(self) -> float:
        heads = [queue[0][0] for queue in (self._urgent, self._waiting) if queue]
        return self._clock.monotonic() - min(heads)

    def _send_next(self) -> None:
        _, write, span = (self._urgent or self._waiting).popleft()
        task = asyncio.ensure_future(self._guard(write, span))
        self._in_flight.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._has_ended.set()

    async def _guard(self, write: Write, span: spans.Span | None) -> None:
        if span is not None:
            spans.current.set(span)
        try:
            await write()
        except Exception:
            log.exception("Unexpected exception in a deferred write")
