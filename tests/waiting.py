"""How tests wait: for a condition, with a deadline, and never for a length of time.

`eventually` and `wait_until` ask again and again for what sets no event: the state of another
process or of a server. `idle` is for the opposite, that nothing more happens: it lets everything
run that can. A test of code that waits by itself gives it a `VirtualClock` or an `asyncio.Event`.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

_FIRST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.02


async def eventually(
    condition: Callable[[], Any],
    *,
    seconds: float = 20.0,
    what: str = "",
    longest_pause: float = _LONGEST_PAUSE_SECONDS,
) -> Any:
    """The first true answer of *condition*, a function or a coroutine function.

    Raises `AssertionError` after *seconds*. Between two tries are at most *longest_pause* seconds.
    """
    pause = _FIRST_PAUSE_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = condition()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    return answer
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest_pause)
    except TimeoutError:
        raise AssertionError(f"not in {seconds:g} s: {what or condition}") from None


def wait_until(condition: Callable[[], Any], *, seconds: float = 30.0, what: str = "") -> Any:
    """The first true answer of *condition*, for tests without an event loop.

    Raises `AssertionError` after *seconds*.
    """
    ends_at = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < ends_at, f"not in {seconds:g} s: {what or condition}"
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return answer


def block(seconds: float) -> None:
    """Take this thread's time, as a slow computation does."""
    time.sleep(seconds)


async def one_turn(_seconds: float) -> None:
    """A `sleep` for code under test that lasts one turn of the loop."""
    await asyncio.sleep(0)


async def no_time(_seconds: float) -> None:
    """A `sleep` for code under test that takes next to no time, and no CPU either."""
    await asyncio.sleep(_FIRST_PAUSE_SECONDS)


async def pace(rate: float) -> None:
    """The time between two events of a stream of *rate* a second: load, no wait."""
    await asyncio.sleep(1 / rate)


async def idle(turns: int = 100) -> None:
    """Let all tasks of this loop run until they wait, requests to servers in it included.

    A turn runs what is ready and reads what has arrived; a request over loopback and its answer
    take about ten.
    """
    for _ in range(turns):
        await asyncio.sleep(0)
