"""An HTTP server that does what a script says: the faults that a real API server seldom shows.

Each request takes the next step of the script; a request beyond its end is answered with 500, and
`requests` tells the test what was asked.
"""

import asyncio
import json
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any

from aiohttp import web

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.waiting import idle

Step = Callable[["FaultyServer", web.Request], Awaitable[web.StreamResponse]]


class FaultyServer:
    """Serves *steps* in order, one per request, on a free loopback port; with *tls* over HTTPS."""

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None) -> None:
        self.steps = list(steps)
        self._tls = tls
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.ports: list[int] = []  # of the clients' ends
        self.url = ""
        self.stopping = asyncio.Event()
        self.was_asked = asyncio.Event()

    async def __aenter__(self) -> "FaultyServer":
        server = web.Server(self._handle)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls is not None else 'http'}://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        await self._runner.cleanup()

    def client(self, **options: Any) -> ApiClient:
        """A client of this server; its delays are seeded."""
        return ApiClient(Endpoint(server=self.url), **{"rng": random.Random(1), **options})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.BaseRequest)
        self.requests.append(request)  # type: ignore[arg-type]  # only read
        assert request.transport is not None
        self.ports.append(request.transport.get_extra_info("peername")[1])
        self.bodies.append(await request.read())
        self.was_asked.set()
        if not self.steps:
            return web.Response(status=500, text="the script is over")
        return await self.steps.pop(0)(self, request)  # type: ignore[arg-type]  # only read

    @property
    def asked(self) -> list[str]:
        """Method, path and query of each request."""
        return [f"{request.method} {request.path_qs}" for request in self.requests]


def answer(status: int = 200, body: Any = None, **headers: str) -> Step:
    """A whole answer; header names are written with underscores."""

    async def step(_: FaultyServer, request: web.Request) -> web.StreamResponse:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=data, headers=names)

    return step


def refuse(status: int, reason: str, message: str = "no", **headers: str) -> Step:
    """A `Status` answer."""
    body = {"kind": "Status", "status": "Failure", "code": status}
    return answer(status, body | {"reason": reason, "message": message}, **headers)


def hang() -> Step:
    """Accepts the request and never answers."""

    async def step(server: FaultyServer, request: web.Request) -> web.StreamResponse:
        await server.stopping.wait()
        return web.Response(status=500)

    return step


def together(barrier: asyncio.Barrier) -> Step:
    """Answers once as many requests wait as *barrier* wants, so that each has a connection."""

    async def step(_: FaultyServer, request: web.Request) -> web.StreamResponse:
        await barrier.wait()
        return web.Response()

    return step


def drop() -> Step:
    """Reads the request and closes the connection without an answer."""

    async def step(_: FaultyServer, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return step


def half(body: bytes) -> Step:
    """Promises a body twice as long as it sends."""

    async def step(_: FaultyServer, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body) * 2)})
        await response.prepare(request)
        await response.write(body)
        assert request.transport is not None
        request.transport.close()
        return response

    return step


def watch(*chunks: bytes, then: str = "close", between: asyncio.Event | None = None) -> Step:
    """A watch that sends *chunks*, and then closes, hangs or aborts.

    *between*: what to wait for before each chunk but the first.
    """

    async def step(server: FaultyServer, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for number, chunk in enumerate(chunks):
            if number and between is not None:
                await between.wait()
            await response.write(chunk)
        if then == "hang":
            await server.stopping.wait()
        elif then == "abort":
            await idle(10)  # the chunks leave before the connection does
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    return step


def event(kind: str, name: str, version: int | str, uid: str | None = None, **more: Any) -> bytes:
    """One line of a watch: an object named *name* at resourceVersion *version*."""
    return json.dumps({"type": kind, "object": item(name, version, uid, **more)}).encode() + b"\n"


def bookmark(version: int | str) -> bytes:
    body = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
    return json.dumps({"type": "BOOKMARK", "object": body}).encode() + b"\n"


def gone_event() -> bytes:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def item(name: str, version: int | str, uid: str | None = None, **more: Any) -> dict[str, Any]:
    """An object as it stands in a list."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, **more}


def page(version: int | str, items: Iterable[dict[str, Any]], token: str = "") -> Step:
    """One page of a list."""
    metadata = {"resourceVersion": str(version), "continue": token}
    return answer(200, {"kind": "PodList", "metadata": metadata, "items": list(items)})
