"""Device selectors say what Kubernetes' own evaluator says of the same devices.

The evaluator is `k8s.io/dynamic-resource-allocation/cel`, in the program `oracle`.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from engine.core.framework.behaviors import RELEASED
from tests.parity.fuzz import MINORS, number_of
from tests.parity.selectors import (
    DIFFERENCES,
    Difference,
    Grammar,
    ask_kubernetes,
    ask_ours,
    known_difference,
    outcome,
)

_ROOT: Final = Path(__file__).resolve().parents[2]
#: What Kubernetes says of selectors at the edges; one line each, `selector` and what it says.
_CORNERS: Final = _ROOT / "tests" / "data" / "devices" / "corners.jsonl"
_COUNT: Final = 2_000


def _corners() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _CORNERS.read_text().splitlines()]


def _differences(
    selectors: list[str], theirs: list[dict[str, Any]], minor: int = RELEASED
) -> list[Any]:
    return [
        (selector, said, ours)
        for selector, said, ours in zip(selectors, theirs, ask_ours(selectors, minor), strict=True)
        if outcome(said) != outcome(ours) and known_difference(selector, said, ours) is None
    ]


def test_selectors_at_the_edges_say_what_was_recorded_of_kubernetes() -> None:
    """`string(1e6)` is `1e+06`, `quantity("1.0")` is no integer, an index may be beyond the end."""
    recorded = _corners()
    assert len(recorded) > 300
    assert _differences([one["selector"] for one in recorded], recorded) == []


@pytest.mark.slow("a program that is built, and 2,000 selectors")
@pytest.mark.parametrize("minor", MINORS)
def test_two_thousand_random_selectors_say_what_kubernetes_says(minor: str) -> None:
    """None differs that is not on the list, which has few entries, each documented."""
    grammar = Grammar(44)
    selectors = [grammar.selector() for _ in range(_COUNT)]
    theirs = ask_kubernetes(selectors, minor)
    assert _differences(selectors, theirs, number_of(minor)) == []
    kinds = Counter("invalid" in said for said in theirs)
    assert kinds[False] > 0.75 * _COUNT, "most are selectors that a cluster may have"
    answers = Counter(word for said in theirs for word in outcome(said))
    assert min(answers[word] for word in ("true", "false", "fails")) > 500


@pytest.mark.slow("a program that is built")
def test_what_was_recorded_of_kubernetes_is_what_it_says() -> None:
    recorded = _corners()
    said = ask_kubernetes(one["selector"] for one in recorded)
    assert [outcome(one) for one in recorded] == [outcome(one) for one in said]


@pytest.mark.slow("a program that is built")
@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda one: one.name)
def test_each_known_difference_is_one(known: Difference) -> None:
    """An entry that is no longer needed is dropped."""
    theirs, ours = ask_kubernetes(known.examples), ask_ours(known.examples)
    for selector, said, answer in zip(known.examples, theirs, ours, strict=True):
        assert outcome(said) != outcome(answer), selector
        assert known_difference(selector, said, answer) is not None, selector


@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda one: one.name)
def test_each_known_difference_is_documented(known: Difference) -> None:
    text = (_ROOT / "docs" / "dynamic-resources.md").read_text()
    assert known.documented in " ".join(text.split())
