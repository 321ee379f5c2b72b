"""Building, testing and loading a candidate."""

import asyncio
import threading
from typing import Any

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.errors import Problem, SandboxDied
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.trial import CandidateStages, LoadedRevision, Rejected


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


class Machine:
    """Where the first *deaths* sandboxes die."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.waits: list[float] = []

    def make_evaluator(self, bundle: Any) -> Any:
        if self.deaths:
            self.deaths -= 1
            raise SandboxDied([Problem("a.star", 0, 0, "loading was ended by SIGKILL")])
        return InProcessEvaluator(bundle.program)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def load(self) -> LoadedRevision:
        stages = CandidateStages(
            build=build_bundle,
            make_evaluator=self.make_evaluator,
            run_tests=lambda _: [],
            sleep=self.sleep,
        )
        return await stages.load(build_bundle({}), {})


async def test_a_sandbox_that_dies_while_it_loads_is_started_again() -> None:
    """A machine short of memory ended one, and the scheduler started with the built-in policies."""
    machine = Machine(deaths=2)
    loaded = await machine.load()
    assert loaded.bundle.revision == build_bundle({}).revision
    assert machine.waits == [0.5, 2.0]


async def test_policies_whose_sandbox_dies_each_time_are_rejected() -> None:
    with pytest.raises(Rejected, match="ended by SIGKILL"):
        await Machine(deaths=3).load()
