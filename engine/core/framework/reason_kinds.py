"""The table of reason tokens: one stable word for each cause that keeps a pod from running.

Owns the entries and their form. `docs/reasons.md` is made of the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.core.framework.owner import Owner

# Which cause is dominant, the first that applies. Within a rank, the one that decides most nodes.
BROKEN: Final = 0  # no waiting helps: something has to be repaired
MISSING: Final = 1  # an object has to be created, for this pod alone
HELD: Final = 2  # it is not about nodes: the pod would be rejected by any of them
FULL: Final = 3  # nodes that the pod would accept do not accept it
ELSEWHERE: Final = 4  # nodes that the pod itself rules out, or that are closed
PASSING: Final = 5  # nothing is wrong


@dataclass(frozen=True, slots=True)
class ReasonKind:
    """What a token means.

    Attributes:
        token: The word, in CamelCase.
        meaning: The cause, in one line.
        node_helps: One more node, like those that there are, could let the pod run.
        next_step: What to do about it.
        rank: Of several causes the one with the smallest is the dominant one.
        is_for_policies: Policies may give it; others are for the runtime alone.
        owner: Of a failure: whose fault it is. None: nothing failed.
        costs: Of a failure: what it costs, and whom.
    """

    token: str
    meaning: str
    node_helps: bool
    next_step: str
    rank: int
    is_for_policies: bool = True
    owner: Owner | None = None
    costs: str = ""


def _runtime(token: str, meaning: str, helps: bool, next_step: str, rank: int) -> ReasonKind:
    return ReasonKind(token, meaning, helps, next_step, rank, is_for_policies=False)


def _failure(
    token: str, meaning: str, next_step: str, owner: Owner, costs: str, *, rank: int = BROKEN
) -> ReasonKind:
    return ReasonKind(token, meaning, False, next_step, rank, False, owner, costs)


#: The token of what no other token explains.
INTERNAL_ERROR: Final = "InternalError"
#: The token of a search that may get further the next time, whatever changes.
SEARCH_TOO_LONG: Final = "DeviceSearchTooLong"

_THAT_POD: Final = "that pod waits until the object is another one; no other pod does"

_ENTRIES: Final = (
    # --- something is broken ----------------------------------------------------------------------
    _failure(
        "InvalidPod",
        "an amount in the pod's spec cannot be read",
        "create the pod again with valid amounts",
        Owner.OBJECT,
        "that pod waits until it is replaced; no other pod does",
    ),
    _failure(
        "PolicyFailed",
        "a policy raised an error, ran into a limit or returned something that is no verdict",
        "repair the policy at the file and line in the message",
        Owner.POLICY,
        "that pod one attempt; an edit that fails where the text in force does not is rejected, "
        "or rolled back",
    ),
    _failure(
        "ClaimSelectorFailed",
        "a CEL selector of the pod's ResourceClaim fails on a device, or is no valid expression",
        "correct the selector in the claim, or its template, that the message names: guard "
        "attributes that a device may not have",
        Owner.OBJECT,
        _THAT_POD,
    ),
    _failure(
        "ClassSelectorFailed",
        "a CEL selector of a DeviceClass fails on a device, or is no valid expression",
        "correct the selector in the class that the message names: guard attributes that a device "
        "may not have",
        Owner.OBJECT,
        "pods with claims of that class wait until it is another one; no other pod does",
    ),
    _failure(
        "InvalidClaim",
        "the pod's ResourceClaim asks for what no device can be, or in a way that is not "
        "understood",
        "correct the claim, or its template, as the message says",
        Owner.OBJECT,
        _THAT_POD,
    ),
    _failure(
        "InvalidDevice",
        "a ResourceSlice describes a device in a way that is not understood",
        "look at the slice that the message or its driver names; its driver publishes it",
        Owner.OBJECT,
        "pods whose claims look at that device wait until it is another one; no other pod does",
    ),
    _failure(
        SEARCH_TOO_LONG,
        "the search for devices took longer than `filterTimeout`",
        "make the claims simpler, or raise `filterTimeout` of DynamicResources",
        Owner.OBJECT,
        "that pod one attempt; the time-out bounds what it keeps other pods waiting",
    ),
    _failure(
        "InvalidVolume",
        "a PersistentVolumeClaim, PersistentVolume or storage class of the pod has a field that "
        "cannot be understood",
        "correct the object as the message says",
        Owner.OBJECT,
        _THAT_POD,
    ),
    _failure(
        "ExtenderFailed",
        "an extender did not answer, or answered with an error",
        "look at the extender's log; an extender that may be left out is `ignorable`",
        Owner.EXTENDER,
        "pods that the extender is asked about one attempt each, and its time-out",
    ),
    _failure(
        INTERNAL_ERROR,
        "an unexpected error of the scheduler ended the attempt",
        "report the error that the log has for this pod",
        Owner.RUNTIME,
        "that pod one attempt",
    ),
    _runtime(
        "ClusterNotReadable",
        "objects that the decision depends on could not be read for too long",
        False,
        "give the scheduler the right that the message names, or repair what the API server fails "
        "with; the pod is tried again at once",
        BROKEN,
    ),
    _failure(
        "ObjectNotReadable",
        "an object that the decision depends on has a field whose value is not understood",
        "correct the field of the object that the message names, or upgrade the scheduler",
        Owner.OBJECT,
        "pods that depend on that object wait until it is another one, a node that it is about "
        "takes no pods, and pods that it may protect are not evicted; nothing else is held",
    ),
    _failure(
        "BindingFailed",
        "a node was chosen, and the pod could not be prepared for it or bound to it",
        "read the message; the pod is tried again after its backoff",
        Owner.NETWORK,
        "that pod one attempt",
    ),
    _failure(
        "InvalidGroup",
        "the pod's group cannot be followed: its pods contradict each other, or its PodGroup has a "
        "field that is not understood or is not served",
        "correct the PodGroup or the pods as the message says",
        Owner.OBJECT,
        "the pods of that group wait; no other pod does",
    ),
    ReasonKind(
        "AffinityConflict",
        "no node can ever match all of the pod's required node affinity",
        False,
        "repair `spec.affinity.nodeAffinity` of the pod's template",
        BROKEN,
    ),
    # --- an object is missing ---------------------------------------------------------------------
    ReasonKind(
        "WaitingForClaim",
        "a claim that the pod names does not exist, is being deleted or is not usable",
        False,
        "create or repair the PersistentVolumeClaim or ResourceClaim that the message names",
        MISSING,
    ),
    ReasonKind(
        "WaitingForVolume",
        "a claim has no volume yet, or its volume does not exist",
        False,
        "look at the events of the PersistentVolumeClaim and at its storage class",
        MISSING,
    ),
    ReasonKind(
        "ClassMissing",
        "a storage class or device class that a claim names does not exist or is incomplete",
        False,
        "create the class that the message names, or name another one in the claim",
        MISSING,
    ),
    # --- it is not about nodes --------------------------------------------------------------------
    ReasonKind(
        "QuotaReached",
        "a quota of a policy is used up",
        False,
        "free some of the quota, or raise it",
        HELD,
    ),
    _runtime(
        "HeldByQueue",
        "the policy that governs the queues does not let the pod's queue start it",
        False,
        "see the policy's reason in the message, and `starsched shares`",
        HELD,
    ),
    _runtime(
        "QueueMissing",
        "the pod names a queue that is not in the tree",
        False,
        "create the queue, correct its name in the pod, or say in the QueueTree's `unknown` where "
        "such pods go",
        MISSING,
    ),
    _runtime(
        "QueueNotALeaf",
        "the pod names a queue that has others under it",
        False,
        "name one of the queues under it",
        MISSING,
    ),
    _runtime(
        "GatedByPolicy",
        "a policy does not let the pod into the queue",
        False,
        "see the policy's reason in the message",
        HELD,
    ),
    _runtime(
        "GatedBySchedulingGates",
        "the pod has scheduling gates",
        False,
        "wait for the controller that removes the gates, or remove them from "
        "`spec.schedulingGates`",
        HELD,
    ),
    ReasonKind(
        "GroupIncomplete",
        "the pod's group has fewer pods than belong together, or does not exist yet",
        False,
        "create the missing pods of the group, or its PodGroup",
        HELD,
    ),
    _runtime(
        "GroupDoesNotFit",
        "not enough pods of the pod's group found a node, so none of them keeps one",
        True,
        "look at the pods of the group with another reason: they found no node",
        ELSEWHERE,
    ),
    _runtime(
        "WaitingOnPermit",
        "the pod has a node, and a policy makes it wait before it is bound",
        False,
        "see in the message what the policy waits for, and for how long at most",
        HELD,
    ),
    _runtime(
        "WaitingForPreemption",
        "pods are being evicted to make way for the pod, or for another one on its node",
        False,
        "wait until the victims have terminated",
        HELD,
    ),
    _runtime(
        "Throttled",
        "the pod is not tried for a while, as policies took too long for pods like it",
        False,
        "make the policy that the message names faster",
        HELD,
    ),
    # --- nodes that the pod would accept ----------------------------------------------------------
    _runtime(
        "NoNodes",
        "the cluster has no nodes",
        True,
        "add a node",
        FULL,
    ),
    ReasonKind(
        "InsufficientResources",
        "nodes have too little cpu, memory or another resource left",
        True,
        "lower the pod's requests, free capacity, or add a node",
        FULL,
    ),
    ReasonKind(
        "TooManyPods",
        "nodes have as many pods as they may",
        True,
        "add a node, or raise `maxPods` of the kubelets",
        FULL,
    ),
    ReasonKind(
        "PortsTaken",
        "a host port that the pod wants is in use on nodes",
        True,
        "use a Service in place of `hostPort`, or add a node",
        FULL,
    ),
    ReasonKind(
        "PodAffinityMismatch",
        "the pods that the pod wants to be near to are not there",
        True,
        "look for pods that match the terms of `spec.affinity.podAffinity`",
        FULL,
    ),
    ReasonKind(
        "PodAntiAffinityMismatch",
        "pods are there that the pod must not be near to, or that must not be near to it",
        True,
        "add a node in another domain, or relax the anti-affinity",
        FULL,
    ),
    ReasonKind(
        "TopologySpreadMismatch",
        "the pod would make its workload too uneven over zones, nodes or other domains",
        True,
        "free capacity in the emptier domains, add a node there, or raise `maxSkew`",
        FULL,
    ),
    ReasonKind(
        "VolumeInUse",
        "a volume of the pod is in use by a pod that it cannot be shared with",
        False,
        "wait for the other pod to end, or use a volume that can be shared",
        FULL,
    ),
    ReasonKind(
        "VolumeInUseOnNode",
        "a volume of the pod is in use on nodes by a pod that it cannot be shared with there",
        True,
        "wait for the other pod to end, or add a node",
        FULL,
    ),
    ReasonKind(
        "VolumeLimitReached",
        "nodes have as many volumes attached as they can",
        True,
        "add a node, or spread the pods with volumes",
        FULL,
    ),
    ReasonKind(
        "VolumeDriverMissing",
        "a CSI driver is not installed on nodes",
        True,
        "install the driver that the message names on the nodes",
        FULL,
    ),
    ReasonKind(
        "NoMatchingVolume",
        "no volume that nodes can reach matches a claim, and none can be made there",
        True,
        "create a PersistentVolume for the claim, or use a class that provisions there",
        FULL,
    ),
    ReasonKind(
        "InsufficientStorage",
        "the storage that nodes can reach has too little free capacity",
        True,
        "add storage, or lower the claim's request",
        FULL,
    ),
    ReasonKind(
        "DevicePoolNotReady",
        "a pool of devices that nodes reach is being updated, or contradicts itself",
        True,
        "look at the ResourceSlices of the nodes: their driver publishes the pool",
        FULL,
        is_for_policies=False,
        owner=Owner.OBJECT,
        costs="its nodes are left out for requests for all devices; other nodes are not",
    ),
    ReasonKind(
        "InsufficientDevices",
        "nodes have too few free devices for the pod's claims",
        True,
        "free devices, add a node that has some, or relax the claim's selectors",
        FULL,
    ),
    _runtime(
        "ExtenderRejected",
        "an extender does not let the pod onto nodes",
        True,
        "look at the extender's reasons in the message",
        FULL,
    ),
    # --- nodes that the pod rules out, or that are closed -----------------------------------------
    ReasonKind(
        "VolumeZoneMismatch",
        "nodes are not in the zone of a volume of the pod",
        True,
        "add a node in the volume's zone",
        ELSEWHERE,
    ),
    ReasonKind(
        "VolumeNodeMismatch",
        "nodes cannot reach a volume of the pod",
        True,
        "add a node that the volume's node affinity matches",
        ELSEWHERE,
    ),
    ReasonKind(
        "DeviceNodeMismatch",
        "nodes cannot reach the devices that the pod's claim has already",
        False,
        "free capacity on the nodes that can, or delete the claim so that it is allocated again",
        ELSEWHERE,
    ),
    _runtime(
        "LeftOutByPolicy",
        "a policy chose other nodes before any was looked at",
        True,
        "see which nodes the policy's `pre_filter` chooses",
        ELSEWHERE,
    ),
    ReasonKind(
        "TopologyLabelMissing",
        "nodes do not have the label that the pod is to be spread by",
        True,
        "give the nodes the label of the constraint's `topologyKey`",
        ELSEWHERE,
    ),
    ReasonKind(
        "FeatureMissing",
        "nodes do not declare a feature that the pod needs",
        True,
        "upgrade the nodes",
        ELSEWHERE,
    ),
    ReasonKind(
        "UntoleratedTaint",
        "nodes have a taint that the pod does not tolerate",
        True,
        "add a toleration to the pod, remove the taint, or add a node without it",
        ELSEWHERE,
    ),
    ReasonKind(
        "NodeUnschedulable",
        "nodes are cordoned",
        True,
        "`kubectl uncordon` a node, or add one",
        ELSEWHERE,
    ),
    ReasonKind(
        "AffinityMismatch",
        "nodes do not match the pod's node selector or required node affinity",
        True,
        "label a node accordingly, add such a node, or correct the selector",
        ELSEWHERE,
    ),
    ReasonKind(
        "NodeNameMismatch",
        "the pod wants a node of a certain name",
        False,
        "correct the name of the node in the pod",
        ELSEWHERE,
    ),
    # --- nothing is wrong -------------------------------------------------------------------------
    _runtime(
        "NotYetTried",
        "the pod has not had its turn",
        False,
        "wait; pods before it in the queue go first",
        PASSING,
    ),
    _runtime(
        "BackingOff",
        "the last attempt was cut short, by new policies, a lost node or a changed group",
        False,
        "wait; it is tried again after its backoff",
        PASSING,
    ),
)

#: Every token of the runtime and of the shipped policies. Policies have others of their own.
REASONS: Final[Mapping[str, ReasonKind]] = MappingProxyType({one.token: one for one in _ENTRIES})
