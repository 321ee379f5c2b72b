"""Foresees what the next pods will ask of hooks over counters: what grew by one grows by one again.

Owns the rule; what is foreseen is asked in the round trip that has to be made anyway. A trip costs
as much as fifty evaluations, and pods of one class that are placed one after the other bring one
new count, and one new range of scores, each; where they are spread, the least count grows with
each round. No decision depends on what is foreseen.
"""

from typing import Final, TypeAlias

Numbers: TypeAlias = tuple[int, ...]

#: How many inputs of at most how many numbers are foreseen at a time: about as many as a trip
#: costs, so that those which are never needed cost no more than that.
AHEAD: Final = 48
MOST_NUMBERS: Final = 12
# Numbers that jump by more are not counts.
_LARGEST_STEP: Final = 1_000


class ReadAhead:
    """Follows the inputs of one kind that had to be asked."""

    __slots__ = ("_last", "_of", "_step")

    def __init__(self) -> None:
        self._of: object = None
        self._last: Numbers = ()
        self._step: Numbers = ()

    def after(self, numbers: Numbers, of: object = None) -> list[Numbers]:
        """The inputs that probably follow *numbers*; none unless the last two steps were alike.

        *of* is what they have in common; another value starts over.
        """
        if len(numbers) > MOST_NUMBERS:
            return []
        is_comparable = of == self._of and len(numbers) == len(self._last)
        step = (
            tuple(b - a for a, b in zip(self._last, numbers, strict=True)) if is_comparable else ()
        )
        is_steady = step == self._step and 0 < max(map(abs, step), default=0) <= _LARGEST_STEP
        self._of, self._last, self._step = of, numbers, step
        if not is_steady:
            return []
        ahead = [
            tuple(a + times * s for a, s in zip(numbers, step, strict=True))
            for times in range(1, AHEAD + 1)
        ]
        self._last = ahead[-1]  # the next that has to be asked follows that one
        return ahead
