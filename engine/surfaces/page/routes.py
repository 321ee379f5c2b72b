"""The addresses of the screens, and what answers each of them."""

from collections.abc import Callable
from typing import Any, Final

from aiohttp import hdrs, web

from engine.io.endpoints.routes import Handler, Request, Route, index_route, json_answer
from engine.surfaces.live.activity import Activity, ActivityPage
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.nodes_page import MOST_ROWS
from engine.surfaces.live.one_node import node_answer
from engine.surfaces.live.routes import (
    EXPLAIN,
    FILTERED,
    NODES,
    POLICIES,
    QUEUE,
    ROLLOUT,
    SHARE,
    SHARES,
    Answer,
    answers_by_path,
)
from engine.surfaces.live.service import OK, LiveAnswers
from engine.surfaces.page import screens
from engine.surfaces.page.accept import form_of
from engine.surfaces.page.handlers import PageHandlers, home_route, static_route
from engine.surfaces.page.screens import Screen

ACTIVITY: Final = "/activity"
NODE: Final = "/nodes/{node}"


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

    async def one_node(request: Request) -> tuple[int, Any]:
        return await node_answer(live, request.caller, request.part("node"))

    async def recent(_request: Request) -> tuple[int, ActivityPage]:
        return OK, activity.page(live.revision, leader())

    table: tuple[tuple[str, Screen, Answer], ...] = (
        (QUEUE, screens.QUEUE, answers[QUEUE]),
        (EXPLAIN, screens.WHY, answers[EXPLAIN]),
        (POLICIES, screens.POLICIES, answers[POLICIES]),
        (ROLLOUT, screens.ROLLOUT, answers[ROLLOUT]),
        (NODES, screens.NODES, nodes),
        (NODE, screens.NODE, one_node),
        (ACTIVITY, screens.ACTIVITY, recent),
    )
    filtered = FILTERED | {NODE}

    def as_json(answer: Answer) -> Handler:
        async def handle(request: Request) -> web.StreamResponse:
            status, record = await answer(request)
            return json_answer(record, status)

        return handle

    routes = [
        *(
            Route(path, as_json(answers[path]), filters_by_namespace=True)
            for path in (SHARES, SHARE)
        )
    ]
    routes += [
        Route(path, handlers.screen(screen, answer), filters_by_namespace=path in filtered)
        for path, screen, answer in table
    ]
    return [*routes, static_route()]


def root_route(routes: list[Route]) -> Route:
    """`/`: the queue for a browser, the paths of *routes* for a program."""
    return home_route(index_route(routes).handle)
