"""The instructions that the kernel returns: one record for each kind.

Owns the records. A shell carries them out in order, or leaves out what does not concern it; the
kernel does not wait for any of them, and learns the outcome, where there is one, from an event.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import Answer
from engine.core.scheduling.placement import Placement, Preemption, Rejection
from engine.policy.evaluator import PolicyFailure

# --- what is to be done in the cluster ---------------------------------------------------------


class Bind(msgspec.Struct, frozen=True):
    """Prepare a placement and bind it. Ends with `Bound`, `BindingFailed` or `BindingGivenUp`."""

    placement: Placement


class Evict(msgspec.Struct, frozen=True):
    """Evict the victims for a pod, the last one last. Ends with `PreemptionEnded`.

    A victim that waits in permit is sent back by `WaitingPodPreempted`, one that is being prepared
    for its binding by cancelling that. `victims` are those of the preemption that are not
    terminating yet. `group` is the uid of the PodGroup that they have to make way for, or the name
    of a group without one; "": it is for the pod alone. The node is `cluster` then.
    """

    preemptor: Pod
    preemption: Preemption
    victims: tuple[Pod, ...]
    profile: str
    revision: str
    group: str = ""


class RunAction(msgspec.Struct, frozen=True):
    """Carry out what a plugin does about a pod that fits nowhere."""

    action: Callable[[], Awaitable[None]]
    pod: Pod


# --- what is to be reported: events, conditions, logs, metrics ---------------------------------


class ReportBound(msgspec.Struct, frozen=True):
    """A pod was bound."""

    placement: Placement


class ReportFailure(msgspec.Struct, frozen=True):
    """An attempt did not end in a binding. Not `is_queued`: the pod is gone or bound meanwhile.

    Not `is_logged`: a pod of its group with the same message is, for the same attempt. It
    `is_repeat` if its last attempt ended for the same reason, an error also with the same message.
    """

    pod: Pod
    rejection: Rejection
    attempts: int
    tried_because: str
    profile: str
    revision: str
    started_at: float
    is_queued: bool
    is_logged: bool = True
    is_repeat: bool = False


class ReportWaiting(msgspec.Struct, frozen=True):
    """A pod has a node and waits in permit; `text` says for what."""

    pod: Pod
    text: str
    placement: Placement


class ReportGroupReleased(msgspec.Struct, frozen=True):
    """A pod group (`namespace/name`) cannot be placed whole: its pods have released their nodes.

    `waited` is how many of them waited in permit.
    """

    group: str
    profile: str
    waited: int


class ReportPodGroup(msgspec.Struct, frozen=True):
    """An attempt to place the pods of a PodGroup object has ended.

    `group` is `namespace/name`; `reason` is `Scheduled` if it `is_scheduled`, and else
    `Unschedulable` or `SchedulerError`; `message` is that of the attempt.
    """

    group: str
    is_scheduled: bool
    reason: str
    message: str


class ReportGate(msgspec.Struct, frozen=True):
    """A policy keeps a pod out of the queue; `has_failed`: because it gave no answer."""

    pod: Pod
    policy: str
    reason: str
    token: str
    revision: str
    has_failed: bool


class ReportHeld(msgspec.Struct, frozen=True):
    """A pod is the next one in its queue, and the queue may not start it now.

    `has_failed`: because its policy gave no answer. Those behind it are not reported.
    """

    pod: Pod
    policy: str
    reason: str
    token: str
    revision: str
    has_failed: bool


class ReportThrottled(msgspec.Struct, frozen=True):
    """A pod is not tried for now because its policies, or those of others like it, waste time."""

    pod: Pod
    reason: str
    revision: str


class ReportDeleting(msgspec.Struct, frozen=True):
    """A pod was popped and not tried, because it is being deleted."""

    pod: Pod
    revision: str


class ReportNomination(msgspec.Struct, frozen=True):
    """Another pod is to get the node that `pod` was nominated for."""

    pod: Pod
    node: str


class ForgetReports(msgspec.Struct, frozen=True):
    """The pod of `uid` is bound, gone or not ours: what was reported of it can be dropped."""

    uid: str


class RepeatReports(msgspec.Struct, frozen=True):
    """A pending pod changed; what others have overwritten in its status has to be written again."""

    old: Pod
    new: Pod


class ReportDecision(msgspec.Struct, frozen=True):
    """A decision was made; it comes before the instructions that follow from it.

    `answers` are those of extenders, in order. `seconds` is how long it took in all, `own_seconds`
    without the time of extenders; `failures` are those of policies, `lost` those that lost time.
    `is_member`: the pod is tried with others of its group. `started_at` is when it began (monotonic
    seconds).
    """

    pod: Pod
    decision: Decision
    answers: Sequence[Answer]
    seconds: float
    own_seconds: float
    failures: Sequence[PolicyFailure]
    lost: Sequence[PolicyFailure]
    is_member: bool = False
    started_at: float = 0.0


class ReportFault(msgspec.Struct, frozen=True):
    """An unexpected exception ended an attempt."""

    pod: Pod
    error: Exception


class ReportHookFailure(msgspec.Struct, frozen=True):
    """Hooks failed outside of a decision; `lost` are those that lost time."""

    pod: Pod
    failures: Sequence[PolicyFailure]
    lost: Sequence[PolicyFailure]
    seconds: float


# --- what the kernel did to its picture of the cluster, for a record ----------------------------


class PodCounted(msgspec.Struct, frozen=True):
    """A pod counts on the node that the API server says."""

    pod: Pod


class PodUncounted(msgspec.Struct, frozen=True):
    """The pod of `uid` counts nowhere any more."""

    uid: str


class PodAssumed(msgspec.Struct, frozen=True):
    """A pod counts on a node before the API server says so, with these additional annotations."""

    uid: str
    node: str
    annotations: Mapping[str, str]


class PodForgotten(msgspec.Struct, frozen=True):
    """A placement no longer holds anything. Not `was_assumed`: the API server showed it there."""

    uid: str
    was_assumed: bool


Instruction: TypeAlias = (
    Bind
    | Evict
    | RunAction
    | ReportBound
    | ReportFailure
    | ReportWaiting
    | ReportGroupReleased
    | ReportPodGroup
    | ReportGate
    | ReportHeld
    | ReportThrottled
    | ReportDeleting
    | ReportNomination
    | ForgetReports
    | RepeatReports
    | ReportDecision
    | ReportFault
    | ReportHookFailure
    | PodCounted
    | PodUncounted
    | PodAssumed
    | PodForgotten
)
