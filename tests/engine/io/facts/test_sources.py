"""Facts from a file, from a ConfigMap and from annotations, in a running scheduler."""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import structlog

from devkit.cluster import DevCluster
from engine.app import App
from engine.core.model.objects import ConfigMap, decode
from engine.io.facts import sources
from engine.io.facts.learned import (
    LearnedConfigMap,
    LearnedFiles,
    LearnedSource,
    LearnedStoreError,
    NoLearnedStore,
)
from engine.io.facts.outcomes import OutcomeLearner, decode_watched_pod
from engine.io.facts.readings import CLUSTER, Document, Reading, Readings, Subject, read_document
from engine.io.facts.sources import ConfigMapSource, FileSource
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.watching.reflector import WatchCounts
from engine.lib.clock import SystemClock, VirtualClock
from engine.lib.saved_state import SavedStates
from engine.policy.fact_config import ConfigMapFacts, FileFacts, PodOutcomes
from tests.builders import node_manifest, pod_manifest
from tests.engine.app.harness import NAMESPACE, config_map, edit, events, namespace, node_of
from tests.engine.app.harness import scheduler as running_scheduler
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

COOL = '''"""Goes to nodes that are cool. Hooks: filter. Reads: node.facts["heat"]."""

def filter(pod, node):
    heat = node.facts["heat"]
    if heat == None or heat.value == None:
        return "node(s) had no known heat"
    return "node(s) were hot" if heat.value > 50 else None
'''
FRESH = '''"""Goes to nodes that were measured lately. Hooks: filter. Reads: node.facts["heat"]."""

def filter(pod, node):
    heat = node.facts["heat"]
    if heat == None or heat.age_seconds == None or heat.age_seconds > 4:
        return "node(s) were not measured lately"
    return None
'''
RUNTIME = """
apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts:
  ageStep: 1s
  sources: [{source}]
"""


def _files(policy: str, source: str) -> dict[str, str]:
    return {"x.star": policy, "runtime.yaml": RUNTIME.replace("{source}", source)}


def _node(name: str, **annotations: str) -> dict[str, Any]:
    manifest = node_manifest(name)
    manifest["metadata"]["annotations"] = annotations
    return manifest


def _annotate(cluster: DevCluster, name: str, **annotations: str) -> None:
    node = cluster.get("nodes", name)
    assert node is not None
    cluster.update("nodes", {**node, "metadata": {**node["metadata"], "annotations": annotations}})


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as made:
        made.create(namespace())
        yield made


def _message(cluster: DevCluster, name: str = "p") -> str:
    pod = cluster.get("pods", name, "default")
    conditions = (pod or {}).get("status", {}).get("conditions") or [{}]
    return str(conditions[0].get("message", ""))


# --- annotations -----------------------------------------------------------------------------


async def test_an_annotation_that_changes_lets_a_waiting_pod_go(cluster: DevCluster) -> None:
    cluster.create(config_map(_files(COOL, "{annotations: {keys: {heat: example.com/heat}}}")))
    cluster.create(_node("a", **{"example.com/heat": "60"}))
    cluster.create(_node("b", **{"example.com/heat": "NaN"}))
    async with running_scheduler(cluster, from_config_map=True):
        cluster.create(pod_manifest("p", image="app"))
        await eventually(lambda: "1 node(s) were hot" in _message(cluster))
        assert "1 node(s) had no known heat" in _message(cluster)
        _annotate(cluster, "a", **{"example.com/heat": "40"})
        await eventually(lambda: node_of(cluster, "p") == "a")


async def test_facts_come_and_go_with_an_edited_configuration(cluster: DevCluster) -> None:
    cluster.create(config_map({"x.star": COOL}))
    cluster.create(_node("a", **{"example.com/heat": "40"}))
    async with running_scheduler(cluster, from_config_map=True) as app:
        cluster.create(pod_manifest("p", image="app"))
        await eventually(lambda: "1 node(s) had no known heat" in _message(cluster))
        edit(cluster, _files(COOL, '{annotations: {prefix: "example.com/"}}'))
        await eventually(lambda: node_of(cluster, "p") == "a")
        edit(cluster, {"x.star": COOL})
        await eventually(lambda: app.cache.facts_of_node("a").own == {})


# --- ConfigMap -------------------------------------------------------------------------------


def _facts_map(**documents: Any) -> dict[str, Any]:
    data = {
        f"{name}.json": text if isinstance(text, str) else msgspec.json.encode(text).decode()
        for name, text in documents.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "heat", "namespace": NAMESPACE},
        "data": data,
    }


async def test_a_config_map_is_followed_through_bad_edits(cluster: DevCluster) -> None:
    source = f"{{configMap: {{namespace: {NAMESPACE}, name: heat}}}}"
    cluster.create(config_map(_files(COOL, source)))
    cluster.create(_node("a"))
    cluster.create(_facts_map(one={"nodes": {"a": {"heat": 70}}}, notes="# not facts"))
    async with running_scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: _heat(app) == 70)
        cluster.create(pod_manifest("p", image="app"))
        await eventually(lambda: "1 node(s) were hot" in _message(cluster))
        # Broken: what was said stays.
        cluster.update("configmaps", _facts_map(one="{"))
        cluster.create(pod_manifest("q", image="app"))
        await eventually(lambda: "1 node(s) were hot" in _message(cluster, "q"))
        cluster.update("configmaps", _facts_map(one={"nodes": {"a": {"heat": 30}}}))
        await eventually(lambda: node_of(cluster, "p") == node_of(cluster, "q") == "a")
        cluster.delete("configmaps", "heat", NAMESPACE)
        await eventually(lambda: _heat(app) is None)


async def test_a_broken_key_of_a_config_map_keeps_its_last_values(cluster: DevCluster) -> None:
    """The facts of a key that one writer broke were gone when another key was good."""
    source = f"{{configMap: {{namespace: {NAMESPACE}, name: heat}}}}"
    cluster.create(config_map(_files(COOL, source)), _node("a"))
    good = {"cluster": {"price": 1}}
    cluster.create(_facts_map(one={"nodes": {"a": {"heat": 70}}}, two=good))
    async with running_scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: _heat(app) == 70)
        cluster.update("configmaps", _facts_map(one="{", two={"cluster": {"price": 2}}))
        await eventually(lambda: app.cache.snapshot().cluster_facts["price"].value == 2)
        assert _heat(app) == 70
        cluster.update("configmaps", _facts_map(one={"nodes": {"a": {"heat": 60}}}, three="{"))
        await eventually(lambda: _heat(app) == 60)
        cluster.update("configmaps", _facts_map(three="{"))
        await eventually(lambda: _heat(app) is None)


@pytest.mark.parametrize(
    ("key", "want"),
    [
        pytest.param("", "want a key that ends with `.json`, got `one.jsn`, `two.yaml`", id="any"),
        pytest.param("one.json", "want the key `one.json`, got `one.jsn`, `two.yaml`", id="named"),
    ],
)
async def test_a_config_map_without_its_key_is_reported(
    cluster: DevCluster, key: str, want: str
) -> None:
    """There were no facts, in silence."""
    data = {"one.jsn": "{}", "two.yaml": "{}"}
    cluster.create({**_facts_map(), "data": data})
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        source = ConfigMapSource(ConfigMapFacts(NAMESPACE, "heat", key), client, SystemClock())
        with structlog.testing.capture_logs() as logs:
            running = asyncio.ensure_future(source.run(lambda _: None))
            await eventually(lambda: source.failures == 1)
            cluster.update("configmaps", {**_facts_map(), "data": {"one.json": "{}"}})
            await eventually(lambda: "Source of facts has recovered" in [x["event"] for x in logs])
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert [x["reason"] for x in logs if x["event"] == "Malformed facts"] == [want]


@pytest.mark.parametrize(
    ("resource", "source"),
    [
        pytest.param("configmaps", "configMap: {namespace: default, name: heat}", id="ConfigMap"),
        pytest.param("pods", "podDemand: {}", id="pods that are learned from"),
    ],
)
async def test_a_source_that_may_not_be_watched_is_counted(
    cluster: DevCluster, resource: str, source: str
) -> None:
    """Without the right to it no fact was known, and what counts failures said that all is well."""
    cluster.create(config_map(_files(COOL, f"{{{source}}}")), _node("a"))
    async with running_scheduler(cluster, from_config_map=True) as app:
        cluster.faults.fail(403, verb="list", resource=resource, times=None)

        def is_counted() -> bool:
            cluster.expire_watches(resource)  # again: a source may have begun to watch since
            return sum(app.watching.facts.failures().values()) >= 2

        await eventually(is_counted, what="failures")


async def test_nothing_is_decided_before_the_sources_have_reported(cluster: DevCluster) -> None:
    """A scheduler that started decided about the first pods as if no fact were known."""
    source = "{configMap: {namespace: default, name: heat}}"
    cluster.create(config_map(_files(COOL, source)), _node("a"))
    facts = _facts_map(one={"nodes": {"a": {"heat": 30}}})
    cluster.create({**facts, "metadata": {"name": "heat", "namespace": "default"}})
    cluster.create(pod_manifest("p", image="app"))
    hold = cluster.faults.hang(verb="list", resource="configmaps", namespace="default")
    async with running_scheduler(cluster, from_config_map=True, wait=False) as app:
        await app.watching.synced.wait()
        await hold.wait_hit()
        assert not app.leadership.leading.is_set()
        hold.release()
        await eventually(lambda: node_of(cluster, "p") == "a")
        assert not events(cluster, "FailedScheduling")


async def test_a_config_map_that_is_not_there_delays_no_start(cluster: DevCluster) -> None:
    source = f"{{configMap: {{namespace: {NAMESPACE}, name: heat}}}}"
    cluster.create(config_map(_files(COOL, source)), _node("a"))
    async with running_scheduler(cluster, from_config_map=True, wait=False) as app:
        await app.leadership.leading.wait()
        assert list(app.watching.facts.report_counts.values()) == [1]


def _heat(app: App) -> Any:
    fact = app.cache.facts_of_node("a").own.get("heat")
    return None if fact is None else fact.value


# --- ages ------------------------------------------------------------------------------------


async def test_a_fact_grows_old_while_a_policy_looks_at_ages(cluster: DevCluster) -> None:
    source = f"{{configMap: {{namespace: {NAMESPACE}, name: heat}}}}"
    cluster.create(config_map(_files(FRESH, source)))
    cluster.create(_node("a"))
    cluster.create(_facts_map(one={"nodes": {"a": {"heat": {"value": 1, "age_seconds": 0}}}}))
    async with running_scheduler(cluster, from_config_map=True) as app:
        await eventually(lambda: _heat(app) == 1)
        cluster.create(pod_manifest("early", image="app"))
        await eventually(lambda: node_of(cluster, "early") == "a")
        await eventually(lambda: (app.cache.facts_of_node("a").own["heat"].age_seconds or 0) > 4)
        cluster.create(pod_manifest("p", image="app"))
        await eventually(lambda: "1 node(s) were not measured lately" in _message(cluster))


CALM = '''"""Keeps off nodes of which trouble was told lately. Hooks: filter."""

def filter(pod, node):
    heat = node.facts["heat"]
    return None if heat == None or heat.age_seconds > 1 else "node(s) had trouble lately"
'''
DROPPED = '''"""Keeps off nodes of which trouble is known. Hooks: filter."""

def filter(pod, node):
    return "node(s) had trouble" if node.facts["heat"] != None else None
'''


@pytest.mark.parametrize(
    ("policy", "limit"),
    [pytest.param(CALM, "", id="read"), pytest.param(DROPPED, "maxAge: 1s", id="dropped")],
)
async def test_a_rejected_pod_is_tried_again_when_a_fact_is_too_old(
    cluster: DevCluster, policy: str, limit: str
) -> None:
    """The age that a policy read was the one value whose change woke nobody, for five minutes."""
    source = f"{{configMap: {{namespace: {NAMESPACE}, name: heat}}}}"
    files = _files(policy, source)
    files["runtime.yaml"] += f"  {limit}\n" if limit else ""
    cluster.create(config_map(files), _node("a"))
    async with running_scheduler(cluster, from_config_map=True) as app:
        # A moment that is still to come counts as now: there is time to reject the pod.
        soon = {"value": 1, "time": time.time() + 1}
        cluster.create(_facts_map(one={"nodes": {"a": {"heat": soon}}}))
        await eventually(lambda: _heat(app) == 1)
        cluster.create(pod_manifest("p", image="app"))
        await eventually(lambda: "1 node(s) had trouble" in _message(cluster))
        await eventually(lambda: node_of(cluster, "p") == "a")


# --- files -----------------------------------------------------------------------------------


class _Reports:
    def __init__(self) -> None:
        self.last: Mapping[Subject, Readings] | None = None

    def __call__(self, readings: Mapping[Subject, Readings]) -> None:
        self.last = readings

    def price(self) -> Any:
        return None if not self.last else self.last[CLUSTER]["price"].value


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[tuple[Path, _Reports]]:
    path, reported = tmp_path / "inner" / "facts.json", _Reports()
    source = FileSource(FileFacts(str(path)), SystemClock(), poll_seconds=0.05)
    running = asyncio.ensure_future(source.run(reported))
    yield path, reported
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _put(path: Path, text: str, at: float = 100.0) -> None:
    path.parent.mkdir(exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(text)
    os.utime(scratch, (at, at))
    scratch.replace(path)


async def test_a_file_is_followed_from_before_it_is_there(file: tuple[Path, _Reports]) -> None:
    path, reported = file
    await eventually(lambda: reported.last == {}, what="nothing")
    _put(path, '{"cluster": {"price": 1}}')
    await eventually(lambda: reported.price() == 1)
    assert reported.last == {CLUSTER: {"price": Reading(1, "1", 100.0)}}
    _put(path, '{"cluster": {"price": 2}}', at=200.0)
    await eventually(lambda: reported.price() == 2)
    _put(path, "broken", at=300.0)
    _put(path, '{"cluster": {"price": 3}}', at=400.0)
    await eventually(lambda: reported.price() == 3)
    path.unlink()
    await eventually(lambda: reported.last == {}, what="nothing")


async def test_a_broken_file_keeps_its_last_values(file: tuple[Path, _Reports]) -> None:
    path, reported = file
    _put(path, '{"cluster": {"price": 1}}')
    await eventually(lambda: reported.price() == 1)
    _put(path, "{", at=200.0)
    _put(path.with_name("other.json"), "{}", at=300.0)
    _put(path, '{"cluster": {"price": 1, "more": 1}}', at=400.0)
    await eventually(lambda: reported.last is not None and "more" in reported.last[CLUSTER])


async def test_a_file_that_becomes_readable_is_read_and_trouble_is_reported_once(
    file: tuple[Path, _Reports], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp stays the same where only its permissions change, and it was never read again."""
    path, reported = file
    refused = 0

    def refuse(given: Path) -> tuple[bytes, float]:
        nonlocal refused
        refused += 1
        raise PermissionError(f"{given}: not for you")

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(sources, "_read_file", refuse)
        _put(path, '{"cluster": {"price": 1}}')
        await eventually(lambda: refused >= 3)
    assert [line["event"] for line in logs] == ["Cannot read facts"]
    await eventually(lambda: reported.price() == 1)


async def test_a_named_pipe_is_refused_and_a_file_in_its_place_is_read(
    tmp_path: Path,
) -> None:
    """Reading it waited for a writer, for ever, in a thread that kept the process from ending."""
    path, reported = tmp_path / "facts.json", _Reports()
    os.mkfifo(path)
    source = FileSource(FileFacts(str(path)), SystemClock(), poll_seconds=0.05)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.ensure_future(source.run(reported))
        try:
            await eventually(lambda: source.failures, what="a refusal")
            _put(path, '{"cluster": {"price": 1}}')
            await eventually(lambda: reported.price() == 1)
        finally:
            # A writer that comes and goes lets go of who waits.
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("Cannot read facts", "want a regular file, got a named pipe"),
        ("Source of facts has recovered", None),
    ]


class _Reading:
    """Reads documents, and notes which were read in the thread of the loop; the first one waits."""

    def __init__(self) -> None:
        self.on_loop: list[bool] = []
        self.may_end = threading.Event()

    def __call__(self, text: str | bytes, **more: Any) -> Document:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        if not self.on_loop[-1]:
            self.may_end.wait(10)
        return read_document(text, **more)


def _large(price: int) -> str:
    return json.dumps({"cluster": {"price": price}, "nodes": {"a": {"text": "x" * 100_000}}})


async def test_a_large_file_is_read_in_a_thread(
    file: tuple[Path, _Reports], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 8 MB held up every decision, binding and renewal of the lease for seconds."""
    path, reported = file
    reading = _Reading()
    monkeypatch.setattr(sources, "read_document", reading)
    _put(path, _large(1))
    await eventually(lambda: reading.on_loop)
    _put(path, _large(2), at=200.0)
    reading.may_end.set()
    await eventually(lambda: reported.price() == 2)
    assert not any(reading.on_loop)


async def test_large_documents_of_a_config_map_are_read_in_a_thread_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class _Informer:
        counts = WatchCounts()

        def __class_getitem__(cls, _: Any) -> Any:
            return cls

        def __init__(self, *given: Any, **more: Any) -> None:
            self.handlers = given[3]
            made.append(self)

        async def run(self) -> None:
            await asyncio.Event().wait()

    def holding(text: str) -> ConfigMap:
        return decode(ConfigMap, json.dumps({"data": {"f.json": text}}).encode())

    reading, reported, prices = _Reading(), _Reports(), list[Any]()

    def record(readings: Mapping[Subject, Readings]) -> None:
        reported(readings)
        prices.append(reported.price())

    monkeypatch.setattr(sources, "read_document", reading)
    monkeypatch.setattr(sources, "Informer", _Informer)
    source = ConfigMapSource(ConfigMapFacts("ns", "facts"), cast(Any, None), SystemClock())
    running = asyncio.ensure_future(source.run(record))
    try:
        await eventually(lambda: made)
        handlers = made[0].handlers
        handlers.on_add(holding(_large(1)))
        await eventually(lambda: reading.on_loop)
        assert source.is_reading
        # It is gone and comes again, and is changed, all while it is read.
        handlers.on_delete(None)
        handlers.on_add(holding(_large(2)))
        handlers.on_update(None, holding('{"cluster": {"price": 3}}'))
        reading.may_end.set()
        await eventually(lambda: reported.price() == 3)
        assert prices == [1, None, 3]
        assert reading.on_loop == [False, True]
        assert not source.is_reading
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# --- what is learned -------------------------------------------------------------------------

KIND = '''"""Goes where such pods fared well. Hooks: score. Reads: node.pod_facts, pod.type."""

def score(pod, node):
    reward = node.pod_facts["reward"].get(pod.type)
    return 100 if reward == None else int(100 * reward.value)
'''


async def test_outcomes_are_learned_kept_and_known_after_a_restart(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.io.facts.learned._SAVE_SECONDS", 0.2)
    source = "{podOutcomes: {weight: 1.0}}"
    cluster.create(config_map(_files(KIND, source)))
    for name in ("a", "b"):
        cluster.create(_node(name))
    cluster.create(pod_manifest("bad", image="app", labels={"app": "web"}, node="a"))
    learned_store = {
        "learned_store": lambda client: LearnedConfigMap(client, NAMESPACE, "policies-facts")
    }
    async with running_scheduler(cluster, from_config_map=True, **learned_store) as app:
        pod = cluster.get("pods", "bad", "default")
        assert pod is not None
        cluster.update("pods", {**pod, "status": {"phase": "Failed"}}, subresource="status")
        await eventually(lambda: _reward(app) == 0.0, what="the outcome")
        cluster.create(pod_manifest("next", image="app", labels={"app": "web"}))
        await eventually(lambda: node_of(cluster, "next") == "b")
        await eventually(lambda: cluster.get("configmaps", "policies-facts", NAMESPACE), seconds=30)
    cluster.delete("pods", "bad", "default")
    async with running_scheduler(cluster, from_config_map=True, **learned_store) as app:
        await eventually(lambda: _reward(app) == 0.0, what="what was learned before")


def _reward(app: App) -> Any:
    of_type = app.cache.facts_of_node("a").of_pods.get("reward", {}).get("web")
    return None if of_type is None else of_type.value


async def test_what_is_learned_is_kept_in_files_too(tmp_path: Path) -> None:
    learned_store = LearnedFiles(tmp_path / "state")
    assert await learned_store.load("x") is None
    await learned_store.save("x", b"1")
    await learned_store.save("x", b"2")
    assert await learned_store.load("x") == b"2"
    assert len(list((tmp_path / "state").iterdir())) == 1


class _Unreadable(NoLearnedStore):
    tries = 0

    async def load(self, name: str) -> bytes | None:
        self.tries += 1
        if self.tries < 4:
            raise LearnedStoreError("no such luck")
        return None


async def test_what_cannot_be_read_is_reported_once(
    cluster: DevCluster,
) -> None:
    learned_store, reported = _Unreadable(), _Reports()
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        source = LearnedSource(
            OutcomeLearner(PodOutcomes(), ()),
            decode_watched_pod,
            client=client,
            store=learned_store,
            may_save=lambda: True,
            clock=SystemClock(),
            states=SavedStates(SystemClock(), sleep=lambda _: asyncio.sleep(0.0)),
        )
        with structlog.testing.capture_logs() as logs:
            running = asyncio.ensure_future(source.run(reported))
            await eventually(lambda: reported.last == {}, what="nothing")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert [line["event"] for line in logs].count("Cannot read what was learned") == 1
    assert source.failures == 3


def test_a_virtual_clock_makes_ages_of_its_own() -> None:
    clock = VirtualClock(start=100.0)
    reading = Reading(1, "1", clock.now())
    clock.advance(12.0)
    assert reading.fact(clock.now(), 5.0).age_seconds == 10
