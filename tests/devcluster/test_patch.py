"""Patch languages on plain data, where the contract tests do not reach."""

import copy
from typing import Any

import pytest

from engine.devcluster import patch
from engine.manifests.errors import ApiStatus

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("target", "change", "want"),
    [
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists replace"),
        pytest.param({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="objects win"),
        pytest.param({}, "text", "text", id="no object"),
    ],
)
def test_merge_follows_its_rfc(target: Any, change: Any, want: Any) -> None:
    before = copy.deepcopy(target)
    assert patch.merge(target, change) == want
    assert target == before, "the target was changed"


TYPES = [{"type": "A", "status": "x"}, {"type": "B", "status": "y"}]


@pytest.mark.parametrize(
    ("target", "change", "want"),
    [
        pytest.param(
            {"conditions": TYPES},
            {"conditions": [{"type": "B", "status": "z"}]},
            {"conditions": [TYPES[0], {"type": "B", "status": "z"}]},
            id="merged by key",
        ),
        pytest.param(
            {"conditions": TYPES},
            {"conditions": [{"type": "C"}]},
            {"conditions": [*TYPES, {"type": "C"}]},
            id="appended",
        ),
        pytest.param(
            {"conditions": TYPES},
            {"conditions": [{"$patch": "replace"}, {"type": "C"}]},
            {"conditions": [{"type": "C"}]},
            id="replaced by directive",
        ),
        pytest.param(
            {"conditions": TYPES},
            {"conditions": [{"type": "A", "$patch": "delete"}]},
            {"conditions": [TYPES[1]]},
            id="removed by directive",
        ),
        pytest.param(
            {"spec": {"a": 1, "b": 2}},
            {"spec": {"$patch": "replace", "c": 3}},
            {"spec": {"c": 3}},
            id="an object replaced",
        ),
        pytest.param(
            {"finalizers": ["x", "y"]},
            {"finalizers": ["y", "z"]},
            {"finalizers": ["x", "y", "z"]},
            id="sets unite",
        ),
        pytest.param(
            {"finalizers": ["x", "y"]},
            {"$deleteFromPrimitiveList/finalizers": ["x"]},
            {"finalizers": ["y"]},
            id="removed from a set",
        ),
        pytest.param(
            {"strategy": {"type": "A", "detail": 1}},
            {"strategy": {"$retainKeys": ["type"], "type": "B"}},
            {"strategy": {"type": "B"}},
            id="retained keys",
        ),
        pytest.param(
            {"ports": [{"port": 80, "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
            {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
            id="ports of a service",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            id="ports of a container",
        ),
        pytest.param(
            {"taints": [{"key": "a"}]},
            {"taints": [{"key": "b"}]},
            {"taints": [{"key": "b"}]},
            id="no merge key",
        ),
    ],
)
def test_strategic_merge_knows_its_lists(target: Json, change: Json, want: Json) -> None:
    before = copy.deepcopy(target)
    assert patch.strategic_merge(target, change) == want
    assert target == before, "the target was changed"


def test_an_element_without_its_key_is_refused() -> None:
    with pytest.raises(ApiStatus, match="does not contain declared merge key: type"):
        patch.strategic_merge({"conditions": []}, {"conditions": [{"status": "x"}]})


def test_apply_removes_elements_of_lists_that_were_left_out() -> None:
    first: Json = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}
    merged, owned = patch.apply({}, first, {}, "ci", force=False)
    second: Json = {"spec": {"containers": [{"name": "a", "image": "2"}]}}
    merged, owned = patch.apply(merged, second, owned, "ci", force=False)
    assert merged == second
    assert owned == {
        "ci": frozenset(
            {
                ("spec", "containers", "[name=a]", "name"),
                ("spec", "containers", "[name=a]", "image"),
            }
        )
    }


def test_apply_keeps_what_others_applied_with_the_same_value() -> None:
    merged, owned = patch.apply({}, {"data": {"k": "v"}}, {}, "one", force=False)
    merged, owned = patch.apply(merged, {"data": {"k": "v"}}, owned, "two", force=False)
    merged, owned = patch.apply(merged, {"data": {}}, owned, "one", force=False)
    assert merged == {"data": {"k": "v"}}


def test_apply_names_every_conflict() -> None:
    wanted = {"data": {"a": "1", "b": "1"}}
    merged, owned = patch.apply({}, wanted, {}, "one", force=False)
    with pytest.raises(ApiStatus, match="Apply failed with 2 conflicts") as caught:
        patch.apply(merged, {"data": {"a": "2", "b": "2"}}, owned, "two", force=False)
    assert caught.value.details is not None
    assert len(caught.value.details["causes"]) == 2
