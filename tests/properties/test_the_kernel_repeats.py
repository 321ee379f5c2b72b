"""The same events give the same instructions, in the kernel and in the shells around it.

Random streams of events go twice to a kernel: pods and nodes come, change and go, bindings succeed
and fail, victims are evicted, policies fail, wait and are switched, time passes. And random
workloads go to the simulation, and to the running scheduler with the simulation in the place of its
API server: every decision and every instruction has to be the same.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from engine.app import App, PolicyParts, Settings
from engine.core.caching.cache import Cache
from engine.core.kernel import events
from engine.core.kernel.events import NODES, PODS, ObjectChanged, PreemptionEnd
from engine.core.kernel.instructions import Bind, Evict, Instruction, ReportGate, RunAction
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.cluster_file import Cluster
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.rollout.sources import BuiltinSource
from engine.rollout.trial import CandidateStages
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.plain import plain
from tests.searching import examples
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import Arrival, NodeChange, Workload

# --- policies that fail for some pods ----------------------------------------------------------

MOODY = '''
"""Fails, waits or refuses, as a pod's label says."""

def queue_key(pod):
    return fail("no key") if pod.labels.get("mood") == "key" else -pod.priority

def pre_enqueue(pod):
    if pod.labels.get("mood") == "gate":
        fail("no gate")
    return "held" if pod.labels.get("mood") == "held" else None

def filter(pod, node):
    mood = pod.labels.get("mood")
    return fail(mood) if mood in ("filter", "slow") else None

def permit(pod, group):
    mood = pod.labels.get("mood")
    if mood == "permit":
        fail("no approval")
    return wait(7) if mood == "waits" else None
'''
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort: {enabled: [{name: moody}], disabled: [{name: "*"}]}
    multiPoint: {enabled: [{name: moody}, {name: GangScheduling}]}
  pluginConfig:
  - name: GangScheduling
    args: {groupLabel: group, minCountLabel: least}
"""
MOODS = ("", "", "", "key", "gate", "held", "filter", "permit", "waits")
OTHERS = "# another revision\n"


@functools.cache
def loaded(more: str = "") -> tuple[Bundle, InProcessEvaluator]:
    bundle = build_bundle({"moody.star": MOODY + more, "config.yaml": CONFIG})
    return bundle, InProcessEvaluator(bundle.program)


@functools.cache
def pod_of(name: str, cpu: int, priority: int, mood: str, group: str, version: int = 0) -> Pod:
    labels = {key: value for key, value in (("mood", mood), ("group", group)) if value}
    if group:
        labels["least"] = "2"
    return make_pod(
        name,
        uid=name,
        cpu=cpu,
        priority=priority,
        labels=labels,
        resource_version=str(version),
    )


# --- a kernel, twice ---------------------------------------------------------------------------

Step = tuple[Any, ...]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 2), st.sampled_from([0, 2, 4])),
        st.tuples(
            st.just("pod"),
            st.integers(1, 3),
            st.integers(0, 2),
            st.sampled_from(MOODS),
            st.sampled_from(["", "", "g", "h"]),
        ),
        st.tuples(st.just("change"), st.integers(0, 20), st.sampled_from(MOODS)),
        st.tuples(st.just("go"), st.integers(0, 20)),
        st.tuples(st.just("decide"), st.integers(1, 4)),
        st.tuples(st.just("decide"), st.integers(1, 4)),
        st.tuples(st.just("bind"), st.sampled_from([True, True, False])),
        st.tuples(st.just("evict"), st.sampled_from(list(PreemptionEnd))),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 12.0])),
        st.tuples(st.just("switch"), st.sampled_from(["", OTHERS])),
    ),
    min_size=5,
    max_size=40,
)


class Play:
    """A kernel and what the steps of a stream do to it."""

    def __init__(self) -> None:
        self.instructed: list[Any] = []
        cache = Cache()
        self.kernel = Kernel(
            cache, make_plugins(cache.objects), metrics=Metrics(CollectorRegistry())
        )
        self.now = 0.0
        self.numbers = itertools.count()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.bindings: list[Placement] = []
        self.evictions: list[Evict] = []
        self.switch("")
        self.report(events.LeadershipAcquired())

    def report(self, event: events.Event) -> None:
        self.take(self.kernel.handle(event, self.now))

    def take(self, instructions: list[Instruction]) -> None:
        self.instructed.append(plain(instructions))
        for one in instructions:
            if isinstance(one, Bind):
                self.bindings.append(one.placement)
            elif isinstance(one, Evict):
                self.evictions.append(one)
        self.kernel.check_invariants()

    def node(self, number: int, cpu: int) -> None:
        name = f"n{number}"
        old, new = self.nodes.pop(name, None), make_node(name, cpu=cpu) if cpu else None
        if new is not None:
            self.nodes[name] = new
        if old is not None or new is not None:
            self.report(ObjectChanged(NODES, old, new))

    def pod(self, cpu: int, priority: int, mood: str, group: str) -> None:
        pod = pod_of(f"p{next(self.numbers)}", cpu, priority, mood, group)
        self.pods[pod.name] = pod
        self.report(ObjectChanged(PODS, None, pod))

    def change(self, number: int, mood: str) -> None:
        old = self.pods.get(f"p{number}")
        if old is not None and not old.node_name:
            cpu = old.requests["cpu"] // 1000
            group, version = old.labels.get("group", ""), int(old.resource_version) + 1
            self.put(old, pod_of(old.name, cpu, old.priority, mood, group, version))

    def put(self, old: Pod, new: Pod) -> None:
        self.pods[new.name] = new
        self.report(ObjectChanged(PODS, old, new))

    def go(self, number: int) -> None:
        pod = self.pods.pop(f"p{number}", None)
        if pod is not None:
            self.report(ObjectChanged(PODS, pod, None))

    def decide(self, count: int) -> None:
        self.report(events.TurnBegan())
        for _ in range(count):
            self.take(decided(self.kernel.decide(self.now)))

    def bind(self, succeeds: bool) -> None:
        if not self.bindings:
            return
        placement = self.bindings.pop(0)
        known = self.pods.get(placement.pod.name)
        if succeeds and known is not None:
            self.report(events.Bound(placement))
            self.put(known, known.with_node(placement.node))
        else:
            self.report(events.BindingFailed(placement, "refused"))

    def evict(self, end: PreemptionEnd) -> None:
        if not self.evictions:
            return
        evict = self.evictions.pop(0)
        if end in (PreemptionEnd.DONE, PreemptionEnd.IN_MEMORY):
            for victim in evict.victims:
                if victim.uid in self.kernel.permits:
                    self.report(events.WaitingPodPreempted(victim.uid))
                else:
                    self.go(int(victim.name[1:]))
        self.report(events.PreemptionEnded(evict.preemptor, evict.preemption.node, end))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.report(events.TimePassed())

    def switch(self, more: str) -> None:
        self.report(events.RevisionSwitched(Scheduler(*loaded(more))))


def played(steps: Sequence[Step]) -> list[Any]:
    play = Play()
    for name, *arguments in steps:
        getattr(play, name)(*arguments)
    return play.instructed


@pytest.mark.budget(6, "random events, twice")
@given(steps=STEPS)
@settings(max_examples=examples(60))
def test_the_same_events_give_the_same_instructions(steps: list[Step]) -> None:
    assert played(steps) == played(steps)


# --- two shells --------------------------------------------------------------------------------


class Simulated(Simulation):
    """A simulation that writes its instructions down."""

    def __init__(self, *arguments: Any) -> None:
        self.instructed: list[Any] = []
        super().__init__(*arguments)

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        self.instructed += plain(instructions)
        super()._carry_out(instructions)


class Scheduled(Simulated):
    """The running scheduler in virtual time; the simulation is its API server."""

    def _make_kernel(self, plugins: Mapping[str, RuntimePlugin]) -> Kernel:
        self.app = App(
            ApiClient(Endpoint(server="http://127.0.0.1:1")),  # never asked
            policies=PolicyParts(
                source=BuiltinSource(),
                stages=CandidateStages(build=_unused, make_evaluator=_unused, run_tests=_unused),
            ),
            clock=self.clock,
            settings=Settings(max_unschedulable=math.inf),
        )
        self.cache = self.app.cache
        self.app.leadership.leading.set()
        carriers, carry_out = dict(self.app._carriers), self.app._carry_out
        for instruction in (Bind, Evict, ReportGate, RunAction):
            del carriers[instruction]
        self.app._carriers = carriers

        def carry_out_both(instructions: Sequence[Instruction]) -> None:
            carry_out(instructions)
            Simulated._carry_out(self, instructions)

        self.app._carry_out = carry_out_both  # type: ignore[method-assign]  # the API server is here
        return self.app.kernel

    def _report(self, event: events.Event) -> None:
        self.app.report(event)

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        self.app._carry_out(instructions)


def _unused(*_: Any) -> Any:
    raise AssertionError("no policies come into force here")


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Nodes and pods that come and go, one thing at a time."""
    at = itertools.count(1)
    arrivals, departures = [], []
    changes = [NodeChange(0.0, "n0", make_node("n0", cpu=4))]
    for number in range(draw(st.integers(3, 14))):
        moment = float(next(at) * draw(st.sampled_from([1, 1, 20])) + number * 20)
        kind = draw(st.sampled_from(["pod", "pod", "pod", "go", "node", "no node"]))
        if kind == "pod":
            cpu, priority = draw(st.integers(1, 3)), draw(st.integers(0, 2))
            mood, group = draw(st.sampled_from(MOODS)), draw(st.sampled_from(["", "", "g"]))
            arrivals.append(Arrival(moment, pod_of(f"p{number}", cpu, priority, mood, group)))
        elif kind == "go":
            departures.append((moment, f"default/p{draw(st.integers(0, number))}"))
        else:
            name = f"n{draw(st.integers(0, 2))}"
            node = make_node(name, cpu=draw(st.integers(2, 5))) if kind == "node" else None
            changes.append(NodeChange(moment, name, node))
    return Workload(Cluster(), arrivals, changes, departures)


@pytest.mark.budget(6, "random workloads, twice")
@given(workload=workloads())
@settings(max_examples=examples(40))
def test_the_simulation_does_what_the_scheduler_does(workload: Workload) -> None:
    bundle, evaluator = loaded()
    simulated = Simulated(bundle, evaluator, workload)
    simulated.run()
    scheduled = Scheduled(bundle, evaluator, workload)
    scheduled.run()
    pairs = zip(scheduled.instructed, simulated.instructed, strict=False)
    for number, (got, want) in enumerate(pairs):
        assert got == want, f"instruction {number}"
    assert len(scheduled.instructed) == len(simulated.instructed)
    simulated.kernel.check_invariants()
    scheduled.app.kernel.check_invariants()
