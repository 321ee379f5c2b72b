"""Cheap requests: encoded in advance, over keep-alive TLS connections, parsed by `httptools`.

A load generator that shares two cores with the scheduler must stay small: a POST costs about 50 us
of CPU here. Owns sending; what is sent is `objects`' and `workloads`'. Watches and lists, which are
few, go through aiohttp. A connection that is lost twice is an error: the servers are ours.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import aiohttp
import httptools
import msgspec

from engine.io.kube.config import Endpoint

#: Answers that carry only metadata: what the API server encodes for us is small, and the same
#: whichever scheduler is measured (a JSON watch of whole pods would share the encoding with ours).
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class WireError(Exception):
    """The server refused a request or the connection broke; the message has its answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one answer; `body` is as sent, without chunk framing."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    """One kept connection with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._request = b""
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            why = exc or "closed by server"
            error = WireError(f"{_line(self._request)}: connection lost: {why}")
            self._waiting.set_exception(error)
        self._transport = None

    @property
    def is_lost(self) -> bool:
        """True once the server has closed it: another one is needed."""
        return self._transport is None

    def send(self, request: bytes) -> "asyncio.Future[Answer]":
        """The answer to *request*, later."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(WireError("connection lost between two requests"))
            return future
        assert self._waiting is None or self._waiting.done()
        self._waiting = future
        self._request = request
        self._transport.write(request)
        return future

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not self._parser.should_keep_alive():
            self.close()
        assert self._waiting is not None
        if not self._waiting.done():  # cancelled meanwhile
            self._waiting.set_result(Answer(self._parser.get_status_code(), body))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


def _line(request: bytes) -> str:
    """The method and path of *request*."""
    return request[: request.find(b" HTTP")].decode("ascii")


class _WatchedMetadata(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _WatchedObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _WatchedMetadata = _WatchedMetadata()


class WatchedName(msgspec.Struct, frozen=True, gc=False):
    """A watch event of which only the names and labels matter."""

    type: str
    object: _WatchedObject = _WatchedObject()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.object.metadata.namespace}/{self.object.metadata.name}"


class Wire:
    """Connections to one API server. Use as an async context manager.

    Args:
        endpoint: Server, token and authority.
        in_flight: Connections, and so the most creations under way at once.
    """

    def __init__(self, endpoint: Endpoint, *, in_flight: int = 16) -> None:
        where = urlsplit(endpoint.server)
        assert where.hostname is not None
        self._server = endpoint.server
        self._host, self._port = where.hostname, where.port or 443
        self._tls = (
            ssl.create_default_context(cafile=endpoint.ca_file) if where.scheme == "https" else None
        )
        self._authorization = f"Bearer {endpoint.token}" if endpoint.token else ""
        self._in_flight = in_flight
        self._connections: list[_Connection] = []
        self._free: asyncio.Queue[int] = asyncio.Queue()  # places of `_connections`
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Wire":
        for place in range(self._in_flight):
            self._connections.append(await self._connect())
            self._free.put_nowait(place)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True),
            headers={"Authorization": self._authorization} if self._authorization else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=1 << 20,
        )
        return self

    async def _connect(self) -> _Connection:
        _, protocol = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port, ssl=self._tls
        )
        return protocol

    async def _connection(self, place: int) -> _Connection:
        """The connection at *place*; a new one if the server closed it between two requests."""
        if self._connections[place].is_lost:
            self._connections[place] = await self._connect()
        return self._connections[place]

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        if self._session is not None:
            await self._session.close()

    def encode(
        self, method: str, path: str, body: Any, *, content_type: str = "application/json"
    ) -> bytes:
        """The whole request as bytes, so that sending it is one write."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        authorization = f"Authorization: {self._authorization}\r\n" if self._authorization else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{authorization}"
            f"Accept: {METADATA_ONLY}, application/json\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return head.encode("ascii") + content

    async def send_all(
        self,
        requests: Iterable[bytes],
        *,
        on_sent: Callable[[int], None] | None = None,
        on_done: Callable[[int], None] | None = None,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        """Send every request, `in_flight` at a time. Not to be mixed with `send`.

        Args:
            requests: From `encode`.
            on_sent: Called with the place in *requests* just before it is written.
            on_done: Called with the place when the answer has come.
            pause: Seconds to wait before sending the request at a place (0 or less: none).

        Raises `WireError` if one is refused.
        """
        todo: Iterator[tuple[int, bytes]] = enumerate(requests)

        async def work(worker: int) -> None:
            for place, request in todo:
                if pause is not None and (seconds := pause(place)) > 0:
                    await asyncio.sleep(seconds)
                connection = await self._connection(worker)
                if on_sent is not None:
                    on_sent(place)
                answer = await self._answer(worker, connection, request)
                if answer.status >= 300:
                    text = answer.body.decode("utf-8", "replace")
                    raise WireError(f"{_line(request)}: {answer.status} {text}")
                if on_done is not None:
                    on_done(place)

        async with asyncio.TaskGroup() as group:
            for worker in range(self._in_flight):
                group.create_task(work(worker))

    async def send(self, request: bytes) -> Answer:
        """The answer to one request, over the first connection that is free."""
        place = await self._free.get()
        try:
            return await self._answer(place, await self._connection(place), request)
        finally:
            self._free.put_nowait(place)

    async def _answer(self, place: int, connection: _Connection, request: bytes) -> Answer:
        """The answer to *request*, which is sent again if the server hangs up meanwhile.

        What was created by the first of the two is not refused to the second.
        """
        try:
            return await connection.send(request)
        except WireError:
            answer = await (await self._connection(place)).send(request)
            return Answer(200, answer.body) if answer.status == 409 else answer

    async def get(self, path: str, *, accept: str = "application/json") -> bytes:
        """The body of a GET. Raises `WireError` if it is refused."""
        assert self._session is not None
        async with self._session.get(self._server + path, headers={"Accept": accept}) as answer:
            body = await answer.read()
        if answer.status != 200:
            raise WireError(f"GET {path}: {answer.status} {body.decode('utf-8', 'replace')}")
        return body

    async def list_all(self, path: str, *, limit: int = 1000) -> list[dict[str, Any]]:
        """Every object of a list, read page by page."""
        items: list[dict[str, Any]] = []
        token = ""
        joint = "&" if "?" in path else "?"
        while True:
            suffix = f"&continue={token}" if token else ""
            page = msgspec.json.decode(await self.get(f"{path}{joint}limit={limit}{suffix}"))
            items += page.get("items") or []
            token = page["metadata"].get("continue", "")
            if not token:
                return items

    async def watch(self, path: str, *, accept: str = "application/json") -> AsyncIterator[bytes]:
        """The lines of a watch, until the server ends it."""
        assert self._session is not None
        async with self._session.get(self._server + path, headers={"Accept": accept}) as answer:
            if answer.status != 200:
                raise WireError(f"GET {path}: {answer.status} {await answer.text()}")
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
