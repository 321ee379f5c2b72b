"""How feasible nodes score, and why the chosen one was chosen.

Owns picking the nodes that are shown, and the sentences.
"""

import heapq
from typing import Final

import numpy as np

from engine.framework.profile import Profile
from engine.live.answers import NodeScores, Score
from engine.model.pod import Pod
from engine.scheduling.decision import Explanation

#: Nodes of a ranking that are shown.
MOST_RANKED: Final = 100


class Ranking:
    """The feasible nodes by total: the chosen one first among equals, then by name.

    Attributes:
        rows: The best of them.
        best_count: How many nodes have the highest total.
    """

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self._totals = np.array(explanation.totals, np.int64)
        self._sorted = np.sort(self._totals)
        self.best_count = self._at_least(int(self._sorted[-1])) if len(self._sorted) else 0
        bound = int(self._sorted[-MOST_RANKED:][0]) if len(self._sorted) else 0
        shown = np.flatnonzero(self._totals >= bound).tolist()
        self.rows = [self._row(at) for at in heapq.nsmallest(MOST_RANKED, shown, key=self._order)]

    def second(self) -> NodeScores | None:
        """The best node of those that do not have the highest total."""
        at = len(self._sorted) - self.best_count - 1
        if at < 0:
            return None
        equals = np.flatnonzero(self._totals == self._sorted[at]).tolist()
        return self._row(min(equals, key=self._order))

    def of(self, node: str) -> NodeScores | None:
        """The scores of *node*; None if it is not feasible."""
        names = self._explanation.feasible
        return self._row(names.index(node)) if node in names else None

    def _order(self, at: int) -> tuple[int, bool, str]:
        name = self._explanation.feasible[at]
        return -int(self._totals[at]), name != self._explanation.decision.node, name

    def _at_least(self, total: int) -> int:
        return len(self._sorted) - int(np.searchsorted(self._sorted, total, "left"))

    def _row(self, at: int) -> NodeScores:
        total = int(self._totals[at])
        scores = {
            row.policy: Score(row.raw[at], row.normalized[at], row.weight, row.weighted[at])
            for row in self._explanation.scores
        }
        place = 1 + len(self._sorted) - int(np.searchsorted(self._sorted, total, "right"))
        return NodeScores(self._explanation.feasible[at], place, total, scores)


def ties_of(ranking: Ranking, profile: Profile) -> tuple[str, ...]:
    """What chose among equally good nodes; empty if one was the best."""
    if ranking.best_count < 2:
        return ()
    keys = [f"`{enabled.policy}`" for enabled in profile.at("tie_key")]
    by = " and ".join([*keys, "a hash of the pod's uid and the node's name"])
    best = ranking.rows[0]
    return (f"{ranking.best_count} nodes have the highest total, {best.total}: chosen by {by}",)


def why_chosen(pod: Pod, ranking: Ranking, chosen: str, ties: tuple[str, ...]) -> tuple[str, ...]:
    """Why *chosen*: the nomination, or that it leads the ranking, and by which policies."""
    if chosen == pod.nominated_node_name:
        return (
            f"the pod is nominated to `{chosen}` (status.nominatedNodeName), whatever the scores",
        )
    if not ranking.rows:
        return ()
    first = ranking.rows[0]
    if len(ranking.rows) == 1:
        return (f"`{first.node}` is the only feasible node",)
    second = ranking.second()
    if second is None:
        return ties
    said = [
        *ties,
        f"`{first.node}` has {first.total}, {first.total - second.total} more than"
        f" `{second.node}` with {second.total}",
    ]
    differences = {
        policy: score.weighted - second.scores[policy].weighted
        for policy, score in first.scores.items()
    }
    for policy, ahead in sorted(differences.items(), key=lambda p: (-abs(p[1]), p[0])):
        if ahead:
            verb = "favors it" if ahead > 0 else "disfavors it"
            said.append(f"{policy} {verb}: {ahead:+d}")
    return tuple(said)
