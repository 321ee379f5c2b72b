"""Accepts connections: TLS handshakes with a deadline, and limits on what is open at once.

Owns sockets. Each connection holds memory and a descriptor whether it sends anything or not, and
every client that reaches the port can open any number. Without descriptors the process loses the
API server, so the oldest connections and handshakes are given up first: a client that has just
connected, such as a probe, is answered long before that.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog
from aiohttp import web

from engine.lib.background import cancelled
from engine.lib.connection_limit import MAX_CONNECTIONS, connection_limit
from engine.lib.listening import CannotListen

log = structlog.get_logger(component="endpoints")

HANDSHAKE_SECONDS: Final = 5.0
MAX_HANDSHAKES: Final = 128
#: Descriptors that a listener takes at most, however many clients there are.
MOST_OPEN: Final = 2 * MAX_CONNECTIONS + MAX_HANDSHAKES + 1
LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 128
#: Time in which requests under way are answered when the process stops.
_SHUTDOWN_SECONDS: Final = 5.0
# The library logs what strangers send, at length; what fails here, `routes` logs.
_SILENT: Final = logging.getLogger("starsched.endpoints")
_SILENT.disabled = True
#: Before the next try to accept, when there are no descriptors left.
_RETRY_SECONDS: Final = 0.5


class Listener:
    """Serves an application on one address.

    `new --start--> listening --stop--> closed`.

    Args:
        application: What answers.
        tls: The settings for the next connection; None for plain HTTP.
        max_connections: The newest stay open; those beyond are closed.
    """

    def __init__(
        self,
        application: web.Application,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._tls = tls
        self._max_connections = max_connections
        # A body that is too long is not read to its end.
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_SILENT,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            lingering_time=0,
            keepalive_timeout=90,
        )
        self._open = contextlib.AsyncExitStack()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listen on *host* and *port* (0: a free one); returns the port.

        Other processes can listen on it, too, if it is *shared*. Raises `CannotListen`.
        """
        await self._runner.setup()
        self._open.push_async_callback(self._runner.cleanup)
        try:
            listening = _bound_socket(host, port, shared=shared)
        except OSError as error:
            await self._open.aclose()
            reason = (error.strerror or str(error)).lower()
            raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from error
        self._open.callback(listening.close)
        await self._open.enter_async_context(connection_limit(self._runner, self._max_connections))
        accepting = asyncio.ensure_future(self._accept(listening))
        self._open.push_async_callback(self._stop_accepting, accepting)
        bound: int = listening.getsockname()[1]
        return bound

    @property
    def open_connections(self) -> int:
        """Connections that the HTTP server has."""
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    @property
    def open_handshakes(self) -> int:
        """Connections that it does not have yet."""
        return len(self._handshakes)

    async def stop(self) -> None:
        """Stop listening; requests under way are answered."""
        await self._open.aclose()

    async def _stop_accepting(self, accepting: asyncio.Task[None]) -> None:
        await cancelled([accepting, *self._handshakes])

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # as a rule, too many open files
                log.warning("Could not accept a connection", reason=error.strerror)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._make_room()
            opening = asyncio.ensure_future(self._hand_over(connection))
            self._handshakes[opening] = None
            opening.add_done_callback(lambda task: self._handshakes.pop(task, None))

    def _make_room(self) -> None:
        """Give up the oldest handshake, or the oldest connection, if there are too many.

        `connection_limit` closes gently, but only now and then; this is for a burst in between.
        """
        if len(self._handshakes) >= MAX_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]  # in a burst, it ends after the next has come
            oldest.cancel()
        server = self._runner.server
        connections = server.connections if server is not None else []
        if len(connections) >= 2 * self._max_connections:
            connections[0].force_close()

    async def _hand_over(self, connection: socket.socket) -> None:
        """Shake hands, and leave the connection to the HTTP server."""
        context = self._tls() if self._tls is not None else None
        assert self._runner.server is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._runner.server,
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context is not None else None,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("TLS handshake failed", reason=str(error))
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise


def _bound_socket(host: str, port: int, *, shared: bool) -> socket.socket:
    """A listening socket; an unspecified address means all addresses of both families."""
    is_any = not host or ipaddress.ip_address(host).is_unspecified
    if is_any and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # compiled in, and switched off in the kernel
            return _listening(socket.AF_INET6, "::", port, shared=shared, both=True)
    address = "0.0.0.0" if is_any else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _listening(family, address, port, shared=shared)


def _listening(
    family: int, address: str, port: int, *, shared: bool, both: bool = False
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if both:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
