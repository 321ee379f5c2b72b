"""An extender for tests: answers each verb as it is told, over real HTTP on loopback."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Reply = Callable[[dict[str, Any]], Any]
"""From a decoded request to an answer: plain data, raw bytes, or a whole response."""


class SmallExtender:
    """Serves `/x/<verb>`; a verb without a reply is answered with 404.

    Attributes:
        asked: Verb and decoded body of each request, in order.
        url: What goes into `urlPrefix`.
    """

    def __init__(
        self,
        *,
        filter: Reply | None = None,
        prioritize: Reply | None = None,
        preempt: Reply | None = None,
        bind: Reply | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.replies = {
            "filter": filter,
            "prioritize": prioritize,
            "preempt": preempt,
            "bind": bind,
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self.waiting = asyncio.Event()
        self._tls = tls

    async def __aenter__(self) -> "SmallExtender":
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}/x"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = request.path.removeprefix("/x/")
        body = json.loads(await request.read())
        self.asked.append((verb, body))
        reply = self.replies.get(verb)
        if reply is None:
            return web.Response(status=404)
        answer = reply(body)
        if isinstance(answer, Awaitable):
            self.waiting.set()
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, bytes):
            return web.Response(body=answer)
        return web.json_response(answer)


def names_asked(body: dict[str, Any]) -> list[str]:
    """The nodes of a filter or prioritize request, however they were sent."""
    if body["NodeNames"] is not None:
        return list(body["NodeNames"])
    return [node["metadata"]["name"] for node in body["Nodes"]["items"]]
