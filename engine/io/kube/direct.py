"""The straight way to the API server: requests as bytes over a pool of kept connections.

Owns the form of requests. A binding costs one write and one read of a socket, and no task.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

from yarl import URL

from engine.io.kube.config import Credentials, TlsContext
from engine.io.kube.connection import Exchange, Stream
from engine.io.kube.errors import KubeConfigError
from engine.io.kube.pool import Pool, PoolTiming
from engine.io.kube.transport import READS, Observer, Pieces, Request, user_agent
from engine.telemetry.spans import answered


class DirectTransport:
    """Sends straight to the server. Belongs to the event loop of its first request.

    Args:
        server: Its URL.
        credentials: Where the client certificate is.
        tls: None for plain HTTP.
        connections: Most connections.
        connect_timeout: Longest wait for a connection, in seconds.
        timing: How often the pool checks certificate files and streams.
    """

    def __init__(
        self,
        server: URL,
        credentials: Credentials,
        tls: TlsContext | None,
        *,
        connections: int,
        connect_timeout: float,
        timing: PoolTiming,
    ) -> None:
        assert server.host is not None
        assert server.port is not None
        self._base = server.raw_path.rstrip("/")
        self._pool = Pool(
            server.host,
            server.port,
            credentials=credentials,
            tls=tls,
            server_hostname=credentials.endpoint.tls_server_name,
            most=connections,
            connect_timeout=connect_timeout,
            timing=timing,
        )
        # Inside a cluster, packing costs both sides more than the bytes it saves.
        self._fields = (
            f"Host: {server.raw_authority}\r\nUser-Agent: {user_agent()}\r\n"
            "Accept: application/json\r\nAccept-Encoding: identity\r\n"
        )
        self.observer: Observer | None = None
        self._authorization: str | None = None
        self._head_end = self._fields

    async def send(self, request: Request) -> bytes:
        """The body of the answer to *request*."""
        exchange = self._start(request)
        try:
            return await exchange.answer
        except asyncio.CancelledError:
            exchange.abandon()
            raise

    def send_now(self, request: Request) -> "asyncio.Future[bytes] | None":
        """The body of the answer to *request*, later."""
        return self._start(request).answer

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Pieces]:
        """The body of the answer to *request*, piece by piece."""
        stream = Stream()
        exchange = self._start(request, stream)
        try:
            await exchange.answer
            yield _pieces(stream)
        finally:
            exchange.abandon()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    def _start(self, request: Request, stream: Stream | None = None) -> Exchange:
        exchange = Exchange(
            asyncio.get_running_loop().create_future(),
            self._encode(request),
            request.label,
            request.timeout,
            may_repeat=request.method in READS,
            stream=stream,
            may_send=request.may_send,
        )
        if self.observer is not None or request.span is not None:
            report = partial(
                _report, self.observer, request, exchange, asyncio.get_running_loop().time()
            )
            exchange.answer.add_done_callback(report)
        self._pool.send(exchange)
        return exchange

    def _encode(self, request: Request) -> bytes:
        if request.authorization != self._authorization:
            self._authorize(request.authorization)
        head = f"{request.method} {self._base}{request.target} HTTP/1.1\r\n{self._head_end}"
        if request.span is not None:
            head += f"traceparent: {request.span.traceparent}\r\n"
        body = request.body
        if body is None:
            if request.method in READS:
                return f"{head}\r\n".encode()
            return f"{head}Content-Length: 0\r\n\r\n".encode()
        fields = f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"{head}{fields}".encode() + body

    def _authorize(self, value: str | None) -> None:
        """Send *value* from now on."""
        if value is not None and not value.isprintable():
            # What a credential plugin prints must not become a header of its own.
            raise KubeConfigError("credentials: want a token, got control characters")
        line = f"Authorization: {value}\r\n" if value is not None else ""
        self._authorization, self._head_end = value, self._fields + line


def _report(
    observer: Observer | None,
    request: Request,
    exchange: Exchange,
    began: float,
    answer: "asyncio.Future[bytes]",
) -> None:
    if request.span is not None:
        error = asyncio.CancelledError("given up") if answer.cancelled() else answer.exception()
        answered(request.span, exchange.status, error)
    if observer is not None and not answer.cancelled():
        seconds = asyncio.get_running_loop().time() - began
        observer(request.method, exchange.status, seconds, len(request.body or b""))


async def _pieces(stream: Stream) -> AsyncIterator[bytes]:
    while piece := await stream.read():
        yield piece
