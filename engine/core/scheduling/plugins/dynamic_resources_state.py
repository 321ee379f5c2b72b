"""What DynamicResources knows of one pod in one cycle.

Owns the record that passes from `pre_filter` to the later steps. The answers of `filter` are kept
in it by node; they are the same whenever a node is asked about, so it does not matter which were.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from engine.core.caching.snapshot import Snapshot
from engine.core.model.devices import AllocationResult, ConsumerReference, ResourceClaim
from engine.core.model.objects import NodeSelector
from engine.core.model.pod import Pod
from engine.core.scheduling.devices.claims import Claims
from engine.core.scheduling.devices.extended import RequestMapping, ResourceClasses
from engine.core.scheduling.devices.planning import ClassLookup
from engine.core.scheduling.devices.pools import SliceIndex
from engine.core.scheduling.devices.search import ClaimChoice


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What the pod gets on one node: allocations by the index of the claim.

    `extended` is the claim for the pod's extended resources as this node needs it, if it does.
    """

    allocations: dict[int, AllocationResult]
    extended: ResourceClaim | None = None
    mappings: tuple[RequestMapping, ...] = ()


Choices = list[ClaimChoice] | None
SearchKey = tuple[int, int]
"""The identities of a tuple of pools, which the slice index keeps, and of a claim of
`extended_for`, or of None."""


@dataclass(slots=True)
class PodState:
    """A pod's claims, and what is found out about them.

    Attributes:
        pod: The pod.
        snapshot: What it is decided on.
        claims: Its claims in order; the one for extended resources comes last.
        known: All claims of the cluster.
        slices, classes, class_of: The devices of the cluster and their classes.
        filter_seconds, binding_seconds: The profile's time-outs.
        extended_index: Where that one is; None if there is none.
        extended_resources: What the pod requests of resources that devices may stand for.
        extended_for: The claim for those of them that a node does not offer itself, and what it
            serves.
        reaches: By index, the nodes of the claims that are allocated already.
        named: By index, the names of the nodes of allocations that say no more than names, those
            of `shared` included.
        shared: By index, what is on its way into claims that other pods use too.
        steps_left: How much searching the pod may still cause.
        unavailable: Claims that are allocated and kept the pod from some node.
        answers: By node, of those that were asked about.
        searches: What was found by what a node reaches, where nothing else matters.
        looks: By the identity of what a node reaches, how it looks to a search.
        written: By index, the claims as they were written for the pod.
        group: The name of its PodGroup, where a group may use a claim as one; else "".
        by_group: By key, the claims that the group uses as one, and the group as their user.
        devices_at: Where the log of all devices was that the answers go by.
    """

    pod: Pod
    snapshot: Snapshot
    claims: list[ResourceClaim]
    known: Claims
    slices: SliceIndex
    classes: ResourceClasses
    class_of: ClassLookup
    filter_seconds: float
    binding_seconds: float
    steps_left: int
    devices_at: int
    extended_index: int | None = None
    extended_resources: dict[str, int] = field(default_factory=dict)
    extended_for: dict[tuple[str, ...], tuple[ResourceClaim, tuple[RequestMapping, ...]]] = field(
        default_factory=dict
    )
    reaches: dict[int, NodeSelector] = field(default_factory=dict)
    named: dict[int, frozenset[str]] = field(default_factory=dict)
    shared: dict[int, AllocationResult] = field(default_factory=dict)
    unavailable: set[int] = field(default_factory=set)
    answers: dict[str, NodeAnswer] = field(default_factory=dict)
    searches: dict[SearchKey, Choices] = field(default_factory=dict)
    looks: dict[int, tuple[Hashable, ...]] = field(default_factory=dict)
    written: dict[int, ResourceClaim] = field(default_factory=dict)
    group: str = ""
    by_group: dict[str, ConsumerReference] = field(default_factory=dict)

    @property
    def user_claims(self) -> list[ResourceClaim]:
        """The claims without the one for extended resources."""
        return self.claims if self.extended_index is None else self.claims[:-1]

    @property
    def extended_claim(self) -> ResourceClaim | None:
        """The claim for extended resources, or None."""
        return None if self.extended_index is None else self.claims[self.extended_index]

    def user_of(self, claim: ResourceClaim) -> ConsumerReference | None:
        """The PodGroup as the user of *claim*; None if the pod is its user.

        As in kube-scheduler, one that is there already counts by its name.
        """
        known = claim.use_by_group(self.group) if self.group else None
        return known or self.by_group.get(claim.key)

    def sought(self) -> list[int]:
        """The indexes of the claims that devices are searched for: those with nothing to share."""
        return [i for i in self.unallocated() if i not in self.shared]

    def unallocated(self) -> list[int]:
        """The indexes of the claims that have nothing yet."""
        return [i for i, claim in enumerate(self.claims) if claim.allocation is None]
