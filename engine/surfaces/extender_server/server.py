"""The extender protocol over HTTP: `/filter`, `/prioritize`, `/preempt`, `/bind`.

Owns the routes, limits, TLS and what an error looks like to kube-scheduler. The answers are
`policy_extender`'s; requests are answered one at a time, in the order in which they arrive.

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

from engine.core.model.pod import Pod
from engine.io.binding.binder import BindingError
from engine.lib.certificates import show_certificate
from engine.lib.clock import Clock
from engine.lib.connection_limit import connection_limit
from engine.lib.listening import listen
from engine.policy.evaluator import PolicyFailure, of_policies
from engine.surfaces.extender_server import requests
from engine.surfaces.extender_server.policy_extender import PoliciesFailed, PolicyExtender
from engine.surfaces.extender_server.requests import BadRequest
from engine.surfaces.extender_server.worlds import World
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="extender")

MIB: Final = 1 << 20
#: Whole nodes of a cluster of several thousand.
MOST_BODY_BYTES: Final = 256 * MIB
CANNOT_BIND: Final = "this extender has no API server to bind at: start it with --watch"
_SHUTDOWN_SECONDS: Final = 10.0
CERTIFICATE_SECONDS: Final = 10.0


class Binder(Protocol):
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
        extender: The policies in force; None while there are none.
        count: Called for each request to the policies: its seconds, whether they failed, and how.
        binder: Binds pods; None without an API server.
        metrics, clock: Record how many requests there were and how long they took.
        most_body_bytes: Larger requests are refused.
        certificate_seconds: Interval at which the TLS files are checked for changes.
    """

    def __init__(
        self,
        *,
        world: World,
        extender: Callable[[], PolicyExtender | None],
        count: Callable[[float, bool, Sequence[PolicyFailure]], None],
        binder: Binder | None,
        metrics: Metrics,
        clock: Clock,
        most_body_bytes: int = MOST_BODY_BYTES,
        certificate_seconds: float = CERTIFICATE_SECONDS,
    ) -> None:
        self._world = world
        self._extender = extender
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
        """Stop listening; requests in progress are answered."""
        if self._following is not None:
            self._following.cancel()
        await self._open.aclose()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- requests ---------------------------------------------------------------------------

    def _handler(
        self, verb: str, handle: Callable[[PolicyExtender, bytes], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """*handle* wrapped with what is the same for all verbs: limits, errors, metrics."""
        seconds = self._metrics.extender_served_seconds

        async def serve(request: web.Request) -> web.Response:
            extender = self._extender()
            started = self._clock.monotonic()
            result = "error"
            try:
                if extender is None:
                    return _problem(503, "no policies are in force yet")
                answer = await handle(extender, await _body(request))
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

    async def _filter(self, extender: PolicyExtender, body: bytes) -> web.Response:
        request = requests.read_nodes_request(body)
        try:
            with self._counting():
                snapshot = self._world.for_request(request)
                verdicts = extender.filter(request.pod, snapshot, request.names)
        except PoliciesFailed as failure:
            log.warning("Policies failed", verb="filter", pod=request.pod.key, reason=str(failure))
            return _json(requests.error_answer(str(failure)))
        log.debug(
            "Filtered",
            pod=request.pod.key,
            nodes=len(request.names),
            feasible=len(verdicts.feasible),
        )
        return _json(requests.filter_answer(request, verdicts))

    async def _prioritize(self, extender: PolicyExtender, body: bytes) -> web.Response:
        request = requests.read_nodes_request(body)
        try:
            with self._counting():
                snapshot = self._world.for_request(request)
                scores = extender.priorities(request.pod, snapshot, request.names)
        except PoliciesFailed as failure:
            return _failed("prioritize", request.pod, failure)
        log.debug("Prioritized", pod=request.pod.key, nodes=len(request.names))
        return _json(requests.priorities_answer(scores))

    async def _preempt(self, extender: PolicyExtender, body: bytes) -> web.Response:
        request = requests.read_victims_request(body)
        try:
            with self._counting():
                snapshot = self._world.for_victims()
                names = extender.process_preemption(request.pod, snapshot, request.victims)
        except PoliciesFailed as failure:
            return _failed("preempt", request.pod, failure)
        log.debug("Preempted", pod=request.pod.key, nodes=len(request.victims), left=len(names))
        return _json(requests.victims_answer(request.victims, names))

    async def _bind(self, _extender: PolicyExtender, body: bytes) -> web.Response:
        request = requests.read_bind_request(body)
        if self._binder is None:
            return _json(requests.error_answer(CANNOT_BIND))
        meta = {"namespace": request.namespace, "name": request.name, "uid": request.uid}
        pod = Pod.from_plain({"metadata": meta})
        try:
            await self._binder.bind(pod, request.node)
        except BindingError as error:
            log.warning("Could not bind", pod=pod.key, node=request.node, reason=str(error))
            return _json(requests.error_answer(str(error)))
        log.info("Bound pod", pod=pod.key, node=request.node)
        return _json(requests.error_answer(""))

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        """Count one request to the policies in force, however it ends."""
        started = self._clock.monotonic()
        failures: Sequence[PolicyFailure] = ()
        try:
            yield
        except PoliciesFailed as failed:
            failures = of_policies(failed.failures)
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
