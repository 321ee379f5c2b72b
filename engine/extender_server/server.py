"""The extender protocol over HTTP: `/filter`, `/prioritize`, `/preempt`, `/bind`.

Owns the routes, limits, TLS and what an error looks like to kube-scheduler. Judging is `judge`'s;
requests are judged one at a time, as they come.

| | what goes wrong | the answer |
| --- | --- | --- |
| all | no policies yet, or shutting down | 503 |
| all | a body that is too large, or not of the protocol | 413, 400 |
| filter, bind | a policy failed; the pod was not bound | 200 with `Error` |
| prioritize, preempt | a policy failed: the protocol has no field for an error | 500 |
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog
from aiohttp import web

from engine.binding.binder import BindingError
from engine.extender_server import requests
from engine.extender_server.judge import Judge, PoliciesFailed
from engine.extender_server.requests import BadRequest
from engine.extender_server.worlds import World
from engine.lib.certificates import show_certificate
from engine.lib.clock import Clock
from engine.lib.listening import listen
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.telemetry.connection_limit import connection_limit
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="extender")

MIB: Final = 1 << 20
#: Whole nodes of a cluster of several thousand.
MOST_BODY_BYTES: Final = 256 * MIB
CANNOT_BIND: Final = "this extender has no API server to bind at: start it with --watch"
_SHUTDOWN_SECONDS: Final = 10.0
CERTIFICATE_SECONDS: Final = 10.0


class Binds(Protocol):
    """Binds pods."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind, or raise `BindingError`."""
        ...


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: the server's certificate and key, and the CA of its clients (None: any client)."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The TLS settings. Raises `OSError` or `ValueError` if a file cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as in `kube.config.TlsContext`
        show_certificate(context, self.cert_file, self.key_file)
        if self.client_ca_file is not None:
            context.load_verify_locations(self.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
            # A session that goes on would not show its certificate to a new authority.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    def stamp(self) -> tuple[int, ...]:
        """Changes when one of the files is written again."""
        files = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(file.stat().st_mtime_ns for file in files if file is not None)


class ExtenderServer:
    """Answers kube-scheduler.

    Args:
        world: What the policies see.
        judge: The policies in force; None while there are none.
        count: Called for each judgement with the seconds, whether policies failed, and how.
        binder: Binds pods; None: there is no API server.
        metrics, clock: Measure.
        most_body_bytes: Larger requests are refused.
        certificate_seconds: Between two looks at the files of TLS.
    """

    def __init__(
        self,
        *,
        world: World,
        judge: Callable[[], Judge | None],
        count: Callable[[float, bool, Sequence[PolicyFailure]], None],
        binder: Binds | None,
        metrics: Metrics,
        clock: Clock,
        most_body_bytes: int = MOST_BODY_BYTES,
        certificate_seconds: float = CERTIFICATE_SECONDS,
    ) -> None:
        self._world = world
        self._judge = judge
        self._count = count
        self._binder = binder
        self._metrics = metrics
        self._clock = clock
        self._certificate_seconds = certificate_seconds
        self._runner: web.AppRunner | None = None
        self._open = contextlib.AsyncExitStack()
        self._following: asyncio.Task[None] | None = None
        self._application = web.Application(client_max_size=most_body_bytes)
        for verb, handle in (
            ("filter", self._filter),
            ("prioritize", self._prioritize),
            ("preempt", self._preempt),
            ("bind", self._bind),
        ):
            self._application.router.add_post(f"/{verb}", self._handler(verb, handle))

    # --- life cycle -------------------------------------------------------------------------

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Listen on *host* and *port* (0: a free one); returns the port. Raises `CannotListen`."""
        context = tls.context() if tls is not None else None
        self._runner = web.AppRunner(
            self._application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        bound = await listen(self._runner, host, port, context)
        await self._open.enter_async_context(connection_limit(self._runner))
        if tls is not None and context is not None:
            self._following = asyncio.ensure_future(
                _follow(tls, context, self._certificate_seconds)
            )
        log.info("Serving the extender protocol", host=host, port=bound, tls=tls is not None)
        return bound

    async def stop(self) -> None:
        """Stop listening, and answer what is under way."""
        if self._following is not None:
            self._following.cancel()
        await self._open.aclose()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- requests ---------------------------------------------------------------------------

    def _handler(
        self, verb: str, handle: Callable[[Judge, bytes], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """*handle* wrapped with what is the same for all verbs: limits, errors, metrics."""
        seconds = self._metrics.extender_served_seconds

        async def serve(request: web.Request) -> web.Response:
            judge = self._judge()
            started = self._clock.monotonic()
            result = "error"
            try:
                if judge is None:
                    return _problem(503, "no policies are in force yet")
                answer = await handle(judge, await _body(request))
                result = "success" if answer.status == 200 else "error"
                return answer
            except BadRequest as error:
                result = "refused"
                log.warning("Refused a request", verb=verb, reason=str(error))
                return _problem(400, str(error))
            except web.HTTPRequestEntityTooLarge as error:
                result = "refused"
                log.warning("Refused a request", verb=verb, reason=str(error.text))
                return _problem(413, str(error.text))
            except Exception as error:
                log.exception("Unexpected exception while serving", verb=verb)
                return _problem(500, f"{type(error).__name__}: {error}")
            finally:
                seconds.labels(verb, result).observe(self._clock.monotonic() - started)

        return serve

    async def _filter(self, judge: Judge, body: bytes) -> web.Response:
        asked = requests.about_nodes(body)
        try:
            with self._counting():
                snapshot = self._world.for_request(asked)
                verdicts = judge.filter(asked.pod, snapshot, asked.names)
        except PoliciesFailed as failure:
            log.warning("Policies failed", verb="filter", pod=asked.pod.key, reason=str(failure))
            return _json(requests.error_answer(str(failure)))
        log.debug(
            "Filtered", pod=asked.pod.key, nodes=len(asked.names), feasible=len(verdicts.feasible)
        )
        return _json(requests.filter_answer(asked, verdicts))

    async def _prioritize(self, judge: Judge, body: bytes) -> web.Response:
        asked = requests.about_nodes(body)
        try:
            with self._counting():
                snapshot = self._world.for_request(asked)
                scores = judge.priorities(asked.pod, snapshot, asked.names)
        except PoliciesFailed as failure:
            return _failed("prioritize", asked.pod, failure)
        log.debug("Prioritized", pod=asked.pod.key, nodes=len(asked.names))
        return _json(requests.priorities_answer(scores))

    async def _preempt(self, judge: Judge, body: bytes) -> web.Response:
        asked = requests.about_victims(body)
        try:
            with self._counting():
                names = judge.helped(asked.pod, self._world.for_victims(), asked.victims)
        except PoliciesFailed as failure:
            return _failed("preempt", asked.pod, failure)
        log.debug("Preempted", pod=asked.pod.key, nodes=len(asked.victims), left=len(names))
        return _json(requests.victims_answer(asked.victims, names))

    async def _bind(self, _judge: Judge, body: bytes) -> web.Response:
        asked = requests.to_bind(body)
        if self._binder is None:
            return _json(requests.error_answer(CANNOT_BIND))
        meta = {"namespace": asked.namespace, "name": asked.name, "uid": asked.uid}
        pod = Pod.from_plain({"metadata": meta})
        try:
            await self._binder.bind(pod, asked.node)
        except BindingError as error:
            log.warning("Could not bind", pod=pod.key, node=asked.node, reason=str(error))
            return _json(requests.error_answer(str(error)))
        log.info("Bound pod", pod=pod.key, node=asked.node)
        return _json(requests.error_answer(""))

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Count one judgement of the policies in force, however it ends."""
        started = self._clock.monotonic()
        failures: Sequence[PolicyFailure] = ()
        try:
            yield
        except PoliciesFailed as failed:
            failures = failed.failures
            raise
        finally:
            self._count(self._clock.monotonic() - started, bool(failures), failures)


async def _body(request: web.Request) -> bytes:
    """The body, unpacked. Raises `BadRequest` if it cannot be, or does not arrive."""
    try:
        return await request.read()
    except web.RequestPayloadError as error:
        raise BadRequest("the body is not encoded as its head says") from error
    except ConnectionError as error:
        raise BadRequest("the client went away before the end of the body") from error


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _problem(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n")


def _failed(verb: str, pod: Pod, failure: PoliciesFailed) -> web.Response:
    log.warning("Policies failed", verb=verb, pod=pod.key, reason=str(failure))
    return _problem(500, str(failure))


async def _follow(tls: ServerTls, context: ssl.SSLContext, seconds: float) -> None:
    """Use renewed files for new connections of *context*; unreadable ones are ignored.

    They are read into a new context: a certificate without its key would break the one in use, and
    an authority cannot be removed from it.
    """
    loaded = tls.stamp()
    while True:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            found = tls.stamp()
            if found == loaded:
                continue
            try:
                _take_over(context, tls.context())
                loaded = found
            except (OSError, ValueError) as error:
                log.warning("Could not reload the certificate", reason=str(error))


def _take_over(context: ssl.SSLContext, newest: ssl.SSLContext) -> None:
    """Have each handshake that begins under *context* go on under *newest*."""

    def switch(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = newest

    context.sni_callback = switch
