"""Makes decisions again, under both sets of policies, and counts what differs.

Owns the comparison; runs in the thread of a shadow. A difference counts only if the policies in
force decide here as they did there: then the candidate's text is all that differs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from engine.comparing.difference import MOVED, NEWLY_PLACED, Difference, kind_of
from engine.core.caching.snapshot import Snapshot
from engine.core.kernel.instructions import ReportDecision
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.policy.errors import PolicyErrors
from engine.rollout.mirror import Mirror
from engine.rollout.shadow.outcomes import Outcome, refusal_of, rule_of
from engine.rollout.shadow.side import CLOCKS, Clocks, Side
from engine.rollout.shadow.tally import MOST_NAMES, Tally, class_of
from engine.rollout.shadow.worker import Attempt, Job, Yield

log = structlog.get_logger(component="shadow")

CLAIMS, DRIFTED, ERROR = "claims", "drifted", "error"

#: Both sides decide the first so many pods, and are timed: what a decision takes depends on what
#: has changed since those before it, so that none of them may be left out.
TIMED_FIRST: Final = 500

_NO_PROFILE: Final = "no profile has the schedulerName `{}`"
NOT_WHOLE: Final = "the pod's group cannot be whole: {} of {} pods would have a node"


class Comparer:
    """Compares decisions of the policies in force with those of a candidate.

    Args:
        candidate: Decides each of them.
        make_base: Makes the side of the policies in force, which decides some of them again; called
            before *candidate* decides.
        asked: Hooks that are asked beside, see `refusals.asked_hooks`.
        changed: The policies that are not the same on both sides, by name.
        tally: Counts.
        clocks: Measure.
    """

    def __init__(
        self,
        candidate: Side,
        make_base: Callable[[], Side],
        asked: frozenset[str],
        changed: frozenset[str],
        tally: Tally,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self._candidate = candidate
        self._make_base = make_base
        self._made_base: Side | None = None
        self._asked = asked
        self._changed = changed
        self._tally = tally
        self._clocks = clocks
        self._compared = 0
        self._last: Pod | None = None
        self._errors = 0
        self._classes: set[str] = set()

    def work(self, job: Job, yield_cpu: Yield) -> float:
        """Do *job*; the seconds that it took. Never raises."""
        worked, waited = self._clocks.worked(), self._waited
        try:
            if self._made_base is None:
                self._made_base = self._make_base()
            self._candidate.yield_cpu = self._base.yield_cpu = yield_cpu
            for changes in job.changes:
                job.mirror.apply(changes)
            if job.attempt is not None:
                self._compare_group(job, job.attempt)
            else:
                for made in job.made:
                    self._compare(job, made)
        except Exception as error:
            self._note(error, "A decision could not be made again, others are counted")
            self._tally.skip(ERROR, len(job.made))
        return self._clocks.worked() - worked + (self._waited - waited)

    def close(self) -> None:
        """End all sandboxes."""
        for part in (self._candidate, self._made_base):
            try:
                if part is not None:
                    part.close()
            except Exception as error:
                log.error("A sandbox of a shadow could not be closed", exc_info=error)

    def _note(self, error: Exception, message: str) -> None:
        """Log the first one; there may be as many as decisions."""
        self._errors += 1
        if self._errors > 1:
            return
        if isinstance(error, PolicyErrors):
            log.warning(message, reason=str(error))
        else:
            log.error(message, exc_info=error)

    @property
    def _waited(self) -> float:
        base = self._made_base
        return self._candidate.waited + (0.0 if base is None else base.waited)

    @property
    def _base(self) -> Side:
        """The side of the policies in force."""
        assert self._made_base is not None
        return self._made_base

    # --- one pod -----------------------------------------------------------------------------

    def _compare(self, job: Job, made: ReportDecision) -> None:
        pod = made.pod
        if not self._candidate.has_profile_of(pod):
            self._compare_orphan(pod, Outcome(made.decision))
            return
        is_timed, is_odd = self._is_timed(job, pod), self._compared % 2 == 1

        def again(side: Side) -> tuple[Outcome, float]:
            side.open()
            side.scheduler.use_units(lambda: job.units)
            mirror = job.mirror
            decision, seconds = side.decide(pod, mirror.snapshot, mirror.nominator)
            return self._refused(side, job, pod, decision), seconds

        # 1. The candidate, and in turn first or last the policies in force: what the first one
        #    reads is near for the second one.
        twin: tuple[Outcome, float] | None = None
        if is_timed and is_odd:
            twin = again(self._base)
        after, seconds = again(self._candidate)
        if is_timed and not is_odd:
            twin = again(self._base)
        # 2. What they say, held against what was decided.
        before = Outcome(made.decision)
        kind = kind_of(before, after)
        if kind:
            twin = again(self._base) if twin is None else twin
            if kind_of(before, twin[0]):
                self._tally.drifted(DRIFTED)
                return
            before = twin[0]
        if is_timed and twin is not None:
            self._tally.timed(seconds, twin[1])
        if before.node is not None and after.node is not None:
            self._tally.placed(pod, is_moved=kind == MOVED)
        self._tally.compared(len(after.victims) - len(before.victims))
        if kind:
            self._differs(kind, pod, before, after, job.mirror)

    def _compare_orphan(self, pod: Pod, before: Outcome) -> None:
        """Compare the decision about a pod that the candidate has no profile for."""
        after = Outcome(before.decision, _NO_PROFILE.format(pod.scheduler_name))
        self._tally.compared()
        if kind := kind_of(before, after):
            self._differs(kind, pod, before, after)

    def _is_timed(self, job: Job, pod: Pod) -> bool:
        """True if both sides are to decide *pod*; then they are in the same state."""
        self._compared += 1
        last, self._last = self._last, pod
        name = class_of(pod)
        # After the first ones, one pod of each class, for which everything is evaluated.
        is_new = name not in self._classes and len(self._classes) < MOST_NAMES
        if is_new:
            self._classes.add(name)
        if self._times_all:
            return True
        if is_new and last is not None:
            for side in (self._candidate, self._base):
                side.decide(last, job.mirror.snapshot, job.mirror.nominator)
        return is_new

    @property
    def _times_all(self) -> bool:
        return self._compared <= TIMED_FIRST

    def _refused(self, side: Side, job: Job, pod: Pod, decision: Decision) -> Outcome:
        """The outcome of *decision*, with what gates and permits of *side* say."""
        if not self._asked:
            return Outcome(decision)
        snapshot = job.mirror.snapshot
        # Approval is asked for pods that have a node.
        asked = self._asked if decision.node is not None else self._asked - {"permit"}
        known = job.groups.get(pod.uid, {})
        found = refusal_of(
            side.scheduler.hooks, pod, snapshot, asked, known, lambda: _pods(job, snapshot)
        )
        if found is None:
            return Outcome(decision)
        return Outcome(decision, found.text, found.policy, found.hook, found.has_failed)

    # --- a group -----------------------------------------------------------------------------

    def _compare_group(self, job: Job, attempt: Attempt) -> None:
        if any(made.decision.reserves for made in job.made):
            self._tally.skip(CLAIMS, len(job.made))
            return
        befores = _as_whole([Outcome(made.decision) for made in job.made], attempt)
        if not all(self._candidate.has_profile_of(made.pod) for made in job.made):
            for orphan, was in zip(job.made, befores, strict=True):
                self._compare_orphan(orphan.pod, was)
            return
        afters, seconds = self._group_again(self._candidate, job, attempt)
        kinds = [kind_of(*pair) for pair in zip(befores, afters, strict=True)]
        if any(kinds) or self._times_all:
            twins, before = self._group_again(self._base, job, attempt)
            if any(kinds) and any(kind_of(*pair) for pair in zip(befores, twins, strict=True)):
                self._tally.drifted(DRIFTED, len(job.made))
                return
            for one, other in zip(seconds, before, strict=True) if self._times_all else ():
                self._tally.timed(one, other)
        self._compared += len(job.made)
        for made, kind, was, now in zip(job.made, kinds, befores, afters, strict=True):
            self._tally.compared()
            if was.node is not None and now.node is not None:
                self._tally.placed(made.pod, is_moved=kind == MOVED)
            if kind:
                self._differs(kind, made.pod, was, now)

    def _group_again(
        self, side: Side, job: Job, attempt: Attempt
    ) -> tuple[list[Outcome], list[float]]:
        """The outcomes of the pods of a group, each placed before the next one is decided.

        Also the seconds that each decision took.
        """
        side.open()
        snapshot, nominator = job.mirror.snapshot, job.mirror.nominator
        if any(nominator.node_of(made.pod.uid) for made in job.made):
            nominator = nominator.copy()
        outcomes, times = [], []
        with contextlib.ExitStack() as undo:
            for made in job.made:
                decision, seconds = side.decide(made.pod, snapshot, nominator, is_member=True)
                times.append(seconds)
                outcomes.append(self._refused(side, job, made.pod, decision))
                if decision.node is not None:
                    undo.enter_context(_placed(made.pod, decision, snapshot))
                    if nominator is not job.mirror.nominator:
                        nominator.remove(made.pod.uid, placed_on=decision.node)
        found = sum(one.node is not None for one in outcomes)
        is_whole = found >= attempt.needed
        return _as_whole(outcomes, Attempt(attempt.needed, is_whole=is_whole)), times

    # --- differences -------------------------------------------------------------------------

    def _differs(
        self, kind: str, pod: Pod, before: Outcome, after: Outcome, mirror: Mirror | None = None
    ) -> None:
        """Count a difference; with *mirror* as it was, also what each side says of both nodes."""
        rule = rule_of(kind, before, after, self._changed)
        example = None
        if self._tally.wants_example(kind):
            side = self._base if kind == NEWLY_PLACED else self._candidate
            rivals: tuple[dict[str, int], ...] = ({}, {})
            if mirror is not None and before.node and after.node:
                rivals = tuple(
                    one.scores_of(pod, node, mirror.snapshot, mirror.nominator)
                    for one, node in ((self._base, after.node), (self._candidate, before.node))
                )
            example = Difference(
                kind=kind,
                pod=pod.key,
                before=str(before),
                after=str(after),
                policy=rule.policy,
                hook=rule.hook,
                place=rule.place_of(side.bundle),
                scores_before=before.scores,
                scores_after=after.scores,
                rival_before=rivals[0],
                rival_after=rivals[1],
            )
        self._tally.differs(kind, pod, rule.policy, example)


def _as_whole(outcomes: list[Outcome], attempt: Attempt) -> list[Outcome]:
    """*outcomes*, of which none has a node unless enough have."""
    if attempt.is_whole:
        return outcomes
    found = sum(one.node is not None for one in outcomes)
    text = NOT_WHOLE.format(found, attempt.needed)
    return [one if one.node is None else Outcome(one.decision, text) for one in outcomes]


@contextlib.contextmanager
def _placed(pod: Pod, decision: Decision, snapshot: Snapshot) -> Iterator[None]:
    """Inside, *pod* counts on the node that was chosen for it."""
    assert decision.node is not None
    info = snapshot.info(decision.node)
    assert info is not None
    if decision.annotations:
        pod = pod.with_annotations(decision.annotations)
    snapshot.put(decision.node, info.with_pod(pod.with_node(decision.node)))
    try:
        yield
    finally:
        snapshot.put(decision.node, info)


def _pods(job: Job, snapshot: Snapshot) -> Iterator[Pod]:
    """All pods that are known, those that wait first."""
    yield from job.pending
    for info in snapshot.infos:
        if info is not None:
            yield from info.pods.values()
