"""What is said of pod groups, in the words of kube-scheduler's minor versions.

Owns the texts alone: when each is said is `kernel.group_attempts`' and `pod_group`'s.
"""

from dataclasses import dataclass
from typing import Final

from engine.core.framework.behaviors import Behaviors


@dataclass(frozen=True, slots=True)
class GroupWords:
    """The texts of one minor version; what is in braces is filled in, in each by the same names.

    Attributes:
        missing: Gates pods whose PodGroup is not there (`group`).
        shortage: Gates pods of a group that are too few (`namespace`, `group`).
        too_few: Too few pods of the group have a node (`wanted`, `scheduled`, `unschedulable`,
            `remaining`: numbers of pods).
        none_fits: None of the pods that were tried fits; enough of the group had a node before.
        hopeless: There are too few pods to try any (`why`: `too_few`).
        tried: What a pod that fits reads where its group does not (`group`, `why`).
        untried: The same for one that was not tried, or while others are evicted for the group.
        error: What the other pods read if one of them ends the attempt (`group`, `why`).
        schedulers: Its pods name two schedulers (`scheduler` and `pod`, `own_scheduler` and
            `own_pod`).
        priorities: A pod has another priority than its group (`priority` and `pod`,
            `group_priority` and `key`).
        policies: A pod has another preemption policy than others (`policy` and `pod`,
            `other_policy`).
        group_policies: The same if the PodGroup has one.
        invalid: The reason in the group's condition for these last four.
    """

    missing: str
    shortage: str
    too_few: str
    none_fits: str
    hopeless: str
    tried: str
    untried: str
    error: str
    schedulers: str
    priorities: str
    policies: str
    group_policies: str
    invalid: str


_SINGLE: Final = "all pods in a single pod group should have the same "
_HIERARCHY: Final = "all pods in a pod group hierarchy should have the same "
_REJECTED: Final = 'parent pod group "{group}" is unschedulable'
_POLICIES: Final = _HIERARCHY + 'preemption policy, got {policy} ("{pod}") and {other_policy}'

_FIRST: Final = GroupWords(
    missing='waiting for pods\'s pod group "{group}" to appear in scheduling queue',
    shortage="waiting for minCount pods from a gang to appear in scheduling queue",
    too_few="minCount ({wanted}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining",
    none_fits="pod group is unschedulable",
    hopeless="pod group is unschedulable, {why}",
    tried="pod group is unschedulable, {why}",
    untried="{why}",
    error="{why}",
    schedulers=_SINGLE + '.spec.schedulerName set, got: "{scheduler}" and "{own_scheduler}"',
    priorities=_SINGLE
    + "priority as the pod group's priority, got {priority} and {group_priority}",
    policies=_SINGLE + "preemption policy, got {policy} and {other_policy}",
    group_policies=_SINGLE
    + "preemption policy as the pod group's preemption policy, got {policy} and {other_policy}",
    invalid="SchedulerError",
)
_OF_1_38: Final = GroupWords(
    missing='pod group "{group}" or one of its composite pod group ancestors '
    "has not been created yet",
    shortage="waiting for podgroup/{namespace}/{group} to meet its quorum",
    too_few="scheduling policy's minimum threshold ({wanted}) cannot be satisfied: "
    "{scheduled} scheduled, {unschedulable} unschedulable, {remaining} not-evaluated",
    none_fits="no pods were schedulable",
    hopeless="{why}",
    tried=_REJECTED,
    untried=_REJECTED,
    error='parent pod group "{group}" encountered an error',
    schedulers=_HIERARCHY + '.spec.schedulerName set, got: "{scheduler}" ("{pod}") and '
    '"{own_scheduler}" ("{own_pod}")',
    priorities=_HIERARCHY + "priority as the root pod group's priority, "
    'got {priority} ("{pod}") and {group_priority} ("{key}")',
    policies=_POLICIES,
    group_policies=_POLICIES,
    invalid="PodGroupError",
)


def words_of(behaves: Behaviors) -> GroupWords:
    """The texts of the minor version that is answered like."""
    return _OF_1_38 if behaves.groups_are_named else _FIRST
