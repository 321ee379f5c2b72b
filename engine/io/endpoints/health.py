"""Health as kube components answer it, and metrics.

Owns the routes and their wording. What is healthy comes from checks that the application passes in.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST as OPENMETRICS_CONTENT_TYPE,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from engine.io.endpoints.routes import Handler, Request, Route, text_answer
from engine.telemetry.component_metrics import HEALTH, HEALTH_CHECKS

log = structlog.get_logger(component="health")

# A check answers `None` when all is well, else the reason. It is a plain function: it must answer
# from memory, a probe never waits for the API server.
Check = Callable[[], str | None]

_OPENMETRICS: Final = "application/openmetrics-text"


def ping() -> str | None:
    """A check that passes as long as the process runs."""
    return None


class HealthIndicators:
    """What `/metrics/slis` shows: how each check went, whenever it was asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._latest = HEALTH.make(self.registry)
        self._total = HEALTH_CHECKS.make(self.registry)

    def observe(self, check: str, kind: str, *, passed: bool) -> None:
        """Count one check of *kind*: `healthz`, `livez` or `readyz`."""
        self._latest.labels(check, kind).set(passed)
        self._total.labels(check, kind, "success" if passed else "error").inc()


def health_routes(
    *, healthz: Mapping[str, Check], livez: Mapping[str, Check], readyz: Mapping[str, Check]
) -> list[Route]:
    """`/healthz`, `/livez`, `/readyz`, each check by itself, and `/metrics/slis`.

    The checks are given by name, in the order in which they are shown.
    """
    indicators = HealthIndicators()
    routes = [metrics_route("/metrics/slis", indicators.registry)]
    for kind, checks in (("healthz", healthz), ("livez", livez), ("readyz", readyz)):
        routes.append(Route(f"/{kind}", _all_checks(kind, checks, indicators)))
        routes += (
            Route(f"/{kind}/{name}", _single_check(check), is_listed=False)
            for name, check in checks.items()
        )
    return routes


def metrics_route(path: str, registry: CollectorRegistry) -> Route:
    """The metrics of *registry*, as OpenMetrics if the caller takes that."""

    async def handle(request: Request) -> web.Response:
        if request.accepts(_OPENMETRICS):
            body = generate_openmetrics(registry)  # type: ignore[no-untyped-call]  # no stubs
            kind = OPENMETRICS_CONTENT_TYPE
        else:
            body, kind = generate_latest(registry), CONTENT_TYPE_LATEST
        return web.Response(body=body, headers={"Content-Type": kind})

    return Route(path, handle)


def _all_checks(kind: str, checks: Mapping[str, Check], indicators: HealthIndicators) -> Handler:
    async def handle(request: Request) -> web.Response:
        excluded = set(request.http.query.getall("exclude", []))
        lines: list[str] = []
        failed: dict[str, str] = {}
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = _run(check)
            indicators.observe(name, kind, passed=reason is None)
            if reason is None:
                lines.append(f"[+]{name} ok")
            else:
                failed[name] = reason
                # Open to everybody; `/readyz/<name>` shows it to those who may read that.
                shown = reason if request.caller.is_local else "reason withheld"
                lines.append(f"[-]{name} failed: {shown}")
        lines += _unknown(excluded.difference(checks))
        if failed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            log.warning("Health check failed", check=kind, reason=reasons)
            return text_answer("\n".join([*lines, f"{kind} check failed", ""]), status=500)
        if "verbose" in request.query:
            return text_answer("\n".join([*lines, f"{kind} check passed", ""]))
        return text_answer("ok")

    return handle


def _unknown(names: Iterable[str]) -> list[str]:
    quoted = ",".join(f'"{name}"' for name in sorted(names))
    return [f"warn: some health checks cannot be excluded: no matches for {quoted}"] * bool(quoted)


def _single_check(check: Check) -> Handler:
    async def handle(_request: Request) -> web.Response:
        reason = _run(check)
        if reason is None:
            return text_answer("ok")
        return text_answer(f"internal server error: {reason}\n", status=500)

    return handle


def _run(check: Check) -> str | None:
    """The answer of *check*; an exception in it is a failed check, not a broken endpoint."""
    try:
        return check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
