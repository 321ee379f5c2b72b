"""The hint of InterPodAffinity: other pods come, go and change; nodes change domains.

A pod may be rejected for three reasons, and only the first two are written on it: required pods
are not there, unwanted pods are, or a placed pod does not want it near. Unlike kube-scheduler's, it
looks at the labels of namespaces, takes one anti-affinity term for enough, and sees that a pod that
wants its like near may be the first of them again when the last one goes.

Source: `EventsToRegister` of kube-scheduler's InterPodAffinity.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.model.node import Node
from engine.model.objects import Affinity, PodAffinity, PodAffinityTerm
from engine.model.pod import Pod
from engine.model.selectors import SelectorError, matches_label_selector
from engine.queueing.events import ADD, ASSIGNED_POD, DELETE, NODE, UPDATE
from engine.queueing.hints.interest import OWN_POD, Around, Table, on

_Terms = Sequence[PodAffinityTerm]
_NO_AFFINITY: Final = Affinity()


def _required(affinity: PodAffinity | None) -> _Terms:
    return () if affinity is None else affinity.required


def _near(pod: Pod) -> _Terms:
    return _required((pod.manifest.spec.affinity or _NO_AFFINITY).pod_affinity)


def _apart(pod: Pod) -> _Terms:
    return _required((pod.manifest.spec.affinity or _NO_AFFINITY).pod_anti_affinity)


def _means(term: PodAffinityTerm, owner: Pod, other: Pod, around: Around) -> bool:
    """If a term of *owner* means *other*. Raises `SelectorError` if it cannot be read."""
    is_there = other.namespace in term.namespaces
    if not term.namespaces and term.namespace_selector is None:
        is_there = other.namespace == owner.namespace
    elif not is_there and term.namespace_selector is not None:
        # The filter, as kube-scheduler's, holds a pod's own terms against a namespace without
        # labels too: what takes that (NotIn, DoesNotExist) takes every namespace.
        selector, labels = term.namespace_selector, around.namespace_labels(other.namespace)
        is_there = matches_label_selector(selector, labels) or matches_label_selector(selector, {})
    return is_there and matches_label_selector(term.label_selector, other.labels)


def _means_all(terms: _Terms, owner: Pod, other: Pod, around: Around) -> bool:
    """If there are terms, and each means *other*: affinity asks for one pod that is all of it."""
    return bool(terms) and all(_means(term, owner, other, around) for term in terms)


def _means_any(terms: _Terms, owner: Pod, other: Pod, around: Around) -> bool:
    return any(_means(term, owner, other, around) for term in terms)


def _wants_its_like(pod: Pod, around: Around) -> bool:
    return _means_all(_near(pod), pod, pod, around)


def _after_pod(around: Around, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """If a placed (or nominated) pod that came, changed its labels or went makes a difference."""
    if not any(p is not None and (p.node_name or p.nominated_node_name) for p in (old, new)):
        return False
    near, apart = _near(pod), _apart(pod)
    try:
        was_wanted = old is not None and _means_all(near, pod, old, around)
        is_wanted = new is not None and _means_all(near, pod, new, around)
        if is_wanted and not was_wanted:
            return True
        if was_wanted and not is_wanted and _wants_its_like(pod, around):
            return True
        if old is not None and any(
            _means(term, pod, old, around)
            and not (new is not None and _means(term, pod, new, around))
            for term in apart
        ):
            return True
        return (
            old is not None and new is None and _means_any(_apart(old), old, pod, around)
        )  # it did not want this pod near
    except SelectorError:
        return True


def _after_node_add(around: Around, pod: Pod, old: None, new: Node) -> bool:
    return all(term.topology_key in new.labels for term in _near(pod))


def _after_node_label(around: Around, pod: Pod, old: Node, new: Node) -> bool:
    before, after = old.labels, new.labels
    if any(
        term.topology_key in after and before.get(term.topology_key) != after[term.topology_key]
        for term in _near(pod)
    ):
        return True
    # The node, or another one of its old domain, may be free of pods that are not to be near.
    # Whose terms rejected the pod is not known here: those of placed pods may name any key.
    return any(after.get(key) != value for key, value in before.items())


def _after_namespace(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    before: Mapping[str, str] = {} if old is None else old.metadata.labels
    after: Mapping[str, str] = {} if new is None else new.metadata.labels
    if before == after:
        return False
    if (old if new is None else new).metadata.name == pod.namespace:
        return True  # a term of a placed pod may have meant it by these labels
    selectors = [t.namespace_selector for t in (*_near(pod), *_apart(pod))]
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
        on(OWN_POD, "UpdatePodLabel"),
        on(NODE, ADD, check=_after_node_add),
        on(NODE, "UpdateNodeLabel", check=_after_node_label),
        on(NODE, DELETE),  # its pods are in no domain any more, for as long as they are there
        on("Namespace", ADD, UPDATE, DELETE, check=_after_namespace),
    ),
}
