"""The faster of two ways is found out, and again when it is the other one."""

import random

import pytest

from engine.lib.contest import Contest


def _go(contest: Contest, rounds: int, first: float, second: float) -> list[int]:
    """The ways of so many rounds, which take these seconds."""
    ways = []
    for _ in range(rounds):
        ways.append(contest.way)
        contest.took((first, second)[contest.way])
    return ways


def test_the_faster_way_is_gone_nearly_always() -> None:
    for first, second, better in ((3e-4, 2e-4, 1), (2e-4, 3e-4, 0)):
        contest = Contest()
        ways = _go(contest, 20_000, first, second)
        assert contest.better == better
        assert ways[0] == 0, "what costs nothing else comes first"
        assert {0, 1} == set(ways)
        late = ways[10_000:]
        assert late.count(better) > 0.95 * len(late)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(5_000, 0.95, 0), (20_000, 0.8, 1)], id="it has to be clearly faster"),
        pytest.param(
            [(5_000, 0.8, 1), (20_000, 0.95, 1), (20_000, 1.02, 0)], id="it stays while faster"
        ),
        pytest.param([(192, 1.0, 0), (450, 0.7, 1)], id="a trial that misled is soon repeated"),
    ],
)
def test_the_dearer_way_is_gone_where_it_is_worth_it(steps: list[tuple[int, float, int]]) -> None:
    contest = Contest()
    for rounds, part, better in steps:
        _go(contest, rounds, 1.0e-4, part * 1.0e-4)
        assert contest.better == better


def test_what_is_not_faster_any_more_is_left() -> None:
    contest = Contest()
    _go(contest, 20_000, 3e-4, 2e-4)
    assert contest.better == 1
    ways = _go(contest, 20_000, 3e-4, 9e-4)
    assert contest.better == 0
    assert ways.count(1) < 10_000


def test_a_way_that_is_far_slower_is_given_up_within_a_few_rounds() -> None:
    contest = Contest()
    ways = _go(contest, 1_000, 2e-4, 5e-3)
    assert 0 < ways.count(1) < 20


def test_an_interrupted_block_says_nothing() -> None:
    contest = Contest()
    for _ in range(1_000):
        contest.took(5e-4)
        contest.interrupt()
        assert contest.way == 0


@pytest.mark.parametrize("seed", range(5))
def test_rounds_of_very_different_length_do_not_mislead_it_for_long(seed: int) -> None:
    chance = random.Random(seed)
    contest = Contest()
    better = 0
    for number in range(60_000):
        base = min(chance.lognormvariate(0.0, 1.0), 6.0)
        contest.took((3e-4, 2e-4)[contest.way] * base)
        better += contest.better == 1 and number >= 10_000
    assert better > 45_000
