"""The two listeners of a process: the secure one for the network, the local one for its host.

Owns their order and what keeps them current: certificates and authorities. Both serve the same
table of routes.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import structlog
from aiohttp import hdrs, web

from engine.io.endpoints.authentication import Authenticator
from engine.io.endpoints.authorization import OPEN_PATHS, Authorizer, DelegatedGuard
from engine.io.endpoints.caller_trust import CallerTrust, TrustSettings
from engine.io.endpoints.callers import LOCAL, Caller
from engine.io.endpoints.listeners import LOOPBACK, Listener
from engine.io.endpoints.routes import Refused, Route, index_route, make_application
from engine.io.endpoints.serving_tls import ServingTls, TlsSettings
from engine.io.kube.client import ApiClient
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.connection_limit import MAX_CONNECTIONS
from engine.lib.own_address import own_address

log = structlog.get_logger(component="endpoints")

REFRESH_SECONDS: Final = 10.0
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class SecureSettings:
    """How the secure listener works.

    Attributes:
        host, port: Where it listens (port 0: a free one).
        shares_port: Let other processes listen on the same port.
        tls: Its certificate.
        trust: The authorities of callers.
        token_seconds: How long the API server's answer about a token is good.
        allowed_seconds, denied_seconds: The same, of answers about rights.
        open_paths: What is open to everybody.
        refresh_seconds: Between two looks at files and authorities.
    """

    host: str = "0.0.0.0"
    port: int = 0
    shares_port: bool = False
    tls: TlsSettings = field(default_factory=TlsSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
    token_seconds: float = 10.0
    allowed_seconds: float = 10.0
    denied_seconds: float = 10.0
    open_paths: tuple[str, ...] = OPEN_PATHS
    refresh_seconds: float = REFRESH_SECONDS


@dataclass(frozen=True, slots=True)
class ReviewClients:
    """The API servers that know callers and their rights; None: no server does."""

    authentication: ApiClient | None
    authorization: ApiClient | None

    async def close(self) -> None:
        """Close both."""
        for client in (self.authentication, self.authorization):
            if client is not None:
                await client.close()


class EndpointServer:
    """Serves *routes* on the listeners that are configured.

    `new --start--> serving --stop--> closed`.

    Args:
        routes: What is served; without a route for `/`, that lists them.
        secure: The secure listener; None for none.
        local_port: The port of the local one (0: a free one); None for none.
        clients: Who knows callers.
        clock: Time.
        max_connections: Of each listener; the newest stay open.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        secure: SecureSettings | None,
        local_port: int | None,
        clients: ReviewClients,
        clock: Clock,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        table = list(routes)
        has_home = any(route.path == "/" for route in table)
        self.routes = table if has_home else [*table, index_route(table)]
        self._secure = secure
        self._local_port = local_port
        self._clients = clients
        self._clock = clock
        self._max_connections = max_connections
        self._open = contextlib.AsyncExitStack()
        self._listeners: list[Listener] = []
        self._tls: ServingTls | None = None
        self.secure_port = 0
        self.local_port = 0

    async def start(self) -> None:
        """Listen. Raises `CannotListen`, `CannotServeTls` or `CannotAuthenticate`."""
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._open.aclose)
            if self._secure is not None:
                await self._start_secure(self._secure)
            if self._local_port is not None:
                application = make_application(self.routes, _local_guard)
                listener = Listener(application, max_connections=self._max_connections)
                self.local_port = await listener.start(LOOPBACK, self._local_port)
                self._hold(listener)
                log.info("Serving locally", host=LOOPBACK, port=self.local_port)
            undo.pop_all()

    def page_address(self, api_server: str) -> str:
        """Where other hosts find the page, or this host, if no other may; "" if it is not served.

        A listener on all addresses is named by the one from which *api_server* is reached.
        """
        if self.secure_port and self._secure is not None:
            host = self._secure.host
            if host in _ALL_ADDRESSES:
                host = own_address(api_server) or socket.gethostname()
            return f"https://{f'[{host}]' if ':' in host else host}:{self.secure_port}/"
        return f"http://{LOOPBACK}:{self.local_port}/" if self.local_port else ""

    @property
    def certificate(self) -> str:
        """The certificate (PEM) of the secure listener as it is now; "" without one."""
        return self._tls.certificate if self._tls is not None else ""

    async def stop(self) -> None:
        """Stop listening."""
        await self._open.aclose()

    def _hold(self, listener: Listener) -> None:
        self._listeners.append(listener)
        self._open.push_async_callback(listener.stop)

    async def _start_secure(self, settings: SecureSettings) -> None:
        clients, clock = self._clients, self._clock
        # 1. Who is trusted.
        trust = CallerTrust(settings.trust, clients.authentication, clock)
        if not settings.trust.tolerates_failure:
            await trust.refresh(must_find=True)
        authenticator = Authenticator(
            clients.authentication, token_seconds=settings.token_seconds, clock=clock
        )
        authenticator.trust = trust.current
        authorizer = Authorizer(
            clients.authorization,
            allowed_seconds=settings.allowed_seconds,
            denied_seconds=settings.denied_seconds,
            open_paths=(*settings.open_paths, *(f"{r.fixed}*" for r in self.routes if r.is_open)),
            clock=clock,
        )
        # 2. The certificate.
        tls = self._tls = ServingTls(settings.tls, clock)
        tls.trust(trust.current.authorities)
        # 3. Listening.
        guard = DelegatedGuard(authenticator, authorizer)
        listener = Listener(
            make_application(self.routes, guard),
            tls=lambda: tls.context,
            max_connections=self._max_connections,
        )
        self.secure_port = await listener.start(
            settings.host, settings.port, shared=settings.shares_port
        )
        self._hold(listener)
        log.info("Serving securely", host=settings.host, port=self.secure_port)
        # 4. What changes meanwhile.
        following = asyncio.ensure_future(
            _follow(trust, authenticator, tls, settings.refresh_seconds)
        )
        self._open.push_async_callback(cancelled, [following])


async def _follow(
    trust: CallerTrust, authenticator: Authenticator, tls: ServingTls, seconds: float
) -> None:
    """Keep authorities and certificates current."""
    while True:
        try:
            authenticator.trust = await trust.refresh()
            tls.trust(authenticator.trust.authorities)
            tls.refresh()
        except Exception:
            log.exception("Could not refresh certificates")
        await asyncio.sleep(seconds)


async def _local_guard(request: web.Request) -> Caller:
    """The caller of the local listener: a program of this host that says where it wants to go.

    A page of the web can have its name resolved to a loopback address and read what is answered
    there; it cannot name that address as the host.
    """
    host = urlsplit(f"//{request.headers.get(hdrs.HOST, '')}").hostname
    if host not in _LOOPBACK_NAMES:
        raise Refused(421, "Misdirected", "want a Host of localhost, 127.0.0.1 or [::1]")
    return LOCAL
