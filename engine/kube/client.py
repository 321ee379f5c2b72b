"""Requests to the API server: raw bytes in, raw bytes out, over one pool of kept connections.

Owns sending, time-outs, retry of a rejected credential, watch streams and paged lists. Does not
decode objects and does not retry: callers know what a failure means for them. Every failure is an
`ApiError` of `errors.py`; no error of the HTTP library leaves this module.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from importlib import metadata
from typing import Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from engine.kube.config import (
    Credentials,
    Endpoint,
    FixedCredentials,
    TlsContext,
    cluster_credentials,
    kubeconfig_credentials,
    server_url,
)
from engine.kube.errors import (
    ApiError,
    ConnectionLost,
    ServerError,
    TimedOut,
    Unauthorized,
    error_from_answer,
)
from engine.kube.resources import PODS, Resource

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

DEFAULT_TIMEOUT = 30.0
#: The longest wait for a connection; the rest of a request's time-out is the server's.
CONNECT_TIMEOUT = 10.0
#: Idle connections are kept for less than the API server keeps them (90 s), so that a request
#: seldom meets a connection that the server is closing.
KEEPALIVE_SECONDS = 60.0
WATCH_SECONDS = 300
WATCH_GRACE = 15.0
#: Turns of the event loop that `close` gives the transports to end.
_CLOSING_ROUNDS = 20

_ERRORS_OF_CONNECTING = (
    aiohttp.ClientConnectorError,  # refused, unreachable, unknown host, bad certificate
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientProxyConnectionError,
    aiohttp.InvalidURL,
)


class _AnswerLost(aiohttp.ClientError):
    """A write whose answer did not arrive."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the library from sending a PUT or DELETE again on another connection.

    It does so when a kept connection breaks. The first may have been carried out, and then the
    second is answered with a Conflict or NotFound that would be taken for somebody else's doing.
    """
    try:
        return await handler(request)
    except _ERRORS_OF_CONNECTING:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _AnswerLost(_describe(error)) from error


_SEND_ONCE = (_send_once,)


def user_agent() -> str:
    """`starsched/<version>`."""
    try:
        return f"starsched/{metadata.version('starsched')}"
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "starsched/0.0.0"


class Page(NamedTuple):
    """One page of a list. Items lack `kind` and `apiVersion`, as the API sends them."""

    items: list[msgspec.Raw]
    resource_version: str
    remaining: int


class _PageMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource_version: str = ""
    next_token: str = msgspec.field(name="continue", default="")
    remaining_item_count: int = 0


class _ListAnswer(msgspec.Struct, frozen=True, gc=False):
    metadata: _PageMeta = _PageMeta()
    items: list[msgspec.Raw] | None = None


class _WatchEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_decode_list = msgspec.json.Decoder(_ListAnswer).decode
_decode_event = msgspec.json.Decoder(_WatchEvent).decode


class ApiClient:
    """A client of one API server.

    `new --first request--> open --close()--> closed`. Use as an async context manager, or call
    `close`. Belongs to the event loop of its first request.

    Args:
        endpoint: Server and fixed credentials, or a source of credentials.
        connections: Most connections at once; watches hold one each, bindings share the rest.
        connect_timeout: Longest wait for a connection, in seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint | Credentials,
        *,
        connections: int = 256,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self._credentials: Credentials = (
            FixedCredentials(endpoint) if isinstance(endpoint, Endpoint) else endpoint
        )
        where = self._credentials.endpoint
        self._server = server_url(where)
        self._base = str(self._server).rstrip("/")
        self._tls = TlsContext(where) if self._server.scheme == "https" else None
        self._server_hostname = where.tls_server_name
        self._proxy = where.proxy
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    @classmethod
    async def from_kubeconfig(
        cls, path: str | os.PathLike[str] | None = None, context: str | None = None
    ) -> "ApiClient":
        """A client for a kubeconfig's context (None: `$KUBECONFIG` or `~/.kube/config`, current).

        Raises `KubeConfigError` if it cannot be used.
        """
        return cls(await kubeconfig_credentials(path, context))

    @classmethod
    async def from_cluster(cls) -> "ApiClient":
        """A client for the cluster this pod runs in, as its ServiceAccount.

        Raises `KubeConfigError` outside of a cluster.
        """
        return cls(cluster_credentials())

    @property
    def server(self) -> str:
        """The server's URL, without credentials."""
        return self._base

    def __repr__(self) -> str:
        return f"ApiClient({self._base})"

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests and streams under way fail with `ConnectionLost`."""
        self._is_closed = True
        if self._session is None:
            return
        await self._session.close()
        # A TLS connection closes with a farewell, which a hung server never answers; hanging up
        # below it lets the transports end now instead of lingering until the loop is gone.
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for _ in range(_CLOSING_ROUNDS):
            if all(sock.fileno() == -1 for sock in self._sockets):
                break
            await asyncio.sleep(0)

    # --- one request --------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # the error must tell if it was sent
    ) -> bytes:
        """Send one request and return the whole answer's body.

        Args:
            method: HTTP method.
            path: URL path, its parts already escaped.
            body: Request body, or None.
            content_type: Of *body*.
            params: Query parameters.
            timeout: Seconds for everything, the connection included.

        Raises the `ApiError` that the answer, the connection or the clock calls for.
        """
        limits = aiohttp.ClientTimeout(
            # The wait for a connection ends a little before the whole request would, so that a
            # request that never left is told from one that may have arrived.
            total=timeout,
            connect=min(self._connect_timeout, timeout * 0.8),
        )
        try:
            async with self._exchange(method, path, body, content_type, params, limits) as answer:
                return await answer.read()
        except Unauthorized as error:
            # Nothing was carried out. Once more, if there is a fresher credential.
            if not error.has_new_credential:
                raise
        async with self._exchange(method, path, body, content_type, params, limits) as answer:
            return await answer.read()

    @contextlib.asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, yield an answer of 2xx, and translate whatever goes wrong inside."""
        label = f"{method} {path}"
        if self._is_closed:
            raise ConnectionLost("the client is closed", sent=False, request=label)
        headers = {"Content-Type": content_type} if body is not None else {}
        authorization = await self._credentials.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        if self._tls is not None:
            self._tls.follow(self._credentials.endpoint)
        session = self._open_session()
        url = URL(self._base + path, encoded=True)
        try:
            async with session.request(
                method,
                url.with_query(params) if params else url,
                data=body,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._server_hostname,
                middlewares=_SEND_ONCE if method in ("PUT", "DELETE") else None,
            ) as answer:
                if not 200 <= answer.status < 300:
                    text = await answer.read()
                    error = error_from_answer(
                        answer.status, text, headers=answer.headers, request=label
                    )
                    if isinstance(error, Unauthorized):
                        fresh = await self._credentials.authorization(rejected=authorization or "")
                        error.has_new_credential = fresh != authorization
                    raise error
                yield answer
        except _ERRORS_OF_CONNECTING as failure:
            if isinstance(failure, aiohttp.ConnectionTimeoutError):
                raise TimedOut("no connection in time", sent=False, request=label) from failure
            raise ConnectionLost(_describe(failure), sent=False, request=label) from failure
        except TimeoutError as failure:  # also the library's own, which derive from it
            raise TimedOut("no answer in time", request=label) from failure
        except (aiohttp.ClientError, OSError) as failure:
            raise ConnectionLost(_describe(failure), sent=True, request=label) from failure
        except RuntimeError as failure:
            if not session.closed:
                raise
            raise ConnectionLost("the client was closed", sent=True, request=label) from failure

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    ssl=self._tls.context if self._tls is not None else True,
                    keepalive_timeout=KEEPALIVE_SECONDS,
                    socket_factory=self._open_socket,
                ),
                headers={
                    "User-Agent": user_agent(),
                    "Accept": JSON,
                    # Inside a cluster, packing costs both sides more than the bytes it saves.
                    "Accept-Encoding": "identity",
                },
                cookie_jar=aiohttp.DummyCookieJar(),
                # A list of 500 large objects in few reads; also the most that a slow reader of a
                # watch buffers before the server is made to wait.
                read_bufsize=1 << 20,
            )
        return self._session

    def _open_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        sock = _kept_alive_socket(address)
        self._sockets.add(sock)
        return sock

    # --- objects ------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """One object. Raises `NotFound` if there is none."""
        path = resource.path(namespace, name, subresource)
        return await self.request("GET", path, params=params, timeout=timeout)

    async def create(
        self,
        resource: Resource,
        body: bytes,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """Create an object (or post to *subresource* of *name*) and return it as stored.

        Raises `AlreadyExists` if the name is taken.
        """
        path = resource.path(namespace, name, subresource)
        return await self.request("POST", path, body=body, params=params, timeout=timeout)

    async def update(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """Replace an object and return it as stored.

        Raises `Conflict` if *body* carries a resourceVersion that is not the current one.
        """
        path = resource.path(namespace, name, subresource)
        return await self.request("PUT", path, body=body, params=params, timeout=timeout)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: str = STRATEGIC_MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """Change parts of an object and return it as stored."""
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "PATCH", path, body=body, content_type=content_type, params=params, timeout=timeout
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """Delete an object; *body* is a `DeleteOptions` (preconditions, grace period)."""
        path = resource.path(namespace, name)
        return await self.request("DELETE", path, body=body, params=params, timeout=timeout)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        *,
        annotations: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> None:
        """Place a pod on a node; *annotations* are added to the pod's in the same step.

        Raises `Conflict` if the pod has another uid or is already bound (even to *node*), and
        `NotFound` if it is gone. When an error says `may_have_taken_effect`, read the pod.
        """
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": metadata,
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
        )
        await self.request(
            "POST", PODS.path(namespace, name, "binding"), body=body, timeout=timeout
        )

    # --- lists and watches --------------------------------------------------------------------

    async def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # per page
    ) -> AsyncGenerator[Page, None]:
        """List a resource page by page; all pages show the same moment.

        Args:
            resource: What to list.
            namespace: Of one namespace; None for all.
            field_selector: Such as `status.phase!=Failed`.
            label_selector: Such as `app=web`.
            limit: Objects per page; 0 for all in one answer.
            resource_version: "" for the newest state; "0" for whatever the server has at hand.
            timeout: Seconds per page.

        Raises `Gone` between pages if the moment is compacted away: start again.
        """
        params = _selection(field_selector, label_selector)
        if limit:
            params["limit"] = str(limit)
        if resource_version:
            params["resourceVersion"] = resource_version
        path = resource.path(namespace)
        while True:
            body = await self.request("GET", path, params=params, timeout=timeout)
            try:
                answer = _decode_list(body)
            except msgspec.DecodeError as error:
                raise ServerError(
                    f"want a list of {resource}, got something else: {error}", request=f"GET {path}"
                ) from error
            meta = answer.metadata
            yield Page(answer.items or [], meta.resource_version, meta.remaining_item_count)
            if not meta.next_token:
                return
            params["continue"] = meta.next_token
            params.pop("resourceVersion", None)  # the token holds it

    async def stream(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        timeout_seconds: int = WATCH_SECONDS,
        grace: float = WATCH_GRACE,
        bookmarks: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Watch a resource: yield each event's raw line, of any length, until the server closes.

        Close the iterator (`contextlib.aclosing`) when leaving early.

        Args:
            resource: What to watch.
            resource_version: Events after this one, exclusive.
            namespace: Of one namespace; None for all.
            field_selector: Objects that leave it are sent as DELETED.
            label_selector: Likewise.
            timeout_seconds: The server is asked to close after this time.
            grace: A watch still open this long after that hangs.
            bookmarks: Ask for BOOKMARK events, about one a minute.

        Raises:
            Gone: The resourceVersion is too old, told by status or by an ERROR event.
            TimedOut: The watch hangs.
            ConnectionLost: It broke.
            ApiError: Any other refusal or ERROR event.
        """
        path = resource.path(namespace)
        label = f"WATCH {path}"
        params = {
            "watch": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            **_selection(field_selector, label_selector),
        }
        if bookmarks:
            params["allowWatchBookmarks"] = "true"
        # A healthy server has closed by then. Counted from the start and not from the last event:
        # the hang is noticed no later, and a server that trickles events for ever is one too.
        limits = aiohttp.ClientTimeout(total=timeout_seconds + grace, connect=self._connect_timeout)
        # The library's own line reader refuses long lines; a node with many images or a pod with
        # many variables is longer than that.
        parts: list[bytes] = []
        async with self._exchange("GET", path, None, JSON, params, limits) as answer:
            async for chunk in answer.content.iter_any():
                *lines, rest = chunk.split(b"\n")
                if lines and parts:
                    lines[0] = b"".join(parts) + lines[0]
                    parts.clear()
                if rest:
                    parts.append(rest)
                for line in lines:
                    if not line:
                        continue
                    # A substring search is all that ordinary lines pay.
                    if b'"ERROR"' in line:
                        _raise_if_error(line, label)
                    yield line
        if parts:
            raise ConnectionLost("the stream ended inside an event", sent=True, request=label)


def _raise_if_error(line: bytes, label: str) -> None:
    try:
        event = _decode_event(line)
    except msgspec.DecodeError:
        return  # the reader of the stream counts and skips it
    if event.type == "ERROR":
        raise error_from_answer(0, bytes(event.object), request=label)


def _selection(field_selector: str, label_selector: str) -> dict[str, str]:
    params = {}
    if field_selector:
        params["fieldSelector"] = field_selector
    if label_selector:
        params["labelSelector"] = label_selector
    return params


def _describe(error: BaseException) -> str:
    """What happened, for people; the library's messages carry no header and no body."""
    if isinstance(error, aiohttp.ClientConnectorError):
        inner: BaseException = error.os_error
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted: {inner.verify_message}"
        return f"cannot connect to {error.host}:{error.port}: {inner}"
    return str(error) or type(error).__name__


def _kept_alive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within about a minute that the other side is silently gone."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of them (TCP_KEEPIDLE is Linux's name).
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


__all__ = [
    "APPLY_PATCH",
    "JSON",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiClient",
    "ApiError",
    "Endpoint",
    "Page",
]
