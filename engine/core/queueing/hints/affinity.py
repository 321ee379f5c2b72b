"""The hint of InterPodAffinity: other pods come, go and change; nodes change domains.

A pod may be rejected for three reasons, and only the first two are in its own spec: no pod matches
its affinity, a pod matches its anti-affinity, or it matches the anti-affinity of a placed pod.
Unlike kube-scheduler's, this hint is satisfied if a placed pod stops matching one of several
anti-affinity terms, and knows that a pod which matches its own affinity may be placed as the first
of its group again when the last one goes; like that of 1.38, and unlike older ones, it looks at the
labels of namespaces.

Source: `EventsToRegister` of kube-scheduler's InterPodAffinity.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from engine.core.model.event_kinds import ASSIGNED_POD, NODE, TARGET_POD
from engine.core.model.node import Node
from engine.core.model.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from engine.core.model.pod import Pod
from engine.core.model.selectors import (
    MOST_LABELS,
    SelectorError,
    SelectorSet,
    check_label_selector,
    is_selected,
    matches_label_selector,
)
from engine.core.queueing.events import ADD, DELETE, UPDATE
from engine.core.queueing.hints.interest import ClusterContext, Table, on

_NO_AFFINITY: Final = Affinity()
_ANYTHING: Final = LabelSelector()


def _required(affinity: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return () if affinity is None else affinity.required


def required_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    """The terms of which a node has to satisfy all."""
    return _required((pod.manifest.spec.affinity or _NO_AFFINITY).pod_affinity)


def required_anti_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    """The terms of which a node may satisfy none."""
    return _required((pod.manifest.spec.affinity or _NO_AFFINITY).pod_anti_affinity)


class _Terms:
    """The required terms of one pod, to be matched against one other pod after another.

    There may be a thousand terms, and hundreds of events, so the parsed selectors are kept. Raises
    `SelectorError` if a term cannot be read.

    Attributes:
        near: The bits of the affinity terms in what `matching` returns.
        apart: The bits of the anti-affinity terms.
    """

    def __init__(
        self, owner: Pod, near: Sequence[PodAffinityTerm], apart: Sequence[PodAffinityTerm]
    ) -> None:
        self.near = (1 << len(near)) - 1
        self.apart = ((1 << len(apart)) - 1) << len(near)
        self._namespace = owner.namespace
        self._terms = [*near, *apart]
        self._selectors = SelectorSet([term.label_selector for term in self._terms])
        for term in self._terms:
            if term.namespace_selector is not None:
                check_label_selector(term.namespace_selector)
        self._there: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}

    def matching(self, other: Pod, context: ClusterContext) -> int:
        """The terms that match *other*, a bit for each."""
        labels = context.namespace_labels(other.namespace)
        key = (other.namespace, frozenset(labels.items()))
        there = self._there.get(key)
        if there is None:
            if len(self._there) >= MOST_LABELS:
                self._there.clear()
            there = self._there[key] = sum(
                1 << place
                for place, term in enumerate(self._terms)
                if self._is_there(term, other.namespace, labels)
            )
        return self._selectors.matching(other.labels) & there

    def _is_there(self, term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        selector = term.namespace_selector
        if not term.namespaces and selector is None:
            return namespace == self._namespace
        if namespace in term.namespaces or selector is None:
            return namespace in term.namespaces
        return is_selected(selector, labels)

    def is_unsure(self, other: Pod, context: ClusterContext) -> bool:
        """Whether a term goes by the labels of the namespace of *other*, which is not known."""
        if context.objects.get("namespaces", other.namespace) is not None:
            return False
        unsure = sum(
            1 << place
            for place, term in enumerate(self._terms)
            if term.namespace_selector not in (None, _ANYTHING)
            and other.namespace not in term.namespaces
        )
        return bool(self._selectors.matching(other.labels) & unsure)

    def satisfies(self, matching: int) -> bool:
        """Whether there are affinity terms and a pod matches all of them, as it has to."""
        return bool(self.near) and matching & self.near == self.near


_known_terms: WeakKeyDictionary[Pod, _Terms] = WeakKeyDictionary()


def _terms_of(pod: Pod) -> _Terms | None:
    """The required terms of *pod*; None if it has none."""
    if pod.manifest.spec.affinity is None:
        return None
    found = _known_terms.get(pod)
    if found is None:
        near, apart = required_affinity(pod), required_anti_affinity(pod)
        if not near and not apart:
            return None
        found = _known_terms[pod] = _Terms(pod, near, apart)
    return found


def _after_pod(context: ClusterContext, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """Whether a placed or nominated pod that came, changed its labels or went may help."""
    if not any(p is not None and (p.node_name or p.nominated_node_name) for p in (old, new)):
        return False
    retries_unsure = context.objects.behaves.unknown_namespaces_retry
    try:
        terms = _terms_of(pod)
        if terms is not None:
            if retries_unsure and any(p and terms.is_unsure(p, context) for p in (old, new)):
                return True
            before = 0 if old is None else terms.matching(old, context)
            after = 0 if new is None else terms.matching(new, context)
            was_wanted, is_wanted = terms.satisfies(before), terms.satisfies(after)
            if is_wanted and not was_wanted:
                return True
            if was_wanted and not is_wanted and terms.satisfies(terms.matching(pod, context)):
                return True  # as the first pod that matches, it satisfies its own terms again
            if before & ~after & terms.apart:
                return True
        if old is None or new is not None or not required_anti_affinity(old):
            return False
        gone = _terms_of(old)
        # Its anti-affinity may have rejected this pod.
        return gone is not None and (
            bool(gone.matching(pod, context) & gone.apart)
            or (retries_unsure and gone.is_unsure(pod, context))
        )
    except SelectorError:
        return True


def _after_node_add(context: ClusterContext, pod: Pod, old: None, new: Node) -> bool:
    return all(term.topology_key in new.labels for term in required_affinity(pod))


def _after_node_label(context: ClusterContext, pod: Pod, old: Node, new: Node) -> bool:
    before, after = old.labels, new.labels
    if any(
        term.topology_key in after and before.get(term.topology_key) != after[term.topology_key]
        for term in required_affinity(pod)
    ):
        return True
    # The node, or another one of its old domain, may have no pod left that anti-affinity forbids.
    # Whose terms rejected the pod is not known here: those of placed pods may use any key.
    return any(after.get(key) != value for key, value in before.items())


def _after_namespace(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    before: Mapping[str, str] = {} if old is None else old.metadata.labels
    after: Mapping[str, str] = {} if new is None else new.metadata.labels
    if before == after:
        return False
    if (old if new is None else new).metadata.name == pod.namespace:
        return True  # a term of a placed pod may have matched it by these labels
    selectors = [
        t.namespace_selector for t in (*required_affinity(pod), *required_anti_affinity(pod))
    ]
    try:
        return any(
            matches_label_selector(one, before) != matches_label_selector(one, after)
            for one in selectors
            if one is not None
        )
    except SelectorError:
        return True


HINTS: Final[Table] = {
    "InterPodAffinity": (
        on(ASSIGNED_POD, ADD, DELETE, "UpdatePodLabel", check=_after_pod),
        on(TARGET_POD, "UpdatePodLabel"),
        on(NODE, ADD, check=_after_node_add),
        on(NODE, "UpdateNodeLabel", check=_after_node_label),
        on(NODE, DELETE),  # pods that are still there are in no domain any more
        on("Namespace", ADD, UPDATE, DELETE, check=_after_namespace),
    ),
}
