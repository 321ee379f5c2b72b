"""The handlers of the screens: one address, and the form that the client asked for.

Owns the headers that keep a browser from running anything but the page's own scripts, and the
thread in which pages are made: one of 5,000 nodes takes longer than a decision may wait.
"""

import asyncio
import secrets
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from aiohttp import hdrs, web

from engine.io.endpoints.routes import Handler, Refused, Request, Route, json_answer
from engine.surfaces.live.answers import Refusal
from engine.surfaces.live.routes import Answer
from engine.surfaces.page.accept import form_of
from engine.surfaces.page.rendering import render_content, render_page
from engine.surfaces.page.screens import QUEUE, REFUSAL, Screen
from engine.surfaces.page.static_files import PREFIX, static_files
from engine.surfaces.page.streams import Streams

_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
}
_TOO_MANY: Final = 429
_FOR_GOOD: Final = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}


class PageHandlers:
    """Shows answers in the form that a client asks for.

    Args:
        streams: Where live updates go.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._renderer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")

    async def close(self) -> None:
        """End all streams, and the thread."""
        await self._streams.close()
        self._renderer.shutdown(wait=False, cancel_futures=True)

    def screen(self, screen: Screen, answer: Answer) -> Handler:
        """The handler that shows *answer* as *screen*, or as JSON."""

        async def handle(request: Request) -> web.StreamResponse:
            form = form_of(request.http.headers.get(hdrs.ACCEPT, ""))
            if form == "stream" and request.http.method == hdrs.METH_GET:
                return await self._stream(screen, answer, request)
            status, record = await answer(request)
            if form == "json":
                response = json_answer(record, status)
                response.headers[hdrs.VARY] = hdrs.ACCEPT
            else:
                response = await self._html(_shown(screen, record), request, status, record)
            if status == _TOO_MANY:
                response.headers[hdrs.RETRY_AFTER] = "1"
            return response

        return handle

    async def _stream(self, screen: Screen, answer: Answer, request: Request) -> web.StreamResponse:
        async def render() -> str | None:
            status, record = await answer(request)
            if status == _TOO_MANY:
                return None
            return await self._render(
                lambda: render_content(_shown(screen, record), record, request.query)
            )

        return await self._streams.serve(request.http, render, screen.seconds)

    async def _html(
        self, screen: Screen, request: Request, status: int, record: Any
    ) -> web.Response:
        nonce, url = secrets.token_urlsafe(16), request.http.url
        text = await self._render(
            lambda: render_page(
                screen,
                record,
                asked=request.query,
                command=f"curl {shlex.quote(str(url))}",
                address=url.path_qs,
                nonce=nonce,
            )
        )
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(nonce=nonce)}
        response = web.Response(
            text=text, status=status, content_type="text/html", charset="utf-8", headers=headers
        )
        response.enable_compression()
        return response

    async def _render(self, render: Callable[[], str]) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._renderer, render)


def _shown(screen: Screen, record: Any) -> Screen:
    return REFUSAL if isinstance(record, Refusal) else screen


def static_route() -> Route:
    """The files that the pages load."""

    async def handle(request: Request) -> web.Response:
        found = static_files().get(request.part("name"))
        if found is None or found.address != request.http.path:
            raise Refused(404, "NotFound", "no such file")
        headers = {**_FOR_GOOD, hdrs.CONTENT_TYPE: found.content_type}
        response = web.Response(body=found.body, headers=headers)
        response.enable_compression()
        return response

    return Route(PREFIX + "{digest}/{name}", handle, is_listed=False)


def home_route(index: Handler) -> Route:
    """`/`: the first screen for a browser, *index* for others."""

    async def handle(request: Request) -> web.StreamResponse:
        if form_of(request.http.headers.get(hdrs.ACCEPT, "")) == "html":
            return web.Response(status=307, headers={hdrs.LOCATION: QUEUE.home, **_HEADERS})
        return await index(request)

    return Route("/", handle, is_listed=False)
