"""The values that a device selector computes with, beyond Python's own: quantities and versions.

Owns parsing, comparing and arithmetic of Kubernetes' two CEL types, the optional value, CEL's
notion of equality, and the error that a running expression ends with.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from engine.model.quantity import NANO, QuantityError, nano_value

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


@dataclass(frozen=True, slots=True)
class Quantity:
    """A Kubernetes quantity, in exact units of 10^-9."""

    nanos: int

    @classmethod
    def parse(cls, text: str | int | float) -> "Quantity":
        """The quantity of a text. Raises `CelError` if it is malformed."""
        try:
            return cls(nano_value(text))
        except QuantityError as error:
            raise CelError(
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ) from error

    @property
    def is_integer(self) -> bool:
        """Whether it is whole and fits an int64."""
        return self.nanos % NANO == 0 and INT64_MIN <= self.nanos // NANO <= INT64_MAX

    def as_integer(self) -> int:
        """As a whole number. Raises `CelError` if that would lose something."""
        if not self.is_integer:
            raise CelError("cannot convert value to integer")
        return self.nanos // NANO

    def as_float(self) -> float:
        """As the nearest float."""
        try:
            return self.nanos / NANO
        except OverflowError:
            return math.inf if self.nanos > 0 else -math.inf


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

    Raises `CelError` for a quantity or version next to another type, as Kubernetes does.
    """
    if isinstance(one, Quantity):
        if not isinstance(two, Quantity):
            raise no_overload()
        return one.nanos == two.nanos
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
            and all(equal(a, b) for a, b in zip(one, two, strict=True))
        )
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and len(one) == len(two)
            and all(key in two and equal(value, two[key]) for key, value in one.items())
        )
    if isinstance(one, OptionalValue):
        if not isinstance(two, OptionalValue) or one.has_value != two.has_value:
            return False
        return not one.has_value or equal(one.value, two.value)
    return type(one) is type(two) and bool(one == two)


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
