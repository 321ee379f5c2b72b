"""Requests that no honest client sends: the port goes on answering the others."""

import asyncio
import re
import ssl

import pytest

from devkit.cluster import DevCluster
from engine.io.endpoints import listeners
from tests.engine.io.endpoints.harness import Running, endpoints, unverified
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

MEGABYTE = 1 << 20


async def said(running: Running, sent: bytes, *, local: bool = False) -> bytes:
    """What the port answers to *sent*, before it closes the connection."""
    port = running.server.local_port if local else running.server.secure_port
    tls = None if local else unverified()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    got = bytearray()
    try:
        writer.write(sent)
        async with asyncio.timeout(20):
            while piece := await reader.read(4096):
                got += piece
    except (ConnectionError, ssl.SSLError):
        pass  # it had enough
    finally:
        writer.close()
    return bytes(got)


@pytest.mark.parametrize("local", [False, True], ids=["secure", "local"])
@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param(
            b"GET /" + b"a" * MEGABYTE + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400", id="path"
        ),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MEGABYTE + b"\r\n\r\n",
            b"400",
            id="header",
        ),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
            + b"".join(b"X-%d: a\r\n" % number for number in range(100_000))
            + b"\r\n",
            b"400",
            id="headers",
        ),
        pytest.param(
            b"POST /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % MEGABYTE + b"a" * MEGABYTE,
            b"405",
            id="body",
        ),
        pytest.param(b"\x00\x01\x02 garbage\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"4", id="HTTP/2"),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Length: 5\r\n\r\n",
            b"400",
            id="two lengths",
        ),
    ],
)
async def test_a_request_that_is_too_much_is_refused(
    cluster: DevCluster, sent: bytes, want: bytes, local: bool
) -> None:
    async with endpoints(cluster) as running:
        answer = await said(running, sent, local=local)
        # Some are cut off while they are still being sent.
        assert not answer or re.match(rb"HTTP/1\.[01] " + want, answer), answer[:200]
        assert await running.get("/livez") == (200, "ok")


async def test_a_path_with_every_character_is_no_path(cluster: DevCluster) -> None:
    async with endpoints(cluster) as running:
        for number in range(1, 256):
            path = f"/rows/%{number:02x}"
            status, _ = await running.get(path, "of-root")
            assert status in (200, 404), path


@pytest.mark.slow("a thousand handshakes")
async def test_a_thousand_connections_leave_a_probe_its_answer(cluster: DevCluster) -> None:
    """Half say nothing after the handshake, half never finish it."""
    async with endpoints(cluster, max_connections=64) as running:
        port, tls = running.server.secure_port, unverified()
        opened: list[asyncio.StreamWriter] = []

        async def connect(*, finishes: bool) -> None:
            try:
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=tls if finishes else None
                )
                opened.append(writer)
            except (OSError, ssl.SSLError):
                pass  # given up for a newer one

        for _ in range(20):
            await asyncio.gather(*(connect(finishes=n % 2 == 0) for n in range(50)))
            assert await running.get("/livez") == (200, "ok")
        listener = running.server._listeners[0]
        assert len(opened) > 500
        assert listener.open_handshakes <= listeners.MAX_HANDSHAKES
        await eventually(lambda: listener.open_connections <= 65)
        for writer in opened:
            writer.close()


async def test_a_handshake_has_a_deadline(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 0.1)
    async with endpoints(cluster) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.secure_port)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        assert running.server._listeners[0].open_handshakes == 0


async def test_plain_http_at_the_secure_port_gets_nothing(cluster: DevCluster) -> None:
    async with endpoints(cluster) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.secure_port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(20):
            assert b"HTTP" not in await reader.read()
        writer.close()
