"""The page of the scheduler that leads, at an address of this host, for its user's browser.

Owns who may use that address: everything on a host can connect to it, and any page of the web can
have a browser do so. A first visit needs the secret of the address that is printed and gets a
cookie; every further request needs the cookie, comes from the proxy's own pages, and only reads.
Credentials are added on the way to the scheduler, and are never sent to the browser.
"""

import asyncio
import contextlib
import hmac
import html
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from engine.io.kube.errors import ApiError, KubeConfigError
from engine.lib.background import cancelled
from engine.lib.printable import printable_lines
from workbench.leader_way import CannotAsk, LeaderAt, Way, leader_way

LOOPBACK: Final = "127.0.0.1"
_SECRET: Final = "token"
_READS: Final = (hdrs.METH_GET, hdrs.METH_HEAD)
#: What of a request goes on to the scheduler.
_PASSED_ON: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, "Last-Event-ID")
#: What of an answer is of the connection, not of the page; and cookies, which are ours.
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "date", "server", "set-cookie"}
)
#: Between two looks at the Lease.
_LOOK_SECONDS: Final = 5.0
_OWN_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STREAM: Final = "text/event-stream"


class PageProxy:
    """Serves the leader's page on the loopback device.

    `new --start--> serving --stop--> closed`.

    Args:
        find: Says which leader is asked, each time one is looked for.
        port: Where it listens; 0 for a free port.
        look_seconds: Between two looks at whether another one leads.

    Attributes:
        address: The address to open, with its secret; "" before `start`.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[LeaderAt]],
        *,
        port: int = 0,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._port = port
        self._leader = _Leader(find, look_seconds)
        self._secret, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self) -> None:
        """Listen. Raises `OSError` if the port is taken."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        # Streams are open for as long as somebody looks: the end of the command waits for none.
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, LOOPBACK, self._port).start()
        self._port = runner.addresses[0][1]
        self.address = f"http://{LOOPBACK}:{self._port}/?{_SECRET}={self._secret}"

    async def stop(self) -> None:
        """Stop listening, and close the way to the leader."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._leader.leave()

    # --- who may --------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        # A page of the web can have its own name resolved to this address: it is not ours then.
        if request.headers.get(hdrs.HOST) not in self._hosts:
            return _refusal(421, f"want a Host of {' or '.join(self._hosts)}")
        if not request.raw_path.startswith("/"):
            return _refusal(400, "want a path")
        if request.method not in _READS:
            return _refusal(405, "the page only reads", {hdrs.ALLOW: ", ".join(_READS)})
        if _SECRET in request.query:
            return self._first_visit(request)
        if not self._is_from_our_pages(request):
            return _refusal(403, "another page sent this request")
        shown = request.cookies.get(self._cookie_name, "")
        if not _equal(shown, self._cookie):
            return _refusal(
                403, "open the address that `kubectl starsched ui` has printed: it has a secret"
            )
        return await self._pass_on(request)

    @property
    def _hosts(self) -> tuple[str, str]:
        return f"{LOOPBACK}:{self._port}", f"localhost:{self._port}"

    @property
    def _cookie_name(self) -> str:
        # Cookies are for all ports of a host: two proxies must not overwrite each other's.
        return f"starsched-ui-{self._port}"

    def _first_visit(self, request: web.Request) -> web.Response:
        if not _equal(request.query[_SECRET], self._secret):
            return _refusal(403, "this address is of another `kubectl starsched ui`")
        target = str(request.rel_url.without_query_params(_SECRET))
        to = html.escape(f"http://{request.headers[hdrs.HOST]}{target}")
        # By a page of our own, not by a redirect: a browser that comes from elsewhere, such as a
        # link in a web terminal, sends no strict cookie along a redirect.
        text = f'<!doctype html><meta http-equiv="refresh" content="0;url={to}">'
        response = web.Response(text=text, content_type="text/html", headers=_OWN_HEADERS)
        response.set_cookie(
            self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/"
        )
        return response

    def _is_from_our_pages(self, request: web.Request) -> bool:
        """False if a browser says that another site, or another port of this host, asks."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin != f"http://{request.headers[hdrs.HOST]}":
            return False
        return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    # --- what they get --------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {key: request.headers[key] for key in _PASSED_ON if key in request.headers}
        try:
            way = await self._leader.way()
            try:
                return await self._answer(request, way, headers)
            except CannotAsk:
                # The leader may be another one by now.
                way = await self._leader.another(way)
                return await self._answer(request, way, headers)
        except (CannotAsk, ApiError, KubeConfigError) as error:
            hint = f"\nhint: {error.hint}" if isinstance(error, CannotAsk) and error.hint else ""
            return _refusal(502, f"the scheduler could not be asked: {error}{hint}")

    async def _answer(
        self, request: web.Request, way: Way, headers: dict[str, str]
    ) -> web.StreamResponse:
        async with way.get(request.raw_path, headers, method=request.method) as answer:
            kept = [
                (key, value)
                for key, value in answer.headers.items()
                if key.lower() not in _OF_THE_CONNECTION
            ]
            response = web.StreamResponse(status=answer.status)
            response.headers.extend(kept)
            is_stream = answer.content_type == _STREAM
            # A reset connection is the usual end of a stream; the browser opens the next one.
            with contextlib.suppress(ConnectionError):
                await response.prepare(request)
                try:
                    async for piece in answer.content.iter_any():
                        await response.write(piece)
                        if is_stream and not await self._leader.is_current(way):
                            break
                except (aiohttp.ClientError, TimeoutError):
                    if not is_stream and request.transport is not None:
                        request.transport.close()  # half a page must not look whole
                await response.write_eof()
            return response


class _Leader:
    """The way to the leader that is in use; another one once another process leads."""

    def __init__(self, find: Callable[[], Awaitable[LeaderAt]], look_seconds: float) -> None:
        self._find = find
        self._look_seconds = look_seconds
        self._looked_at = 0.0
        self._lock = asyncio.Lock()
        self._way: Way | None = None
        self._holding: asyncio.Task[None] | None = None

    async def way(self) -> Way:
        """The way, found first if need be. Raises as `leader_way`."""
        if self._way is not None and await self.is_current(self._way):
            return self._way
        return await self.another(self._way)

    async def another(self, failed: Way | None) -> Way:
        """A way that is not *failed*. Raises as `leader_way`."""
        async with self._lock:
            if self._way is None or self._way is failed:
                await self.leave()
                opened: asyncio.Future[Way] = asyncio.get_running_loop().create_future()
                self._holding = asyncio.ensure_future(self._hold(opened))
                self._way = await opened
                self._looked_at = asyncio.get_running_loop().time()
            return self._way

    async def is_current(self, way: Way) -> bool:
        """False if another process leads than the one that *way* goes to; looks now and then."""
        now = asyncio.get_running_loop().time()
        if way is not self._way or now - self._looked_at < self._look_seconds:
            return way is self._way
        self._looked_at = now
        return await way.is_current()

    async def leave(self) -> None:
        """Close the way; requests on it end."""
        self._way = None
        if self._holding is not None:
            await cancelled([self._holding])
            self._holding = None

    async def _hold(self, opened: "asyncio.Future[Way]") -> None:
        """Keep a way open until this is cancelled: one task opens it and closes it."""
        try:
            async with leader_way(await self._find()) as way:
                opened.set_result(way)
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)


def _equal(given: str, want: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), want.encode())


def _refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    sent = {**_OWN_HEADERS, **(headers or {})}
    return web.Response(text=f"{printable_lines(text)}\n", status=status, headers=sent)
