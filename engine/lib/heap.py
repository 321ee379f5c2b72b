"""A priority queue whose items can be looked up, replaced and removed by key.

Owns order and membership only; what the order means is the caller's.
"""

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class KeyedHeap(Generic[K, T]):
    """Items by key; the one with the smallest order comes out first, equal ones first in first out.

    Orders must be comparable with each other. Push, pop, replace and remove cost O(log n)
    amortised: what is replaced or removed stays in the heap as a dead entry until it surfaces, or
    until dead entries outnumber live ones.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Any, int, K]] = []
        self._live: dict[K, tuple[tuple[Any, int, K], T]] = {}
        self._tokens = itertools.count()  # separates entries of one key, keeps ties in order

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def __iter__(self) -> Iterator[T]:
        """The items, in no particular order."""
        return (item for _, item in self._live.values())

    def push(self, key: K, item: T, order: Any) -> None:
        """Add *item*, or put it in the place of the one with the same *key*."""
        entry = (order, next(self._tokens), key)
        self._live[key] = (entry, item)
        heapq.heappush(self._entries, entry)
        if len(self._entries) > 2 * len(self._live) + 64:
            self._entries = [entry for entry, _ in self._live.values()]
            heapq.heapify(self._entries)

    def get(self, key: K) -> T | None:
        """The item of *key*, or None."""
        found = self._live.get(key)
        return None if found is None else found[1]

    def remove(self, key: K) -> T | None:
        """Take out the item of *key*; None if there is none."""
        found = self._live.pop(key, None)
        return None if found is None else found[1]

    def peek(self) -> T | None:
        """The item that comes out next, or None when empty."""
        while self._entries:
            entry = self._entries[0]
            found = self._live.get(entry[2])
            if found is not None and found[0] is entry:
                return found[1]
            heapq.heappop(self._entries)
        return None

    def pop(self) -> T | None:
        """Take out the item that comes next; None when empty."""
        item = self.peek()
        if item is not None:
            del self._live[heapq.heappop(self._entries)[2]]
        return item

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a live item cannot come out, or order is broken."""
        entries = {id(entry) for entry in self._entries}
        for key, (entry, _) in self._live.items():
            assert entry[2] == key, f"`{key}` is filed under another key"
            assert id(entry) in entries, f"`{key}` is not in the heap"
        for child in range(1, len(self._entries)):
            assert self._entries[(child - 1) // 2] < self._entries[child], "the heap is disordered"
