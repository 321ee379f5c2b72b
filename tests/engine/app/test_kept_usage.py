"""What queues used is saved by the leader, and read by the next process before it decides."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from engine.app.kept_usage import NAME, STATE, KeptUsage, SavedUsage
from engine.core.kernel.events import Event, UsageRestored
from engine.io.facts.learned import LearnedStoreError, NoLearnedStore
from engine.lib.background import cancelled
from engine.lib.saved_state import SavedStates
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.queue_world import FAIR, QueueWorld
from tests.waiting import eventually, idle, no_time


class _Store(NoLearnedStore):
    """Keeps what is saved, and fails as long as it is to."""

    def __init__(self, text: bytes | None = None) -> None:
        self.text = text
        self.loads = self.saves = 0
        self.failing = 0

    async def load(self, name: str) -> bytes | None:
        assert name == NAME
        self.loads += 1
        if self.failing:
            self.failing -= 1
            raise LearnedStoreError("no such luck")
        return self.text

    async def save(self, name: str, text: bytes) -> None:
        assert name == NAME
        self.saves += 1
        self.text = text


def _world(cpu: int, usage: bool = True) -> QueueWorld:
    """A cluster of 100 cores, of which the queue `a` has so many."""
    more = {"usage": {"halfLife": "1m"}} if usage else {}
    world = QueueWorld(FAIR, queues={"a": {}}, **more)
    world.add_node(make_node("n", cpu=100))
    if cpu:
        world.add(make_pod("one", cpu=cpu, labels={"queue": "a"}).with_node("n"))
    return world


@contextlib.asynccontextmanager
async def _kept(
    world: QueueWorld, store: _Store, *, may_save: bool = True
) -> AsyncIterator[SavedStates]:
    states = SavedStates(world.clock, sleep=no_time)

    def report(event: Event) -> None:
        world.report(event)

    kept = KeptUsage(
        world.kernel.shares,
        store,
        states=states,
        may_save=lambda: may_save,
        report=report,
        clock=world.clock,
    )
    kept.begin()
    running = asyncio.ensure_future(kept.run())
    try:
        yield states
    finally:
        await cancelled([running])
        world.kernel.check_invariants()


@pytest.fixture(autouse=True)
def _saves_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.app.kept_usage._SAVE_SECONDS", 0.0)


async def test_the_next_process_goes_on_with_the_time_that_passed() -> None:
    store, world = _Store(), _world(80)
    world.wait(60.0)
    async with _kept(world, store):
        await eventually(lambda: store.saves)
    assert store.text is not None
    saved = msgspec.json.decode(store.text, type=SavedUsage)
    assert saved == SavedUsage(world.clock.now(), {p: {"cpu": 400_000_000} for p in ("", "a")})
    store.failing = 2
    other = _world(0)
    other.clock.advance(180.0)
    async with _kept(other, store) as states:
        assert states.waits_for() == f"{STATE}: no answer yet"
        await states.settled()
        assert store.loads == 4
        assert other.kernel.shares.state("a").usage == {"cpu": 100}


async def test_what_cannot_be_read_is_not_written_over() -> None:
    store, world = _Store(b'{"at": 1, "queues": [1]}'), _world(80)
    async with _kept(world, store) as states:
        await eventually(lambda: store.loads > 3)
        waits_for = states.waits_for() or ""
    assert waits_for.startswith(f"{STATE}: cannot be read: what was saved as `{NAME}` is damaged")
    assert store.saves == 0


async def test_a_standby_and_a_tree_without_usage_save_nothing() -> None:
    for world, may_save in ((_world(80), False), (_world(80, usage=False), True)):
        store = _Store()
        async with _kept(world, store, may_save=may_save) as states:
            await states.settled()
            await idle()
        assert store.saves == 0
        assert store.loads == (0 if may_save else 1)


async def test_the_queues_that_used_most_are_saved_if_not_all_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.app.kept_usage._MOST_BYTES", 60)
    store, world = _Store(), _world(80)
    used = {f"gone-{n}": {"cpu": 900_000_000 + n} for n in range(9)}
    world.report(UsageRestored(used, 0.0))
    async with _kept(world, store):
        await eventually(lambda: store.saves)
    assert store.text is not None
    queues = msgspec.json.decode(store.text, type=SavedUsage).queues
    assert list(queues) == ["gone-8", "gone-7"]
