"""Which labels of a waiting pod its hints look at.

Jobs and StatefulSets give each pod a label of its own; pods that differ in labels that no hint
looks at are affected by events alike.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from engine.model.objects import LabelSelector
from engine.model.pod import Pod
from engine.queueing.hints.affinity import required_affinity, required_anti_affinity

Labels = tuple[tuple[str, str], ...]


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


def _keys(selector: LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels
        yield from (one.key for one in selector.match_expressions)
