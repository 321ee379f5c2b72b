"""One difference between two decisions about a pod: the record, and the words for its kinds.

Owns what every comparison of two sets of policies has in common: a plan, the shadow of a roll-out,
a simulation or a replay under both, and the search for a counterexample. What is decided, and what
else is known of it, is theirs. Two reasons for having no node either way are a difference only
where a comparison says so.
"""

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

MOVED, NEWLY_PENDING, NEWLY_PLACED = "moved", "newly_pending", "newly_placed"
OTHER_VICTIMS, FAILED = "other_victims", "failed"
#: The kinds of differences between two decisions about one pod, the gravest first.
KINDS: Final = (FAILED, NEWLY_PENDING, OTHER_VICTIMS, MOVED, NEWLY_PLACED)

SideT = TypeVar("SideT")


class Difference(msgspec.Struct, Generic[SideT], frozen=True):
    """A pod that other policies decide differently.

    Attributes:
        kind: The kind of difference.
        pod: `namespace/name`.
        before, after: What becomes of it under either.
        policy, hook: The policy, and its hook, that makes the difference; "" if it is not known.
        place: `file:line` of the rule; "" if it is not known.
        scores_before, scores_after: By policy, the weighted score of the node that each chooses.
        rival_before, rival_after: The score under either of the node that the other one chooses;
            empty if it was not asked, or if that node does not fit there.
    """

    kind: str
    pod: str
    before: SideT
    after: SideT
    policy: str = ""
    hook: str = ""
    place: str = ""
    scores_before: dict[str, int] = {}
    scores_after: dict[str, int] = {}
    rival_before: dict[str, int] = {}
    rival_after: dict[str, int] = {}


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
    """The kind of the difference, one of `KINDS`; "" if there is none."""
    if after.has_failed:
        return "" if before.has_failed else FAILED
    if not before.node and not after.node:
        return "" if before.evictions == after.evictions else OTHER_VICTIMS
    if not before.node:
        return NEWLY_PLACED
    if not after.node:
        return NEWLY_PENDING
    return "" if before.node == after.node else MOVED
