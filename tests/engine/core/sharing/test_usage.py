"""What queues used in the past, beside the same computed with fifty digits."""

import random
from decimal import Context, Decimal
from typing import Final

import pytest

from engine.core.sharing.usage import BILLIONTHS, Usage, decay

_EXACT: Final = Context(prec=50)
_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_WEEK: Final = 7 * _DAY
_HALF: Final = {"cpu": 50}
_ALL: Final = {"cpu": 100}
_OFFERED: Final = {"cpu": 100}


def _power(elapsed: int, half_life: int) -> Decimal:
    """2^(-elapsed / half_life)."""
    return _EXACT.power(Decimal(2), _EXACT.divide(Decimal(-elapsed), Decimal(half_life)))


@pytest.mark.parametrize("half_life", [1, 7, 1_000, _HOUR, _WEEK], ids=str)
def test_a_decay_is_exact_to_some_parts_of_2_to_the_64(half_life: int) -> None:
    rng = random.Random(half_life)
    times = [0, 1, half_life - 1, half_life, half_life + 1, 3 * half_life, 63 * half_life]
    times += [rng.randrange(half_life * 4) for _ in range(200)]
    for elapsed in times:
        got, want = decay(elapsed, half_life), _power(elapsed, half_life) * 2**64
        assert abs(got - want) <= 64, elapsed


def test_a_half_life_leaves_exactly_half() -> None:
    assert [decay(n * _HOUR, _HOUR) for n in range(4)] == [2**64, 2**63, 2**62, 2**61]
    assert decay(10**12 * _HOUR, _HOUR) == 0


def _usage(half_life: int = _HOUR, sampling: int = 5_000) -> Usage:
    return Usage(half_life, sampling)


def _read(usage: Usage, now: int) -> dict[str, int]:
    usage.read(_OFFERED, now)
    return dict(usage["a"])


def test_it_moves_towards_what_is_allocated_and_back() -> None:
    usage = _usage()
    usage.follow("a", _HALF, _OFFERED, 0)
    got = [_read(usage, n * _HOUR).get("cpu", 0) for n in range(5)]
    assert got == [0, 250, 375, 438, 469]
    usage.follow("a", {}, _OFFERED, 4 * _HOUR)
    assert [_read(usage, n * _HOUR).get("cpu", 0) for n in (5, 6, 7)] == [234, 117, 59]


def test_what_it_is_changes_at_multiples_of_the_sampling_interval_alone() -> None:
    usage = _usage(half_life=10_000)
    usage.read(_OFFERED, 0)
    usage.follow("a", _ALL, _OFFERED, 1_000)
    assert usage.next_reading == 5_000
    assert usage.read(_OFFERED, 4_999) == set()
    assert usage.read(_OFFERED, 5_017) == {"a"}
    assert usage["a"] == {"cpu": round(1000 * (1 - 2**-0.4))}  # as of 5 s: after four
    assert usage.next_reading == 10_000
    assert usage.read(_OFFERED, 9_999) == set()


def test_what_nodes_offer_is_taken_at_a_reading() -> None:
    usage = _usage()
    usage.follow("a", _HALF, _OFFERED, 0)
    assert _read(usage, 100 * _HOUR) == {"cpu": 500}
    usage.read({"cpu": 200}, 101 * _HOUR)
    assert usage["a"] == {"cpu": 500}, "until then it was half of them"
    usage.read({"cpu": 200}, 102 * _HOUR)
    assert usage["a"] == {"cpu": 375}
    usage.read({}, 103 * _HOUR)
    usage.read({}, 203 * _HOUR)
    assert usage["a"] == {}, "of what no node has, nothing is used"


def test_a_queue_that_had_nothing_for_long_is_forgotten() -> None:
    usage = _usage()
    assert usage.next_reading is None, "nothing has to be read of nothing"
    usage.follow("a", _ALL | {"pods": 3}, _OFFERED, 0)
    usage.read(_OFFERED, _HOUR)
    usage.follow("a", {}, _OFFERED, _HOUR)
    usage.read(_OFFERED, 2 * _HOUR)
    assert usage.paths == ["a"]
    usage.read(_OFFERED, 30 * _HOUR)
    assert (usage.paths, usage.next_reading) == ([], None)


def test_another_half_life_counts_from_then_on() -> None:
    usage = _usage()
    usage.follow("a", _ALL, _OFFERED, 0)
    usage.retime(2 * _HOUR, 5_000, _HOUR)
    assert _read(usage, _HOUR) == {"cpu": 500}
    assert _read(usage, 3 * _HOUR) == {"cpu": 750}


def test_what_was_saved_goes_on_with_the_time_that_passed() -> None:
    usage = _usage()
    usage.follow("a", _ALL, _OFFERED, 0)
    usage.follow("b", _HALF, _OFFERED, 0)
    saved = usage.to_plain(_HOUR)
    assert saved == {"a": {"cpu": BILLIONTHS // 2}, "b": {"cpu": BILLIONTHS // 4}}
    assert list(saved) == ["a", "b"], "the one that used most is first"
    other = _usage()
    other.follow("a", _ALL, _OFFERED, 7_000)
    other.restore(saved, _HOUR, 12_345)
    other.read(_OFFERED, 12_345)
    assert (other["a"], other["b"]) == ({"cpu": 750}, {"cpu": 125})


def _exact(changes: list[tuple[int, int]], until: int, half_life: int) -> Decimal:
    """The definition, over what was allocated since when."""
    value, ends = Decimal(0), [at for at, _ in changes[1:]] + [until]
    for (at, amount), end in zip(changes, ends, strict=True):
        part = _EXACT.divide(Decimal(amount), Decimal(100))
        moved = _EXACT.multiply(_EXACT.subtract(value, part), _power(end - at, half_life))
        value = _EXACT.add(part, moved)
    return value


@pytest.mark.parametrize("half_life", [10_000, _HOUR, _WEEK], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_after_thousands_of_changes_it_is_what_the_definition_says(
    half_life: int, seed: int
) -> None:
    """Also where each step is a few milliseconds of a week, and would round to nothing."""
    rng, usage, now = random.Random(seed), _usage(half_life), 0
    changes: list[tuple[int, int]] = []
    for _ in range(2_000):
        amount = rng.randrange(1, 100)
        usage.read(_OFFERED, now)
        usage.follow("a", {"cpu": amount}, _OFFERED, now)
        changes.append((now, amount))
        now += rng.choice([1, 7, 900, 40_000])
    got = Decimal(usage.to_plain(now)["a"]["cpu"])
    assert abs(got - _exact(changes, now, half_life) * BILLIONTHS) <= Decimal("0.5000001")
    usage.check_invariants({"a": {"cpu": changes[-1][1]}}, now)


def test_an_allocation_that_it_does_not_follow_is_found() -> None:
    usage = _usage()
    usage.follow("a", _HALF, _OFFERED, 0)
    usage.check_invariants({"a": _HALF}, 0)
    with pytest.raises(AssertionError, match="follows"):
        usage.check_invariants({"a": _ALL}, 0)
