"""Nodes that a hook over counters cannot tell apart, and what it said about them.

Owns the grouping and what is kept by group; arithmetic only. Five thousand nodes in ten zones are
ten groups; with a hostname among the topologies each node is a group of its own, and groups with
equal counts are equal inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.counter_answers import OUTSIDE, CounterColumn, Members, Places
from engine.policy.verdicts import FITS
from engine.scheduling.foresight import Steps, flat

# Equal numbers are found by a table where it is this short, else by sorting.
_TABLE_SPAN: Final = 1 << 20
# Up to so many changed domains, or groups, each is looked at by itself.
_MOST_DOMAINS: Final = 8
_FEW_GROUPS: Final = 8


@dataclass(slots=True)
class Groups:
    """The groups of one hook of one pod class, and its answers.

    Two nodes are in one group while they have the same projection and are in the same domains.

    Attributes:
        made_of: What the groups depend on; others are made if it changes.
        of_slot: The group of each slot.
        example: A slot of each group.
        places: By counter, where the counts of the examples are.
        here: By counter, the count that each group was judged with.
        positions: By counter, up to where `here` followed its changes.
        shared: By counter, what all groups were told beside that.
        codes: The answer for each group.
        is_known: By group, `codes` is the answer for `here` and `shared`.
        steps: By how much the inputs changed lately.
        feasible: What was said of the feasible nodes, and which they were; see `CountedHooks`.
    """

    made_of: tuple[object, ...] = ()
    of_slot: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    example: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    places: list[Places] = field(default_factory=list)
    here: list[NDArray[np.int64]] = field(default_factory=list)
    positions: list[tuple[tuple[object, int], ...]] = field(default_factory=list)
    shared: list[dict[str, Any]] = field(default_factory=list)
    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_known: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    steps: Steps = field(default_factory=Steps)
    feasible: tuple[bytes, list[dict[str, int]]] = (b"", [])
    _sizes: NDArray[np.int64] | None = None
    _members: Members | None = None
    _by_slot: NDArray[np.int32] | None = None
    _rejects: NDArray[np.bool_] | None = None

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.is_known)

    @property
    def nbytes(self) -> int:
        """Memory of what is kept."""
        by_group = self.example.nbytes + self.codes.nbytes + self.is_known.nbytes
        return 2 * self.of_slot.nbytes + by_group + sum(counts.nbytes for counts in self.here)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many slots each group has."""
        if self._sizes is None:
            self._sizes = np.bincount(self.of_slot, minlength=self.count)
        return self._sizes

    def make(
        self,
        made_of: tuple[object, ...],
        columns: Sequence[CounterColumn],
        varying: Sequence[NDArray[np.int64]],
    ) -> None:
        """Begin anew: slots with equal *varying* numbers are a group; nothing is known."""
        self.of_slot, self.example = distinct_inputs(varying)
        count = len(self.example)
        self.made_of = made_of
        self.places = [column.layout.places(self.example) for column in columns]
        self.here, self.positions, self.shared = [], [], []
        self.codes = np.zeros(count, np.int64)
        self.is_known = np.zeros(count, np.bool_)
        self.feasible = b"", []
        self._sizes = self._members = self._by_slot = self._rejects = None

    def follow(self, columns: Sequence[CounterColumn], shared: list[dict[str, Any]]) -> None:
        """Take the counts and what is *shared* as of now; answers for others are unknown then.

        *columns* are the counters whose counts by node matter. Where few domains changed, only
        their groups are looked at.
        """
        is_first = len(self.positions) != len(columns) or len(self.shared) != len(shared)
        if is_first:
            self.here = [
                column.here_at(places) for column, places in zip(columns, self.places, strict=False)
            ]
            self.is_known[:] = False
        else:
            self._move(columns, shared)
        self.positions = [column.positions for column in columns]
        self.shared = shared

    def _move(self, columns: Sequence[CounterColumn], shared: list[dict[str, Any]]) -> None:
        found = [self._moved(column, place) for place, column in enumerate(columns)]
        # By counter, a group whose count is another one: what changed for it may go on.
        moved = {int(groups[0]) for groups, _ in found if len(groups)}
        if shared != self.shared:
            self.is_known[:] = False
            if self.count:
                moved = moved or {0}
        then = {group: self._numbers(group) for group in moved}
        for here, (groups, counts) in zip(self.here, found, strict=True):
            here[groups] = counts
            self.is_known[groups] = False
        for group in sorted(moved):
            before = flat(then[group], self.shared)
            self.steps.note(before, flat(self._numbers(group), shared))

    def _moved(
        self, column: CounterColumn, place: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The groups that have another count now, and those counts."""
        places, before = self.places[place], self.here[place]
        some = column.moved_since(self.positions[place], places, _MOST_DOMAINS)
        if some is None:
            now = column.here_at(places)
            groups = np.flatnonzero(now != before)
            return groups, now[groups]
        if not len(some):
            return some, some
        now = column.here_at(places.part(some))
        differs = now != before[some]
        return some[differs], now[differs]

    def _numbers(self, group: int) -> list[int]:
        return [int(counts[group]) for counts in self.here]

    def learn(self, groups: NDArray[np.int64], codes: NDArray[np.int64]) -> None:
        """The answers for *groups* are *codes*."""
        if self._by_slot is not None:
            differs = self.codes[groups] != codes
            if len(groups) > _FEW_GROUPS and differs.any():
                self._by_slot = self._rejects = None
            else:
                for group, code in zip(
                    groups[differs].tolist(), codes[differs].tolist(), strict=True
                ):
                    self._set(group, code)
        self.codes[groups] = codes
        self.is_known[groups] = True

    def _set(self, group: int, code: int) -> None:
        """Take the answer of one group into what is kept by slot."""
        assert self._by_slot is not None
        assert self._rejects is not None
        if self._members is None:
            self._members = Members(self.of_slot)
        slots = self._members.of(group)
        self._by_slot[slots] = code
        self._rejects[slots] = code != FITS

    def reject(self, codes: NDArray[np.int32], is_open: NDArray[np.bool_]) -> None:
        """Write the answers that are no FITS into *codes*, where *is_open*.

        What is needed by slot is kept until an answer changes.
        """
        if self._by_slot is None:
            self._by_slot = self.codes.astype(np.int32)[self.of_slot]
            self._rejects = self._by_slot != FITS
        assert self._rejects is not None
        if self.codes.any():  # FITS is 0
            np.copyto(codes, self._by_slot, where=self._rejects & is_open)


def distinct_inputs(
    vectors: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Equal columns of *vectors* found.

    Returns:
        For each place the number of its input, from 0 on, and for each input a place that has it.
    """
    combined, span = _from_zero(vectors[0])
    for vector in vectors[1:]:
        numbers, width = _from_zero(vector)
        if span * width > _TABLE_SPAN:
            combined, span = _from_zero(_dense(combined))
            if span * width > _TABLE_SPAN:
                numbers, width = _from_zero(_dense(numbers))
        combined = combined * width + numbers
        span *= width
    of_place = _dense(combined)
    example = np.empty(int(of_place.max()) + 1 if len(of_place) else 0, np.int64)
    example[of_place] = np.arange(len(of_place))
    return of_place, example


def _from_zero(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Numbers from 0 on that are equal where *numbers* are, and one more than the largest."""
    if not len(numbers):
        return numbers, 1
    low, high = int(numbers.min()), int(numbers.max())
    if low == OUTSIDE and high != OUTSIDE:
        is_outside = numbers == OUTSIDE
        low = int(numbers[~is_outside].min()) - 1
        numbers = np.where(is_outside, low, numbers)
    if high - low >= _TABLE_SPAN:
        numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
        return numbers, int(numbers.max()) + 1
    return numbers - low, high - low + 1


def _dense(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """*numbers*, none negative, as 0, 1, 2, ... in the same order."""
    if not len(numbers):
        return numbers
    span = int(numbers.max()) + 1
    if span > _TABLE_SPAN:
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    seen = np.zeros(span, np.bool_)
    seen[numbers] = True
    index = np.cumsum(seen, dtype=np.int64)
    index -= 1
    return index[numbers]
