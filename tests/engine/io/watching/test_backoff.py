"""Delays between tries."""

import random

import pytest

from engine.io.watching.backoff import Backoff


def test_delays_double_up_to_the_ceiling_and_are_shortened_by_less_than_half() -> None:
    backoff = Backoff(random.Random(7), initial=0.5, ceiling=15.0)
    for full in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
        assert full / 2 <= backoff.next() <= full


def test_an_outage_of_days_stays_at_the_ceiling() -> None:
    backoff = Backoff(random.Random(7), ceiling=15.0)
    backoff.attempts = 1_000_000
    assert backoff.next() <= 15.0


def test_reset_starts_again() -> None:
    backoff = Backoff(random.Random(7), initial=0.5)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.5


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_delays(seed: int) -> None:
    first, second = Backoff(random.Random(seed)), Backoff(random.Random(seed))
    assert [first.next() for _ in range(9)] == [second.next() for _ in range(9)]
