"""What the process writes to the API server besides its decisions: events and conditions.

Owns the queue of writes that wait while bindings are in flight. What is worth reporting is the
kernel's to say.
"""

from collections.abc import Callable

from engine.app.environment import Environment
from engine.core.caching.objects import ObjectStore
from engine.io.binding.deferred_writer import DeferredWriter
from engine.io.binding.event_recorder import EventRecorder
from engine.io.binding.outcomes import AttemptOutcomes
from engine.io.binding.pod_group_status import PodGroupStatusUpdater
from engine.io.binding.pod_status import PodStatusUpdater
from engine.io.kube.resources import Resource


class Reporting:
    """Events, and the conditions of pods and pod groups.

    Args:
        env: See there.
        objects: The cluster's other objects, pod groups among them.
        is_busy: True while decisions or bindings are to come: what is written waits for them.
        may_report: False once another leader may have decided otherwise since.
        pod_groups: PodGroup in the version that is served; None if it is not.
    """

    def __init__(
        self,
        env: Environment,
        objects: ObjectStore,
        *,
        is_busy: Callable[[], bool],
        may_report: Callable[[], bool],
        pod_groups: Callable[[], Resource | None],
    ) -> None:
        clock, metrics = env.clock, env.metrics
        self.writer = DeferredWriter(clock=clock, is_busy=is_busy)
        self.events = EventRecorder(
            env.client,
            self.writer,
            clock=clock,
            metrics=metrics,
            instance=env.settings.hostname,
        )
        # Another leader may have bound since what this one would report as pending.
        fenced = env.client.fenced(may_report)
        self.status = PodStatusUpdater(fenced, self.writer, clock=clock, metrics=metrics)
        self.outcomes = AttemptOutcomes(
            events=self.events,
            status=self.status,
            metrics=metrics,
            clock=clock,
            logs_attempts=env.settings.logs_attempts,
        )
        self.group_status = PodGroupStatusUpdater(
            fenced,
            self.writer,
            objects=objects,
            served=pod_groups,
            clock=clock,
            metrics=metrics,
        )

    def follow(self) -> None:
        """Log, and write again what could not be written, if its time has come."""
        self.outcomes.log_due()
        self.status.retry()
        self.group_status.retry()
