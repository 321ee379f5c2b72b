"""The page on answers made by hand: a server whose answers a test can change."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from engine.io.endpoints.callers import LOCAL, Caller
from engine.io.endpoints.routes import Request, Route, make_application
from engine.surfaces.page.handlers import PageHandlers, home_route, static_route
from engine.surfaces.page.screens import (
    ACTIVITY,
    NODE,
    NODES,
    PODS,
    POLICIES,
    QUEUE,
    ROLLOUT,
    SHARE,
    SHARES,
    WHAT_IF,
    WHY,
    Screen,
)
from engine.surfaces.page.streams import Streams
from tests.engine.surfaces.page import answers

_SCREENS: Final[Mapping[str, Screen]] = {
    "/queue": QUEUE,
    "/pods": PODS,
    "/explain/{namespace}/{pod}": WHY,
    "/policies": POLICIES,
    "/rollout": ROLLOUT,
    "/nodes": NODES,
    "/nodes/{node}": NODE,
    "/queues": SHARES,
    "/queues/{path:.+}": SHARE,
    "/activity": ACTIVITY,
    "/whatif": WHAT_IF,
}


def _answers() -> dict[str, Any]:
    return {
        "/queue": answers.queue(answers.row()),
        "/pods": answers.pods(),
        "/explain/{namespace}/{pod}": answers.pod(),
        "/policies": answers.policies(),
        "/rollout": answers.rollout(),
        "/nodes": answers.nodes(),
        "/nodes/{node}": answers.one_node(),
        "/queues": answers.shares(),
        "/queues/{path:.+}": answers.one_share(),
        "/activity": answers.activity(),
        "/whatif": answers.what_if(),
    }


@dataclass
class Site:
    """A running page: its address, and what it answers by route."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=_answers)
    status: int = 200
    streams: Streams = field(default_factory=lambda: Streams(pace=0.02))

    def answer(self, path: str) -> Callable[[Request], Any]:
        async def answer(_request: Request) -> tuple[int, Any]:
            return self.status, self.answers[path]

        return answer


@contextlib.asynccontextmanager
async def running_site(site: Site | None = None) -> AsyncIterator[Site]:
    """Serve the screens on loopback."""
    site = site or Site()
    handlers = PageHandlers(site.streams)
    routes = [
        Route(path, handlers.screen(screen, site.answer(path))) for path, screen in _SCREENS.items()
    ]

    async def index(_request: Request) -> web.Response:
        return web.json_response({"paths": sorted(_SCREENS)})

    async def everybody(_request: web.Request) -> Caller:
        return LOCAL

    application = make_application([*routes, static_route(), home_route(index)], everybody)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        listener = web.TCPSite(runner, "127.0.0.1", 0)
        await listener.start()
        host, port = runner.addresses[0][:2]
        site.url = f"http://{host}:{port}"
        yield site
    finally:
        await handlers.close()
        await runner.cleanup()
