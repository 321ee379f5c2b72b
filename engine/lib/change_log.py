"""A bounded log of changes, for readers that follow it at their own pace.

Owns how many are kept. A reader remembers `end`; `since` then returns what came after it.
"""

from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """Changes in the order in which they were noted.

    Attributes:
        end: How many changes there have been; grows with each.

    Args:
        least: How many changes are kept at least. A reader further behind starts over, which should
            cost about as much as that many changes.
    """

    __slots__ = ("_changes", "_least", "_start", "end")

    def __init__(self, least: int) -> None:
        self.end = 0
        self._least = least
        self._changes: list[T] = []  # the last one is number `end`
        self._start = 0  # the number before the first of them

    def copy(self) -> "ChangeLog[T]":
        """A log of its own that goes on from the same changes."""
        made = ChangeLog[T](self._least)
        made.end, made._changes, made._start = self.end, self._changes.copy(), self._start
        return made

    def note(self, change: T) -> None:
        """Append a change."""
        self.end += 1
        self._changes.append(change)
        if len(self._changes) > 2 * self._least:
            self._trim()

    def extend(self, changes: Collection[T]) -> None:
        """Append several changes."""
        self.end += len(changes)
        self._changes += changes
        if len(self._changes) > 2 * self._least:
            self._trim()

    def _trim(self) -> None:
        del self._changes[: -self._least]
        self._start = self.end - self._least

    def since(self, end: int) -> list[T] | None:
        """The changes after *end*; None if they are not all known any more."""
        return None if end < self._start else self._changes[end - self._start :]

    def restart(self) -> None:
        """Note that anything may have changed: every reader starts over."""
        self.end += 1
        self._start = self.end
        self._changes.clear()

    def check_invariants(self) -> None:
        """Raise `AssertionError` if changes were lost."""
        assert self._start + len(self._changes) == self.end, "the log has a gap"
