"""Connections to a port of a pod, through the API server, as `kubectl port-forward` makes them.

Owns the protocol: a WebSocket to the pod's `portforward` subresource, which the API server passes
to the kubelet. Each message is one byte for the channel (0 the data, 1 errors) and its bytes; the
first of each channel from there is the port. Who may do it is the cluster's RBAC.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from engine.io.kube.client import ApiClient
from engine.io.kube.config import TlsContext
from engine.io.kube.errors import ConnectionLost, TimedOut, error_from_answer
from engine.lib.background import cancelled

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES: Final = 2
_PIECE: Final = 1 << 16
_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0


class PodConnector(aiohttp.BaseConnector):
    """Connects an `aiohttp` session to *port* of a pod; the host of an address is not looked at.

    A request fails with `ApiError` if the API server refuses the way there. The kubelet answers
    later: a request then fails as one does whose server hangs up, and `failure` says why.

    Args:
        client: The API server.
        namespace, pod, port: Where to.
        tls: Speak TLS with the port by these settings; None: plain.
        tls_name: The name to expect in its certificate, if *tls* looks at names.

    Attributes:
        failure: What the kubelet said when it could not connect; "" if it has not.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        pod: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str = "localhost",
    ) -> None:
        super().__init__()
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        self._port = port
        self._tls, self._tls_name = tls, tls_name
        self._running: set[asyncio.Task[None]] = set()
        self.failure = ""

    async def _create_connection(
        self,
        req: Any,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # the base class's
    ) -> ResponseHandler:
        opened: asyncio.Future[None] = self._loop.create_future()
        ours, theirs = socket.socketpair()
        try:
            copying = asyncio.ensure_future(self._forward(theirs, opened))
            self._running.add(copying)
            copying.add_done_callback(self._running.discard)
            await opened
            _, protocol = await self._loop.create_unix_connection(
                self._factory,
                sock=ours,
                ssl=self._tls,
                server_hostname=self._tls_name if self._tls is not None else None,
            )
        except BaseException:
            ours.close()
            raise
        return protocol

    async def stop(self) -> None:
        """Close all connections."""
        await self.close()
        # Each ends by itself once its near end is closed, and closes its connection in order.
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_SECONDS)
        await cancelled(list(self._running))

    async def _forward(self, near: socket.socket, opened: "asyncio.Future[None]") -> None:
        """Copy between *near* and the pod until either ends; *opened* once the API server lets."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                far = await stack.enter_async_context(self._dialled())
                reader, writer = await asyncio.open_unix_connection(sock=near)
            except BaseException as error:
                near.close()
                if not opened.done():
                    opened.set_exception(error)
                return
            stack.push_async_callback(_closed, writer)
            if not opened.done():
                opened.set_result(None)
            both = [
                asyncio.ensure_future(self._send(reader, far)),
                asyncio.ensure_future(self._receive(far, writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancelled(both)

    @contextlib.asynccontextmanager
    async def _dialled(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        client, label = self._client, f"GET {self._path}"
        credentials = client.credentials
        where = credentials.endpoint
        header = await credentials.authorization()
        tls = TlsContext(where).context if client.server.startswith("https") else None
        async with aiohttp.ClientSession() as session:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    far = await session.ws_connect(
                        URL(f"{client.server}{self._path}?ports={self._port}", encoded=True),
                        protocols=(PROTOCOL,),
                        headers={} if header is None else {"Authorization": header},
                        max_msg_size=0,
                        proxy=where.proxy,
                        ssl=tls if tls is not None else True,
                        server_hostname=where.tls_server_name,
                    )
            except TimeoutError as error:
                raise TimedOut("no answer in time", sent=True, request=label) from error
            except aiohttp.WSServerHandshakeError as error:
                raise error_from_answer(error.status, b"", request=label) from error
            except aiohttp.ClientError as error:
                raise ConnectionLost(str(error), sent=True, request=label) from error
            # Its connection is the session's, which waits until it is closed.
            yield far

    async def _send(
        self, reader: asyncio.StreamReader, far: aiohttp.ClientWebSocketResponse
    ) -> None:
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while data := await reader.read(_PIECE):
                await far.send_bytes(bytes([_DATA]) + data)

    async def _receive(
        self, far: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter
    ) -> None:
        skipped = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        said = bytearray()
        with contextlib.suppress(ConnectionError):
            async for message in far:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, rest = message.data[0], message.data[1:]
                skip = min(skipped.get(channel, len(rest)), len(rest))
                if channel in skipped:
                    skipped[channel] -= skip
                rest = rest[skip:]
                if channel == _DATA:
                    writer.write(rest)
                    await writer.drain()
                elif channel == _ERROR and rest:
                    said += rest
                    self.failure = f"the kubelet says: {said.decode(errors='replace').strip()}"
                    return


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
