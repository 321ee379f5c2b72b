"""A dict that shares its entries with its changed copies is a dict all the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lib import shared_dict
from engine.lib.shared_dict import SharedDict

Step = tuple[bool, int, int]
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers()), max_size=60)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_dict, "_MOST_ENTRIES", 3)


@given(steps)
def test_it_is_what_a_dict_would_be_and_so_are_those_before(steps: list[Step]) -> None:
    plain: dict[int, int] = {}
    made: SharedDict[int, int] = SharedDict()
    states = [(plain.copy(), made)]
    for adds, key, value in steps:
        if adds:
            plain[key] = value
            made = made.having(key, value)
        elif key in plain:
            del plain[key]
            made = made.without(key)
        else:
            with pytest.raises(KeyError):
                made.without(key)
        states.append((plain.copy(), made))
    for wanted, got in states:
        assert list(got) == list(wanted)
        assert list(got.items()) == list(wanted.items())
        assert list(got.values()) == list(wanted.values())
        assert len(got) == len(got.values()) == len(got.items()) == len(wanted)
        assert [got.get(key) for key in range(13)] == [wanted.get(key) for key in range(13)]
        assert [key in got for key in range(13)] == [key in wanted for key in range(13)]
        assert bool(got) == bool(wanted)


def test_a_change_copies_one_chunk() -> None:
    before: SharedDict[int, int] = SharedDict()
    for key in range(30):
        before = before.having(key, key)
    for after in (before.having(4, 0), before.having(30, 30), before.without(4)):
        shared = [chunk for chunk in after._chunks if any(chunk is one for one in before._chunks)]
        assert len(shared) >= len(before._chunks) - 1


def test_what_is_not_there_is_said() -> None:
    empty: SharedDict[str, int] = SharedDict()
    with pytest.raises(KeyError, match="web"):
        empty["web"]
