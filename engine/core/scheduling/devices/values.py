"""The values that a device selector computes with, beyond Python's own: quantities and versions.

Owns parsing, comparing and arithmetic of Kubernetes' two CEL types, the optional value, CEL's
notion of equality, and the error that a running expression ends with.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from engine.core.model.quantity import NANO

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1

_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LONGEST_VERSION: Final = 512


class CelError(Exception):
    """Why an expression has no value for a device. The text is for people."""


class Failure:
    """Stands for a value that there is none of, because of *error*: raised if the value is used."""

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error


class CelCostExceeded(CelError):
    """The expression took more steps than it may; no other part of it can make up for that."""


def no_overload() -> CelError:
    """The error of an operation that its operands do not have."""
    return CelError("no such overload")


class Uint(int):
    """CEL's unsigned integer, which is another type than int but compares with it."""


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what `type(x)` gives."""

    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may be absent."""

    has_value: bool
    value: Any = None


NOTHING: Final = OptionalValue(False)


class StrictMap(dict[str, Any]):
    """A map that is equal to another only if all of its values can be compared.

    As its left side; in other maps what cannot be compared makes no difference.
    """


# Longer texts are malformed on purpose or by accident, and so are such powers of ten.
_LONGEST_QUANTITY: Final = 256
_MOST_DIGITS: Final = 100_000
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<zeros>0*)(?P<whole>[0-9]*)(?P<point>\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)",
    re.ASCII,
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO_EXPONENT: Final = -9


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A Kubernetes quantity as its library keeps it, which some functions show.

    It is *value* times ten to the power of *exponent*: with an int64 where the text has few digits,
    else *is_decimal*, of any size. Only the first kind can be taken as an integer, and only with an
    exponent that is not negative: not `1.0`, `2000m` or `1Pi`. What was *computed*, by `add` or
    `sub`, cannot stand on the right of `==`.
    """

    value: int
    exponent: int = 0
    is_decimal: bool = False
    is_computed: bool = False

    @classmethod
    def parse(cls, text: str | int | float, *, is_newer: bool = False) -> "Quantity":
        """The quantity of a text, read as Kubernetes does. Raises `CelError` if it is malformed.

        *is_newer*: with 19 digits it can be an int64; until 1.37, with at most 18.
        """
        text = text if isinstance(text, str) else repr(text)
        match = _QUANTITY.fullmatch(text) if 0 < len(text) <= _LONGEST_QUANTITY else None
        if match is None:
            raise CelError(
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        suffix, fraction = match["suffix"], match["fraction"] or ""
        whole = match["whole"] or "0"
        power = _BINARY.get(suffix)
        exponent = 0 if power is not None else _exponent(suffix)
        sign = -1 if match["sign"] == "-" else 1
        if power is None:
            is_short = len(whole) + len(fraction) <= (19 if is_newer else 18)
        else:
            is_short = match["point"] is None or not fraction
            is_short = is_short and 15 - len(whole) - power * 3 // 10 - 1 >= 0
        if is_short and exponent - len(fraction) >= _NANO_EXPONENT:
            value = int(whole + fraction) << (power or 0)
            is_least = is_newer and power is None and sign * value == INT64_MIN
            if value <= INT64_MAX or is_least:
                return cls(sign * value, exponent - len(fraction))
        digits = match["zeros"] + match["whole"] + fraction
        if not digits:
            raise CelError("unable to parse numeric part of quantity")
        unscaled = int(digits) << (power or 0)
        exponent -= len(fraction)
        if unscaled == 0:
            return cls(0, exponent, is_decimal=True)
        if exponent > _MOST_DIGITS:
            raise CelError("the quantity is too large")
        if exponent >= _NANO_EXPONENT:
            unscaled *= 10 ** (exponent - _NANO_EXPONENT)
        elif exponent < _NANO_EXPONENT - _MOST_DIGITS:
            unscaled = 1
        else:
            unscaled = -(-unscaled // 10 ** (_NANO_EXPONENT - exponent))  # away from zero
        if power is not None:
            unscaled = min(unscaled, INT64_MAX * NANO)
        return cls(sign * unscaled, _NANO_EXPONENT, is_decimal=True)

    @property
    def is_integer(self) -> bool:
        """Whether Kubernetes takes it as an int64, which it does not with all that are whole."""
        if self.is_decimal or self.exponent < 0:
            return False
        return self.value == 0 or (
            self.exponent <= 18 and INT64_MIN <= self.value * 10**self.exponent <= INT64_MAX
        )

    def as_integer(self) -> int:
        """As a whole number. Raises `CelError` if it is not taken as one."""
        if not self.is_integer:
            raise CelError("cannot convert value to integer")
        return self.value * 10**self.exponent if self.value else 0

    def as_float(self) -> float:
        """As a float, rounded twice, as Kubernetes does."""
        try:
            base = float(self.value)
        except OverflowError:
            base = math.copysign(math.inf, self.value)
        return base * float(f"1e{self.exponent}") if self.exponent else base

    def compare(self, other: "Quantity") -> int:
        """-1, 0 or 1: how this quantity stands to *other*."""
        one, two = self._magnitude(), other._magnitude()
        if one == two and self.value:
            # As many digits before the point: what they differ by in exponents, they do in digits.
            least = min(self.exponent, other.exponent)
            one_value = self.value * 10 ** (self.exponent - least)
            two_value = other.value * 10 ** (other.exponent - least)
            return int(one_value > two_value) - int(one_value < two_value)
        return (one > two) - (one < two)

    def _magnitude(self) -> tuple[int, int]:
        """The sign, and the places before the point, negative ones more below."""
        if not self.value:
            return 0, 0
        places = len(str(abs(self.value))) + self.exponent
        return (1, places) if self.value > 0 else (-1, -places)

    def plus(self, other: "Quantity") -> "Quantity":
        """The sum, which is an int64 if both are and it fits."""
        is_decimal = self.is_decimal or other.is_decimal
        if not is_decimal and not other.value:
            return self
        if not is_decimal and not self.value:
            return other
        least = min(self.exponent, other.exponent)
        if max(self.exponent, other.exponent) - least > _MOST_DIGITS:
            raise CelError("the quantity is too large")
        one = self.value * 10 ** (self.exponent - least)
        two = other.value * 10 ** (other.exponent - least)
        fits = all(INT64_MIN <= part <= INT64_MAX for part in (one, two, one + two))
        return Quantity(one + two, least, is_decimal or not fits)

    def minus(self, other: "Quantity") -> "Quantity":
        """The difference, likewise, as until 1.37: taking the least int64 away may wrap."""
        negative = Quantity(-other.value, other.exponent, other.is_decimal)
        if not self.is_decimal and not other.is_decimal and other.value == INT64_MIN:
            # Of which the negative is itself in 64 bits, unless the sum does not fit.
            wrapped = self.plus(other)
            return self.plus(negative) if wrapped.is_decimal else wrapped
        return self.plus(negative)

    def minus_exactly(self, other: "Quantity") -> "Quantity":
        """The difference, as since 1.38."""
        is_decimal = other.is_decimal or other.value == INT64_MIN
        return self.plus(Quantity(-other.value, other.exponent, is_decimal))


def _exponent(suffix: str) -> int:
    """The power of ten that a suffix stands for. Raises `CelError` if it is none."""
    known = _DECIMAL.get(suffix)
    if known is not None:
        return known
    if len(suffix) > 1 and suffix[0] in "eE" and re.fullmatch("[+-]?[0-9]{1,18}", suffix[1:]):
        return (int(suffix[1:]) + (1 << 31)) % (1 << 32) - (1 << 31)  # kept in 32 bits
    raise CelError("unable to parse quantity's suffix")


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; what follows a `+` does not count when comparing."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Semver":
        """The version of a text. Raises `CelError` if it is malformed."""
        match = _SEMVER.fullmatch(text) if len(text) <= _LONGEST_VERSION else None
        if match is None:
            raise CelError(f'"{text[:80]}" is not a semantic version')
        numbers = [int(part) for part in match.group(1, 2, 3)]
        parts = tuple(match.group(4).split(".")) if match.group(4) else ()
        if max(numbers) > UINT64_MAX or any(
            p.isdigit() and (len(p) > 1 and p[0] == "0") for p in parts
        ):
            raise CelError(f'"{text[:80]}" is not a semantic version')
        return cls(numbers[0], numbers[1], numbers[2], parts)

    @classmethod
    def parse_tolerant(cls, text: str) -> "Semver":
        """Like `parse`, after a leading `v` and zeros are dropped and missing parts are 0."""
        parts = text.removeprefix("v").split(".", 2)
        for i, part in enumerate(parts):
            if len(part) > 1:
                rest = part.lstrip("0")
                parts[i] = rest if rest[:1].isdigit() else "0" + rest
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise CelError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return cls.parse(".".join(parts))

    def compare(self, other: "Semver") -> int:
        """-1, 0 or 1: how this version stands to *other*."""
        one, two = self._order(), other._order()
        return (one > two) - (one < two)

    def _order(self) -> tuple[Any, ...]:
        # Numbers below texts, numbers by value, texts by code; no pre-release above any.
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.prerelease)
        return (self.major, self.minor, self.patch, 0 if parts else 1, parts)


def is_number(value: Any) -> bool:
    """Whether *value* is an int, uint or double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(one: Any, two: Any) -> bool:
    """CEL's `==`: numbers across their types, everything else only within a type.

    Raises `CelError` for a quantity or version next to another type, as Kubernetes does; within
    lists and maps, those do not make a difference.
    """
    if one is None or two is None:
        return one is two
    if isinstance(one, Quantity):
        if not isinstance(two, Quantity) or two.is_computed:
            raise no_overload()
        return one.compare(two) == 0
    if isinstance(one, Semver):
        if not isinstance(two, Semver):
            raise no_overload()
        return one.compare(two) == 0
    if is_number(one):
        return is_number(two) and bool(one == two)
    if isinstance(one, list):
        return (
            isinstance(two, list)
            and len(one) == len(two)
            and not any(_differ(a, b) for a, b in zip(one, two, strict=True))
        )
    if isinstance(one, StrictMap):
        return isinstance(two, dict) and len(one) == len(two) and _is_equal_map(one, two)
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and len(one) == len(two)
            and all(key in two and not _differ(value, two[key]) for key, value in one.items())
        )
    if isinstance(one, OptionalValue):
        if not isinstance(two, OptionalValue) or one.has_value != two.has_value:
            return False
        return not one.has_value or equal(one.value, two.value)
    return type(one) is type(two) and bool(one == two)


def _is_equal_map(one: StrictMap, two: dict[Any, Any]) -> bool:
    for key, value in one.items():
        if type(value) is Failure:
            raise value.error
        if key not in two or type(two[key]) is Failure or not equal(value, two[key]):
            return False
    return True


def _differ(one: Any, two: Any) -> bool:
    """Whether two values are sure to be different."""
    try:
        return not equal(one, two)
    except CelError:
        return False


def compare(one: Any, two: Any) -> int:
    """-1, 0 or 1 for values that have an order. Raises `CelError` for others."""
    ordered = (
        (is_number(one) and is_number(two))
        or (isinstance(one, str) and isinstance(two, str))
        or (isinstance(one, bytes) and isinstance(two, bytes))
        or (isinstance(one, bool) and isinstance(two, bool))
    )
    if not ordered or one != one or two != two:
        if ordered:  # NaN is neither below nor above anything
            raise CelError("NaN values cannot be ordered")
        raise no_overload()
    return int(one > two) - int(one < two)


def size_of(value: Any) -> int:
    """How much there is of a value, for the cost of copying or comparing it."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    return 1


def type_name(value: Any) -> str:
    """The name of a value's type in CEL."""
    match value:
        case None:
            return "null_type"
        case bool():
            return "bool"
        case Uint():
            return "uint"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list():
            return "list"
        case dict():
            return "map"
        case Quantity():
            return "kubernetes.Quantity"
        case Semver():
            return "kubernetes.Semver"
        case OptionalValue():
            return "optional_type"
    return "type"
