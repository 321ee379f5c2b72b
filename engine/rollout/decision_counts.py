"""Counts of the decisions made with one revision, by which a roll-out judges it.

Owns the counts; the bounds are `revisions`'.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.policy.evaluator import PolicyFailure

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
