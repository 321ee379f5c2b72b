"""Encodes what a translated hook returned for each entry as the answer to a call.

Owns the packed form of verdicts; the forms themselves are in `language.hooks`. Whatever is not
plainly a good verdict raises: the interpreter, which alone says what is wrong, then answers.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from engine.language.hooks import hook_of
from engine.language.verdicts import checker, reasons_of
from engine.policy.sandbox.protocol import NO_SCORE, Packed, RawAnswer
from engine.policy.sandbox.protocol import Verdict as Said
from engine.policy.sandbox.translation.operations import Refused, Verdict

_encode: Final = msgspec.json.Encoder().encode

Names: TypeAlias = Sequence[Any] | None
"""By entry the name of its node, UNSET where it has none; None: no entry has one."""


class Answers:
    """What a hook returned, one of *values* for each entry."""

    def __init__(self, values: list[Any], check: Callable[[Any], Any]) -> None:
        self._found = [check(value) for value in values]

    def encoded(self) -> RawAnswer:
        """The answer, to be sent."""
        return RawAnswer(_encode(self._found), [])

    def verdicts(self) -> Sequence[Said]:
        """The answer as it comes out of `decode_answer`."""
        return self._found


class Scores(Answers):
    """Ints in *low* to *high*, or None if that *may_be_none*."""

    def __init__(self, values: list[Any], low: int, high: int, *, may_be_none: bool) -> None:
        if values and (
            set(map(type, values)) != {int} or not (low <= min(values) and max(values) <= high)
        ):
            values = [_score(value, low, high, may_be_none=may_be_none) for value in values]
        self._numbers = array("q", values)

    def encoded(self) -> RawAnswer:
        """The answer, to be sent."""
        return RawAnswer(b"[]", [], (), self._numbers.tobytes())

    def verdicts(self) -> Sequence[Said]:
        """The answer as it comes out of `decode_answer`."""
        return Packed(self._numbers, [])


def _score(value: Any, low: int, high: int, *, may_be_none: bool) -> int:
    if value is None and may_be_none:
        return NO_SCORE
    if type(value) is int and low <= value <= high:
        return value
    raise Refused


class Rejections(Answers):
    """What `filter` said: None, or up to *most* reasons, none with its node's name in it."""

    def __init__(self, values: list[Any], most: int, names: Names) -> None:
        self._most = most
        self._places = array("q", bytes(8 * len(values)))
        self._kinds: list[Any] = [None]
        self._known: dict[tuple[str, ...], int] = {}
        if values.count(None) == len(values):
            return
        # Texts and verdicts that a file writes out are the same objects each time. The values are
        # alive as long as their ids are looked up.
        by_object: dict[int, int] = {}
        for position, value in enumerate(values):
            if value is not None:
                place = by_object.get(id(value))
                if place is None:
                    place = by_object[id(value)] = self._place(value)
                self._places[position] = place
                if names is not None:
                    self._check_name(self._kinds[place][1], names[position])

    def _place(self, value: Any) -> int:
        """The place of a rejection among the kinds of them."""
        code, given, token = "r", value, ""
        if type(value) is Verdict:
            code, given, token = value.verdict, value.reasons, value.token
        if type(given) is not list:
            given = reasons_of(given)
        key = (code, token, *given)
        place = self._known.get(key)
        if place is None:
            reasons = reasons_of(given)
            place = self._known[key] = len(self._kinds)
            self._kinds.append([code, reasons, token] if token else [code, reasons])
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


def answers_of(hook: str, *, bounded: bool) -> Callable[[list[Any], int, Names], Answers]:
    """What makes the answer to a call of *hook* of what it returned for each entry.

    It is also given `most_reasons` of the call and the names of nodes. *bounded*: the policy has
    no `normalize`.
    """
    entry = hook_of(hook)
    if hook == "filter":
        return Rejections
    forms = entry.forms_for(is_normalized=not bounded)
    if forms[0].bounds is not None:
        low, high = forms[0].bounds
        may_be_none = entry.may_return_none
        return lambda values, most, names: Scores(values, low, high, may_be_none=may_be_none)
    check = checker(forms)
    return lambda values, most, names: Answers(values, check)
