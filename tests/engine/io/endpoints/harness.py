"""Endpoints of a process on an embedded cluster, and callers of them."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from devkit.cluster import DevCluster
from engine.io.endpoints.health import health_routes, ping
from engine.io.endpoints.routes import Request, Route, json_answer, json_route
from engine.io.endpoints.server import EndpointServer, ReviewClients, SecureSettings
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.lib.clock import Clock, SystemClock

NAMESPACES = ("red", "green", "blue")
SECRET = "seen"


async def rows(request: Request) -> Any:
    """Rows of namespaces, those left out that the caller may not read."""
    readable = await request.caller.readable(NAMESPACES)
    return json_answer({"rows": [name for name in NAMESPACES if name in readable]})


async def one(request: Request) -> Any:
    """One thing of a namespace."""
    namespace = request.part("namespace")
    if not await request.caller.may_read(namespace):
        return json_answer({"row": None}, status=404)
    return json_answer({"row": namespace})


ROUTES = [
    *health_routes(healthz={"ping": ping}, livez={"ping": ping}, readyz={"ping": ping}),
    json_route("/policies", lambda: {SECRET: True}),
    Route("/rows", rows, filters_by_namespace=True),
    Route("/rows/{namespace}", one, filters_by_namespace=True),
]


class Running:
    """Endpoints that answer."""

    def __init__(self, server: EndpointServer, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.server = server
        self.secure = f"https://127.0.0.1:{server.secure_port}"
        self.local = f"http://127.0.0.1:{server.local_port}"

    async def get(
        self,
        path: str,
        token: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and text of *path* at the secure port; with *tls*, over a new connection."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if tls is None:
            return await _ask(self.session, method, self.secure + path, sent)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            return await _ask(session, method, self.secure + path, sent)


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str]
) -> tuple[int, str]:
    async with session.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text()


def unverified(client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """A client's settings: any server, and the certificate that it shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None:
        context.load_cert_chain(*client)
    return context


def trusting(authority: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """The same, for servers of *authority* alone."""
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(*client)
    return context


@contextlib.asynccontextmanager
async def endpoints(
    cluster: DevCluster,
    settings: SecureSettings | None = None,
    *,
    routes: Sequence[Route] = ROUTES,
    clock: Clock | None = None,
    max_connections: int = 512,
) -> AsyncIterator[Running]:
    """Both listeners, until the block ends; *cluster* knows callers."""
    async with ApiClient(Endpoint(server=cluster.url)) as client:
        server = EndpointServer(
            routes,
            secure=settings or SecureSettings("127.0.0.1"),
            local_port=0,
            clients=ReviewClients(client, client),
            clock=clock or SystemClock(),
            max_connections=max_connections,
        )
        await server.start()
        connector = aiohttp.TCPConnector(ssl=unverified())
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Running(server, session)
        finally:
            await server.stop()
