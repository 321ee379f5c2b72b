"""Requests to the API server: raw bytes in, raw bytes out, over one pool of kept connections.

Owns paths and queries, retry of a rejected credential, watch streams and paged lists; how bytes get
there is the transport's business. Does not decode objects and does not retry: callers know what a
failure means for them. Every failure is an `ApiError` of `errors.py`.
"""

import asyncio
import copy
import email.utils
import os
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from engine.io.kube.config import (
    Credentials,
    Endpoint,
    FixedCredentials,
    TlsContext,
    cluster_credentials,
    kubeconfig_credentials,
    server_url,
)
from engine.io.kube.direct import DirectTransport
from engine.io.kube.errors import (
    ApiError,
    ConnectionLost,
    ServerError,
    Unauthorized,
    error_from_answer,
)
from engine.io.kube.pool import PoolTiming
from engine.io.kube.proxied import ProxiedTransport
from engine.io.kube.resources import PODS, Resource
from engine.io.kube.transport import JSON, READS, Observer, Request, Transport, user_agent
from engine.lib.clock import Clock, SystemClock
from engine.lib.deep_json import UNREADABLE, decoded_deeply
from engine.telemetry.spans import request_span

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

DEFAULT_TIMEOUT = 30.0
#: The longest wait for a connection; the rest of a request's time-out is the server's.
CONNECT_TIMEOUT = 10.0
WATCH_SECONDS = 300
WATCH_GRACE = 15.0


class Page(NamedTuple):
    """One page of a list. Items lack `kind` and `apiVersion`, as the API sends them."""

    items: list[msgspec.Raw]
    resource_version: str
    remaining: int


class _PageMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource_version: Annotated[str, msgspec.Meta(min_length=1)]
    next_token: str = msgspec.field(name="continue", default="")
    remaining_item_count: int = 0


class _ListAnswer(msgspec.Struct, frozen=True, gc=False):
    # Neither has a default: what is not there must not pass for an empty list.
    metadata: _PageMeta
    items: list[msgspec.Raw] | None


class _WatchEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_decode_list = msgspec.json.Decoder(_ListAnswer).decode
_decode_event = msgspec.json.Decoder(_WatchEvent).decode
_encode = msgspec.json.Encoder().encode


class ApiClient:
    """A client of one API server.

    `new --first request--> open --close()--> closed`. Use as an async context manager, or call
    `close`. Belongs to the event loop of its first request.

    Args:
        endpoint: Server and fixed credentials, or a source of credentials.
        connections: Most connections at once; watches hold one each, bindings share the rest.
        connect_timeout: Longest wait for a connection, in seconds.
        timing: How often kept connections are checked; connections of a proxy are not.
        rng: Jitter of the waits of all who use it.
        clock: Time, for all who use it.
    """

    def __init__(
        self,
        endpoint: Endpoint | Credentials,
        *,
        connections: int = 256,
        connect_timeout: float = CONNECT_TIMEOUT,
        timing: PoolTiming | None = None,
        rng: random.Random | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._credentials: Credentials = (
            FixedCredentials(endpoint) if isinstance(endpoint, Endpoint) else endpoint
        )
        where = self._credentials.endpoint
        self._server = server_url(where)
        self._base = str(self._server).rstrip("/")
        tls = TlsContext(where) if self._server.scheme == "https" else None
        limits: dict[str, Any] = {"connections": connections, "connect_timeout": connect_timeout}
        self._transport: Transport = (
            DirectTransport(
                self._server, self._credentials, tls, timing=timing or PoolTiming(), **limits
            )
            if where.proxy is None
            else ProxiedTransport(self._server, where.proxy, self._credentials, tls, **limits)
        )
        self.rng = rng or random.Random()
        self.clock = clock or SystemClock()
        self._is_closed = False
        self._may_write: Callable[[], bool] | None = None

    def fenced(self, may_write: Callable[[], bool]) -> "ApiClient":
        """A client over the same connections whose writes are sent only while *may_write*.

        That is asked just before a write leaves, however long it has waited for a connection; one
        that is not sent fails with `ConnectionLost`. Through a proxy it is asked when the wait
        begins. Close the original, not this one.
        """
        fenced = copy.copy(self)
        fenced._may_write = may_write
        return fenced

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

    def observe(self, observer: Observer) -> None:
        """Pass every request from now on to *observer*."""
        self._transport.observer = observer

    @property
    def server(self) -> str:
        """The server's URL, without credentials."""
        return self._base

    @property
    def host(self) -> str:
        """The server's name or address, and port."""
        return self._server.raw_authority

    @property
    def credentials(self) -> Credentials:
        """What requests are sent with; for connections that are no requests."""
        return self._credentials

    def __repr__(self) -> str:
        return f"ApiClient({self._base})"

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests and streams under way fail with `ConnectionLost`."""
        self._is_closed = True
        await self._transport.close()

    # --- one request --------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # the error must say if it was sent
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
        request = Request(method, _target(path, params), timeout, body, content_type)
        if method not in READS:
            request.may_send = self._may_write
        await self._authorize(request)
        try:
            return await self._send(request)
        except Unauthorized:
            # Nothing was carried out. Try again if there is a fresher credential.
            if not await self._has_new_credential(request):
                raise
        return await self._send(request)

    async def server_version(self, *, timeout: float = DEFAULT_TIMEOUT) -> str:  # noqa: ASYNC109
        """The server's version, as `v1.38.0`. Raises `ApiError`."""
        body = await self.request("GET", "/version", timeout=timeout)
        try:
            return str(msgspec.json.decode(body)["gitVersion"])
        except (*UNREADABLE, KeyError, TypeError) as error:
            raise ApiError("not the answer of an API server") from error

    async def server_time(self, *, timeout: float = DEFAULT_TIMEOUT) -> float | None:  # noqa: ASYNC109
        """The server's clock in Unix seconds, by the date of an answer, which has whole seconds.

        None if the answer has no date. Raises `ApiError`.
        """
        # Kept connections forget the heads of answers; this is asked once.
        where = self._credentials.endpoint
        tls = TlsContext(where) if self._server.scheme == "https" else None
        transport = ProxiedTransport(
            self._server,
            where.proxy,
            self._credentials,
            tls,
            connections=1,
            connect_timeout=CONNECT_TIMEOUT,
        )
        request = Request("GET", _target("/version", None), timeout)
        await self._authorize(request)
        try:
            fields = await transport.head(request)
        finally:
            await transport.close()
        try:
            return email.utils.parsedate_to_datetime(fields.get("Date", "")).timestamp()
        except ValueError:
            return None

    async def _send(self, request: Request) -> bytes:
        request.span = request_span(request.method, request.target)
        return await self._transport.send(request)

    async def _authorize(self, request: Request) -> None:
        if self._is_closed:
            raise ConnectionLost("the client is closed", sent=False, request=request.label)
        credentials = self._credentials
        request.authorization = (
            await credentials.authorization() if credentials.is_due else credentials.header
        )

    async def _has_new_credential(self, request: Request) -> bool:
        """True if there is another credential than the one that *request* was refused with."""
        refused = request.authorization
        fresh = await self._credentials.authorization(rejected=refused or "")
        request.authorization = fresh
        return fresh != refused

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
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> bytes:
        """Delete an object; *body* is a `DeleteOptions` (preconditions, grace period)."""
        path = resource.path(namespace, name)
        return await self.request("DELETE", path, body=body, timeout=timeout)

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
        request = _binding(namespace, name, uid, node, annotations, timeout)
        await self.request("POST", request.target, body=request.body, timeout=timeout)

    def bind_now(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        *,
        annotations: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> "asyncio.Future[bytes] | None":
        """As `bind`, without a task of its own; None if something has to be waited for first.

        The future fails as `bind` does, except that a refused credential (`Unauthorized`) is not
        renewed here. The caller takes its exception.
        """
        if self._is_closed or self._credentials.is_due:
            return None
        request = _binding(namespace, name, uid, node, annotations, timeout)
        request.authorization = self._credentials.header
        request.may_send = self._may_write
        request.span = request_span(request.method, request.target)
        return self._transport.send_now(request)

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
                answer = decoded_deeply(_decode_list, body)
            except UNREADABLE as error:
                raise ServerError(
                    f"want a list of {resource}, got something else: {error}", request=f"GET {path}"
                ) from error
            meta = answer.metadata
            yield Page(answer.items or [], meta.resource_version, meta.remaining_item_count)
            if not meta.next_token:
                return
            params["continue"] = meta.next_token
            params.pop("resourceVersion", None)  # the token holds it

    async def check_version(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109  # passed on
    ) -> None:
        """Return if the server has come as far as *resource_version*.

        Raises `ServerError` with the cause `ResourceVersionTooLarge` if it has not, after giving it
        some seconds: it is behind another one that we spoke to, or was set back to a backup.
        """
        params = {
            **_selection(field_selector, label_selector),
            "limit": "1",
            "resourceVersion": resource_version,
            "resourceVersionMatch": "NotOlderThan",
        }
        await self.request("GET", resource.path(namespace), params=params, timeout=timeout)

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
            Gone: The resourceVersion is too old, reported by status or by an ERROR event.
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
        # the hang is noticed no later, and a server that trickles events forever is one too.
        request = Request("GET", _target(path, params), timeout_seconds + grace)
        await self._authorize(request)
        # Libraries' line readers refuse long lines; a node with many images or a pod with many
        # variables is longer than that.
        parts: list[bytes] = []
        try:
            async with self._transport.stream(request) as pieces:
                async for piece in pieces:
                    *lines, rest = piece.split(b"\n")
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
        except Unauthorized:
            await self._has_new_credential(request)  # the next stream begins with it
            raise
        if parts:
            raise ConnectionLost("the stream ended inside an event", sent=True, request=label)


def _target(path: str, params: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(params, quote_via=quote)}" if params else path


def _binding(
    namespace: str,
    name: str,
    uid: str,
    node: str,
    annotations: Mapping[str, str] | None,
    timeout: float,
) -> Request:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
    if annotations:
        metadata["annotations"] = dict(annotations)
    body = _encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )
    return Request("POST", PODS.path(namespace, name, "binding"), timeout, body)


def _raise_if_error(line: bytes, label: str) -> None:
    try:
        event = decoded_deeply(_decode_event, line)
    except UNREADABLE:
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


__all__ = [
    "APPLY_PATCH",
    "JSON",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiClient",
    "ApiError",
    "Endpoint",
    "Page",
    "user_agent",
]
