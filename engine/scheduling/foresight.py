"""What will probably be asked next: a counter that grew by one will grow by one again.

Owns guesses only. A round trip to the sandbox costs as much as a dozen evaluations, so the inputs
that the next pods will bring are asked along with the one that is needed now. A wrong guess costs
its evaluation; no decision depends on one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

# How far ahead to ask, and how many different steps are remembered.
_AHEAD: Final = 8
_KINDS: Final = 3
# Numbers that jump are not counters.
_LARGEST: Final = 1_000

Numbers = tuple[int, ...]


class Steps:
    """By how much some numbers changed lately, the latest step last."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[Numbers] = []

    def note(self, before: Numbers | None, now: Numbers | None) -> None:
        """The numbers went from *before* to *now*; None: they cannot be compared."""
        if before is None or now is None or len(before) != len(now):
            return
        step = tuple([b - a for a, b in zip(before, now, strict=True)])
        if not any(step) or max(map(abs, step)) > _LARGEST:
            return
        if self._steps and self._steps[-1] == step:
            return
        if step in self._steps:
            self._steps.remove(step)
        self._steps.append(step)
        del self._steps[:-_KINDS]

    def from_here(self, now: Numbers | None) -> Iterator[Numbers]:
        """What the numbers may be soon."""
        if now is None:
            return
        for step in self._steps:
            if len(step) == len(now):
                for times in range(1, _AHEAD + 1):
                    yield tuple([a + times * s for a, s in zip(now, step, strict=True)])


def flat(here: Sequence[int], shared: Sequence[Mapping[str, Any]]) -> Numbers | None:
    """The numbers of a hook's input; None if some are missing. Flags are left out."""
    numbers = list(here)
    for values in shared:
        for value in values.values():
            if value is None:
                return None
            if type(value) is int:
                numbers.append(value)
    return tuple(numbers)


def unflat(
    numbers: Numbers, places: int, shared: Sequence[Mapping[str, Any]]
) -> tuple[list[int], list[dict[str, Any]]]:
    """The input of which *numbers* are the numbers: *places* counts, and the rest like *shared*."""
    rest = iter(numbers[places:])
    values = [
        {name: next(rest) if type(value) is int else value for name, value in each.items()}
        for each in shared
    ]
    return list(numbers[:places]), values
