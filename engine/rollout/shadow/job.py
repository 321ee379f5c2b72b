"""What is handed to the thread of a shadow: one decision, or those about one group.

Owns the record. Nothing in it changes any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.core.kernel.instructions import ReportDecision
from engine.core.model.pod import Pod
from engine.core.model.pod_group import DisruptionUnit, PodGroupState
from engine.rollout.mirror import Changes, Mirror


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt at a group ended.

    Attributes:
        needed: So many of the pods that were decided had to get a node.
        is_whole: They did.
    """

    needed: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Decisions that are made again.

    Attributes:
        mirror: Shows the snapshot that they were made on, once `changes` are applied.
        changes: In order.
        made: The decisions; several are of one group, each made after the pod before was placed.
            Without any, only the changes are applied.
        attempt: Of the group; None: it is one pod alone.
        units: Groups that are evicted as a whole, if the decision looked for victims.
        groups: By the pod's uid, where its groups stood, by their name.
        pending: All pods without a node, if the candidate may group pods in another way.
    """

    mirror: Mirror
    changes: tuple[Changes, ...]
    made: tuple[ReportDecision, ...]
    attempt: Attempt | None
    units: tuple[DisruptionUnit, ...]
    groups: Mapping[str, Mapping[str, PodGroupState]]
    pending: Sequence[Pod] = ()
