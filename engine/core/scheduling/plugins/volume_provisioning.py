"""Whether a volume can be made for a claim where a node reaches it.

Owns the check of a class's topologies and of the storage that its driver says is left. Nothing is
made here: a provisioner does that once it sees the chosen node on the claim.
"""

from collections.abc import Mapping
from typing import Final

from engine.core.caching.attachments import CSI_DRIVERS
from engine.core.caching.objects import ObjectStore
from engine.core.model.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from engine.core.model.quantity import QuantityError, nano_value, resource_amount
from engine.core.model.selectors import SelectorError, check_label_selector, matches_label_selector
from engine.core.model.storage import (
    STORAGE,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from engine.core.scheduling.plugins.volume_matching import Reach, requested_nanos

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

Labels = Mapping[str, str]


class Provisioning:
    """What it takes to make the volume of a claim."""

    def __init__(self, claim: PersistentVolumeClaim, objects: ObjectStore) -> None:
        self.claim = claim
        found: StorageClass | None = objects.get("storageclasses", claim.class_name)
        self._is_possible = found is not None and found.provisioner not in ("", _NO_PROVISIONER)
        self._topologies = Reach(_topologies(found) if found is not None else None)
        segments = _segments(claim, found, objects) if found is not None else None
        self._segments = segments
        self._segment_labels = frozenset(
            key
            for segment, _ in segments or ()
            for key in (*segment.match_labels, *(r.key for r in segment.match_expressions))
        )

    @property
    def labels(self) -> frozenset[str]:
        """The labels of a node that the answers look at."""
        return self._topologies.labels | self._segment_labels

    def may_be_made_for(self, labels: Labels) -> bool:
        """True if there is a provisioner that makes volumes where nodes with *labels* are."""
        return self._is_possible and self._topologies.includes(labels)

    def has_capacity_for(self, labels: Labels) -> bool:
        """True if enough storage is left there, or if it is not counted."""
        return self._segments is None or self.capacity_for(labels) is not None

    def capacity_for(self, labels: Labels) -> int | None:
        """The bytes that are left there; None if it is not counted, or if it is not enough.

        Of several that say so, the first one that is known here.
        """
        for segment, capacity in self._segments or ():
            if matches_label_selector(segment, labels):
                return capacity
        return None


def _topologies(storage_class: StorageClass) -> NodeSelector | None:
    if not storage_class.allowed_topologies:
        return None
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(
                    NodeSelectorRequirement(r.key, "In", r.values)
                    for r in term.match_label_expressions
                )
            )
            for term in storage_class.allowed_topologies
        )
    )


def _segments(
    claim: PersistentVolumeClaim, storage_class: StorageClass, objects: ObjectStore
) -> list[tuple[LabelSelector, int]] | None:
    """Where enough storage is left for *claim*, and how much; None if it is not counted."""
    if STORAGE not in claim.spec.resources.requests:
        return None
    driver: CSIDriver | None = objects.get(CSI_DRIVERS, storage_class.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    requested = requested_nanos(claim)
    return [
        (capacity.node_topology, _bytes_left(capacity))
        for capacity in objects.list("csistoragecapacities")
        if capacity.storage_class_name == storage_class.metadata.name
        and _is_enough(capacity, requested)
    ]


def _bytes_left(capacity: CSIStorageCapacity) -> int:
    """The capacity in bytes; 0 if it only says how large a volume may be."""
    try:
        return 0 if capacity.capacity is None else resource_amount(STORAGE, capacity.capacity)
    except QuantityError:
        return 0


def _is_enough(capacity: CSIStorageCapacity, requested: int) -> bool:
    if capacity.node_topology is None:
        return False
    limit = capacity.maximum_volume_size
    if limit is None:
        limit = capacity.capacity
    try:
        check_label_selector(capacity.node_topology)
        return limit is not None and nano_value(limit) >= requested
    except (QuantityError, SelectorError):
        return False
