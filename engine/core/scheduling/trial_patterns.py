"""How trials of evictions ended, for the nodes that look to all filters like one that was tried.

Owns when two nodes are alike in this. The trials are `victims`'.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.scheduling.hook_use import HookUse
from engine.policy.node_views import NODE_FIELDS
from engine.policy.projections import NodeColumn, Projector

Shape = tuple[int, ...]
"""The projections of a node for all filters of a class, and what per-pod filters say of it."""

# Without patterns a preemption on 5,000 nodes that are full of pods of one kind takes 2.5 ms of CPU
# per pod instead of 1.9, and the slowest one in a hundred 70 to 200 ms instead of 26 to 37.

# Patterns that are kept; in clusters where nothing repeats they are of no use.
_MOST_PATTERNS: Final = 16_384


class TrialPatterns:
    """The outcomes of trials, for the pods of one class and priority.

    Filters see a node through their projections. Those of the node without some pods follow from
    those that it has now and from what the pods hold: of two nodes with the same projections and
    pods that hold the same, in the order in which they are tried, the same ones are reprieved. What
    filters over counters say (*per_pod*, by slot) stays as it is if they count none of these pods.

    Attributes:
        without: By shape and the resource uses, sorted, of all less important pods, the verdict
            about the node without them.
        victims: By shape and the resource uses in the order of reprieve, the places of those that
            are not reprieved.
    """

    def __init__(
        self, filters: Sequence[HookUse], per_pod: Sequence[NDArray[np.int32]] = ()
    ) -> None:
        self._columns: list[NodeColumn] = list(dict.fromkeys(use.column for use in filters))
        self._per_pod = per_pod
        self._epochs: list[int] = []
        self.without: dict[tuple[Shape, tuple[int, ...]], int] = {}
        self.victims: dict[tuple[Shape, tuple[int, ...]], tuple[int, ...]] = {}

    @staticmethod
    def apply_to(filters: Sequence[HookUse]) -> bool:
        """True if the filters see of the pods on a node nothing but what they hold together."""
        return all(_sees_sums_alone(use.column.projector) for use in filters)

    def refresh(self) -> None:
        """Forget everything if projections have got other numbers, or if it is too much."""
        epochs = [column.epoch for column in self._columns]
        if epochs != self._epochs or len(self.without) + len(self.victims) > _MOST_PATTERNS:
            self.without.clear()
            self.victims.clear()
            self._epochs = epochs

    def shape(self, slot: int) -> Shape:
        """What the filters can see of the node of *slot* as it is now."""
        seen = [column.ids.item(slot) for column in self._columns]
        seen += [codes.item(slot) for codes in self._per_pod]
        return tuple(seen)


def _sees_sums_alone(projector: Projector) -> bool:
    if projector.is_shared:
        return False
    for path in projector.paths:
        name = path.partition("[")[0]
        field = NODE_FIELDS.get(name)
        if field is None or (not field.is_sum and "pods" in field.parts):
            return False
    return True
