"""The functions that translated hooks call: Starlark's operations where Python's differ.

Owns these functions and nothing of the translation. Whatever they are not sure of they refuse by
raising `Refused`; then the interpreter answers. Nothing here fails on behalf of a policy.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from engine.language import numbers
from engine.language.table import builtins
from engine.language.verdicts import reasons_of

# Larger lists and texts are left to the interpreter, and so are ints that need a second word.
MAX_LENGTH: Final = 100_000
# Longer texts are hashed faster by the interpreter.
_MAX_HASHED: Final = 512
_BOUND: Final = 1 << 63
_SMALL: Final = 1 << 31


class Refused(Exception):
    """The translated hook leaves the call to the interpreter."""


class TooMuchError(Refused):
    """The same for this pod or node alone, which may take more steps than are allowed."""


def refuse(*_: object) -> Any:
    """Leave the call to the interpreter."""
    raise Refused


# What a translated hook may still spend before the call is left to the interpreter.
budget: Final[list[int]] = [0]


def spend(items: Any, cost: int) -> Any:
    """*items*, once a loop over them is paid for."""
    budget[0] -= len(items) * cost
    if budget[0] < 0:
        raise TooMuchError
    return items


def bounded(number: int) -> int:
    """*number* if it fits in 64 bits."""
    if -_BOUND <= number < _BOUND:
        return number
    raise Refused


def small(number: int) -> int:
    """*number* if it fits in 32 bits, which is what the interpreter takes for places in lists."""
    if -_SMALL <= number < _SMALL:
        return number
    raise Refused


def concatenated(a: Any, b: Any) -> Any:
    """The sum of two texts or two lists, within bounds."""
    both = a + b
    if len(both) > MAX_LENGTH:
        raise Refused
    return both


def repeated(a: Any, b: Any) -> Any:
    """A list or text times an int, within bounds."""
    items, count = (b, a) if type(a) is int else (a, b)
    if type(count) is not int or type(items) not in (list, str):
        raise Refused
    if len(items) * max(small(count), 0) > MAX_LENGTH:
        raise Refused
    return items * count


def _comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Two values as they are compared: the interpreter compares an int with a float as floats."""
    kind = type(a)
    if kind is not type(b):
        if (kind is int and type(b) is float) or (kind is float and type(b) is int):
            a, b = float(a), float(b)
        else:
            raise Refused
    elif kind is not int and kind is not str and kind is not float and kind is not bool:
        raise Refused
    if a != a or b != b:
        raise Refused  # not a number: the languages order it differently
    return a, b


def less(a: Any, b: Any) -> bool:
    """a < b."""
    a, b = _comparable(a, b)
    return bool(a < b)


def less_or_equal(a: Any, b: Any) -> bool:
    """a <= b."""
    a, b = _comparable(a, b)
    return bool(a <= b)


def equal(a: Any, b: Any) -> bool:
    """a == b of plain values."""
    if type(a) is not type(b) and not (type(a) in (int, float) and type(b) in (int, float)):
        return False
    if a is None:
        return True
    a, b = _comparable(a, b)
    return bool(a == b)


def least(values: Iterable[Any]) -> Any:
    """The first of the smallest of several numbers."""
    found, *others = values
    _comparable(found, found)
    for value in others:
        if less(value, found):
            found = value
    return found


def greatest(values: Iterable[Any]) -> Any:
    """The first of the largest of several numbers."""
    found, *others = values
    _comparable(found, found)
    for value in others:
        if less(found, value):
            found = value
    return found


def lesser(a: Any, b: Any) -> Any:
    """The first of the smaller of two ints, two texts, or two floats."""
    if b < a:
        return b
    if a <= b:
        return a
    raise Refused


def larger(a: Any, b: Any) -> Any:
    """The first of the larger of two ints, two texts, or two floats."""
    if b > a:
        return b
    if a >= b:
        return a
    raise Refused


def float_less(a: float, b: float) -> bool:
    """a < b of two floats."""
    if a < b:
        return True
    if a >= b:
        return False
    raise Refused


def float_less_or_equal(a: float, b: float) -> bool:
    """a <= b of two floats."""
    if a <= b:
        return True
    if a > b:
        return False
    raise Refused


def ordered(values: Any) -> list[Any]:
    """The sorted list of *values*, all of one type."""
    items = list(values)
    kinds = {type(item) for item in items}
    if len(kinds) > 1 or not kinds <= {int, str, float}:
        raise Refused
    if float in kinds and any(item != item for item in items):
        raise Refused
    items.sort()
    return items


def whole(number: Any) -> int:
    """`int()` of a number."""
    if type(number) is str:
        raise Refused
    return bounded(int(number))


def clamped(x: Any, low: Any, high: Any) -> Any:
    """`math.clamp`, as it is written in `numbers`."""
    return greatest((low, least((x, high))))


def number(given: Any) -> Any:
    """A number on its way to a function of Python's, which inf and large ints do not reach."""
    if type(given) is float:
        if given - given == 0.0:
            return given
        raise Refused
    return bounded(given) if type(given) is int else given


def product(a: Any, b: Any) -> Any:
    """The product of two numbers, an int within bounds."""
    found = a * b
    return bounded(found) if type(found) is int else found


def _bounded_result(function: Callable[..., int]) -> Callable[..., int]:
    def call(*given: Any) -> int:
        return bounded(function(*given))

    return call


@functools.cache
def natives() -> Mapping[str, Callable[..., Any]]:
    """The builtins in Python, by `Builtin.native`; an int that they give fits in 64 bits."""
    return {
        one.native: _bounded_result(one.python) if one.result == "int" else one.python
        for one in builtins().values()
        if one.python is not None
    } | {"_parse_int": parse_int}


@functools.lru_cache(maxsize=16_384)
def _parsed_int(text: str) -> int | None:
    found: int | None = numbers.parse_int(text)
    return found


def parse_int(text: Any, default: Any = None) -> Any:
    """`parse_int`, kept: the same few texts are parsed again and again."""
    found = None if type(text) is not str else _parsed_int(text)
    return default if found is None else found


@functools.lru_cache(maxsize=16_384)
def _hashed(text: str) -> int:
    found = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8) + low) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def hashed(text: Any) -> int:
    """`hash()` of a text: that of Java's strings, over units of UTF-16."""
    if type(text) is not str or len(text) > _MAX_HASHED:
        raise Refused
    return _hashed(text)


def texts(given: Any) -> Any:
    """*given*, which must be plain ASCII: beyond it the languages differ in what letters are."""
    if type(given) is str and given.isascii() and given.isprintable():
        return given
    raise Refused


def joined(separator: str, items: Sequence[str]) -> str:
    """`separator.join(items)`, within bounds."""
    found = separator.join(items)
    if len(found) > MAX_LENGTH:
        raise Refused
    return found


def as_text(value: Any) -> str:
    """`str()` of what both languages write alike."""
    if type(value) is str:
        return value
    if type(value) in (int, bool, type(None)):
        return str(value)
    raise Refused


class Verdict(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What `unresolvable(...)` and `reject(...)` return."""

    verdict: str
    reasons: list[str]
    token: str = ""


def unresolvable(given: Any, token: str = "") -> Verdict:
    """`unresolvable(...)`; *token* is one that a policy may give."""
    return Verdict("u", reasons_of(given), token)


def reject(given: Any, token: str = "") -> Verdict:
    """`reject(...)`, likewise."""
    return Verdict("r", reasons_of(given), token)


def kind_of(value: Any) -> str:
    """`type()` of a value."""
    return _KINDS.get(type(value), "struct") if not isinstance(value, range) else refuse()


_KINDS: Final[dict[type, str]] = {
    type(None): "NoneType",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    list: "list",
    tuple: "tuple",
    dict: "dict",
}
