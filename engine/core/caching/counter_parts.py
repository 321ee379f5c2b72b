"""What a counter counts: pods by their labels, what they request, their affinity terms, or nodes.

Owns the meaning of the parts that `count_pods`, `sum_requests`, `count_terms` and `count_matches`
of a policy make: given a kind of pod, in which topologies it counts, and how much; and of those of
`count_nodes`: whether a node counts.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.core.caching.kind_index import first_label
from engine.core.caching.objects import ObjectStore
from engine.core.caching.own_terms import Contribution, OwnTerms
from engine.core.caching.pod_kinds import PodKind, PodKinds
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import LabelSelector, LabelSelectorRequirement
from engine.core.model.pod import Pod
from engine.core.model.selectors import SelectorError, check_label_selector, is_selected


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


Matcher: TypeAlias = Callable[[PodKind, ObjectStore], Sequence[Contribution]]


Candidates: TypeAlias = Callable[[PodKinds], AbstractSet[int]]
"""Finds the kinds that may match."""


# What a pod adds to a sum at most: 128 TiB, so that even those of 65,536 pods fit in 64 bits.
_MOST_OF_POD: Final = 1 << 47


def pods_matcher(part: Mapping[str, Any]) -> Matcher:
    """Pods that match all terms, each counting *weight* in one topology.

    With a *resource* each counts that often what it requests of it; one that requests none does
    not count.
    """
    terms = [
        _PodTerm(
            _selector(term["selector"]),
            frozenset(term["namespaces"]),
            _selector(term["namespace_selector"]),
        )
        for term in part["terms"]
    ]
    topology, weight, resource = part["topology"], int(part["weight"]), part.get("resource")
    contribution = [(topology, weight)]
    counts_terminating = bool(part["terminating"])

    def match(kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        if kind.is_terminating and not counts_terminating:
            return ()
        if not terms or not all(term.matches(kind, objects) for term in terms):
            return ()
        if resource is None:
            return contribution
        amount = weight * kind.requests.get(resource, 0)
        return [(topology, max(-_MOST_OF_POD, min(amount, _MOST_OF_POD)))] if amount else ()

    return match


def candidates_of(part: Mapping[str, Any]) -> Candidates:
    """Finds the kinds that the matcher of *part* may count: others it does not."""
    if part["kind"] == "terms":
        labels = part["pod"]["labels"]
        return lambda kinds: kinds.with_terms.matching(labels)
    if part["kind"] == "matches":
        asked_labels = part["own"].labels(part["of"])
        if asked_labels is None:
            return lambda kinds: kinds.slots_of.keys()
        return lambda kinds: set().union(*map(kinds.having, asked_labels))
    selectors = [term["selector"] for term in part["terms"]]
    asked = (first_label((plain or {}).get("labels") or {}) for plain in selectors)
    label = next((one for one in asked if one is not None), None)
    if label is None:
        return lambda kinds: kinds.slots_of.keys()
    return lambda kinds: kinds.having(label)


def matches_matcher(part: Mapping[str, Any]) -> Matcher:
    """Placed pods that match the incoming pod's own terms: `own`, an `OwnTerms`."""
    of, weight, topology = part["of"], int(part["weight"]), part["topology"]
    own: OwnTerms = part["own"]
    is_joint = of == "required_affinity"

    def match(kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        where = kind.namespace, kind.labels, objects
        if not is_joint:
            found = own.matching(of, *where)
        else:
            keys = own.topologies(of)
            found = [(key, 1) for key in keys] if keys and own.match_all(*where) else []
        if topology is not None and found:
            found = [(topology, 1 if is_joint else sum(amount for _, amount in found))]
        return [(key, weight * amount) for key, amount in found]

    return match


def matcher_of(part: Mapping[str, Any]) -> Matcher:
    """What *part* counts of a kind of pods."""
    return _MATCHERS[part["kind"]](part)


def terms_matcher(part: Mapping[str, Any]) -> Matcher:
    """Terms of placed pods that match the incoming pod, each in the topology of the term."""
    of, weight = part["of"], int(part["weight"])
    namespace, labels = part["pod"]["namespace"], part["pod"]["labels"]

    def match(kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        found = kind.own.matching(of, namespace, labels, objects)
        return [(key, weight * amount) for key, amount in found]

    return match


_MATCHERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Matcher]]] = {
    "pods": pods_matcher,
    "terms": terms_matcher,
    "matches": matches_matcher,
}


class NodeTest:
    """Whether a node is one that a part of `count_nodes` counts.

    Attributes:
        contribution: In which topology, and how much.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        self.contribution: Contribution = part["topology"], int(part["weight"])
        self._is_selective = part["selector"] is not None
        self._selector = _selector(part["selector"])
        self._free: Mapping[str, int] = part["free"]

    def holds(self, info: NodeInfo | None) -> bool:
        """True if the node of *info* counts as it is there, with its pods."""
        if info is None or info.node is None:
            return False
        if self._is_selective and not (
            self._selector is not None and is_selected(self._selector, info.node.labels)
        ):
            return False
        offered, taken = info.node.allocatable, info.requested
        for name, least in self._free.items():
            used = info.pod_count if name == "pods" else taken.get(name, 0)
            if offered.get(name, 0) - used < least:
                return False
        return True

    def depends_on(self, pod: Pod) -> bool:
        """True if the node may count without *pod* and not with it."""
        return any(name == "pods" or pod.running_requests.get(name) for name in self._free)
