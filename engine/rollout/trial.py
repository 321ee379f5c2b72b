"""The stages that a candidate must pass before it decides for real pods: checks, tests, a trial.

Owns these stages and their order, and the text of a rejection. Everything slow runs outside the
event loop: building in a worker thread, tests in a sandboxed child, trial decisions in a worker
thread on a copy of the snapshot, by a sandbox of the candidate's own.
"""

import asyncio
import contextlib
import copy
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.reclaim_circles import search, warning_of
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.change_log import ChangeLog
from engine.lib.confinement import Confinement
from engine.policy.bundle import Bundle
from engine.policy.errors import PolicyErrors, Problem, SandboxDied
from engine.policy.evaluator import Evaluator, PolicyFailure
from engine.policy.memo_reuse import unchanged_instances
from engine.policy.metered import Evaluations, MeteredEvaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.rollout.measures import NO_LOSSES, Losses
from engine.rollout.rehearsal import Finding, failures_of, rehearse, worse
from engine.rollout.vanishing import warning_of_vanishing

log = structlog.get_logger(component="trial")

# So many small clusters are searched for queues that take from each other in turn: within a second.
_STATES: Final = 200

#: Before a sandbox that died while it loaded is started again.
_LOAD_AGAIN_SECONDS: Final = (0.5, 2.0)

BuildBundle = Callable[[Mapping[str, str]], Bundle]
MakeEvaluator = Callable[[Bundle], Evaluator]
RunTests = Callable[[Mapping[str, str]], list[Problem]]
RequireUsable = Callable[[Mapping[str, str]], None]


def _nothing() -> None:
    """The default of `on_close`."""


def _usable(_files: Mapping[str, str]) -> None:
    """The default of `require_usable`."""


class Rejected(Exception):
    """A candidate that must not come into force.

    Attributes:
        stage: `read`, `check`, `test`, `load`, `trial`, `rolled_back` or `refused`: the one it
            failed.
        problems: Everything found at that stage.
        revision: Its bundle's revision, or "" if there is no bundle.
    """

    def __init__(self, stage: str, problems: Iterable[Problem], revision: str = "") -> None:
        self.stage = stage
        self.problems = list(problems)
        self.revision = revision
        super().__init__(self.note())

    def note(self) -> str:
        """One line for an event."""
        return first_of(self.problems) if self.problems else f"{self.stage} failed"


def first_of(
    problems: Sequence[Problem], rest: str = "`/policies` and the page have them all"
) -> str:
    """One line: the first of *problems* (at least one), and where the others are read."""
    first = str(problems[0]).replace("\n", "; ")
    more = len(problems) - 1
    return f"{first} (and {more} more: {rest})" if more else first


class Revision(Protocol):
    """A bundle, and the texts of which it was made."""

    @property
    def bundle(self) -> Bundle:
        """The bundle."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """Texts by name, as the source gave them."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltRevision:
    """A revision that nothing runs."""

    bundle: Bundle
    files: Mapping[str, str]


@dataclass(slots=True, eq=False)
class LoadedRevision:
    """A bundle with the evaluator and the scheduler that run it: a candidate, or the one in force.

    Attributes:
        unchanged: The policies that are equal to those of the revision that it was compared with.
        origin: Where it comes from: the source, by its name, `last-good`, `builtin` or
            `rolled-back`.
        losses: What it takes away from the cluster, next to the revision that was in force.
        circle: A warning about queues that could take from each other in turn.
        vanishing: A warning about queues that have pods and are not there any more.
        was_in_force: It is gone back to.
    """

    bundle: Bundle
    files: Mapping[str, str]
    evaluator: Evaluator
    scheduler: Scheduler
    unchanged: frozenset[str] = frozenset()
    origin: str = ""
    losses: Losses = NO_LOSSES
    circle: Problem | None = None
    vanishing: Problem | None = None
    was_in_force: bool = False

    @property
    def confinement(self) -> Confinement | None:
        """What the kernel holds its sandbox to; None if policies run in this process."""
        evaluator = self.evaluator
        return evaluator.confinement if isinstance(evaluator, SandboxEvaluator) else None

    async def follow(self, before: "LoadedRevision") -> None:
        """Begin with what the scheduler of *before* knows; only for one that decided nothing."""
        self.scheduler.reuse_from(before.scheduler, await self.compare(before))

    async def compare(self, before: "LoadedRevision") -> Mapping[int, int]:
        """Find the policies that are equal in *before*; maps their index there to the one here."""
        programs = before.bundle.program, self.bundle.program
        unchanged = await asyncio.to_thread(unchanged_instances, *programs)
        kept = frozenset(unchanged.values())
        instances = list(enumerate(self.bundle.program.instances))
        changed = {instance.policy for index, instance in instances if index not in kept}
        self.unchanged = frozenset(instance.policy for _, instance in instances) - changed
        return unchanged

    def close(self) -> None:
        """End its sandbox."""
        self.evaluator.close()


class World(Protocol):
    """The cluster as the trial sees it."""

    def snapshot(self) -> Snapshot:
        """The live snapshot, up to date."""
        ...

    def sample_pods(self) -> list[Pod]:
        """Pods to decide on trial: pending ones first, then some that run."""
        ...

    def waiting_pods(self) -> list[Pod]:
        """All pods without a node, of whatever scheduler."""
        ...

    def rejected_pods(self) -> list[Pod]:
        """Pods that were tried, or kept at a gate, and wait."""
        ...

    def pods_by_queue(self) -> Mapping[str, int]:
        """How many pods are in each queue of the tree, by its path."""
        ...

    async def watch(self, bundle: Bundle) -> Sequence[str]:
        """Watch what *bundle* reads; returns why that cannot be read which is not known soon."""
        ...

    async def prepare(self, bundle: Bundle) -> None:
        """Return when what the policies of *bundle* read is known, or after some seconds."""
        ...

    async def until_idle(self) -> None:
        """Return when no pod waits to be decided, or after some seconds."""
        ...

    async def until_decided(self) -> None:
        """Return when no decision is under way: one may ask the policies that were in force."""
        ...


def digest(files: Mapping[str, str]) -> str:
    """A short name for a set of files that need not make a bundle."""
    sha = hashlib.sha256()
    for name in sorted(files):
        for part in (name, files[name]):
            raw = part.encode(errors="surrogatepass")
            sha.update(len(raw).to_bytes(8, "big"))
            sha.update(raw)
    return sha.hexdigest()[:12]


class CandidateStages:
    """Takes a candidate through its stages.

    Args:
        build: Makes a bundle of files, or raises `PolicyErrors`.
        make_evaluator: Starts a sandbox for a bundle, or raises `PolicyErrors`.
        run_tests: Runs the tests among the files, confined, and returns what failed.
        on_close: Called when no candidate comes any more.
        require_usable: Raises `UnusableConfiguration` if no edit of these files could end what is
            wrong with the configuration file of the command line.
        sleep: Waits before a sandbox that died is started again.

    The first three may block; they are called in worker threads.
    """

    def __init__(
        self,
        *,
        build: BuildBundle,
        make_evaluator: MakeEvaluator,
        run_tests: RunTests,
        on_close: Callable[[], None] = _nothing,
        require_usable: RequireUsable = _usable,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.close: Final = on_close
        self.require_usable: Final = require_usable
        #: For other threads; the event loop has `build` and `start_sandbox`.
        self.make_bundle: Final = build
        self.make_evaluator: Final = make_evaluator
        self.evaluations = Evaluations()
        self._run_tests = run_tests
        self._sleep = sleep

    def building(self, build: BuildBundle) -> "CandidateStages":
        """A copy of these stages that makes its bundles with *build*."""
        return CandidateStages(
            build=build,
            make_evaluator=self.make_evaluator,
            run_tests=self._run_tests,
            on_close=self.close,
            require_usable=self.require_usable,
            sleep=self._sleep,
        )

    async def build(self, files: Mapping[str, str]) -> Bundle:
        """The bundle of *files*. Raises `Rejected`."""
        try:
            return await asyncio.to_thread(self.make_bundle, files)
        except PolicyErrors as errors:
            raise Rejected("check", errors.problems) from errors

    async def test(self, bundle: Bundle, files: Mapping[str, str]) -> None:
        """Run the bundle's own tests. Raises `Rejected` if one fails."""
        if not bundle.tests:
            return
        problems = await asyncio.to_thread(self._run_tests, files)
        if problems:
            raise Rejected("test", problems, bundle.revision)

    async def start_sandbox(self, bundle: Bundle) -> Evaluator:
        """A sandbox with the bundle in it. Raises `PolicyErrors`."""
        making = asyncio.ensure_future(asyncio.to_thread(self.make_evaluator, bundle))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # The thread goes on; the sandbox that it starts must not be left behind. If it does
            # not start, the reason does not matter: the caller cancelled and waits for the end.
            with contextlib.suppress(Exception):
                await asyncio.to_thread((await making).close)
            raise

    async def load(self, bundle: Bundle, files: Mapping[str, str]) -> LoadedRevision:
        """Start a sandbox with the bundle in it. Raises `Rejected`.

        One that dies or hangs is started again: a machine short of memory ends sandboxes first, and
        good policies must not be given up for that.
        """
        for delay in (*_LOAD_AGAIN_SECONDS, None):
            try:
                evaluator = await self.start_sandbox(bundle)
                break
            except PolicyErrors as errors:
                if delay is None or not isinstance(errors, SandboxDied):
                    raise Rejected("load", errors.problems, bundle.revision) from errors
            await self._sleep(delay)
        metered = MeteredEvaluator(evaluator, bundle, self.evaluations)
        return LoadedRevision(bundle, files, evaluator, Scheduler(bundle, metered))

    async def try_out(
        self, candidate: LoadedRevision, world: World, base: LoadedRevision | None = None
    ) -> None:
        """Decide sample pods on a copy of the live snapshot. Raises `Rejected` on a failure.

        A pod that fits nowhere is no failure: policies may reject every node. Nor is what *base*,
        the policies in force, fails in as well: rejecting the candidate would help no pod. Of a
        revision that was in force before, *base* is itself.
        """
        snapshot = frozen_copy(world.snapshot())
        pods = [p for p in world.sample_pods() if candidate.scheduler.profile_of(p) is not None]
        profiles = candidate.bundle.profiles
        given_up = threading.Event()
        inputs = candidate.scheduler, profiles, pods, snapshot
        try:
            found = await asyncio.to_thread(rehearse, *inputs, given_up.is_set)
            candidate.circle = await asyncio.to_thread(_circle, candidate, given_up.is_set)
            if base is not None:
                pods_of = world.pods_by_queue()
                candidate.vanishing = warning_of_vanishing(base.bundle, candidate.bundle, pods_of)
            left = await self._worse(found, candidate, base, pods, snapshot, given_up.is_set)
        finally:
            given_up.set()  # cancelled: the process waits for the thread at its end
        for failure in failures_of(one for one in found if one not in left):
            log.warning(
                "Failed in a trial, as with the policies in force",
                revision=candidate.bundle.revision,
                extension_point=failure.hook,
                reason=str(failure),
            )
        if left:
            problems = [_problem(failure) for failure in failures_of(left)]
            raise Rejected("trial", problems, candidate.bundle.revision)

    async def _worse(
        self,
        found: Sequence[Finding],
        candidate: LoadedRevision,
        base: LoadedRevision | None,
        pods: Sequence[Pod],
        snapshot: Snapshot,
        is_stopped: Callable[[], bool],
    ) -> Sequence[Finding]:
        """What the trial of *candidate* *found* that *base* does not fail in as well."""
        if not found or base is None:
            return found
        if base.bundle.revision == candidate.bundle.revision:
            return []
        failing = {one.pod for one in found}
        has_profile = base.scheduler.profile_of
        asked = [pod for pod in pods if pod.uid in failing and has_profile(pod) is not None]
        try:
            # The sandbox of the one in force is busy deciding.
            evaluator = await self.start_sandbox(base.bundle)
        except PolicyErrors:
            return found
        try:
            scheduler = Scheduler(base.bundle, evaluator)
            inputs = scheduler, base.bundle.profiles, asked, snapshot
            before = await asyncio.to_thread(rehearse, *inputs, is_stopped)
        finally:
            await asyncio.to_thread(evaluator.close)
        return worse(found, before)


def _problem(failure: PolicyFailure) -> Problem:
    return Problem(failure.file, failure.line, failure.column, failure.message, failure.hint)


def frozen_copy(snapshot: Snapshot) -> Snapshot:
    """A copy of *snapshot* that stays as it is while the original is updated in place.

    NodeInfos and objects are shared: they are never changed. Costs a few list copies.
    """
    frozen = copy.copy(snapshot)
    for name, value in vars(snapshot).items():
        if isinstance(value, list | dict | ChangeLog):
            setattr(frozen, name, value.copy())
    frozen.objects = snapshot.objects.frozen()
    frozen.volume_users = snapshot.volume_users.copy()
    return frozen


def _circle(candidate: LoadedRevision, is_stopped: Callable[[], bool]) -> Problem | None:
    """The warning about queues that could take from each other in turn, by its policies."""
    hooks = candidate.scheduler.tree
    if hooks is None or not hooks.has("reclaim"):
        return None
    circle, looked = search(hooks, _STATES, is_stopped)
    return None if circle is None else warning_of(circle, looked, candidate.bundle)
