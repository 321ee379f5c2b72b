"""What chance does to shares and means."""

import pytest

from engine.rollout.chance import SURE, Times, lowest_share, standard_errors


@pytest.mark.parametrize(
    ("count", "total", "want"),
    [
        pytest.param(0, 500, 0.0, id="none"),
        pytest.param(4, 4, 4 / (4 + SURE**2), id="all of few"),
        pytest.param(30, 100, 0.1750, id="some"),
        pytest.param(300_000, 1_000_000, 0.2985, id="some of many"),
    ],
)
def test_the_lowest_share(count: int, total: int, want: float) -> None:
    assert lowest_share(count, total) == pytest.approx(want, abs=1e-4)


def test_a_single_one_of_many_is_above_zero() -> None:
    assert 0 < lowest_share(1, 10**9) < 1e-9


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
