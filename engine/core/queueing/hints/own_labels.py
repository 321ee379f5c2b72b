"""Which labels the hints of a waiting pod look at: its own, and those of the pod of an event.

Jobs and StatefulSets give each pod a label of its own; pods that differ in labels that no hint
looks at are affected by events alike. Thousands may each wait for a pod with a label of its own;
an event about one of these pods concerns only those that wait for its labels.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from engine.core.model.event_kinds import ASSIGNED_POD
from engine.core.model.objects import LabelSelector
from engine.core.model.pod import Pod
from engine.core.model.selectors import SelectorError, check_label_selector
from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.hints.affinity import required_affinity, required_anti_affinity

Label = tuple[str, str]
Labels = tuple[Label, ...]

_ANYTHING: Final = LabelSelector()


def labels_looked_at(pod: Pod, rejectors: Iterable[str]) -> Labels:
    """The labels of *pod* that the hints of *rejectors* look at, but for `is_by_label`."""
    if not pod.labels:
        return ()
    keys: set[str] = set()
    for plugin in rejectors:
        if plugin == "InterPodAffinity":
            # The first pod that matches satisfies its own terms.
            for term in required_affinity(pod):
                keys.update(_keys(term.label_selector))
        elif plugin == "PodTopologySpread":
            own = pod.manifest.spec.topology_spread_constraints
            if not own:
                keys.update(pod.labels)  # services select it by any
            for constraint in own:
                keys.update(constraint.match_label_keys)
    return tuple(sorted((key, pod.labels[key]) for key in keys & pod.labels.keys()))


def is_by_label(old: Any, new: Any, rejectors: Iterable[str]) -> bool:
    """True if what an event means to a waiting pod may depend on any of its labels.

    The anti-affinity of a pod that is gone may have rejected it.
    """
    is_gone = new is None and isinstance(old, Pod)
    return is_gone and "InterPodAffinity" in rejectors and bool(required_anti_affinity(old))


def label_waited_for(pod: Pod, rejectors: Iterable[str]) -> Label | None:
    """A label without which no placed pod helps *pod*, but for `is_by_label`; None if any may."""
    if list(rejectors) != ["InterPodAffinity"] or required_anti_affinity(pod):
        return None
    terms = required_affinity(pod)
    selectors = [one.label_selector or _ANYTHING for one in terms]
    try:
        for selector in (*selectors, *(one.namespace_selector or _ANYTHING for one in terms)):
            check_label_selector(selector)
    except SelectorError:
        return None
    # A pod has to match every term, so any label of any of them will do.
    return next((label for one in selectors for label in one.match_labels.items()), None)


def labels_offered(event: ClusterEvent, old: Any, new: Any) -> frozenset[Label] | None:
    """The labels that the placed pod of an event has, or had; None if it helps without any.

    A pod that is gone may have kept others away, whatever these wait for.
    """
    if event.resource != ASSIGNED_POD or is_by_label(old, new, ("InterPodAffinity",)):
        return None
    return frozenset(item for pod in (old, new) if pod is not None for item in pod.labels.items())


def _keys(selector: LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels
        yield from (one.key for one in selector.match_expressions)
