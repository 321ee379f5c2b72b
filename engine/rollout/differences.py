"""How a candidate's decision about a pod differs from the one of the policies in force.

Owns the kinds of differences. Reasons of pods that have no node either way are no difference.
"""

from collections.abc import Hashable
from typing import Protocol

from engine.rollout.measures import FAILED, MOVED, NEWLY_PENDING, NEWLY_PLACED, OTHER_VICTIMS


class Decided(Protocol):
    """What became of a pod, as far as it is compared."""

    @property
    def node(self) -> str | None:
        """The node that the pod gets; None or "" if it gets none."""
        ...

    @property
    def has_failed(self) -> bool:
        """True if a policy's failure costs the pod this attempt."""
        ...

    @property
    def evictions(self) -> Hashable:
        """Which pods would be evicted on which node; equal for the same ones."""
        ...


def kind_of(before: Decided, after: Decided) -> str:
    """The kind of the difference, one of `measures.KINDS`; "" if there is none."""
    if after.has_failed:
        return "" if before.has_failed else FAILED
    if not before.node and not after.node:
        return "" if before.evictions == after.evictions else OTHER_VICTIMS
    if not before.node:
        return NEWLY_PLACED
    if not after.node:
        return NEWLY_PENDING
    return "" if before.node == after.node else MOVED
