"""Which pods a canary decides, and which are its control sample.

Owns the choice. It goes by what manages a pod, so that the pods of a ReplicaSet, a Job or a group
share their fate, and it stays the same as long as the candidate does: a larger share has all pods
of a smaller one.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from engine.core.model.pod import Pod
from engine.core.model.selectors import is_selected
from engine.policy.rollout_config import CanaryStage

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
