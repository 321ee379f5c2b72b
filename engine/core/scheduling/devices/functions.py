"""The functions of device selectors: CEL's own, and those that Kubernetes adds.

Owns quantities, versions, strings, lists, sets, optionals and conversions. Each function takes
plain values and either gives one or raises; a `TypeError` there means "no such overload".
"""

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cel_expr_python import cel

from engine.core.scheduling.devices.values import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    UINT64_MAX,
    CelError,
    OptionalValue,
    Quantity,
    Semver,
    TypeValue,
    Uint,
    compare,
    equal,
    is_number,
    no_overload,
    type_name,
)

_LONGEST_RANGE: Final = 100_000
_TWO_63: Final = 2**63


def _text(*values: Any) -> None:
    """Raise unless all *values* are strings."""
    if not all(isinstance(value, str) for value in values):
        raise no_overload()


def _list(*values: Any) -> None:
    """Raise unless all *values* are lists."""
    if not all(isinstance(value, list) for value in values):
        raise no_overload()


def _int(*values: Any) -> None:
    """Raise unless all *values* are ints."""
    if not all(isinstance(value, int) and not isinstance(value, bool | Uint) for value in values):
        raise no_overload()


# --- quantities and versions -----------------------------------------------------------------


def _quantity(text: Any) -> Quantity:
    _text(text)
    return Quantity.parse(text)


def _newer_quantity(text: Any) -> Quantity:
    _text(text)
    return Quantity.parse(text, is_newer=True)


def _is(parse: Callable[..., Any]) -> Callable[..., bool]:
    def evaluate(text: Any, *options: Any) -> bool:
        _text(text)
        try:
            parse(text, *options)
        except CelError:
            return False
        return True

    return evaluate


def _semver(text: Any, tolerant: Any = False) -> Semver:
    _text(text)
    if not isinstance(tolerant, bool):
        raise no_overload()
    return Semver.parse_tolerant(text) if tolerant else Semver.parse(text)


def _compare_to(one: Any, two: Any) -> int:
    if isinstance(one, Quantity) and isinstance(two, Quantity):
        return one.compare(two)
    if isinstance(one, Semver) and isinstance(two, Semver):
        return one.compare(two)
    raise no_overload()


def _of_quantity(function: Callable[[Quantity], Any]) -> Callable[[Any], Any]:
    def evaluate(value: Any) -> Any:
        if not isinstance(value, Quantity):
            raise no_overload()
        return function(value)

    return evaluate


def _plus(
    combined: Callable[[Quantity, Quantity], Quantity],
) -> Callable[[Any, Any], Quantity]:
    def evaluate(one: Any, two: Any) -> Quantity:
        if not isinstance(one, Quantity):
            raise no_overload()
        if not isinstance(two, Quantity):
            _int(two)
            two = Quantity(two)
        return replace(combined(one, two), is_computed=True)

    return evaluate


def _of_version(part: str) -> Callable[[Any], int]:
    def evaluate(value: Any) -> int:
        if not isinstance(value, Semver):
            raise no_overload()
        number = int(getattr(value, part))
        return number if number <= INT64_MAX else number - UINT64_MAX - 1  # the same 64 bits

    return evaluate


# --- strings ---------------------------------------------------------------------------------

# Patterns come from users: they run in linear time in the CEL library's own engine.
_MATCHES = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING}).compile(
    "text.matches(pattern)"
)


def _matches(text: Any, pattern: Any) -> bool:
    _text(text, pattern)
    result = _MATCHES.eval(data={"text": text, "pattern": pattern}).value()
    if not isinstance(result, bool):
        raise CelError(f"error parsing regexp: `{pattern[:80]}`")
    return result


def _char_at(text: Any, index: Any) -> str:
    _text(text)
    _int(index)
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return str(text[index : index + 1])


def _index_of(subject: Any, wanted: Any, start: Any = 0) -> int:
    if isinstance(subject, list):
        return next((i for i, item in enumerate(subject) if equal(item, wanted)), -1)
    _text(subject, wanted)
    _int(start)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not wanted:
        return int(min(start, len(subject)))
    return int(subject.find(wanted, start))


def _last_index_of(subject: Any, wanted: Any, start: Any = None) -> int:
    if isinstance(subject, list):
        places = range(len(subject) - 1, -1, -1)
        return next((i for i in places if equal(subject[i], wanted)), -1)
    _text(subject, wanted)
    if start is None:
        return int(subject.rfind(wanted))
    _int(start)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not wanted:
        return int(min(start, len(subject)))
    if start >= len(subject):
        return -1  # where no text can begin, and none that began before is looked for
    return int(subject.rfind(wanted, 0, start + len(wanted)))


def _join(parts: Any, separator: Any = "") -> str:
    _list(parts)
    _text(separator, *parts)
    return str(separator.join(parts))


# Go's white space: Python's has the separators below a space, too.
_SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _lower(text: Any) -> str:
    _text(text)
    return "".join(c.lower() if c.isascii() else c for c in text)


def _upper(text: Any) -> str:
    _text(text)
    return "".join(c.upper() if c.isascii() else c for c in text)


def _trim(text: Any) -> str:
    _text(text)
    return str(text.strip(_SPACES))


def _replace(text: Any, old: Any, new: Any, count: Any = -1) -> str:
    _text(text, old, new)
    _int(count)
    made = (text.count(old) if count < 0 else min(count, text.count(old))) * len(new)
    if made > _LONGEST_RANGE * 10:
        raise CelError("the text is too long")
    return str(text.replace(old, new, count))


def _split(text: Any, separator: Any, limit: Any = -1) -> list[str]:
    _text(text, separator)
    _int(limit)
    if limit == 0:
        return []
    if not separator:
        if limit < 0 or limit >= len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text.split(separator, limit - 1 if limit > 0 else -1))


def _substring(text: Any, start: Any, end: Any = None) -> str:
    _text(text)
    end = len(text) if end is None else end
    _int(start, end)
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not start <= end <= len(text):
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return str(text[start:end])


def _of_texts(function: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def evaluate(one: Any, two: Any) -> bool:
        _text(one, two)
        return function(one, two)

    return evaluate


# --- lists and sets --------------------------------------------------------------------------


def _size(value: Any) -> int:
    if not isinstance(value, str | bytes | list | dict):
        raise no_overload()
    return len(value)


def _sum(values: Any) -> Any:
    _list(values)
    if not all(is_number(v) and type(v) is type(values[0]) for v in values):
        raise no_overload()
    total = sum(values)
    if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
        raise CelError("integer overflow")
    return total


def _extreme(name: str, wanted: int) -> Callable[[Any], Any]:
    def evaluate(values: Any) -> Any:
        _list(values)
        if not values:
            raise CelError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if _compared(value, best) == wanted:
                best = value
        return best

    return evaluate


def _compared(one: Any, two: Any) -> int | None:
    """How *one* stands to *two*; None if they have no common order."""
    try:
        return compare(one, two)
    except CelError:
        return None


def _is_sorted(values: Any) -> bool:
    _list(values)
    return all(compare(values[i], values[i + 1]) <= 0 for i in range(len(values) - 1))


def _slice(values: Any, start: Any, end: Any) -> list[Any]:
    _list(values)
    _int(start, end)
    if not 0 <= start <= end <= len(values):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return list(values[start:end])


def _flatten(values: Any) -> list[Any]:
    _list(values)
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, list) else [value]
    return flat


_MOST_COMPARED: Final = 2_000


def _distinct(values: Any) -> list[Any]:
    _list(values)
    if len(values) > _MOST_COMPARED:
        raise CelError("the list is too long")
    different: list[Any] = []
    for value in values:
        if not includes(different, value):
            different.append(value)
    return different


def _reverse(value: Any) -> Any:
    _list(value)
    return value[::-1]


def _sort(values: Any) -> list[Any]:
    _list(values)
    for value in values[1:]:
        compare(values[0], value)  # raises if they have no common order
    return sorted(values)


def _range(count: Any) -> list[int]:
    _int(count)
    if count > _LONGEST_RANGE:
        raise CelError(f"range: more than {_LONGEST_RANGE} elements")
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    return list(range(count))


def includes(values: Sequence[Any], wanted: Any) -> bool:
    """Whether one of *values* equals *wanted*; values that cannot be compared are different."""
    return any(is_equal(value, wanted) for value in values)


def is_equal(one: Any, two: Any) -> bool:
    """Whether they are equal; what cannot be compared is not."""
    try:
        return equal(one, two)
    except CelError:
        return False


def _includes(value: Any, wanted: Any) -> bool:
    """Whether a list has *wanted*, or another value is *wanted*."""
    return includes(value if isinstance(value, list) else [value], wanted)


def _contains(one: Any, two: Any) -> bool:
    _list(one, two)
    if len(one) * len(two) > _MOST_COMPARED**2:
        raise CelError("the lists are too long")
    return all(includes(one, value) for value in two)


def _intersects(one: Any, two: Any) -> bool:
    _list(one, two)
    if len(one) * len(two) > _MOST_COMPARED**2:
        raise CelError("the lists are too long")
    return any(includes(one, value) for value in two)


def _first(values: Any) -> OptionalValue:
    _list(values)
    return OptionalValue(True, values[0]) if values else NOTHING


def _last(values: Any) -> OptionalValue:
    _list(values)
    return OptionalValue(True, values[-1]) if values else NOTHING


# --- optionals, types and conversions --------------------------------------------------------


def _is_zero(value: Any) -> bool:
    return value is None or value in (False, 0, 0.0, "", b"") or value in ([], {})


def _value(optional: Any) -> Any:
    if not isinstance(optional, OptionalValue):
        raise no_overload()
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _has_value(optional: Any) -> bool:
    if not isinstance(optional, OptionalValue):
        raise no_overload()
    return optional.has_value


def _whole(value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise no_overload()
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not digits.isascii() or not digits.isdigit() or len(digits) > 30:
            raise CelError(f'cannot convert "{value[:80]}" to a whole number')
        if value[:1] in ("+", "-") and low == 0:
            raise CelError(f'cannot convert "{value[:80]}" to a whole number')  # of no sign
    elif isinstance(value, float) and not max(low, -_TWO_63) <= value < high:
        raise CelError("integer overflow")
    elif isinstance(value, float) and value == low != 0:
        raise CelError("integer overflow")  # Kubernetes does not take the lowest one
    number = int(value)
    if not low <= number <= high:
        raise CelError("integer overflow")
    return number


# What Go's ParseFloat takes, `_` between digits included. Beyond the largest double it fails.
_DIGITS: Final = "[0-9](?:_?[0-9])*"
_HEX_DIGITS: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DOUBLE: Final = re.compile(
    rf"[+-]?({_DIGITS}\.?|{_DIGITS}\.{_DIGITS}|\.{_DIGITS})([eE][+-]?{_DIGITS})?"
)
_HEXADECIMAL: Final = re.compile(
    rf"[+-]?0[xX]_?({_HEX_DIGITS}\.?|{_HEX_DIGITS}\.{_HEX_DIGITS}|\.{_HEX_DIGITS})"
    rf"[pP][+-]?{_DIGITS}"
)
_NO_NUMBER: Final = re.compile("[+-]?inf|[+-]?infinity|nan", re.IGNORECASE | re.ASCII)


def _to_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise no_overload()
    if not isinstance(value, str):
        return float(value)
    if _DOUBLE.fullmatch(value):
        number = float(value)
        if math.isfinite(number):
            return number
    elif _HEXADECIMAL.fullmatch(value):
        with contextlib.suppress(OverflowError):
            return float.fromhex(value.replace("_", ""))
    elif _NO_NUMBER.fullmatch(value):
        return float(value)
    raise CelError(f'cannot convert "{value[:80]}" to a double')


def _double_text(number: float) -> str:
    """As Go's `%g` writes it: the fewest digits, with an exponent from a million on."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, _, exponent = f"{number:.16e}".partition("e")
    for precision in range(17):
        digits, _, exponent = f"{number:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == number:
            break
    power = int(exponent)
    if -4 <= power < 6:
        return f"{number:.{max(precision - power, 0)}f}"
    return f"{digits}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _to_string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case bytes():
            return value.decode()
        case float():
            return _double_text(value)
        case int():
            return str(int(value))
    raise no_overload()


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    _text(value)
    return bytes(value.encode())


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    _text(value)
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise CelError(f'cannot convert "{value[:80]}" to a bool')


def _identity(value: Any) -> Any:
    return value


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "isQuantity": _is(Quantity.parse),
    "semver": _semver,
    "isSemver": _is(_semver),
    "compareTo": _compare_to,
    "isGreaterThan": lambda a, b: _compare_to(a, b) > 0,
    "isLessThan": lambda a, b: _compare_to(a, b) < 0,
    "sign": _of_quantity(lambda q: (q.value > 0) - (q.value < 0)),
    "isInteger": _of_quantity(lambda q: q.is_integer),
    "asInteger": _of_quantity(Quantity.as_integer),
    "asApproximateFloat": _of_quantity(Quantity.as_float),
    "add": _plus(Quantity.plus),
    "sub": _plus(Quantity.minus),
    "major": _of_version("major"),
    "minor": _of_version("minor"),
    "patch": _of_version("patch"),
    "contains": _of_texts(lambda a, b: b in a),
    "startsWith": _of_texts(str.startswith),
    "endsWith": _of_texts(str.endswith),
    "matches": _matches,
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": _join,
    "lowerAscii": _lower,
    "upperAscii": _upper,
    "trim": _trim,
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "size": _size,
    "sum": _sum,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "isSorted": _is_sorted,
    "includes": _includes,
    "slice": _slice,
    "flatten": _flatten,
    "distinct": _distinct,
    "reverse": _reverse,
    "sort": _sort,
    "first": _first,
    "last": _last,
    "lists.range": _range,
    "sets.contains": _contains,
    "sets.intersects": _intersects,
    "sets.equivalent": lambda a, b: _contains(a, b) and _contains(b, a),
    "optional.of": lambda value: OptionalValue(True, value),
    "optional.none": lambda: NOTHING,
    "optional.ofNonZeroValue": lambda v: NOTHING if _is_zero(v) else OptionalValue(True, v),
    "value": _value,
    "hasValue": _has_value,
    "type": lambda value: TypeValue(type_name(value)),
    "dyn": _identity,
    "int": lambda value: _whole(value, INT64_MIN, INT64_MAX),
    "uint": lambda value: Uint(_whole(value, 0, UINT64_MAX)),
    "double": _to_double,
    "string": _to_string,
    "bytes": _to_bytes,
    "bool": _to_bool,
}

#: Those that 1.38 has in place of others of the same name.
NEWER_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": _newer_quantity,
    "sub": _plus(Quantity.minus_exactly),
}
