"""Counts by words that users choose, of which there is no end: bounded in number, and in time.

A word makes a series for ever, in the process and in what scrapes it. Owns which words have one.
"""

from collections.abc import Collection
from typing import Final

#: Counts for words that have no series of their own.
OTHER: Final = "Other"
#: Series of words that are not among the known ones.
MOST_SERIES: Final = 200
#: A word that was not counted for so long has no series any more.
IDLE_SECONDS: Final = 1800.0


class BoundedCounts:
    """Counts by word. The *known* words have a series once they were counted, and keep it.

    Of others *most* have one at a time; those beyond are counted as `OTHER`. Times are monotonic.
    """

    def __init__(self, known: Collection[str] = (), *, most: int = MOST_SERIES) -> None:
        self._known = frozenset(known) | {OTHER}
        self._most = most
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}  # of words that are not known, the latest at the end

    def add(self, word: str, now: float) -> None:
        """Count *word*."""
        if word not in self._known:
            if word not in self._last and len(self._last) >= self._most:
                self._forget_idle(now)
            if word in self._last or len(self._last) < self._most:
                self._last.pop(word, None)
                self._last[word] = now
            else:
                word = OTHER
        self._counts[word] = self._counts.get(word, 0) + 1

    def counts(self, now: float) -> dict[str, int]:
        """The counts of the words that have a series."""
        self._forget_idle(now)
        return dict(self._counts)

    def _forget_idle(self, now: float) -> None:
        for word, last in list(self._last.items()):
            if now - last < IDLE_SECONDS:
                return
            del self._last[word], self._counts[word]
