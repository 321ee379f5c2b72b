"""What stands between a terminal and a scheduler's local port: a kubelet's port-forwarding.

There are no kubelets in the tests; the protocol is a kubelet's.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

PROTOCOL = "v4.channel.k8s.io"


#: Where ports of pods are: one of this host for all of them, or one for each that is open.
Ports = int | Mapping[int, int]


async def forward(request: web.Request, ports: Ports) -> web.WebSocketResponse:
    """Serve port-forwarding to *ports*."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    asked = int(request.query.get("ports") or request.query["port"])
    for channel in (0, 1):
        await socket.send_bytes(bytes([channel]) + struct.pack("<H", asked))
    port = ports if isinstance(ports, int) else ports.get(asked, 1)  # nothing listens on 1
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await socket.send_bytes(b"\x01" + f"unable to forward: {error}".encode())
        await socket.close()
        return socket

    async def back() -> None:
        while data := await reader.read(4096):
            await socket.send_bytes(b"\x00" + data)
        await socket.close()

    returning = asyncio.ensure_future(back())
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data[0] == 0:
            writer.write(message.data[1:])
            await writer.drain()
    returning.cancel()
    writer.close()
    return socket


@contextlib.asynccontextmanager
async def serving(
    application: web.Application, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve *application* on a free port."""
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    assert site._server is not None
    sockets: Any = site._server
    try:
        yield sockets.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def api_server_with_kubelets(
    behind: str, port: Ports, namespace: str = ""
) -> AsyncIterator[str]:
    """The API server *behind* with port-forwarding to *port*; gives its URL.

    There are pods in *namespace* alone, if one is given.
    """

    async def forwarded(request: web.Request) -> web.StreamResponse:
        if namespace and request.match_info["namespace"] != namespace:
            raise web.HTTPNotFound
        return await forward(request, port)

    async def passed_on(request: web.Request) -> web.StreamResponse:
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, behind + request.path_qs) as answer,
        ):
            body = await answer.read()
            return web.Response(body=body, status=answer.status, content_type="application/json")

    application = web.Application()
    application.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/portforward", forwarded)
    application.router.add_get("/{path:.*}", passed_on)
    async with serving(application) as own:
        yield f"http://127.0.0.1:{own}"


@contextlib.asynccontextmanager
async def kubelet(certificate: Path, key: Path, port: Ports) -> AsyncIterator[int]:
    """A kubelet that forwards to *port*; gives its own."""

    async def forwarded(request: web.Request) -> web.StreamResponse:
        return await forward(request, port)

    application = web.Application()
    application.router.add_get("/portForward/{namespace}/{pod}", forwarded)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with serving(application, tls) as own:
        yield own


def write_kubeconfig(path: Path, server: str, namespace: str = "default") -> Path:
    """A kubeconfig for *server*."""
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path
