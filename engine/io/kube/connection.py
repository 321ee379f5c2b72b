"""A keep-alive connection: an HTTP/1.1 request is one write, `httptools` parses the answer.

Owns what is known about a request whose connection broke. At most one request is under way on a
connection. Which connection takes a request is the pool's business, what an answer means the
client's.

A whole HTTP client costs several times what the kernel and TLS cost, and a binding is little more
than a request: see "I/O" in docs/architecture.md.
"""

import asyncio
import ssl
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

from engine.io.kube.errors import ApiError, ConnectionLost, TimedOut, error_from_answer

#: Bytes of an answer before its body; the parser has no bound of its own.
_MAX_HEAD: Final = 1 << 17
#: What a packed answer may unpack to: one is a thousandth of what it stands for.
_MOST_UNPACKED: Final = 256 << 20
#: A stream that holds more than this unread makes the server wait.
_MOST_UNREAD: Final = 1 << 20


class Owner(Protocol):
    """What a connection reports to."""

    def is_free(self, connection: "Connection") -> None:
        """Called when it has read a whole answer and can take the next request."""

    def has_answered(self, connection: "Connection") -> None:
        """Called when it has read its first whole answer."""

    def is_gone(self, connection: "Connection") -> None:
        """Called when it is closed."""

    def has_been_silent(self, since: float) -> None:
        """A kept connection has not answered in time what was sent *since* (monotonic)."""

    def send(self, exchange: "Exchange") -> None:
        """Send *exchange* over another connection."""


class Exchange:
    """One request and its answer.

    `new --sent--> under way --> answered`; any but the last `--fail--> failed`.

    Attributes:
        answer: The body of a 2xx answer, later; everything else is an `ApiError`. Cancelling it
            gives the request up.
        request: Everything that is written, head and body.
        label: Method and path, for messages.
        timeout: Seconds for everything, the wait for a connection included.
        may_repeat: True if it changes nothing, so that it may be sent again on a fresh connection
            when a kept one turns out to be closed. Anything else could be carried out twice.
        may_send: See `Request`.
        status: Of the answer, once its head has arrived.
        stream: Takes the body of a 2xx answer piece by piece; the answer is then b"".
        timer: Ends the exchange when its time is up.
    """

    __slots__ = (
        "answer", "connection", "ends_at", "label", "may_repeat", "may_send", "request", "status",
        "stream", "timeout", "timer",
    )  # fmt: skip

    def __init__(
        self,
        answer: "asyncio.Future[bytes]",
        request: bytes,
        label: str,
        timeout: float,
        *,
        may_repeat: bool = False,
        stream: "Stream | None" = None,
        may_send: Callable[[], bool] | None = None,
    ) -> None:
        self.answer = answer
        self.request = request
        self.label = label
        self.timeout = timeout
        self.ends_at = 0.0
        self.may_repeat = may_repeat
        self.may_send = may_send
        self.status = 0
        self.stream = stream
        self.timer: asyncio.TimerHandle | None = None
        self.connection: Connection | None = None

    def is_withdrawn(self) -> bool:
        """True, and it has failed, if it must not be sent any more."""
        if self.may_send is None or self.may_send():
            return False
        self.lose("it must not be sent any more", sent=False)
        return True

    def lose(self, message: str, *, sent: bool) -> None:
        """End it with `ConnectionLost`: the connection could not be made, or broke."""
        self.fail(ConnectionLost(message, sent=sent, request=self.label))

    def fail(self, error: ApiError) -> None:
        """End it with *error*, unless it has ended."""
        self.stop_timer()
        self.connection = None
        if not self.answer.done():
            self.answer.set_exception(error)
        elif self.stream is not None:
            self.stream.end(error)

    def time_is_up(self) -> None:
        """The server has not answered in time: the connection is of no use any more."""
        connection = self.connection
        self.fail(TimedOut("no answer in time", request=self.label))
        if connection is not None:
            connection.time_is_up()

    def abandon(self) -> None:
        """Abandon the exchange: its result is not needed any more."""
        self.stop_timer()
        connection, self.connection = self.connection, None
        self.answer.cancel()
        if connection is not None:
            connection.abort()

    def stop_timer(self) -> None:
        """Cancel the timer: its time does not matter any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Stream:
    """The body of an answer that goes on and on, read as it arrives. One reader."""

    __slots__ = ("_connection", "_ended", "_error", "_is_paused", "_pieces", "_size", "_waiter")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._error: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._connection: Connection | None = None
        self._is_paused = False

    def feed(self, connection: "Connection", piece: bytes) -> None:
        """Take in more of the body, from *connection*."""
        self._connection = connection
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MOST_UNREAD and not self._is_paused:
            self._is_paused = True
            connection.pause()
        self._wake()

    def end(self, error: ApiError | None = None) -> None:
        """The body is whole, or *error* has ended it; what arrived before can still be read."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    async def read(self) -> bytes:
        """Everything that has arrived, at least a byte; b"" at the end. Raises `ApiError`."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        pieces = self._pieces
        got = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._is_paused and self._connection is not None:
            self._is_paused = False
            self._connection.resume()
        return got

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.BufferedProtocol):
    """A connection to the API server.

    `new --connected--> free --start--> busy --answer--> free`; any `--lost, abort--> closed`.

    Args:
        owner: What it reports to.
        scratch: The read buffer. All connections of a loop may share it: the event loop hands over
            what it has read before it reads anything else. Without it TLS allocates a quarter of a
            megabyte for each read.
        context: The TLS settings that it is opened with; None for plain HTTP.
        now: The monotonic clock of the loop.
    """

    def __init__(
        self,
        owner: Owner,
        scratch: memoryview,
        context: ssl.SSLContext | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._now = now
        self.context = context
        self._scratch = scratch
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._is_fresh = True  # has not taken a request yet
        self.free_since = 0.0
        self._asked_at = 0.0  # monotonic, as the next one
        self._heard_at = 0.0  # of a stream
        # The answer under way.
        self._parser = httptools.HttpResponseParser(self)
        self._head_size = 0  # bytes that arrived before the body
        self._status = 0  # 0: the head is not whole yet
        self._fields: list[tuple[bytes, bytes]] = []
        self._is_whole = False
        self._is_last = False  # the connection cannot carry another answer
        self._stream: Stream | None = None
        self._parts: list[bytes] = []

    # --- the transport's calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note that requests can be sent."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that either side has closed it."""
        self._transport = None
        del self._parser  # it refers to this connection
        exchange = self._exchange
        if exchange is not None and exc is None and self._status and self._ends_with_connection():
            self._finish(exchange)
        elif exchange is not None:
            self._exchange = None
            nothing_arrived = not self._status and not self._head_size
            if exchange.may_repeat and nothing_arrived and not self._is_fresh:
                # It was closed while it was idle, and the request crossed the news of that.
                exchange.may_repeat = False
                exchange.stop_timer()
                self._owner.send(exchange)
            else:
                exchange.lose(str(exc or "") or "the server hung up", sent=True)
        self._owner.is_gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what it reads."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """More of the answer has arrived."""
        exchange = self._exchange
        if exchange is None:
            self.abort()  # there is no request that this could answer
            return
        if not self._status:
            self._head_size += nbytes
        try:
            self._parser.feed_data(self._scratch[:nbytes])
            if not self._status and self._head_size > _MAX_HEAD:
                raise httptools.HttpParserError("a head without end")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_last = True
            if not self._is_whole:
                self._exchange = None
                exchange.lose(f"not an HTTP answer: {_reason(error)}", sent=True)
                self.abort()
                return
        if self._is_whole:
            self._whole(exchange)

    # --- the owner's calls --------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """True if it is open, as far as is known here."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """Its TLS side; None without."""
        if self._transport is None:
            return None
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

    def start(self, exchange: Exchange) -> None:
        """Send a request; the connection is free and usable."""
        assert self._transport is not None
        assert self._exchange is None
        self._exchange = exchange
        exchange.connection = self
        self._asked_at = self._now()
        self._transport.write(exchange.request)

    def is_silent_since(self, moment: float) -> bool:
        """True if it carries a stream that brought nothing after *moment* (monotonic)."""
        exchange = self._exchange
        is_stream = exchange is not None and exchange.stream is not None
        return is_stream and max(self._asked_at, self._heard_at) < moment

    def time_is_up(self) -> None:
        """Close it at once: its request was not answered in time."""
        self.abort()
        if not self._is_fresh:
            self._owner.has_been_silent(self._asked_at)

    def give_up(self, message: str) -> None:
        """Close it at once; a request under way may have arrived."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lose(message, sent=True)
        self.abort()

    def abort(self) -> None:
        """Close it at once, without waiting for the other side to close."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`, so that the server has to wait."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- the parser's calls -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins; if it is a second one, it belongs to no request."""
        if self._is_whole:
            self._is_last = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head, or of the trailer."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole, of the answer or of an interim one."""
        if self._is_whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise ValueError("another protocol")
            self._fields.clear()
            return
        self._status = status
        if not self._parser.should_keep_alive():
            self._is_last = True
            if self._field(b"transfer-encoding") not in (None, b"chunked"):
                raise ValueError("unknown transfer encoding")
        exchange = self._exchange
        assert exchange is not None
        exchange.status = status
        if exchange.stream is not None and 200 <= status < 300:
            self._stream = exchange.stream
            if not exchange.answer.done():
                exchange.answer.set_result(b"")

    def on_body(self, piece: bytes) -> None:
        """A piece of the body, without its framing."""
        if self._is_whole:
            return
        if self._stream is not None:
            self._heard_at = self._now()
            self._stream.feed(self, piece)
        else:
            self._parts.append(piece)

    def on_message_complete(self) -> None:
        """The answer is whole, or an interim one."""
        self._is_whole = self._status != 0

    # --- the end of an answer -----------------------------------------------------------------

    def _ends_with_connection(self) -> bool:
        """True if the answer under way has no framing but the end of the connection."""
        framing = self._field(b"content-length"), self._field(b"transfer-encoding")
        return framing == (None, None)

    def _whole(self, exchange: Exchange) -> None:
        """The answer is whole: be free, or close if the server will."""
        self._finish(exchange)
        if self._is_last:
            self.abort()
        else:
            if self._is_fresh:
                self._is_fresh = False
                self._owner.has_answered(self)
            self._owner.is_free(self)

    def _finish(self, exchange: Exchange) -> None:
        parts, fields, status, stream = self._parts, self._fields, self._status, self._stream
        encoding = self._field(b"content-encoding") if parts else None
        self._exchange = None
        self._status, self._head_size, self._is_whole = 0, 0, False
        self._fields, self._stream = [], None
        exchange.connection = None
        exchange.stop_timer()
        if stream is not None:
            stream.end()
            return
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if parts:
            self._parts = []
        if exchange.answer.done():  # cancelled
            return
        if encoding is not None:  # though the request allows none
            try:
                body = _unpacked(body)
            except zlib.error as error:
                exchange.lose(f"cannot be unpacked: {error}", sent=True)
                return
        if 200 <= status < 300:
            exchange.answer.set_result(body)
        else:
            headers = {n.decode("latin-1").title(): v.decode("latin-1") for n, v in fields}
            exchange.answer.set_exception(
                error_from_answer(status, body, headers=headers, request=exchange.label)
            )

    def _field(self, name: bytes) -> bytes | None:
        """The value of a field of the answer's head by its name, in lower case."""
        for key, value in self._fields:
            if len(key) == len(name) and key.lower() == name:
                return value.lower()
        return None


def _unpacked(body: bytes) -> bytes:
    """The content of a packed body. Raises `zlib.error`, also if it is too large."""
    unpacking = zlib.decompressobj(wbits=47)  # gzip or zlib, by their first bytes
    content = unpacking.decompress(body, _MOST_UNPACKED)
    if not unpacking.eof:
        is_large = len(content) >= _MOST_UNPACKED
        raise zlib.error(f"larger than {_MOST_UNPACKED:,} bytes" if is_large else "cut off")
    return content


def _reason(error: Exception) -> str:
    """What a parser's error says; of one in a callback, what that raised."""
    return str(error.__context__ or error)
