"""Terms that are found by label say what each term by itself says."""

import random
from typing import Any

import msgspec

from engine.core.caching.objects import ObjectStore
from engine.core.caching.own_terms import NO_TERMS, own_terms
from engine.core.model.objects import Namespace, ObjectMeta, PodAffinityTerm
from engine.core.model.pod import Pod
from engine.core.model.selectors import selects
from tests.builders import make_pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KINDS = (
    "required_affinity",
    "required_anti_affinity",
    "preferred_affinity",
    "preferred_anti_affinity",
)
EXPRESSIONS: list[dict[str, Any]] = [
    {"key": "app", "operator": "In", "values": ["a", "b"]},
    {"key": "app", "operator": "DoesNotExist"},
    {"key": "tier", "operator": "NotIn", "values": ["a"]},
    {"key": "not a key!", "operator": "Exists"},  # makes the selector unreadable
]


def drawn_labels(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice("ab") for key in ("app", "tier", "team") if rng.random() < 0.5}


def drawn_selector(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.1:
        return None
    expressions = rng.choices(EXPRESSIONS, [3, 3, 3, 1], k=rng.randrange(2))
    return {"matchLabels": drawn_labels(rng), "matchExpressions": expressions}


def drawn_term(rng: random.Random) -> dict[str, Any]:
    term: dict[str, Any] = {
        "topologyKey": rng.choice(("zone", "rack")),
        "labelSelector": drawn_selector(rng),
    }
    if rng.random() < 0.3:
        term["namespaces"] = rng.sample(("red", "blue"), rng.randrange(3))
    if rng.random() < 0.3:
        term["namespaceSelector"] = drawn_selector(rng)
    return term


def drawn_pod(rng: random.Random) -> Pod:
    def rules() -> dict[str, Any]:
        preferred = [
            {"weight": rng.randint(1, 9), "podAffinityTerm": drawn_term(rng)}
            for _ in range(rng.randrange(4))
        ]
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                drawn_term(rng) for _ in range(rng.randrange(3))
            ],
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }

    affinity = {"podAffinity": rules(), "podAntiAffinity": rules()}
    return make_pod("web", rng.choice(("red", "blue")), affinity=affinity)


def is_matched(
    term: PodAffinityTerm, own: str, namespace: str, labels: dict[str, str], objects: ObjectStore
) -> bool:
    """One term, as the API says it."""
    named = term.namespaces or (() if term.namespace_selector is not None else (own,))
    found = objects.get("namespaces", namespace)
    assert found is not None
    there = selects(term.namespace_selector, found.metadata.labels)
    return (namespace in named or there) and selects(term.label_selector, labels)


def test_terms_match_as_each_would_by_itself() -> None:
    rng = random.Random(7)
    found = 0
    objects = ObjectStore()
    for _ in range(600):
        for name in ("red", "blue"):
            objects.put("namespaces", Namespace(ObjectMeta(name=name, labels=drawn_labels(rng))))
        pod, labels, namespace = drawn_pod(rng), drawn_labels(rng), rng.choice(("red", "blue"))
        affinity = pod.manifest.spec.affinity
        assert affinity is not None
        assert affinity.pod_affinity is not None
        assert affinity.pod_anti_affinity is not None
        near, far = affinity.pod_affinity, affinity.pod_anti_affinity
        terms = {
            "required_affinity": [(term, 1) for term in near.required],
            "required_anti_affinity": [(term, 1) for term in far.required],
            "preferred_affinity": [(p.pod_affinity_term, p.weight) for p in near.preferred],
            "preferred_anti_affinity": [(p.pod_affinity_term, p.weight) for p in far.preferred],
        }
        own = own_terms(pod)
        for kind in KINDS:
            want: dict[str, int] = {}
            for term, weight in terms[kind]:
                if is_matched(term, pod.namespace, namespace, labels, objects):
                    want[term.topology_key] = want.get(term.topology_key, 0) + weight
            assert dict(own.matching(kind, namespace, labels, objects)) == want
            asked = own.labels(kind)
            assert not want or asked is None or any(labels.get(k) == v for k, v in asked)
            found += bool(want)
        want_all = all(
            is_matched(term, pod.namespace, namespace, labels, objects) for term in near.required
        )
        assert own.match_all(namespace, labels, objects) == want_all
    assert found > 200


def test_pods_with_equal_terms_have_equal_names_for_them() -> None:
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    names = [
        own_terms(make_pod("a", affinity={which: rules})).name
        for which in ("podAffinity", "podAntiAffinity", "podAffinity")
    ]
    assert names[0] == names[2] != names[1]
    assert own_terms(make_pod("a")) is NO_TERMS
    assert own_terms(make_pod("a", affinity={"podAffinity": {}})).name == b""


def test_memory_is_charged_by_the_term() -> None:
    """Their creators choose how many there are."""
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    of_one, of_ten = (
        own_terms(make_pod(affinity={"podAffinity": {_REQUIRED: [near] * count}}))
        for count in (1, 10)
    )
    assert 10 * of_one.nbytes == of_ten.nbytes > 0


def test_terms_are_read_once_for_one_pod_and_again_for_another_namespace() -> None:
    """The terms that name no namespace mean the pod's: two pods of one template may share them."""
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    red = make_pod("a", "red", affinity={"podAffinity": rules})
    meta = msgspec.structs.replace(red.manifest.metadata, namespace="blue")
    blue = Pod(msgspec.structs.replace(red.manifest, metadata=meta))
    assert blue.manifest.spec.affinity is red.manifest.spec.affinity
    for pod, other in ((red, blue), (blue, red)):
        found = own_terms(pod)
        assert own_terms(pod) is found
        where = {"app": "web"}, ObjectStore()
        assert found.matching("required_affinity", pod.namespace, *where) == [("zone", 1)]
        assert found.matching("required_affinity", other.namespace, *where) == []
