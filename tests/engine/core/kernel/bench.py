"""A kernel whose decisions the test writes, and a shell around it that carries little out."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.framework.profile import Profile
from engine.core.framework.status import Code, Status
from engine.core.kernel.events import (
    PODS,
    Event,
    LeadershipAcquired,
    ObjectChanged,
    RevisionSwitched,
)
from engine.core.kernel.instructions import (
    ForgetReports,
    Instruction,
    RepeatReports,
    ReportBound,
    ReportFailure,
    ReportNomination,
)
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.pod import Pod
from engine.core.queueing.hints import Hints
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.decision import Decision, Explanation, Steps
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.placement import Preemption
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.io.binding.outcomes import AttemptOutcomes
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.telemetry.metrics import Metrics


@functools.cache
def _loaded() -> tuple[Bundle, InProcessEvaluator]:
    bundle = build_bundle({})
    return bundle, InProcessEvaluator(bundle.program)


class ScriptedScheduler(Scheduler):
    """Decides pods by name as the test says; their hooks are those of the default profile.

    Args:
        ours: The `schedulerName`s that it has a profile for.
    """

    def __init__(self, ours: Iterable[str] = ("default-scheduler",)) -> None:
        super().__init__(*_loaded())
        self.ours = set(ours)
        self.script: dict[str, Decision] = {}

    def profile_of(self, pod: Pod) -> Profile | None:
        return self.bundle.profiles[0] if pod.scheduler_name in self.ours else None

    def steps(self, pod: Pod, *_: Any, **__: Any) -> Steps:
        yield from ()
        return Explanation(self.script[pod.name])


def rejected(
    reason: str = "Insufficient cpu",
    plugin: str = "NodeResourcesFit",
    *,
    preemption: Preemption | None = None,
) -> Decision:
    """The decision that a pod fits nowhere."""
    status = Status(Code.UNSCHEDULABLE, (reason,), plugin)
    return Decision(
        None,
        Diagnosis(1, rejections={status: 1}),
        "rev1",
        eviction=preemption,
        nominated_node="" if preemption is None else preemption.node,
    )


class KernelBench:
    """A kernel in virtual time; instructions go to `carriers` by their type."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.metrics = Metrics(CollectorRegistry())
        self.cache = Cache()
        self.kernel = Kernel(self.cache, {}, metrics=self.metrics)
        self.queue = self.kernel.queue
        self.carriers: dict[type[Any], Callable[[Any], None]] = {}
        self.done: list[Instruction] = []
        self.scheduler = ScriptedScheduler()
        self.use(self.scheduler)
        self.report(LeadershipAcquired())

    def use(self, scheduler: ScriptedScheduler) -> None:
        """Decide by *scheduler*; every event may help every pod that a plugin rejected."""
        self.scheduler = scheduler
        self.report(RevisionSwitched(scheduler))
        self.queue.rekey(Hints())

    def report(self, event: Event) -> list[Instruction]:
        return self.carry_out(self.kernel.handle(event, self.clock.monotonic()))

    def carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        self.done += instructions
        for one in instructions:
            if (carrier := self.carriers.get(type(one))) is not None:
                carrier(one)
        return instructions

    def add(self, pod: Pod) -> None:
        self.report(ObjectChanged(PODS, None, pod))

    def change(self, old: Pod, new: Pod) -> None:
        self.report(ObjectChanged(PODS, old, new))

    def delete(self, pod: Pod) -> None:
        self.report(ObjectChanged(PODS, pod, None))

    def decide(self, pod: Pod, decision: Decision) -> list[Instruction]:
        """Try the next pod, which has to be *pod*, and decide it so."""
        self.scheduler.script = {pod.name: decision}
        return self.carry_out(decided(self.kernel.decide(self.clock.monotonic())))

    def popped(self, pod: Pod) -> QueuedPod:
        """Take the next pod, which has to be *pod*, out of the queue."""
        queued = self.queue.pop()
        assert queued is not None
        assert queued.uid == pod.uid
        return queued

    def place_of(self, pod: Pod) -> str:
        """Where the queue has the pod."""
        self.kernel.check_invariants()
        return str(self.queue.describe(pod.key).get("queue", "unknown"))


def reporting(outcomes: AttemptOutcomes) -> Mapping[type[Any], Callable[[Any], None]]:
    """What carries out instructions to report something."""
    return {
        ReportBound: outcomes.bound,
        ReportFailure: outcomes.failed,
        ReportNomination: outcomes.nominated,
        ForgetReports: outcomes.forget,
        RepeatReports: outcomes.repeat,
    }
