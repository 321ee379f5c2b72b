"""The claims of a cluster as the next decision must see them, and the devices that they hold.

Owns what the API server does not show yet: allocations that were reserved and are being written,
and claims as our own writes left them, until the watch has caught up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from engine.core.caching.objects import ObjectStore
from engine.core.model.devices import EXTENDED_CLAIM_ANNOTATION, AllocationResult, ResourceClaim
from engine.core.scheduling.devices.allocated import AllocatedDevices, consumption_problem

CLAIMS: Final = "resourceclaims"


@dataclass(slots=True)
class Reservation:
    """An allocation that is on its way into a claim, and the pods that it is for."""

    allocation: AllocationResult
    pods: set[str] = field(default_factory=set)


class Claims:
    """Claims by key, and reservations by the uid of their claim.

    A claim::

        unallocated --reserve--> reserved --wrote--> allocated (ours) --watch--> allocated
        reserved --withdraw by the last pod--> unallocated

    Args:
        objects: What the watch has brought.
        follow: Follow its changes; otherwise the view is of this moment.

    Attributes:
        devices: What all claims hold.
        problems: Why what a claim consumes cannot be counted, by the key of the claim, where
            kube-scheduler then gives up every pod that needs devices.
    """

    def __init__(self, objects: ObjectStore, *, follow: bool) -> None:
        self._behaves = objects.behaves
        self.devices = AllocatedDevices(self._behaves)
        self.problems: dict[str, str] = {}
        self._objects = objects
        self._reservations: dict[str, Reservation] = {}
        self._written: dict[str, ResourceClaim] = {}
        self._counted: dict[str, AllocationResult] = {}
        self._end: Callable[[], None] | None = None
        if follow:
            self._end = objects.listen(CLAIMS, self._changed)
        for claim in objects.list(CLAIMS):
            self._count(claim.key, claim.allocation)

    def close(self) -> None:
        """Stop following changes."""
        if self._end is not None:
            self._end()

    def follow_version(self) -> None:
        """Count everything as the minor version of the cluster does, if that is another now."""
        if self._behaves is self._objects.behaves:
            return
        self._behaves = self._objects.behaves
        counted, self._counted, self.problems = self._counted, {}, {}
        changes = self.devices.changes
        self.devices = AllocatedDevices(self._behaves)
        self.devices.changes = changes
        changes.restart()
        for key, allocation in counted.items():
            self._count(key, allocation)

    def get(self, key: str) -> ResourceClaim | None:
        """The claim of *key*, the newest that is known of it; None if there is none."""
        written = self._written.get(key)
        if written is not None:
            return written
        stored: ResourceClaim | None = self._objects.get(CLAIMS, key)
        return stored

    def extended_claim_of(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that a scheduler made earlier for a pod's extended resources."""
        for claim in self._written.values():
            if _extended_owner(claim) == pod_uid:
                return claim
        stored: list[ResourceClaim] = self._objects.indexed(CLAIMS, _extended_owner, pod_uid)
        return stored[0] if stored else None

    # --- reservations ------------------------------------------------------------------------

    def reservation_of(self, claim_uid: str) -> Reservation | None:
        """What is on its way into the claim of *claim_uid*."""
        return self._reservations.get(claim_uid)

    def is_reserved(self, claim_uid: str) -> bool:
        """True while something is on its way into that claim, so that no other can have it."""
        return claim_uid in self._reservations

    def reserve(self, claim_uid: str, allocation: AllocationResult, pod_uid: str) -> None:
        """Count *allocation* from now on; other pods may share the reservation."""
        known = self._reservations.get(claim_uid)
        if known is None:
            known = self._reservations[claim_uid] = Reservation(allocation)
            self._count(f"reservation:{claim_uid}", allocation)
        known.pods.add(pod_uid)

    def withdraw(self, claim_uid: str, pod_uid: str) -> None:
        """The pod no longer uses the reservation; it is dropped with its last pod."""
        known = self._reservations.get(claim_uid)
        if known is None:
            return
        known.pods.discard(pod_uid)
        if not known.pods:
            del self._reservations[claim_uid]
            self._count(f"reservation:{claim_uid}", None)

    def wrote(self, claim: ResourceClaim, reserved_uid: str = "", *, is_new: bool = False) -> None:
        """Show *claim*, as the API server answered it, until the watch shows it or a newer one.

        *reserved_uid* is what its allocation was reserved under, which is written now. *is_new*: we
        made the claim, so that the watch may not show it yet; any other that it does not show was
        deleted meanwhile.
        """
        stored: ResourceClaim | None = self._objects.get(CLAIMS, claim.key)
        if is_new if stored is None else not _is_as_new(stored, claim):
            self._written[claim.key] = claim
            self._count(claim.key, claim.allocation)
        if reserved_uid and self._reservations.pop(reserved_uid, None) is not None:
            self._count(f"reservation:{reserved_uid}", None)

    def forget(self, key: str) -> None:
        """Show what the watch says of the claim of *key*: ours is gone."""
        if self._written.pop(key, None) is not None:
            stored: ResourceClaim | None = self._objects.get(CLAIMS, key)
            self._count(key, stored.allocation if stored is not None else None)

    # --- the watch ---------------------------------------------------------------------------

    def _changed(self, before: Any, after: Any) -> None:
        claim: ResourceClaim = after if after is not None else before
        written = self._written.get(claim.key)
        if written is not None:
            if after is not None and not _is_as_new(after, written):
                return  # a step on the way to what we wrote
            del self._written[claim.key]
        self._count(claim.key, after.allocation if after is not None else None)

    def _count(self, key: str, allocation: AllocationResult | None) -> None:
        counted = self._counted.get(key)
        if counted is allocation:
            return
        if counted is not None:
            is_sound = self.problems.pop(key, None) is None
            self.devices.remove(counted, with_capacity=is_sound)
            del self._counted[key]
        if allocation is not None:
            problem = None
            if self._behaves.negative_amounts_fail:
                problem = consumption_problem(key, allocation)
            if problem is not None:
                self.problems[key] = problem
            self.devices.add(allocation, with_capacity=problem is None)
            self._counted[key] = allocation


def _is_as_new(claim: ResourceClaim, other: ResourceClaim) -> bool:
    """Whether *claim* is *other* or came after it. Another object of that name did.

    Versions are compared as numbers here, which Kubernetes allows: the watch may bring a version
    from between two of our writes, and that must not make an allocation invisible.
    """
    if claim.metadata.uid != other.metadata.uid:
        return True
    one, two = claim.metadata.resource_version, other.metadata.resource_version
    if one.isdecimal() and two.isdecimal():
        return int(one) >= int(two)
    return one == two or claim.allocation is not None


def _extended_owner(claim: ResourceClaim) -> str:
    """The uid of the pod whose extended resources a claim stands for; empty if it is another."""
    if claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) != "true":
        return ""
    controller = claim.metadata.controller
    return "" if controller is None else controller.uid
