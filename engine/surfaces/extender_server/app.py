"""Builds the parts of an extender process and connects them.

Owns the order of starting and stopping. Policies come into force and are rolled back as in a
scheduler; here each of them answers kube-scheduler, and nothing is decided for good.
"""

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from engine.core.framework.behaviors import RELEASED
from engine.io.binding.binder import Binder
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.event_recorder import EventRecorder, Reference
from engine.io.endpoints.health import health_routes, metrics_route, ping
from engine.io.endpoints.routes import Route, json_route
from engine.io.endpoints.server import EndpointServer, ReviewClients, SecureSettings
from engine.io.kube.client import ApiClient
from engine.io.watching.readable import MOST_AGE_SECONDS
from engine.lib.background import Background, cancelled
from engine.lib.clock import SystemClock
from engine.lib.saved_state import SavedStates, WhenUnread
from engine.policy.analysis import time_reads
from engine.rollout.last_good import NoStore, Store
from engine.rollout.last_resort import WAIT, LastResort, WhenNone
from engine.rollout.rollout import Inputs, Rollout, Saving, Surroundings
from engine.rollout.sources import PolicySource
from engine.rollout.trial import CandidateStages, LoadedRevision
from engine.surfaces.extender_server.policy_extender import PolicyExtender
from engine.surfaces.extender_server.server import (
    CERTIFICATE_SECONDS,
    MOST_BODY_BYTES,
    ExtenderServer,
    ServerTls,
)
from engine.surfaces.extender_server.worlds import RequestWorld, WatchedWorld, World
from engine.surfaces.pulled_metrics import show_saved_states, show_watches
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="extender")

FLUSH_SECONDS: Final = 5.0
# The hooks that make a difference to kube-scheduler.
_HEARD: Final = ("pre_filter", "filter", "score", "score_all", "victim_key")


@dataclass(frozen=True)
class ExtenderSettings:
    """How an extender process runs.

    Attributes:
        address: Host and port of the protocol (port 0: a free one).
        secure: The other endpoints, for the network; None for none.
        local_port: The port of those for this host (0: a free one); None for none.
        tls: Certificate and key; None to speak plain HTTP.
        watches: Watch the cluster; else only the content of a request is known.
        most_watch_age: As in `engine.app.Settings`.
        most_body_bytes: Larger requests are refused.
        certificate_seconds: Between two looks at the files of TLS.
        when_no_policies: Whether pods wait without usable policies, or the built-in ones decide.
        when_unread: What happens when something that was saved before cannot be read.
        emulated_minor: The minor version of Kubernetes that is answered like; None: that of the API
            server that is watched, or the newest that is out.
    """

    address: tuple[str, int] = ("127.0.0.1", 0)
    secure: SecureSettings | None = None
    local_port: int | None = None
    tls: ServerTls | None = None
    watches: bool = True
    most_watch_age: float = MOST_AGE_SECONDS
    most_body_bytes: int = MOST_BODY_BYTES
    certificate_seconds: float = CERTIFICATE_SECONDS
    when_no_policies: WhenNone = WAIT
    when_unread: WhenUnread = "wait"
    emulated_minor: int | None = None


@dataclass
class _Ports:
    """Where it listens, once it does."""

    protocol: int = 0
    serving: asyncio.Event = field(default_factory=asyncio.Event)


def _process_registry() -> CollectorRegistry:
    """A registry that has what every process reports of itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class ExtenderApp:
    """An extender process: everything between kube-scheduler and the policies.

    `new --run--> starting --policies in force, cluster known--> serving --stop--> stopped`.

    Args:
        client: The API server, closed by the caller; None if there is none to talk to.
        source: Where policies come from.
        stages: Builds, tests and loads them.
        store: Where the last good ones are kept.
        settings: See there.
        review_clients: Who knows the callers of the endpoints; None: *client*.
    """

    def __init__(
        self,
        client: ApiClient | None,
        *,
        source: PolicySource,
        stages: CandidateStages,
        store: Store | None = None,
        settings: ExtenderSettings | None = None,
        review_clients: ReviewClients | None = None,
    ) -> None:
        self.settings = settings if settings is not None else ExtenderSettings()
        self._clock = SystemClock()
        self._stop = asyncio.Event()
        self._background = Background()
        self.ports = _Ports()
        # 1. Metrics.
        self.registry = _process_registry()
        self.metrics = Metrics(self.registry)
        # 2. The cluster as we know it.
        self.watched: WatchedWorld | None = None
        minor = self.settings.emulated_minor
        self.world: World = RequestWorld(self._clock, RELEASED if minor is None else minor)
        if self.settings.watches:
            if client is None:
                raise ValueError("watching needs a client of the API server")
            self.world = self.watched = WatchedWorld(
                client,
                self._clock,
                self.metrics,
                lambda: self.rollout.bundles,
                self.settings.most_watch_age,
                minor,
            )
            show_watches(self.metrics, self.watched.informers, self._clock)
        # 3. Events, and binding.
        self._recorder: EventRecorder | None = None
        self._writer: DeferredWriter | None = None
        if client is not None:
            self._writer = DeferredWriter(clock=self._clock, is_busy=lambda: False)
            self._recorder = self._make_recorder(client, self._writer)
        # 4. The policies.
        stages.evaluations.measure(
            self._clock.monotonic, self.metrics.evaluation_seconds, self.metrics.plugin
        )
        self._extender: PolicyExtender | None = None
        self.saved = SavedStates(self._clock, self.settings.when_unread)
        self.rollout = Rollout(
            Inputs(
                source,
                store if store is not None else NoStore(),
                last_resort=LastResort(is_fixed=True, when_none=self.settings.when_no_policies),
            ),
            stages,
            self.world,
            self._switch,
            Surroundings(self._write_event, self.metrics, self._clock),
            saving=Saving(self.saved),
        )
        show_saved_states(self.metrics, self.saved, lambda: self.rollout.origin)
        # 5. The server, and the endpoints.
        self.server = self._make_server(client)
        self.endpoints = self._make_endpoints(review_clients or ReviewClients(client, client))

    def _make_recorder(self, client: ApiClient, writer: DeferredWriter) -> EventRecorder:
        """What writes events about the policies."""
        return EventRecorder(
            client,
            writer,
            clock=self._clock,
            metrics=self.metrics,
            instance=socket.gethostname(),
        )

    def _make_server(self, client: ApiClient | None) -> ExtenderServer:
        """What answers kube-scheduler; without a client it cannot bind."""
        binder = None
        if client is not None:
            binder = Binder(client, clock=self._clock, metrics=self.metrics)
        return ExtenderServer(
            world=self.world,
            extender=lambda: self._extender,
            count=lambda *counted: self.rollout.counts.count(*counted),
            binder=binder,
            metrics=self.metrics,
            clock=self._clock,
            most_body_bytes=self.settings.most_body_bytes,
            certificate_seconds=self.settings.certificate_seconds,
        )

    def _make_endpoints(self, clients: ReviewClients) -> EndpointServer:
        """What serves the routes to *clients*."""
        return EndpointServer(
            self._routes(),
            secure=self.settings.secure,
            local_port=self.settings.local_port,
            clients=clients,
            clock=self._clock,
        )

    # --- life cycle ------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make `run` finish what is under way and return; safe to call from a signal handler."""
        self._stop.set()

    async def run(self) -> None:
        """Answer until `request_stop`. Raises any error that makes a start impossible."""
        await self.endpoints.start()
        stopping = asyncio.ensure_future(self._stop.wait())
        main = asyncio.ensure_future(self._start_and_serve())
        try:
            await asyncio.wait({stopping, main}, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                main.result()
        finally:
            stopping.cancel()
            await self._shut_down(main)
            await self.endpoints.stop()

    async def _start_and_serve(self) -> None:
        if self._writer is not None:
            self._background.start(self._writer.run())
        # 1. The policies, then the cluster and its facts: nothing is answered without them.
        await self.rollout.start()
        if self.watched is not None:
            await self._background.unless_broken(self.watched.emulation.ask())
            informers = self.watched.informers
            for informer in informers:
                self._background.start(informer.run())
            await self._background.unless_broken(
                asyncio.gather(*(i.wait_synced() for i in informers))
            )
            self._background.start(self.watched.follow_readability())
            await self._background.unless_broken(self.watched.watch(self.rollout.active.bundle))
            self._background.start(self.watched.facts.run())
            await self._background.unless_broken(self.watched.facts.wait_until_reported())
            cache = self.watched.cache
            log.info("In sync", nodes=cache.node_count, pods=cache.pod_count)
        # 2. Following the policies' source.
        self._background.start(self.rollout.run())
        # 3. Answering.
        host, port = self.settings.address
        self.ports.protocol = await self.server.start(host, port, self.settings.tls)
        self.ports.serving.set()
        await self._background.unless_broken(asyncio.Event().wait())

    async def _shut_down(self, main: asyncio.Task[None]) -> None:
        """Answer what is under way, write what is left, end the rest."""
        await cancelled([main])
        await self.server.stop()
        if self._writer is not None:
            await self._writer.flush(FLUSH_SECONDS)
        await self._background.cancel()
        if self.watched is not None:
            await self.watched.policy_informers.close()
            await self.watched.emulation.close()
        await self.rollout.stop()

    # --- policies --------------------------------------------------------------------------

    def _switch(self, new: LoadedRevision, old: LoadedRevision | None) -> None:
        """Answer with *new* from the next request on."""
        self._extender = PolicyExtender(new.scheduler)
        if not any(profile.at(hook) for profile in new.bundle.profiles for hook in _HEARD):
            log.warning("No policy filters or scores", revision=new.bundle.revision)
        facts = new.bundle.runtime.facts
        self.world.use(facts, time_reads(new.bundle.policies.values()))
        if self.watched is not None:
            self.watched.look()
        elif facts.sources:
            log.warning("No facts are known without --watch", sources=len(facts.sources))

    def _write_event(
        self, about: Reference, kind: str, reason: str, note: str, revision: str
    ) -> None:
        if self._recorder is not None:
            self._recorder.policies(about, kind, reason, note, revision)

    # --- status pages ----------------------------------------------------------------------

    def _routes(self) -> list[Route]:
        return [
            *health_routes(
                healthz={"ping": ping},
                livez={"ping": ping},
                readyz={
                    "ping": ping,
                    "shutdown": self._check_shutdown,
                    "serving": self._check_serving,
                    "policies": self._check_policies,
                    "watches": self._check_watches,
                },
            ),
            metrics_route("/metrics", self.registry),
            json_route("/policies", self._describe),
        ]

    def _describe(self) -> dict[str, Any]:
        if self.watched is not None:
            kubernetes = self.watched.emulation.describe()
        else:
            kubernetes = {"emulated": f"1.{self.world.snapshot().objects.behaves.minor}"}
        return {**self.rollout.describe(), "kubernetes": kubernetes}

    def _check_serving(self) -> str | None:
        return None if self.ports.serving.is_set() else "not answering yet"

    def _check_policies(self) -> str | None:
        return self.saved.waits_for() or self.rollout.waits_for()

    def _check_watches(self) -> str | None:
        return None if self.watched is None else self.watched.readability.problem()

    def _check_shutdown(self) -> str | None:
        return "process is shutting down" if self._stop.is_set() else None
