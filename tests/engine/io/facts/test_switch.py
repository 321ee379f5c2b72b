"""Policies that come into force find the facts that they bring the sources of."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from devkit.cluster import DevCluster
from engine.core.caching.cache import Cache
from engine.core.kernel.kernel import Kernel
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.io.facts.board import FactBoard
from engine.io.facts.live_facts import LiveFacts
from engine.io.facts.readings import Reading
from engine.io.facts.source import Report
from engine.lib.clock import SystemClock
from engine.policy.analysis import TimeReads
from engine.policy.fact_config import AnnotationFacts, FactsConfig, FactSource, FileFacts
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, node_manifest, pod_manifest
from tests.engine.app.harness import condition, edit, events, namespace, node_of, scheduler
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

BEFORE = 'def filter(pod, node):\n    return "not yet"\n'
AFTER = '''"""Goes to nodes that are cool. Hooks: filter. Reads: node.facts["heat"]."""

def filter(pod, node):
    heat = node.facts["heat"]
    if heat == None or heat.value == None:
        return "node(s) had no known heat"
    return "node(s) were hot" if heat.value > 50 else None
'''
RUNTIME = """apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts:
  sources:
    - prometheus: {url: "http://127.0.0.1:PORT", queries: [{fact: heat, query: heat, about: node}]}
"""


class SlowServer:
    """A Prometheus server whose answers wait for `may_answer`."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __aenter__(self) -> "SlowServer":
        app = web.Application()
        app.router.add_post("/api/v1/query", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.may_answer.set()
        await self._runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        self.is_asked.set()
        await self.may_answer.wait()
        series = {"metric": {"node": "a"}, "value": [1.0, "40"]}
        data = {"resultType": "vector", "result": [series]}
        return web.Response(body=msgspec.json.encode({"status": "success", "data": data}))

    def files(self) -> dict[str, str]:
        return {"x.star": AFTER, "runtime.yaml": RUNTIME.replace("PORT", str(self.port))}


async def test_an_edit_that_adds_a_source_waits_for_what_it_says_first() -> None:
    """The pods that waited were decided at the switch, before the source had said anything."""
    async with DevCluster() as cluster, SlowServer() as server:
        cluster.create(namespace(), node_manifest("a"))
        edit(cluster, {"x.star": BEFORE})
        async with scheduler(cluster, from_config_map=True) as app:
            before = app.policies.rollout.active.bundle.revision
            cluster.create(pod_manifest("p", image="app"))
            await eventually(lambda: "1 not yet" in condition(cluster, "p").get("message", ""))
            edit(cluster, server.files())
            await asyncio.wait_for(server.is_asked.wait(), 20)
            # What is in force goes on deciding meanwhile.
            cluster.create(pod_manifest("q", image="app"))
            await eventually(lambda: "1 not yet" in condition(cluster, "q").get("message", ""))
            assert app.policies.rollout.active.bundle.revision == before
            server.may_answer.set()
            await eventually(lambda: node_of(cluster, "p") == "a" == node_of(cluster, "q"))
            reported = {event["note"] for event in events(cluster, "FailedScheduling")}
            assert not any("no known heat" in note for note in reported), reported


# --- live facts alone ------------------------------------------------------------------------


class Said:
    """A source that says at once how hot node `a` is, and remembers that it was ended.

    One that is called `silent` says nothing.
    """

    failures = 0
    is_reading = False

    def __init__(self, config: FactSource) -> None:
        assert isinstance(config, FileFacts)
        self.name = config.path
        self.is_running = False
        self.report: Report | None = None

    async def run(self, report: Report) -> None:
        self.is_running, self.report = True, report
        try:
            if self.name != "silent":
                report({("node", "a"): {self.name: Reading(40.0, "40", 1.0)}})
            await asyncio.Event().wait()
        finally:
            self.is_running = False


class Bench:
    """Live facts with the sources that it made, by name."""

    def __init__(self, patience: float = 20.0) -> None:
        self.cache = Cache()
        self.cache.add_node(make_node("a"))
        self.made: list[Said] = []
        kernel = Kernel(self.cache, {}, metrics=Metrics(CollectorRegistry()))
        self.facts = LiveFacts(
            FactBoard(self.cache, lambda event: kernel.handle(event, 0.0)),
            clock=SystemClock(),
            make_source=self._make,
            on_change=lambda: None,
            on_age=lambda: None,
            objects=_nothing,
            patience=patience,
        )

    def _make(self, config: FactSource, _: FactsConfig) -> Said:
        self.made.append(Said(config))
        return self.made[-1]

    def shown(self) -> set[str]:
        return set(self.cache.facts_of_node("a").own)

    def age(self, name: str) -> int:
        return self.cache.facts_of_node("a").own[name].age_seconds or 0

    def running(self) -> list[str]:
        return [source.name for source in self.made if source.is_running]


def _nothing() -> tuple[Iterable[Node], Iterable[Pod]]:
    return [], []


def config(*names: str) -> FactsConfig:
    return FactsConfig(sources=tuple(FileFacts(name) for name in names))


async def test_what_is_prepared_is_shown_when_it_is_configured_and_not_before() -> None:
    bench = Bench()
    bench.facts.configure(config("old"), TimeReads())
    following = asyncio.ensure_future(bench.facts.run())
    await eventually(lambda: bench.shown() == {"old"})
    await bench.facts.prepare(config("new", "old"))
    assert bench.running() == ["old", "new"]
    assert bench.shown() == {"old"}
    bench.facts.configure(config("new", "old"), TimeReads())
    assert bench.shown() == {"old", "new"}
    assert len(bench.made) == 2, "a source was made anew"
    bench.facts.configure(config("new"), TimeReads())
    assert bench.shown() == {"new"}
    await eventually(lambda: bench.running() == ["new"])
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert bench.running() == []


async def test_a_source_that_reports_nothing_is_not_waited_for_forever() -> None:
    bench = Bench(patience=0.01)
    following = asyncio.ensure_future(bench.facts.run())
    await asyncio.sleep(0)
    await bench.facts.prepare(config("silent", "other"))
    assert bench.running() == ["silent", "other"]
    bench.facts.configure(config("silent", "other"), TimeReads())
    assert bench.shown() == {"other"}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_shorter_step_of_ages_is_in_force_at_once() -> None:
    """Ages went by the step before it until that had passed, which may be hours."""
    bench = Bench()
    hours = replace(config("old"), age_step=timedelta(hours=5))
    bench.facts.configure(hours, TimeReads(ages=True))
    following = asyncio.ensure_future(bench.facts.run())
    await eventually(lambda: bench.shown() == {"old"})
    bench.facts.configure(replace(hours, age_step=timedelta(seconds=1)), TimeReads(ages=True))
    age = bench.age("old")
    await eventually(lambda: bench.age("old") > age)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_was_prepared_for_nothing_is_ended() -> None:
    bench = Bench()
    following = asyncio.ensure_future(bench.facts.run())
    await asyncio.sleep(0)
    await bench.facts.prepare(config("one"))
    await bench.facts.prepare(config("two"))
    await eventually(lambda: bench.running() == ["two"])
    bench.facts.configure(config("three"), TimeReads())
    await eventually(lambda: bench.running() == ["three"])
    await bench.facts.prepare(config("four"))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert bench.running() == []


async def test_sources_of_other_types_of_pods_are_prepared_all() -> None:
    bench = Bench()
    bench.facts.configure(config("one"), TimeReads())
    following = asyncio.ensure_future(bench.facts.run())
    await eventually(lambda: bench.shown() == {"one"})
    relabelled = replace(config("one"), pod_type_labels=("team",))
    await bench.facts.prepare(relabelled)
    assert len(bench.made) == 2
    bench.facts.configure(relabelled, TimeReads())
    assert bench.shown() == {"one"}
    await eventually(lambda: bench.running() == ["one"])
    assert [source.is_running for source in bench.made] == [False, True]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_nodes_that_there_are_not_do_not_count_as_known() -> None:
    """A source that calls nodes by their addresses looked as if all were well."""
    bench = Bench()
    bench.facts.configure(config("heat"), TimeReads())
    running = asyncio.ensure_future(bench.facts.run())
    try:
        await eventually(lambda: bench.facts.describe()["subjects"] == 1)
        assert bench.facts.describe()["nodes"] == 1
        bench.cache.remove_node("a")
        bench.cache.add_node(make_node("b"))
        found = bench.facts.describe()
        assert (found["subjects"], found["nodes"]) == (1, 0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_age_of_a_source_is_that_of_its_newest_reading() -> None:
    bench = Bench()
    silent, spoken = FileFacts("silent"), FileFacts("said")
    annotated = AnnotationFacts(of="nodes", keys={"heat": "heat"})
    sources = (silent, spoken, annotated)
    bench.facts.configure(FactsConfig(sources=sources), TimeReads())
    running = asyncio.ensure_future(bench.facts.run())
    try:
        await eventually(lambda: "said" in bench.shown())
        ages = bench.facts.ages()
        assert ages.keys() == {"silent", "said"}  # no node has the annotation
        assert 0 <= ages["silent"] < 60  # since it was started
        assert ages["said"] > 1e9  # measured at the beginning of 1970
        for time in (100.0, 200.0, None):
            value = json.dumps({"value": 1, "time": time})
            bench.facts.of_nodes.on_add(make_node(f"n{time}", annotations={"heat": value}))
        assert abs(bench.facts.ages()["annotations:nodes"] - (ages["said"] - 199)) < 60
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_source_that_works_and_has_nothing_to_say_has_no_age() -> None:
    """A query that no series matches is no failure, and not out of date."""
    bench = Bench()
    bench.facts.configure(config("silent"), TimeReads())
    running = asyncio.ensure_future(bench.facts.run())
    try:
        await eventually(lambda: bench.running() == ["silent"])
        (source,) = bench.made
        assert source.report is not None
        assert bench.facts.ages().keys() == {"silent"}
        source.failures = 1
        source.report({})
        assert bench.facts.ages().keys() == {"silent"}  # it fails, and has nothing from before
        source.report({})
        assert bench.facts.ages().keys() == {"silent"}  # a query may still be hanging
        source.report({})
        assert bench.facts.ages() == {}
        source.failures = 2
        source.report({})
        assert bench.facts.ages()["silent"] < 60
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
