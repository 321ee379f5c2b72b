"""What will probably be asked next: a counter that grew by one will grow by one again.

Owns guesses only. A round trip to the sandbox costs as much as a dozen evaluations, so the inputs
that the next pods will bring are asked before they come, by a sandbox that works on them while
decisions go on. A wrong guess costs its evaluation; no decision depends on one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

#: How far ahead to ask: at first, and when what was guessed has come.
AHEAD: Final = 16
FURTHER: Final = 32
#: With so much left to come it is time to ask: answers are there before they are needed.
MARGIN: Final = 8
# How many different steps, and steps at all, are remembered.
_KINDS: Final = 4
_HISTORY: Final = 24
# Numbers that jump are not counters.
_LARGEST: Final = 1_000
# Seconds to wait for an answer that is under way, before it is asked for once more.
PATIENCE: Final = 0.002

Numbers = tuple[int, ...]


class Steps:
    """By how much some numbers changed lately, the latest step last."""

    __slots__ = ("_kinds", "_steps")

    def __init__(self) -> None:
        self._steps: list[Numbers] = []
        self._kinds: dict[Numbers, None] = {}  # the distinct ones, the latest last

    def note(self, before: Numbers | None, now: Numbers | None) -> None:
        """The numbers went from *before* to *now*; None: they cannot be compared."""
        if before is None or now is None or len(before) != len(now):
            return
        step = tuple([b - a for a, b in zip(before, now, strict=True)])
        steps = self._steps
        if not steps or step != steps[-1]:  # which is the latest of the kinds
            if not any(step) or max(map(abs, step)) > _LARGEST:
                return
            self._kinds.pop(step, None)
            self._kinds[step] = None
            if len(self._kinds) > _KINDS:
                del self._kinds[next(iter(self._kinds))]
        steps.append(step)
        if len(steps) > 2 * _HISTORY:
            del steps[:-_HISTORY]

    def repeated(self, now: Numbers | None, ahead: int) -> Iterator[Numbers]:
        """What the numbers may be soon if one of the steps is made again and again."""
        if now is None:
            return
        for step in self._kinds:
            if len(step) == len(now):
                for times in range(1, ahead + 1):
                    yield tuple([a + times * s for a, s in zip(now, step, strict=True)])

    def together(self, now: Numbers | None, places: int, ahead: int) -> Iterator[Numbers]:
        """What the numbers may be soon if others make the steps that all are told of.

        The first *places* numbers are one domain's own, the others are told to all domains, such
        as the least of all counts. Where those stay for a while and then follow, every domain will
        be told the new ones, each about as far from them as one is now, or a step further.
        """
        if now is None:
            return
        alone = [step for step in self._kinds if not any(step[places:])]
        if not alone:
            return
        starts = [now, *[_sum(now, step) for step in alone if len(step) == len(now)]]
        for step in self._kinds:
            if len(step) == len(now) and any(step[:places]) and any(step[places:]):
                for start in starts:
                    for times in range(1, ahead + 1):
                        yield tuple([a + times * s for a, s in zip(start, step, strict=True)])

    def following(self, now: Numbers, ahead: int) -> Iterator[Numbers]:
        """What the numbers may be soon if the steps go on as they did after the last two alike.

        If those never were: after one step of any kind.
        """
        steps = self._steps
        last = steps[-2:]
        before = next((k for k in range(len(steps) - 3, -1, -1) if steps[k : k + 2] == last), None)
        if before is None or len(last) < 2:
            for step in self._kinds:
                if len(step) == len(now):
                    yield _sum(now, step)
            return
        cycle = steps[before + 2 :]
        for place in range(ahead):
            step = cycle[place % len(cycle)]
            if len(step) != len(now):
                return
            now = _sum(now, step)
            yield now


def _sum(now: Numbers, step: Numbers) -> Numbers:
    return tuple([a + s for a, s in zip(now, step, strict=True)])


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


def told_again(numbers: Numbers, shared: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is *shared* with other *numbers*, which are in the order of `flat`."""
    rest = iter(numbers)
    return [
        {name: next(rest) if type(value) is int else value for name, value in each.items()}
        for each in shared
    ]
