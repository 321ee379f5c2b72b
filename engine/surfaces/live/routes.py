"""The addresses of the live answers.

Owns which address asks for what. `engine.surfaces.page` shows the records, as JSON or as HTML.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from engine.io.endpoints.routes import Request
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

#: The addresses whose answers leave out what the caller may not see.
FILTERED: Final = frozenset({QUEUE, PODS, EXPLAIN, NODES, SHARES, SHARE, ROLLOUT})


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
    }
