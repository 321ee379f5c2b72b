"""The running scheduler and the simulation do the same about the same events.

Random streams go to the whole scheduler (informers, scheduling loop, bindings, preemptions,
roll-out) on the embedded API server: pods of several priorities and groups, with policies that
fail, wait, lose time and are edited; nodes that come and go; bindings and evictions that fail, and
watches that break. Everything runs in virtual time. What was reported to its kernel is then
reported to the kernel of a simulation, which has to make the same decisions and give the same
instructions, one by one; and at rest both have to know what the API server has.
"""

import asyncio
import functools
import itertools
import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from devkit.cluster import DevCluster, make_node, make_pod
from devkit.faults.hosts import Host, HostClock, Simulator
from devkit.faults.network import Network
from engine.app import App, PolicyParts, Settings
from engine.core.kernel import events
from engine.core.kernel.events import Event, Reply
from engine.core.kernel.instructions import Bind, Evict, Instruction, ReportDecision
from engine.core.kernel.kernel import Kernel, decided
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.extenders import Question
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.cluster_file import Cluster
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.lib.clock import Clock, VirtualClock
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure, Verdict
from engine.rollout.sources import ConfigMapSource
from engine.rollout.trial import CandidateStages
from engine.telemetry.metrics import Metrics
from tests.engine.app.harness import NAME, NAMESPACE, config_map, edit, namespace
from tests.engine.core.kernel.plain import plain
from tests.properties.test_the_kernel_repeats import CONFIG, MOODS, MOODY
from tests.searching import examples
from workbench.simulation.simulation import Simulation
from workbench.simulation.workload import Workload

# --- policies ----------------------------------------------------------------------------------

SLOW_SECONDS: Final = 0.4
EDITS: Final = {
    "comment": MOODY + "# another revision\n",
    "upside down": MOODY.replace("-pod.priority", "pod.priority"),
    "broken": MOODY + "def :\n",
    "back": MOODY,
}


def files(policy: str) -> dict[str, str]:
    return {"moody.star": policy, "config.yaml": CONFIG}


@functools.cache
def _built(offered: tuple[tuple[str, str], ...]) -> Bundle:
    return build_bundle(dict(offered))


_EVALUATORS: Final[dict[str, InProcessEvaluator]] = {}


class LosesTime:
    """Evaluates; a hook that fails with `slow` runs into its deadline, by calling *lose*."""

    def __init__(self, inner: InProcessEvaluator, lose: Callable[[], None]) -> None:
        self._inner = inner
        self._lose = lose

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Verdict | PolicyFailure]]:
        answers = self._inner.evaluate(calls)
        found: list[Sequence[Verdict | PolicyFailure]] = [
            [_slow_or_same(verdict) for verdict in answer] for answer in answers
        ]
        if found != [list(answer) for answer in answers]:
            self._lose()
        return found

    def close(self) -> None:
        """Nothing to release."""


def _slow_or_same(verdict: Verdict | PolicyFailure) -> Verdict | PolicyFailure:
    if isinstance(verdict, PolicyFailure) and "slow" in verdict.message:
        return replace(verdict, kind="deadline")
    return verdict


def stages(lose: Callable[[], None]) -> CandidateStages:
    return CandidateStages(
        build=lambda offered: _built(tuple(sorted(offered.items()))),
        make_evaluator=lambda bundle: _evaluator_of(bundle, lose),
        run_tests=lambda _: [],
    )


def _evaluator_of(bundle: Bundle, lose: Callable[[], None]) -> LosesTime:
    inner = _EVALUATORS.get(bundle.revision)
    if inner is None:
        inner = _EVALUATORS[bundle.revision] = InProcessEvaluator(bundle.program)
    return LosesTime(inner, lose)


# --- the scheduler, in writing -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A call of the kernel, and its instructions; without an event: a decision."""

    at: float
    ended_at: float
    event: Event | None
    instructions: list[Any]


# More than any of the streams takes: it is going in circles, and time stands still meanwhile.
MOST_STEPS: Final = 10_000


class Written:
    """Writes down what the shell of *kernel* reports to it, and what it answers."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self._clock = clock
        self.steps: list[Step] = []
        self.instructions: list[Instruction] = []
        self._handle, self._decide = kernel.handle, kernel.decide
        kernel.handle = self._handled  # type: ignore[method-assign]  # the shell does not notice
        kernel.decide = self._decided  # type: ignore[method-assign]

    def _handled(self, event: Event, now: float) -> list[Instruction]:
        return self._write(now, event, self._handle(event, now))

    def _decided(self, now: float) -> Generator[Question, Reply, list[Instruction]]:
        instructions = yield from self._decide(now)
        return self._write(now, None, instructions)

    def _write(
        self, now: float, event: Event | None, instructions: list[Instruction]
    ) -> list[Instruction]:
        self.steps.append(Step(now, self._clock.monotonic(), event, plain(instructions)))
        assert len(self.steps) < MOST_STEPS, "it goes on for ever"
        self.instructions += instructions
        return instructions


class Life:
    """A scheduler on an embedded API server, and what a stream does to the cluster."""

    def __init__(self, cluster: DevCluster, app: App) -> None:
        self._cluster = cluster
        self._app = app
        self._numbers = itertools.count()

    async def node(self, number: int, cpu: int) -> None:
        name = f"n{number}"
        found = self._cluster.get("nodes", name)
        if not cpu:
            if found is not None:
                self._cluster.delete("nodes", name)
            return
        made = make_node(name, cpu=str(cpu))
        if found is None:
            self._cluster.create(made)
        else:
            self._cluster.update("nodes", {**found, "status": made["status"]}, subresource="status")

    async def pod(self, cpu: int, priority: int, mood: str, group: str) -> None:
        labels = {key: value for key, value in (("mood", mood), ("group", group)) if value}
        if group:
            labels["least"] = "2"
        name, of_class = f"p{next(self._numbers)}", f"class-{priority}"
        self._cluster.create(
            make_pod(name, cpu=str(cpu), labels=labels, priorityClassName=of_class)
        )

    async def change(self, number: int, mood: str) -> None:
        found = self._cluster.get("pods", f"p{number}")
        if found is not None:
            labels = {**found["metadata"]["labels"], "mood": mood}
            metadata = {**found["metadata"], "labels": labels}
            self._cluster.update("pods", {**found, "metadata": metadata})

    async def go(self, number: int) -> None:
        if self._cluster.get("pods", f"p{number}") is not None:
            self._cluster.delete("pods", f"p{number}")

    async def edit(self, variant: str) -> None:
        edit(self._cluster, files(EDITS[variant]))

    async def trouble(self, kind: str) -> None:
        faults = self._cluster.faults
        match kind:
            case "a binding is refused":
                faults.fail(403, resource="pods/binding")
            case "a binding is repeated":
                faults.fail(503, resource="pods/binding")
            case "the answer to a binding is lost":
                faults.drop(applied=True, resource="pods/binding")
            case "an eviction is refused":
                faults.fail(403, verb="delete", resource="pods")
            case "watches break":
                self._cluster.close_watches(abort=True)
            case "watches expire":
                self._cluster.expire_watches()
            case "a restart":
                await self._cluster.crash()
                await self._cluster.recover()

    async def wait(self, seconds: float) -> None:
        await pass_time(seconds)


TROUBLES: Final = (
    "a binding is refused",
    "a binding is refused",
    "a binding is repeated",
    "the answer to a binding is lost",
    "an eviction is refused",
    "watches break",
    "watches expire",
    "a restart",
)
_WEIGHTS: Final = {"pod": 9, "wait": 6, "node": 2, "change": 1, "go": 2, "edit": 1, "trouble": 2}


def stream_of(seed: int, length: int) -> list[tuple[Any, ...]]:
    """The first *length* steps of the stream that *seed* stands for."""
    rng = random.Random(seed)
    moods = ["", rng.choice(MOODS), rng.choice([*MOODS, "slow", "waits"])]  # a few at a time
    stream: list[tuple[Any, ...]] = []
    for name in rng.choices([*_WEIGHTS], [*_WEIGHTS.values()], k=length):
        match name:
            case "pod":
                group = rng.choice(["", "", "g", "h"])
                stream.append(
                    (name, rng.randint(1, 3), rng.randint(0, 2), rng.choice(moods), group)
                )
            case "wait":
                stream.append((name, rng.choice([0.0, 0.01, 0.5, 3.0, 12.0])))
            case "node":
                stream.append((name, rng.randint(0, 2), rng.choice([0, 2, 4])))
            case "change":
                stream.append((name, rng.randint(0, 20), rng.choice(MOODS)))
            case "go":
                stream.append((name, rng.randint(0, 20)))
            case "edit":
                stream.append((name, rng.choice([*EDITS])))
            case "trouble":
                stream.append((name, rng.choice(TROUBLES)))
    return stream


async def pass_time(seconds: float) -> None:
    """Return so many virtual seconds later."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()


async def lived(clock: HostClock, bindings: int, stream: Sequence[tuple[Any, ...]]) -> Written:
    """What the kernel of a scheduler was told and answered while *stream* happened."""
    async with DevCluster(clock=clock, seed=1) as cluster:
        cluster.create(namespace(), config_map(files(MOODY)))
        for value in range(3):
            cluster.create(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": f"class-{value}"},
                    "value": value,
                }
            )
        cluster.create(make_node("n0", cpu="4"))
        cluster.start_kubelets(stop_delay=0.7)
        async with ApiClient(Endpoint(server=cluster.url)) as client:
            app = App(
                client,
                policies=PolicyParts(
                    source=ConfigMapSource(client, NAMESPACE, NAME),
                    stages=stages(lambda: clock.spend(SLOW_SECONDS)),
                ),
                settings=Settings(max_unschedulable=math.inf, bindings=bindings),
                clock=clock,
            )
            written = Written(app.kernel, clock)
            running = asyncio.ensure_future(app.run())
            await app.leadership.leading.wait()
            life = Life(cluster, app)
            for name, *arguments in stream:
                await getattr(life, name)(*arguments)
            # Let everything come to rest, and compare with what the API server has.
            cluster.faults.clear()
            await pass_time(120.0)
            if running.done():
                running.result()
            app.kernel.check_invariants()
            _check_at_rest(app, cluster, written)
            app.request_stop()
            await running
    return written


def _check_at_rest(app: App, cluster: DevCluster, written: Written) -> None:
    """Raise `AssertionError` if something was lost between the API server and the kernel."""
    there = {pod["metadata"]["uid"]: pod for pod in cluster.list("pods")}
    pending = [uid for uid, pod in there.items() if not pod["spec"].get("nodeName")]
    waiting = [uid for uid in pending if uid in app.kernel.permits]
    for uid, pod in there.items():
        counted = app.cache.get_pod(uid)
        if uid not in waiting:
            node = pod["spec"].get("nodeName")
            assert (counted.node_name if counted is not None else None) == node, pod["metadata"]
    assert app.cache.pod_count == len(there) - len(pending) + len(waiting)
    names = sorted(f"default/{there[uid]['metadata']['name']}" for uid in pending)
    assert sorted(app.kernel.queue.keys()) == names
    ended = [step.event for step in written.steps if step.event is not None]
    for begun, ends in (
        (Bind, events.Bound | events.BindingFailed | events.BindingGivenUp),
        (Evict, events.PreemptionEnded),
    ):
        begun_count = sum(isinstance(one, begun) for one in written.instructions)
        assert begun_count == sum(isinstance(one, ends) for one in ended), begun
    assert not app.kernel.has_work


# --- the simulation ----------------------------------------------------------------------------


class Following(VirtualClock):
    """A clock that is set."""

    def set(self, seconds: float) -> None:
        self._elapsed = seconds


class Told(Simulation):
    """A simulation in which happens what has happened to a scheduler."""

    def __init__(self, written: Sequence[Step]) -> None:
        self._placements: dict[str, Placement] = {}
        self._follows = Following()
        self._ended_at = 0.0
        bundle = _built(())  # the scheduler's are switched to as it did
        super().__init__(
            bundle, InProcessEvaluator(bundle.program), Workload(Cluster(), [], [], [])
        )
        for number, step in enumerate(written):
            got = self._take(step)
            assert got == step.instructions, f"step {number}: {step.event}"

    def _make_kernel(self, plugins: Mapping[str, RuntimePlugin]) -> Kernel:
        return Kernel(
            self.cache,
            plugins,
            metrics=Metrics(CollectorRegistry()),
            stopwatch=self._follows.monotonic,
            retries=RetryTimes(max_unschedulable=math.inf),
        )

    def _report(self, event: Event) -> None:
        """What a simulation begins with is what the scheduler has begun with."""

    def _take(self, step: Step) -> list[Any]:
        self._follows.set(step.at)
        self._ended_at = step.ended_at
        if step.event is None:
            instructions = decided(self.kernel.decide(step.at))
        else:
            instructions = self.kernel.handle(self._own(step.event), step.at)
        for one in instructions:
            if isinstance(one, Bind):
                self._placements[one.placement.pod.uid] = one.placement
        self.kernel.check_invariants()
        return plain(instructions)

    def _lose(self) -> None:
        # What a decision asks depends on what is known from before, and that is more in the
        # scheduler, where a trial has asked already: so it loses what was lost there.
        self._follows.set(self._ended_at)

    def _own(self, event: Event) -> Event:
        """The same event about the simulation's own objects."""
        match event:
            case events.Bound() | events.BindingFailed() | events.BindingGivenUp():
                own = self._placements[event.placement.pod.uid]
                return msgspec.structs.replace(event, placement=own)
            case events.RevisionSwitched(scheduler=scheduler):
                bundle = scheduler.bundle
                own_evaluator = _evaluator_of(bundle, self._lose)
                return events.RevisionSwitched(Scheduler(bundle, own_evaluator))
            case _:
                return event


def compare(bindings: int, stream: Sequence[tuple[Any, ...]]) -> Written:
    simulator = Simulator(random.Random(1))
    host = Host(simulator, Network(simulator, random.Random(1)), "host")
    running = host.start(lived(host.clock, bindings, stream))
    simulator.run(math.inf, end=running.done)
    written = running.result()
    simulator.close()
    Told(written.steps)
    return written


@given(seed=st.integers(0, 2**32), length=st.integers(10, 50), bindings=st.sampled_from([1, 96]))
@settings(max_examples=examples(25))
@pytest.mark.long("starts a scheduler and an API server for each stream")
def test_the_simulation_gives_every_instruction_of_the_scheduler(
    seed: int, length: int, bindings: int
) -> None:
    compare(bindings, stream_of(seed, length))


def test_a_short_stream_is_decided_as_in_the_simulation() -> None:
    written = compare(96, [("pod", 3, 0, "", ""), ("wait", 1.0), ("pod", 3, 2, "", "")])
    made = [one for one in written.instructions if isinstance(one, ReportDecision)]
    assert [one.pod.name for one in made][:2] == ["p0", "p1"]
