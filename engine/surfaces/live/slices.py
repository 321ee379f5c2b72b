"""Long work on the event loop in short slices, so that decisions are not kept waiting."""

import asyncio
import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from engine.lib.clock import Clock

Result = TypeVar("Result")
Item = TypeVar("Item")

Steps = Generator[None, None, Result]
"""Work that yields every millisecond or so, and returns its result."""

_SLICE_SECONDS: Final = 0.004
#: So many items are sorted in a step.
CHUNK: Final = 2_048


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


def chunks_of(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Parts of *items* that can be sorted in a step each."""
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def first_of(
    items: Sequence[Item],
    key: Callable[[Item], Any],
    start: int,
    stop: int,
    *,
    is_reversed: bool = False,
) -> Steps[list[Item]]:
    """Those of *items*, in the order of *key*, from place *start* to before *stop*."""
    chunks = []
    for chunk in chunks_of(items):
        chunks.append(sorted(chunk, key=key, reverse=is_reversed))
        yield
    return list(islice(heapq.merge(*chunks, key=key, reverse=is_reversed), start, stop))
