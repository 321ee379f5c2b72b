"""Whose policies decide a pod: those in force, or a candidate's for the pods of its canary.

The control sample of a canary may have a scheduler of its own with the policies in force. One that
decides one pod in a hundred finds most nodes changed since its last decision; what the candidate's
takes can be compared only with one that decides as seldom.

Owns the choice. Which pods a canary has is said by who begins it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.core.kernel.pod_groups import PodGroups
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler


@dataclass(frozen=True, slots=True)
class Canary:
    """A candidate that decides for some pods.

    Attributes:
        scheduler: Its policies. Which group a pod is in is said by those in force.
        has: Whether it decides a pod, given the name of the pod's group ("" if it is in none).
            Always the same for all pods of a group.
        control: Decides the control sample, with the policies in force; None: as any other pod.
        has_control: Whether a pod is in the control sample, asked as `has` is.
    """

    scheduler: Scheduler
    has: Callable[[Pod, str], bool]
    control: Scheduler | None = None
    has_control: Callable[[Pod, str], bool] = lambda pod, group: False


class SchedulerSelector:
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

    @property
    def ask_extenders(self) -> bool:
        """True if a decision of one of them may ask an extender."""
        return any(one.has_extenders for one in self.all())

    def all(self) -> list[Scheduler]:
        """All of them; none before there are policies."""
        canary = self.canary
        known = [self.in_force]
        if canary is not None:
            known += canary.scheduler, canary.control
        return [one for one in known if one is not None]

    def of(self, pod: Pod) -> Scheduler:
        """What decides *pod*."""
        assert self.in_force is not None, "a pod is queued without policies"
        canary = self.canary
        if canary is None:
            return self.in_force
        if self.is_canary(pod):
            return canary.scheduler
        control = canary.control
        if control is not None and canary.has_control(pod, self.group_of(pod)):
            return control
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
