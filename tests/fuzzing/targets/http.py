"""Answers of an API server as bytes, in arbitrary pieces, over one connection."""

import asyncio
import functools
import random
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from engine.io.kube.connection import Connection, Exchange, Stream
from engine.io.kube.errors import ApiError
from tests.engine.io.kube.test_connection import Owner, Wire

#: Requests that one connection is used for.
_REQUESTS: Final = 3
_SCRATCH: Final = memoryview(bytearray(1 << 16))
#: What an answer may grow to when it is unpacked.
_MOST_UNPACKED: Final = 256 << 20


def run(data: bytes) -> None:
    """Read *data* as answers, whole and in pieces: the first request has the same outcome.

    Later ones may differ: an answer that comes with the one before it belongs to no request.
    """
    for is_stream in (False, True):
        whole, pieces = (_heard(one, is_stream=is_stream) for one in ([data], cut(data)))
        assert pieces[:1] == whole[:1], "the outcome depends on the pieces"


def cut(data: bytes) -> Iterator[bytes]:
    """*data* in pieces, always the same ones."""
    rng = random.Random(zlib.crc32(data))
    most = rng.choice((1, 3, 20, 500))
    at = 0
    while at < len(data):
        size = rng.randint(1, most)
        yield data[at : at + size]
        at += size


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """An event loop for all inputs."""
    return asyncio.new_event_loop()


_Outcome = tuple[str, object]


def _heard(pieces: Iterable[bytes], *, is_stream: bool) -> list[_Outcome]:
    """The outcome of each request: its answer, or the kind of its error."""
    owner, wire = Owner(), Wire()
    connection = Connection(owner, _SCRATCH)
    connection.connection_made(wire)
    exchanges: list[Exchange] = []

    def ask() -> None:
        exchange = Exchange(
            loop().create_future(),
            b"GET / HTTP/1.1\r\n\r\n",
            "GET /",
            1.0,
            may_repeat=True,
            stream=Stream() if is_stream else None,
        )
        exchanges.append(exchange)
        connection.start(exchange)

    ask()
    for piece in pieces:
        if wire.is_aborted:
            break
        _SCRATCH[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        if owner.freed == len(exchanges) < _REQUESTS and not wire.is_aborted:
            ask()
    connection.connection_lost(None)
    outcomes = [_outcome(one) for one in exchanges if one not in owner.sent_again]
    assert owner.freed <= len(exchanges)
    return outcomes


def _outcome(exchange: Exchange) -> _Outcome:
    answer = exchange.answer
    assert answer.done(), "a request without an outcome"
    error = answer.exception()
    if error is not None:
        assert isinstance(error, ApiError), repr(error)
        str(error)
        return type(error).__name__, error.status
    body = answer.result()
    assert len(body) <= _MOST_UNPACKED
    if exchange.stream is None:
        return "answered", body
    return "streamed", loop().run_until_complete(_read(exchange.stream))


async def _read(stream: Stream) -> tuple[bytes, str]:
    parts = []
    try:
        while piece := await asyncio.wait_for(stream.read(), 5):
            parts.append(piece)
    except ApiError as error:
        return b"".join(parts), type(error).__name__
    return b"".join(parts), ""
