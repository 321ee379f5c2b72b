"""Keys of queues among their siblings: ints, texts, and exact ratios.

Owns their order. Ratios come from policies as numerator and denominator; no float decides a tie.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, TypeAlias

#: Numerators and denominators are below 2 to the power of this.
RATIO_BITS: Final = 127
# Two ratios that differ do so by at least one over the product of their denominators, so that
# scaled by more than that product they differ after the fraction is cut off.
_SCALE_BITS: Final = 2 * RATIO_BITS

TurnKey: TypeAlias = tuple[tuple[int, int | str], ...]
"""A key in which any two have an order; see `turn_sort_key`."""


def turn_sort_key(parts: Sequence[int | str | Sequence[int]]) -> TurnKey:
    """A key of *parts*, the smallest of which goes first.

    Args:
        parts: Ints, texts, and ratios as pairs of numerator and denominator, the latter at least 0;
            both within `RATIO_BITS`. An int is a ratio over 1. One over 0 is infinite, minus one
            over 0 is below all others, and 0 over 0 is 0. Numbers go before texts.
    """
    return tuple(map(_part, parts))


def _part(part: int | str | Sequence[int]) -> tuple[int, int | str]:
    if isinstance(part, str):
        return 2, part
    n, d = (part, 1) if isinstance(part, int) else part
    if d == 0 and n != 0:
        return (1, 0) if n > 0 else (-1, 0)
    return 0, (n << _SCALE_BITS) // (d or 1)


def turn_key_text(key: TurnKey) -> str:
    """What *key* was made of, for people: `0.375`, or `1, "b"`; numbers to six digits."""
    return ", ".join(_part_text(*part) for part in key)


def _part_text(rank: int, value: int | str) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if rank:
        return "infinite" if rank > 0 else "-infinite"
    number = Fraction(value, 1 << _SCALE_BITS)
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.6g}"
