"""The addresses of the live answers.

Owns which address asks for what. A record is shown as JSON here; `engine.page` shows the same
records as HTML.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import hdrs, web

from engine.endpoints.routes import Handler, Request, Route, json_answer
from engine.live.service import BUSY, LiveAnswers

Answer = Callable[[Request], Awaitable[tuple[int, Any]]]
"""Answers a request: the HTTP status, and a record."""

QUEUE: Final = "/queue"
EXPLAIN: Final = "/explain/{namespace}/{pod}"
NODES: Final = "/nodes"
POLICIES: Final = "/policies"

#: The addresses whose answers leave out what the caller may not see.
FILTERED: Final = frozenset({QUEUE, EXPLAIN, NODES})
# Seconds after which a busy process may be asked again.
_RETRY_AFTER: Final = "1"


def answers_by_path(live: LiveAnswers) -> dict[str, Answer]:
    """What is asked at each address."""

    async def explain(request: Request) -> tuple[int, Any]:
        parts = request.part("namespace"), request.part("pod")
        return await live.explain(request.caller, request.query, *parts)

    return {
        QUEUE: lambda request: live.queue(request.caller, request.query),
        EXPLAIN: explain,
        NODES: lambda request: live.nodes(request.caller, request.query),
        POLICIES: lambda request: live.policies(request.caller, request.query),
    }


def live_routes(live: LiveAnswers) -> list[Route]:
    """The routes that show the answers as JSON."""
    return [
        Route(path, _json(answer), filters_by_namespace=path in FILTERED)
        for path, answer in answers_by_path(live).items()
    ]


def _json(answer: Answer) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        status, record = await answer(request)
        response = json_answer(record, status)
        if status == BUSY:
            response.headers[hdrs.RETRY_AFTER] = _RETRY_AFTER
        return response

    return handle
