"""What a counter counts: pods by their labels, or the placed pods' own affinity terms.

Owns the meaning of the parts that `count_pods` and `count_terms` of a policy make: given a kind of
pod, in which topologies it counts, and how much.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.caching.kind_index import first_label
from engine.caching.objects import ObjectStore
from engine.caching.pod_kinds import PodKind, PodKinds
from engine.model.objects import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
)
from engine.model.selectors import (
    SelectorError,
    check_label_selector,
    is_selected,
    selects,
)


def _selector(plain: Mapping[str, Any] | None) -> LabelSelector | None:
    """The selector, checked; None: it selects nothing, as one does that cannot be read."""
    if plain is None:
        return None
    selector = LabelSelector(
        dict(plain.get("labels") or {}),
        tuple(
            LabelSelectorRequirement(r["key"], r["operator"], tuple(r.get("values") or ()))
            for r in plain.get("expressions") or ()
        ),
    )
    try:
        check_label_selector(selector)
    except SelectorError:
        return None
    return selector


def _namespace_labels(objects: ObjectStore, name: str) -> Mapping[str, str]:
    namespace = objects.get("namespaces", name)
    return {} if namespace is None else namespace.metadata.labels


@dataclass(frozen=True, slots=True)
class _PodTerm:
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(self, kind: PodKind, objects: ObjectStore) -> bool:
        if kind.namespace not in self.namespaces and not (
            self.namespace_selector is not None
            and is_selected(self.namespace_selector, _namespace_labels(objects, kind.namespace))
        ):
            return False
        return self.selector is not None and is_selected(self.selector, kind.labels)


Contribution: TypeAlias = tuple[str | None, int]
"""Topology key and weight."""

Matcher: TypeAlias = Callable[[PodKind, ObjectStore], Sequence[Contribution]]


Candidates: TypeAlias = Callable[[PodKinds], AbstractSet[int]]
"""Finds the kinds that may match."""


def pods_matcher(part: Mapping[str, Any]) -> Matcher:
    """Pods that match all terms, each counting *weight* in one topology."""
    terms = [
        _PodTerm(
            _selector(term["selector"]),
            frozenset(term["namespaces"]),
            _selector(term["namespace_selector"]),
        )
        for term in part["terms"]
    ]
    contribution = [(part["topology"], int(part["weight"]))]
    counts_terminating = bool(part["terminating"])

    def match(kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        if kind.is_terminating and not counts_terminating:
            return ()
        if not terms or not all(term.matches(kind, objects) for term in terms):
            return ()
        return contribution

    return match


def candidates_of(part: Mapping[str, Any]) -> Candidates:
    """Finds the kinds that the matcher of *part* may count: others it does not."""
    if part["kind"] == "terms":
        labels = part["pod"]["labels"]
        return lambda kinds: kinds.with_terms.matching(labels)
    selectors = [term["selector"] for term in part["terms"]]
    asked = (first_label((plain or {}).get("labels") or {}) for plain in selectors)
    label = next((one for one in asked if one is not None), None)
    if label is None:
        return lambda kinds: kinds.slots_of.keys()
    return lambda kinds: kinds.having(label)


def _existing_terms(of: str, affinity: Affinity) -> Sequence[tuple[PodAffinityTerm, int]]:
    rules = affinity.pod_anti_affinity if "anti" in of else affinity.pod_affinity
    if rules is None:
        return ()
    if of.startswith("required"):
        return [(term, 1) for term in rules.required]
    return [(p.pod_affinity_term, p.weight) for p in rules.preferred]


def terms_matcher(part: Mapping[str, Any]) -> Matcher:
    """Terms of placed pods that match the incoming pod, each in the topology of the term."""
    of, weight = part["of"], int(part["weight"])
    namespace, labels = part["pod"]["namespace"], part["pod"]["labels"]

    def match(kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        if kind.affinity is None:
            return ()
        result: list[Contribution] = []
        for term, own_weight in _existing_terms(of, kind.affinity):
            namespaces = frozenset(term.namespaces)
            if not term.namespaces and term.namespace_selector is None:
                namespaces = frozenset((kind.namespace,))
            is_there = namespace in namespaces or (
                term.namespace_selector is not None
                and selects(term.namespace_selector, _namespace_labels(objects, namespace))
            )
            if is_there and selects(term.label_selector, labels):
                result.append((term.topology_key, weight * own_weight))
        return result

    return match
