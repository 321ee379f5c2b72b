"""Vectors of resources and ratios: laws, and the edges of what can be counted."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.core.sharing.amounts import (
    LARGEST,
    Amounts,
    Shortage,
    at_least,
    at_most,
    minus,
    over,
    plus,
)
from engine.core.sharing.ratios import Ratio, dominant, larger, less, ratio_key

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 9))
RATIOS = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(AMOUNTS, AMOUNTS)
def test_what_is_added_can_be_taken_away(first: Amounts, second: Amounts) -> None:
    back = minus(plus(first, second), second)
    assert {r: amount for r, amount in back.items() if amount} == {
        r: amount for r, amount in first.items() if amount
    }


@given(AMOUNTS, AMOUNTS)
def test_limits_and_leasts(amounts: Amounts, bound: Amounts) -> None:
    assert over(at_most(amounts, bound), bound) is None
    assert over(bound, at_least(amounts, bound)) is None
    assert at_most(amounts, bound).keys() == amounts.keys()
    assert at_least(amounts, bound).keys() == amounts.keys() | bound.keys()


@given(AMOUNTS, AMOUNTS, st.none() | AMOUNTS)
def test_over_names_the_first_shortage(used: Amounts, limit: Amounts, of: Amounts | None) -> None:
    short = [
        Shortage(r, used[r] - limit[r])
        for r in sorted(used)
        if r in limit and used[r] > limit[r] and (of is None or of.get(r, 0) > 0)
    ]
    assert over(used, limit, of) == (short[0] if short else None)


def test_sums_end_at_the_largest_amount() -> None:
    assert plus({"cpu": LARGEST}, {"cpu": LARGEST}) == {"cpu": LARGEST}
    assert minus({"cpu": -LARGEST}, {"cpu": 1}) == {"cpu": -LARGEST}


def _exact(ratio: Ratio) -> Fraction | float:
    if ratio[1] == 0:
        return float("inf") if ratio[0] else Fraction(0)
    return Fraction(*ratio)


@given(RATIOS, RATIOS)
def test_ratios_are_ordered_as_fractions(first: Ratio, second: Ratio) -> None:
    assert less(first, second) == (_exact(first) < _exact(second))
    assert (ratio_key(first) < ratio_key(second)) == less(first, second)
    assert larger(first, second) == (second if less(first, second) else first)


def test_large_ratios_differ() -> None:
    # As floats both are 1.0.
    assert less((LARGEST - 1, LARGEST), (LARGEST, LARGEST))


def test_a_dominant_share_is_of_what_the_base_names() -> None:
    used = {"cpu": 3, "gpu": 8}
    assert dominant(used, {"cpu": 4}) == (3, 4)
    assert dominant(used, {"cpu": 4, "gpu": 8}) == (8, 8)
    assert dominant(used, {"cpu": 4}, weight=2) == (3, 8)
    assert dominant(used, {"gpu": 0}) == (8, 0)
    assert dominant({"gpu": 0}, {"gpu": 0}) == (0, 1)
