"""What keeps a pod from running, as a reason token: of one rejection, and the dominant of several.

Owns what the plugins' reasons mean in the table of tokens (`reason_kinds`), which of several causes
is the dominant one, what a token of a policy may be, and what reason the pod's condition gets.
Programs go by tokens, people by messages: a message may change, a token may not.
"""

import string
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from engine.core.framework.extender import EXTENDER
from engine.core.framework.owner import Owner
from engine.core.framework.reason_kinds import FULL, HELD, REASONS, ReasonKind
from engine.core.framework.status import Status

LONGEST_TOKEN: Final = 40

#: The token of nodes that have too little of a resource.
INSUFFICIENT: Final = "InsufficientResources"

#: The condition that says if a pod has a node, and the reasons that kube-scheduler writes, too.
POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
SCHEDULING_GATED: Final = "SchedulingGated"

#: What rejects a pod whose decision depends on objects that cannot be read.
CLUSTER_READS: Final = "ClusterReads"

# What the reasons of a plugin mean: the token of the first part of a text that is in the reason.
# An empty text is in every reason, also in none.
_OF_PLUGIN: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "PodSpec": (("", "InvalidPod"),),
    "NodeName": (("", "NodeNameMismatch"),),
    "NodeUnschedulable": (("", "NodeUnschedulable"),),
    "TaintToleration": (("", "UntoleratedTaint"),),
    "NodeAffinity": (("terms conflict", "AffinityConflict"), ("", "AffinityMismatch")),
    "NodePorts": (("", "PortsTaken"),),
    "NodeResourcesFit": (("Too many pods", "TooManyPods"), ("", INSUFFICIENT)),
    "VolumeRestrictions": (
        ("not found", "WaitingForClaim"),
        ("no available disk", "VolumeInUseOnNode"),
        ("", "VolumeInUse"),
    ),
    "NodeVolumeLimits": (
        ("max volume count", "VolumeLimitReached"),
        ("is not installed", "VolumeDriverMissing"),
        ("", "WaitingForClaim"),
    ),
    "VolumeBinding": (
        ("persistent volumes to bind", "NoMatchingVolume"),
        ("node affinity", "VolumeNodeMismatch"),
        ("enough free storage", "InsufficientStorage"),
        ("non-existent", "WaitingForVolume"),
        ("unbound immediate", "WaitingForVolume"),
        ("out of sync", "NoMatchingVolume"),
        ("", "WaitingForClaim"),
    ),
    "VolumeZone": (
        ("no available volume zone", "VolumeZoneMismatch"),
        ("persistentvolumeclaim ", "WaitingForClaim"),
        ("PersistentVolumeClaim had no name", "WaitingForClaim"),
        ("storageclass", "ClassMissing"),
        ("StorageClass", "ClassMissing"),
        ("storageClass", "ClassMissing"),
        ("", "WaitingForVolume"),
    ),
    "PodTopologySpread": (
        ("missing required label", "TopologyLabelMissing"),
        ("", "TopologySpreadMismatch"),
    ),
    "InterPodAffinity": (
        ("anti-affinity", "PodAntiAffinityMismatch"),
        ("", "PodAffinityMismatch"),
    ),
    "DynamicResources": (
        ("device class", "ClassMissing"),
        ("of a resource pool", "DevicePoolNotReady"),
        ("invalid resource pools", "DevicePoolNotReady"),
        ("but resource pool", "DevicePoolNotReady"),
        ("not available on the node", "DeviceNodeMismatch"),
        ("cannot", "InsufficientDevices"),
        ("allocated", "InsufficientDevices"),
        ("feature on the node", "FeatureMissing"),
        ("", "WaitingForClaim"),
    ),
    "NodeDeclaredFeatures": (("", "FeatureMissing"),),
    "DefaultPreemption": (("", "WaitingForPreemption"),),
    "SchedulingGates": (("", "GatedBySchedulingGates"),),
    "GangScheduling": (
        ("waiting for ", "GroupIncomplete"),
        ("not there", "GroupIncomplete"),
        ("", "InvalidGroup"),
    ),
    "Coscheduling": (("", "GroupIncomplete"),),
    "PodGroup": (("", "GroupDoesNotFit"),),
    EXTENDER: (("", "ExtenderRejected"),),
    "Throttle": (("", "Throttled"),),
    CLUSTER_READS: (("", "ClusterNotReadable"),),
}


class Reason(NamedTuple):
    """The dominant cause of what became of a pod.

    Attributes:
        token: The word for it, of `REASONS` or of a policy.
        policy: The policy or plugin that it comes from; "" for the runtime.
        node_helps: One more node could let the pod run.
        condition: The reason of the pod's condition `PodScheduled`.
    """

    token: str
    policy: str = ""
    node_helps: bool = False
    condition: str = UNSCHEDULABLE

    @property
    def owner(self) -> Owner:
        """If it is that of a failure: whose fault that is."""
        return owner_of(self.token)


NOT_YET_TRIED: Final = Reason("NotYetTried")
BACKING_OFF: Final = Reason("BackingOff")
NO_NODES: Final = Reason("NoNodes", node_helps=True)


def kind_of(token: str) -> ReasonKind:
    """What *token* means; for one that only a policy knows, what holds for all of those."""
    known = REASONS.get(token)
    if known is not None:
        return known
    return ReasonKind(
        token, "a policy rejects it", True, "see the policy's reason in the message", FULL
    )


def is_plugin(policy: str) -> bool:
    """Whether the reasons of *policy* are in the table: it is a plugin, or one of the runtime."""
    return policy in _OF_PLUGIN


def reason_of(policy: str, reasons: Iterable[str], default: str = "") -> str:
    """The token for what *policy* gave as *reasons*, if it gave no token.

    That of the plugin, or else *default*, or else one made of the policy's name. Of several
    reasons the dominant one.
    """
    causes = _OF_PLUGIN.get(policy)
    if causes is None:
        return default or derived_token(policy)
    tokens = [next(token for part, token in causes if part in reason) for reason in (*reasons, "")]
    # The empty reason stands for there being none.
    return min(tokens[:-1] or tokens, key=lambda token: REASONS[token].rank)


def left_out_token(policy: str) -> str:
    """The token for nodes that a pre-filter left out, "" if the plugin has one for that."""
    return "" if is_plugin(policy) else "LeftOutByPolicy"


def token_of(status: Status) -> str:
    """The token of a rejection: what its policy gives, or else what its reasons mean."""
    return status.token or reason_of(status.plugin, status.reasons)


def failure(token: str, policy: str = "") -> Reason:
    """The cause of an attempt that an error ended, of *policy* if it is one's."""
    return Reason(token, policy, condition=SCHEDULER_ERROR)


def owner_of(token: str) -> Owner:
    """Whose fault a failure with *token* is."""
    return kind_of(token).owner or Owner.RUNTIME


def gate(policy: str, token: str) -> Reason:
    """The cause of a pod that is kept out of the queue."""
    return Reason(token, policy, condition=SCHEDULING_GATED)


def rejection(status: Status, *, is_about_nodes: bool = True) -> Reason:
    """The cause of a rejection by *status*. Not *is_about_nodes*: no other node would matter.

    Where a plugin of kube-scheduler rejects, its condition is that of kube-scheduler, whatever the
    cause. A policy's own rejection that no node would change must not look like one to autoscalers.
    """
    token = token_of(status)
    if not status.token and is_plugin(status.plugin):
        return Reason(token, status.plugin, kind_of(token).node_helps)
    known = REASONS.get(token)
    helps = is_about_nodes if known is None else known.node_helps
    return Reason(token, status.plugin, helps, UNSCHEDULABLE if helps else token)


def rank_of(reason: Reason) -> int:
    """The rank of a cause: smaller is more dominant."""
    known = REASONS.get(reason.token)
    if known is not None:
        return known.rank
    return FULL if reason.node_helps else HELD


def dominant(
    rejections: Iterable[tuple[Status, int]], node_blind: Collection[str] = ()
) -> Reason | None:
    """The cause that explains rejections best, each with the number of nodes; None without any.

    Of those that are as grave it is the one that would have to be lifted on most nodes.

    *node_blind* are the policies whose rejections do not depend on the node.
    """
    nodes: dict[Reason, int] = {}
    for status, count in rejections:
        is_about_nodes = status.plugin not in node_blind
        # A node with several reasons counts for each: each would have to be lifted there.
        for cause in {rejection(one, is_about_nodes=is_about_nodes) for one in _apart(status)}:
            nodes[cause] = nodes.get(cause, 0) + count
    if not nodes:
        return None
    return min(nodes, key=lambda one: (rank_of(one), -nodes[one], one))


def _apart(status: Status) -> list[Status]:
    """*status* once for each of its reasons; a token of a policy is that of all of them."""
    if status.token or len(status.reasons) < 2:
        return [status]
    return [replace(status, reasons=(reason,)) for reason in status.reasons]


# --- tokens of policies ---------------------------------------------------------------------------

_LETTERS_AND_DIGITS: Final = frozenset(string.ascii_letters + string.digits)
#: What a token is, for messages.
TOKEN_FORM: Final = f"CamelCase of letters and digits, {LONGEST_TOKEN} characters at most"


def derived_token(policy: str) -> str:
    """The token of a policy that gives none, made of its name: `gpu-quota` is `GpuQuota`.

    A word that means something else already is followed by `Policy`.
    """
    spaced = "".join(char if char in _LETTERS_AND_DIGITS else " " for char in policy)
    token = "".join(word[0].upper() + word[1:] for word in spaced.split())
    if not token or not token[0].isalpha():
        token = f"Policy{token}"
    if token in REASONS or token in _CONDITIONS:
        token += "Policy"
    return token[:LONGEST_TOKEN]


# They mean something to autoscalers, so no token of a policy may be written in their place.
_CONDITIONS: Final = frozenset((UNSCHEDULABLE, SCHEDULER_ERROR, SCHEDULING_GATED, "Scheduled"))
#: Tokens that a policy cannot give: what they say is for the runtime to say.
RESERVED: Final = frozenset(
    (*_CONDITIONS, *(one.token for one in REASONS.values() if not one.is_for_policies))
)


def legal_token(given: object) -> str:
    """*given* if a policy may give it as a token, else "": the sandbox may send anything."""
    return given if isinstance(given, str) and token_problem(given) == ("", "") else ""


def token_problem(token: str) -> tuple[str, str]:
    """What is wrong with a token that a policy gives, and a hint; both empty if it is fine."""
    is_formed = bool(token) and token[0].isupper() and _LETTERS_AND_DIGITS.issuperset(token)
    if not is_formed or len(token) > LONGEST_TOKEN:
        near = derived_token(token)
        return f"a reason token ({TOKEN_FORM})", f"such as `{near}`"
    if token in RESERVED:
        return (
            "a reason token that a policy may give",
            f"`{token}` is what the scheduler itself says; docs/reasons.md lists the others, "
            "and any other word is the policy's own",
        )
    return "", ""
