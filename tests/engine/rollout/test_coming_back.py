"""Policies that went out of force, or did not come into force, for a reason that has gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from engine.lib.clock import SystemClock
from engine.lib.saved_state import SavedStates
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem, SandboxDied
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.last_good import LastGood
from engine.rollout.last_resort import BUILTIN, WAIT, WAITING, LastResort, WhenNone
from engine.rollout.rollout import Rollout
from engine.rollout.sources import Offer
from tests.engine.rollout.test_taking_over import (
    BROKEN,
    EDITED,
    STORED,
    Kept,
    Source,
    World,
    make_rollout,
    revision_of,
)
from tests.waiting import eventually, no_time


class Machine:
    """A machine on which no sandbox of the operator's policies lives while memory is short."""

    def __init__(self, *texts: dict[str, str]) -> None:
        self.too_large = {revision_of(files) for files in texts}
        self.tries = 0

    def start_sandbox(self, bundle: Bundle) -> InProcessEvaluator:
        if bundle.revision in self.too_large:
            self.tries += 1
            raise SandboxDied([Problem("", 0, 0, "the sandbox died")])
        return InProcessEvaluator(bundle.program)


@contextlib.asynccontextmanager
async def running(
    source: Source, store: Kept, machine: Machine, when_none: WhenNone = WAIT
) -> AsyncIterator[Rollout]:
    rollout = make_rollout(
        source,
        store,
        World(),
        make_evaluator=machine.start_sandbox,
        last_resort=LastResort(when_none=when_none),
        states=SavedStates(SystemClock(), sleep=no_time),
        sleep=no_time,
    )
    await rollout.start()
    task = asyncio.ensure_future(rollout.run())
    try:
        yield rollout
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("when_none", "meanwhile"), [(WAIT, WAITING), (BUILTIN, "builtin")])
async def test_policies_that_did_not_load_are_in_force_once_they_do(
    when_none: WhenNone, meanwhile: str
) -> None:
    """They stayed out until the next edit or restart: nothing tried them again."""
    machine = Machine(STORED)
    async with running(Source(STORED), Kept(), machine, when_none) as rollout:
        assert rollout.origin == meanwhile
        tries = machine.tries
        await eventually(lambda: machine.tries > tries + 3, what="further tries")
        assert rollout.origin == meanwhile
        rejected = [one for one in rollout.describe()["history"] if one["result"] == "rejected"]
        assert len(rejected) == 1, "the same reason is no news"
        machine.too_large.clear()
        await eventually(lambda: rollout.origin == "source")
        assert rollout.active.bundle.revision == revision_of(STORED)


async def test_last_good_policies_that_did_not_load_are_in_force_once_they_do() -> None:
    """Next to a bad text, the built-in ones decided although the operator had good ones."""
    machine, store = Machine(STORED), Kept()
    store.last_good = LastGood(revision_of(STORED), STORED)
    async with running(Source(BROKEN), store, machine) as rollout:
        assert rollout.origin == WAITING
        machine.too_large.clear()
        await eventually(lambda: rollout.origin == "last-good")
        assert rollout.active.bundle.revision == revision_of(STORED)
        assert rollout.waits_for() is None


async def test_an_edit_that_did_not_load_comes_into_force_once_it_does() -> None:
    source, machine = Source(STORED), Machine(EDITED)
    async with running(source, Kept(), machine) as rollout:
        source.files = EDITED
        source.offer(Offer(EDITED))
        await eventually(lambda: machine.tries > 6, what="further tries")
        assert rollout.active.bundle.revision == revision_of(STORED)
        machine.too_large.clear()
        await eventually(lambda: rollout.active.bundle.revision == revision_of(EDITED))
