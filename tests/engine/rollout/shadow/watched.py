"""Kernels that a shadow watches as the app has it watch, and a shadow that works in step."""

import random
from collections.abc import Callable, Generator, Mapping
from typing import Any

from engine.core.kernel.events import Reply
from engine.core.kernel.instructions import Evict, Instruction
from engine.core.kernel.kernel import Kernel
from engine.core.scheduling.extenders import Question
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.rollout.shadow.shadow import Shadow
from engine.rollout.shadow.worker import Job, MakeWorker, Work
from engine.rollout.trial import LoadedRevision
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World, member

ZONE = "topology.kubernetes.io/zone"


class InStep:
    """Does each job at once."""

    backlog = 0

    def __init__(self, work: Work, at_end: Callable[[], None], cores: float) -> None:
        self._work, self._at_end = work, at_end

    def put(self, job: Job) -> None:
        self._work(job, lambda: None)

    def pause(self) -> None:
        """It does not take turns with decisions."""

    def resume(self) -> None:
        """As above."""

    def close(self) -> None:
        self._at_end()

    def join(self, seconds: float) -> None:
        """There is no thread."""


class Later(InStep):
    """Does jobs when the test says so."""

    def __init__(self, work: Work, at_end: Callable[[], None], cores: float) -> None:
        super().__init__(work, at_end, cores)
        self.jobs: list[Job] = []
        self.is_paused = False

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    @property
    def backlog(self) -> int:  # type: ignore[override]
        return len(self.jobs)

    def put(self, job: Job) -> None:
        self.jobs.append(job)

    def do(self, most: int = 1_000) -> None:
        while self.jobs and most:
            self._work(self.jobs.pop(0), lambda: None)
            most -= 1


def in_process(bundle: Bundle) -> Evaluator:
    return InProcessEvaluator(bundle.program)


def shadow_in_step(
    make: Callable[[Bundle], Evaluator] = in_process, make_worker: MakeWorker = InStep
) -> Shadow:
    return Shadow(make, make_worker=make_worker)


class WatchedKernel(Kernel):
    """Tells a shadow of its decisions, as the app does."""

    shadow: Shadow

    def decide(self, now: float) -> Generator[Question, Reply, list[Instruction]]:
        self.shadow.deciding(self)
        instructions = yield from super().decide(now)
        self.shadow.decided(instructions)
        return instructions


def watched_by(shadow: Shadow) -> Callable[..., Kernel]:
    def make(*args: Any, **words: Any) -> Kernel:
        kernel = WatchedKernel(*args, **words)
        kernel.shadow = shadow
        return kernel

    return make


def revision_of(files: Mapping[str, str], scheduler: Scheduler | None = None) -> LoadedRevision:
    """What a candidate is, or with *scheduler* what is in force."""
    bundle = build_bundle(files) if scheduler is None else scheduler.bundle
    evaluator = InProcessEvaluator(bundle.program)
    return LoadedRevision(bundle, files, evaluator, scheduler or Scheduler(bundle, evaluator))


class WatchedWorld(World):
    """A small world with a shadow that compares *candidate* with *files*."""

    def __init__(
        self,
        files: Mapping[str, str],
        candidate: Mapping[str, str],
        shadow: Shadow | None = None,
    ) -> None:
        self.shadow = shadow_in_step() if shadow is None else shadow
        super().__init__(files, watched_by(self.shadow))
        self.base = revision_of(files, self.scheduler)
        self.candidate = revision_of(candidate)
        self.shadow.begin(self.candidate, self.base, 1.0)
        self._seen = self._number = 0

    def live(self, seed: int, steps: int) -> None:
        """Things happen: nodes, pods of all kinds, groups, bindings that fail, evictions."""
        rng = random.Random(seed)
        for _ in range(steps):
            self._number += 1  # no name comes twice
            self._happen(rng, self._number)
            self.turns(rng.randrange(6))
            if rng.random() < 0.5:
                while self.bindings:
                    self.end_binding(0, succeeds=rng.random() < 0.95)
            self._end_victims(rng)
            if rng.random() < 0.1:
                self.wait(11.0)
        self.check()

    def _end_victims(self, rng: random.Random) -> None:
        for one in self.done[self._seen :]:
            for victim in one.victims if isinstance(one, Evict) and rng.random() < 0.7 else ():
                if victim.name in self.known:
                    self.delete(victim.name)
        self._seen = len(self.done)

    def _happen(self, rng: random.Random, number: int) -> None:
        nodes = {info.name: info.node for info in self.cache.infos() if info.node is not None}
        roll = rng.random()
        if roll < 0.12 or not nodes:
            name = f"n{rng.randrange(12)}"
            labels = {ZONE: rng.choice("abc"), "number": str(number)}
            node = make_node(name, cpu=rng.choice([8, 16, 32]), labels=labels)
            self.add_node(node) if name not in nodes else self.update_node(nodes[name], node)
        elif roll < 0.15:
            self.delete_node(nodes[rng.choice(sorted(nodes))])
        elif roll < 0.45 and self.known:
            self.delete(rng.choice(sorted(self.known)))
        elif roll < 0.6:
            size = rng.randrange(2, 5)
            for one in range(size):
                name = f"g{number}-{one}"
                self.add(member(name, f"g{number}", size, rng.choice([1, 2, 6]), 0))
        else:
            for one in range(rng.randrange(1, 4)):
                priority = rng.choice([0, 0, 0, 10])
                cpu = rng.choice([1, 2, 3, 6])
                self.add(make_pod(f"p{number}-{one}", cpu=cpu, priority=priority))
