"""What the process shows: endpoints, live answers, the page, and metrics that are read off it.

Owns which paths are served, and what makes the process ready.
"""

from collections.abc import Callable, Iterable
from typing import Any

from engine.app.counting import DecisionCounting
from engine.app.environment import Environment
from engine.app.leadership import Leadership
from engine.app.policies import Policies
from engine.app.watching import Watching
from engine.core.kernel.kernel import Kernel
from engine.io.emulation import Emulation
from engine.io.endpoints.component_pages import Component, component_routes
from engine.io.endpoints.health import health_routes, metrics_route, ping
from engine.io.endpoints.routes import Route, json_route
from engine.io.endpoints.server import EndpointServer
from engine.io.leader_election import HolderPage
from engine.policy.written import with_decisions
from engine.rollout.admission_registration import Registration
from engine.rollout.admission_webhook import admission_route
from engine.surfaces.live.activity import Activity
from engine.surfaces.live.explainer import Explainer
from engine.surfaces.live.service import LiveAnswers, Replica
from engine.surfaces.page.handlers import PageHandlers
from engine.surfaces.page.routes import page_routes, root_route
from engine.surfaces.page.streams import Streams
from engine.telemetry.component_metrics import language


class Surfaces:
    """The endpoints of a scheduler, and what they answer.

    Args:
        env, kernel, leadership, watching, policies, counting, emulation: See there.
        is_stopping: True once the process was asked to stop.

    Attributes:
        registration: Has the API server ask this process about edits; None if others see to that.
    """

    def __init__(
        self,
        env: Environment,
        kernel: Kernel,
        leadership: Leadership,
        watching: Watching,
        policies: Policies,
        counting: DecisionCounting,
        emulation: Emulation,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._env = env
        self._emulation = emulation
        self._leadership = leadership
        self._watching = watching
        self._rollout = policies.rollout
        self._is_stopping = is_stopping
        clock, metrics, recorder = env.clock, env.metrics, env.decision_log
        self.live = LiveAnswers(
            kernel=kernel,
            explainer=Explainer(kernel, policies.stages, lambda: self._rollout.active, clock=clock),
            record=counting.record,
            rollout=policies.rollout,
            control=policies.control,
            replica=Replica(
                leader=leadership.leader,
                is_leading=leadership.leading.is_set,
                pod_groups=watching.served_groups,
                kubernetes=emulation.describe,
                decision_log=recorder.directory if recorder is not None else None,
            ),
            clock=clock,
            machine_types=env.settings.machine_types,
        )
        self.page = PageHandlers(Streams())
        self.activity = Activity(
            attempts=metrics.schedule_attempts,
            latency=metrics.algorithm_seconds,
            rejections=metrics.rejections,
            waiting=kernel.queue.counts,
            present=lambda: (self.live.revision, leadership.leader().identity),
            clock=clock,
        )
        self.registration = self._registration()
        self.endpoints = EndpointServer(
            self._routes(),
            secure=env.settings.secure,
            local_port=env.settings.local_port,
            clients=env.reviewers,
            clock=clock,
        )

    def holder_page(self) -> HolderPage:
        """Where other replicas send people for the page of this one."""
        address = self.endpoints.page_address(self._env.client.server)
        return HolderPage(address, self.endpoints.certificate)

    def _routes(self) -> list[Route]:
        elector = self._leadership.elector
        elected = elector.check if elector is not None else ping
        routes = [
            *health_routes(
                healthz={"ping": ping, "leaderElection": elected},
                livez={"ping": ping},
                readyz={
                    "ping": ping,
                    "leaderElection": elected,
                    "shutdown": self._check_shutdown,
                    "sched-handler-sync": self._check_synced,
                    "policies": self._check_policies,
                    "watches": self._watching.readability.problem,
                },
            ),
            metrics_route("/metrics", self._env.registry),
            *page_routes(self.page, self.live, self.activity, self._leadership.leader),
            *self._admission_routes(),
            json_route("/facts", self._watching.facts.describe),
            json_route("/configz", lambda: {"componentconfig": self._configuration()}),
        ]
        routes += self._component_routes([route.path for route in routes])
        return [*routes, root_route(routes)]

    def _admission_routes(self) -> list[Route]:
        settings = self._env.settings
        registration, key = self.registration, settings.admission_key
        if registration is None and not key:
            return []

        def is_ready() -> bool:
            return self._watching.synced.is_set() and not self._is_stopping()

        def keyed() -> str:
            return key if registration is None else registration.key

        return [admission_route(keyed, self._rollout.admission.judge, is_ready)]

    def _registration(self) -> Registration | None:
        settings = self._env.settings
        if not settings.admission_webhook:
            return None
        return Registration(
            self._env.client,
            settings.admission_webhook,
            lambda: self.endpoints.certificate,
            key=settings.admission_key,
        )

    def _configuration(self) -> dict[str, Any]:
        """The configuration of this process with the profiles and extenders that decide now."""
        configuration = self._env.settings.configuration
        try:
            bundle = self._rollout.active.bundle
        except LookupError:
            return configuration
        config = bundle.configuration
        return with_decisions(
            configuration,
            [profile.written for profile in bundle.profiles],
            () if config is None else config.extenders,
            with_secrets=False,
        )

    def _component_routes(self, paths: Iterable[str]) -> list[Route]:
        clock, settings = self._env.clock, self._env.settings
        component = Component(
            name="starsched",
            version=settings.version,
            emulates=lambda: self._emulation.version,
            language=language(),
            started_at=clock.now(),
            flags=settings.flags,
        )
        return component_routes(component, paths, clock.now)

    def _check_synced(self) -> str | None:
        waiting = self._watching.readability.not_synced()
        return f"handlers are not fully synchronized: {waiting}" if waiting else None

    def _check_policies(self) -> str | None:
        return self._env.saved.waits_for() or self._rollout.waits_for()

    def _check_shutdown(self) -> str | None:
        return "process is shutting down" if self._is_stopping() else None
