"""Background tasks that run next to the main work and never end by themselves."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any


class Background:
    """Keeps tasks until `cancel`, and ends waits at once when one of them has ended."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* until it is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def unless_broken(self, work: Awaitable[Any]) -> None:
        """Await *work*; raises as soon as a task ends, what it raised or `RuntimeError`."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            if task not in done:
                raise RuntimeError("a part of the process ended by itself")
        finally:
            await cancelled([task])

    async def cancel(self) -> None:
        """End all tasks."""
        await cancelled(self._tasks)


async def cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel *tasks* and wait until they have ended, however they end."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
