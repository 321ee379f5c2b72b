"""How feasible nodes score, and why the chosen one was chosen.

Owns picking the nodes that are shown, and the sentences.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.model.pod import Pod
from engine.core.scheduling.choice import Choice, KeptNode, shown_raw
from engine.core.scheduling.decision import Explanation, PolicyScores
from engine.surfaces.live.answers import NodeScores, Score

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
        self._totals = totals = explanation.totals
        self._sorted = np.sort(totals)
        self.best_count = self._at_least(int(self._sorted[-1])) if len(totals) else 0
        bound = int(self._sorted[-MOST_RANKED:][0]) if len(totals) else 0
        above = np.flatnonzero(totals > bound)
        # Names are compared only where totals are equal: usually most nodes are below.
        at_bound = self._first(np.flatnonzero(totals == bound), MOST_RANKED - len(above))
        above = self._first(above, len(above))
        shown = np.concatenate((above[np.argsort(-totals[above], kind="stable")], at_bound))
        self.rows = self._rows(shown)

    def second(self) -> NodeScores | None:
        """The best node of those that do not have the highest total."""
        at = len(self._sorted) - self.best_count - 1
        if at < 0:
            return None
        if self.best_count < len(self.rows):
            return self.rows[self.best_count]
        equals = np.flatnonzero(self._totals == self._sorted[at])
        return self._rows(self._first(equals, 1))[0]

    def of(self, node: str) -> NodeScores | None:
        """The scores of *node*; None if it is not feasible."""
        names = self._explanation.feasible
        return self._rows(np.array([names.index(node)]))[0] if node in names else None

    def _first(self, places: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        """The first of *places* by name, after the chosen node."""
        chosen = self._explanation.decision.node
        nodes = self._explanation.nodes
        names = nodes.names(nodes.slots[places])
        if chosen in names:
            names[names.index(chosen)] = ""  # before all names
        return places[heapq.nsmallest(most, range(len(names)), key=names.__getitem__)]

    def _at_least(self, total: int) -> int:
        return len(self._sorted) - int(np.searchsorted(self._sorted, total, "left"))

    def _rows(self, places: NDArray[np.int64]) -> list[NodeScores]:
        """The scores of the nodes at *places*."""
        nodes, totals = self._explanation.nodes, self._totals[places]
        better = len(self._sorted) - np.searchsorted(self._sorted, totals, "right")
        columns = [_scores(row, places) for row in self._explanation.scores]
        policies = [row.policy for row in self._explanation.scores]
        return [
            NodeScores(name, 1 + place, total, dict(zip(policies, scores, strict=True)))
            for name, place, total, *scores in zip(
                nodes.names(nodes.slots[places]), better.tolist(), totals.tolist(), *columns,
                strict=True,
            )
        ]  # fmt: skip


def _scores(row: PolicyScores, places: NDArray[np.int64]) -> list[Score]:
    """One policy's scores of the nodes at *places*."""
    raws, normals = row.raw[places].tolist(), row.normalized[places].tolist()
    return [
        Score(shown_raw(raw), normal, row.weight, weighted)
        for raw, normal, weighted in zip(raws, normals, row.weighted[places].tolist(), strict=True)
    ]


class MadeRanking:
    """The best nodes as a decision had them: the chosen one and, if none was as good, the next.

    Attributes:
        rows: Those.
        ties: What chose among equally good nodes; empty if one was the best.
        why: Why the first one was chosen.
    """

    def __init__(self, choice: Choice, order: Iterable[str], *, is_only: bool) -> None:
        places = {policy: place for place, policy in enumerate(order)}

        def row(node: KeptNode, place: int) -> NodeScores:
            kept = choice.scores_of(node)
            kept.sort(key=lambda score: places.get(score.policy, len(places)))
            scores = {
                one.policy: Score(one.raw, one.normal, one.weight, one.normal * one.weight)
                for one in kept
            }
            return NodeScores(node.name, place, node.total, scores)

        first = row(choice.chosen, 1)
        second = None if choice.next is None else row(choice.next, 2)
        self.rows = (first,) if second is None else (first, second)
        self.ties = _ties(choice.best_count, first.total, choice.tie_keys)
        self.why = _why_best(first, second, self.ties, is_only=is_only)


def ties_of(ranking: Ranking, profile: Profile) -> tuple[str, ...]:
    """What chose among equally good nodes; empty if one was the best."""
    total = ranking.rows[0].total if ranking.rows else 0
    return _ties(ranking.best_count, total, profile.at("tie_key"))


def _ties(best_count: int, total: int, tie_keys: Sequence[EnabledPolicy]) -> tuple[str, ...]:
    if best_count < 2:
        return ()
    keys = [f"`{enabled.policy}`" for enabled in tie_keys]
    by = " and ".join([*keys, "a hash of the pod's uid and the node's name"])
    return (f"{best_count} nodes have the highest total, {total}: chosen by {by}",)


def why_chosen(pod: Pod, ranking: Ranking, chosen: str, ties: tuple[str, ...]) -> tuple[str, ...]:
    """Why *chosen*: the nomination, or that it leads the ranking, and by which policies."""
    if chosen == pod.nominated_node_name:
        return (
            f"the pod is nominated to `{chosen}` (status.nominatedNodeName), whatever the scores",
        )
    if not ranking.rows:
        return ()
    is_only = len(ranking.rows) == 1
    return _why_best(ranking.rows[0], ranking.second(), ties, is_only=is_only)


def _why_best(
    first: NodeScores, second: NodeScores | None, ties: tuple[str, ...], *, is_only: bool
) -> tuple[str, ...]:
    """Why the *first* of a ranking leads it, and by which policies before the *second*."""
    if is_only:
        return (f"`{first.node}` is the only feasible node",)
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
