"""Why a node was chosen: the scores of the best nodes, as the decision had them.

Owns what is kept of them, which is little: the vectors of a decision hold for that decision alone,
so what is to be known later is taken out of them at once, at the places of a few nodes. Costs a
decision some microseconds, and next to nothing where it is not asked for.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.scheduling.pod_class import INFEASIBLE, PodClass
from engine.core.scheduling.rejections import node_name
from engine.policy.verdicts import SCORE_FAILED, SCORE_NONE

# With more scores than these nothing is kept, so that the record of decisions stays small.
_MOST_SCORES: Final = 32


class KeptScore(NamedTuple):
    """One policy's score of one node; `raw` is None if it had no opinion."""

    policy: str
    weight: int
    raw: int | None
    normal: int


class UncachedScores(NamedTuple):
    """A policy's scores that the class does not keep: by place, or by group of places.

    Attributes:
        weight: What `weighted` was multiplied by.
        of_place: The group of each place; None: the scores are by place.
    """

    policy: str
    weight: int
    raw: NDArray[np.int64]
    weighted: NDArray[np.int64]
    of_place: NDArray[np.int64] | None = None

    def at(self, place: int) -> KeptScore:
        """What is kept of the score at *place*."""
        if self.of_place is not None:
            place = self.of_place.item(place)
        normal = self.weighted.item(place) // self.weight if self.weight else 0
        return KeptScore(self.policy, self.weight, shown_raw(self.raw.item(place)), normal)


class KeptNode(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a node.

    Attributes:
        name: Of the node.
        total: Its total.
        numbers: The scores that the pod's class keeps: raw ones by policy, then normalized ones.
        uncached: The others.
    """

    name: str
    total: int
    numbers: bytes
    uncached: tuple[KeptScore, ...] = ()


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The chosen node and, if it alone was the best, the next one.

    Attributes:
        chosen: The chosen one.
        next: The next one; None if there were others as good, or no others.
        best_count: How many nodes had the highest total.
        scorers: The policies behind `KeptNode.numbers`.
        tie_keys: The policies that choose among equals, before the hash does.
    """

    chosen: KeptNode
    next: KeptNode | None
    best_count: int
    scorers: tuple[EnabledPolicy, ...]
    tie_keys: tuple[EnabledPolicy, ...]

    def scores_of(self, node: KeptNode) -> list[KeptScore]:
        """The scores of one of the two."""
        raws, normals = np.frombuffer(node.numbers, np.int64).reshape(2, -1).tolist()
        pairs = zip(self.scorers, raws, normals, strict=True)
        kept = [
            KeptScore(by.policy, by.weight, shown_raw(raw), normal) for by, raw, normal in pairs
        ]
        return kept + list(node.uncached)


def choice_of(
    pod_class: PodClass | None,
    snapshot: Snapshot,
    totals: NDArray[np.int64],
    best: NDArray[np.int64],
    chosen: int,
    uncached: Sequence[UncachedScores],
    tie_keys: tuple[EnabledPolicy, ...],
    slots: NDArray[np.int64] | None = None,
) -> Choice | None:
    """What is kept of a choice; None if there are too many scores.

    Args:
        pod_class: Its scores count; None: they are all among *uncached*.
        snapshot: Of the nodes.
        totals: By place, the same afterwards; *best* are the places of the highest.
        best: See there.
        chosen: The place that was chosen.
        uncached: The scores that the class does not have, by place.
        tie_keys: See `Choice`.
        slots: The slot of each place; None: places are slots.
    """
    scorers = () if pod_class is None else pod_class.scorers
    if len(scorers) + len(uncached) > _MOST_SCORES:
        return None

    def kept(place: int) -> KeptNode:
        slot = place if slots is None else slots.item(place)
        return KeptNode(
            node_name(slot, snapshot),
            totals.item(place),
            b"" if pod_class is None else pod_class.numbers[..., slot].tobytes(),
            tuple([by.at(place) for by in uncached]) if uncached else (),
        )

    following = _next_best(totals, chosen) if len(best) == 1 else None
    after = None if following is None else kept(following)
    return Choice(kept(chosen), after, len(best), scorers, tie_keys)


def _next_best(totals: NDArray[np.int64], chosen: int) -> int | None:
    """The place of the highest of *totals* but that of the *chosen* one.

    Writes to *totals* and puts back what was there: a copy takes longer than all the rest.
    """
    total = totals.item(chosen)
    totals[chosen] = INFEASIBLE
    place = int(totals.argmax())
    is_feasible = totals.item(place) != INFEASIBLE
    totals[chosen] = total
    return place if is_feasible else None


def shown_raw(raw: int) -> int | None:
    """A raw score; None if it stands for none."""
    return None if raw in (SCORE_NONE, SCORE_FAILED) else raw
