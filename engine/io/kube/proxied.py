"""The way to the API server through an HTTP proxy, as a kubeconfig's `proxy-url` asks for.

Owns translating the errors of the HTTP library. It costs several times what the direct way costs;
a server behind a proxy is farther away anyway.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
from yarl import URL

from engine.io.kube.config import Credentials, TlsContext
from engine.io.kube.errors import ConnectionLost, TimedOut, error_from_answer
from engine.io.kube.pool import KEEPALIVE_SECONDS
from engine.io.kube.transport import JSON, Observer, Pieces, Request, user_agent
from engine.telemetry.spans import answered

_ERRORS_OF_CONNECTING: Final = (
    aiohttp.ClientConnectorError,  # refused, unreachable, unknown host, bad certificate
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientProxyConnectionError,
    aiohttp.ClientHttpProxyError,  # the proxy itself says no
    aiohttp.InvalidURL,
)


class _AnswerLost(aiohttp.ClientError):
    """A write whose answer did not arrive."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the library from sending a PUT or DELETE again on another connection.

    It does so when a kept connection breaks. The first may have been carried out, and then the
    second is answered with a Conflict or NotFound, as if another client had done it.
    """
    try:
        return await handler(request)
    except _ERRORS_OF_CONNECTING:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _AnswerLost(_describe(error)) from error


_SEND_ONCE = (_send_once,)


class ProxiedTransport:
    """Sends through *proxy*. Belongs to the event loop of its first request.

    Args:
        server: The API server's URL.
        proxy: The proxy's URL; None for the direct way.
        credentials: Where the client certificate is.
        tls: None for plain HTTP.
        connections: Most connections.
        connect_timeout: Longest wait for a connection, in seconds.
    """

    def __init__(
        self,
        server: URL,
        proxy: str | None,
        credentials: Credentials,
        tls: TlsContext | None,
        *,
        connections: int,
        connect_timeout: float,
    ) -> None:
        self._base = str(server).rstrip("/")
        self._proxy = proxy
        self._credentials = credentials
        self._tls = tls
        self._server_hostname = credentials.endpoint.tls_server_name
        self._connections = connections
        self._connect_timeout = connect_timeout
        self.observer: Observer | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> bytes:
        """The body of the answer to *request*."""
        try:
            async with self._exchange(request) as answer:
                body = await answer.read()
        except BaseException as error:
            if request.span is not None:
                answered(request.span, getattr(error, "status", 0), error)
            raise
        if request.span is not None:
            answered(request.span, answer.status, None)
        return body

    def send_now(self, request: Request) -> "asyncio.Future[bytes] | None":
        """None: requests through a proxy need a task."""
        return None

    async def head(self, request: Request) -> Mapping[str, str]:
        """The fields of the head of the answer to *request*."""
        async with self._exchange(request) as answer:
            await answer.read()
            return answer.headers

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Pieces]:
        """The body of the answer to *request*, piece by piece."""
        async with self._exchange(request) as answer:
            yield answer.content.iter_any()

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def _exchange(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, yield an answer of 2xx, and translate whatever goes wrong inside."""
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if request.authorization is not None:
            headers["Authorization"] = request.authorization
        if request.span is not None:
            headers["traceparent"] = request.span.traceparent
        if self._tls is not None:
            self._tls.follow(self._credentials.endpoint)
        session = self._open_session()
        label = request.label
        if request.may_send is not None and not request.may_send():
            raise ConnectionLost("it must not be sent any more", sent=False, request=label)
        connect = min(self._connect_timeout, request.timeout * 0.8)
        began, status = asyncio.get_running_loop().time(), 0
        try:
            async with session.request(
                request.method,
                URL(self._base + request.target, encoded=True),
                data=request.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=request.timeout, connect=connect),
                allow_redirects=False,
                proxy=self._proxy,
                ssl=self._tls.context if self._tls is not None else True,
                server_hostname=self._server_hostname,
                middlewares=_SEND_ONCE if request.method in ("PUT", "DELETE") else None,
            ) as answer:
                status = answer.status
                self._observe(request, status, began)
                if not 200 <= answer.status < 300:
                    text = await answer.read()
                    raise error_from_answer(
                        answer.status, text, headers=answer.headers, request=label
                    )
                yield answer
        except _ERRORS_OF_CONNECTING as failure:
            self._observe(request, 0, began)
            if isinstance(failure, aiohttp.ConnectionTimeoutError):
                raise TimedOut("no connection in time", sent=False, request=label) from failure
            raise ConnectionLost(_describe(failure), sent=False, request=label) from failure
        except TimeoutError as failure:  # also the library's own, which derive from it
            self._observe(request, 0, began, unless=status)
            raise TimedOut("no answer in time", request=label) from failure
        except (aiohttp.ClientError, OSError) as failure:
            self._observe(request, 0, began, unless=status)
            raise ConnectionLost(_describe(failure), sent=True, request=label) from failure
        except RuntimeError as failure:
            if not session.closed:
                raise
            raise ConnectionLost("the client was closed", sent=True, request=label) from failure

    def _observe(self, request: Request, status: int, began: float, unless: int = 0) -> None:
        """Report *request*; not if it was reported with the status *unless*."""
        if self.observer is not None and not unless:
            seconds = asyncio.get_running_loop().time() - began
            self.observer(request.method, status, seconds, len(request.body or b""))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    keepalive_timeout=KEEPALIVE_SECONDS,
                ),
                headers={
                    "User-Agent": user_agent(),
                    "Accept": JSON,
                    "Accept-Encoding": "identity",
                },
                cookie_jar=aiohttp.DummyCookieJar(),
                # A list of 500 large objects in few reads; also the most that a slow reader of a
                # watch buffers before the server is made to wait.
                read_bufsize=1 << 20,
            )
        return self._session


def _describe(error: BaseException) -> str:
    """What happened, for people; the library's messages carry no header and no body."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refuses: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        inner: BaseException = error.os_error
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted: {inner.verify_message}"
        return f"cannot connect to {error.host}:{error.port}: {inner}"
    return str(error) or type(error).__name__
