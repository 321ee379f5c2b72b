"""The answer to a call, made of what a translated hook returned for each entry or for many at once.

Owns the packed form of verdicts; the forms themselves are in `language.hooks`. Whatever is not
plainly a good verdict raises: the interpreter, which alone says what is wrong, then answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.language.hooks import hook_of
from engine.language.verdicts import checker, reasons_of
from engine.policy.sandbox.lanes.runs import Places, Way
from engine.policy.sandbox.protocol import NO_SCORE, Packed, RawAnswer
from engine.policy.sandbox.protocol import Verdict as Said
from engine.policy.sandbox.translation.operations import Refused, Verdict

_encode: Final = msgspec.json.Encoder().encode


class Answers:
    """What was found for each of *count* entries, by position."""

    def __init__(self, count: int, check: Callable[[Any], Any]) -> None:
        self._found: list[Any] = [None] * count
        self._check = check

    def put_each(
        self, positions: Sequence[int], values: list[Any], places: Places, entries: list[Any]
    ) -> None:
        """The hook returned these *values*; *places* are those of all positions in *entries*."""
        for position, value in zip(positions, values, strict=True):
            self._found[position] = self._check(value)

    def put_all(self, way: Way, places: Places, entries: list[Any]) -> None:
        """It went this way for several."""
        positions = way.positions.tolist()
        if way.numbers is None:
            values = [way.result.value] * len(positions)
        else:
            values = way.numbers.tolist()
        self.put_each(positions, values, places, entries)

    def encoded(self) -> RawAnswer:
        """The answer, to be sent."""
        return RawAnswer(_encode(self._found), [])

    def verdicts(self) -> Sequence[Said]:
        """The answer as it comes out of `decode_answer`."""
        return self._found


class Scores(Answers):
    """Ints in *low* to *high*, or None if that *may_be_none*."""

    def __init__(self, count: int, low: int, high: int, *, may_be_none: bool) -> None:
        self._numbers: NDArray[np.int64] = np.empty(count, np.int64)
        self._low = low
        self._high = high
        self._may_be_none = may_be_none

    def put_each(
        self, positions: Sequence[int], values: list[Any], places: Places, entries: list[Any]
    ) -> None:
        """The hook returned these *values*."""
        if not values:
            return
        if set(map(type, values)) != {int} or not (
            self._low <= min(values) and max(values) <= self._high
        ):
            values = [self._checked(value) for value in values]
        if len(values) == len(self._numbers):
            self._numbers = np.array(values, np.int64)
        else:
            self._numbers[positions] = values

    def put_all(self, way: Way, places: Places, entries: list[Any]) -> None:
        """It went this way for several."""
        low, high = way.result.low, way.result.high
        if way.numbers is None:
            self._numbers[way.positions] = self._checked(way.result.value)
            return
        if low is None:
            raise Refused  # bools
        if (low < self._low or high > self._high) and not (
            self._low <= way.numbers.min() and way.numbers.max() <= self._high
        ):
            raise Refused
        self._numbers[way.positions] = way.numbers

    def _checked(self, value: Any) -> int:
        if value is None and self._may_be_none:
            return NO_SCORE
        if type(value) is int and self._low <= value <= self._high:
            return value
        raise Refused

    def encoded(self) -> RawAnswer:
        """The answer, to be sent."""
        return RawAnswer(b"[]", [], (), self._numbers.tobytes())

    def verdicts(self) -> Sequence[Said]:
        """The answer as it comes out of `decode_answer`."""
        return Packed(self._numbers, [])


class Rejections(Answers):
    """What `filter` said: None, or up to *most* reasons.

    *name_of* gives the name of an entry's node, UNSET without one; None: no entry has one.
    """

    def __init__(self, count: int, most: int, name_of: Callable[[Any], Any] | None) -> None:
        self._most = most
        self._places: NDArray[np.int64] = np.zeros(count, np.int64)
        self._kinds: list[Any] = [None]
        self._known: dict[tuple[str, ...], int] = {}
        # Kept as long as their ids are looked up.
        self._by_object: dict[int, int] = {}
        self._kept: list[Any] = []
        self._name_of = name_of

    def put_each(
        self, positions: Sequence[int], values: list[Any], places: Places, entries: list[Any]
    ) -> None:
        """The hook returned these *values*."""
        if values.count(None) == len(values):
            return
        found = self._places
        for position, value in zip(positions, values, strict=True):
            if value is not None:
                # Texts and verdicts that a file spells out are the same objects each time.
                place = self._by_object.get(id(value))
                if place is None:
                    place = self._by_object[id(value)] = self._place(value)
                    self._kept.append(value)
                found[position] = place
                if self._name_of is not None:
                    name = self._name_of(entries[places[position]])
                    self._check_name(self._kinds[place][1], name)

    def put_all(self, way: Way, places: Places, entries: list[Any]) -> None:
        """It went this way for several."""
        if way.numbers is not None:
            raise Refused
        if way.result.value is None:
            return
        place = self._place(way.result.value)
        self._places[way.positions] = place
        if self._name_of is not None:
            reasons = self._kinds[place][1]
            for position in way.positions.tolist():
                self._check_name(reasons, self._name_of(entries[places[position]]))

    def _place(self, value: Any) -> int:
        """The place of a rejection among the kinds of them."""
        if type(value) is Verdict:
            code, reasons = value.verdict, value.reasons
        else:
            code, reasons = "r", reasons_of(value)
        key = (code, *reasons)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = len(self._kinds)
            self._kinds.append([code, reasons])
        return place

    @staticmethod
    def _check_name(reasons: list[str], name: Any) -> None:
        """Reasons are counted over nodes: none has the name of its node in it."""
        if name is not msgspec.UNSET:
            for reason in reasons:
                if name in reason:
                    raise Refused

    def encoded(self) -> RawAnswer:
        """The answer, to be sent."""
        reasons = self._reasons()
        return RawAnswer(_encode(self._kinds), [], reasons, self._places.tobytes())

    def verdicts(self) -> Sequence[Said]:
        """The answer as it comes out of `decode_answer`."""
        self._reasons()
        return Packed(self._places, self._kinds)

    def _reasons(self) -> list[str]:
        """All reasons, if they are not too many."""
        if len(self._kinds) == 1:
            return []
        reasons = list(dict.fromkeys(r for kind in self._kinds[1:] for r in kind[1]))
        if len(reasons) > self._most:
            raise Refused
        return reasons


def answers_of(
    hook: str, *, bounded: bool
) -> Callable[[int, int, Callable[[Any], Any] | None], Answers]:
    """What makes the place where the verdicts of a call of *hook* go, for so many entries.

    It is also given `most_reasons` of the call, and a function that gives the names of nodes, if
    any has one. *bounded*: the policy has no `normalize`.
    """
    entry = hook_of(hook)
    if hook == "filter":
        return Rejections
    forms = entry.forms_for(is_normalized=not bounded)
    if forms[0].bounds is not None:
        low, high = forms[0].bounds
        may_be_none = entry.may_return_none
        return lambda count, most, name_of: Scores(count, low, high, may_be_none=may_be_none)
    check = checker(forms)
    return lambda count, most, name_of: Answers(count, check)
