"""What filters say of pods on some nodes because of pods on other nodes, and which pods those are.

Owns the question, not the answer: a pod that is not counted, or in another domain, cannot matter.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.caching.counters import Counters
from engine.core.model.pod import Pod
from engine.core.scheduling.counted import CounterUse

#: The fields of a counter that a pod changes in its own domain only, but for the first one.
OF_DOMAIN: Final = frozenset({"here", "is_empty"})


@dataclass(frozen=True, slots=True)
class WatchedCounter:
    """A counter that the hooks were given for one of the pods.

    Attributes:
        use: The counter.
        is_filtered: A filter reads what it counts, not only if it counts anything.
        is_of_domain: The hooks read nothing of it that a pod changes outside its own domain.
    """

    use: CounterUse
    is_filtered: bool
    is_of_domain: bool = True


@dataclass(frozen=True, slots=True)
class CrossNodeDependencies:
    """What decides about some pods, each on its node, besides these nodes and their pods.

    Attributes:
        decided_by: Equal as long as no pod came that is the first one somewhere.
        watched: The counters behind it.
        empty: The keys of those that counted nothing.
        counters: Know what they count.
    """

    decided_by: tuple[object, ...]
    watched: Sequence[WatchedCounter]
    empty: Collection[bytes]
    counters: Counters

    def is_first_counted(self, slot: int, pod: Pod) -> bool:
        """True if *pod*, on the node of *slot*, may change which of them count anything.

        It is the first that is counted, or leaves none of the nodes that are.
        """
        return any(
            (one.use.key in self.empty or one.use.counts_nodes) and self._topologies(one, slot, pod)
            for one in self.watched
        )

    def affected_topologies(self, slot: int, pod: Pod) -> set[str] | None:
        """The topologies in whose domains *pod*, on the node of *slot*, matters; None: anywhere."""
        found: set[str] = set()
        for one in self.watched:
            keys = self._topologies(one, slot, pod)
            if keys and (one.use.key in self.empty or not one.is_of_domain):
                return None
            if one.is_filtered:
                found.update(key for key in keys if key is not None)
        return found

    def _topologies(self, one: WatchedCounter, slot: int, pod: Pod) -> set[str | None]:
        return self.counters.topologies(one.use.key, one.use.parts, slot, pod)
