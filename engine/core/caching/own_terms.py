"""The affinity terms of a pod, to be held against the labels of one kind of pods after another.

Owns which terms match. Creators of pods decide how many terms there are: reading them costs a pass
over them, once; then a kind of pods costs what it has of labels, and not what the pod has of terms.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from engine.core.caching.kind_index import Label, first_label, terms_of_kind
from engine.core.caching.objects import ObjectStore
from engine.core.model.objects import Affinity, LabelSelector, PodAffinityTerm
from engine.core.model.pod import Pod
from engine.core.model.selectors import SelectorError, check_label_selector, is_selected

Contribution = tuple[str | None, int]
"""Topology key and weight."""

# Labels by which kinds are looked up; for more of them, looking at every kind is cheaper.
_MOST_LABELS: Final = 8
# With its selector, as decoded and as read.
_BYTES_OF_TERM: Final = 1024


class _Term:
    """A term that can be read. Namespaces as the API means them: none named is the pod's own."""

    __slots__ = ("key", "namespace_selector", "namespaces", "selector", "weight")

    def __init__(
        self, term: PodAffinityTerm, selector: LabelSelector, weight: int, namespace: str
    ) -> None:
        self.key = term.topology_key
        self.selector = selector
        self.weight = weight
        of_namespaces = term.namespace_selector
        is_own = not term.namespaces and of_namespaces is None
        self.namespaces: Sequence[str] = (namespace,) if is_own else term.namespaces
        self.namespace_selector = _readable(of_namespaces)

    def matches(self, namespace: str, labels: Mapping[str, str], objects: ObjectStore) -> bool:
        if namespace not in self.namespaces:
            if self.namespace_selector is None:
                return False
            found = objects.get("namespaces", namespace)
            of_namespace = {} if found is None else found.metadata.labels
            if not is_selected(self.namespace_selector, of_namespace):
                return False
        return is_selected(self.selector, labels)


class _Terms:
    """The terms of one kind, found by a label that a pod must have to match.

    `can_all_match` is False if one of them can be met by no pod.
    """

    def __init__(self, terms: Sequence[tuple[PodAffinityTerm, int]], namespace: str) -> None:
        self.topologies = list(dict.fromkeys(term.topology_key for term, _ in terms))
        self.can_all_match = True
        self.by_label: dict[Label, list[_Term]] = {}
        self.others: list[_Term] = []  # that name no label
        for term, weight in terms:
            selector = _readable(term.label_selector)
            if selector is None:
                self.can_all_match = False
                continue
            label = first_label(selector.match_labels)
            places = self.others if label is None else self.by_label.setdefault(label, [])
            places.append(_Term(term, selector, weight, namespace))

    def match_all(self, namespace: str, labels: Mapping[str, str], objects: ObjectStore) -> bool:
        if not self.can_all_match or any(labels.get(k) != v for k, v in self.by_label):
            return False
        found = (self.others, *self.by_label.values())
        return all(t.matches(namespace, labels, objects) for terms in found for t in terms)

    def matching(
        self, namespace: str, labels: Mapping[str, str], objects: ObjectStore
    ) -> list[_Term]:
        found = [self.by_label[label] for label in labels.items() if label in self.by_label]
        terms = (term for each in (self.others, *found) for term in each)
        return [term for term in terms if term.matches(namespace, labels, objects)]


class OwnTerms:
    """The affinity terms of pods of *namespace*, read when they are first asked for."""

    def __init__(self, affinity: Affinity, namespace: str) -> None:
        self.affinity = affinity
        self.namespace = namespace
        self._terms: dict[str, _Terms] = {}
        self._name: bytes | None = None

    @property
    def name(self) -> bytes:
        """Equal for equal terms, short however many there are; empty for none."""
        if self._name is None:
            rules = self.affinity.pod_affinity, self.affinity.pod_anti_affinity
            self._name = b""
            if self.count():
                text = msgspec.json.encode(rules)
                self._name = hashlib.blake2b(text, digest_size=16).digest()
        return self._name

    def count(self) -> int:
        """How many terms there are, of all kinds."""
        rules = (self.affinity.pod_affinity, self.affinity.pod_anti_affinity)
        return sum(len(each.required) + len(each.preferred) for each in rules if each is not None)

    @property
    def nbytes(self) -> int:
        """Memory of the terms, about, once they were read."""
        return _BYTES_OF_TERM * self.count()

    def _of(self, kind: str) -> _Terms:
        terms = self._terms.get(kind)
        if terms is None:
            given = terms_of_kind(self.affinity, kind)
            terms = self._terms[kind] = _Terms(given, self.namespace)
        return terms

    def labels(self, kind: str) -> Sequence[Label] | None:
        """Labels of which a pod has one that matches terms of *kind*; None: any pod may match."""
        terms = self._of(kind)
        if terms.others or len(terms.by_label) > _MOST_LABELS:
            return None
        return list(terms.by_label)

    def topologies(self, kind: str) -> Sequence[str]:
        """The topology keys of the terms of *kind*, each once."""
        return self._of(kind).topologies

    def match_all(self, namespace: str, labels: Mapping[str, str], objects: ObjectStore) -> bool:
        """Whether all required affinity terms match a pod with *labels*."""
        return self._of("required_affinity").match_all(namespace, labels, objects)

    def matching(
        self, kind: str, namespace: str, labels: Mapping[str, str], objects: ObjectStore
    ) -> list[Contribution]:
        """By topology key, what the terms of *kind* that match a pod with *labels* weigh."""
        weights: dict[str | None, int] = {}
        for term in self._of(kind).matching(namespace, labels, objects):
            weights[term.key] = weights.get(term.key, 0) + term.weight
        return list(weights.items())


NO_TERMS: Final = OwnTerms(Affinity(), "")

_last = NO_TERMS  # replaced as a whole, for concurrent readers


def own_terms(pod: Pod) -> OwnTerms:
    """Those of *pod*. Asked for several times during a decision, they are read once.

    Not kept for longer than until another pod is asked about.
    """
    global _last
    affinity = pod.manifest.spec.affinity
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        _last = NO_TERMS
        return NO_TERMS
    found = _last
    if found.affinity is not affinity or found.namespace != pod.namespace:
        found = _last = OwnTerms(affinity, pod.namespace)
    return found


def _readable(selector: LabelSelector | None) -> LabelSelector | None:
    """*selector*; None if it cannot be read: it selects nothing then."""
    if selector is None:
        return None
    try:
        check_label_selector(selector)
    except SelectorError:
        return None
    return selector
