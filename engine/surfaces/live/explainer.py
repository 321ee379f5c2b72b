"""Explains pods from the live state, without delaying a decision.

Owns a scheduler and a sandbox of its own for the policies in force, a copy of the snapshot, and one
thread. Explanations are made one after the other; a few may wait for their turn, the next ones are
refused. What the thread remembers makes the next explanation a few gathers over arrays.

    idle --explain--> open --explain--> open --idle for minutes, other policies--> idle

The sandbox starts when it is asked something that no decision has asked: that takes more CPU than a
dozen explanations, and most ask nothing.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from engine.core.kernel.kernel import Kernel
from engine.core.kernel.victim_search import ReclaimCase
from engine.core.model.pod import Pod
from engine.core.queueing.places import Gate
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.clock import Clock
from engine.rollout.lazy_sandbox import LazySandbox
from engine.rollout.mirror import Changes, Mirror
from engine.rollout.trial import CandidateStages, LoadedRevision
from engine.surfaces.live.answers import PodAnswer
from engine.surfaces.live.explanation import Subject, explain
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.turn import Turn
from engine.surfaces.live.what_if.imagined_cluster import ImaginedCluster, Material
from engine.surfaces.live.what_if.shapes import Shape

log = structlog.get_logger(component="live")

#: Explanations that are made or wait for their turn.
MOST_AT_ONCE: Final = 8
#: Seconds that one may take, without its wait, and with the start of the sandbox.
LIMIT_SECONDS: Final = 5.0
#: Without explanations for so many seconds, the sandbox and what is remembered go.
IDLE_SECONDS: Final = 300.0


class Busy(Exception):
    """Too many explanations are under way."""


class LimitReached(Exception):
    """An explanation took too long."""


Imagined = TypeVar("Imagined")
MakeCluster = Callable[[dict[str, Shape]], ImaginedCluster]
"""Makes a copy of the cluster, with these machine types."""


@dataclass(slots=True)
class _Session:
    """What explains under one revision."""

    loaded: LoadedRevision
    evaluator: LazySandbox
    scheduler: Scheduler
    rules: Rules
    mirror: Mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is explained: *pod*, without a node, which counts on *node* if it has one."""

    pod: Pod
    node: str = ""
    gate: Gate | None = None
    turn: Turn | None = None
    asked: Sequence[str] = ()


class Explainer:
    """Explains pods of *kernel*'s cluster.

    Args:
        kernel: Of which nothing is changed.
        stages: Starts the sandboxes.
        active: What is in force; raises `LookupError` before anything is.
        clock: Time.
        limit_seconds: See `LIMIT_SECONDS`.
    """

    def __init__(
        self,
        kernel: Kernel,
        stages: CandidateStages,
        active: Callable[[], LoadedRevision],
        *,
        clock: Clock,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._clock = clock
        self._kernel = kernel
        self._stages = stages
        self._active = active
        self._limit_seconds = limit_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="explain")
        self._turn = asyncio.Lock()
        self._under_way = 0
        self._session: _Session | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def explain(self, question: Question) -> PodAnswer:
        """The explanation of a pod.

        Raises `Busy`, `LimitReached`, `KeyError` if no profile has the pod's `schedulerName`,
        `PolicyErrors` if the sandbox cannot be started, `LookupError` without policies.
        """
        async with self._at_its_turn() as session:
            kernel = self._kernel
            changes = session.mirror.collect(kernel.cache.snapshot(), kernel.queue.nominator)
            units = tuple(kernel.groups.disrupted_as_one())
            session.scheduler.use_units(lambda: units)
            case = None if question.node else kernel.reclaims.case_of(question.pod)
            stopwatch = self._clock.monotonic
            return await self._in_thread(
                functools.partial(_explain, session, changes, question, case, stopwatch)
            )

    async def imagine(self, ask: Callable[[MakeCluster], Imagined]) -> Imagined:
        """What *ask* finds out in a thread, on copies of the cluster that it has made.

        Raises as `explain`, and what *ask* raises.
        """
        async with self._at_its_turn() as session:
            kernel = self._kernel
            changes = session.mirror.collect(kernel.cache.snapshot(), kernel.queue.nominator)
            material = Material.of(kernel)
            return await self._in_thread(
                functools.partial(_imagine, session, changes, material, ask)
            )

    @contextlib.asynccontextmanager
    async def _at_its_turn(self) -> AsyncIterator[_Session]:
        """Wait for the turn of a question; while it is, what explains stays. Raises `Busy`."""
        if self._under_way >= MOST_AT_ONCE:
            raise Busy
        self._under_way += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with self._turn:
                yield self._opened()
        finally:
            self._under_way -= 1
            self._close_when_idle()

    async def close(self) -> None:
        """End the sandbox and the thread."""
        if self._idle is not None:
            self._idle.cancel()
        async with self._turn:
            self._close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, answer: Callable[[Callable[[], None]], Imagined]) -> Imagined:
        """What *answer* returns in the thread; it is given what ends it when it takes too long."""
        ends_at = self._clock.monotonic() + self._limit_seconds
        given_up = threading.Event()

        def check() -> None:
            if given_up.is_set() or self._clock.monotonic() > ends_at:
                raise LimitReached

        running = asyncio.get_running_loop().run_in_executor(self._thread, answer, check)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The caller has gone. The next turn must not begin before the thread is free.
            given_up.set()
            await asyncio.wait({running})
            raise

    # --- what explains -----------------------------------------------------------------------

    def _opened(self) -> _Session:
        """What explains under the policies in force, started if it is not there."""
        loaded = self._active()
        session = self._session
        if session is not None and session.loaded is loaded:
            return session
        self._close()
        evaluator = LazySandbox(functools.partial(self._stages.make_evaluator, loaded.bundle))
        # Up to the end nothing decides: what is known of the nodes is of one moment.
        scheduler = Scheduler(loaded.bundle, evaluator, has_extenders=False)
        instances = range(len(loaded.bundle.program.instances))
        scheduler.reuse_from(loaded.scheduler, {one: one for one in instances})
        kernel = self._kernel
        mirror = Mirror(kernel.cache.snapshot(), kernel.queue.nominator)
        rules = Rules(loaded.bundle, kernel.queue.hints)
        self._session = _Session(loaded, evaluator, scheduler, rules, mirror)
        return self._session

    def _close_when_idle(self) -> None:
        if not self._under_way:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close)

    def _close(self) -> None:
        """Forget everything; the sandbox may take its time to end."""
        session, self._session = self._session, None
        if session is not None:
            task = asyncio.ensure_future(asyncio.to_thread(session.evaluator.close))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _imagine(
    session: _Session,
    changes: Changes,
    material: Material,
    ask: Callable[[MakeCluster], Imagined],
    check: Callable[[], None],
) -> Imagined:
    """Ask in the thread."""
    mirror, known = session.mirror, session.scheduler
    mirror.apply(changes)

    def make_scheduler(plugins: dict[str, RuntimePlugin]) -> Scheduler:
        made = Scheduler(known.bundle, session.evaluator, plugins=plugins, has_extenders=False)
        made.reuse_from(known, {one: one for one in range(len(known.bundle.program.instances))})
        return made

    def make(types: dict[str, Shape]) -> ImaginedCluster:
        return ImaginedCluster(mirror.snapshot, material, make_scheduler, types, check)

    return ask(make)


def _explain(
    session: _Session,
    changes: Changes,
    question: Question,
    case: ReclaimCase | None,
    stopwatch: Callable[[], float],
    check: Callable[[], None],
) -> PodAnswer:
    """Explain in the thread."""
    mirror = session.mirror
    mirror.apply(changes)
    with mirror.without(question.pod.uid, question.node) as snapshot:
        known = [name for name in question.asked if name in snapshot.slot_of]
        return explain(
            Subject(
                scheduler=session.scheduler,
                rules=session.rules,
                pod=question.pod,
                snapshot=snapshot,
                nominator=mirror.nominator,
                gate=question.gate,
                turn=question.turn,
                placed_on=question.node,
                asked=known,
                reclaim=case,
                stopwatch=stopwatch,
                check=check,
            )
        )
