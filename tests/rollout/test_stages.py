"""Building, testing and loading a candidate."""

import asyncio
import threading
from typing import Any

import pytest

from engine.rollout.trial import CandidateStages


async def test_a_sandbox_that_does_not_start_does_not_undo_a_cancellation() -> None:
    """A scheduler that was told to stop at that moment hung until it was killed."""
    is_asked, may_fail = threading.Event(), threading.Event()

    def make_evaluator(_: Any) -> Any:
        is_asked.set()
        assert may_fail.wait(30)
        raise BlockingIOError("no process")

    nothing: Any = None
    stages = CandidateStages(build=nothing, make_evaluator=make_evaluator, run_tests=nothing)
    loading = asyncio.ensure_future(stages.load(nothing, {}))
    assert await asyncio.to_thread(is_asked.wait, 30)
    loading.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    with pytest.raises(asyncio.CancelledError):
        await loading
