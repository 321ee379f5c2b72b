"""The HTTP interface of the embedded API server: routing, verbs, watches on the wire, faults.

Owns requests and responses. What a request does to the objects is `api`, what a watch shows is
`watches`, which request gets a fault is `faults`.
"""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import msgspec
import structlog
import yaml
from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from devkit.cluster import access, discovery
from devkit.cluster.access import Access
from devkit.cluster.api import APPLY_PATCH, Api
from devkit.cluster.faults import Call, Faults
from devkit.cluster.kinds import BY_PATH
from devkit.cluster.lists import ListOptions, Page, flag, integer, list_options, parse_revision
from devkit.cluster.selectors import selector
from devkit.cluster.store import Version
from devkit.cluster.tables import as_table
from devkit.cluster.watch_cache import WatchCache
from devkit.cluster.watches import Watch, encoded, typed
from engine.core.manifests import kinds
from engine.core.manifests.errors import (
    ApiStatus,
    bad_request,
    internal_error,
    method_not_allowed,
    no_such_path,
    too_large,
    unauthorized,
    unsupported_media_type,
    version_too_large,
)
from engine.core.manifests.kinds import Kind
from engine.core.manifests.yaml_text import DatelessLoader

Json = dict[str, Any]

log = structlog.get_logger(__name__)

BODY_LIMIT = 3 * 1024 * 1024
# As the real server: a watch without a time-out of its own lives half an hour to an hour.
_WATCH_SECONDS = (1800.0, 3600.0)
# The last bookmark comes this long before a watch ends.
_LAST_BOOKMARK = 2.0
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_JSON = "application/json"
_YAML = ("application/yaml", APPLY_PATCH)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Route:
    """What a path names."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> str:
        """As in fault patterns and the request log: `pods/binding`."""
        tail = f"/{self.subresource}" if self.subresource else ""
        return self.kind.resource + tail


def route_of(path: str) -> Route | None:
    """The resource that *path* names, None if it is not the path of one."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    own = {"", *kinds.NAMESPACES.subresources}
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in own:
        namespace, rest = rest[1], rest[2:]
    if rest[0] == "bindings" and namespace and len(rest) == 1 and not group:
        return Route(kinds.PODS, namespace, "", "binding")
    kind = BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or "" in rest:
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        return None
    # A namespaced object has one path, below its namespace; a cluster-scoped one none there.
    if (kind.namespaced and name and not namespace) or (namespace and not kind.namespaced):
        return None
    return Route(kind, namespace, name, subresource)


class Server:
    """Serves an `Api` over HTTP, with faults.

    Args:
        access: What reviews of tokens and rights answer.
        token: The bearer token that requests must carry; None accepts every request.
        bookmark_interval: Seconds between the bookmarks of watches that want them.
    """

    def __init__(
        self,
        api: Api,
        faults: Faults,
        access: Access,
        *,
        token: str | None,
        bookmark_interval: float,
    ) -> None:
        self._access = access
        self.cache = WatchCache(api.store)
        self.watches: dict[Watch, None] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.stalled_kinds: set[str] = set()
        self._api = api
        self._faults = faults
        self._token = token
        self._bookmark_interval = bookmark_interval
        self._jitter = random.Random(0)
        self._late_requests: set[asyncio.Future[web.StreamResponse]] = set()
        #: Over which the request came that is being carried out.
        self.caller: asyncio.BaseTransport | None = None

    def http_server(self) -> web.Server:
        """The protocol factory to listen with."""
        return web.Server(
            self._handle,
            request_factory=make_request,
            handler_cancellation=True,
            access_log=None,
        )

    # --- one request -----------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._respond(request)
        except ApiStatus as error:
            response = _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            response = _refusal(too_large(BODY_LIMIT))
        except RecursionError:
            response = _refusal(bad_request("the body is nested too deeply"))
        except Exception:
            # A bug here must look like a server's bug to the client, and loud to the developer.
            log.exception("Request failed", method=request.method, path=request.path)
            response = _refusal(ApiStatus(500, "Internal error occurred", details={}))
        if not response.prepared:
            response.headers.update(self._head())
        return response

    def _head(self) -> dict[str, str]:
        """The fields that aiohttp would fill in by the machine's clock and its own version."""
        return {"Date": formatdate(self._api.clock.now(), usegmt=True), "Server": "devcluster"}

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in _HEALTH:
            return web.Response(body=b"ok", content_type="text/plain")
        if path == "/version":
            return _answer(_encode(discovery.VERSION))
        if self._token is not None:
            sent = request.headers.get("Authorization", "")
            if sent != f"Bearer {self._token}":
                raise unauthorized()
        agent = request.headers.get("User-Agent", "")
        route = route_of(path)
        query = dict(request.query) if request.query_string else {}
        if route is not None:
            verb = _verb(request.method, route, query)
            call = Call(verb, route.resource, route.namespace, route.name, path, agent)
        elif path in access.REVIEWS:
            if request.method != "POST":
                raise method_not_allowed()
            verb = "create"
            call = Call(verb, access.REVIEWS[path], "", "", path, agent)
        else:
            return _described(path)
        self.requests[verb, call.resource] += 1
        met = self._faults.striking(call)
        persistent = sum(fault.delay for fault in met if fault.persists)
        if persistent:
            body = await request.read()
            late = asyncio.ensure_future(self._late(persistent, request, verb, route, query, body))
            self._late_requests.add(late)
            late.add_done_callback(self._late_requests.discard)
            return await asyncio.shield(late)
        for fault in met:
            if fault.delay:
                await asyncio.sleep(fault.delay)
            if fault.hangs and not fault.applied:
                await fault.wait_released()
            if fault.page:
                asked = integer(query, "limit")
                query["limit"] = str(min(asked, fault.page) if asked else fault.page)
        ending = next((fault for fault in met if fault.is_final), None)
        if ending and not ending.applied:
            if ending.status:
                raise ending.status
            return _cut(request)
        if verb == "watch" and route is not None:
            return await self._watch(request, route, query)
        body = await request.read() if request.method != "GET" else b""
        if route is None:
            response = _answer(_encode(self._access.review(path, _decoded_review(body))), 201)
        else:
            for _ in range(sum(fault.repeated for fault in met)):
                with contextlib.suppress(ApiStatus):
                    self._carry_out(request, verb, route, query, body)
            response = self._carry_out(request, verb, route, query, body)
        for fault in met:
            if fault.hangs and fault.applied:
                await fault.wait_released()
        if ending:
            if ending.status:
                raise ending.status
            return _cut(request)
        times = max((fault.answers for fault in met), default=1)
        if times > 1 and request.transport is not None:
            response.headers.update(self._head())
            request.transport.write(_raw(response) * times)
            return _Sent()
        return response

    async def _late(
        self,
        seconds: float,
        request: web.BaseRequest,
        verb: str,
        route: Route | None,
        query: dict[str, str],
        body: bytes,
    ) -> web.StreamResponse:
        """Carry the request out after a while, for a sender that may have gone by then."""
        sender = request.transport  # unknown to the request once it has gone
        await asyncio.sleep(seconds)
        try:
            if route is None or verb == "watch":
                raise internal_error("too late")
            return self._carry_out(request, verb, route, query, body, sender)
        except ApiStatus as error:
            return _refusal(error)

    def _carry_out(
        self,
        request: web.BaseRequest,
        verb: str,
        route: Route,
        query: dict[str, str],
        body: bytes,
        sender: asyncio.BaseTransport | None = None,
    ) -> web.Response:
        """Do what the request asks, at once: nothing can happen in between."""
        self.caller = sender or request.transport
        try:
            return self._do(request, verb, route, query, body)
        finally:
            self.caller = None

    def _do(
        self, request: web.BaseRequest, verb: str, route: Route, query: dict[str, str], body: bytes
    ) -> web.Response:
        table = "as=Table" in request.headers.get("Accept", "")
        content_type = request.content_type if body else ""
        match verb:
            case "list":
                options, seen = list_options(query), self.cache.revision
                page = self._api.list(route.kind, route.namespace, options, seen=seen)
                return _answer(self._list_body(route.kind, page, table=table))
            case "get":
                found = self._api.get(route.kind, route.namespace, route.name)
                if table:
                    return _answer(_encode(as_table(route.kind, [found], {}, self._api.now())))
                return _answer(typed(route.kind, found))
            case "create":
                return self._create(route, query, _parsed(route.kind, body, content_type))
            case "update":
                sent = _parsed(route.kind, body, content_type)
                return self._update(route, query, sent)
            case "patch":
                return self._patch(route, query, body, request.content_type)
            case "delete":
                deletion = _delete_options(route.kind, query, body, content_type)
                last, gone = self._api.delete(
                    route.kind, route.namespace, route.name, deletion, dry_run=_is_dry(query)
                )
                return _answer(_deleted(route.kind, last, gone=gone))
        deletion = _delete_options(route.kind, query, body, content_type)
        page = self._api.delete_collection(
            route.kind, route.namespace, list_options(query), deletion
        )
        return _answer(self._list_body(route.kind, page, table=False))

    def _create(self, route: Route, query: dict[str, str], body: Any) -> web.Response:
        dry_run = _is_dry(query)
        if route.subresource == "binding":
            name = route.name or _named(body)
            self._api.bind(route.namespace, name, body, dry_run=dry_run)
            return _answer(_SUCCESS, 201)
        if route.subresource == "eviction":
            self._api.evict(route.namespace, route.name, body, dry_run=dry_run)
            return _answer(_SUCCESS, 201)
        made = self._api.create(
            route.kind, route.namespace, body, dry_run=dry_run, is_strict=_is_strict(query)
        )
        return _answer(typed(route.kind, made), 201)

    def _update(self, route: Route, query: dict[str, str], body: Any) -> web.Response:
        if route.subresource == "finalize":
            return _answer(typed(route.kind, self._api.finalize(route.name, body)))
        if route.subresource == "resize":
            resized = self._api.resize(route.namespace, route.name, body, "")
            return _answer(typed(route.kind, resized))
        updated, is_new = self._api.update(
            route.kind,
            route.namespace,
            route.name,
            body,
            subresource=route.subresource,
            dry_run=_is_dry(query),
            is_strict=_is_strict(query),
        )
        return _answer(typed(route.kind, updated), 201 if is_new else 200)

    def _patch(
        self, route: Route, query: dict[str, str], raw: bytes, content_type: str
    ) -> web.Response:
        body = _parsed(route.kind, raw, content_type, patch=True)
        if route.subresource == "resize":
            resized = self._api.resize(route.namespace, route.name, body, content_type)
            return _answer(typed(route.kind, resized))
        patched, is_new = self._api.patch(
            route.kind,
            route.namespace,
            route.name,
            body,
            content_type,
            subresource=route.subresource,
            manager=query.get("fieldManager", ""),
            force=flag(query, "force"),
            dry_run=_is_dry(query),
            is_strict=_is_strict(query),
        )
        return _answer(typed(route.kind, patched), 201 if is_new else 200)

    def _list_body(self, kind: Kind, page: Page, *, table: bool) -> bytes:
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining:
            metadata["remainingItemCount"] = page.remaining
        if table:
            return _encode(as_table(kind, page.versions, metadata, self._api.now()))
        return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
            kind.kind.encode(),
            kind.api_version.encode(),
            _encode(metadata),
            b",".join([encoded(kind, version) for version in page.versions]),
        )

    def forget_requests(self) -> None:
        """Carry out nothing that has come so far."""
        for late in self._late_requests:
            late.cancel()

    # --- watches ---------------------------------------------------------------------------

    async def _watch(
        self, request: web.BaseRequest, route: Route, query: dict[str, str]
    ) -> web.StreamResponse:
        options = list_options(query, is_watch=True)
        watch = self._begin_watch(route, options)
        seconds = float(options.timeout_seconds or self._jitter.uniform(*_WATCH_SECONDS))
        response = web.StreamResponse(
            headers={"Cache-Control": "no-cache, private", **self._head()}
        )
        response.content_type = _JSON
        loop = asyncio.get_running_loop()
        timers = {"end": loop.call_later(seconds, watch.close)}

        def bookmark(interval: float) -> None:
            watch.send_bookmark(self.cache.revision)
            timers["bookmark"] = loop.call_later(interval, bookmark, interval)

        if options.wants_bookmarks:
            last = seconds - _LAST_BOOKMARK
            first = self._bookmark_interval
            if 0 < last < first:
                first = last
            timers["bookmark"] = loop.call_later(first, bookmark, self._bookmark_interval)
        self.watches[watch] = None
        try:
            await response.prepare(request)
            while lines := await watch.take():
                await response.write(lines)
            if watch.is_aborted:
                return _cut(request)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has gone
        finally:
            for timer in timers.values():
                timer.cancel()
            watch.leave()
            self.watches.pop(watch, None)
        return response

    def _begin_watch(self, route: Route, options: ListOptions) -> Watch:
        kind = route.kind
        matches = selector(kind, options.label_selector, options.field_selector)
        try:
            revision = parse_revision(options.resource_version)
        except ApiStatus as error:
            raise internal_error(
                error.message.removeprefix("invalid resource version: ")
            ) from error
        prefix = f"{route.namespace}/" if route.namespace else ""
        watch = Watch(kind, self.cache.table(kind.storage), prefix, matches)
        watch.stalled = kind.resource in self.stalled_kinds
        current, initial = self.cache.revision, bool(options.send_initial_events)
        if initial and revision > current:
            watch.fail(version_too_large(revision, current))
            return watch
        watch.begin(
            revision or current,
            current=current,
            initial=initial,
            bookmark=initial and options.wants_bookmarks,
        )
        return watch


# --- helpers -------------------------------------------------------------------------------

_SUCCESS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


def make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: Any,
    writer: Any,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """A request of the running loop, for `web.Server`."""
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=BODY_LIMIT,
    )


def _answer(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type=_JSON)


def _refusal(error: ApiStatus) -> web.Response:
    response = _answer(_encode(error.as_status()), error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = error.retry_after
    return response


class _Sent(web.StreamResponse):
    """An answer that has been sent already."""

    async def prepare(self, _: web.BaseRequest) -> None:
        """Send nothing."""

    async def write_eof(self, _: bytes = b"") -> None:
        """Send nothing."""

    @property
    def prepared(self) -> bool:
        """True: nothing can be changed."""
        return True

    @property
    def keep_alive(self) -> bool:
        """True: the connection goes on."""
        return True


def _raw(response: web.Response) -> bytes:
    """*response* as it goes over the wire."""
    assert isinstance(response.body, bytes)
    fields = {**response.headers, "Content-Length": str(len(response.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode() + response.body


def _cut(request: web.BaseRequest) -> web.Response:
    """Break the connection. The response goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _verb(method: str, route: Route, query: dict[str, str]) -> str:
    """The API's verb for what *method* does there. Refuses with 405."""
    is_watch = flag(query, "watch")
    if route.subresource in ("binding", "eviction"):
        verb = {"POST": "create"}.get(method)
    elif route.subresource == "finalize":
        verb = {"PUT": "update"}.get(method)
    elif route.subresource:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch"}.get(method)
    elif route.name:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method)
    else:
        verb = {"GET": "watch" if is_watch else "list", "DELETE": "deletecollection"}.get(method)
        if method == "POST" and (route.namespace or not route.kind.namespaced):
            verb = "create"
    if verb is None:
        raise method_not_allowed()
    return verb


def _described(path: str) -> web.Response:
    """Discovery documents; 404 for every other path."""
    parts = path.strip("/").split("/")
    found: Json | None = None
    match parts:
        case ["api"]:
            found = discovery.api_versions()
        case ["apis"]:
            found = discovery.groups()
        case ["api", version]:
            found = discovery.resources("", version)
        case ["apis", group]:
            found = discovery.group(group)
        case ["apis", group, version]:
            found = discovery.resources(group, version)
        case ["openapi", "v3"]:
            found = discovery.openapi_index()
        case ["openapi", "v3", *base]:
            found = discovery.openapi("/".join(base))
        case ["api", "v1", *_]:
            raise no_such_path()
        case ["apis", group, version, *_] if discovery.resources(group, version):
            raise no_such_path()
    if found is None:
        return web.Response(status=404, text="404 page not found\n")
    return _answer(_encode(found))


def _parsed(kind: Kind, raw: bytes, content_type: str, *, patch: bool = False) -> Any:
    if content_type in _YAML:
        try:
            return yaml.load(raw, DatelessLoader)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from error
    if not patch and content_type not in (_JSON, "application/octet-stream", ""):
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml; for `kubectl create namespace` and the like: "
            "`--dry-run=client -o yaml | kubectl create -f -`"
        )
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if patch:
            raise bad_request(f"error decoding patch: {error}") from error
        shown = "<empty>" if not raw else raw[:200].decode(errors="replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
            f"version/kind; json parse error: {error} ({shown})"
        ) from error


def _decoded_review(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding the review: {error}") from error


def _named(body: Any) -> str:
    name = (body.get("metadata") or {}).get("name") if isinstance(body, dict) else None
    if not isinstance(name, str) or not name:
        raise bad_request("name in URL does not match name in Binding object")
    return name


def _is_dry(query: dict[str, str]) -> bool:
    return query.get("dryRun", "") == "All"


def _is_strict(query: dict[str, str]) -> bool:
    return query.get("fieldValidation", "") == "Strict"


def _delete_options(kind: Kind, query: dict[str, str], body: bytes, content_type: str) -> Json:
    options = _parsed(kind, body, content_type) if body else {}
    if not isinstance(options, dict):
        raise bad_request("want a DeleteOptions object")
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = integer(query, "gracePeriodSeconds")
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    return options


def _deleted(kind: Kind, last: Version, *, gone: bool) -> bytes:
    if kind.returns_deleted or not gone:
        return typed(kind, last)
    metadata = last.manifest["metadata"]
    details = {"name": metadata["name"]}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.plural, "uid": metadata["uid"]}
    return _encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
    )
