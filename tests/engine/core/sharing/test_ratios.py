"""The order of keys with exact ratios, beside fractions."""

from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.sharing.ratios import RATIO_BITS, turn_key_text, turn_sort_key

_MOST = (1 << RATIO_BITS) - 1
_INTS = st.integers(-3, 3) | st.integers(-_MOST, _MOST)
_RATIOS = st.tuples(_INTS, st.integers(0, 3) | st.integers(0, _MOST))
_PARTS = st.lists(_INTS | _RATIOS | st.sampled_from(["", "a", "b"]), min_size=1, max_size=3)


def _slow(parts: list[Any]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            found.append((2, part))
        elif isinstance(part, int):
            found.append((0, Fraction(part)))
        elif part[1] == 0 and part[0]:
            found.append((1 if part[0] > 0 else -1, 0))
        else:
            found.append((0, Fraction(part[0], part[1] or 1)))
    return found


@given(first=_PARTS, second=_PARTS)
@example([(1, 3)], [(2, 6)])
@example([(_MOST - 1, _MOST)], [(_MOST - 2, _MOST - 1)])  # the nearest that two can be
@example([(1 - _MOST, _MOST)], [(2 - _MOST, _MOST - 1)])
def test_keys_are_in_the_order_of_fractions(first: list[Any], second: list[Any]) -> None:
    one, other = turn_sort_key(first), turn_sort_key(second)
    assert (one < other, one == other) == (
        _slow(first) < _slow(second),
        _slow(first) == _slow(second),
    )


@given(st.lists(_PARTS, max_size=5))
def test_no_part_is_a_float(keys: list[list[Any]]) -> None:
    for key in map(turn_sort_key, keys):
        assert all(type(value) in (int, str) for part in key for value in part)


def test_keys_are_shown_as_what_they_were_made_of() -> None:
    parts: list[Any] = [3, -2, [3, 8], [1, 3], [5, 0], [-5, 0], [0, 0], "b"]
    shown = '3, -2, 0.375, 0.333333, infinite, -infinite, 0, "b"'
    assert turn_key_text(turn_sort_key(parts)) == shown
    assert turn_key_text(()) == ""
