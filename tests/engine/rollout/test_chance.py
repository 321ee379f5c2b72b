"""What chance does to shares and means."""

import math
from fractions import Fraction

import pytest

from engine.rollout.readings import Times, chance_of_excess, standard_errors


def exactly(count: int, total: int, bound: Fraction) -> Fraction:
    """The sum of the binomial distribution from *count* on."""
    return sum(
        (
            math.comb(total, n) * bound**n * (1 - bound) ** (total - n)
            for n in range(count, total + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(
    ("count", "total"), [(4, 4), (5, 5), (3, 8), (30, 100), (29, 100), (26, 100), (80, 250)]
)
@pytest.mark.parametrize("bound", [Fraction(1, 4), Fraction(1, 10), Fraction(1, 1_000)])
def test_the_chance_of_an_excess_is_exact(count: int, total: int, bound: Fraction) -> None:
    want = float(exactly(count, total, bound))
    assert chance_of_excess(count, total, float(bound)) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("count", "total", "low", "level"),
    [
        pytest.param(5, 5, 0.5492803, 0.05, id="5 of 5"),
        pytest.param(8, 10, 0.4930987, 0.05, id="8 of 10"),
        pytest.param(10, 100, 0.0490047, 0.025, id="10 of 100"),
    ],
)
def test_it_is_the_level_of_clopper_and_pearson_at_their_bound(
    count: int, total: int, low: float, level: float
) -> None:
    """The bounds are those of tables."""
    assert chance_of_excess(count, total, low) == pytest.approx(level, rel=1e-4)


def test_what_does_not_exceed_its_bound_is_chance() -> None:
    assert chance_of_excess(0, 0, 0.25) == chance_of_excess(25, 100, 0.25) == 1.0
    assert chance_of_excess(0, 500, 0.0) == chance_of_excess(3, 3, 1.0) == 1.0


def test_a_single_one_of_many_is_none_where_there_are_to_be_none() -> None:
    assert chance_of_excess(1, 10**9, 0.0) == 0.0


def test_the_chance_of_a_small_excess_of_many_is_found_quickly() -> None:
    """As a normal distribution has it, whose tail of two standard errors is 2.3 %."""
    bound, total = 0.25, 10**6
    count = round(bound * total + 2 * math.sqrt(total * bound * (1 - bound)))
    assert chance_of_excess(count, total, bound) == pytest.approx(0.0228, abs=2e-4)


@pytest.mark.parametrize(
    ("count", "control", "want"),
    [(10, 10, 0.0), (0, 0, 0.0), (100, 100, 0.0), (20, 10, 1.9803), (10, 20, -1.9803)],
)
def test_standard_errors_between_two_shares(count: int, control: int, want: float) -> None:
    assert standard_errors(count, 100, control, 100) == pytest.approx(want, abs=1e-4)


def test_the_error_of_a_mean() -> None:
    times = Times(4, 1.0 + 2 + 3 + 4, 1.0 + 4 + 9 + 16, 4)
    assert times.mean == 2.5
    assert times.error == pytest.approx((5 / 3 / 4) ** 0.5)
    alike = Times(4, 10.0, 30.0, 1)
    assert alike.error == pytest.approx((5 / 3) ** 0.5)


@pytest.mark.parametrize(
    "times", [Times(0, 0.0, 0.0, 0), Times(1, 1.0, 1.0, 1), Times(9, 9.0, 0.0, 9)]
)
def test_an_error_that_is_not_known_is_zero(times: Times) -> None:
    assert times.error == 0.0
