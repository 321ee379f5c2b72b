"""A pod group as it stands: what is wanted of it, and where its pods are.

Owns the record that policies see as `group`; counting is `kernel.pod_groups`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """A group of pods that are placed together.

    Attributes:
        name: Its name; groups of different namespaces and schedulers are different groups.
        exists: False while its pods name a PodGroup object that is not there.
        min_count: How many of its pods have to be placed together; 0: they go one by one.
        created_at: When its PodGroup, or else the oldest of its pods was made (epoch seconds).
        priority: The highest priority among its pods.
        pending: How many pods have no node; those that are being deleted do not count.
        waiting: How many have a node and wait in permit.
        placed: How many permit approved, those on their nodes included.
    """

    name: str
    exists: bool = True
    min_count: int = 0
    created_at: float = 0.0
    priority: int = 0
    pending: int = 0
    waiting: int = 0
    placed: int = 0

    @property
    def pod_count(self) -> int:
        """How many pods it has."""
        return self.pending + self.waiting + self.placed
