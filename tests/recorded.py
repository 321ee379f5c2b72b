"""A kernel that is recorded, for tests of what reads decision logs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    NODES,
    PODS,
    Event,
    LeadershipAcquired,
    ObjectChanged,
    RevisionSwitched,
)
from engine.core.kernel.instructions import ReportDecision
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import VirtualClock
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.recording.log_writer import LogSettings, LogWriter
from engine.recording.recorder import Recorder
from engine.telemetry.metrics import Metrics


class RecordedKernel:
    """A kernel that is recorded in *directory*, dated by *clock*.

    Its policies are *files*, or else the shipped ones.
    """

    def __init__(
        self,
        directory: Path,
        clock: VirtualClock,
        kinds: Sequence[str] = ("services",),
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self.writer = LogWriter(LogSettings(directory), "test")
        self._recorder = Recorder(self.writer, clock, kinds)
        self._recorder.start()
        bundle = build_bundle(files or {})
        self._evaluator = InProcessEvaluator(bundle.program)
        cache = Cache()
        plugins = make_plugins(cache.objects)
        self.kernel = Kernel(cache, plugins, metrics=Metrics(CollectorRegistry()))
        self._recorder.policies(bundle.revision, files or {})
        self.report(RevisionSwitched(Scheduler(bundle, self._evaluator)))
        self.report(LeadershipAcquired())

    def report(self, event: Event) -> None:
        self._recorder.handled(event, self.kernel.handle(event, self._clock.monotonic()))

    def node(self, node: Node) -> None:
        self.report(ObjectChanged(NODES, None, node))

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        self.report(ObjectChanged(PODS, old, new))

    def decide(self, pod: Pod) -> Decision:
        """What is decided about *pod*, which comes now."""
        self.pod(None, pod)
        made = self.try_next()
        assert made.pod is pod
        return made.decision

    def try_next(self) -> ReportDecision:
        """What is decided about the pod whose turn it is."""
        self._recorder.deciding(self.kernel)
        instructions = decided(self.kernel.decide(self._clock.monotonic()))
        self._recorder.decided(instructions)
        (made,) = (one for one in instructions if isinstance(one, ReportDecision))
        return made

    def close(self) -> None:
        self._evaluator.close()
        self._recorder.close()
