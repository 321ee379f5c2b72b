"""The HTTP endpoints: health as kube components answer it, metrics, and the policies in force.

Owns the routes and their wording. What is healthy, ready or in force comes from callables that
the application passes in.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST as OPENMETRICS_CONTENT_TYPE,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from engine.lib.listening import listen
from engine.telemetry.connection_limit import MAX_CONNECTIONS, connection_limit

log = structlog.get_logger(component="health")

# A check answers `None` when all is well, else the reason.
Check = Callable[[], str | None]
JsonSource = Callable[[], Any]

_OPENMETRICS: Final = "application/openmetrics-text"


def ping() -> str | None:
    """A check that passes as long as the process runs."""
    return None


class HealthServer:
    """Serves `/healthz`, `/livez`, `/readyz`, `/metrics`, `/policies`, `/configz` and friends.

    Args:
        registry: What `/metrics` shows.
        healthz, livez, readyz: Checks by name, in the order they are shown. A check is a plain
            function: it must answer from memory, a probe never waits for the API server.
        json_pages: Further pages: path -> function that returns plain data.
        max_connections: The newest stay open; those beyond are closed.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        healthz: Mapping[str, Check],
        livez: Mapping[str, Check],
        readyz: Mapping[str, Check],
        json_pages: Mapping[str, JsonSource],
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._max_connections = max_connections
        self._registry = registry
        self._runner: web.AppRunner | None = None
        self._open = contextlib.AsyncExitStack()
        self._application = web.Application()
        router = self._application.router
        for path, checks in (("/healthz", healthz), ("/livez", livez), ("/readyz", readyz)):
            router.add_get(path, self._checks_handler(path[1:], checks))
            router.add_get(path + "/{name}", self._single_check_handler(checks))
        router.add_get("/metrics", self._serve_metrics)
        for path, source in json_pages.items():
            router.add_get(path, self._json_handler(source))
        self._paths = ["/healthz", "/livez", "/readyz", "/metrics", *json_pages]
        router.add_get("/", self._serve_index)

    async def start(self, host: str, port: int) -> int:
        """Listen on *host* and *port* (0: a free one); returns the port. Raises `CannotListen`."""
        self._runner = web.AppRunner(self._application, access_log=None)
        await self._runner.setup()
        bound_port = await listen(self._runner, host, port)
        await self._open.enter_async_context(connection_limit(self._runner, self._max_connections))
        log.info("Serving health and metrics", host=host, port=bound_port)
        return bound_port

    async def stop(self) -> None:
        """Stop listening."""
        await self._open.aclose()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- handlers --------------------------------------------------------------------------

    def _checks_handler(
        self, title: str, checks: Mapping[str, Check]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            excluded = set(request.query.getall("exclude", []))
            lines: list[str] = []
            failed: list[str] = []
            for name, check in checks.items():
                if name in excluded:
                    lines.append(f"[+]{name} excluded: ok")
                    continue
                reason = _run(check)
                if reason is None:
                    lines.append(f"[+]{name} ok")
                else:
                    failed.append(name)
                    lines.append(f"[-]{name} failed: {reason}")
            if failed:
                log.warning("Health check failed", check=title, reason="; ".join(lines))
                return _text("\n".join([*lines, f"{title} check failed", ""]), status=500)
            if "verbose" in request.query:
                return _text("\n".join([*lines, f"{title} check passed", ""]))
            return _text("ok")

        return handle

    def _single_check_handler(
        self, checks: Mapping[str, Check]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            check = checks.get(request.match_info["name"])
            if check is None:
                return _text("404 page not found\n", status=404)
            reason = _run(check)
            if reason is None:
                return _text("ok")
            return _text(f"internal server error: {reason}\n", status=500)

        return handle

    def _json_handler(self, source: JsonSource) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_request: web.Request) -> web.Response:
            body = msgspec.json.format(msgspec.json.encode(source(), enc_hook=str), indent=2)
            return web.Response(body=body + b"\n", content_type="application/json")

        return handle

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        if _OPENMETRICS in request.headers.get("Accept", ""):
            body = generate_openmetrics(self._registry)  # type: ignore[no-untyped-call]  # no stubs
            kind = OPENMETRICS_CONTENT_TYPE
        else:
            body, kind = generate_latest(self._registry), CONTENT_TYPE_LATEST
        return web.Response(body=body, headers={"Content-Type": kind})

    async def _serve_index(self, _request: web.Request) -> web.Response:
        return web.json_response({"paths": sorted(self._paths)})


def _run(check: Check) -> str | None:
    """The answer of *check*; an exception in it is a failed check, not a broken endpoint."""
    try:
        return check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _text(body: str, status: int = 200) -> web.Response:
    return web.Response(text=body, status=status, headers={"X-Content-Type-Options": "nosniff"})
