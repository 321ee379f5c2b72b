"""Kubernetes quantities as exact integers: `100m`, `1.5Gi`, `2e3`, or a number as sent.

Owns parsing, rounding and the canonical text. Arithmetic is on nano units (10^-9), the finest that
a quantity can hold, and on Python's unbounded integers, so sums are exact before they are rounded
once.
"""

import re
from functools import lru_cache
from typing import Final, Literal

NANO: Final = 10**9
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# Longer texts are malformed on purpose or by accident; both would cost time to parse.
_MAX_LENGTH: Final = 256
# Powers of ten beyond which every non-zero value saturates (or rounds up to one nano).
_HUGE_EXPONENT: Final = 40

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,18})"
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18
}  # fmt: skip
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_UNITS: Final = ("Ki", "Mi", "Gi", "Ti", "Pi")
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]
"""How a quantity is written: with `k`, with `Ki`, or with `e3`."""


class QuantityError(ValueError):
    """A text that is not a quantity. The message reads on after the path of the field."""


def _ceil_div(dividend: int, divisor: int) -> int:
    """*dividend* / *divisor* rounded away from zero, as quantities round."""
    quotient = -(-abs(dividend) // divisor)
    return quotient if dividend >= 0 else -quotient


@lru_cache(maxsize=65_536)
def _parse(text: str) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(f"want a quantity, got `{text[:80]}`")
    whole, fraction, suffix = match["whole"], match["fraction"] or "", match["suffix"]
    if not whole and not fraction:
        raise QuantityError(f"want a quantity, got `{text}`")
    digits = int(whole + fraction)
    power_of_two = _BINARY.get(suffix, 0)
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        exponent = 0 if power_of_two else int(suffix[1:])
    # In nano units: digits * 2^power * 10^shift.
    shift = exponent - len(fraction) + 9
    if digits == 0:
        nanos = 0
    elif exponent > _HUGE_EXPONENT + len(fraction):
        nanos = 10**_HUGE_EXPONENT * NANO
    elif shift >= 0:
        nanos = (digits << power_of_two) * 10**shift
    elif shift < -(_HUGE_EXPONENT + len(whole) + len(fraction)):
        nanos = 1
    else:
        nanos = _ceil_div(digits << power_of_two, 10**-shift)
    return -nanos if match["sign"] == "-" else nanos


def nano_value(quantity: str | int | float) -> int:
    """The exact value in units of 10^-9; what is finer rounds up.

    Unlike the rounded values this does not saturate, so that sums stay exact. Raises
    `QuantityError` for a text that is not a quantity.
    """
    if type(quantity) is str:
        return _parse(quantity)
    if type(quantity) is int:
        return quantity * NANO
    # `repr` gives back the decimal text that was sent, which is what counts, not the binary float.
    return _parse(repr(quantity))


def milli_from_nano(nanos: int) -> int:
    """Nano units as thousandths: rounded up, at most the largest int64."""
    return min(_ceil_div(nanos, 10**6), INT64_MAX)


def whole_from_nano(nanos: int) -> int:
    """Nano units as whole units: rounded up, at most the largest int64."""
    return min(_ceil_div(nanos, NANO), INT64_MAX)


def milli_value(quantity: str | int | float) -> int:
    """The value in thousandths, rounded up; at most the largest int64.

    Raises `QuantityError` for a text that is not a quantity.
    """
    return milli_from_nano(nano_value(quantity))


def whole_value(quantity: str | int | float) -> int:
    """The value in whole units, rounded up; at most the largest int64.

    Raises `QuantityError` for a text that is not a quantity.
    """
    return whole_from_nano(nano_value(quantity))


def resource_amount(name: str, quantity: str | int | float) -> int:
    """How much of resource *name*: millicores for cpu, whole units (bytes) for all others.

    Raises `QuantityError` for a text that is not a quantity.
    """
    return milli_value(quantity) if name == "cpu" else whole_value(quantity)


def format_of(quantity: str | int | float) -> Format:
    """How *quantity*, which is well formed, is written."""
    match = _QUANTITY.fullmatch(quantity if type(quantity) is str else repr(quantity))
    suffix = match["suffix"] if match is not None else ""
    if suffix in _BINARY:
        return "BinarySI"
    return "DecimalSI" if suffix in _DECIMAL else "DecimalExponent"


def canonical_text(nanos: int, written: Format) -> str:
    """The one text of an amount in a format: the largest suffix that leaves a whole number."""
    if nanos == 0:
        return "0"
    if written == "BinarySI" and abs(nanos) >= 1024 * NANO and nanos % NANO == 0:
        whole, suffix = nanos // NANO, ""
        for name in _BINARY:
            if whole % 1024:
                break
            whole, suffix = whole // 1024, name
        return f"{whole}{suffix}"
    digits, exponent = nanos, -9
    while digits % 1000 == 0 and (written == "DecimalExponent" or exponent < 18):
        digits, exponent = digits // 1000, exponent + 3
    if written == "DecimalExponent":
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_SUFFIX[exponent]}"


# --- as people write them ------------------------------------------------------------------


def amount_text(resource: str, amount: int, *, is_least: bool = False) -> str:
    """`500m cpu`, `1.5Gi memory`, `2 nvidia.com/gpu`: an amount as people write it.

    One that *is_least* is never rounded to less.
    """
    if resource == "cpu":
        return f"{amount // 1000} cpu" if amount % 1000 == 0 else f"{amount}m cpu"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{bytes_text(amount, is_least=is_least)} {resource}"
    return f"{amount} {resource}"


def bytes_text(amount: int, *, is_least: bool = False) -> str:
    """`1.5Gi`: bytes with the largest unit that leaves at least 1; see `amount_text`."""
    value, unit, size = float(amount), "", 1
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit, size = value / 1024, larger, size * 1024
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    # In whole decimal fractions of the unit: floats would round inexactly.
    parts = -(-amount * 10**places // size) if is_least else round(value * 10**places)
    whole, rest = divmod(parts, 10**places)
    digits = f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".") if places else str(whole)
    return f"{digits}{unit}"
