"""Cluster events: what happens in the cluster, as queueing hints see it.

Owns the names of events and the derivation of events from an old and a new object. Which event is
worth a retry is `hints.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.core.model.clock_facts import CLOCK_FACTS
from engine.core.model.event_kinds import ASSIGNED_POD, FACTS, NODE, TARGET_POD, UNSCHEDULED_POD
from engine.core.model.node import Node
from engine.core.model.objects import ObjectMeta, PodManifest
from engine.core.model.pod import Pod

# Kinds that kube-scheduler names with their API group.
_GROUPS: Final = {
    "CSIDriver": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "CSIStorageCapacity": "storage.k8s.io",
    "StorageClass": "storage.k8s.io",
    "VolumeAttachment": "storage.k8s.io",
    "DeviceClass": "resource.k8s.io",
    "ResourceClaim": "resource.k8s.io",
    "ResourceSlice": "resource.k8s.io",
    "PodGroup": "scheduling.k8s.io",
}

ADD: Final = "Add"
UPDATE: Final = "Update"
DELETE: Final = "Delete"
AGE: Final = "Age"
"""Time has passed for facts."""


def qualified_kind(kind: str) -> str:
    """*kind* as kube-scheduler's metrics write it, such as `storage.k8s.io/StorageClass`."""
    group = _GROUPS.get(kind)
    return f"{group}/{kind}" if group else kind


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A kind of change: a resource (the object's kind; pods have three) and an action.

    `custom_label` names events that are not changes of one object, such as a timeout.
    """

    resource: str
    action: str
    custom_label: str = ""

    @property
    def label(self) -> str:
        """The text in metrics and logs, as kube-scheduler writes it."""
        if self.custom_label:
            return self.custom_label
        return f"{qualified_kind(self.resource)}{self.action}"

    @property
    def is_wildcard(self) -> bool:
        """True for an event after which every rejected pod is worth a retry."""
        return self.resource == "*"


NODE_ADD: Final = ClusterEvent(NODE, ADD)
NODE_UPDATE_ALLOCATABLE: Final = ClusterEvent(NODE, "UpdateNodeAllocatable")
NODE_UPDATE_TAINT: Final = ClusterEvent(NODE, "UpdateNodeTaint")
NODE_DELETE: Final = ClusterEvent(NODE, DELETE)
ASSIGNED_POD_ADD: Final = ClusterEvent(ASSIGNED_POD, ADD)
ASSIGNED_POD_UPDATE: Final = ClusterEvent(ASSIGNED_POD, UPDATE)
ASSIGNED_POD_DELETE: Final = ClusterEvent(ASSIGNED_POD, DELETE)
UNSCHEDULED_POD_ADD: Final = ClusterEvent(UNSCHEDULED_POD, ADD)
TARGET_POD_UPDATE: Final = ClusterEvent(TARGET_POD, UPDATE)
FACTS_UPDATE: Final = ClusterEvent(FACTS, UPDATE)
FACTS_AGE: Final = ClusterEvent(FACTS, AGE)
CLOCK_STEPS: Final[Mapping[str, ClusterEvent]] = {
    name: ClusterEvent(FACTS, f"Update{name.title().replace('_', '')}") for name in CLOCK_FACTS
}
"""By fact of the clock, the event that it has another value."""
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent("*", "*", "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent("*", "*", "ForceActivate")
READABLE_AGAIN: Final = ClusterEvent("*", "*", "ReadableAgain")
POLICIES_CHANGED: Final = ClusterEvent("*", "*", "PoliciesChanged")


def _meaningful(meta: ObjectMeta) -> ObjectMeta:
    """*meta* without what the API server changes by itself."""
    return msgspec.structs.replace(meta, resource_version="", generation=0)


def node_update_events(old: Node, new: Node) -> list[ClusterEvent]:
    """What changed between two versions of a node; empty if it is the same.

    A change of something that only a user's policy may read (images, capacity, being cordoned)
    is the general `NodeUpdate`; so is one that only the whole text shows, such as a heartbeat.
    """
    before, after = old.manifest, new.manifest
    actions = []
    if old.unschedulable and not new.unschedulable:
        actions.append("UpdateNodeTaint")
    if old.allocatable != new.allocatable:
        actions.append("UpdateNodeAllocatable")
    if old.labels != new.labels:
        actions.append("UpdateNodeLabel")
    if old.taints != new.taints and "UpdateNodeTaint" not in actions:
        actions.append("UpdateNodeTaint")
    if old.conditions != new.conditions:
        actions.append("UpdateNodeCondition")
    if old.annotations != new.annotations:
        actions.append("UpdateNodeAnnotation")
    if before.spec.pod_preemption_policy != after.spec.pod_preemption_policy:
        actions.append("UpdateNodePreemptionPolicy")
    if old.declared_features != new.declared_features:
        actions.append("UpdateNodeDeclaredFeature")
    if not actions and (
        before.status != after.status
        or before.spec != after.spec
        or _meaningful(before.metadata) != _meaningful(after.metadata)
        or (old.raw is not None and new.raw is not None and old.raw != new.raw)
    ):
        actions.append(UPDATE)
    return [ClusterEvent(NODE, action) for action in actions]


def _requests_more(pod: Pod, other: Pod) -> bool:
    """Whether *pod* requests something that *other* does not, or more of it."""
    requests = other.running_requests
    return any(
        name not in requests or amount > requests[name]
        for name, amount in pod.running_requests.items()
    )


def _claims_made_for(pod: PodManifest) -> tuple[Any, Any]:
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status


def pod_update_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """What changed between two versions of a pod; the general update if nothing specific did.

    That of a pod without a node is an event of `TargetPod`: only the queue takes it, for this pod.
    """
    resource = ASSIGNED_POD if new.node_name else TARGET_POD
    before, after = old.manifest, new.manifest
    actions = []
    if old.labels != new.labels:
        actions.append("UpdatePodLabel")
    if _requests_more(old, new):
        actions.append("UpdatePodScaleDown")
    if _requests_more(new, old):
        actions.append("UpdatePodScaleUp")
    if before.spec.scheduling_gates and not after.spec.scheduling_gates:
        actions.append("UpdatePodSchedulingGatesEliminated")
    if before.spec.tolerations != after.spec.tolerations:
        actions.append("UpdatePodToleration")
    if _claims_made_for(before) != _claims_made_for(after):
        actions.append("UpdatePodGeneratedResourceClaim")
    if new.is_terminating and not old.is_terminating:
        # Spreading does not count terminating pods.
        actions.append("UpdatePodTerminating")
    return [ClusterEvent(resource, action) for action in actions or [UPDATE]]


def is_meaningful_pod_change(old: Pod, new: Pod) -> bool:
    """False if only the pod's status or bookkeeping changed.

    A pending pod's status is mostly written by schedulers: reacting to it would make every failed
    attempt cause the next one.
    """
    before, after = old.manifest, new.manifest
    return before.spec != after.spec or _meaningful(before.metadata) != _meaningful(after.metadata)
