"""Pods that every policy of a profile sees alike, and what is already known of them.

Owns the verdict vectors: for one pod class, by node slot, the first rejection, the scores and the
total. A decision brings them up to the snapshot by looking again at the slots that changed since
the last pod of the class; everything else still holds, because the hooks were given nothing else.

    first pod of a class --all slots--> up to date --nodes change--> stale in those slots
    stale --next pod of the class: changed slots only--> up to date

Hooks over counters are not kept here: a pod placed in one domain changes their inputs everywhere.
They are `counted`'s.
"""

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.framework.profile import EnabledPolicy
from engine.framework.status import Status
from engine.model.node_info import NodeInfo
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.policy.projections import NodeColumn
from engine.policy.verdicts import (
    FAILED,
    FITS,
    SCORE_FAILED,
    SCORE_NONE,
    SCORE_UNKNOWN,
    UNKNOWN,
    Table,
    VerdictMemo,
)
from engine.scheduling.counted import CountedHook
from engine.scheduling.scoring import Normalizer

# A code of a class vector beside those of a filter's table: no node in this slot, or a node
# outside the pre-filter's subset.
ABSENT: Final = -3

# The total of a node that is not feasible; those of feasible ones are never negative.
INFEASIBLE: Final = -1

# Up to this many changed slots plain Python is faster than numpy's call overhead.
_FEW: Final = 16
# Up to this many changed slots all hooks are asked at once.
_ONE_TRIP: Final = 96


@dataclass(frozen=True, slots=True)
class HookUse:
    """A per-node hook of an enabled policy as the cycle asks it for one pod class.

    `position` is the filter's place in the profile's order, over all filters. A score that
    `normalizes` depends on the range of all scores, and on their number if it `reads_count`.
    """

    enabled: EnabledPolicy
    hook: str
    column: NodeColumn
    pod: bytes
    extra: bytes
    position: int = 0
    normalizes: bool = False
    reads_count: bool = True

    def table(self, memo: VerdictMemo) -> Table:
        """The hook's verdicts for this pod projection."""
        return memo.table(self.column, self.enabled.instance, self.hook, self.pod, self.extra)


@dataclass(frozen=True, slots=True)
class PreFiltered:
    """What the pre-filters and pre-scores said about a pod class.

    `rejection` ends the attempt, and so does `failure`. `subset` limits the nodes (None: all), as
    the policies in `narrowed_by` asked.
    """

    rejection: Status | None = None
    failure: PolicyFailure | None = None
    subset: tuple[str, ...] | None = None
    narrowed_by: tuple[str, ...] = ()


class _ScoreVector:
    """One policy's scores by slot: raw as answered, and as they count after normalisation.

    Scores without `normalize` count as they are. Those with it depend on the range of all raw
    scores, so a change of the range counts them all anew.
    """

    __slots__ = ("failures", "is_constant", "normal", "raw", "use")

    def __init__(self, use: HookUse, size: int) -> None:
        self.use = use
        self.raw: NDArray[np.int64] = np.full(size, SCORE_NONE, np.int64)
        self.normal: NDArray[np.int64] = np.zeros(size, np.int64)
        self.failures: dict[int, PolicyFailure] = {}
        self.is_constant = False  # one score, and one normalised score, for all feasible nodes


@dataclass(slots=True)
class PodClass:
    """The verdict vectors of one pod class for one set of hook inputs.

    `codes[slot]`: FITS, the interned rejection of the first filter that rejects, FAILED, or
    ABSENT. `totals[slot]`: the weighted sum of the scores, INFEASIBLE where the code is not FITS;
    valid unless `score_failure` is set. Filters and scores over counters, `whole_scores` (policies
    whose `score_all` sees all feasible nodes) and their states are for the cycle to add. `example`
    is the pod that it was made for. `promised[slot]`: what the filters said of a node with the pods
    that were promised it.
    """

    pre: PreFiltered
    filters: Sequence[HookUse] = ()
    scores: Sequence[HookUse] = ()
    counted_filters: Sequence[CountedHook] = ()
    counted_scores: Sequence[CountedHook] = ()
    whole_scores: Sequence[HookUse] = ()
    pre_score_failures: Sequence[PolicyFailure] = ()
    codes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    totals: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    vectors: list[_ScoreVector] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    filter_failures: dict[int, PolicyFailure] = field(default_factory=dict)
    normalize_failure: PolicyFailure | None = None
    history: object = None
    generation: int = -1
    image_generation: int = -1
    example: Pod | None = None
    promised: dict[int, tuple[NodeInfo, tuple[Pod, ...], int]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory of the vectors."""
        per_score = sum(v.raw.nbytes + v.normal.nbytes for v in self.vectors)
        counted = sum(use.nbytes for use in (*self.counted_filters, *self.counted_scores))
        tables = sum(table.codes.nbytes for table in self.tables)
        return self.codes.nbytes + self.totals.nbytes + per_score + counted + tables

    @property
    def has_score_failures(self) -> bool:
        """True if the totals cannot be used: a score or a normalisation failed somewhere."""
        return self.normalize_failure is not None or any(v.failures for v in self.vectors)

    @property
    def totals_hold_for_subsets(self) -> bool:
        """True if leaving out feasible nodes does not change the totals of the others."""
        return all(v.is_constant or not v.use.normalizes for v in self.vectors)

    def update(
        self,
        snapshot: Snapshot,
        present: NDArray[np.bool_],
        memo: VerdictMemo,
        normalizer: Normalizer,
    ) -> None:
        """Bring the vectors up to *snapshot*."""
        size = len(snapshot.infos)
        changed: Sequence[int] | None = None
        if (
            snapshot.continues(self.history, self.generation)
            and len(self.codes) == size
            and (snapshot.image_generation == self.image_generation or not self._is_shared)
        ):
            changed = snapshot.changed_since(self.generation)
        if changed is None:
            self._restart(size)
            slots = self._members(snapshot, present)
            gone = np.empty(0, np.int64)
        else:
            slots, gone = self._changed_members(changed, snapshot, present)
        if len(gone):
            self.codes[gone] = ABSENT
        if len(slots) <= _FEW:
            self._few(slots.tolist(), gone.tolist(), memo, normalizer)
        else:
            self._many(slots, gone, memo, normalizer)
        self.history = snapshot.history
        self.generation = snapshot.generation
        self.image_generation = snapshot.image_generation

    @property
    def _is_shared(self) -> bool:
        """True if a change of one node can change what a hook is given of another one."""
        uses = (*self.filters, *self.scores)
        return any(use.column.projector.is_shared for use in uses)

    def forget(self) -> None:
        """Look at every node again next time: a failure that was reported may not recur."""
        self.generation = -1

    # --- which slots -----------------------------------------------------------------------

    def _restart(self, size: int) -> None:
        self.codes = np.full(size, ABSENT, np.int32)
        self.totals = np.full(size, INFEASIBLE, np.int64)
        self.vectors = [_ScoreVector(use, size) for use in self.scores]
        self.filter_failures.clear()
        self.normalize_failure = None

    def _members(self, snapshot: Snapshot, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        if self.pre.subset is None:
            return np.flatnonzero(present[: len(snapshot.infos)])
        known = (snapshot.slot_of.get(name) for name in self.pre.subset)
        slots = [slot for slot in known if slot is not None and present[slot]]
        return np.array(sorted(set(slots)), np.int64)

    def _changed_members(
        self, changed: Sequence[int], snapshot: Snapshot, present: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The changed slots that have a node of the class, and those that have none (now)."""
        subset = self.pre.subset
        has_failures = self.filter_failures or any(v.failures for v in self.vectors)
        if subset is None and not has_failures:
            slots = np.array(changed, np.int64)
            there = present[slots]
            return slots[there], slots[~there]
        members, gone = [], []
        for slot in changed:
            self.filter_failures.pop(slot, None)
            for vector in self.vectors:
                vector.failures.pop(slot, None)
            info = snapshot.infos[slot]
            if present[slot] and (subset is None or (info and info.name in subset)):
                members.append(slot)
            else:
                gone.append(slot)
        return np.array(members, np.int64), np.array(gone, np.int64)

    # --- a few slots -----------------------------------------------------------------------

    def _few(
        self,
        slots: Sequence[int],
        gone: Sequence[int],
        memo: VerdictMemo,
        normalizer: Normalizer,
    ) -> None:
        """Look at a few slots, everything that is not known in one round trip.

        After a placement one node has a new projection for several hooks; one trip for all of
        them beats one for each. Answers that are not looked at cost nothing else.
        """
        tables = self._current_tables(memo)
        filters = list(zip(self.filters, tables, strict=False))
        scores = list(zip(self.scores, tables[len(filters) :], strict=True))
        wants = []
        for use, table in (*filters, *scores):
            unknown = SCORE_UNKNOWN if table.is_score else UNKNOWN
            ids, codes = use.column.ids, table.codes
            missing = [i for i in map(ids.item, slots) if codes.item(i) == unknown]
            if missing:
                wants.append((table, use.column, np.array(missing, np.int32)))
        if wants:
            memo.fill(wants)
        touched: list[bool] = [False] * len(self.vectors)
        for slot in gone:
            self._leave(slot, touched)
        for slot in slots:
            code = FITS
            for use, table in filters:
                i = int(use.column.ids[slot])
                code = int(table.codes[i])
                if code != FITS:
                    if code == FAILED:
                        self.filter_failures[slot] = table.failures[i]
                    break
            was_feasible = self.totals[slot] != INFEASIBLE
            self.codes[slot] = code
            if code != FITS:
                if was_feasible:
                    self._leave(slot, touched)
                continue
            if not was_feasible:
                self.totals[slot] = 0
            for k, (use, table) in enumerate(scores):
                self._set_score(k, slot, table, int(use.column.ids[slot]), was_feasible, touched)
        for k, vector in enumerate(self.vectors):
            if touched[k]:
                self._renormalize(vector, normalizer)
        for _, table in (*filters, *scores):
            if table.failures:
                memo.forget_transient(table)

    def _set_score(
        self, k: int, slot: int, table: Table, i: int, was_feasible: bool, touched: list[bool]
    ) -> None:
        vector = self.vectors[k]
        value = int(table.codes[i])
        if value == SCORE_FAILED:
            vector.failures[slot] = table.failures[i]
            value = SCORE_NONE
        if was_feasible and vector.raw[slot] == value:
            return
        vector.raw[slot] = value
        if vector.use.normalizes:
            touched[k] = True
            return
        counts = 0 if value == SCORE_NONE else value
        if was_feasible:
            self.totals[slot] += (counts - vector.normal[slot]) * vector.use.enabled.weight
        else:
            self.totals[slot] += counts * vector.use.enabled.weight
        vector.normal[slot] = counts

    def _leave(self, slot: int, touched: list[bool]) -> None:
        """The node of *slot* is not feasible any more."""
        if self.totals[slot] == INFEASIBLE:
            return
        self.totals[slot] = INFEASIBLE
        for k, vector in enumerate(self.vectors):
            vector.raw[slot] = SCORE_NONE
            vector.normal[slot] = 0
            touched[k] |= vector.use.normalizes

    # --- many slots ------------------------------------------------------------------------

    def _many(
        self,
        slots: NDArray[np.int64],
        gone: NDArray[np.int64],
        memo: VerdictMemo,
        normalizer: Normalizer,
    ) -> None:
        """Look at many slots: a node stops at the first filter that rejects it.

        While they are not too many, all hooks are asked about all of them in one round trip: that
        costs less than a second one for the scores of those that fit.
        """
        tables = self._current_tables(memo)
        is_asked = len(slots) <= _ONE_TRIP
        if is_asked:
            uses = (*self.filters, *self.scores)
            memo.fill(
                [(t, u.column, u.column.ids[slots]) for u, t in zip(uses, tables, strict=True)]
            )
        remaining = slots
        for use, table in zip(self.filters, tables, strict=False):
            if not len(remaining):
                break
            ids = use.column.ids[remaining]
            if not is_asked:
                memo.fill([(table, use.column, ids)])
            verdicts = table.codes[ids]
            fits = verdicts == FITS
            if fits.all():
                continue
            self.codes[remaining[~fits]] = verdicts[~fits]
            if table.failures:
                for slot, i in zip(remaining.tolist(), ids.tolist(), strict=True):
                    if table.codes[i] == FAILED:
                        self.filter_failures[slot] = table.failures[i]
                memo.forget_transient(table)
            remaining = remaining[fits]
        self.codes[remaining] = FITS
        changed = np.concatenate((slots, gone)) if len(gone) else slots
        self._score_many(changed, remaining, memo, normalizer, is_asked=is_asked)

    def _score_many(
        self,
        slots: NDArray[np.int64],
        feasible: NDArray[np.int64],
        memo: VerdictMemo,
        normalizer: Normalizer,
        *,
        is_asked: bool,
    ) -> None:
        """Scores of *slots*, of which *feasible* fit; all hooks' gaps in one round trip.

        The totals of other nodes change only with a normalisation whose range moved. *is_asked*:
        there are no gaps.
        """
        tables = self._current_tables(memo)[len(self.filters) :]
        ids = [use.column.ids[feasible] for use in self.scores]
        if len(feasible) and not is_asked:
            columns = [use.column for use in self.scores]
            memo.fill(list(zip(tables, columns, ids, strict=True)))
        sums = np.zeros(len(feasible), np.int64)
        moved = []
        for vector, table, projected in zip(self.vectors, tables, ids, strict=True):
            before = vector.raw[slots]
            vector.raw[slots] = SCORE_NONE
            values = table.codes[projected]
            if table.failures:
                for slot, i in zip(feasible.tolist(), projected.tolist(), strict=True):
                    if table.codes[i] == SCORE_FAILED:
                        vector.failures[slot] = table.failures[i]
                values = np.where(values == SCORE_FAILED, SCORE_NONE, values)
                memo.forget_transient(table)
            vector.raw[feasible] = values
            if not vector.use.normalizes:
                normal = np.where(values == SCORE_NONE, 0, values)
            else:
                # As it was; where that does not hold any more, the whole vector is done anew.
                normal = vector.normal[feasible]
                if not np.array_equal(before, vector.raw[slots]):
                    moved.append(vector)
            vector.normal[slots] = 0
            vector.normal[feasible] = normal
            sums += normal * vector.use.enabled.weight
        self.totals[slots] = INFEASIBLE
        self.totals[feasible] = sums
        for vector in moved:
            self._renormalize(vector, normalizer)

    def _renormalize(self, vector: _ScoreVector, normalizer: Normalizer) -> None:
        """Take new raw scores of *vector* into the totals."""
        feasible = np.flatnonzero(self.codes == FITS)
        before = vector.normal[feasible]
        self._normalize(vector, feasible, normalizer)
        difference = vector.normal[feasible] - before
        self.totals[feasible] += difference * vector.use.enabled.weight

    def _normalize(
        self, vector: _ScoreVector, feasible: NDArray[np.int64], normalizer: Normalizer
    ) -> None:
        raw = vector.raw[feasible]
        use = vector.use
        answer = normalizer.normalize(use.enabled.instance, raw, reads_count=use.reads_count)
        if isinstance(answer, PolicyFailure):
            self.normalize_failure = answer
            return
        vector.normal[feasible] = answer
        vector.is_constant = bool(len(raw) and not use.reads_count and raw.min() == raw.max())

    def _current_tables(self, memo: VerdictMemo) -> list[Table]:
        """The table of every filter and score, with room for all projections.

        A class holds on to its tables: the memo may forget them, but not renumber them behind the
        class's back, which the epoch tells.
        """
        uses = (*self.filters, *self.scores)
        if len(self.tables) != len(uses):
            self.tables = [use.table(memo) for use in uses]
            return self.tables
        for place, use in enumerate(uses):
            table, column = self.tables[place], use.column
            if table.epoch != column.epoch or len(table.codes) < len(column.values):
                self.tables[place] = use.table(memo)
        return self.tables


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
        """Remember a class."""
        self._classes[key] = pod_class

    def drop(self, key: tuple[object, ...]) -> None:
        """Forget a class, so that the next pod of it is judged from the start."""
        self._classes.pop(key, None)

    def examples(self, most: int) -> list[Pod]:
        """A pod of each of the *most* classes used last, the latest first."""
        classes = itertools.islice(reversed(self._classes.values()), most)
        return [c.example for c in classes if c.example is not None]

    def trim(self) -> None:
        """Drop the least recently used classes beyond the bound (the newest always stays)."""
        total = sum(c.nbytes for c in self._classes.values())
        while (total > self._capacity_bytes or len(self._classes) > 8192) and len(
            self._classes
        ) > 1:
            _, dropped = self._classes.popitem(last=False)
            total -= dropped.nbytes

    def __len__(self) -> int:
        return len(self._classes)
