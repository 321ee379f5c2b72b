"""The hour and the date as policies see them, while the time goes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.kernel.events import Event
from engine.core.kernel.kernel import Kernel
from engine.io.facts.board import FactBoard
from engine.io.facts.live_facts import LiveFacts
from engine.io.facts.readings import CLUSTER, Reading
from engine.io.facts.source import Report, Source
from engine.lib.clock import SystemClock
from engine.policy.analysis import TimeReads
from engine.policy.fact_config import FactsConfig, FactSource, FileFacts
from engine.telemetry.metrics import Metrics
from tests.waiting import eventually, idle

BERLIN = FactsConfig(age_step=timedelta(seconds=1), time_zone="Europe/Berlin")
HOUR = TimeReads(clock=frozenset({"hour"}))


class SetClock(SystemClock):
    """A clock that people set, and that goes on from there."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self._ahead = datetime.fromisoformat(text).timestamp() - self.monotonic()

    def now(self) -> float:
        return self.monotonic() + self._ahead


class Given:
    """A source that says at once which hour it is."""

    name, failures, is_reading = "given", 0, False

    async def run(self, report: Report) -> None:
        report({CLUSTER: {"hour": Reading(23, "23"), "date": Reading(None, "soon")}})
        await asyncio.Event().wait()


class Bench:
    """Live facts, and what they report."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.cache = Cache()
        self.events: list[Event] = []
        self._kernel = Kernel(self.cache, {}, metrics=Metrics(CollectorRegistry()))
        self.facts = LiveFacts(
            FactBoard(self.cache, self._report),
            clock=clock,
            make_source=self._make,
            on_change=lambda: None,
            on_age=lambda: None,
            objects=lambda: ([], []),
        )

    def _make(self, _: FactSource, __: FactsConfig) -> Source:
        return Given()

    def _report(self, event: Event) -> None:
        self.events.append(event)
        self._kernel.handle(event, 0.0)

    def shown(self) -> dict[str, str]:
        return {name: fact.text for name, fact in self.cache.snapshot().cluster_facts.items()}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        following = asyncio.ensure_future(self.facts.run())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_an_hour_that_turns_is_shown_at_once() -> None:
    bench = Bench(SetClock("2026-11-30T18:59:59.900Z"))
    bench.facts.configure(BERLIN, HOUR)
    assert bench.shown() == {"hour": "19"}
    async with bench.running():
        await eventually(lambda: bench.shown() == {"hour": "20"}, seconds=0.9)


async def test_a_clock_that_is_set_is_followed_forward_and_back() -> None:
    """As after a process was stopped, or a machine slept: no matter how many hours are missed."""
    bench = Bench(SetClock("2026-11-30T11:00:01Z"))
    bench.facts.configure(BERLIN, TimeReads(clock=frozenset({"hour", "date"})))
    async with bench.running():
        assert bench.shown() == {"hour": "12", "date": "2026-11-30"}
        bench.clock.set("2026-12-02T04:00:01Z")
        await eventually(lambda: bench.shown() == {"hour": "5", "date": "2026-12-02"})
        bench.clock.set("2026-11-29T23:00:01Z")
        await eventually(lambda: bench.shown() == {"hour": "0", "date": "2026-11-30"})


async def test_nothing_is_shown_that_no_policy_reads() -> None:
    bench = Bench(SetClock("2026-11-30T18:59:59.990Z"))
    bench.facts.configure(BERLIN, TimeReads())
    async with bench.running():
        bench.clock.set("2026-12-02T04:00:00Z")
        await idle()
        bench.facts.refresh()
    assert bench.shown() == {}
    bench.facts.configure(BERLIN, HOUR)
    assert bench.shown() == {"hour": "5"}
    # Policies that are tried out may be the first to read it.
    tried = bench.facts.with_clock(bench.cache.snapshot())
    assert tried.cluster_facts["weekday"].text == "Wednesday"
    assert bench.shown() == {"hour": "5"}
    bench.facts.configure(BERLIN, TimeReads())
    assert bench.shown() == {}


async def test_another_time_zone_is_another_hour() -> None:
    bench = Bench(SetClock("2026-11-30T18:30:00Z"))
    bench.facts.configure(BERLIN, HOUR)
    bench.facts.configure(FactsConfig(time_zone="Asia/Tokyo"), HOUR)
    assert bench.shown() == {"hour": "3"}


async def test_a_source_that_gives_the_hour_goes_before_the_clock() -> None:
    config = FactsConfig((FileFacts("/given"),), time_zone="Europe/Berlin")
    bench = Bench(SetClock("2026-11-30T11:00:01Z"))
    bench.facts.configure(config, TimeReads(clock=frozenset({"hour", "date"})))
    async with bench.running():
        # What is no whole number is no date.
        await eventually(lambda: bench.shown() == {"hour": "23", "date": "2026-11-30"})
    bench.facts.configure(BERLIN, HOUR)
    assert bench.shown() == {"hour": "12"}
