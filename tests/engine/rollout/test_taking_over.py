"""What a new leader has in force, if the source offers something while it finds out."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.lib.clock import SystemClock
from engine.lib.saved_state import START, SavedStates
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.errors import Problem, SandboxDied
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.last_good import LastGood, Progress, Store, StoreError
from engine.rollout.last_resort import BUILTIN, WAIT, LastResort, WhenNone
from engine.rollout.rollout import Rollout
from engine.rollout.saved_policies import SavedPolicies
from engine.rollout.sources import Offer, OnOffer
from engine.rollout.trial import CandidateStages, MakeEvaluator
from engine.telemetry.metrics import Metrics
from tests.engine.rollout.making import rollout_of
from tests.waiting import eventually, no_time

BROKEN = {"p.star": "def filter(pod, node:\n"}
STORED = {"p.star": '"""As the last leader had it."""\n'}
EDITED = {"p.star": '"""As it was edited."""\n'}


class Source:
    """What a test offers."""

    name = "source"

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.offer: OnOffer

    def trouble(self) -> str:
        return ""

    async def run(self, on_offer: OnOffer) -> None:
        self.offer = on_offer
        on_offer(Offer(self.files))
        await asyncio.Event().wait()


class Kept:
    """A store that keeps what it is given."""

    def __init__(self) -> None:
        self.last_good: LastGood | None = None
        self.is_away = False
        self.hangs_in = ""
        self.gives_up = asyncio.Event()
        self.asked = 0
        self.loads = 0
        self.lost = 0

    async def load(self) -> LastGood | None:
        self.loads += 1
        await self._hang("load")
        return self.last_good

    async def save(self, last_good: LastGood) -> bool:
        self.asked += 1
        await self._hang("save")
        if self.is_away:
            raise StoreError("away")
        self.last_good = last_good
        return True

    async def is_lost(self) -> bool:
        self.lost += 1
        return self.last_good is None

    async def _hang(self, where: str) -> None:
        if self.hangs_in == where:
            await self.gives_up.wait()
            raise StoreError("no answer in time")


class World:
    """An empty cluster.

    Preparing the *slow* revision begins with `is_preparing` and lasts until `is_prepared`; the
    first trial begins when `is_idle` is set, as it is at first.
    """

    def __init__(self) -> None:
        self.slow = ""
        self.rejected: list[Pod] = []
        self.cache = Cache()
        self.is_preparing = asyncio.Event()
        self.is_prepared = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    def snapshot(self) -> Snapshot:
        return self.cache.snapshot()

    def sample_pods(self) -> list[Pod]:
        return []

    def waiting_pods(self) -> list[Pod]:
        return []

    def rejected_pods(self) -> list[Pod]:
        return self.rejected

    def pods_by_queue(self) -> Mapping[str, int]:
        return {}

    async def watch(self, bundle: Bundle) -> Sequence[str]:
        return ()

    async def prepare(self, bundle: Bundle) -> None:
        if bundle.revision == self.slow:
            self.is_preparing.set()
            await self.is_prepared.wait()

    async def until_idle(self) -> None:
        await self.is_idle.wait()

    async def until_decided(self) -> None:
        pass


class Slow(Kept):
    """A store that is read once *is_answering* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answering = asyncio.Event()

    async def load(self) -> LastGood | None:
        await self.is_answering.wait()
        return await super().load()


def revision_of(files: Mapping[str, str]) -> str:
    return build_bundle(dict(files)).revision


def make_rollout(
    source: Source,
    store: Store,
    world: World,
    on_switch: Callable[[object, object], None] = lambda *_: None,
    make_evaluator: MakeEvaluator = lambda bundle: InProcessEvaluator(bundle.program),
    **waits: Any,
) -> Rollout:
    return rollout_of(
        source=source,
        store=store,
        stages=CandidateStages(
            build=lambda files: build_bundle(dict(files)),
            make_evaluator=make_evaluator,
            run_tests=lambda _: [],
            sleep=no_time,
        ),
        world=world,
        on_switch=on_switch,
        write_event=lambda *_: None,
        metrics=Metrics(CollectorRegistry()),
        clock=SystemClock(),
        **waits,
    )


def without_waiting() -> SavedStates:
    """States of a process that is to go on without what cannot be read."""
    return SavedStates(SystemClock(), START, patience=0.1, sleep=no_time)


@pytest.mark.parametrize(("files", "is_said"), [({}, True), (STORED, False)])
async def test_a_source_without_policies_is_said_to_mean_the_built_in_ones(
    files: Mapping[str, str], is_said: bool
) -> None:
    """An empty directory, such as a volume that was not mounted, meant other rules silently."""
    rollout = make_rollout(Source(files), Kept(), World(), sleep=no_time)
    with structlog.testing.capture_logs() as logs:
        await rollout.start()
    await rollout.stop()
    said = [one for one in logs if one["event"] == "The source is empty"]
    assert bool(said) == is_said
    assert all("the built-in ones decide" in one["reason"] for one in said)


async def test_a_start_goes_on_without_a_store_that_hangs_if_that_is_wanted() -> None:
    """It took two minutes. What was taken back before must not be in force for good, nor forgotten.

    Neither may anything be saved over what was not read.
    """
    store = Kept()
    taken_back = revision_of(EDITED)
    kept = store.last_good = LastGood(revision_of(STORED), STORED, (taken_back,))
    store.hangs_in = "load"
    states = without_waiting()
    rollout = make_rollout(Source(EDITED), store, World(), states=states, sleep=no_time)
    with structlog.testing.capture_logs() as logs:
        await asyncio.wait_for(rollout.start(), 5)
    (line,) = [one for one in logs if one["event"] == "Cannot read the last good policies"]
    assert line["reason"] == "no answer for 0.1 s"
    (error,) = [one for one in logs if one["log_level"] == "error"]
    assert error["until_then"] == "decisions are made without it"
    assert states.unread()["last-good"] == 1
    assert states.waits_for() is None
    assert rollout.active.bundle.revision == taken_back
    running = asyncio.ensure_future(rollout.run())
    try:
        await eventually(lambda: rollout.describe()["last_good"], what="the trial to end")
        asked = store.loads
        await eventually(lambda: store.loads > asked + 1)
        assert store.last_good == kept
        store.hangs_in = ""
        store.gives_up.set()
        await eventually(lambda: rollout.active.bundle.revision == revision_of(STORED))
        await eventually(lambda: rollout.describe()["last_rejected"])
        assert rollout.describe()["last_rejected"]["stage"] == "rolled_back"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert store.last_good == kept


@contextlib.asynccontextmanager
async def rolled_back_in_force(
    store: Kept, source: Source, world: World
) -> AsyncIterator[tuple[Rollout, LastGood]]:
    """A roll-out with a rolled back revision in force, and what its store holds.

    The store does not answer at the start. When it does, its own policies stay in preparation until
    `world.is_prepared`.
    """
    kept = store.last_good = LastGood(revision_of(STORED), STORED, (revision_of(EDITED),))
    store.hangs_in = "load"
    world.slow = kept.revision
    rollout = make_rollout(source, store, world, states=without_waiting(), sleep=no_time)
    await asyncio.wait_for(rollout.start(), 5)
    assert rollout.active.bundle.revision == revision_of(source.files)
    running = asyncio.ensure_future(rollout.run())
    try:
        yield rollout, kept
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_rolled_back_revision_is_not_saved_after_its_trial() -> None:
    """The store answered during the first trial, and the next start found what it rejects."""
    source, store, world = Source(EDITED), Kept(), World()
    world.is_idle.clear()
    async with rolled_back_in_force(store, source, world) as (rollout, kept):
        # 1. The store answers before the trial; its policies are prepared during all of it.
        store.hangs_in = ""
        store.gives_up.set()
        await world.is_preparing.wait()
        world.is_idle.set()
        source.offer(Offer(BROKEN))
        await eventually(lambda: rollout.describe()["last_rejected"], what="the trial to end")
        assert rollout.active.bundle.revision == revision_of(EDITED)
        # 2. They come into force.
        world.is_prepared.set()
        await eventually(lambda: rollout.active.bundle.revision == kept.revision)
    assert store.last_good == kept


async def test_a_rolled_back_revision_that_has_no_successor_is_not_saved() -> None:
    """What the store holds does not load any more."""
    source, store, world = Source(EDITED), Kept(), World()
    async with rolled_back_in_force(store, source, world) as (rollout, _):
        kept = store.last_good = LastGood(revision_of(STORED), BROKEN, (revision_of(EDITED),))
        await eventually(lambda: rollout.describe()["last_good"], what="the trial to end")
        store.hangs_in = ""
        store.gives_up.set()
        await eventually(lambda: rollout.describe()["rolled_back"])
        asked = store.lost
        await eventually(lambda: store.lost > asked, what="the take-over to end")
    assert store.last_good == kept


async def test_an_edit_turns_out_to_be_rolled_back_during_its_stages() -> None:
    source, store, world = Source(STORED), Kept(), World()
    async with rolled_back_in_force(store, source, world) as (rollout, kept):
        await eventually(lambda: rollout.describe()["last_good"], what="the trial to end")
        world.slow = revision_of(EDITED)
        source.offer(Offer(EDITED))
        await world.is_preparing.wait()
        store.hangs_in = ""
        store.gives_up.set()
        await eventually(lambda: rollout.describe()["rolled_back"])
        world.is_prepared.set()
        await eventually(lambda: rollout.describe()["last_rejected"])
        assert rollout.describe()["last_rejected"]["stage"] == "rolled_back"
        assert rollout.active.bundle.revision == kept.revision
    assert store.last_good == kept


async def test_what_the_last_leader_rolled_back_is_not_forgotten_with_what_a_standby_accepted() -> (
    None
):
    """It was saved over by what the standby had not been able to save while it was one."""
    store = Kept()
    rollout = make_rollout(Source(STORED), store, World())
    rollout.is_active = False
    await rollout.start()
    running = asyncio.ensure_future(rollout.run())
    try:
        await eventually(lambda: rollout.describe()["last_good"])
        kept = store.last_good = LastGood(revision_of(STORED), STORED, (revision_of(EDITED),))
        await rollout.lead()
        assert store.last_good == kept
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_edit_that_comes_while_the_last_leaders_policies_are_taken_over_stays() -> None:
    """They came into force over it, under its name, and were saved as the last good ones."""
    source, store, world = Source(BROKEN), Kept(), World()
    in_force: list[str] = []
    edited = asyncio.Event()

    def switch(new: object, _: object) -> None:
        in_force.append(rollout.active.bundle.revision)
        if in_force[-1] == revision_of(EDITED):
            edited.set()

    rollout = make_rollout(source, store, world, switch)
    rollout.is_active = False
    await rollout.start()
    running = asyncio.ensure_future(rollout.run())
    try:
        # 1. The leader dies. Its policies differ from ours, which are a makeshift.
        store.last_good = LastGood(revision_of(STORED), STORED, ())
        world.slow = revision_of(STORED)
        leading = asyncio.ensure_future(rollout.lead())
        await world.is_preparing.wait()
        # 2. An edit mends what was broken.
        source.offer(Offer(EDITED))
        await asyncio.wait_for(edited.wait(), 20)
        # 3. Now those of the leader could come into force.
        world.is_prepared.set()
        await leading
        assert rollout.active.bundle.revision == in_force[-1] == revision_of(EDITED)
        assert rollout.describe()["active"]["origin"] == source.name
        assert store.last_good.revision == revision_of(EDITED)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("when_none", [WAIT, BUILTIN])
async def test_policies_that_fail_their_trial_stay_while_nothing_else_loads(
    when_none: WhenNone,
) -> None:
    """It ended the process: where memory is short, no sandbox outlives its start."""
    source, world = Source(STORED), World()
    world.is_idle.clear()
    is_short_of_memory = False

    def start_sandbox(bundle: Bundle) -> InProcessEvaluator:
        if is_short_of_memory:
            raise SandboxDied([Problem("", 0, 0, "the sandbox died")])
        return InProcessEvaluator(bundle.program)

    rollout = make_rollout(
        source,
        Kept(),
        world,
        make_evaluator=start_sandbox,
        last_resort=LastResort(when_none=when_none),
        sleep=no_time,
    )
    await rollout.start()
    is_short_of_memory = True
    running = asyncio.ensure_future(rollout.run())
    try:
        world.is_idle.set()
        with structlog.testing.capture_logs() as logs:
            await eventually(lambda: any("stay in force" in line["event"] for line in logs))
        assert rollout.active.bundle.revision == revision_of(STORED)
        is_short_of_memory = False
        source.offer(Offer(EDITED))
        await eventually(lambda: rollout.active.bundle.revision == revision_of(EDITED))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_start_goes_on_until_a_sandbox_lives() -> None:
    """It ended the process."""
    deaths = itertools.count()

    def start_sandbox(bundle: Bundle) -> InProcessEvaluator:
        if next(deaths) < 20:
            raise SandboxDied([Problem("", 0, 0, "the sandbox died")])
        return InProcessEvaluator(bundle.program)

    source = Source(STORED)
    rollout = make_rollout(source, Kept(), World(), make_evaluator=start_sandbox, sleep=no_time)
    await asyncio.wait_for(rollout.start(), 20)
    running = asyncio.ensure_future(rollout.run())
    try:
        await eventually(lambda: rollout.active.bundle.revision == revision_of(STORED))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Moody(Source):
    """A source that fails at first, and after each of two offers."""

    def __init__(self) -> None:
        super().__init__(STORED)
        self.runs = 0

    async def run(self, on_offer: OnOffer) -> None:
        self.runs += 1
        if self.runs > 3:
            await asyncio.Event().wait()
        if self.runs > 1:
            on_offer(Offer(STORED if self.runs == 2 else EDITED))
        raise RuntimeError("moody")


async def test_a_source_that_fails_is_started_again() -> None:
    source = Moody()
    rollout = make_rollout(source, Kept(), World(), sleep=no_time)
    starting = asyncio.ensure_future(rollout.start())
    await asyncio.wait_for(starting, 20)
    running = asyncio.ensure_future(rollout.run())
    try:
        await eventually(lambda: rollout.active.bundle.revision == revision_of(EDITED))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_nothing_is_saved_over_what_is_being_read() -> None:
    store = Slow()
    store.last_good = LastGood("good", STORED, rolled_back=("bad",))
    states = SavedStates(SystemClock(), sleep=no_time)
    saved = SavedPolicies(store, lambda: True, states=states, save_timeout=9, sleep=no_time)
    saved.remember_progress(Progress("edit", "good", 0))
    reading = asyncio.ensure_future(saved.load())
    await asyncio.sleep(0)
    await saved.save()
    assert store.asked == 0

    store.is_answering.set()
    stored = await reading
    assert stored is not None
    saved.adopt(stored, "good", is_fallback=False)
    await saved.save()
    assert store.last_good.rolled_back == ("bad",)
