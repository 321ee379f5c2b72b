"""What is left of a case shows what is looked for, and no part of it can go."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.comparing.shrinking import shorter, shrink

_VALUES = st.recursive(
    st.integers(0, 3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=20,
)


@given(st.lists(_VALUES, max_size=5), st.integers(0, 3), st.sampled_from((1, 16)))
def test_what_is_left_shows_it_and_nothing_of_it_can_go(
    nodes: list[Any], needle: int, batch: int
) -> None:
    def shows(case: dict[str, Any]) -> bool:
        return str(needle) in json.dumps(case.get("nodes", []))

    case = {"id": "0123", "nodes": nodes, "incoming": [], "objects": [1, 2]}
    if not shows(case):
        return
    small = shrink(
        case,
        lambda cases: [shows(each) for each in cases],
        untouched=frozenset({"id"}),
        is_needed=lambda path: path == ("incoming",),
        batch=batch,
    )
    assert shows(small)
    assert small.keys() == {"id", "incoming", "nodes"}
    assert small["id"] == "0123"
    assert json.dumps(small["nodes"]).strip('[]{}abcd": ') == str(needle)


@given(st.sets(st.integers(0, 40), max_size=4), st.integers(41, 60))
def test_only_needed_items_of_a_list_are_left(needed: set[int], size: int) -> None:
    left = shorter([*range(size)], lambda items: needed <= {*items})
    assert left == sorted(needed)
