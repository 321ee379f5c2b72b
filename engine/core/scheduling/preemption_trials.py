"""What trials of evictions said of each node, kept for the next pod of the same class.

Owns what is known by slot and when it does not hold any more. Trying a node is `victims`'.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.scheduling.extenders import NodeVictims
from engine.core.scheduling.pod_class import PodClass
from engine.core.scheduling.select_host import SortKey
from engine.core.scheduling.trial_patterns import TrialPatterns
from engine.policy.verdicts import Reasons

#: The outcome of trying a node. It helps to evict pods if at least VIOLATES; then some budget is
#: violated, or none.
UNKNOWN: Final = 0
NO_HELP: Final = 1
VIOLATES: Final = 2
CLEAN: Final = 3


class Trials:
    """What is known of every node for the pods of one class and priority, by slot.

    Attributes:
        pod_class: Kept, so that no other object gets its identity.
        patterns: How trials ended on nodes that are alike; None if no two nodes are.
        states: The outcome of trying the node, as it is: UNKNOWN, NO_HELP, VIOLATES or CLEAN.
        refusals: Where evicting does not help, the interned status that says why.
        ranks: The place of the node's `candidate_key` among the distinct ones; -1: not asked for.
        victims: Of the nodes where evicting helps.
        nominated: By slot, the pods that must fit there as well, as the trials knew them.
        reach: How many nodes the last pod had to look at.
    """

    def __init__(self, pod_class: PodClass, patterns: TrialPatterns | None = None) -> None:
        self.pod_class = pod_class
        self.patterns = patterns
        self.states: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.refusals: NDArray[np.int64] = np.empty(0, np.int64)
        self.ranks: NDArray[np.int64] = np.empty(0, np.int64)
        self.victims: list[NodeVictims | None] = []
        self.nominated: dict[int, tuple[Pod, ...]] = {}
        self.reach = 0
        self._keys: list[SortKey] = []  # distinct and sorted
        self._snapshot: Snapshot | None = None
        self._generation = -1
        self._budgets = -1
        self._per_pod: Sequence[NDArray[np.int32]] | None = None
        self._codes: NDArray[np.int32] = np.empty(0, np.int32)
        self._is_potential: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._names: NDArray[np.int64] | None = None
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def refresh(self, snapshot: Snapshot, budgets: int) -> None:
        """Forget what *snapshot* or another generation of the budgets may have changed."""
        size = len(snapshot.infos)
        changed: Sequence[int] | None = None
        if (
            snapshot is self._snapshot
            and budgets == self._budgets
            and size == len(self.states)
            and len(self._keys) <= 2 * size
        ):
            changed = snapshot.changed_since(self._generation)
        if changed is None:
            self.states = np.full(size, UNKNOWN, np.uint8)
            self.refusals = np.zeros(size, np.int64)
            self.ranks = np.full(size, -1, np.int64)
            self.victims = [None] * size
            self._keys = []
        else:
            self.forget(changed)
        if self.patterns is not None:
            self.patterns.refresh()
        self._snapshot, self._generation = snapshot, snapshot.generation
        self._budgets = budgets

    def forget(self, slots: Sequence[int]) -> None:
        """Try these nodes again."""
        for slot in slots:
            self.states[slot] = UNKNOWN

    def nominate(self, nominated: Mapping[int, tuple[Pod, ...]]) -> None:
        """Forget the nodes whose nominated pods are not those of when they were tried."""
        before = self.nominated
        if not (before or nominated):
            return
        changed = [s for s, pods in nominated.items() if before.get(s) is not pods]
        changed += [s for s in before if s not in nominated and s < len(self.states)]
        self.forget(changed)
        self.nominated = dict(nominated)

    def follow_per_pod(self, codes: Sequence[NDArray[np.int32]] | None) -> None:
        """Forget the nodes of which filters say something else that the class does not know.

        *codes* are theirs by filter and slot; None: nothing is known of them.
        """
        if codes is None or self._per_pod is None or len(codes[0]) != len(self._per_pod[0]):
            self.states[:] = UNKNOWN
        else:
            for one, before in zip(codes, self._per_pod, strict=True):
                self.states[one != before] = UNKNOWN
        self._per_pod = codes

    # --- which nodes ------------------------------------------------------------------------

    def potential(
        self, codes: NDArray[np.int32], names: NDArray[np.int64], reasons: Reasons
    ) -> NDArray[np.int64]:
        """The slots where evicting pods could lift the rejection, in the order of *names*, twice.

        Twice, so that those from any place on, once around, are a slice.
        """
        if (
            names is self._names
            and len(codes) == len(self._codes)
            and bool((codes == self._codes).all())
        ):
            return self._order
        seen = np.zeros(len(reasons), np.bool_)
        seen[codes[codes > 0]] = True
        may_help = np.zeros(len(reasons), np.bool_)
        for code in np.flatnonzero(seen).tolist():
            may_help[code] = reasons.status(code).code is Code.UNSCHEDULABLE
        is_potential = may_help[np.maximum(codes, 0)]
        self._codes = codes.copy()
        if names is not self._names or not np.array_equal(is_potential, self._is_potential):
            once = names[is_potential[names]]
            self._order = np.concatenate((once, once))
            self._names, self._is_potential = names, is_potential
        return self._order

    # --- answers ----------------------------------------------------------------------------

    def put(self, slot: int, answer: NodeVictims | Status, reasons: Reasons) -> None:
        """Note the answer of a trial."""
        self.ranks[slot] = -1
        if isinstance(answer, NodeVictims):
            self.victims[slot] = answer
            self.states[slot] = VIOLATES if answer.pdb_violations else CLEAN
        else:
            self.victims[slot] = None
            self.states[slot] = NO_HELP
            self.refusals[slot] = reasons.intern(answer)

    def victims_on(self, slot: int) -> NodeVictims:
        """The pods to evict from a node where that helps."""
        found = self.victims[slot]
        assert found is not None
        return found

    def rank(self, keys: Mapping[int, SortKey]) -> None:
        """Note the keys of candidates, by slot."""
        known = self._keys
        new = {key for key in set(keys.values()) if not _is_in(known, key)}
        if new:
            merged = sorted((*known, *new))
            place_of = {key: place for place, key in enumerate(merged)}
            moved = np.array([*(place_of[key] for key in known), -1], np.int64)
            self.ranks = moved[self.ranks]  # -1 picks the extra last entry, which is -1
            self._keys = known = merged
        for slot, key in keys.items():
            self.ranks[slot] = bisect_left(known, key)


def _is_in(keys: Sequence[SortKey], key: SortKey) -> bool:
    place = bisect_left(keys, key)
    return place < len(keys) and keys[place] == key
