"""What the indexes find is no less than what counters count, whatever comes and goes."""

import random
import sys
from typing import Any

from engine.core.caching.counter_parts import candidates_of, matcher_of
from engine.core.caching.kind_index import LabelIndex, TermIndex
from engine.core.caching.objects import ObjectStore
from engine.core.caching.own_terms import own_terms
from engine.core.caching.pod_kinds import PodKinds
from engine.core.model.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from engine.core.model.pod import Pod
from tests.builders import ZONE, make_pod

VALUES = ("a", "b", "c")
OPERATORS: list[dict[str, Any]] = [
    {"key": "app", "operator": "In", "values": ["a", "b"]},
    {"key": "app", "operator": "DoesNotExist"},
    {"key": "tier", "operator": "Exists"},
]


def drawn_labels(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(VALUES) for key in ("app", "tier") if rng.random() < 0.6}


def drawn_selector(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.1:
        return None
    expressions = rng.sample(OPERATORS, rng.randrange(2))
    return {"matchLabels": drawn_labels(rng), "matchExpressions": expressions}


def drawn_pod(rng: random.Random, name: str) -> Pod:
    affinity: dict[str, Any] = {}
    for rules in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.4:
            terms = [
                {"topologyKey": "zone", "labelSelector": drawn_selector(rng)}
                for _ in range(rng.randrange(1, 3))
            ]
            affinity[rules] = {
                "requiredDuringSchedulingIgnoredDuringExecution": terms[:1],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 2, "podAffinityTerm": term} for term in terms[1:]
                ],
            }
    return make_pod(name, labels={**drawn_labels(rng), "pod": name}, affinity=affinity)


def drawn_part(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "matches":
        of = rng.choice(("required_anti_affinity", "preferred_affinity", "required_affinity"))
        own = own_terms(drawn_pod(rng, "incoming"))
        return {"kind": kind, "of": of, "topology": None, "weight": 1, "own": own}
    if kind == "terms":
        of = rng.choice(("required anti-affinity", "preferred affinity"))
        pod = {"namespace": "default", "labels": drawn_labels(rng)}
        return {"kind": "terms", "of": of, "weight": 1, "pod": pod}
    terms = []
    for _ in range(rng.randrange(1, 3)):
        selector = drawn_selector(rng)
        plain = selector and {
            "labels": selector["matchLabels"],
            "expressions": selector["matchExpressions"],
        }
        terms.append({"selector": plain, "namespaces": ["default"], "namespace_selector": None})
    return {"kind": "pods", "terms": terms, "topology": "zone", "weight": 1, "terminating": True}


def test_what_is_not_found_is_not_counted() -> None:
    rng = random.Random(3)
    counted = {"pods": 0, "terms": 0, "matches": 0}
    left_out = counted.copy()
    for _ in range(60):
        kinds = PodKinds()
        for i in range(25):
            kinds._kind_of(drawn_pod(rng, f"p{i}"))
        for kind in counted:
            part = drawn_part(rng, kind)
            found = set(candidates_of(part)(kinds))
            match = matcher_of(part)
            for number, one in kinds.kinds.items():
                is_counted = bool(match(one, ObjectStore()))
                assert number in found or not is_counted
                counted[kind] += is_counted
            left_out[kind] += len(kinds.kinds) - len(found)
    assert min(counted.values()) > 50
    assert min(left_out.values()) > 300


def test_kinds_by_label_follow_those_that_come_and_go() -> None:
    index = LabelIndex()
    labels = {1: {"app": "a"}, 2: {"app": "b"}}
    assert list(index.having(("app", "a"), labels.items())) == [1]
    index.add(3, {"app": "a", "tier": "t"})
    assert list(index.having(("app", "a"), ())) == [1, 3]
    index.remove(1, {"app": "a"})
    assert list(index.having(("app", "a"), ())) == [3]
    assert list(index.having(("app", "c"), ())) == []


def test_label_keys_that_nobody_asks_for_any_more_are_let_go() -> None:
    """Keys come from selectors of pods, and so from users."""
    index = LabelIndex()
    for i in range(1000):
        index.having((f"key-{i}", "x"), [(1, {f"key-{i}": "x"})])
    assert len(index._by_key) <= 64
    index.add(2, {"key-999": "x"})
    assert list(index.having(("key-999", "x"), ())) == [1, 2]


def test_kinds_with_terms_are_found_by_what_the_terms_ask_for() -> None:
    index = TermIndex()
    for number, labels in enumerate(({"app": "a"}, {"app": "b"}, {})):
        terms = {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [terms]}
        affinity = make_pod(affinity={"podAntiAffinity": required}).manifest.spec.affinity
        assert affinity is not None
        index.add(number, affinity)
    assert index.matching({"app": "a", "x": "y"}) == {0, 2}
    copied = index.copy()
    index.remove(0)
    index.remove(7)  # has no terms
    assert index.matching({"app": "a"}) == {2}
    assert copied.matching({"app": "a"}) == {0, 2}


def test_the_memory_of_terms_that_are_gone_is_given_back() -> None:
    """A dict that was large once would take megabytes for ever."""
    index, many = TermIndex(), 16_000
    for kind in range(many):
        key = f"key-{kind}"
        selector = LabelSelector({key: "x"})
        index.add(kind, Affinity(pod_affinity=PodAffinity((PodAffinityTerm(ZONE, selector),))))
    dicts = index._kinds, index.keys._count
    assert all(sys.getsizeof(one) > 20 * many for one in dicts)
    for kind in range(2, many):
        index.remove(kind)
    left = index._kinds, index.keys._count
    assert [list(one) for one in left] == [[("key-0", "x"), ("key-1", "x")], ["key-0", "key-1"]]
    assert all(sys.getsizeof(one) < 20 * many for one in left)
    index.remove(1)
    assert index._kinds is left[0], "it was copied, small as it is"
    assert index.keys._count is left[1], "it was copied, small as it is"
