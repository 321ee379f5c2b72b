"""A kernel in memory with real policies, and an API server that the test plays."""

import functools
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    NODES,
    PODS,
    BindingFailed,
    Bound,
    Event,
    LeadershipAcquired,
    ObjectChanged,
    PreemptionEnded,
    Reply,
    RevisionSwitched,
    TimePassed,
    TurnBegan,
)
from engine.core.kernel.instructions import (
    Bind,
    Evict,
    Instruction,
    PodAssumed,
    PodCounted,
    PodForgotten,
    PodUncounted,
)
from engine.core.kernel.kernel import Kernel
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.extenders import Answer, Question, unopposed
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import VirtualClock
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod
from tests.profiles import only

CONFIG = (
    only("NodeResourcesFit", "GangScheduling")
    + """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
"""
)
GANGS: Final = {"config.yaml": CONFIG}

# More turns than any number of honest attempts in so small a world: it is going in circles.
MOST_TURNS = 400


@functools.lru_cache(maxsize=8)
def _loaded(files: tuple[tuple[str, str], ...]) -> tuple[Bundle, InProcessEvaluator]:
    bundle = build_bundle(dict(files))
    return bundle, InProcessEvaluator(bundle.program)


class World:
    """A scheduler without an API server; what it would bind is kept in `bindings`.

    Args:
        files: Its policies and their configuration.
        make_kernel: Makes the kernel.
    """

    def __init__(
        self, files: Mapping[str, str] = GANGS, make_kernel: Callable[..., Kernel] = Kernel
    ) -> None:
        self.clock = VirtualClock()
        self.cache = Cache()
        self.registry = CollectorRegistry()
        self.bundle, self.evaluator = _loaded(tuple(sorted(files.items())))
        self.kernel = make_kernel(
            self.cache,
            {},
            metrics=Metrics(self.registry),
            retries=RetryTimes(max_unschedulable=1e9),
        )
        self.queue, self.permits, self.groups = (
            self.kernel.queue,
            self.kernel.permits,
            self.kernel.groups,
        )
        self.bindings: list[Placement] = []
        self.done: list[Instruction] = []  # every instruction so far
        self.known: dict[str, Pod] = {}  # by name, as the API server has them
        self.counted: dict[str, str] = {}  # by uid, the node, as the instructions say
        self.switch()
        self.report(LeadershipAcquired())

    # --- the kernel --------------------------------------------------------------------------

    def report(self, event: Event) -> list[Instruction]:
        return self._carry_out(self.kernel.handle(event, self.clock.monotonic()))

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        self._follow(instructions)
        for one in instructions:
            if isinstance(one, Bind):
                self.bindings.append(one.placement)
            elif isinstance(one, Evict):  # no pod is evicted here
                self.report(PreemptionEnded(one.preemptor, one.preemption.node))
        return instructions

    def _follow(self, instructions: list[Instruction]) -> None:
        self.done += instructions
        for one in instructions:
            match one:
                case PodCounted(pod=pod):
                    self.counted[pod.uid] = pod.node_name
                case PodAssumed(uid=uid, node=node):
                    self.counted[uid] = node
                case PodUncounted(uid=uid) | PodForgotten(uid=uid, was_assumed=True):
                    self.counted.pop(uid, None)

    def decide(self) -> list[Instruction]:
        """Try the next pod; extenders have no objection."""
        turn = self.begin_decision()
        try:
            question = next(turn)
            while True:
                question = turn.send(unopposed(question))
        except StopIteration as end:
            instructions: list[Instruction] = end.value
            return instructions

    def begin_decision(self) -> Generator[Question, Answer, list[Instruction]]:
        """Try the next pod, with answers of extenders from the test."""
        decision = self.kernel.decide(self.clock.monotonic())
        try:
            question = next(decision)
            while True:
                answer = yield question
                question = decision.send(Reply(answer, self.clock.monotonic()))
        except StopIteration as end:
            return self._carry_out(end.value)

    # --- what happens ------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.report(ObjectChanged(NODES, None, node))

    def update_node(self, before: Node, node: Node) -> None:
        self.report(ObjectChanged(NODES, before, node))

    def delete_node(self, node: Node) -> None:
        self.report(ObjectChanged(NODES, node, None))

    def put_object(self, plural: str, obj: Any) -> None:
        self.report(ObjectChanged(plural, None, obj))

    def add(self, pod: Pod) -> None:
        self.known[pod.name] = pod
        self.report(ObjectChanged(PODS, None, pod))

    def change(self, pod: Pod) -> None:
        """Take in *pod* as the new version of the one of its name."""
        before, self.known[pod.name] = self.known[pod.name], pod
        self.report(ObjectChanged(PODS, before, pod))

    def delete(self, name: str) -> None:
        self.report(ObjectChanged(PODS, self.known.pop(name), None))

    def end_binding(self, index: int, *, succeeds: bool) -> None:
        placement = self.bindings.pop(index)
        known = self.known.get(placement.pod.name)
        if succeeds and known is not None and known.uid == placement.pod.uid:
            self.report(Bound(placement))
            self.change(known.with_node(placement.node))
        else:
            self.report(BindingFailed(placement, "refused"))

    def switch(self) -> None:
        self.scheduler = Scheduler(self.bundle, self.evaluator)
        self.report(RevisionSwitched(self.scheduler))

    def turns(self, count: int) -> bool:
        """Decide up to *count* pods; False if there was nothing left to decide."""
        self.report(TurnBegan())
        for _ in range(count):
            if not self.queue.has_poppable:
                return False
            self.decide()
        return True

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.report(TimePassed())
        self.report(TurnBegan())

    def check(self) -> None:
        self.kernel.check_invariants()
        pods = {uid: info.name for info in self.cache.infos() for uid in info.pods}
        assert self.counted == pods, "instructions and the cache differ in what counts where"

    # --- at rest -----------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        for _ in range(8):  # the longest backoff, several times over
            for _ in range(20):
                assert not self.turns(MOST_TURNS), "it never comes to rest"
                self.report(TurnBegan())
                if not self.bindings and not self.queue.has_poppable:
                    break
                while self.bindings:
                    self.end_binding(0, succeeds=True)
            else:
                raise AssertionError("it goes on for ever")
            self.wait(11.0)
        self.check()

    def placed(self, pods: list[Pod]) -> list[Pod]:
        return [pod for pod in pods if self.known[pod.name].node_name]

    def slots(self, cpu: int) -> int:
        """How many more pods of so many cores fit."""
        infos = [info for info in self.cache.snapshot().infos if info and info.node]
        return sum(
            max(0, info.node.allocatable["cpu"] - info.requested.get("cpu", 0)) // (1000 * cpu)
            for info in infos
            if info.node
        )


def member(name: str, group: str, wanted: int, cpu: int, priority: int) -> Pod:
    labels = {"group": group, "min": str(wanted)}
    return make_pod(name, cpu=cpu, labels=labels, priority=priority)
