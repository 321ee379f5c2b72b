"""Ratios of whole numbers, compared exactly: no rounding decides who goes first.

Owns their order. A ratio is a pair of numerator and denominator, neither below 0. One with the
denominator 0 is infinite, unless its numerator is 0 too: that is 0.
"""

from functools import cmp_to_key
from typing import Final, TypeAlias

from engine.core.sharing.amounts import Amounts

Ratio: TypeAlias = tuple[int, int]
"""Numerator and denominator."""

ZERO: Final[Ratio] = (0, 1)


def less(first: Ratio, second: Ratio) -> bool:
    """True if *first* is smaller; two infinite ones are equal."""
    return _compare(first, second) < 0


def larger(first: Ratio, second: Ratio) -> Ratio:
    """The larger of the two; the first of equal ones."""
    return second if _compare(first, second) < 0 else first


def dominant(used: Amounts, base: Amounts, weight: int = 1) -> Ratio:
    """The largest part of *base* that is *used*, of any resource, divided by *weight*.

    Resources that *base* does not name do not count. Infinite where something is used of a base or
    a weight of 0.
    """
    found = ZERO
    for resource, amount in used.items():
        if amount > 0 and resource in base:
            found = larger(found, (amount, max(base[resource], 0) * weight))
    return found


def _compare(first: Ratio, second: Ratio) -> int:
    one, other = _plain(first), _plain(second)
    if one[1] == 0 or other[1] == 0:
        return (one[1] == 0) - (other[1] == 0)
    left, right = one[0] * other[1], other[0] * one[1]
    return (left > right) - (left < right)


def _plain(ratio: Ratio) -> Ratio:
    """The same ratio, 0 with another denominator than 0."""
    return ratio if ratio[0] else ZERO


#: A ratio as a key to sort by.
ratio_key = cmp_to_key(_compare)
