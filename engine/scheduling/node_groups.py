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

from engine.caching.counters import OUTSIDE, CounterColumn, Places
from engine.policy.verdicts import FITS
from engine.scheduling.foresight import Steps

# Equal numbers are found by a table where it is this short, else by sorting.
_TABLE_SPAN: Final = 1 << 20


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
    shared: list[dict[str, Any]] = field(default_factory=list)
    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_known: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    steps: Steps = field(default_factory=Steps)
    feasible: tuple[bytes, list[dict[str, int]]] = (b"", [])
    _sizes: NDArray[np.int64] | None = None
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
        self.here, self.shared = [], []
        self.codes = np.zeros(count, np.int64)
        self.is_known = np.zeros(count, np.bool_)
        self.feasible = b"", []
        self._sizes = self._by_slot = self._rejects = None

    def learn(self, groups: NDArray[np.int64], codes: NDArray[np.int64]) -> None:
        """The answers for *groups* are *codes*."""
        if self._by_slot is not None and not np.array_equal(self.codes[groups], codes):
            self._by_slot = self._rejects = None
        self.codes[groups] = codes
        self.is_known[groups] = True

    def reject(self, codes: NDArray[np.int32], is_open: NDArray[np.bool_]) -> None:
        """Write the answers that are no FITS into *codes*, where *is_open*.

        What is needed by slot is kept until an answer changes.
        """
        if self._by_slot is None:
            self._by_slot = self.codes.astype(np.int32)[self.of_slot]
            rejects = self._by_slot != FITS
            self._rejects = rejects if rejects.any() else None
        if self._rejects is not None:
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
