"""Counts what becomes of the pods of a canary, and of those of its control sample.

Owns the counting. Which pods are in which is the kernel's.
"""

from collections.abc import Callable
from typing import Final

from engine.rollout.measures import ArmMeasures

#: Owners of each kind that are counted separately; further ones are not counted.
MOST_OWNERS: Final = 10_000


class ArmCounter:
    """Counts for one arm. An owner is any text that is the same for pods assigned together."""

    def __init__(self) -> None:
        self.measures: Final = ArmMeasures()
        self._waiting: dict[str, tuple[float, str]] = {}
        self._owners: Final = {
            name: set[str]()
            for name in ArmMeasures.__struct_fields__
            if name == "owners" or name.endswith("_owners")
        }

    def decided(self, owner: str, seconds: float, *, failed: bool, victims: int) -> None:
        """Count a decision about a pod of *owner*.

        Args:
            owner: See above.
            seconds: What it took.
            failed: A policy's failure cost the pod its attempt.
            victims: Pods that are evicted for it.
        """
        measures = self.measures
        measures.decisions += 1
        measures.seconds += seconds
        measures.squares += seconds * seconds
        measures.victims += victims
        self._count(owner, "owners")
        if failed:
            self._failed(owner)
        if victims:
            self._count(owner, "evicting_owners")

    def stays(self, owner: str) -> None:
        """Count that a decision left the pod without a node, or without leave to be bound."""
        self.measures.pending += 1
        self._count(owner, "pending_owners")

    def waits(self, uid: str, owner: str, until: float) -> None:
        """Count that the pod stays pending if it still waits for its group at the moment *until*.

        Moments never go back from call to call.
        """
        self._waiting.setdefault(uid, (until, owner))

    def end_waits(self, now: float, is_pending: Callable[[str], bool]) -> None:
        """Count the waits that are over *now* of pods that are still pending, by their uids."""
        while self._waiting:
            uid, (until, owner) = next(iter(self._waiting.items()))
            if until > now:
                return
            del self._waiting[uid]
            if is_pending(uid):
                self.stays(owner)

    def held(self, owner: str, *, failed: bool = False) -> None:
        """Count that a gate keeps the pod out, or, *failed*, that a hook gave no answer."""
        self.measures.held += 1
        self._count(owner, "owners")
        if failed:
            self._failed(owner)

    def _failed(self, owner: str) -> None:
        self.measures.failed += 1
        self._count(owner, "failed_owners")

    def bound(self, owner: str, seconds: float) -> None:
        """Count a binding *seconds* after the pod was first seen."""
        measures = self.measures
        measures.bound += 1
        measures.bind_seconds += seconds
        measures.bind_squares += seconds * seconds
        self._count(owner, "bound_owners")

    def _count(self, owner: str, name: str) -> None:
        known = self._owners[name]
        if len(known) < MOST_OWNERS:
            known.add(owner)
            setattr(self.measures, name, len(known))
