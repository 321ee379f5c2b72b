"""The HTTP client of the load generator, against a server that frames its answers in every way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from devkit.benchmarks.wire import Wire, WireError
from engine.io.kube.config import Endpoint

Serve = Callable[[list[bytes]], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server that answers every request with the same pieces, and returns its URL."""
    servers: list[asyncio.Server] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(pieces: list[bytes]) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            while True:
                try:
                    await reader.readuntil(b"\r\n\r\n{}")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for writer in writers:
        writer.close()
    for server in servers:
        server.close()


async def send(url: str, count: int = 3) -> int:
    done = 0

    def note(_: int) -> None:
        nonlocal done
        done += 1

    async with Wire(Endpoint(server=url), in_flight=2) as wire:
        await wire.send_all([wire.encode("POST", "/x", {})] * count, on_done=note)
    return done


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"], id="one piece"),
        pytest.param([b"HTTP/1.1 201 Cre", b"ated\r\nContent-Length: 2\r\n\r\n{", b"}"], id="torn"),
        pytest.param(
            [b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
            id="chunked",
        ),
        pytest.param(
            [
                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{0\r\n\r\n",
                b"}\r\n0\r\n",
                b"\r\n",
            ],
            id="a chunk that looks like the end",
        ),
    ],
)
async def test_every_framing_is_understood(serve: Serve, pieces: list[bytes]) -> None:
    assert await send(await serve(pieces)) == 3


async def test_a_refusal_names_the_request_and_the_answer(serve: Serve) -> None:
    url = await serve([b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"])
    with pytest.raises(ExceptionGroup) as caught:
        await send(url, 1)
    assert caught.group_contains(WireError, match="POST /x: 403 no")


async def test_a_connection_that_the_server_ended_is_followed_by_another() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await send(url, 6) == 6
        async with Wire(Endpoint(server=url), in_flight=1) as wire:
            for _ in range(2):
                answer = await wire.send(wire.encode("POST", "/x", {}))
                assert (answer.status, answer.body) == (201, b"{}")
    assert connections == 8


async def test_a_request_is_sent_again_if_the_server_hangs_up_and_then_fails() -> None:
    answers = [b"", b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}", b"", b""]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(answers.pop(0))
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Wire(Endpoint(server=url), in_flight=1) as wire:
            # The first of the two may have created it.
            assert (await wire.send(wire.encode("POST", "/x", {}))).status == 200
        async with Wire(Endpoint(server=url), in_flight=1) as wire:
            with pytest.raises(WireError, match="POST /x: connection lost"):
                await wire.send(wire.encode("POST", "/x", {}))
    assert not answers
