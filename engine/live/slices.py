"""Long work on the event loop in short slices, so that decisions are not kept waiting."""

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

Result = TypeVar("Result")

Steps = Generator[None, None, Result]
"""Work that yields every millisecond or so, and returns its result."""

_SLICE_SECONDS: Final = 0.004


async def in_slices(steps: Steps[Result]) -> Result:
    """Run *steps* to their end; other tasks run every few milliseconds."""
    while True:
        ends_at = time.monotonic() + _SLICE_SECONDS
        try:
            while time.monotonic() < ends_at:
                next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)
