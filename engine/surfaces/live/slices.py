"""Long work on the event loop in short slices, so that decisions are not kept waiting."""

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

from engine.lib.clock import Clock

Result = TypeVar("Result")

Steps = Generator[None, None, Result]
"""Work that yields every millisecond or so, and returns its result."""

_SLICE_SECONDS: Final = 0.004


async def in_slices(steps: Steps[Result], clock: Clock) -> Result:
    """Run *steps* to their end; other tasks run every few milliseconds of *clock*."""
    while True:
        ends_at = clock.monotonic() + _SLICE_SECONDS
        try:
            while clock.monotonic() < ends_at:
                next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)
