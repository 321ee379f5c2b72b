"""One kept connection: an HTTP/1.1 request goes out as one write, its answer is read by hand.

Owns the framing of answers, and what is known of a request whose connection broke. At most one
request is under way on a connection. Which connection takes a request is the pool's business, what
an answer means the client's.

A library for this costs several times what the kernel and TLS cost, and a binding is little more
than a request: see "I/O" in docs/architecture.md.
"""

import asyncio
import ssl
import time
import zlib
from collections import deque
from typing import Final, Protocol, cast

from engine.kube.errors import ApiError, ConnectionLost, TimedOut, error_from_answer

_HEAD_END: Final = b"\r\n\r\n"
_MOST_HEAD: Final = 1 << 17
_MOST_LINE: Final = 1 << 12
#: A stream that holds more than this unread makes the server wait.
_MOST_UNREAD: Final = 1 << 20

# How the body under way is framed: bytes left of a known length, or one of these.
_CHUNKED: Final = -1
_UNTIL_CLOSE: Final = -2
# What comes next of a chunked body: so many bytes of a chunk, or one of these.
_SIZE_LINE: Final = 0
_CHUNK_END: Final = -1
_TRAILER: Final = -2


class Owner(Protocol):
    """What a connection reports to."""

    def is_free(self, connection: "Connection") -> None:
        """It has read a whole answer and can take the next request."""

    def has_answered(self, connection: "Connection") -> None:
        """It has read its first whole answer."""

    def is_gone(self, connection: "Connection") -> None:
        """It is closed."""

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
        stream: Takes the body of a 2xx answer piece by piece; the answer is then b"".
        timer: What ends the exchange when its time is up.
    """

    __slots__ = (
        "answer", "connection", "ends_at", "label", "may_repeat", "request", "stream", "timeout",
        "timer",
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
    ) -> None:
        self.answer = answer
        self.request = request
        self.label = label
        self.timeout = timeout
        self.ends_at = 0.0
        self.may_repeat = may_repeat
        self.stream = stream
        self.timer: asyncio.TimerHandle | None = None
        self.connection: Connection | None = None

    def lose(self, message: str, *, sent: bool) -> None:
        """End it: the connection could not be made, or broke."""
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
        """Nobody waits for it any more."""
        self.stop_timer()
        connection, self.connection = self.connection, None
        self.answer.cancel()
        if connection is not None:
            connection.abort()

    def stop_timer(self) -> None:
        """Its time does not matter any more."""
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
        scratch: What has just been read, for a moment. All connections of a loop may share it: the
            event loop hands over what it has read before it reads anything else. Without it TLS
            allocates a quarter of a megabyte for each read.
        context: The TLS settings that it is opened with; None for plain HTTP.
    """

    def __init__(
        self, owner: Owner, scratch: memoryview, context: ssl.SSLContext | None = None
    ) -> None:
        self._owner = owner
        self.context = context
        self._scratch = scratch
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._is_fresh = True  # has not taken a request yet
        self.free_since = 0.0
        self._asked_at = 0.0  # monotonic, as the next one
        self._heard_at = 0.0  # of a stream
        # The answer under way.
        self._rest = b""  # of a head or line that is not whole yet
        self._head = b""
        self._lower = b""  # the same in lower case
        self._status = 0
        self._left = 0
        self._chunk = _SIZE_LINE
        self._stream: Stream | None = None
        self._parts: list[bytes] = []

    # --- the transport's calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can take a request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._transport = None
        exchange = self._exchange
        if exchange is not None and self._head and self._left == _UNTIL_CLOSE and exc is None:
            self._finish(exchange)
        elif exchange is not None:
            self._exchange = None
            nothing_arrived = not self._head and not self._rest
            if exchange.may_repeat and nothing_arrived and not self._is_fresh:
                # It was closed while nobody used it, and the request crossed the news of that.
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
        self._received(bytes(self._scratch[:nbytes]))

    def _received(self, data: bytes) -> None:
        if self._exchange is None:
            self.abort()  # nobody asked
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        try:
            at = 0
            if not self._head:
                at = self._read_head(data)
                if at < 0:
                    return
            self._read_body(data, at)
        except ValueError as error:
            exchange, self._exchange = self._exchange, None
            if exchange is not None:
                exchange.lose(f"not an HTTP answer: {error}", sent=True)
            self.abort()

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
        self._asked_at = time.monotonic()
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
        """Close it at once, without waiting for the other side's farewell."""
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

    # --- reading an answer --------------------------------------------------------------------

    def _read_head(self, data: bytes) -> int:
        """Read status and framing; where the body starts, or -1 if the head is not whole yet."""
        at = 0
        while True:
            end = data.find(_HEAD_END, at)
            if end < 0:
                if len(data) - at > _MOST_HEAD:
                    raise ValueError("a head without end")
                self._rest = data[at:]
                return -1
            status = data[at + 9 : at + 12]
            if data[at : at + 7] != b"HTTP/1." or not status.isdigit():
                raise ValueError("no status line")
            self._status = int(status)
            head, at = data[at:end], end + len(_HEAD_END)
            if self._status >= 200:
                break
            if self._status == 101:
                raise ValueError("another protocol")
        self._head = head
        self._lower = lower = head.lower()
        if b"\r\ntransfer-encoding:" in lower:
            if _field(lower, b"\r\ntransfer-encoding:") != b"chunked":
                raise ValueError("unknown transfer encoding")
            self._left = _CHUNKED
            self._chunk = _SIZE_LINE
        elif self._status in (204, 304):
            self._left = 0
        elif b"\r\ncontent-length:" in lower:
            length = _field(lower, b"\r\ncontent-length:")
            if not length.isdigit():
                raise ValueError("a length that is no number")
            self._left = int(length)
        else:
            self._left = _UNTIL_CLOSE
        exchange = self._exchange
        assert exchange is not None
        if exchange.stream is not None and 200 <= self._status < 300:
            self._stream = exchange.stream
            if not exchange.answer.done():
                exchange.answer.set_result(b"")
        return at

    def _read_body(self, data: bytes, at: int) -> None:
        left = self._left
        if left == _CHUNKED:
            self._read_chunks(data, at)
            return
        if left == _UNTIL_CLOSE:
            if at < len(data):
                self._take(data[at:])
            return
        size = len(data) - at
        if size < left:
            if size:
                self._left = left - size
                self._take(data[at:])
            return
        if left:
            self._take(data[at : at + left])
        self._whole(is_clean=size == left)

    def _read_chunks(self, data: bytes, at: int) -> None:
        end = len(data)
        while at < end:
            if self._chunk > 0:
                piece = data[at : at + self._chunk]
                at += len(piece)
                # A chunk's end follows the last byte of it.
                self._chunk = self._chunk - len(piece) or _CHUNK_END
                self._take(piece)
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if end - at > _MOST_LINE:
                    raise ValueError("a line without end")
                self._rest = data[at:]
                return
            line, at = data[at:line_end], line_end + 2
            if self._chunk == _SIZE_LINE:
                size = int(line.partition(b";")[0], 16)
                if size < 0:
                    raise ValueError("a chunk of negative size")
                self._chunk = size or _TRAILER
            elif self._chunk == _CHUNK_END:
                if line:
                    raise ValueError("a chunk that is longer than it says")
                self._chunk = _SIZE_LINE
            elif not line:
                self._whole(is_clean=at == end)
                return

    def _take(self, piece: bytes) -> None:
        if self._stream is not None:
            self._heard_at = time.monotonic()
            self._stream.feed(self, piece)
        else:
            self._parts.append(piece)

    def _whole(self, *, is_clean: bool) -> None:
        """The answer is whole: be free, or close if the server will."""
        exchange, lower = self._exchange, self._lower
        # Bytes beyond the answer belong to no request.
        closes = not is_clean or b"\r\nconnection: close" in lower or lower[:8] == b"http/1.0"
        if exchange is not None:
            self._finish(exchange)
        if closes:
            self.abort()
        else:
            if self._is_fresh:
                self._is_fresh = False
                self._owner.has_answered(self)
            self._owner.is_free(self)

    def _finish(self, exchange: Exchange) -> None:
        parts, head, status, stream = self._parts, self._head, self._status, self._stream
        self._exchange = None
        self._head, self._stream = b"", None
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
        if b"\r\ncontent-encoding:" in self._lower and body:  # it was asked not to
            try:
                body = zlib.decompress(body, wbits=47)  # gzip or zlib, by their first bytes
            except zlib.error as error:
                exchange.lose(f"cannot be unpacked: {error}", sent=True)
                return
        if 200 <= status < 300:
            exchange.answer.set_result(body)
        else:
            exchange.answer.set_exception(
                error_from_answer(status, body, headers=_fields(head), request=exchange.label)
            )


def _field(head: bytes, name: bytes) -> bytes:
    """The value of the field *name* (`\\r\\nname:`) in *head*, both in lower case."""
    at = head.index(name) + len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].strip()


def _fields(head: bytes) -> dict[str, str]:
    """The fields of an answer's head by their names, as `Retry-After`."""
    fields: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.decode("latin-1").strip().title()] = value.decode("latin-1").strip()
    return fields
