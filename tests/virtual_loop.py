"""An event loop in virtual time: whatever waits for a moment gets there at once.

Time advances only when nothing can go on without it: no callback is ready, and nothing has arrived
on a socket. So a scheduler and its API server in one process run through minutes in milliseconds,
over real connections, and no part of them knows.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from engine.lib.clock import VirtualClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Has time advance instead of waiting for it."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            raise RuntimeError("every task waits for another one")
        self._clock.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is *clock*'s, and which advances it.

    Work for a thread is done at once, in this one, so that runs repeat.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_clock.monotonic()

    def run_in_executor(  # type: ignore[override]  # typeshed's is generic in a way of its own
        self, _: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """The outcome of *func*, as if a thread had taken no time for it."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_virtually(main: Coroutine[Any, Any, T], clock: VirtualClock) -> T:
    """Run *main* to its end in the time of *clock*."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main)


async def pass_time(seconds: float) -> None:
    """Return so many virtual seconds later; fails on a loop whose time is real."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this would really wait"
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed
