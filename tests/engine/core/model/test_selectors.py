"""Selectors: operators, emptiness, and what is malformed."""

from random import Random
from typing import Any

import pytest

from engine.core.model.objects import LabelSelector, NodeSelector, from_plain
from engine.core.model.selectors import (
    SelectorError,
    SelectorSet,
    matches_label_selector,
    matches_node_selector,
)

LABELS = {"app": "web", "rank": "5", "empty": ""}


def label_match(selector: dict[str, Any], labels: dict[str, str] = LABELS) -> bool:
    return matches_label_selector(from_plain(LabelSelector, selector), labels)


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def node_match(*terms: dict[str, Any]) -> bool:
    selector = from_plain(NodeSelector, {"nodeSelectorTerms": list(terms)})
    return matches_node_selector(selector, LABELS, "n1")


def test_a_set_of_selectors_says_what_each_of_them_says() -> None:
    random = Random(7)
    given = [
        from_plain(LabelSelector, one)
        for key in ("app", "rank", "other")
        for one in (
            {"matchLabels": {key: "web"}},
            {"matchExpressions": [requirement(key, "Exists")]},
            {"matchExpressions": [requirement(key, "DoesNotExist")]},
            {"matchExpressions": [requirement(key, "NotIn", "web", "5")]},
            {"matchLabels": {key: "5"}, "matchExpressions": [requirement("app", "In", "web")]},
        )
    ]
    selectors: list[LabelSelector | None] = [None, LabelSelector(), *given]
    chosen = SelectorSet(selectors)
    for _ in range(400):
        keys = random.sample(["app", "rank", "other", "unasked"], random.randrange(5))
        labels = {key: random.choice(["web", "5", "", "x"]) for key in keys}
        want = [matches_label_selector(one, labels) for one in selectors]
        assert [bool(chosen.matching(labels) >> i & 1) for i in range(len(want))] == want


def test_a_set_with_a_malformed_selector_is_an_error() -> None:
    with pytest.raises(SelectorError):
        SelectorSet([None, LabelSelector({"a b": "x"})])


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not matches_label_selector(None, LABELS)
    assert label_match({})
    assert matches_node_selector(None, LABELS, "n1")
    assert not node_match()


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param(requirement("app", "In", "db", "web"), True, id="In"),
        pytest.param(requirement("app", "In", "db"), False, id="not In"),
        pytest.param(requirement("gone", "In", "web"), False, id="In without the key"),
        pytest.param(requirement("app", "NotIn", "db"), True, id="NotIn"),
        pytest.param(requirement("app", "NotIn", "web"), False, id="not NotIn"),
        pytest.param(requirement("gone", "NotIn", "web"), True, id="NotIn without the key"),
        pytest.param(requirement("empty", "Exists"), True, id="Exists though empty"),
        pytest.param(requirement("gone", "Exists"), False, id="not Exists"),
        pytest.param(requirement("gone", "DoesNotExist"), True, id="DoesNotExist"),
        pytest.param(requirement("app", "DoesNotExist"), False, id="not DoesNotExist"),
    ],
)
def test_operators_mean_the_same_for_objects_and_nodes(
    expression: dict[str, Any], want: bool
) -> None:
    assert label_match({"matchExpressions": [expression]}) is want
    assert node_match({"matchExpressions": [expression]}) is want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param(requirement("rank", "Gt", "4"), True, id="Gt"),
        pytest.param(requirement("rank", "Gt", "5"), False, id="Gt is strict"),
        pytest.param(requirement("rank", "Lt", "10"), True, id="Lt compares numbers, not text"),
        pytest.param(requirement("app", "Gt", "0"), False, id="a label that is no number"),
        pytest.param(requirement("gone", "Lt", "9"), False, id="a missing label"),
    ],
)
def test_numbers_compare_for_nodes_only(expression: dict[str, Any], want: bool) -> None:
    assert node_match({"matchExpressions": [expression]}) is want
    with pytest.raises(SelectorError, match="unknown operator"):
        label_match({"matchExpressions": [expression]})


MALFORMED = [
    pytest.param(requirement("app", "In"), id="In without values"),
    pytest.param(requirement("app", "Exists", "x"), id="Exists with values"),
    pytest.param(requirement("app", "Sometimes", "x"), id="unknown operator"),
    pytest.param(requirement("app", ""), id="no operator"),
    pytest.param(requirement("", "Exists"), id="no key"),
    pytest.param(requirement("a b", "Exists"), id="a key that is no name"),
    pytest.param(requirement("app", "NotIn", "not a value"), id="a value that is none"),
]


@pytest.mark.parametrize("expression", MALFORMED)
def test_a_malformed_label_selector_is_an_error_whatever_the_labels(
    expression: dict[str, Any],
) -> None:
    with pytest.raises(SelectorError):
        label_match({"matchLabels": {"app": "other"}, "matchExpressions": [expression]})


@pytest.mark.parametrize(
    "expression",
    [
        *MALFORMED,
        pytest.param(requirement("rank", "Gt", "x"), id="Gt without a number"),
        pytest.param(requirement("rank", "Gt", "1", "2"), id="Gt with two numbers"),
        pytest.param(requirement("rank", "Lt", str(2**63)), id="a number beyond int64"),
    ],
)
def test_a_malformed_node_term_matches_nothing_and_spares_the_others(
    expression: dict[str, Any],
) -> None:
    bad = {"matchExpressions": [expression]}
    assert not node_match(bad)
    assert node_match(bad, {"matchExpressions": [requirement("app", "Exists")]})


def test_match_labels_are_checked_too() -> None:
    with pytest.raises(SelectorError):
        label_match({"matchLabels": {"a b": "x"}})
    with pytest.raises(SelectorError):
        label_match({"matchLabels": {"app": "not a value"}})


def test_terms_are_alternatives_and_requirements_hold_together() -> None:
    web, rank9 = requirement("app", "In", "web"), requirement("rank", "In", "9")
    assert not node_match({"matchExpressions": [web, rank9]})
    assert node_match({"matchExpressions": [web]}, {"matchExpressions": [rank9]})


def test_an_empty_term_matches_nothing() -> None:
    assert not node_match({})


@pytest.mark.parametrize(
    ("field", "want"),
    [
        pytest.param(requirement("metadata.name", "In", "n1"), True, id="this node"),
        pytest.param(requirement("metadata.name", "In", "n2"), False, id="another node"),
        pytest.param(requirement("metadata.name", "NotIn", "n2"), True, id="not another node"),
        pytest.param(requirement("metadata.name", "In", "n1", "n2"), False, id="two values"),
        pytest.param(requirement("metadata.name", "Exists"), False, id="another operator"),
        pytest.param(requirement("spec.foo", "In", "n1"), False, id="another field"),
    ],
)
def test_fields_select_the_node_by_name(field: dict[str, Any], want: bool) -> None:
    assert node_match({"matchFields": [field]}) is want
    both = {"matchFields": [field], "matchExpressions": [requirement("app", "In", "db")]}
    assert not node_match(both)
