"""Pods that every policy of a profile sees alike, and what is already known of them.

Owns the verdict vectors: for one pod class, by node slot, the first rejection and the raw scores.
A decision brings them up to the snapshot by looking again at the slots that changed since the last
pod of the class; everything else still holds, because the hooks were given nothing else.

    first pod of a class --all slots--> up to date --nodes change--> stale in those slots
    stale --next pod of the class: changed slots only--> up to date
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy
from engine.policy.evaluator import PolicyFailure
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import FAILED, FITS, SCORE_FAILED, SCORE_NONE, Table, VerdictMemo

# Codes of a class vector beside those of a filter's table.
ABSENT: Final = -3  # no node in this slot, or outside the pre-filter's subset

# Below this many changed slots plain Python is faster than numpy's call overhead.
_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class HookUse:
    """A per-node hook of an enabled policy as the cycle asks it for one pod class."""

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes


@dataclass(slots=True)
class PodClass:
    """The verdict vectors of one pod class for one set of hook inputs.

    `codes[slot]`: FITS, the interned rejection of the first filter that rejects, FAILED, or
    ABSENT. `raw[k][slot]`: the score of `scores[k]`, meaningful where the code is FITS.
    `whole_scores` are the policies whose `score_all` sees all feasible nodes; `states` is what each
    policy's pre-filter or pre-score handed on, as JSON. Failures are kept by slot;
    `score_failures[k]` belongs to `scores[k]`.
    """

    filters: Sequence[HookUse]
    scores: Sequence[HookUse]
    whole_scores: Sequence[EnabledPolicy]
    states: Mapping[str, bytes]
    subset: tuple[str, ...] | None
    pre_score_failures: Sequence[PolicyFailure] = ()
    codes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    raw: list[NDArray[np.int64]] = field(default_factory=list)
    filter_failures: dict[int, PolicyFailure] = field(default_factory=dict)
    score_failures: list[dict[int, PolicyFailure]] = field(default_factory=list)
    snapshot: Snapshot | None = None
    generation: int = -1

    @property
    def nbytes(self) -> int:
        """Memory of the vectors."""
        return self.codes.nbytes + sum(vector.nbytes for vector in self.raw)

    def update(self, snapshot: Snapshot, present: NDArray[np.bool_], memo: VerdictMemo) -> None:
        """Bring the vectors up to *snapshot*."""
        size = len(snapshot.infos)
        changed: Sequence[int] | None = None
        if snapshot is self.snapshot and self.generation >= 0:
            changed = snapshot.changed_since(self.generation)
        if len(self.codes) < size:
            self._grow(size)
            changed = None
        if changed is None:
            self.codes[:] = ABSENT
            self.filter_failures.clear()
            self.score_failures = [{} for _ in self.scores]
            slots = self._members(snapshot, present)
        else:
            slots = self._changed_members(changed, snapshot, present)
        if len(slots):
            if len(slots) <= _FEW:
                self._prefetch(slots, memo)
            feasible = self._filter(slots, memo)
            self._score(feasible, memo)
        self.snapshot = snapshot
        self.generation = snapshot.generation

    def forget_failures(self) -> None:
        """Look at every node again next time: a failure that was reported may not recur."""
        self.generation = -1

    # --- which slots -----------------------------------------------------------------------

    def _grow(self, size: int) -> None:
        self.codes = np.full(size, ABSENT, np.int32)
        self.raw = [np.zeros(size, np.int64) for _ in self.scores]

    def _members(self, snapshot: Snapshot, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        if self.subset is None:
            return np.flatnonzero(present)
        known = (snapshot.slot_of.get(name) for name in self.subset)
        slots = [slot for slot in known if slot is not None and present[slot]]
        return np.array(sorted(set(slots)), np.int64)

    def _changed_members(
        self, changed: Sequence[int], snapshot: Snapshot, present: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        members = []
        for slot in changed:
            self.codes[slot] = ABSENT
            self.filter_failures.pop(slot, None)
            for failures in self.score_failures:
                failures.pop(slot, None)
            if not present[slot]:
                continue
            if self.subset is not None:
                info = snapshot.infos[slot]
                if info is None or info.name not in self.subset:
                    continue
            members.append(slot)
        return np.array(members, np.int64)

    # --- asking ----------------------------------------------------------------------------

    def _table(self, use: HookUse, memo: VerdictMemo) -> Table:
        return memo.table(use.column, use.enabled.instance, use.hook, use.pod, use.extra)

    def _prefetch(self, slots: NDArray[np.int64], memo: VerdictMemo) -> None:
        """Ask everything about a few nodes in one round trip, needed or not.

        After a placement one node has a new projection for several hooks; one trip for all of
        them beats one for each. Answers that are not looked at cost nothing else.
        """
        memo.fill(
            [
                (self._table(use, memo), use.column, use.column.ids[slots])
                for use in (*self.filters, *self.scores)
            ]
        )

    def _filter(self, slots: NDArray[np.int64], memo: VerdictMemo) -> NDArray[np.int64]:
        """Run the filters over *slots*; a node stops at the first that rejects it."""
        remaining = slots
        for use in self.filters:
            if not len(remaining):
                break
            table = self._table(use, memo)
            ids = use.column.ids[remaining]
            memo.fill([(table, use.column, ids)])
            verdicts = table.codes[ids]
            fits = verdicts == FITS
            if fits.all():
                continue
            rejected = remaining[~fits]
            self.codes[rejected] = verdicts[~fits]
            if table.failures:
                for slot, i in zip(rejected.tolist(), ids[~fits].tolist(), strict=True):
                    if table.codes[i] == FAILED:
                        self.filter_failures[slot] = table.failures[i]
                memo.forget_transient(table)
            remaining = remaining[fits]
        self.codes[remaining] = FITS
        return remaining

    def _score(self, slots: NDArray[np.int64], memo: VerdictMemo) -> None:
        """Raw scores of the feasible *slots*, all hooks that miss something in one round trip."""
        if not len(slots):
            return
        tables = [self._table(use, memo) for use in self.scores]
        ids = [use.column.ids[slots] for use in self.scores]
        memo.fill(list(zip(tables, [use.column for use in self.scores], ids, strict=True)))
        for k, (table, projected) in enumerate(zip(tables, ids, strict=True)):
            self.raw[k][slots] = table.codes[projected]
            if table.failures:
                for slot, i in zip(slots.tolist(), projected.tolist(), strict=True):
                    if table.codes[i] == SCORE_FAILED:
                        self.score_failures[k][slot] = table.failures[i]
                        self.raw[k][slot] = SCORE_NONE
                memo.forget_transient(table)


class PodClasses:
    """The classes seen lately, bounded by the memory of their vectors."""

    def __init__(self, capacity_bytes: int = 96 << 20) -> None:
        self._capacity_bytes = capacity_bytes
        self._classes: OrderedDict[tuple[object, ...], PodClass] = OrderedDict()

    def get(self, key: tuple[object, ...]) -> PodClass | None:
        """The class of *key*, now the most recently used."""
        found = self._classes.get(key)
        if found is not None:
            self._classes.move_to_end(key)
        return found

    def put(self, key: tuple[object, ...], pod_class: PodClass) -> None:
        """Remember a class; the least recently used ones make room."""
        self._classes[key] = pod_class

    def trim(self) -> None:
        """Drop the least recently used classes beyond the bound (the newest always stays)."""
        total = sum(c.nbytes for c in self._classes.values())
        while total > self._capacity_bytes and len(self._classes) > 1:
            _, dropped = self._classes.popitem(last=False)
            total -= dropped.nbytes

    def __len__(self) -> int:
        return len(self._classes)
