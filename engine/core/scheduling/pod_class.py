"""Pods that every policy of a profile sees alike, and the verdicts on every node for them.

Owns the verdict vectors: for one pod class, by node slot, the first rejection, the scores and the
total. A decision brings them up to the snapshot by looking again at the slots that changed since
the last pod of the class, with the hooks that see them differently than before; everything else
still holds, because the hooks were given nothing else.

    first pod of a class --all slots--> up to date --nodes change--> stale in those slots
    stale --next pod of the class: changed slots and hooks only--> up to date

A slot is looked at in one of two ways. Where all filters passed before, those that see the node as
it was still pass, and their scores still count: only the others are asked, filters and scores
together. Where one rejected, or nothing is known, all filters are asked in their order, and scores
only if all pass: a full node is rarely free for the next pod of the class.

State from one decision to the next:

    codes, totals            by slot, as of `generation` of the snapshot with `history`
    vectors[k].raw, .normal  by slot, of the scores that are summed up in `totals`: a new score of
                             one slot is a difference, a new range is a difference for all slots
    tables                   the memo's tables of each hook; the memo may drop a table, the class
                             keeps it, and notices by `epoch` that ids were renumbered
    changes                  how far the columns' logs of changed slots were read

Hooks over counters are not kept here: a pod placed in one domain changes their inputs everywhere.
They are `counted`'s.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.scheduling.counted import CountedHook
from engine.core.scheduling.hook_changes import EVERY_HOOK, HookChanges
from engine.core.scheduling.hook_use import HookUse, PreFiltered, ScoreVector, reads_other_nodes
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.nominations import NominatedVerdicts
from engine.core.scheduling.scoring import Normalizer
from engine.policy.evaluator import PolicyFailure
from engine.policy.projections import WantedColumn
from engine.policy.verdicts import (
    FAILED,
    FITS,
    SCORE_FAILED,
    SCORE_NONE,
    Table,
    VerdictMemo,
)

# A code of a class vector in addition to those of a filter's table: no node in this slot, or a node
# outside the pre-filter's subset.
ABSENT: Final = -3

# The total of a node that is not feasible; those of feasible ones are never negative.
INFEASIBLE: Final = -1

# Up to this many slots of which nothing is known, all hooks are asked at once. Worked out from what
# the two ways cost: a round trip is worth about forty evaluations (65 us, and 1.5 to 2 each), and
# asking filter by filter takes up to eight, but saves evaluations of nodes that stop early.
_ONE_TRIP: Final = 96


@dataclass(slots=True, weakref_slot=True, eq=False)
class PodClass:
    """The verdict vectors of one pod class for one set of hook inputs.

    `codes[slot]`: FITS, the interned rejection of the first filter that rejects, FAILED, or
    ABSENT. `totals[slot]`: the weighted sum of the scores, INFEASIBLE where the code is not FITS;
    valid unless `score_failure` is set. `numbers`: the raw scores of all `vectors`, then the
    normalized ones, each a row by slot; `scorers` are their policies. Filters and scores over
    counters, `whole_scores` (policies whose `score_all` sees all feasible nodes) and their states
    are for the cycle to add. `wanted` are the columns of entries that the pods name. `example` is
    the pod that it was made for, `last_filter` the position of the last of the filters.
    `nominated`: what the filters said of nodes with the pods that are nominated to them.
    """

    pre: PreFiltered
    filters: Sequence[HookUse] = ()
    scores: Sequence[HookUse] = ()
    counted_filters: Sequence[CountedHook] = ()
    counted_scores: Sequence[CountedHook] = ()
    whole_scores: Sequence[HookUse] = ()
    wanted: Sequence[WantedColumn] = ()
    pre_score_failures: Sequence[PolicyFailure] = ()
    codes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    totals: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    vectors: list[ScoreVector] = field(default_factory=list)
    scorers: tuple[EnabledPolicy, ...] = ()
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty((2, 0, 0), np.int64))
    tables: list[Table] = field(default_factory=list)
    filter_failures: dict[int, PolicyFailure] = field(default_factory=dict)
    normalize_failure: PolicyFailure | None = None
    history: object = None
    generation: int = -1
    image_generation: int = -1
    membership: int = -1
    last_filter: int = -1
    example: Pod | None = None
    nominated: NominatedVerdicts = field(default_factory=NominatedVerdicts)
    changes: HookChanges = field(default_factory=HookChanges)

    @property
    def nbytes(self) -> int:
        """Memory of the vectors."""
        counted = sum(use.nbytes for use in (*self.counted_filters, *self.counted_scores))
        tables = sum(table.codes.nbytes for table in self.tables)
        own = self.codes.nbytes + self.totals.nbytes + self.nominated.codes.nbytes
        own += sum(column.ids.nbytes for column in self.wanted)
        return own + self.numbers.nbytes + counted + tables

    @property
    def term_bytes(self) -> int:
        """Memory of the terms of its pods, in counters."""
        hooks = (*self.counted_filters, *self.counted_scores)
        return sum(use.nbytes for hook in hooks for use in hook.counters)

    @property
    def has_score_failures(self) -> bool:
        """True if the totals cannot be used: a score or a normalisation failed somewhere."""
        return self.normalize_failure is not None or any(v.failures for v in self.vectors)

    @property
    def totals_hold_for_subsets(self) -> bool:
        """True if leaving out feasible nodes does not change the totals of the others."""
        return all(v.constant or not v.use.normalizes for v in self.vectors)

    def update(
        self,
        snapshot: Snapshot,
        nodes: NodeColumns,
        memo: VerdictMemo,
        normalizer: Normalizer,
    ) -> None:
        """Bring the vectors up to *snapshot*, to which *nodes* were brought before."""
        for column in self.wanted:
            column.follow(snapshot)
        # Two ways to find the slots. The columns' logs say what hooks see differently, which is
        # exact and cheap; the snapshot's log says which nodes changed in whatever way. The second
        # one is for what the logs cannot say: nodes that came or went, and failures, which are
        # asked again.
        touched = self._touched(snapshot, nodes)
        if touched is None:
            slots, gone = self._looked_through(snapshot, nodes)
            self.changes.begin(self.filters, self.scores)
            if len(slots) or gone:
                self._look_at(slots, EVERY_HOOK, gone, memo, normalizer)
        elif len(touched[0]):
            self._look_at(*touched, (), memo, normalizer)
        # Only now: an exception above leaves the class as behind as it was, and the next pod of it
        # looks at the same slots again.
        self.changes.catch_up()
        self.history = snapshot.history
        self.generation = snapshot.generation
        self.image_generation = snapshot.image_generation
        self.membership = nodes.membership

    def forget(self) -> None:
        """Look at every node again next time: a failure that was reported may not recur."""
        self.generation = -1

    # --- which slots, which hooks -------------------------------------------------------------

    def _touched(
        self, snapshot: Snapshot, nodes: NodeColumns
    ) -> tuple[NDArray[np.int64], int] | None:
        """The slots that some hook sees differently than before, and the mask of such columns.

        None if the columns alone do not say: nodes came or went, failures are to be
        asked again, or too much happened.
        """
        if (
            self.generation < 0
            or nodes.membership != self.membership
            or len(self.codes) != len(snapshot.infos)
            # Failures may be gone, without any change that a column has seen.
            or self.filter_failures
            or any(vector.failures for vector in self.vectors)
        ):
            return None
        touched = self.changes.touched()
        if touched is None:
            return None
        slots = np.array(touched[0], np.int64)
        if self.pre.subset is not None:
            slots = slots[self.codes[slots] != ABSENT]
        return slots, touched[1]

    def _looked_through(
        self, snapshot: Snapshot, nodes: NodeColumns
    ) -> tuple[NDArray[np.int64], Sequence[int]]:
        """The changed slots with a node of the class, and those without (now).

        Starts from scratch if it is not known which slots changed.
        """
        size = len(snapshot.infos)
        changed: Sequence[int] | None = None
        if (
            snapshot.continues(self.history, self.generation)
            and len(self.codes) == size
            and (
                # What is shared by nodes changes on other nodes than the one that changed.
                snapshot.image_generation == self.image_generation
                or not reads_other_nodes((*self.filters, *self.scores))
            )
        ):
            changed = snapshot.changed_since(self.generation)
        # As another snapshot, or one that is too far ahead of its log: a class that was not asked
        # for long looks at every node, which costs as much as one that is new.
        if changed is None:
            self._restart(size)
            return self._members(snapshot, nodes.present), ()
        members, gone = self._changed_members(changed, snapshot, nodes.present)
        return np.array(members, np.int64), gone

    def _restart(self, size: int) -> None:
        numbers = np.zeros((2, len(self.scores), size), np.int64)
        # A score that is not known must not be taken for 0, which counts.
        numbers[0] = SCORE_NONE
        self.codes, self.totals = (
            np.full(size, ABSENT, np.int32),
            np.full(size, INFEASIBLE, np.int64),
        )
        self.numbers = numbers
        self.scorers = tuple(use.enabled for use in self.scores)
        self.vectors = [ScoreVector(use, *self.numbers[:, k]) for k, use in enumerate(self.scores)]
        self.filter_failures.clear()
        self.normalize_failure = None

    def _members(self, snapshot: Snapshot, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        if self.pre.subset is None:
            return np.flatnonzero(present[: len(snapshot.infos)])
        known = (snapshot.slot_of.get(name) for name in self.pre.subset)
        slots = sorted({slot for slot in known if slot is not None and present[slot]})
        return np.array(slots, np.int64)

    def _changed_members(
        self, changed: Sequence[int], snapshot: Snapshot, present: NDArray[np.bool_]
    ) -> tuple[list[int], list[int]]:
        """The changed slots that have a node of the class, and those that have none (now)."""
        subset = self.pre.subset
        members, gone = [], []
        # Taken out before they are asked again: what is left afterwards failed just now.
        for slot in changed:
            self.filter_failures.pop(slot, None)
            for vector in self.vectors:
                vector.failures.pop(slot, None)
            info = snapshot.infos[slot]
            if present[slot] and (subset is None or (info and info.name in subset)):
                members.append(slot)
            else:
                gone.append(slot)
        return members, gone

    # --- looking at slots ------------------------------------------------------------------

    def _look_at(
        self,
        slots: NDArray[np.int64],
        mask: int,
        gone: Sequence[int],
        memo: VerdictMemo,
        normalizer: Normalizer,
    ) -> None:
        """Have the hooks that *mask* is about look at all of *slots*; *gone* have no node now."""
        tables = self._current_tables(memo)
        before = self.codes[slots]
        # See the head of the module for why these two are treated differently. Mostly there is one
        # slot, of a node that fitted: that takes half the time without arrays of nothing.
        fitted, nothing = before == FITS, slots[:0]
        kept, others = slots, nothing
        if np.count_nonzero(fitted) < len(slots):
            kept, others = slots[fitted], slots[~fitted]
        filters, scores = self.changes.hooks(mask)
        # A node that was rejected stopped at that filter: of those behind it nothing is known, so
        # that the mask of what changed does not say which to ask.
        every_filter, _ = self.changes.hooks(EVERY_HOOK)
        # 1. Ask what is not known. Scores of nodes that were rejected wait; so does everything of
        #    many nodes that were never looked at: most may stop at the first filter.
        asks_others = len(others) <= _ONE_TRIP
        unseen = others[before[~fitted] <= FITS] if asks_others and len(others) else nothing
        wants = []
        for place, column in enumerate(self.changes.column_of):
            asked = kept if place in filters or place in scores else nothing
            more = unseen if place >= len(self.filters) else others if asks_others else nothing
            if len(more):
                asked = np.concatenate((asked, more)) if len(asked) else more
            if len(asked):
                wants.append((tables[place], column, column.ids[asked]))
        # One round trip for filters and scores of a feasible node: after a placement that is one
        # node with a new projection for several hooks, and it mostly stays feasible.
        memo.fill(wants)
        # 2. The first filter that rejects.
        staying = self._filter(kept, filters)
        fitting = nothing
        if len(others):
            fitting = self._filter(others, every_filter, None if asks_others else memo)
            self.codes[fitting] = FITS
        # 3. The scores. What left is not in any range any more.
        moved: dict[int, ScoreVector] = {}
        if len(staying):
            self._rescore(staying, scores, moved)
        # All that was not feasible before, or is not now: their scores begin from nothing, so that
        # a node which leaves is in no range any more.
        without = others
        if gone or len(staying) < len(kept):
            away = np.array(gone, np.int64)
            self.codes[away] = ABSENT
            without = np.concatenate((kept[self.codes[kept] != FITS], others, away))
        if len(without):
            is_asked = asks_others and len(unseen) == len(others)
            self._score(without, fitting, None if is_asked else memo, moved)
        # After the failures are noted here, which the decision reports: then the next pod asks
        # again.
        for table in tables:
            if table.failures:
                memo.forget_transient(table)
        for vector in moved.values():
            self._renormalize(vector, normalizer)

    def _filter(
        self, slots: NDArray[np.int64], places: Collection[int], memo: VerdictMemo | None = None
    ) -> NDArray[np.int64]:
        """Those of *slots* that the filters at *places* let pass; the codes of the others are set.

        Without a *memo* all answers are known.
        """
        remaining = slots
        for place in places:
            if not len(remaining):
                break
            use, table = self.filters[place], self.tables[place]
            ids = use.column.ids[remaining]
            if memo is not None:
                memo.fill([(table, use.column, ids)])
            verdicts = table.codes[ids]
            # The common case, without making two arrays.
            fits = verdicts == FITS
            if np.count_nonzero(fits) == len(fits):
                continue
            self.codes[remaining[~fits]] = verdicts[~fits]
            if table.failures:
                for slot, i in zip(remaining.tolist(), ids.tolist(), strict=True):
                    if table.codes[i] == FAILED:
                        self.filter_failures[slot] = table.failures[i]
            remaining = remaining[fits]
        return remaining

    def _raw(self, place: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the score at *place* says of *slots*, and its failures noted."""
        table, vector = self.tables[place], self.vectors[place - len(self.filters)]
        ids = vector.use.column.ids[slots]
        values: NDArray[np.int64] = table.codes[ids]
        if table.failures:
            for slot, i in zip(slots.tolist(), ids.tolist(), strict=True):
                if table.codes[i] == SCORE_FAILED:
                    vector.failures[slot] = table.failures[i]
            # In a range, a score that failed is as one that was not given; the failure decides
            # elsewhere.
            values = np.where(values == SCORE_FAILED, SCORE_NONE, values)
        return values

    def _rescore(
        self, slots: NDArray[np.int64], places: Collection[int], moved: dict[int, ScoreVector]
    ) -> None:
        """Take new scores of nodes that were feasible and still are."""
        for place in places:
            vector = self.vectors[place - len(self.filters)]
            values = self._raw(place, slots)
            if vector.use.normalizes:
                # The range of all nodes may be another one now. Left to the end: a range that moved
                # changes the totals of all feasible nodes, once and not for each hook.
                if np.count_nonzero(vector.raw[slots] != values):
                    moved[place] = vector
            else:
                counts = np.where(values == SCORE_NONE, 0, values)
                # Totals are kept as sums, so one score that changed is a difference to add: exact,
                # in int64.
                self.totals[slots] += (counts - vector.normal[slots]) * vector.use.enabled.weight
                vector.normal[slots] = counts
            vector.raw[slots] = values

    def _score(
        self,
        slots: NDArray[np.int64],
        feasible: NDArray[np.int64],
        memo: VerdictMemo | None,
        moved: dict[int, ScoreVector],
    ) -> None:
        """Scores of *slots*, of which *feasible* fit now; all hooks' gaps in one round trip.

        Without a *memo* there are no gaps. The totals of other nodes change only with a
        normalisation whose range moved.
        """
        first = len(self.filters)
        columns = [use.column for use in self.scores]
        if len(feasible) and memo is not None:
            tables = self.tables[first:]
            memo.fill([(t, c, c.ids[feasible]) for t, c in zip(tables, columns, strict=True)])
        sums = np.zeros(len(feasible), np.int64)
        for k, vector in enumerate(self.vectors):
            before = vector.raw[slots]
            vector.raw[slots] = SCORE_NONE
            values = self._raw(first + k, feasible)
            vector.raw[feasible] = values
            if not vector.use.normalizes:
                normal = np.where(values == SCORE_NONE, 0, values)
            elif vector.constant is not None and bool((values == vector.constant[0]).all()):
                normal = np.full(len(feasible), vector.constant[1])
            else:
                # As it was; if the raw scores changed, the whole vector is normalised again.
                normal = vector.normal[feasible]
                if not np.array_equal(before, vector.raw[slots]):
                    moved[first + k] = vector
            vector.normal[slots] = 0
            vector.normal[feasible] = normal
            sums += normal * vector.use.enabled.weight
        self.totals[slots] = INFEASIBLE
        self.totals[feasible] = sums

    def _renormalize(self, vector: ScoreVector, normalizer: Normalizer) -> None:
        """Take new raw scores of *vector* into the totals."""
        # After all codes are set: the range is over what is feasible now.
        feasible = np.flatnonzero(self.codes == FITS)
        before = vector.normal[feasible]
        self._normalize(vector, feasible, normalizer)
        difference = vector.normal[feasible] - before
        self.totals[feasible] += difference * vector.use.enabled.weight

    def _normalize(
        self, vector: ScoreVector, feasible: NDArray[np.int64], normalizer: Normalizer
    ) -> None:
        raw = vector.raw[feasible]
        use = vector.use
        answer = normalizer.normalize(use.enabled.instance, raw, reads_count=use.reads_count)
        vector.constant = None
        if isinstance(answer, PolicyFailure):
            self.normalize_failure = answer
            return
        vector.normal[feasible] = answer
        # Often a score is the same on every node (no preferences, no taints). Then a node that
        # comes with this score moves no range, and nothing is normalized again. Not where the
        # policy reads how many nodes there are: each one that comes or goes changes the answer.
        if len(raw) and not use.reads_count and raw.min() == raw.max():
            vector.constant = raw.item(0), answer.item(0)

    def _current_tables(self, memo: VerdictMemo) -> list[Table]:
        """The table of every filter and score, large enough for all projections.

        A class holds on to its tables: the memo may forget them, but not renumber them behind the
        class's back: the epoch shows that.
        """
        tables, columns = self.tables, self.changes.column_of
        if len(tables) != len(columns):
            self.tables = [use.table(memo) for use in (*self.filters, *self.scores)]
            return self.tables
        for place, (table, column) in enumerate(zip(tables, columns, strict=True)):
            if table.epoch != column.epoch or len(table.codes) < len(column.values):
                uses = (*self.filters, *self.scores)
                tables[place] = uses[place].table(memo)
        return tables
