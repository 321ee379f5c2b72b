"""Which volume a claim gets on a node: the smallest one that suits it and that the node reaches.

Owns the choice among volumes that exist. What does not depend on the node is worked out once per
claim; volumes that say by a label which nodes reach them are found by that label.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from engine.core.model.objects import NodeSelector, NodeSelectorTerm
from engine.core.model.quantity import QuantityError, nano_value
from engine.core.model.selectors import (
    check_label_selector,
    matches_node_selector_term,
    requirement_problem,
    selects,
)
from engine.core.model.storage import STORAGE, PersistentVolume, PersistentVolumeClaim

AVAILABLE: Final = "Available"
_FILESYSTEM: Final = "Filesystem"

Labels = Mapping[str, str]


class Reach:
    """The nodes that a node selector matches, by their labels; compiled once.

    A node's name is unknown to it: a volume's affinity goes by labels alone.
    """

    __slots__ = ("_terms",)

    def __init__(self, selector: NodeSelector | None) -> None:
        # Per term: the values that labels must have, and what else must hold.
        self._terms: list[tuple[list[tuple[str, frozenset[str]]], NodeSelectorTerm | None]] | None
        if selector is None:
            self._terms = None
            return
        self._terms = []
        for term in selector.node_selector_terms:
            if not term.match_expressions and not term.match_fields:
                continue  # matches nothing, like a term that makes no sense
            if any(requirement_problem(r) is not None for r in term.match_expressions):
                continue
            wanted = [(r.key, frozenset(r.values)) for r in term.match_expressions if _is_in(r)]
            others = tuple(r for r in term.match_expressions if not _is_in(r))
            rest = NodeSelectorTerm(others, term.match_fields)
            self._terms.append((wanted, rest if others or term.match_fields else None))

    def includes(self, labels: Labels) -> bool:
        """True if a node with *labels* is matched."""
        if self._terms is None:
            return True
        return any(
            all(labels.get(key) in values for key, values in wanted)
            and (rest is None or matches_node_selector_term(rest, labels, ""))
            for wanted, rest in self._terms
        )

    @property
    def labels(self) -> frozenset[str]:
        """The labels of a node that it looks at."""
        if self._terms is None:
            return frozenset()
        return frozenset(
            key
            for wanted, rest in self._terms
            for key in (
                *(key for key, _ in wanted),
                *(r.key for r in (rest.match_expressions if rest is not None else ())),
            )
        )

    def pins(self) -> list[tuple[str, str]] | None:
        """Labels of which every matching node has one; None if there are none such."""
        if self._terms is None or not all(wanted for wanted, _ in self._terms):
            return None
        return [
            (wanted[0][0], value) for wanted, _ in self._terms for value in sorted(wanted[0][1])
        ]


def _is_in(requirement: object) -> bool:
    return getattr(requirement, "operator", "") == "In"


class Reaches:
    """The reach of each volume, made when it is first needed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[PersistentVolume, Reach]] = {}

    def of(self, volume: PersistentVolume) -> Reach:
        """The nodes that its affinity means."""
        name = volume.metadata.name
        known = self._known.get(name)
        if known is not None and known[0] is volume:
            return known[1]
        affinity = volume.spec.node_affinity
        reach = Reach(None if affinity is None else affinity.required)
        self._known[name] = volume, reach
        return reach

    def trim(self, most: int) -> None:
        """Forget everything if there is more than *most*."""
        if len(self._known) > most:
            self._known.clear()


def requested_nanos(claim: PersistentVolumeClaim) -> int:
    """How much storage *claim* asks for, in 10^-9 bytes; raises `QuantityError`."""
    return nano_value(claim.spec.resources.requests.get(STORAGE, 0))


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if *volume* names *claim* as its own."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and ref.name == claim.metadata.name
        and ref.namespace == claim.metadata.namespace
        and ref.uid in ("", claim.metadata.uid)
    )


class ClaimCandidates:
    """The volumes that a claim may get, on whichever node.

    Raises `SelectorError` if the claim's selector makes no sense.
    """

    def __init__(
        self,
        claim: PersistentVolumeClaim,
        volumes: Sequence[PersistentVolume],
        reaches: Reaches,
    ) -> None:
        if claim.spec.selector is not None:
            check_label_selector(claim.spec.selector)
        self.claim = claim
        self.requested = requested_nanos(claim)
        self._reaches = reaches
        suiting = [
            (size, volume)
            for volume in volumes
            if (size := _size(volume)) >= self.requested and _may_be_bound(volume, claim)
        ]
        # A volume that was made for the claim is the only one that it may get.
        self._own = [volume for _, volume in suiting if is_for(volume, claim)]
        ranked = sorted(
            (entry for entry in suiting if _is_free_for(entry[1], claim)), key=lambda e: e[0]
        )
        self._ranked = [volume for _, volume in ranked]
        self._anywhere: list[int] = []  # ranks
        self._pinned: dict[str, dict[str, list[int]]] = {}  # label -> value -> ranks
        for rank, volume in enumerate(self._ranked):
            self._file(rank, reaches.of(volume))

    @property
    def labels(self) -> frozenset[str]:
        """The labels of a node that the choice looks at."""
        volumes = (*self._own, *self._ranked)
        return frozenset().union(*(self._reaches.of(volume).labels for volume in volumes))

    def _file(self, rank: int, reach: Reach) -> None:
        pins = reach.pins()
        if pins is None:
            self._anywhere.append(rank)
            return
        for label, value in dict.fromkeys(pins):
            self._pinned.setdefault(label, {}).setdefault(value, []).append(rank)

    def choose(self, labels: Labels, taken: Collection[str]) -> PersistentVolume | None:
        """The volume for a node with *labels*; *taken* are the names that are given away."""
        for own in self._own:
            if own.metadata.name not in taken:
                return own if self._reaches.of(own).includes(labels) else None
        found = [self._first(self._anywhere, labels, taken)]
        for label, ranks in self._pinned.items():
            value = labels.get(label)
            if value is not None and value in ranks:
                found.append(self._first(ranks[value], labels, taken))
        best = min((rank for rank in found if rank is not None), default=None)
        return None if best is None else self._ranked[best]

    def _first(self, ranks: Sequence[int], labels: Labels, taken: Collection[str]) -> int | None:
        for rank in ranks:
            volume = self._ranked[rank]
            if volume.metadata.name not in taken and self._reaches.of(volume).includes(labels):
                return rank
        return None


def _size(volume: PersistentVolume) -> int:
    try:
        return nano_value(volume.spec.capacity.get(STORAGE, 0))
    except QuantityError:
        return -1  # its size is unknown: it suits no claim


def _may_be_bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether *claim* may have *volume* at all, whether it was made for it or not."""
    mode, wanted_mode = volume.spec.volume_mode, claim.spec.volume_mode
    attributes = volume.spec.volume_attributes_class_name or ""
    return (
        (volume.spec.claim_ref is None or is_for(volume, claim))
        and (mode or _FILESYSTEM) == (wanted_mode or _FILESYSTEM)
        and attributes == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _is_free_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether *volume* is free for any claim, and is what *claim* asks for."""
    if volume.status.phase != AVAILABLE or volume.class_name != claim.class_name:
        return False
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return False
    selector = claim.spec.selector
    return selector is None or selects(selector, volume.metadata.labels)
