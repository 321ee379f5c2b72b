"""Whose policies decide a pod: those in force, or a candidate's for the pods of its canary.

Owns the choice. Which pods a canary has is said by who begins it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.kernel.pod_groups import PodGroups
from engine.model.pod import Pod
from engine.scheduling.scheduling_cycle import Scheduler


@dataclass(frozen=True, slots=True)
class Canary:
    """A candidate that decides for some pods.

    Attributes:
        scheduler: Its policies. Which group a pod is in is said by those in force.
        has: Whether it decides a pod, given the name of the pod's group ("" if it is in none).
            Always the same for all pods of a group.
    """

    scheduler: Scheduler
    has: Callable[[Pod, str], bool]


class Deciders:
    """The schedulers of a kernel.

    Args:
        groups: Know in which group a pod is.

    Attributes:
        in_force: Decides what no canary does; None before there are policies.
        canary: The one under way, if any.
    """

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        self.in_force: Scheduler | None = None
        self.canary: Canary | None = None

    def of(self, pod: Pod) -> Scheduler:
        """What decides *pod*."""
        assert self.in_force is not None, "a pod is queued without policies"
        if self.is_canary(pod):
            assert self.canary is not None
            return self.canary.scheduler
        return self.in_force

    def is_canary(self, pod: Pod) -> bool:
        """True if the canary decides *pod*: it must have the pod's profile, too."""
        canary = self.canary
        return (
            canary is not None
            and canary.scheduler.profile_of(pod) is not None
            and canary.has(pod, self.group_of(pod))
        )

    def name_of(self, pod: Pod) -> str:
        """Whose policies decide *pod*: a profile's, or the canary's of that profile."""
        return f"{pod.scheduler_name} (canary)" if self.is_canary(pod) else pod.scheduler_name

    def group_of(self, pod: Pod) -> str:
        """The name of the group that *pod* is in; "" if it is in none."""
        keys = self._groups.keys_of(pod.uid)
        return keys[0].name if keys else ""
