"""Counts of the decisions made with one revision, by which a roll-out judges it.

Owns the counts; the bounds are `revisions`'.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.policy.evaluator import PolicyFailure


@dataclass(slots=True)
class DecisionCounts:
    """What was decided with one set of policies; counted per decision, read during probation.

    `slow` counts decisions that took longer than `slow_seconds`; `stalled` those that lost time to
    limits, `lost_seconds` in sum, but not over policies that are `unchanged`: going back to the
    revision before would not help.
    """

    slow_seconds: float = float("inf")
    unchanged: frozenset[str] = frozenset()
    decisions: int = 0
    failed: int = 0
    slow: int = 0
    stalled: int = 0
    lost_seconds: float = 0.0

    def count(self, seconds: float, failed: bool, lost: Sequence[PolicyFailure] = ()) -> None:
        """Count one decision, or a question that stands for one; *lost* are failures over time."""
        self.decisions += 1
        if failed:
            self.failed += 1
        if seconds > self.slow_seconds:
            self.slow += 1
        if any(loss.policy not in self.unchanged for loss in lost):
            self.stalled += 1
            self.lost_seconds += seconds
