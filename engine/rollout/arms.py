"""Which pods a canary decides, which are its control sample, and what becomes of both.

Owns the choice and the counting. The choice goes by what manages a pod, so that the pods of a
ReplicaSet, a Job or a group share their fate, and it stays the same as long as the candidate does:
a larger share has all pods of a smaller one.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from engine.core.model.pod import Pod
from engine.core.model.selectors import is_selected
from engine.policy.rollout_config import CanaryStage
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


Arm: TypeAlias = Literal["canary", "control", ""]

CANARY: Final = "canary"
CONTROL: Final = "control"

LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a namespace."""


class Arms:
    """The canary of a candidate, and a control sample of equal size.

    Args:
        salt: The candidate's revision: another one has other pods.
        share: Of the pods, above 0 and at most 0.5.
        stage: Which pods may be chosen.
        labels_of: Gives the labels of a namespace.
    """

    def __init__(self, salt: str, share: float, stage: CanaryStage, labels_of: LabelsOf) -> None:
        self.share = share
        self._salt = salt.encode()[:16]
        self._stage = stage
        self._selects = functools.partial(is_selected, stage.namespaces)
        self._labels_of = labels_of

    def has(self, pod: Pod, group: str) -> bool:
        """True if the canary decides *pod*, of the group of that name."""
        return self.of(pod, group) == CANARY

    def has_control(self, pod: Pod, group: str) -> bool:
        """True if *pod*, of the group of that name, is in the control sample."""
        return self.of(pod, group) == CONTROL

    def of(self, pod: Pod, group: str) -> Arm:
        """The arm of *pod*; "" if it is in none."""
        stage = self._stage
        if stage.profile and pod.scheduler_name != stage.profile:
            return ""
        if not self._selects(self._labels_of(pod.namespace)):
            return ""
        place = self._place(owner_of(pod, group))
        if place < self.share:
            return CANARY
        return CONTROL if place >= 1 - self.share else ""

    def _place(self, owner: str) -> float:
        """Where *owner* is between 0 and 1."""
        digest = hashlib.blake2b(owner.encode(), digest_size=8, salt=self._salt).digest()
        return int.from_bytes(digest, "big") / 2**64


def owner_of(pod: Pod, group: str) -> str:
    """What the pods that share an arm have in common: their group, or their controlling owner."""
    if group:
        return f"{pod.namespace}/{group}"
    return pod.uid if pod.controller is None else pod.controller.uid
