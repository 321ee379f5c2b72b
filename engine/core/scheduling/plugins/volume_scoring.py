"""How good a node is for the volumes that a pod would get there: by the storage that stays free.

Owns kube-scheduler's StorageCapacityScoring: what is requested of each storage class beside what
the node's volumes or its driver offer, and the line that makes a score of the share. Which volumes
a pod would get is `volume_binding`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.core.model.quantity import QuantityError, resource_amount
from engine.core.model.storage import STORAGE, PersistentVolume, PersistentVolumeClaim

Point = Mapping[str, int]
"""A point of a shape: `utilization`, 0..100, and its `score`, 0..10."""


@dataclass(slots=True)
class ClassStorage:
    """What is requested of one storage class, and what there is, in bytes."""

    requested: int = 0
    capacity: int = 0


def storage_of_bindings(
    bindings: Sequence[tuple[PersistentVolume, PersistentVolumeClaim]],
) -> dict[str, ClassStorage]:
    """By class, what the claims request of the volumes that they would be bound to."""
    found: dict[str, ClassStorage] = {}
    for volume, claim in bindings:
        storage = found.setdefault(volume.spec.storage_class_name, ClassStorage())
        storage.requested += requested_bytes(claim)
        storage.capacity += _bytes(volume.spec.capacity.get(STORAGE))
    return found


def storage_of_provisions(
    provisions: Sequence[tuple[PersistentVolumeClaim, int | None]],
) -> dict[str, ClassStorage]:
    """By class, what the claims request of the capacity that is left.

    Args:
        provisions: Claims with the capacity for their class, None where it is not counted. All
            claims of a class draw on the same capacity, so it counts once.
    """
    found: dict[str, ClassStorage] = {}
    for claim, capacity in provisions:
        if capacity is not None:
            name = claim.spec.storage_class_name or claim.class_name
            storage = found.setdefault(name, ClassStorage())
            storage.requested += requested_bytes(claim)
            storage.capacity = capacity
    return found


def storage_score(classes: Mapping[str, ClassStorage], shape: Sequence[Point]) -> int:
    """The score of a node, 0..100: the mean over the storage classes; 0 without any."""
    if not classes:
        return 0
    total = sum(_class_score(storage, shape) for storage in classes.values())
    return (2 * total + len(classes)) // (2 * len(classes))


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """How much storage *claim* requests, in whole bytes."""
    return _bytes(claim.spec.resources.requests.get(STORAGE))


def _class_score(storage: ClassStorage, shape: Sequence[Point]) -> int:
    if storage.capacity == 0 or storage.requested > storage.capacity:
        return _on_line(shape, 100)
    return _on_line(shape, storage.requested * 100 // storage.capacity)


def _on_line(shape: Sequence[Point], utilization: int) -> int:
    """The broken line through the points of *shape*, their scores times 10."""
    left = shape[0]
    for right in shape:
        if utilization <= right["utilization"]:
            width = right["utilization"] - left["utilization"]
            rise = 10 * (right["score"] - left["score"])
            along = rise * (utilization - left["utilization"])
            if width == 0:
                return 10 * left["score"]
            # Toward zero, as Go divides.
            return 10 * left["score"] + (along // width if along >= 0 else -(-along // width))
        left = right
    return 10 * left["score"]


def _bytes(quantity: str | int | float | None) -> int:
    if quantity is None:
        return 0
    try:
        return resource_amount(STORAGE, quantity)
    except QuantityError:
        return 0
