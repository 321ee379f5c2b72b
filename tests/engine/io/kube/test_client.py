"""The client against a server that misbehaves on purpose."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from engine.io.kube.client import ApiClient, user_agent
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import (
    ApiError,
    ConnectionLost,
    Gone,
    KubeConfigError,
    ServerError,
    TimedOut,
    TooManyRequests,
)
from engine.io.kube.pool import PoolTiming
from engine.io.kube.resources import PODS
from tests.controlplane import ControlPlane
from tests.engine.io.kube.faulty_server import (
    FaultyServer,
    answer,
    drop,
    event,
    gone_event,
    half,
    hang,
    item,
    page,
    refuse,
    together,
    watch,
)
from tests.waiting import idle

_PAIR = (".crt", ".key")


def unused_url() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def lines_of(client: ApiClient, **options: float) -> list[bytes]:
    stream = client.stream(PODS, "1", **options)  # type: ignore[arg-type]  # seconds
    async with contextlib.aclosing(stream):
        return [line async for line in stream]


async def test_a_request_carries_agent_type_and_query() -> None:
    async with FaultyServer(answer(body=b"raw \xff bytes")) as server, server.client() as client:
        got = await client.request("POST", "/a%2Fb", body=b"{}", params={"dryRun": "All"})
    request = server.requests[0]
    assert got == b"raw \xff bytes"
    assert server.asked == ["POST /a%2Fb?dryRun=All"]
    assert server.bodies == [b"{}"]
    assert request.headers["User-Agent"] == user_agent()
    assert request.headers["User-Agent"].startswith("starsched/")
    assert request.headers["Content-Type"] == "application/json"
    assert "Authorization" not in request.headers


async def test_query_values_are_escaped() -> None:
    async with FaultyServer(page(1, [])) as server, server.client() as client:
        pages = client.list_pages(PODS, field_selector="a!=b,c=d&e", label_selector="x in (y+z)")
        assert [p.items async for p in pages] == [[]]
    query = server.requests[0].query
    assert query["fieldSelector"] == "a!=b,c=d&e"
    assert query["labelSelector"] == "x in (y+z)"


async def test_connections_are_reused() -> None:
    async with FaultyServer(*[answer()] * 5) as server, server.client() as client:
        ports = set()
        for _ in range(5):
            await client.request("GET", "/")
            assert server.requests[-1].transport is not None
            ports.add(server.requests[-1].transport.get_extra_info("peername"))
    assert len(ports) == 1


async def test_a_renewed_client_certificate_is_shown_by_the_next_request(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    """A server refuses a kept connection for good once the certificate that began it expires.

    The requests of a busy client went over such a one for ever: it lost its lease every time.
    """
    # The server's own pair serves as one.
    files = [shutil.copy(control_plane.ca_file.with_suffix(end), tmp_path) for end in _PAIR]
    cert, key = map(str, files)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    async with FaultyServer(*[answer()] * 5, tls=tls) as server:
        endpoint = Endpoint(server=server.url, insecure=True, cert_file=cert, key_file=key)
        ports = []
        timing = PoolTiming(certificate_check_seconds=0)
        async with ApiClient(endpoint, timing=timing) as client:
            for number in range(5):
                if number in (2, 4):
                    os.utime(cert, ns=(number, number))
                await client.request("GET", "/")
                assert server.requests[-1].transport is not None
                ports.append(server.requests[-1].transport.get_extra_info("peername"))
    assert [ports.index(port) for port in ports] == [0, 0, 2, 2, 4]


async def test_a_refused_connection_was_never_sent() -> None:
    async with ApiClient(Endpoint(server=unused_url())) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.request("POST", "/x", body=b"{}")
    assert caught.value.sent is False
    assert str(caught.value).startswith("POST /x: ConnectionLost: cannot connect to 127.0.0.1")


async def test_an_unknown_host_was_never_sent() -> None:
    async with ApiClient(Endpoint(server="http://no-such-host.invalid")) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.request("POST", "/x", body=b"{}")
    assert caught.value.sent is False


@pytest.mark.parametrize("step", [drop(), half(b'{"kind":')], ids=["no answer", "half an answer"])
async def test_a_lost_answer_may_have_been_received(step: object) -> None:
    async with FaultyServer(step) as server, server.client() as client:  # type: ignore[arg-type]
        with pytest.raises(ConnectionLost) as caught:
            await client.request("POST", "/x", body=b"{}")
    assert caught.value.sent is True
    assert server.asked == ["POST /x"]  # never sent twice behind the caller's back


@pytest.mark.parametrize(
    ("method", "want"),
    [
        pytest.param("POST", 1, id="POST"),
        pytest.param("PUT", 1, id="PUT"),
        pytest.param("PATCH", 1, id="PATCH"),
        pytest.param("DELETE", 1, id="DELETE"),
        pytest.param("GET", 2, id="GET, which changes nothing"),
    ],
)
async def test_no_write_is_sent_twice_when_a_kept_connection_breaks(method: str, want: int) -> None:
    """The HTTP library would repeat PUT and DELETE; a repeated one is answered with a conflict."""
    steps = [answer(), drop(), drop()]
    async with FaultyServer(*steps) as server, server.client() as client:
        await client.request("GET", "/x")
        with pytest.raises(ConnectionLost) as caught:
            await client.request(method, "/y")
    assert caught.value.sent is True
    assert server.asked[1:] == [f"{method} /y"] * want


async def test_a_hanging_server_is_a_time_out_that_may_have_been_received() -> None:
    async with FaultyServer(hang()) as server, server.client() as client:
        with pytest.raises(TimedOut) as caught:
            await client.request("POST", "/x", body=b"{}", timeout=0.05)
    assert caught.value.sent is True


async def test_a_request_without_an_answer_ends_the_trust_in_every_kept_connection() -> None:
    """A balancer that had forgotten its connections swallowed a request over each of them.

    Five seconds over each of two were enough for a leader to lose its lease.
    """
    steps = (*[together(asyncio.Barrier(3))] * 3, hang(), answer())
    async with FaultyServer(*steps) as server, server.client() as client:
        await asyncio.gather(*(client.request("GET", "/") for _ in range(3)))
        with pytest.raises(TimedOut):
            await client.request("GET", "/swallowed", timeout=0.05)
        await client.request("GET", "/answered")
    ports = server.ports
    assert len(set(ports[:3])) == 3
    assert ports[3] in ports[:3]
    assert ports[4] not in ports[:3]


async def test_a_stream_ends_that_is_silent_while_the_server_answers_elsewhere() -> None:
    """Nobody noticed before the stream's own end, up to two minutes later: no news as long."""
    steps = (watch(event("ADDED", "a", 1), then="hang"), answer(), hang(), answer())
    async with (
        FaultyServer(*steps) as server,
        server.client() as client,
        contextlib.aclosing(client.stream(PODS, "1")) as stream,
    ):
        await anext(stream)
        await client.request("GET", "/")
        with pytest.raises(TimedOut):
            await client.request("GET", "/swallowed", timeout=0.05)
        await client.request("GET", "/answered")
        with pytest.raises(ConnectionLost, match="answers over another connection"):
            async with asyncio.timeout(20):
                await anext(stream)


@contextlib.asynccontextmanager
async def _heard_while_another_is_not_answered(
    timing: PoolTiming | None = None,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """A stream that brought something after a request was sent that is lost, and nothing since."""
    more = asyncio.Event()
    steps = (
        watch(event("ADDED", "a", 1), event("ADDED", "b", 2), then="hang", between=more),
        answer(),
        hang(),
        answer(),
    )
    async with (
        FaultyServer(*steps) as server,
        server.client(timing=timing) as client,
        contextlib.aclosing(client.stream(PODS, "1")) as stream,
    ):
        await anext(stream)
        await client.request("GET", "/")
        swallowed = asyncio.ensure_future(client.request("GET", "/swallowed", timeout=0.2))
        server.was_asked.clear()
        await server.was_asked.wait()
        more.set()
        assert b"uid-b" in await anext(stream)
        with pytest.raises(TimedOut):
            await swallowed
        await client.request("GET", "/answered")
        yield stream


async def test_a_stream_that_brings_something_goes_on_whatever_else_is_not_answered() -> None:
    async with _heard_while_another_is_not_answered() as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(stream)


async def test_a_stream_that_fell_silent_in_the_middle_of_a_burst_ends_too() -> None:
    """It was heard after the requests that were lost had been sent: pods were not seen for minutes.

    The watch of pods is the one that is heard all the time in a burst.
    """
    timing = PoolTiming(stream_recheck_seconds=0.1)
    async with _heard_while_another_is_not_answered(timing) as stream:
        with pytest.raises(ConnectionLost, match="answers over another connection"):
            async with asyncio.timeout(20):
                await anext(stream)


async def test_waiting_for_a_free_connection_is_a_time_out_before_sending() -> None:
    async with FaultyServer(hang(), answer()) as server, server.client(connections=1) as client:
        hanging = asyncio.create_task(client.request("GET", "/hangs"))
        await server.was_asked.wait()
        with pytest.raises(TimedOut) as caught:
            await client.request("POST", "/x", body=b"{}", timeout=0.05)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    assert caught.value.sent is False
    assert server.asked == ["GET /hangs"]


@pytest.mark.parametrize("now", [False, True], ids=["a request", "a binding without a task"])
async def test_a_write_behind_a_fence_does_not_leave_when_its_turn_comes_too_late(
    now: bool,
) -> None:
    """A binding waited for a connection for up to eight seconds, and left after the lease."""
    gate = asyncio.Barrier(2)
    async with (
        FaultyServer(together(gate), answer()) as server,
        server.client(connections=1) as client,
    ):
        may_write = True
        fenced = client.fenced(lambda: may_write)
        first = asyncio.create_task(client.request("GET", "/first"))
        await server.was_asked.wait()
        bind = fenced.bind_now if now else fenced.bind
        write = asyncio.ensure_future(cast(Any, bind("web", "a", "uid-1", "n1")))
        read = asyncio.create_task(fenced.request("GET", "/read"))
        await idle()
        may_write = False
        await gate.wait()
        await first
        with pytest.raises(ConnectionLost) as caught:
            await write
        assert caught.value.may_have_taken_effect is False
        await read
        with pytest.raises(ConnectionLost):
            await fenced.request("DELETE", "/x")
    assert server.asked == ["GET /first", "GET /read"]


async def test_retry_after_reaches_the_caller() -> None:
    step = refuse(429, "TooManyRequests", Retry_After="4")
    async with FaultyServer(step) as server, server.client() as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.request("GET", "/x")
    assert caught.value.retry_after == 4


async def test_garbage_instead_of_http_is_a_lost_connection() -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ApiClient(Endpoint(server=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(ConnectionLost):
            await client.request("GET", "/x")


async def test_a_redirect_is_not_followed() -> None:
    step = answer(302, b"", Location="http://127.0.0.1:1/stolen")
    async with FaultyServer(step) as server, server.client() as client:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/x")
    assert caught.value.status == 302
    assert len(server.requests) == 1


async def test_a_closed_client_says_so() -> None:
    client = ApiClient(Endpoint(server=unused_url()))
    await client.close()
    with pytest.raises(ConnectionLost, match="client is closed"):
        await client.request("GET", "/x")


async def test_close_ends_requests_under_way() -> None:
    async with FaultyServer(hang()) as server, server.client() as client:
        hanging = asyncio.create_task(client.request("GET", "/x"))
        await server.was_asked.wait()
        await client.close()
        with pytest.raises(ConnectionLost):
            await hanging


@pytest.mark.parametrize("server", ["", "127.0.0.1:6443", "ftp://host", "https://"])
def test_a_server_that_is_no_url_is_a_configuration_error(server: str) -> None:
    with pytest.raises(KubeConfigError, match="server: want a URL"):
        ApiClient(Endpoint(server=server))


def test_no_secret_is_in_a_repr() -> None:
    endpoint = Endpoint(server="http://user:pa55@host", token="s3cret")
    text = repr(endpoint.token and ApiClient(endpoint)) + repr(
        Endpoint(server="http://host", token="s3cret", proxy="http://me:pa55@proxy")
    )
    assert "s3cret" not in text
    assert "pa55" not in text


async def test_bind_posts_uid_and_target() -> None:
    async with FaultyServer(answer(201)) as server, server.client() as client:
        await client.bind("web", "a", "uid-1", 'n"1')
    assert server.asked == ["POST /api/v1/namespaces/web/pods/a/binding"]
    assert json.loads(server.bodies[0]) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "web", "uid": "uid-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": 'n"1'},
    }


async def test_pages_follow_the_continue_token() -> None:
    steps = (page(7, [item("a", 1)], "t1"), page(7, [item("b", 2)], "t2"), page(7, [item("c", 3)]))
    async with FaultyServer(*steps) as server, server.client() as client:
        pages = [p async for p in client.list_pages(PODS, limit=1, resource_version="0")]
    names = [json.loads(bytes(p.items[0]))["metadata"]["name"] for p in pages]
    assert names == ["a", "b", "c"]
    assert [p.resource_version for p in pages] == ["7", "7", "7"]
    first, second, third = (request.query for request in server.requests)
    assert dict(first) == {"limit": "1", "resourceVersion": "0"}
    assert dict(second) == {"limit": "1", "continue": "t1"}  # with both, the server refuses
    assert dict(third) == {"limit": "1", "continue": "t2"}


async def test_a_list_that_is_no_list_is_the_servers_fault() -> None:
    async with FaultyServer(answer(body=b"<html>")) as server, server.client() as client:
        with pytest.raises(ServerError, match="want a list of pods"):
            [p async for p in client.list_pages(PODS)]


async def test_a_list_of_null_items_is_empty() -> None:
    step = answer(body={"metadata": {"resourceVersion": "3"}, "items": None})
    async with FaultyServer(step) as server, server.client() as client:
        assert [p.items async for p in client.list_pages(PODS)] == [[]]


# --- watch streams --------------------------------------------------------------------------


async def test_stream_asks_for_version_time_and_bookmarks() -> None:
    async with FaultyServer(watch()) as server, server.client() as client:
        assert await lines_of(client, timeout_seconds=42) == []
    assert dict(server.requests[0].query) == {
        "watch": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "42",
        "allowWatchBookmarks": "true",
    }


async def test_lines_of_any_size_and_cut_anywhere_arrive_whole() -> None:
    huge = event("ADDED", "huge", 2, annotation="x" * 3_000_000)
    text = event("ADDED", "a", 1) + huge + event("DELETED", "a", 3)
    chunks = [text[:10], text[10:100_000], text[100_000:2_500_000], text[2_500_000:]]
    async with FaultyServer(watch(*chunks)) as server, server.client() as client:
        got = await lines_of(client)
    assert [line + b"\n" for line in got] == text.splitlines(keepends=True)


async def test_lines_cut_at_every_byte_arrive_whole() -> None:
    text = event("ADDED", "a", 1) + event("DELETED", "a", 2)
    chunks = [text[i : i + 1] for i in range(len(text))]
    async with FaultyServer(watch(*chunks)) as server, server.client() as client:
        got = await lines_of(client)
    assert [line + b"\n" for line in got] == text.splitlines(keepends=True)


async def test_an_error_event_is_raised_after_the_events_before_it() -> None:
    chunks = event("ADDED", "a", 1) + gone_event()
    async with FaultyServer(watch(chunks)) as server, server.client() as client:
        stream = client.stream(PODS, "1")
        async with contextlib.aclosing(stream):
            assert b"uid-a" in await anext(stream)
            with pytest.raises(Gone, match="too old"):
                await anext(stream)


async def test_the_word_error_in_an_object_is_no_error() -> None:
    line = event("ADDED", "a", 1, value="ERROR", type="ERROR")
    async with FaultyServer(watch(line)) as server, server.client() as client:
        assert await lines_of(client) == [line.strip()]


async def test_gone_as_a_status_is_raised() -> None:
    async with FaultyServer(refuse(410, "Expired")) as server, server.client() as client:
        with pytest.raises(Gone):
            await lines_of(client)


async def test_a_stream_that_ends_inside_an_event_is_lost() -> None:
    text = event("ADDED", "a", 1) + b'{"type":"ADD'
    async with FaultyServer(watch(text)) as server, server.client() as client:
        with pytest.raises(ConnectionLost, match="inside an event"):
            await lines_of(client)


async def test_a_stream_that_is_cut_off_is_lost() -> None:
    async with (
        FaultyServer(watch(event("ADDED", "a", 1), then="abort")) as server,
        server.client() as client,
    ):
        with pytest.raises(ConnectionLost):
            await lines_of(client)


async def test_a_hung_stream_times_out_after_its_time_plus_grace() -> None:
    step = watch(event("ADDED", "a", 1), then="hang")
    async with FaultyServer(step) as server, server.client() as client:
        stream = client.stream(PODS, "1", timeout_seconds=0, grace=0.1)
        assert b"uid-a" in await anext(stream)
        with pytest.raises(TimedOut):
            await anext(stream)


async def test_a_stream_can_be_left_early() -> None:
    step = watch(event("ADDED", "a", 1), then="hang")
    async with FaultyServer(step, answer()) as server, server.client() as client:
        stream = client.stream(PODS, "1")
        async with contextlib.aclosing(stream):
            await anext(stream)
        await client.request("GET", "/x")  # on another connection: the first is not clean
        assert server.asked[-1] == "GET /x"
