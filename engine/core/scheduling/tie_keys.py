"""The answers of `tie_key`: which of the nodes with the highest total goes first for a policy.

Owns remembering them by what the hook was given, like all verdicts; keys are no numbers, so they
are not in the verdict tables. They are sorted once, and a tie of many nodes is then one look at
where theirs came in; of keys that came since then, a few are compared one by one.
"""

from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.scheduling.hook_use import HookUse
from engine.core.scheduling.select_host import SortKey, sort_key
from engine.policy.evaluator import Call, PolicyFailure, first_reported
from engine.policy.sandbox.projected import Projected
from engine.policy.verdicts import VerdictMemo, as_ids

_CAPACITY_BYTES: Final = 24 << 20
# A key with its place in the list and in the dict, about.
_KEY_BYTES: Final = 256
_UNKNOWN: Final = -1
# All keys are sorted again once so many are unsorted, and this part of those that are sorted: each
# key is then part of few sorts, and a tie compares few keys one by one.
_LEAST_UNSORTED: Final = 64
_UNSORTED_PART: Final = 8


class _Keys:
    """The keys of one hook for one pod, by the number of the node projection.

    `numbers[id]` is the place of the key in `distinct`. The first keys of that are sorted:
    `ranks[number]` says where each comes in.
    """

    __slots__ = ("distinct", "known", "numbers", "ranks")

    def __init__(self) -> None:
        self.numbers: NDArray[np.int32] = np.empty(0, np.int32)
        self.distinct: list[SortKey] = []
        self.known: dict[SortKey, int] = {}
        self.ranks: NDArray[np.int32] = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Memory, about."""
        return self.numbers.nbytes + self.ranks.nbytes + _KEY_BYTES * (1 + len(self.distinct))

    def reserve(self, size: int) -> None:
        """Extend the table to ids below *size*."""
        have = len(self.numbers)
        if size > have:
            grown = np.full(max(size, 2 * have), _UNKNOWN, np.int32)
            grown[:have] = self.numbers
            self.numbers = grown

    def put(self, place: int, key: SortKey) -> None:
        """The key of the projection *place*."""
        number = self.known.setdefault(key, len(self.distinct))
        if number == len(self.distinct):
            self.distinct.append(key)
        self.numbers[place] = number

    def smallest(self, numbers: NDArray[np.int32]) -> int:
        """The number of the smallest key among *numbers*."""
        unsorted = len(self.distinct) - len(self.ranks)
        if unsorted > max(_LEAST_UNSORTED, len(self.ranks) // _UNSORTED_PART):
            self._sort()
        is_sorted = numbers < len(self.ranks)
        if is_sorted.all():
            return int(numbers[self.ranks[numbers].argmin()])
        found = set(numbers[~is_sorted].tolist())
        if is_sorted.any():
            ranked = numbers[is_sorted]
            found.add(int(ranked[self.ranks[ranked].argmin()]))
        smallest: int = min(found, key=self.distinct.__getitem__)
        return smallest

    def _sort(self) -> None:
        order = sorted(range(len(self.distinct)), key=self.distinct.__getitem__)
        self.ranks = np.empty(len(order), np.int32)
        self.ranks[order] = np.arange(len(order), dtype=np.int32)


class TieKeys:
    """Keys by policy, pod projection and node projection; bounded, the oldest go first."""

    def __init__(self, memo: VerdictMemo, capacity_bytes: int = _CAPACITY_BYTES) -> None:
        self._memo = memo
        self._capacity_bytes = capacity_bytes
        self.memory_bytes = 0
        self._keys: OrderedDict[tuple[int, bytes, bytes, int], _Keys] = OrderedDict()

    def first(self, use: HookUse, ids: NDArray[np.intp]) -> NDArray[np.bool_] | PolicyFailure:
        """For each of the node projections *ids* of the hook's column, if its key is smallest."""
        place = (use.enabled.instance, use.pod, use.extra, use.column.number)
        keys = self._keys.get(place)
        if keys is None:
            keys = self._keys[place] = _Keys()
            before = 0
        else:
            self._keys.move_to_end(place)
            before = keys.nbytes
        is_first = self._among(keys, use, ids)
        self.memory_bytes += keys.nbytes - before
        while self.memory_bytes > self._capacity_bytes and len(self._keys) > 1:
            _, dropped = self._keys.popitem(last=False)
            self.memory_bytes -= dropped.nbytes
        return is_first

    def _among(
        self, keys: _Keys, use: HookUse, ids: NDArray[np.intp]
    ) -> NDArray[np.bool_] | PolicyFailure:
        column, instance = use.column, use.enabled.instance
        keys.reserve(len(column.values))
        numbers = keys.numbers[ids]
        is_missing = numbers == _UNKNOWN
        if is_missing.any():
            missing = np.unique(ids[is_missing])
            nodes = Projected(column.number, column.values, as_ids(missing))
            verdicts = self._memo.evaluate([Call(instance, use.hook, use.pod, nodes, use.extra)])[0]
            if failed := [one for one in verdicts if isinstance(one, PolicyFailure)]:
                return first_reported(failed)
            for number, verdict in zip(missing.tolist(), verdicts, strict=True):
                keys.put(number, sort_key(verdict))
            numbers = keys.numbers[ids]
        is_first: NDArray[np.bool_] = numbers == keys.smallest(numbers)
        return is_first
