"""A pool of keep-alive connections to one server.

Owns opening, keeping and closing connections, and which one takes a request. A request takes the
connection that was used last, so that a few stay warm and the rest can be closed; if none is free
it waits for whichever comes first, one that gets free or one that is opened for it.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aiohappyeyeballs

from engine.io.kube.config import Credentials, TlsContext
from engine.io.kube.connection import Connection, Exchange
from engine.io.kube.errors import ApiError, ConnectionLost, TimedOut
from engine.lib.background import cancelled

#: Idle connections are kept for less than the API server keeps them (90 s), so that a request
#: seldom meets a connection that the server is closing.
KEEPALIVE_SECONDS: Final = 60.0
#: Connections opened at once. A burst of requests mostly finds connections that got free before
#: it would have had one of its own: each costs both sides a TLS handshake.
MOST_OPENING: Final = 4
#: How long a name's addresses are used before it is resolved again.
_ADDRESS_SECONDS: Final = 10.0
#: Most bytes per read; a page of a list takes many reads.
_SCRATCH_BYTES: Final = 1 << 17
_HAPPY_EYEBALLS_DELAY: Final = 0.25
#: The least time between two checks for silent streams.
_DOUBT_SECONDS: Final = 60.0
#: Iterations of the event loop that `close` gives the transports to end.
_CLOSING_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class PoolTiming:
    """How often a pool checks what nothing reports to it.

    Attributes:
        certificate_check_seconds: The least time between two looks at certificate files, which may
            have been renewed.
        stream_recheck_seconds: When streams that had data just before the first check for silent
            ones are checked again.
    """

    certificate_check_seconds: float = 1.0
    stream_recheck_seconds: float = 5.0


class Pool:
    """Connections to one server. Belongs to the event loop of its first request.

    Args:
        host, port: The server.
        credentials: Where its client certificate is.
        tls: None for plain HTTP.
        server_hostname: Name to expect in the server's certificate instead of *host*.
        most: Most connections.
        connect_timeout: Longest wait for a connection, in seconds.
        timing: How often certificate files and streams are checked.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        credentials: Credentials,
        tls: TlsContext | None,
        server_hostname: str | None,
        most: int,
        connect_timeout: float,
        timing: PoolTiming,
    ) -> None:
        self._host, self._port = host, port
        self._credentials = credentials
        self._tls = tls
        self._server_hostname = (server_hostname or host) if tls is not None else None
        self._most = most
        self._connect_timeout = connect_timeout
        self._timing = timing
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._free: list[Connection] = []  # the one used last at the end
        self._open: dict[Connection, None] = {}  # in the order in which they were opened
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[Exchange] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._addresses: Sequence[aiohappyeyeballs.AddrInfoType] = ()
        self._resolve_again_at = 0.0
        self._look_again_at = 0.0
        self._doubted_since: float | None = None
        self._doubt_again_at = 0.0
        self._second_look: asyncio.TimerHandle | None = None
        self._is_closed = False

    def send(self, exchange: Exchange) -> None:
        """Send a request as soon as there is a connection for it."""
        if self._is_closed:
            exchange.lose("the client is closed", sent=False)
            return
        if exchange.is_withdrawn():
            return
        loop = asyncio.get_running_loop()
        if self._tls is not None and loop.time() >= self._look_again_at:
            self._look_again_at = loop.time() + self._timing.certificate_check_seconds
            self._follow_files(self._tls)
        while self._free:
            connection = self._free.pop()
            if connection.is_usable:
                exchange.timer = loop.call_later(exchange.timeout, exchange.time_is_up)
                connection.start(exchange)
                return
        exchange.ends_at = loop.time() + exchange.timeout
        # The wait for a connection ends a little before the whole request would, to distinguish a
        # request that never left from one that may have arrived.
        wait = min(self._connect_timeout, exchange.timeout * 0.8)
        exchange.timer = loop.call_later(wait, self._waited_in_vain, exchange)
        self._waiting.append(exchange)
        self._grow()

    async def close(self) -> None:
        """Close every connection; what is under way fails with `ConnectionLost`."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._second_look is not None:
            self._second_look.cancel()
        opening = list(self._opening)
        await cancelled(opening)
        while self._waiting:
            self._waiting.popleft().lose("the client was closed", sent=False)
        for connection in list(self._open):
            connection.give_up("the client was closed")
        # The loop closes a socket some iterations later, also one that was being connected.
        for _ in range(_CLOSING_ROUNDS):
            if not self._open and not opening:
                break
            await asyncio.sleep(0)

    # --- the connections' calls ---------------------------------------------------------------

    def has_answered(self, connection: Connection) -> None:
        """Take note of the first whole answer over *connection*."""
        self._answers_elsewhere()
        # A session is of the certificate that it began with.
        if self._tls is not None and connection.context is self._tls.context:
            self._tls.remember(connection.tls)

    def is_free(self, connection: Connection) -> None:
        """Let *connection* take the next request that waits, or keep it."""
        loop = asyncio.get_running_loop()
        if self._tls is not None and connection.context is not self._tls.context:
            connection.abort()
            return
        while self._waiting and connection.is_usable:
            exchange = self._waiting.popleft()
            if exchange.answer.done() or exchange.is_withdrawn():
                continue
            exchange.stop_timer()
            exchange.timer = loop.call_at(exchange.ends_at, exchange.time_is_up)
            connection.start(exchange)
            return
        connection.free_since = loop.time()
        self._free.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(KEEPALIVE_SECONDS, self._sweep)

    def is_gone(self, connection: Connection) -> None:
        """Forget *connection*."""
        self._open.pop(connection, None)
        with contextlib.suppress(ValueError):
            self._free.remove(connection)
        if not self._is_closed:
            self._grow()

    def has_been_silent(self, since: float) -> None:
        """Trust no kept connection: one has not answered what was sent *since*.

        Whatever dropped it, such as a load balancer that lost its connections, also drops what the
        others send, and each would cost a request its time-out.
        """
        self._doubted_since = since
        self._abort_free()

    def _answers_elsewhere(self) -> None:
        """The server answers over a new connection: give up streams that it is silent on.

        The streams themselves would notice after a minute or two, without news until then.
        """
        since, self._doubted_since = self._doubted_since, None
        loop = asyncio.get_running_loop()
        if since is None or loop.time() < self._doubt_again_at:
            return
        self._give_up_silent(since)
        # What ended in the middle of a burst was heard after the first request that was lost.
        if self._second_look is None:
            self._second_look = loop.call_later(
                self._timing.stream_recheck_seconds,
                self._look_again,
                asyncio.get_running_loop().time(),
            )

    def _look_again(self, since: float) -> None:
        self._second_look = None
        self._give_up_silent(since)

    def _give_up_silent(self, since: float) -> None:
        """End the streams that have brought nothing *since* (monotonic)."""
        for connection in [c for c in self._open if c.is_silent_since(since)]:
            self._doubt_again_at = asyncio.get_running_loop().time() + _DOUBT_SECONDS
            connection.give_up("silent, while the server answers over another connection")

    # --- opening and closing ------------------------------------------------------------------

    def _grow(self) -> None:
        """Open connections for the requests that wait, up to the limit."""
        while (
            len(self._opening) < min(len(self._waiting), MOST_OPENING)
            and len(self._open) + len(self._opening) < self._most
        ):
            task = asyncio.ensure_future(self._connect_one())
            self._opening.add(task)
            task.add_done_callback(self._has_opened)

    def _has_opened(self, task: "asyncio.Task[None]") -> None:
        self._opening.discard(task)
        if not self._is_closed:
            self._grow()

    async def _connect_one(self) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._connect()
        except TimeoutError:
            self._fail_one(TimedOut("no connection in time", sent=False))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._fail_one(ConnectionLost(self._describe(error), sent=False))
        else:
            if not connection.is_usable:
                self._fail_one(ConnectionLost("the server hung up at once", sent=False))
                return
            self._open[connection] = None
            self.is_free(connection)

    def _follow_files(self, tls: TlsContext) -> ssl.SSLContext:
        """The TLS settings of new connections.

        Kept connections are closed when theirs are different: for as long as a connection lasts, a
        server goes by the certificate that it began with, and refuses it once it has expired.
        """
        before = tls.context
        tls.follow(self._credentials.endpoint)
        if tls.context is not before:
            self._abort_free()
        return tls.context

    def _abort_free(self) -> None:
        free, self._free = self._free, []
        for connection in free:
            connection.abort()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        context = self._follow_files(self._tls) if self._tls is not None else None
        sock = await aiohappyeyeballs.start_connection(
            await self._resolve(),
            happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY,
            socket_factory=_kept_alive_socket,
        )
        connection = Connection(self, self._scratch, context, now=loop.time)
        try:
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=context,
                server_hostname=self._server_hostname,
            )
        except BaseException:
            connection.abort()
            sock.close()
            raise
        return connection

    async def _resolve(self) -> Sequence[aiohappyeyeballs.AddrInfoType]:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._resolve_again_at:
            self._addresses = await loop.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
            self._resolve_again_at = loop.time() + _ADDRESS_SECONDS
        return self._addresses

    def _fail_one(self, error: ApiError) -> None:
        """Fail the request that has waited longest with the reason why it gets no connection."""
        self._resolve_again_at = 0.0
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.answer.done():
                error.request = exchange.label
                exchange.fail(error)
                return

    def _waited_in_vain(self, exchange: Exchange) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(exchange)
        exchange.fail(TimedOut("no connection in time", sent=False, request=exchange.label))

    def _sweep(self) -> None:
        """Close the connections that have been idle for long: those at the front."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        # The same sum as below: with another one, rounding has this called again and again.
        while self._free and self._free[0].free_since + KEEPALIVE_SECONDS <= loop.time():
            self._free.pop(0).abort()
        if self._free:
            at = self._free[0].free_since + KEEPALIVE_SECONDS
            self._sweeper = loop.call_at(at, self._sweep)

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted: {error.verify_message}"
        return f"cannot connect to {self._host}:{self._port}: {error or type(error).__name__}"


def _kept_alive_socket(address: aiohappyeyeballs.AddrInfoType) -> socket.socket:
    """A socket that notices within about a minute that the other side is silently gone."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Not every system has all of them (TCP_KEEPIDLE is Linux's name).
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
