"""Traces of a whole scheduler on an embedded API server, as a collector receives them."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from devkit.cluster import DevCluster, make_pod
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.tracing.export import SpanSender
from engine.io.tracing.pod_traces import Tracing
from engine.io.tracing.sampling import ANNOTATION, Sampler
from engine.lib.clock import SystemClock
from tests.engine.app.harness import edit, namespace, placements, scheduler
from tests.engine.app.test_devices import make_claim, node
from tests.engine.app.test_devices import manifest as claiming
from tests.engine.app.test_extenders import configuration, verbs
from tests.engine.core.scheduling.devices.builders import device_class, resource_slice
from tests.engine.io.tracing.receiver import Collector, Received, collecting
from tests.live import LiveCluster, pod
from tests.live import node as live_node
from tests.small_extender import SmallExtender, names_asked
from tests.waiting import eventually

pytestmark = pytest.mark.slow("runs a whole scheduler")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def tracing_to(collector: Collector, per_million: int = 1_000_000) -> Tracing:
    return Tracing(
        Sampler(per_million),
        SpanSender(collector.endpoint, {"service.version": "test"}),
        clock=SystemClock(),
        rng=random.Random(1),
    )


def parent_of(spans: dict[str, list[Received]], child: Received) -> str:
    """The name of the span that *child* is a part of."""
    names = {one.span_id: one.name for found in spans.values() for one in found}
    return names.get(child.parent_id, "")


async def scrape(app: App, accept: str) -> str:
    url = f"http://127.0.0.1:{app.surfaces.endpoints.local_port}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Accept": accept}) as answer,
    ):
        return await answer.text()


async def test_a_pod_is_traced_from_the_queue_to_its_binding(collector: Collector) -> None:
    async with DevCluster() as cluster:
        cluster.create(device_class())
        cluster.create(node("a"))
        make_claim(cluster, "c")
        tracing = tracing_to(collector)
        async with scheduler(cluster, tracing=tracing) as app:
            cluster.create(claiming("p", "c"))
            await eventually(lambda: app.kernel.queue.counts()["unschedulable"])
            # It waits for its turn to be reported before a device comes.
            await eventually(
                lambda: not len(app.reporting.writer) and not app.reporting.writer.in_flight
            )
            cluster.create(resource_slice("a", "gpu"))
            await eventually(lambda: placements(cluster) == {"p": "a"})
            await eventually(
                lambda: not len(app.reporting.writer) and not app.reporting.writer.in_flight
            )
    got = collector.of_pod("p")
    (root,) = got["schedule pod"]
    assert root.attributes["starsched.result"] == "scheduled"
    assert root.attributes["k8s.node.name"] == "a"
    assert root.resource["service.name"] == "starsched"
    first, *_, last = got["attempt"]
    assert first.attributes["starsched.result"] == "unschedulable"
    assert first.attributes["starsched.rejected_by"] == ["DynamicResources"]
    assert last.attributes["starsched.result"] == "scheduled"
    assert last.attributes["starsched.revision"]
    # What it was made of: each span within the right one, and within its time.
    where = {
        "queue": "schedule pod",
        "attempt": "schedule pod",
        "decision": "attempt",
        "sandbox": "decision",
        "binding cycle": "attempt",
        "PreBind DynamicResources": "binding cycle",
        "PATCH resourceclaims/status": "PreBind DynamicResources",
        "POST pods/binding": "binding cycle",
        "PATCH pods/status": "attempt",
        "POST events": "attempt",
    }
    for name, parent in where.items():
        assert parent_of(got, got[name][0]) == parent, name
    every = {one.span_id: one for found in got.values() for one in found}
    for one in every.values():
        assert one.start <= one.end
        if one.parent_id and one.name not in ("PATCH pods/status", "POST events"):
            outer = every[one.parent_id]
            assert outer.start <= one.start + 1000, one.name  # a microsecond for rounding
            assert one.end <= outer.end + 1000, one.name
    (binding,) = got["POST pods/binding"]
    assert binding.attributes["http.response.status_code"] == 201
    assert binding.attributes["url.path"] == "/api/v1/namespaces/default/pods/p/binding"
    outcomes = tracing.sink.outcomes
    assert outcomes["exported"] == len(collector.spans)
    assert sum(outcomes.values()) == outcomes["exported"]


async def test_exemplars_point_to_traces_where_the_scrape_asks_for_openmetrics(
    collector: Collector,
) -> None:
    async with DevCluster() as cluster:
        cluster.create(node("a"))
        async with scheduler(cluster, tracing=tracing_to(collector), local_port=0) as app:
            cluster.create(make_pod("p"))
            await eventually(lambda: placements(cluster))
            bound = {"result": "scheduled", "profile": "default-scheduler"}
            name = "scheduler_schedule_attempts_total"
            await eventually(lambda: app.env.registry.get_sample_value(name, bound))
            open_metrics = await scrape(app, "application/openmetrics-text")
            plain = await scrape(app, "text/plain")
    assert "trace_id" not in plain
    trace = collector.of_pod("p")["schedule pod"][0].trace_id
    found = {
        family.name: sample.exemplar.labels
        for family in text_string_to_metric_families(open_metrics)  # type: ignore[no-untyped-call]  # no stubs
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert {
        "scheduler_scheduling_attempt_duration_seconds",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "starsched_binding_duration_seconds",
    } <= found.keys()
    assert {labels["trace_id"] for labels in found.values()} == {trace}
    spans = {one.span_id for one in collector.spans}
    assert {labels["span_id"] for labels in found.values()} <= spans
    assert 'starsched_traces_total{cause="rate"} 1.0' in open_metrics


async def test_only_the_pods_that_are_sampled_are_traced(collector: Collector) -> None:
    context = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    async with DevCluster() as cluster:
        cluster.create(node("a"))
        async with scheduler(cluster, tracing=tracing_to(collector, 0)) as app:
            for name in ("plain", "asks", "lies"):
                made: dict[str, Any] = make_pod(name)
                if name != "plain":
                    value = context if name == "asks" else "00-\u0000-x"
                    made["metadata"]["annotations"] = {ANNOTATION: value}
                cluster.create(made)
            await eventually(lambda: len(placements(cluster)) == 3)
            assert app.env.tracing is not None
            assert app.env.tracing.causes == {
                "rate": 0,
                "parent": 1,
                "limited": 0,
                "invalid": 1,
                "full": 0,
            }
    assert {one.trace_id for one in collector.spans} == {f"{0xABC:032x}"}
    assert collector.of_pod("asks")["schedule pod"][0].parent_id == f"{0xDEF:016x}"


async def test_a_collector_that_is_away_holds_nothing_up() -> None:
    with collecting() as gone:
        pass
    async with DevCluster() as cluster:
        cluster.create(node("a"))
        tracing = tracing_to(gone)
        async with scheduler(cluster, tracing=tracing):
            for i in range(20):
                cluster.create(make_pod(f"p{i}"))
            await eventually(lambda: len(placements(cluster)) == 20)
            began = asyncio.get_running_loop().time()
        # The end of the block stops it.
        assert asyncio.get_running_loop().time() - began < 8.0
    outcomes = tracing.sink.outcomes
    assert outcomes["exported"] == 0
    assert outcomes["failed"] + outcomes["shutdown"] > 20 * 4


async def test_evictions_for_a_pod_are_in_its_trace(collector: Collector) -> None:
    async with DevCluster() as server, ApiClient(Endpoint(server=server.url)) as client:
        cluster = LiveCluster(client)
        await cluster.prepare()
        await cluster.create(live_node("n", cpu="2"), pod("low", on="n", cpu="2", priority="low"))
        async with scheduler(server, tracing=tracing_to(collector)):
            await cluster.create(pod("urgent", cpu="2", priority="high"))

            async def is_going() -> bool:
                return "deletionTimestamp" in (await cluster.pod("low"))["metadata"]

            await eventually(is_going)
            await cluster.end_pod("low")
            await eventually(lambda: placements(server).get("urgent") == "n")
    got = collector.of_pod("urgent")
    (preemption,) = got["preemption"]
    assert parent_of(got, preemption) == "attempt"
    (eviction,) = got["DELETE pods"]
    assert parent_of(got, eviction) == "preemption"
    assert eviction.attributes["url.path"].endswith("/pods/low")
    first = got["attempt"][0]
    assert first.attributes["starsched.nominated_node"] == "n"


async def test_what_extenders_are_asked_is_in_the_trace(collector: Collector) -> None:
    def all_of_them(body: dict[str, Any]) -> Any:
        return {"NodeNames": names_asked(body)}

    async with DevCluster() as cluster, SmallExtender(filter=all_of_them) as extender:
        cluster.create(namespace(), node("a"), node("b"))
        edit(cluster, configuration(verbs(extender, "filter")))
        async with scheduler(cluster, from_config_map=True, tracing=tracing_to(collector)):
            cluster.create(make_pod("p"))
            await eventually(lambda: placements(cluster))
    got = collector.of_pod("p")
    (asked,) = got["extender filter"]
    assert parent_of(got, asked) == "decision"
    assert asked.attributes == {"starsched.extender": extender.url}
    assert "extender prioritize" not in got
