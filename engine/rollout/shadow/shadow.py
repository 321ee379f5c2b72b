"""The seam between the scheduling loop and a shadow: what is handed over, and what is left out.

Owns what happens in the loop, which is little: without a shadow one comparison with None, with one
the changes since the last decision that was handed over, and those only if the thread has room.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine.core.kernel.instructions import (
    Instruction,
    PodAssumed,
    PodCounted,
    PodForgotten,
    PodUncounted,
    ReportDecision,
)
from engine.core.kernel.kernel import Kernel
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit, PodGroupState
from engine.policy.memo_reuse import unchanged_instances
from engine.rollout.measures import ShadowMeasures
from engine.rollout.mirror import Changes, Mirror
from engine.rollout.shadow.comparer import DRIFTED, ERROR, Comparer
from engine.rollout.shadow.outcomes import asked_hooks
from engine.rollout.shadow.side import CLOCKS, Clocks, Side
from engine.rollout.shadow.tally import Tally
from engine.rollout.shadow.worker import MOST_JOBS, Attempt, Job, MakeWorker, ThreadWorker, Worker
from engine.rollout.trial import LoadedRevision, MakeEvaluator

log = structlog.get_logger(component="shadow")

BUSY, CANARY, EXTENDERS, OTHERS = "busy", "canary", "extenders", "other policies"
#: Seconds for which `close` waits for the thread.
_LAST_SECONDS: Final = 5.0

# Changes that wait for a job, at most.
_MOST_CHANGES: Final = 64
_NONE: Final[Mapping[str, Mapping[str, PodGroupState]]] = {}
_CHANGES: Final = (PodAssumed, PodCounted, PodForgotten, PodUncounted)


@dataclass(slots=True)
class _Session:
    """One shadow.

    Attributes:
        candidate, base: The revisions.
        asked: See `refusals.asked_hooks`.
        worker: Does what is handed over.
        mirror: The thread's copy of the snapshot; None before the first decision.
        is_filling: Jobs are made, until there is no room. Then all of them are done first, so that
            most decisions that are taken follow one another: what has changed since is little.
        is_collected: The last of `changes` is of the decision that is under way.
        changes: Not handed over yet, for the next job.
    """

    candidate: str
    base: str
    asked: frozenset[str]
    worker: Worker
    mirror: Mirror | None = None
    is_filling: bool = True
    is_collected: bool = False
    changes: list[Changes] = field(default_factory=list)

    def has_room(self) -> bool:
        """True if a job can be made now."""
        jobs = self.worker.backlog
        self.is_filling = jobs < MOST_JOBS and (self.is_filling or not jobs)
        return self.is_filling

    def decides(self, kernel: Kernel) -> bool:
        """True if *kernel* decides under the policies compared with, and asks no extender."""
        scheduler = kernel.scheduler
        is_base = scheduler is not None and scheduler.bundle.revision == self.base
        return is_base and not kernel.asks_extenders

    def hand_over(
        self,
        made: tuple[ReportDecision, ...],
        attempt: Attempt | None = None,
        units: tuple[DisruptionUnit, ...] = (),
        groups: Mapping[str, Mapping[str, PodGroupState]] = _NONE,
        pending: tuple[Pod, ...] = (),
    ) -> None:
        """Have *made* made again, see `Job`."""
        assert self.mirror is not None
        changes = tuple(self.changes)
        self.changes.clear()
        self.worker.put(Job(self.mirror, changes, made, attempt, units, groups, pending))


class Shadow:
    """Compares a candidate with the policies in force while those decide.

    Args:
        make_evaluator: Starts a sandbox for a bundle, or raises `PolicyErrors`; in the thread.
        make_worker: Does the work.
        clocks: Measure decisions.
    """

    def __init__(
        self,
        make_evaluator: MakeEvaluator,
        *,
        make_worker: MakeWorker = ThreadWorker,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self._make_evaluator = make_evaluator
        self._make_worker = make_worker
        self._clocks = clocks
        self._kernel: Kernel | None = None
        self._session: _Session | None = None
        self._ended: list[Worker] = []
        self._tally = Tally()
        self._decided = 0
        self._skipped: Counter[str] = Counter()

    # --- when it runs ------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True from `begin` to `end`."""
        return self._session is not None

    @property
    def measures(self) -> ShadowMeasures:
        """A copy of what was counted since `begin`; after `end` it stays."""
        measures = self._tally.measures()
        measures.decided = self._decided
        for why, count in self._skipped.items():
            measures.skipped[why] = measures.skipped.get(why, 0) + count
        return measures

    def begin(self, candidate: LoadedRevision, base: LoadedRevision, cores: float) -> None:
        """Compare *candidate* with *base*, which is in force, from the next decision on.

        *cores* is the share of a core that may be used, in all. Neither is changed or asked.
        """
        self.end()
        self._tally, self._decided, self._skipped = Tally(), 0, Counter()
        unchanged = unchanged_instances(base.bundle.program, candidate.bundle.program)
        # Both begin with what is known of policies that are as they were, and of no others: what
        # they take is compared. Copying that takes milliseconds, so the loop does it once.
        make, clocks = self._make_evaluator, self._clocks
        side = Side(candidate.bundle, make, base.scheduler, unchanged, clocks)
        back = {now: before for before, now in unchanged.items()}
        twin = functools.partial(Side, base.bundle, make, side.scheduler, back, clocks)
        asked = asked_hooks(candidate.bundle, unchanged.values())
        changed = _changed(candidate, base, unchanged)
        comparer = Comparer(side, twin, asked, changed, self._tally, clocks)
        self._session = _Session(
            candidate.bundle.revision,
            base.bundle.revision,
            asked,
            self._make_worker(comparer.work, comparer.close, cores),
        )

    def end(self) -> None:
        """Compare nothing any more. The sandboxes end in the thread."""
        session, self._session = self._session, None
        self._kernel = None
        if session is not None:
            session.worker.close()
            self._ended = [session.worker]

    def close(self) -> None:
        """End, and return when the thread has ended, or after some seconds. Blocks."""
        self.end()
        for worker in self._ended:
            worker.join(_LAST_SECONDS)

    # --- decisions ---------------------------------------------------------------------------

    def deciding(self, kernel: Kernel) -> None:
        """Note what *kernel* is about to decide on."""
        session = self._session
        if session is None:
            return
        try:
            self._kernel = kernel
            session.worker.pause()
            session.is_collected = False
            if not session.decides(kernel) or not session.has_room():
                return
            snapshot, nominator = kernel.cache.snapshot(), kernel.queue.nominator
            if session.mirror is None:
                session.mirror = Mirror(snapshot, nominator)
            session.changes.append(session.mirror.collect(snapshot, nominator))
            session.is_collected = True
            if len(session.changes) == _MOST_CHANGES:  # of decisions that were not handed over
                session.hand_over(())
        except Exception as error:
            self._give_up(error)

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Hand over the decisions among *instructions*."""
        session = self._session
        if session is None:
            return
        try:
            made = tuple([one for one in instructions if type(one) is ReportDecision])
            if made:
                self._decided += len(made)
                why = self._take(session, made, instructions)
                if why:
                    self._skipped[why] += len(made)
            if self._kernel is None or not self._kernel.queue.has_poppable:
                session.worker.resume()
        except Exception as error:
            self._give_up(error)

    def _take(
        self,
        session: _Session,
        made: tuple[ReportDecision, ...],
        instructions: Sequence[Instruction],
    ) -> str:
        """Make a job of *made*; or why that is not possible."""
        kernel = self._kernel
        revision = made[0].decision.revision
        if revision != session.base:
            return CANARY if revision == session.candidate else OTHERS
        if kernel is None or not session.is_collected:
            return EXTENDERS if kernel is not None and kernel.asks_extenders else BUSY
        if _has_changed(instructions):
            return DRIFTED
        attempt = _attempt(kernel, made) if made[0].is_member else None
        units: tuple[DisruptionUnit, ...] = ()
        if any(one.decision.sought_victims for one in made):
            units = tuple(kernel.groups.disrupted_as_one())
        groups: dict[str, dict[str, PodGroupState]] = {}
        if session.asked:
            for one in made:
                keys = kernel.groups.keys_of(one.pod.uid)
                groups[one.pod.uid] = {key.name: kernel.groups.state(key) for key in keys}
        pending = tuple(kernel.cluster.pending_pods()) if "group_of" in session.asked else ()
        session.hand_over(made, attempt, units, groups, pending)
        return ""

    def _give_up(self, error: Exception) -> None:
        """A bug must not cost a decision, only the comparison."""
        log.error("Decisions are not compared any more", exc_info=error)
        self._skipped[ERROR] += 1
        self.end()


def _changed(
    candidate: LoadedRevision, base: LoadedRevision, unchanged: Mapping[int, int]
) -> frozenset[str]:
    """The policies that are not the same in both, by name."""
    both = (base.bundle.program, unchanged.keys()), (candidate.bundle.program, unchanged.values())
    return frozenset(
        one.policy
        for program, same in both
        for index, one in enumerate(program.instances)
        if index not in same
    )


def _has_changed(instructions: Sequence[Instruction]) -> bool:
    """True if the first decision was made on something else than there was before."""
    for one in instructions:
        if type(one) is ReportDecision:
            return False
        if isinstance(one, _CHANGES):
            return True
    return False


def _attempt(kernel: Kernel, made: Sequence[ReportDecision]) -> Attempt:
    """How the attempt at the group of *made* ended."""
    held = sum(kernel.cache.get_pod(one.pod.uid) is not None for one in made)
    key = next(filter(None, (kernel.groups.tried_in(one.pod.uid) for one in made)), None)
    if key is None:
        return Attempt(0, is_whole=held > 0)
    state = kernel.groups.state(key)
    before = state.placed + state.waiting - held
    return Attempt(max(state.min_count, 1) - before, is_whole=held > 0)
