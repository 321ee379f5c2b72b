"""Disruption budgets: which evictions would violate one.

Owns kube-scheduler's split of pods by the budgets that cover them.
"""

from collections.abc import Iterable, Sequence

from engine.core.caching.snapshot import Snapshot
from engine.core.model.objects import PodDisruptionBudget
from engine.core.model.pod import Pod
from engine.core.model.selectors import selects

KIND = "poddisruptionbudgets"


class Budgets:
    """The disruption budgets of the cluster, as they are at the start of a dry run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.generation = snapshot.objects.generation(KIND)
        self._behaves = snapshot.objects.behaves
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in snapshot.objects.list(KIND):
            if not (self._behaves.budgets_of_everything or _selects_some(budget)):
                continue
            self._by_namespace.setdefault(budget.metadata.namespace, []).append(budget)

    @property
    def is_empty(self) -> bool:
        """True if there are none."""
        return not self._by_namespace

    def split(self, pods: Sequence[Pod], sequence: Iterable[int]) -> tuple[list[int], list[int]]:
        """The places of pods whose eviction would violate a budget, and the others.

        Each matching budget is used up by the pods in the order of *sequence*, their places, as if
        all of them were evicted.
        """
        violating: list[int] = []
        others: list[int] = []
        left: dict[int, int] = {}
        for place in sequence:
            pod = pods[place]
            is_violating = False
            may_count = pod.labels or self._behaves.budgets_cover_pods_without_labels
            for budget in self._by_namespace.get(pod.namespace, ()) if may_count else ():
                if pod.name in budget.status.disrupted_pods or not _covers(budget, pod):
                    continue
                allowed = left.get(id(budget), budget.status.disruptions_allowed) - 1
                left[id(budget)] = allowed
                if allowed < 0:
                    is_violating = True
                    break
            (violating if is_violating else others).append(place)
        return violating, others


def _covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    return selector is not None and selects(selector, pod.labels)


def _selects_some(budget: PodDisruptionBudget) -> bool:
    """True if its selector names labels: it is neither missing nor empty."""
    selector = budget.spec.selector
    return selector is not None and bool(selector.match_labels or selector.match_expressions)
