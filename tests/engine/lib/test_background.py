"""Tasks beside the main work: one that ends is noticed, and all end together."""

import asyncio
import gc
from typing import Any

import pytest

from engine.lib.background import Background, cancelled


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _fails() -> None:
    raise OSError("no such cluster")


async def _ends() -> None:
    pass


async def test_work_gives_what_it_gives_while_nothing_breaks() -> None:
    background = Background()
    background.start(_for_ever())
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)

    await background.unless_broken(done.wait())

    assert done.is_set()
    await background.cancel()


async def test_what_a_task_raises_comes_instead_of_the_work() -> None:
    background = Background()
    background.start(_for_ever())
    background.start(_fails())
    with pytest.raises(OSError, match="no such cluster"):
        await background.unless_broken(_for_ever())
    await background.cancel()


async def test_a_task_that_just_ends_is_a_fault_too() -> None:
    background = Background()
    background.start(_ends())
    with pytest.raises(RuntimeError, match="ended by itself"):
        await background.unless_broken(_for_ever())


async def test_the_work_does_not_go_on_after_a_fault() -> None:
    background = Background()
    background.start(_fails())
    work = asyncio.ensure_future(_for_ever())
    with pytest.raises(OSError, match="no such cluster"):
        await background.unless_broken(work)
    await asyncio.sleep(0)
    assert work.cancelled()


async def test_work_of_many_parts_ends_without_a_word_when_nothing_waits_any_more() -> None:
    """A scheduler that was stopped before it was in sync logged an error with a traceback."""
    loop, answer = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: answer.append(context))
    background = Background()
    parts = asyncio.gather(_for_ever(), _for_ever())
    waiting = asyncio.ensure_future(background.unless_broken(parts))
    await asyncio.sleep(0)
    await cancelled([waiting])
    del parts, waiting
    gc.collect()
    await asyncio.sleep(0)
    assert answer == []


async def test_all_tasks_have_ended_after_cancelling() -> None:
    background = Background()
    tasks = [background.start(_for_ever()) for _ in range(3)]
    await background.cancel()
    assert all(task.cancelled() for task in tasks)
