"""The addresses of the live answers.

Owns which address asks for what. `engine.surfaces.page` shows the records, as JSON or as HTML.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import hdrs, web

from engine.io.endpoints.routes import Request, Route, json_answer
from engine.surfaces.live.service import LiveAnswers

Answer = Callable[[Request], Awaitable[tuple[int, Any]]]
"""Answers a request: the HTTP status, and a record."""

QUEUE: Final = "/queue"
PODS: Final = "/pods"
EXPLAIN: Final = "/explain/{namespace}/{pod}"
NODES: Final = "/nodes"
SHARES: Final = "/queues"
SHARE: Final = "/queues/{path:.+}"
POLICIES: Final = "/policies"
ROLLOUT: Final = "/rollout"
WHAT_IF: Final = "/whatif"
BEST_SHAPE: Final = "/whatif/best-shape"

#: The addresses whose answers leave out what the caller may not see.
FILTERED: Final = frozenset({QUEUE, PODS, EXPLAIN, NODES, SHARES, SHARE, ROLLOUT, WHAT_IF})


def answers_by_path(live: LiveAnswers) -> dict[str, Answer]:
    """What is asked at each address."""

    async def explain(request: Request) -> tuple[int, Any]:
        parts = request.part("namespace"), request.part("pod")
        return await live.explain(request.caller, request.query, *parts)

    return {
        QUEUE: lambda request: live.queue(request.caller, request.query),
        PODS: lambda request: live.pods(request.caller, request.query),
        EXPLAIN: explain,
        NODES: lambda request: live.nodes(request.caller, request.query),
        SHARES: lambda request: live.shares(request.caller, request.query),
        SHARE: lambda request: live.share(request.caller, request.query, request.part("path")),
        POLICIES: lambda request: live.policies(request.caller, request.query),
        ROLLOUT: lambda request: live.rollout(request.caller, request.query),
        WHAT_IF: lambda request: live.what_if(request.caller, request.query),
    }


def best_shape_route(live: LiveAnswers) -> Route:
    """Which of several shapes of nodes helps most, for an autoscaler."""

    async def handle(request: Request) -> web.Response:
        status, record = await live.best_shape(request.caller, await request.http.read())
        return json_answer(record, status)

    return Route(BEST_SHAPE, handle, verb=hdrs.METH_POST, filters_by_namespace=True)
