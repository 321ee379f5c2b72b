"""Quantities in their canonical text, as the API server stores and returns them.

Owns the text form only; what an amount means to a scheduler lives in `engine.core.model.quantity`.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?P<part>(?:\.[0-9]*)?)"
    r"(?P<suffix>[eEinumkKMGTP]*[+-]?[0-9]*)"
)
_SUFFIX = re.compile(
    r"(?P<binary>[KMGTPE]i)|(?P<exponent>[eE][+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?)"
)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: power for power, suffix in _DECIMAL.items()}
REFUSAL = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class QuantityRefused(ValueError):
    """The text is no quantity."""


def _parse(text: str) -> tuple[Fraction, str]:
    text = text.strip()
    shape = _SHAPE.fullmatch(text)
    if shape is None or not text.isascii() or not text:
        raise QuantityRefused(REFUSAL)
    suffix = _SUFFIX.fullmatch(shape["suffix"])
    # An exponent of many digits would make an integer of as many: no amount needs more than three.
    if suffix is None or len(suffix["exponent"] or "") > 5:
        raise QuantityRefused("unable to parse quantity's suffix")
    # No digits are zero, to the real server as well: `Ki` is an amount.
    part = shape["part"] or "."
    number = Fraction(f"{shape['sign']}{shape['whole'] or '0'}{part}0")
    if suffix["binary"]:
        return number * 1024 ** _BINARY.index(suffix["binary"]), "binary"
    if suffix["exponent"]:
        return number * Fraction(10) ** int(suffix["exponent"][1:]), "exponent"
    return number * Fraction(10) ** _POWERS[suffix["decimal"]], "decimal"


@lru_cache(maxsize=8192)
def amount(text: str) -> Fraction:
    """The exact value of *text*. Raises `QuantityRefused` if it is no quantity."""
    return _parse(text)[0]


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """*text* as the API server writes it: thousandths at least, no trailing zeros, one suffix.

    Raises `QuantityRefused` if it is no quantity.

    Source:
        Quantity.CanonicalizeBytes and SetDefaults_ResourceList (rounds up to thousandths).
    """
    value, form = _parse(text)
    thousandths = math.ceil(value * 1000) if value >= 0 else math.floor(value * 1000)
    if form == "binary" and (-1024 < value < 1024 or thousandths % 1000):
        form = "decimal"
    if form == "binary":
        return _shortest(thousandths // 1000, 1024, 0, _BINARY.__getitem__, limit=6)
    suffix = _decimal_suffix if form == "decimal" else _exponent
    return _shortest(thousandths, 1000, -1, suffix, limit=6)


def _decimal_suffix(power: int) -> str:
    return _DECIMAL[3 * power]


def _exponent(power: int) -> str:
    return f"e{3 * power}" if power else ""


def _shortest(
    number: int, base: int, power: int, suffix: Callable[[int], str], *, limit: int
) -> str:
    while number and power < limit and number % base == 0:
        number //= base
        power += 1
    return f"{number}{suffix(power)}" if number else "0"


def plain(value: object) -> str:
    """Canonical text of a JSON string or number. Raises `QuantityRefused` for anything else."""
    if isinstance(value, str):
        return canonical(value)
    if value is None:
        return "0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityRefused(REFUSAL)
    return canonical(repr(value))
