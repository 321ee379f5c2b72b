"""Answers are read whole however they are framed and cut, and nothing else is taken for one."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.connection import Connection, Exchange
from engine.io.kube.errors import ApiError, ConnectionLost, TooManyRequests
from engine.io.kube.resources import PODS
from tests.controlplane import ControlPlane
from tests.engine.io.kube.faulty_server import FaultyServer, answer, hang
from tests.waiting import idle


class Wire(asyncio.Transport):
    """A transport whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: object) -> None:
        self.written += bytes(data)  # type: ignore[call-overload]  # what is written are bytes

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Owner:
    """Notes what a connection reports."""

    def __init__(self) -> None:
        self.freed = 0
        self.sent_again: list[Exchange] = []

    def is_free(self, connection: Connection) -> None:
        self.freed += 1

    def has_answered(self, connection: Connection) -> None: ...

    def is_gone(self, connection: Connection) -> None: ...

    def has_been_silent(self, since: float) -> None: ...

    def send(self, exchange: Exchange) -> None:
        self.sent_again.append(exchange)


@pytest.fixture(scope="module", autouse=True)
def _one_loop() -> Iterator[None]:
    """A loop for futures; it never runs."""
    Talk.loop = asyncio.new_event_loop()
    yield
    Talk.loop.close()


class Talk:
    """One connection, and what the server says over it."""

    loop: ClassVar[asyncio.AbstractEventLoop]

    def __init__(self) -> None:
        self.owner, self.wire = Owner(), Wire()
        self.scratch = bytearray(1 << 16)
        self.connection = Connection(self.owner, memoryview(self.scratch))
        self.connection.connection_made(self.wire)

    def ask(self, *, may_repeat: bool = False) -> Exchange:
        exchange = Exchange(
            self.loop.create_future(), b"GET / HTTP/1.1\r\n\r\n", "GET /", 1, may_repeat=may_repeat
        )
        self.connection.start(exchange)
        return exchange

    def hear(self, text: bytes) -> None:
        self.scratch[: len(text)] = text
        self.connection.buffer_updated(len(text))


BODIES = st.binary(max_size=200)


@st.composite
def framed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and an answer of 200 that holds it."""
    body = draw(BODIES)
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" if draw(st.booleans()) else b""
    head = early + b"HTTP/1.1 200 OK\r\nX-Other: content-length: 7\r\n"
    if draw(st.booleans()):
        return body, head + b"CONTENT-LENGTH:  %d\r\n\r\n" % len(body) + body
    chunks = b""
    at = 0
    while at < len(body):
        size = draw(st.integers(1, len(body) - at))
        extension = b";a=b" if draw(st.booleans()) else b""
        chunks += b"%x%s\r\n%s\r\n" % (size, extension, body[at : at + size])
        at += size
    trailer = b"X-Late: 1\r\n" if draw(st.booleans()) else b""
    end = b"0\r\n" + trailer + b"\r\n"
    return body, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + end


@given(answers=st.lists(framed(), min_size=1, max_size=3), data=st.data())
def test_answers_cut_anywhere_arrive_whole(
    answers: Sequence[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    talk = Talk()
    for number, (body, text) in enumerate(answers, 1):
        exchange = talk.ask()
        at = 0
        while at < len(text):
            size = data.draw(st.integers(1, len(text) - at))
            assert not exchange.answer.done()
            talk.hear(text[at : at + size])
            at += size
        assert exchange.answer.result() == body
        assert talk.owner.freed == number
    assert not talk.wire.is_aborted


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 101 Switching\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", id="encoding"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="size of a chunk"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", id="long chunk"
        ),
        pytest.param(b"x" * 60_000, id="no end"),
    ],
)
def test_what_is_no_answer_is_a_lost_connection_that_is_not_used_again(text: bytes) -> None:
    talk = Talk()
    exchange = talk.ask()
    for _ in range(3):
        talk.hear(text)
    error = exchange.answer.exception()
    assert isinstance(error, ConnectionLost)
    assert error.sent
    assert talk.wire.is_aborted
    assert talk.owner.freed == 0


def test_unsolicited_bytes_close_the_connection() -> None:
    talk = Talk()
    exchange = talk.ask()
    talk.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n")
    assert exchange.answer.result() == b"x"
    assert talk.wire.is_aborted
    assert talk.owner.freed == 0


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close", b"HTTP/1.0 200 OK"])
def test_a_connection_that_the_server_closes_is_not_used_again(head: bytes) -> None:
    talk = Talk()
    exchange = talk.ask()
    talk.hear(head + b"\r\nContent-Length: 2\r\n\r\nok")
    assert exchange.answer.result() == b"ok"
    assert talk.wire.is_aborted


def test_a_body_without_length_ends_with_the_connection() -> None:
    talk = Talk()
    exchange = talk.ask()
    talk.hear(b"HTTP/1.1 200 OK\r\n\r\nsome ")
    talk.hear(b"text")
    assert not exchange.answer.done()
    talk.connection.connection_lost(None)
    assert exchange.answer.result() == b"some text"


def test_only_what_changes_nothing_is_sent_again_and_once() -> None:
    talk = Talk()
    first = talk.ask(may_repeat=True)
    talk.connection.connection_lost(None)
    assert isinstance(first.answer.exception(), ConnectionLost)  # a fresh connection: no reason
    for may_repeat in (True, False):
        talk = Talk()
        talk.ask()
        talk.hear(b"HTTP/1.1 204 No Content\r\n\r\n")
        late = talk.ask(may_repeat=may_repeat)
        talk.connection.connection_lost(None)
        assert bool(talk.owner.sent_again) is may_repeat
        assert late.answer.done() is not may_repeat
        if not may_repeat:
            late.answer.exception()
        assert late.may_repeat is False


def test_an_answer_that_is_packed_all_the_same_is_unpacked() -> None:
    talk = Talk()
    exchange = talk.ask()
    packed = gzip.compress(b"text")
    talk.hear(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        + packed
    )
    assert exchange.answer.result() == b"text"


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(gzip.compress(b"text" * 300), id="more than is allowed"),
        pytest.param(gzip.compress(b"text")[:-6], id="cut off"),
    ],
)
def test_what_cannot_be_unpacked_is_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch, packed: bytes
) -> None:
    """A megabyte took a gigabyte."""
    monkeypatch.setattr("engine.io.kube.connection._MOST_UNPACKED", 1_000)
    talk = Talk()
    exchange = talk.ask()
    talk.hear(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        + packed
    )
    assert isinstance(exchange.answer.exception(), ConnectionLost)


def test_a_refusal_keeps_its_fields() -> None:
    talk = Talk()
    exchange = talk.ask()
    talk.hear(b"HTTP/1.1 429 Too Many\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n")
    error = exchange.answer.exception()
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == 3
    assert talk.owner.freed == 1


# --- against servers ------------------------------------------------------------------------


async def test_bursts_share_few_connections() -> None:
    async with FaultyServer(*[answer()] * 200) as server, server.client() as client:
        await asyncio.gather(*(client.request("GET", f"/{n}") for n in range(200)))
        ports = {request.transport and id(request.transport) for request in server.requests}
    assert len(server.requests) == 200
    assert len(ports) < 100


async def test_a_binding_without_a_task_ends_like_any_other() -> None:
    async with FaultyServer(answer(201), answer(409), hang()) as server, server.client() as client:
        for want in (None, ApiError):
            sent = client.bind_now("web", "a", "uid-1", "n1")
            assert sent is not None
            await asyncio.wait([sent])
            assert (sent.exception() is None) is (want is None)
        late = client.bind_now("web", "a", "uid-1", "n1", timeout=0.05)
        assert late is not None
        await asyncio.wait([late])
        error = late.exception()
        assert isinstance(error, ApiError)
        assert error.may_have_taken_effect


async def test_a_server_behind_a_proxy_is_reached_through_it() -> None:
    async with FaultyServer(answer(body=b"far away")) as proxy:
        endpoint = Endpoint(server="http://api.invalid:1234/base", token="t", proxy=proxy.url)
        async with ApiClient(endpoint) as client:
            assert await client.get(PODS, "a", "web") == b"far away"
            assert client.bind_now("web", "a", "uid-1", "n1") is None
        request = proxy.requests[0]
    assert str(request.url) == "http://api.invalid:1234/base/api/v1/namespaces/web/pods/a"
    assert request.headers["Authorization"] == "Bearer t"


def unclosed() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))


async def test_closing_leaves_nothing_open_however_far_a_connection_is(
    control_plane: ControlPlane,
) -> None:
    """Between no connection yet and an answer, TLS and all."""
    before = unclosed()
    for step in range(60):
        async with ApiClient(control_plane.endpoint()) as client:
            asking = [asyncio.ensure_future(client.request("GET", "/healthz")) for _ in range(3)]
            await idle(8 * step)
        assert unclosed() == before, f"closed after {8 * step} turns of the loop"
        await asyncio.gather(*asking, return_exceptions=True)


@asynccontextmanager
async def many_pods(client: ApiClient) -> AsyncIterator[list[Connection]]:
    for _ in range(2):
        await asyncio.gather(*(client.request("GET", "/healthz") for _ in range(8)))
    pool = client._transport._pool  # type: ignore[attr-defined]  # what no caller needs to see
    yield list(pool._open)


async def test_later_connections_go_on_from_the_first_tls_session(
    control_plane: ControlPlane,
) -> None:
    async with ApiClient(control_plane.endpoint()) as client:
        await client.request("GET", "/healthz")
        async with many_pods(client) as connections:
            resumed = [c.tls is not None and c.tls.session_reused for c in connections]
    assert len(resumed) > 1
    assert resumed.count(False) == 1  # the first
