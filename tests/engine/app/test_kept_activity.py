"""What happened in the last hour outlives its leader: saved every minute, read by the next."""

import asyncio
import contextlib
from typing import Final

import msgspec
import pytest

from devkit.cluster import DevCluster
from engine.app.kept_activity import NAME, KeptActivity
from engine.io.facts.learned import LearnedConfigMap, LearnedStoreError
from engine.io.kube.client import ApiClient
from engine.lib.clock import VirtualClock
from engine.surfaces.live.activity import Activity, ActivitySample, History
from engine.surfaces.live.moments import at_text
from tests.engine.app.harness import NAMESPACE, namespace, scheduler
from tests.engine.surfaces.page.test_activity import Counters
from tests.waiting import eventually

HISTORY: Final = History(
    samples=(ActivitySample(at=at_text(VirtualClock().now()), seconds=60.0, bound=3),),
    leader="x_1",
)


class Store:
    """Answers in turn what it is made with, and keeps what is saved."""

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self.answers = [*answers]
        self.saved: list[bytes] = []

    async def load(self, name: str) -> bytes | None:
        assert name == NAME
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def save(self, name: str, text: bytes) -> None:
        assert name == NAME
        self.saved.append(text)


async def _run(store: Store, activity: Activity, turns: int) -> list[float]:
    """Run for so many waits; how long each was to be."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > turns:
            raise asyncio.CancelledError

    kept = KeptActivity(activity, store, may_save=lambda: True, sleep=sleep)
    with contextlib.suppress(asyncio.CancelledError):
        await kept.run()
    return waits


async def test_nothing_is_saved_before_what_was_saved_is_read() -> None:
    activity = Counters().activity
    store = Store(LearnedStoreError("no answer"), b"{garbage", msgspec.json.encode(HISTORY))
    assert await _run(store, activity, 3) == [10.0, 10.0, 60.0, 60.0]
    assert activity.samples == HISTORY.samples
    (saved,) = store.saved
    assert msgspec.json.decode(saved, type=History) == HISTORY


async def test_where_nothing_was_saved_it_begins() -> None:
    store = Store(None)
    await _run(store, Counters().activity, 1)
    assert len(store.saved) == 1


@pytest.mark.usefixtures("no_sandboxes")
async def test_a_scheduler_goes_on_with_what_the_one_before_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.app.kept_activity._SAVE_SECONDS", 0.05)

    def store(client: ApiClient) -> LearnedConfigMap:
        return LearnedConfigMap(client, NAMESPACE, "policies-facts")

    async with DevCluster() as cluster:
        cluster.create(namespace())

        def saved() -> str:
            found = cluster.get("configmaps", "policies-facts", NAMESPACE)
            return "" if found is None else found["data"].get(f"{NAME}.json", "")

        async with scheduler(cluster, learned_store=store) as first:
            first.surfaces.activity.sample()
            await eventually(lambda: '"samples":[{' in saved())
            before = first.surfaces.activity.samples
        async with scheduler(cluster, learned_store=store) as second:
            await eventually(lambda: bool(second.surfaces.activity.samples))
            assert second.surfaces.activity.samples[0].at == before[0].at
