"""Health endpoints answer as those of a kube component do."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from engine.io.endpoints.health import health_routes, metrics_route, ping
from engine.io.endpoints.routes import json_route
from engine.io.endpoints.server import EndpointServer, ReviewClients
from engine.lib.clock import SystemClock
from engine.telemetry.metrics import Metrics


class Readiness:
    def __init__(self) -> None:
        self.reason: str | None = "handlers are not fully synchronized"

    def __call__(self) -> str | None:
        return self.reason


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
async def url(readiness: Readiness) -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Metrics(registry).set_revision("abc", 1.0)
    server = EndpointServer(
        [
            *health_routes(
                healthz={"ping": ping},
                livez={"ping": ping},
                readyz={"ping": ping, "sched-handler-sync": readiness},
            ),
            metrics_route("/metrics", registry),
            json_route("/policies", lambda: {"active": {"revision": "abc"}}),
        ],
        secure=None,
        local_port=0,
        clients=ReviewClients(None, None),
        clock=SystemClock(),
        max_connections=3,
    )
    await server.start()
    yield f"http://127.0.0.1:{server.local_port}"
    await server.stop()


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_liveness_needs_only_a_living_process(url: str) -> None:
    assert await get(url + "/livez") == (200, "ok")
    assert await get(url + "/healthz") == (200, "ok")


async def test_readiness_waits_for_the_handlers(url: str, readiness: Readiness) -> None:
    status, text = await get(url + "/readyz")
    assert status == 500
    assert text == (
        "[+]ping ok\n"
        "[-]sched-handler-sync failed: handlers are not fully synchronized\n"
        "readyz check failed\n"
    )
    readiness.reason = None
    assert await get(url + "/readyz") == (200, "ok")


async def test_verbose_names_every_check(url: str, readiness: Readiness) -> None:
    readiness.reason = None
    _, text = await get(url + "/readyz?verbose")
    assert text == "[+]ping ok\n[+]sched-handler-sync ok\nreadyz check passed\n"


async def test_a_check_can_be_excluded_or_asked_alone(url: str) -> None:
    assert (await get(url + "/readyz?exclude=sched-handler-sync"))[0] == 200
    assert (await get(url + "/readyz/sched-handler-sync"))[0] == 500
    assert (await get(url + "/readyz/ping")) == (200, "ok")
    assert (await get(url + "/readyz/nonsense"))[0] == 404


async def test_metrics_come_in_both_formats(url: str) -> None:
    _, text = await get(url + "/metrics")
    assert 'starsched_policy_revision_info{revision="abc"} 1.0' in text
    _, open_text = await get(url + "/metrics", Accept="application/openmetrics-text")
    assert open_text.endswith("# EOF\n")


async def test_pages_are_plain_json(url: str) -> None:
    status, text = await get(url + "/policies")
    assert status == 200
    assert '"revision": "abc"' in text


async def test_many_silent_connections_are_closed(url: str) -> None:
    """Whoever reached the port could take all descriptors, and the API server with them."""
    host, _, port = url.removeprefix("http://").partition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
    slow = await asyncio.open_connection(host, int(port))
    slow[1].write(b"GET /healthz HTTP/1.1\r\nX: ")
    try:
        async with asyncio.timeout(10):
            for reader, _ in silent[:3]:
                assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in (*silent[3:], slow))
        assert await get(url + "/livez") == (200, "ok")
    finally:
        for _, writer in (*silent, slow):
            writer.close()
