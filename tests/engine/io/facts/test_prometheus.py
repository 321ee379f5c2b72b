"""Facts from a real Prometheus that scrapes a real target, and from servers that misbehave."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from engine.io.facts.prometheus import PrometheusSource, QueryError, read_answer, why_nothing
from engine.io.facts.readings import CLUSTER, Document, Reading, Readings, Subject
from engine.policy.fact_config import FactQuery, PrometheusFacts
from tests.engine.io.facts.prometheus_server import free_port, prometheus
from tests.waiting import eventually

Told = Mapping[Subject, Readings]
SECOND = timedelta(seconds=1)


class Listener:
    """Keeps what a source told last."""

    def __init__(self) -> None:
        self.last: Told = {}
        self.count = 0

    def __call__(self, readings: Told) -> None:
        self.last = readings
        self.count += 1

    def value(self, subject: Subject, fact: str = "load") -> Any:
        reading = self.last.get(subject, {}).get(fact)
        return None if reading is None else reading.value


@pytest.mark.slow("starts Prometheus")
async def test_series_become_facts_and_follow_the_target(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    load = Gauge("load", "Load.", ["node"], registry=registry)
    heat = Gauge("heat", "Heat.", registry=registry)
    load.labels("a").set(0.25)
    load.labels("b").set(float("nan"))
    heat.set(60)
    port = free_port()
    server, thread = start_http_server(port, "127.0.0.1", registry)
    plain = PrometheusFacts(
        "",
        interval=SECOND,
        timeout=SECOND * 5,
        queries=(
            FactQuery("load", "load", scale=100.0),
            FactQuery("heat", "heat", node_label="instance", strip_port=True),
            FactQuery("nodes", "count(load)", about="cluster"),
            FactQuery("broken", "sum(", about="cluster"),
        ),
    )
    try:
        with prometheus(tmp_path, f"127.0.0.1:{port}") as real:
            source = PrometheusSource(replace(plain, url=real.url))
            reported = Listener()
            running = asyncio.ensure_future(source.run(reported))
            try:
                await eventually(lambda: reported.value(("node", "a")) == 25.0, what="load of a")
                b = reported.last["node", "b"]["load"]
                assert (b.value, b.text) == (None, "NaN")
                assert reported.value(("node", "127.0.0.1"), "heat") == 60
                assert reported.value(CLUSTER, "nodes") == 2
                assert reported.value(CLUSTER, "broken") is None
                assert source.failures > 0
                load.labels("a").set(0.5)
                await eventually(lambda: reported.value(("node", "a")) == 50.0, what="a new value")
                # Without the server the last answer stays, with its time.
                await asyncio.to_thread(real.stop)
                count, before = reported.count, reported.last["node", "a"]["load"]
                await eventually(lambda: reported.count > count + 1, what="another round")
                assert reported.last["node", "a"]["load"].value == before.value
                stopped_at = reported.last["node", "a"]["load"].measured_at
                await eventually(lambda: reported.count > count + 2, what="another round")
                assert reported.last["node", "a"]["load"].measured_at == stopped_at
                # It comes back.
                load.labels("a").set(0.75)
                await asyncio.to_thread(real.start)
                await eventually(
                    lambda: reported.value(("node", "a")) == 75.0, what="the new server"
                )
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- answers ---------------------------------------------------------------------------------


def _answer(*series: Any, kind: str = "vector") -> bytes:
    data = {"resultType": kind, "result": list(series)}
    return msgspec.json.encode({"status": "success", "data": data})


def _series(value: str = "1", **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [100.5, value]}


@pytest.mark.parametrize(
    ("query", "labels", "want"),
    [
        pytest.param({}, {"node": "a"}, ("node", "a"), id="a node"),
        pytest.param({}, {"nodename": "a"}, None, id="without its label"),
        pytest.param({}, {"node": ""}, None, id="with an empty label"),
        pytest.param(
            {"node_label": "instance", "strip_port": True},
            {"instance": "10.0.0.1:9100"},
            ("node", "10.0.0.1"),
            id="an address",
        ),
        pytest.param(
            {"node_label": "instance", "strip_port": True},
            {"instance": "[fd00::1]:9100"},
            ("node", "fd00::1"),
            id="a v6 address",
        ),
        pytest.param(
            {"node_label": "instance", "strip_port": True},
            {"instance": "a"},
            ("node", "a"),
            id="no port to strip",
        ),
        pytest.param({"about": "pod"}, {"namespace": "n", "pod": "p"}, ("pod", "n/p"), id="a pod"),
        pytest.param({"about": "pod"}, {"namespace": "n"}, None, id="a pod without a name"),
        pytest.param({"about": "type"}, {"type": "web"}, ("type", "web"), id="a type"),
        pytest.param(
            {"about": "pair", "type_label": "app"},
            {"app": "web", "node": "a"},
            ("pair", "web", "a"),
            id="a pair",
        ),
        pytest.param({"about": "pair"}, {"type": "web"}, None, id="half a pair"),
        pytest.param({"about": "cluster"}, {}, CLUSTER, id="the cluster"),
    ],
)
def test_labels_say_what_a_series_is_about(
    query: dict[str, Any], labels: dict[str, str], want: Subject | None
) -> None:
    got = read_answer(FactQuery("load", "q", **query), _answer(_series(**labels)))
    assert got == Document({} if want is None else {want: {"load": Reading(1, "1", 100.5)}})


def test_a_scalar_is_about_the_cluster() -> None:
    body = msgspec.json.encode(
        {"status": "success", "data": {"resultType": "scalar", "result": [7, "2.5"]}}
    )
    got = read_answer(FactQuery("x", "q", about="cluster", scale=2.0), body)
    assert got == Document({CLUSTER: {"x": Reading(5.0, "2.5", 7.0)}})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"<html>", "not JSON", id="no JSON"),
        pytest.param(b"\xff\xfe", "not JSON", id="no text"),
        pytest.param(b"[]", "nothing that is understood", id="a list"),
        pytest.param(b"[" * 5000, "not JSON", id="nested without end"),
        pytest.param(b'{"status":"error","error":"parse error"}', "parse error", id="an error"),
        pytest.param(_answer(kind="matrix"), "want an instant vector", id="a matrix"),
        pytest.param(b'{"status":"success"}', "want an instant vector", id="no data"),
    ],
)
def test_what_is_no_answer_is_an_error(body: bytes, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        read_answer(FactQuery("x", "q"), body)


@pytest.mark.parametrize(
    "series",
    [None, {}, {"metric": {"node": "a"}}, {"metric": 1, "value": [1, "1"]}, {"value": "x"}],
)
def test_a_malformed_series_is_left_out(series: Any) -> None:
    got = read_answer(FactQuery("x", "q"), _answer(series, _series(node="b")))
    assert list(got.readings) == [("node", "b")]
    assert got.problems == []


@pytest.mark.parametrize(
    ("about", "labels", "want"),
    [
        (
            "node",
            {"instance": "a:1", "job": "n"},
            "`node`, which names the subject, got `instance`, `job`",
        ),
        ("node", {}, "`node`, which names the subject, got none"),
        ("pair", {"node": "a"}, "`type` and `node`, which names the subject, got `node`"),
        ("pod", {"pod": "a"}, "`namespace` and `pod`, which names the subject, got `pod`"),
    ],
)
def test_an_answer_about_nothing_is_reported(about: str, labels: dict[str, str], want: str) -> None:
    """Without a `nodeLabel`, a query had hundreds of series and gave no fact, in silence."""
    query = FactQuery("x", "q", about=about)
    body = _answer(_series("1", **labels))
    assert read_answer(query, body).readings == {}
    assert why_nothing(query, body) == f"none of 1 series has the label {want}"


def test_an_answer_of_histograms_is_reported() -> None:
    series = {"metric": {"node": "a"}, "histogram": [1, {}]}
    got = why_nothing(FactQuery("x", "q"), _answer(series, series))
    assert got == "none of 2 series has a sample that is a number"


def test_an_answer_without_series_is_an_answer() -> None:
    assert why_nothing(FactQuery("x", "q"), _answer()) == ""


def test_a_sample_of_no_time_has_none() -> None:
    series = {"metric": {"node": "a"}, "value": [10**30, "1"]}
    body = _answer(series).replace(b"1" + b"0" * 30, b"9" * 400)
    got = read_answer(FactQuery("x", "q"), body)
    assert got == Document({("node", "a"): {"x": Reading(1, "1")}})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_several_series_about_the_same_the_labels_decide_and_it_is_reported(
    order: tuple[int, ...],
) -> None:
    """The one that came last counted, without a word, and servers give them in any order."""
    given = [
        _series("1", node="a", cpu="0"),
        _series("2", node="a", cpu="1"),
        _series("3", node="b", cpu="1"),
    ]
    got = read_answer(FactQuery("x", "q"), _answer(*(given[place] for place in order)))
    assert got.readings == {
        ("node", "a"): {"x": Reading(1, "1", 100.5)},
        ("node", "b"): {"x": Reading(3, "3", 100.5)},
    }
    assert got.problems == [
        "several series are about `node/a`, and `{cpu='0', node='a'}` counts, whose labels sort "
        "first: aggregate them in the query"
    ]


# --- servers that misbehave ------------------------------------------------------------------


async def _serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    app = web.Application()
    app.router.add_post("/api/v1/query", handler)
    app.router.add_get("/elsewhere", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, runner.addresses[0][1]


@pytest.mark.parametrize("fault", ["hang", "500", "redirect", "garbage", "cut"])
async def test_a_query_that_fails_keeps_its_last_answer_and_is_repeated(fault: str) -> None:
    asked: list[str] = []
    state = {"fault": ""}
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if state["fault"] == "hang":
            await over.wait()
        if state["fault"] == "500":
            return web.Response(status=500)
        if state["fault"] == "redirect":
            raise web.HTTPTemporaryRedirect("/elsewhere")
        if state["fault"] == "garbage":
            return web.Response(body=b"\x00\xff")
        if state["fault"] == "cut" and request.transport is not None:
            request.transport.abort()
        return web.Response(body=_answer(_series(str(len(asked)), node="a")))

    runner, port = await _serve(answer)
    config = PrometheusFacts(
        f"http://127.0.0.1:{port}",
        interval=SECOND / 20,
        timeout=SECOND / 5,
        queries=(FactQuery("load", "q"),),
    )
    source, reported = PrometheusSource(config), Listener()
    running = asyncio.ensure_future(source.run(reported))
    try:
        await eventually(lambda: reported.value(("node", "a")) is not None)
        state["fault"] = fault
        await eventually(lambda: source.failures >= 2, what="failures")
        assert reported.value(("node", "a")) is not None
        assert "/elsewhere" not in asked
        state["fault"] = ""
        newest = len(asked)
        await eventually(lambda: (reported.value(("node", "a")) or 0) > newest, what="a new answer")
    finally:
        over.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()


async def test_a_query_that_hangs_delays_no_start() -> None:
    """The queries went one after the other, each behind the time-out of those before it."""
    asked = 0
    is_hanging, over = False, asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if is_hanging and (await request.post())["query"] == "slow":
            await over.wait()
        return web.Response(body=_answer(_series(str(asked), node="a")))

    runner, port = await _serve(answer)
    config = PrometheusFacts(
        f"http://127.0.0.1:{port}",
        interval=SECOND / 20,
        timeout=SECOND * 60,
        queries=(FactQuery("slow", "slow"), FactQuery("load", "load")),
    )
    source, reported = PrometheusSource(config, late_seconds=0.05), Listener()
    running = asyncio.ensure_future(source.run(reported))
    try:
        await eventually(lambda: reported.value(("node", "a")) is not None)
        assert reported.value(("node", "a"), "slow") is not None, "said first is said by all"
        is_hanging, newest = True, asked
        await eventually(lambda: reported.value(("node", "a")) > newest, what="what does not hang")
        assert source.failures == 0
    finally:
        over.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()


async def test_a_source_reports_an_answer_about_nothing() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=_answer(_series("1", instance="a:9100")))

    runner, port = await _serve(answer)
    config = PrometheusFacts(f"http://127.0.0.1:{port}", queries=(FactQuery("load", "q"),))
    source = PrometheusSource(config)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.ensure_future(source.run(Listener()))
        try:
            await eventually(lambda: bool(logs))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await runner.cleanup()
    assert [(line["event"], line["fact"]) for line in logs] == [("Facts about nothing", "load")]
    assert source.failures == 1


async def test_trouble_with_a_query_is_reported_when_it_changes() -> None:
    state = {"status": 500, "asked": 0}

    async def answer(request: web.Request) -> web.StreamResponse:
        state["asked"] += 1
        twice = [_series("1", node="a", cpu=str(cpu)) for cpu in range(2)]
        return web.Response(status=state["status"], body=_answer(*twice))

    runner, port = await _serve(answer)
    config = PrometheusFacts(
        f"http://127.0.0.1:{port}", interval=SECOND / 50, queries=(FactQuery("load", "q"),)
    )
    source = PrometheusSource(config)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.ensure_future(source.run(Listener()))
        try:
            for status in (500, 404, 200):
                state["status"] = status
                enough = state["asked"] + 3
                await eventually(lambda enough=enough: state["asked"] > enough)  # type: ignore[misc]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await runner.cleanup()
    assert [(line["event"], line["fact"], line["reason"][:22]) for line in logs] == [
        ("Cannot query facts", "load", "got HTTP status 500"),
        ("Cannot query facts", "load", "got HTTP status 404"),
        ("Ambiguous facts", "load", "several series are abo"),
    ]
    assert source.failures >= 6
