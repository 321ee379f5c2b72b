"""The addresses of the screens, and what answers each of them."""

from collections.abc import Callable
from typing import Any, Final

from aiohttp import hdrs

from engine.io.endpoints.routes import Request, Route, index_route
from engine.surfaces.live.activity import Activity, ActivityPage
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.nodes_page import MOST_ROWS
from engine.surfaces.live.one_node import node_answer
from engine.surfaces.live.routes import (
    EXPLAIN,
    FILTERED,
    NODES,
    PODS,
    POLICIES,
    QUEUE,
    ROLLOUT,
    SHARE,
    SHARES,
    WHAT_IF,
    Answer,
    answers_by_path,
    best_shape_route,
)
from engine.surfaces.live.service import OK, LiveAnswers
from engine.surfaces.page import screens
from engine.surfaces.page.accept import form_of
from engine.surfaces.page.handlers import PageHandlers, home_route, static_route
from engine.surfaces.page.queue_view import BY
from engine.surfaces.page.screens import Screen

ACTIVITY: Final = "/activity"
NODE: Final = "/nodes/{node}"
# Each has several bars: more are too much for a browser that gets them every few seconds.
_QUEUES_ON_A_SCREEN: Final = "200"


def page_routes(
    handlers: PageHandlers, live: LiveAnswers, activity: Activity, leader: Callable[[], Leader]
) -> list[Route]:
    """The screens of a scheduler, and the files that they load."""
    answers = answers_by_path(live)

    async def nodes(request: Request) -> tuple[int, Any]:
        # The map is of all nodes; a program pages through them.
        is_map = form_of(request.http.headers.get(hdrs.ACCEPT, "")) != "json"
        query = {"limit": str(MOST_ROWS), **request.query} if is_map else request.query
        return await live.nodes(request.caller, query)

    async def queue(request: Request) -> tuple[int, Any]:
        is_screen = form_of(request.http.headers.get(hdrs.ACCEPT, "")) != "json"
        query = {"by": BY, **request.query} if is_screen else request.query
        return await live.queue(request.caller, query)

    async def shares(request: Request) -> tuple[int, Any]:
        is_screen = form_of(request.http.headers.get(hdrs.ACCEPT, "")) != "json"
        query = {"limit": _QUEUES_ON_A_SCREEN, **request.query} if is_screen else request.query
        return await live.shares(request.caller, query)

    async def one_node(request: Request) -> tuple[int, Any]:
        return await node_answer(live, request.caller, request.part("node"))

    async def recent(_request: Request) -> tuple[int, ActivityPage]:
        return OK, activity.page(live.revision, leader())

    table: tuple[tuple[str, Screen, Answer], ...] = (
        (QUEUE, screens.QUEUE, queue),
        (PODS, screens.PODS, answers[PODS]),
        (EXPLAIN, screens.WHY, answers[EXPLAIN]),
        (POLICIES, screens.POLICIES, answers[POLICIES]),
        (ROLLOUT, screens.ROLLOUT, answers[ROLLOUT]),
        (NODES, screens.NODES, nodes),
        (NODE, screens.NODE, one_node),
        (WHAT_IF, screens.WHAT_IF, answers[WHAT_IF]),
        (SHARES, screens.SHARES, shares),
        (SHARE, screens.SHARE, answers[SHARE]),
        (ACTIVITY, screens.ACTIVITY, recent),
    )
    filtered = FILTERED | {NODE}
    routes = [
        Route(
            path,
            handlers.screen(screen, answer),
            filters_by_namespace=path in filtered,
            is_listed=path != SHARE,
        )
        for path, screen, answer in table
    ]
    return [*routes, best_shape_route(live), static_route()]


def root_route(routes: list[Route]) -> Route:
    """`/`: the queue for a browser, the paths of *routes* for a program."""
    return home_route(index_route(routes).handle)
