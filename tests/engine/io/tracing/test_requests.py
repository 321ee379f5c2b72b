"""Requests and deferred writes are spans of what they are for, and the server learns of it."""

import asyncio
from collections.abc import Callable

import pytest

from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ApiError
from engine.io.kube.resources import EVENTS, PERSISTENT_VOLUMES, PODS
from engine.lib.clock import VirtualClock
from engine.telemetry import spans
from engine.telemetry.spans import Span, request_span, step, within
from tests.engine.io.kube.faulty_server import FaultyServer, answer, drop, hang, refuse
from tests.engine.io.tracing.kept import KeptTrace
from tests.waiting import eventually

Client = Callable[[FaultyServer], ApiClient]


def direct(server: FaultyServer) -> ApiClient:
    return server.client()


def proxied(server: FaultyServer) -> ApiClient:
    return ApiClient(Endpoint(server="http://api.invalid:1234", proxy=server.url))


@pytest.fixture
def trace() -> KeptTrace:
    return KeptTrace()


@pytest.fixture
def root(trace: KeptTrace) -> Span:
    return Span(trace, "root", 0)


EITHER_WAY = pytest.mark.parametrize("client_of", [direct, proxied])


@EITHER_WAY
async def test_a_request_is_a_span_and_brings_its_context(
    client_of: Client, trace: KeptTrace, root: Span
) -> None:
    async with FaultyServer(answer(201), answer()) as server, client_of(server) as client:
        with within(root):
            await client.create(EVENTS, b"{}", "default")
        await client.get(PODS, "p", "default")
    (span,) = trace.spans
    assert (span.name, span.parent_id, span.is_request) == ("POST events", root.span_id, True)
    assert span.attributes["http.response.status_code"] == 201
    want = f"00-{0xABC:032x}-{span.span_id:016x}-01"
    assert [one.headers.get("traceparent") for one in server.requests] == [want, None]


@EITHER_WAY
async def test_a_request_that_fails_is_an_error(
    client_of: Client, trace: KeptTrace, root: Span
) -> None:
    async with (
        FaultyServer(refuse(409, "Conflict", "changed"), drop()) as server,
        client_of(server) as client,
    ):
        for _ in range(2):
            with within(root), pytest.raises(ApiError):
                await client.patch(PODS, "p", b"{}", "default", subresource="status")
    refused, lost = trace.spans
    assert (refused.name, lost.name) == ("PATCH pods/status", "PATCH pods/status")
    assert refused.attributes["http.response.status_code"] == 409
    assert (refused.error_type, lost.error_type) == ("Conflict", "ConnectionLost")
    assert "changed" in refused.error
    assert "http.response.status_code" not in lost.attributes


@EITHER_WAY
async def test_a_request_that_is_given_up_ends_its_span(
    client_of: Client, trace: KeptTrace, root: Span
) -> None:
    async with FaultyServer(hang()) as server, client_of(server) as client:
        with within(root):
            asking = asyncio.ensure_future(client.get(PERSISTENT_VOLUMES, "v"))
        await server.was_asked.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await eventually(lambda: trace.spans)
    assert trace.spans[0].name == "GET persistentvolumes"
    assert trace.spans[0].error_type == "CancelledError"


async def test_each_try_with_another_credential_is_a_span(trace: KeptTrace, root: Span) -> None:
    async with FaultyServer(refuse(401, "Unauthorized")) as server, server.client() as client:
        with within(root), pytest.raises(ApiError):
            await client.get(PODS, "p", "default")
    assert [span.attributes["http.response.status_code"] for span in trace.spans] == [401]


async def test_a_binding_without_a_task_is_a_span(trace: KeptTrace, root: Span) -> None:
    async with FaultyServer(answer(201)) as server, server.client() as client:
        with within(root):
            sent = client.bind_now("default", "p", "uid", "node")
        assert sent is not None
        await sent
        await eventually(lambda: trace.spans)
    assert [span.name for span in trace.spans] == ["POST pods/binding"]
    assert server.requests[0].headers["traceparent"] == trace.spans[0].traceparent


async def test_a_deferred_write_belongs_to_the_span_in_which_it_was_queued(
    trace: KeptTrace, root: Span
) -> None:
    writer = DeferredWriter(clock=VirtualClock(), is_busy=lambda: False)
    written: list[str] = []

    async def write() -> None:
        span = spans.current.get()
        written.append("" if span is None else span.name)

    with within(root):
        writer.submit(write)
    writer.submit(write)
    running = asyncio.ensure_future(writer.run())
    await eventually(lambda: len(written) == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert written == ["root", ""]


def test_a_step_is_a_span_with_its_error(trace: KeptTrace) -> None:
    root = Span(trace, "root", 0)
    with step("not traced"):
        pass
    with within(root), pytest.raises(ValueError, match="no"), step("fails"), step("inner"):
        raise ValueError("no")
    inner, fails = trace.spans
    assert (inner.name, inner.parent_id) == ("inner", fails.span_id)
    assert (fails.name, fails.error, fails.error_type) == ("fails", "no", "ValueError")
    assert spans.current.get() is None


@pytest.mark.parametrize(
    ("target", "want"),
    [
        ("/api/v1/nodes", "GET nodes"),
        ("/api/v1/nodes/n", "GET nodes"),
        ("/api/v1/namespaces/default/pods/p/status?x=y", "GET pods/status"),
        ("/api/v1/namespaces/default/pods", "GET pods"),
        ("/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c", "GET resourceclaims"),
        ("/apis/resource.k8s.io/v1/deviceclasses/c", "GET deviceclasses"),
        ("/api/v1/namespaces/default", "GET namespaces"),
        ("/version", "GET "),
    ],
)
def test_the_name_of_a_request_is_without_names(trace: KeptTrace, target: str, want: str) -> None:
    with within(Span(trace, "root", 0)):
        span = request_span("GET", target)
    assert span is not None
    assert span.name == want
