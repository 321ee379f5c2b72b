"""Publishes facts to the policies: reported to the kernel, read from its cache.

Owns no state; facts that are published already are not reported again.
"""

from collections.abc import Callable, Mapping, Sequence

from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    Event,
    NodeFactsChanged,
    OtherFactsChanged,
    PodFactsChanged,
    PodTypeLabelsChanged,
)
from engine.core.model.fact import Facts, NodeFacts
from engine.core.model.node_info import NodeInfo


class FactBoard:
    """Shows facts to the policies.

    Args:
        cache: The kernel's.
        report: Takes events for the kernel.
    """

    def __init__(self, cache: Cache, report: Callable[[Event], object]) -> None:
        self._cache = cache
        self._report = report

    def set_node_facts(self, name: str, facts: NodeFacts) -> None:
        """Show *facts* for the node *name*, also if it comes later."""
        if self._cache.facts_of_node(name) != facts:
            self._report(NodeFactsChanged(name, facts))

    def set_pod_facts(self, key: str, facts: Facts) -> None:
        """Show *facts* for the pod of *key*; those of other pods stay."""
        self._report(PodFactsChanged(key, facts))

    def set_other_facts(
        self, *, cluster: Facts, types: Mapping[str, Facts], pods: Mapping[str, Facts]
    ) -> None:
        """Show these facts of the cluster, of pods by type, and of pods by key."""
        self._report(OtherFactsChanged(cluster, types, pods))

    def set_pod_type_labels(self, labels: Sequence[str]) -> None:
        """Set the labels that name a pod's type: the first one that the pod has counts."""
        self._report(PodTypeLabelsChanged(tuple(labels)))

    def facts_of_node(self, name: str) -> NodeFacts:
        """The facts of the node *name* as they are shown."""
        return self._cache.facts_of_node(name)

    def node_info(self, name: str) -> NodeInfo | None:
        """The NodeInfo of *name* as it is now, or None."""
        return self._cache.node_info(name)
