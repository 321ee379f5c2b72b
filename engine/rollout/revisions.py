"""The pure state of a roll-out: the revision in force, and the one that a roll-back would restore.

Owns also the counts of the decisions made with it, by which it is judged. Owns no task, no clock
and no sandbox: a transition returns the revisions that are no longer needed, and closing them is
the caller's.

    settled --replace(on_probation)--> on probation --pass_probation--> settled
    on probation --roll_back--> settled (with the revision before)
    any --replace--> settled
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.policy.config import Fallback
from engine.policy.evaluator import PolicyFailure
from engine.rollout.trial import LoadedRevision

# Pods that are remembered; of more, the ones that failed last.
_MOST_PODS: Final = 4096


class FailingPods:
    """The pods, by uid, whose last attempt a policy's failure cost."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}  # in the order of their last failures

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def note(self, uid: str, has_failed: bool) -> None:
        """Note how an attempt at a pod ended."""
        self._uids.pop(uid, None)
        if has_failed:
            self._uids[uid] = None
            if len(self._uids) > _MOST_PODS:
                del self._uids[next(iter(self._uids))]


@dataclass(slots=True)
class DecisionCounts:
    """What was decided with one set of policies; counted per decision, read during probation.

    `slow` counts decisions that took longer than `slow_seconds`; `stalled` those that lost time to
    limits, `lost_seconds` in sum, but not over policies that are `unchanged`: going back to the
    revision before would not help. Nor would it help pods that it failed, too: the failures of pods
    that were `failing_before` are not counted, until one of them was decided well. `failing` are
    those of these policies.
    """

    slow_seconds: float = float("inf")
    unchanged: frozenset[str] = frozenset()
    failing_before: FailingPods = field(default_factory=FailingPods)
    failing: FailingPods = field(default_factory=FailingPods)
    decisions: int = 0
    failed: int = 0
    slow: int = 0
    stalled: int = 0
    lost_seconds: float = 0.0

    def count(
        self,
        seconds: float,
        failed: bool,
        lost: Sequence[PolicyFailure] = (),
        uid: str = "",
    ) -> None:
        """Count one decision, or a question that stands for one; *lost* are failures over time.

        *uid* is the pod's, if it has one.
        """
        if uid and self._fails_as_before(uid, failed):
            return
        self.decisions += 1
        if failed:
            self.failed += 1
        if seconds > self.slow_seconds:
            self.slow += 1
        if any(loss.policy not in self.unchanged for loss in lost):
            self.stalled += 1
            self.lost_seconds += seconds

    def _fails_as_before(self, uid: str, failed: bool) -> bool:
        self.failing.note(uid, failed)
        if not failed:
            self.failing_before.note(uid, False)
        return failed and uid in self.failing_before


def out_of_bounds(counts: DecisionCounts, bounds: Fallback) -> str | None:
    """Why a revision with these counts is to be rolled back, or None."""
    # Lost time delays every pod, so a few slow decisions are evidence enough; one may be chance.
    if counts.stalled > 1 and counts.lost_seconds > bounds.lost_time.total_seconds():
        return (
            f"{counts.stalled} of {counts.decisions} decisions ran into limits and took "
            f"{counts.lost_seconds:.1f} s, want at most {bounds.lost_time.total_seconds():g} s"
        )
    if counts.decisions < bounds.min_decisions:
        return None
    share = counts.failed / counts.decisions
    if share > bounds.error_rate:
        return (
            f"{counts.failed} of {counts.decisions} decisions failed, "
            f"want at most {bounds.error_rate:.0%}"
        )
    # The 99th percentile is above the bound if more than 1 % of the decisions are.
    if bounds.latency is not None and counts.slow > counts.decisions / 100:
        return (
            f"{counts.slow} of {counts.decisions} decisions took longer than "
            f"{bounds.latency.total_seconds() * 1000:g} ms, want at most 1%"
        )
    return None


def _counts_for(loaded: LoadedRevision, before: DecisionCounts) -> DecisionCounts:
    latency = loaded.bundle.runtime.fallback.latency
    return DecisionCounts(
        slow_seconds=math.inf if latency is None else latency.total_seconds(),
        unchanged=loaded.unchanged,
        failing_before=before.failing,
    )


class Revisions:
    """The revision that decides, and during its probation the one before it.

    Attributes:
        active: What decides; None before the first one and after `clear`.
        previous: What a roll-back of *active* would restore; None unless it is on probation.
        counts: The decisions of *active*.
    """

    def __init__(self) -> None:
        self.active: LoadedRevision | None = None
        self.previous: LoadedRevision | None = None
        self.counts = DecisionCounts()

    @property
    def active_revision(self) -> str:
        """The revision of *active*; "" if there is none."""
        return self.active.bundle.revision if self.active is not None else ""

    def proven(self) -> LoadedRevision | None:
        """What a roll-back of an edit that comes into force now would restore.

        That is *active*, unless it is on probation without enough good decisions yet: an edit on
        top of a bad one must neither be rolled back to that one nor be compared with it.
        """
        if self.active is None or self.previous is None:
            return self.active
        counts, bounds = self.counts, self.active.bundle.runtime.fallback
        is_enough = counts.decisions >= bounds.min_decisions and not counts.stalled
        is_good = is_enough and out_of_bounds(counts, bounds) is None
        return self.active if is_good else self.previous

    def failure(self) -> str | None:
        """Why *active* is to be rolled back; None if it is not, or if it is not on probation."""
        if self.active is None or self.previous is None:
            return None
        return out_of_bounds(self.counts, self.active.bundle.runtime.fallback)

    def replace(self, new: LoadedRevision, *, on_probation: bool) -> list[LoadedRevision]:
        """Let *new* decide; returns the revisions that are no longer needed."""
        before = self.active, self.previous
        self.previous = self.proven() if on_probation else None
        self._activate(new)
        return [old for old in before if old is not None and old is not self.previous]

    def pass_probation(self) -> list[LoadedRevision]:
        """Keep *active*; returns the revisions that are no longer needed."""
        previous, self.previous = self.previous, None
        return [] if previous is None else [previous]

    def roll_back(self) -> LoadedRevision:
        """Let *previous* decide again; returns the revision that was rolled back."""
        bad, previous = self.active, self.previous
        assert bad is not None
        assert previous is not None
        self.previous = None
        previous.origin = "rolled-back"
        self._activate(previous)
        return bad

    def clear(self) -> list[LoadedRevision]:
        """Let nothing decide any more; returns the revisions that are no longer needed."""
        left = [one for one in (self.active, self.previous) if one is not None]
        self.active = self.previous = None
        return left

    def _activate(self, loaded: LoadedRevision) -> None:
        self.active = loaded
        self.counts = _counts_for(loaded, self.counts)
