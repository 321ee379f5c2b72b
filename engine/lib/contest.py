"""Which of two ways to do the same takes less time: found out by going both, again and again.

Pure: told what each round took, it says which way the next one goes.
"""

from typing import Final

# Rounds that are compared as one: few last long, most do not.
_BLOCK: Final = 64
# Of a block that is far slower than the other way was, so many are enough.
_SEEN_ENOUGH: Final = 8
_FAR: Final = 2.0
# The second way is the dearer one: to be chosen, it is to take this part of the first one's time at
# most. Once it is, it stays as long as it is faster at all.
_WORTH: Final = 0.9
# Blocks on the better way before the other is tried, twice as many each time that it is no better.
_FIRST: Final = 2
_FEWEST: Final = 3
_MOST: Final = 64
# How fast a way's mean follows.
_SMOOTHED_OVER: Final = 4


class Contest:
    """Two ways, 0 and 1; 1 costs something beside time, and has to be clearly faster.

    `better` is the one that took less time so far, `way` the one that rounds go at the moment.
    """

    __slots__ = ("_blocks_left", "_means", "_patience", "_rounds", "_seconds", "better", "way")

    def __init__(self) -> None:
        self.better = self.way = 0
        self._means: list[float | None] = [None, None]
        self._patience = _FEWEST
        self._blocks_left = _FIRST
        self._rounds = 0
        self._seconds = 0.0

    def interrupt(self) -> None:
        """The rounds of now say nothing: they are no part of a block."""
        self._rounds = 0
        self._seconds = 0.0
        self.way = self.better

    def took(self, seconds: float) -> None:
        """A round was gone on `way`, which may be another one afterwards."""
        self._seconds += seconds
        self._rounds += 1
        if self._rounds < _BLOCK and not self._is_hopeless():
            return
        self._learn(self._seconds / self._rounds)
        self._rounds = 0
        self._seconds = 0.0
        if self.way == self.better:
            self._blocks_left -= 1
            if self._blocks_left <= 0:
                self.way = 1 - self.better
        else:
            self._judge()

    def _is_hopeless(self) -> bool:
        other = self._means[1 - self.way]
        return (
            self.way != self.better
            and self._rounds >= _SEEN_ENOUGH
            and other is not None
            and self._seconds > _FAR * other * self._rounds
        )

    def _learn(self, mean: float) -> None:
        before = self._means[self.way]
        if before is not None and self.way == self.better:
            mean = before + (mean - before) / _SMOOTHED_OVER
        self._means[self.way] = mean

    def _judge(self) -> None:
        """The other way was tried."""
        first, second = self._means
        assert first is not None
        assert second is not None
        better = int(second < (first if self.better else _WORTH * first))
        self._patience = _FEWEST if better != self.better else min(2 * self._patience, _MOST)
        self._blocks_left = self._patience
        self.better = self.way = better
