"""Patch languages on plain data, where the contract tests do not reach."""

import copy
from typing import Any

import pytest

from devkit.cluster import patch
from engine.core.manifests import kinds
from engine.core.manifests.errors import ApiStatus
from engine.core.manifests.schema import shape_of

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
_POD = shape_of(kinds.PODS)
STATUS = _POD.member("status")
METADATA = _POD.member("metadata")
CONTAINER = _POD.member("spec").member("containers").element
SERVICE = shape_of(kinds.SERVICES).member("spec")
NODE = shape_of(kinds.NODES).member("spec")
CLAIM = shape_of(kinds.RESOURCE_CLAIMS).member("status")
DEPLOYMENT = shape_of(kinds.DEPLOYMENTS)
_MAP = shape_of(kinds.CONFIG_MAPS)
BUDGET = shape_of(kinds.POD_DISRUPTION_BUDGETS)


def _types(text: str) -> list[Json]:
    return [{"type": name} for name in text]


@pytest.mark.parametrize(
    ("shape", "target", "change", "want"),
    [
        pytest.param(
            STATUS,
            {"conditions": TYPES},
            {"conditions": [{"type": "B", "status": "z"}]},
            {"conditions": [TYPES[0], {"type": "B", "status": "z"}]},
            id="merged by key",
        ),
        pytest.param(
            STATUS,
            {"conditions": TYPES},
            {"conditions": [{"type": "C"}]},
            {"conditions": [{"type": "C"}, *TYPES]},
            id="a new one is the first",
        ),
        pytest.param(
            STATUS,
            {"conditions": _types("AB")},
            {"conditions": _types("BC")},
            {"conditions": _types("ABC")},
            id="a new one after one that was there",
        ),
        pytest.param(
            STATUS,
            {"conditions": _types("ABC")},
            {"conditions": _types("CA")},
            {"conditions": _types("BCA")},
            id="in the order that was sent",
        ),
        pytest.param(
            STATUS,
            {"conditions": _types("ABC")},
            {"conditions": _types("D"), "$setElementOrder/conditions": _types("CDB")},
            {"conditions": _types("ACDB")},
            id="in the order that was asked for",
        ),
        pytest.param(
            STATUS,
            {"conditions": _types("AB")},
            {"$setElementOrder/conditions": _types("BA")},
            {"conditions": _types("BA")},
            id="order alone",
        ),
        pytest.param(
            STATUS,
            {"conditions": TYPES},
            {"conditions": [{"$patch": "replace"}, {"type": "C"}]},
            {"conditions": [{"type": "C"}]},
            id="replaced by directive",
        ),
        pytest.param(
            STATUS,
            {"conditions": TYPES},
            {"conditions": [{"type": "A", "$patch": "delete"}]},
            {"conditions": [TYPES[1]]},
            id="removed by directive",
        ),
        pytest.param(
            STATUS,
            {},
            {"conditions": [{"type": "A", "$patch": "delete"}, {"type": "B", "reason": None}]},
            {"conditions": [{"type": "B"}]},
            id="directives and nulls where nothing was",
        ),
        pytest.param(
            _POD,
            {"spec": {"a": 1, "b": 2}},
            {"spec": {"$patch": "replace", "c": 3}},
            {"spec": {"c": 3}},
            id="an object replaced",
        ),
        pytest.param(
            METADATA,
            {"finalizers": ["x", "y"]},
            {"finalizers": ["y", "z"]},
            {"finalizers": ["x", "y", "z"]},
            id="sets unite",
        ),
        pytest.param(
            METADATA,
            {"finalizers": ["x", "y"]},
            {"$deleteFromPrimitiveList/finalizers": ["x"]},
            {"finalizers": ["y"]},
            id="removed from a set",
        ),
        pytest.param(
            METADATA,
            {"finalizers": ["x", "y"]},
            {"$deleteFromPrimitiveList/finalizers": ["x"], "$setElementOrder/finalizers": ["y"]},
            {"finalizers": ["y"]},
            id="removed from a set that is put in order",
        ),
        pytest.param(
            DEPLOYMENT,
            {"strategy": {"type": "A", "detail": 1}},
            {"strategy": {"$retainKeys": ["type"], "type": "B"}},
            {"strategy": {"type": "B"}},
            id="retained keys",
        ),
        pytest.param(
            SERVICE,
            {"ports": [{"port": 80, "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
            {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
            id="ports of a service",
        ),
        pytest.param(
            CONTAINER,
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            id="ports of a container",
        ),
        pytest.param(
            NODE,
            {"taints": [{"key": "a"}]},
            {"taints": [{"key": "b"}]},
            {"taints": [{"key": "b"}]},
            id="no merge key",
        ),
        pytest.param(
            CLAIM,
            {"devices": [{"conditions": TYPES}]},
            {"devices": [{"conditions": _types("C")}]},
            {"devices": [{"conditions": _types("C")}]},
            id="conditions that do not merge",
        ),
        pytest.param(
            BUDGET,
            {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
            id="an object that is replaced",
        ),
    ],
)
def test_strategic_merge_knows_its_lists(
    shape: Any, target: Json, change: Json, want: Json
) -> None:
    before = copy.deepcopy(target)
    assert patch.strategic_merge(target, change, shape) == want
    assert target == before, "the target was changed"


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        (
            {"conditions": [{"status": "x"}]},
            500,
            "does not contain declared merge key: type",
        ),
        ({"conditions": [{"type": "A", "$patch": "merge"}]}, 500, "unknown patch type: merge"),
        ({"$patch": "merge"}, 500, "unknown patch type: merge"),
        ({"$retainKeys": ["phase"], "reason": "x"}, 400, "invalid patch format of retainKeys"),
        (
            {"conditions": _types("AB"), "$setElementOrder/conditions": _types("BA")},
            500,
            "The order in patch list",
        ),
        ({"$setElementOrder/conditions": {}}, 500, "expected a list"),
    ],
)
def test_a_patch_that_cannot_be_understood_is_refused(change: Json, code: int, why: str) -> None:
    with pytest.raises(ApiStatus, match=why) as refused:
        patch.strategic_merge({"conditions": TYPES}, change, STATUS)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("live", "sent", "want"),
    [("AB", "C", "ABC"), ("AB", "CB", "ACB"), ("ABC", "CDA", "BCDA"), ("", "BA", "BA")],
)
def test_apply_keeps_what_was_there_first(live: str, sent: str, want: str) -> None:
    merged, _ = patch.apply(
        {"conditions": _types(live)}, {"conditions": _types(sent)}, STATUS, {}, "ci", force=False
    )
    assert merged == {"conditions": _types(want)}


def test_apply_removes_elements_of_lists_that_were_left_out() -> None:
    first: Json = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}
    merged, owned = patch.apply({}, first, _POD, {}, "ci", force=False)
    second: Json = {"spec": {"containers": [{"name": "a", "image": "2"}]}}
    merged, owned = patch.apply(merged, second, _POD, owned, "ci", force=False)
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
    merged, owned = patch.apply({}, {"data": {"k": "v"}}, _MAP, {}, "one", force=False)
    merged, owned = patch.apply(merged, {"data": {"k": "v"}}, _MAP, owned, "two", force=False)
    merged, owned = patch.apply(merged, {"data": {}}, _MAP, owned, "one", force=False)
    assert merged == {"data": {"k": "v"}}


def test_apply_names_every_conflict() -> None:
    wanted = {"data": {"a": "1", "b": "1"}}
    merged, owned = patch.apply({}, wanted, _MAP, {}, "one", force=False)
    with pytest.raises(ApiStatus, match="Apply failed with 2 conflicts") as caught:
        patch.apply(merged, {"data": {"a": "2", "b": "2"}}, _MAP, owned, "two", force=False)
    assert caught.value.details is not None
    assert len(caught.value.details["causes"]) == 2
