"""The division of a total: its laws, and what the schemes that it stands for were seen to give."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.sharing.divide import ROUNDINGS, Entry, Rounding, divide

SMALL = st.integers(0, 12)

ENTRIES = st.lists(
    st.builds(
        Entry,
        name=st.sampled_from("abcdef"),
        start=SMALL,
        most=st.none() | st.integers(0, 20),
        weight=st.integers(0, 5),
        rank=st.integers(0, 2),
    ),
    max_size=6,
    unique_by=lambda one: one.name,
)


def _wants(one: Entry, total: int) -> int:
    return max(total if one.most is None else one.most, one.start)


@given(st.integers(0, 40), ENTRIES, st.sampled_from(ROUNDINGS))
def test_everybody_has_its_start_and_nobody_more_than_it_wants(
    total: int, entries: list[Entry], rounding: Rounding
) -> None:
    shares = divide(total, entries, rounding)
    assert shares.keys() == {one.name for one in entries}
    for one in entries:
        # With `nearest` a part may be rounded up beyond the total, so only its own bound holds.
        most = one.most if one.most is not None else 2 * total + 1
        assert one.start <= shares[one.name] <= max(one.start, most)


@given(st.integers(0, 40), ENTRIES, st.sampled_from(["largest_remainder", "whole"]))
def test_all_of_the_total_is_given_as_long_as_it_is_wanted(
    total: int, entries: list[Entry], rounding: Rounding
) -> None:
    entries = [
        Entry(one.name, one.start, one.most, max(one.weight, 1), one.rank) for one in entries
    ]
    started = sum(one.start for one in entries)
    wanted = sum(_wants(one, total) for one in entries)
    expected = max(started, min(total, wanted))
    assert sum(divide(total, entries, rounding).values()) == expected


@given(st.integers(0, 40), ENTRIES, st.sampled_from(ROUNDINGS), st.randoms())
def test_the_order_of_the_entries_does_not_matter(
    total: int, entries: list[Entry], rounding: Rounding, random: Any
) -> None:
    shuffled = entries.copy()
    random.shuffle(shuffled)
    assert divide(total, shuffled, rounding) == divide(total, entries, rounding)


@given(st.integers(0, 40), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_more_weight_never_gets_less(total: int, weights: list[int]) -> None:
    entries = [Entry(str(place), 0, None, weight) for place, weight in enumerate(weights)]
    for rounding in ("largest_remainder", "whole"):
        shares = divide(total, entries, rounding)
        for one in entries:
            for other in entries:
                if one.weight > other.weight:
                    assert shares[one.name] >= shares[other.name]


@given(st.integers(0, 40), ENTRIES)
def test_a_lower_rank_gets_only_what_a_higher_one_does_not_want(
    total: int, entries: list[Entry]
) -> None:
    entries = [Entry(one.name, 0, one.most, max(one.weight, 1), one.rank) for one in entries]
    shares = divide(total, entries)
    for one in entries:
        if shares[one.name] < _wants(one, total):
            assert not any(shares[other.name] for other in entries if other.rank < one.rank)


def _equal(count: int) -> list[Entry]:
    return [Entry(name, 0, 10) for name in "abc"[:count]]


@pytest.mark.parametrize(
    ("rounding", "total", "shares"),
    [
        ("largest_remainder", 10, [4, 3, 3]),
        ("largest_remainder", 11, [4, 4, 3]),
        # One of ten is lost, and twelve of eleven are given: Koordinator 1.8.0,
        # runtime_quota_calculator.go.
        ("nearest", 10, [3, 3, 3]),
        ("nearest", 11, [4, 4, 4]),
        ("whole", 10, [4, 3, 3]),
    ],
)
def test_three_equal_ones(rounding: Rounding, total: int, shares: list[int]) -> None:
    assert list(divide(total, _equal(3), rounding).values()) == shares


# What Koordinator 1.8.0 was seen to give (`RefreshRuntime`), one resource: total; min, max, weight,
# want and if it lends, of each queue; runtime of each.
_KOORDINATOR = [
    (100, [(50, 100, 1, 10, True), (30, 100, 1, 200, True)], [10, 90]),
    (100, [(50, 100, 1, 10, False), (30, 100, 1, 200, True)], [50, 50]),
    (10, [(0, 100, 1, 10, True)] * 3, [3, 3, 3]),
    (110, [(0, 100, 100, 100, True), (0, 10, 10, 100, True), (0, 1000, 1000, 1000, True)],
     [10, 1, 99]),
    (100, [(80, 100, 1, 100, True), (80, 100, 1, 100, True)], [80, 80]),
    (100, [(10, 100, 100, 100, True), (10, 100, 1, 30, True)], [89, 11]),
    (100, [(10, 100, 1, 20, True), (10, 100, 1, 30, True)], [20, 30]),
    (100, [(0, 100, 1, 5, True), (0, 100, 1, 96, True), (0, 100, 1, 96, True)], [5, 47, 47]),
    (100, [(50, 20, 1, 80, True), (0, 100, 1, 80, True)], [20, 80]),
]  # fmt: skip


@pytest.mark.parametrize(("total", "queues", "runtimes"), _KOORDINATOR)
def test_elastic_quotas_of_koordinator(
    total: int, queues: list[tuple[int, int, int, int, bool]], runtimes: list[int]
) -> None:
    entries = []
    for place, (low, high, weight, want, lends) in enumerate(queues):
        wanted = min(want, high)
        start = low if wanted > low or not lends else wanted
        entries.append(Entry(str(place), start, wanted, weight))
    assert list(divide(total, entries, "nearest").values()) == runtimes


# What KAI of 7 August 2026 was seen to give (`SetResourcesShare`), one resource: total, weight of
# the past; quota, weight, rank, wanted, used (thousandths) of each queue; fair share of each.
_KAI = [
    (12, 0, [(2, 1, 0, 12, 0), (2, 3, 0, 12, 0)], [4, 8]),
    (10, 0, [(0, 1, 0, 10, 0)] * 3, [4, 3, 3]),
    (12, 0, [(2, 1, 1, 12, 0), (2, 1, 0, 12, 0)], [10, 2]),
    (8, 0, [(6, 1, 0, 6, 0), (6, 1, 0, 6, 0)], [6, 6]),
    (8, 0, [(2, 0, 0, 8, 0), (3, 0, 0, 8, 0)], [2, 3]),
    (12, 0, [(0, 5, 0, 4, 0), (0, 1, 0, 12, 0)], [4, 8]),
    (12, 1000, [(0, 1, 0, 12, 500), (0, 1, 0, 12, 0)], [4, 8]),
    (12, 1000, [(0, 1, 0, 12, 1000), (0, 1, 0, 12, 0)], [0, 12]),
    (12, 1000, [(0, 1, 0, 12, 1000), (0, 1, 0, 12, 1000)], [0, 0]),
    (12, 10000, [(6, 1, 0, 12, 1000), (0, 1, 0, 12, 0)], [6, 6]),
    (12, 0, [(12, 1, 0, 12, 0), (2, 1, 0, 12, 0)], [12, 2]),
    (7, 0, [(0, 2, 0, 7, 0), (0, 2, 0, 7, 0), (0, 1, 0, 7, 0)], [3, 3, 1]),
    # By its rules, not seen: what rounding down left goes to remainders, not into another round.
    (19, 0, [(0, 10, 0, 99, 0), *[(0, 1, 0, 99, 0)] * 10], [9, *[1] * 10]),
]  # fmt: skip


@pytest.mark.parametrize(("total", "past", "queues", "shares"), _KAI)
def test_fair_shares_of_kai(
    total: int, past: int, queues: list[tuple[int, int, int, int, int]], shares: list[int]
) -> None:
    entries = [
        Entry(str(place), min(quota, want), want, weight, rank, used)
        for place, (quota, weight, rank, want, used) in enumerate(queues)
    ]
    assert list(divide(total, entries, "whole", past).values()) == shares
