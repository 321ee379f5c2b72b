"""The hint of DynamicResources: devices come and go, and so do claims to them.

Source: `EventsToRegister` of kube-scheduler's DynamicResources. Unlike there, a claim that a failed
placement released frees devices too, and so may a slice that is gone.
"""

from typing import Any, Final

from engine.core.model.devices import EXTENDED_CLAIM_ANNOTATION
from engine.core.model.event_kinds import ASSIGNED_POD, NODE, TARGET_POD
from engine.core.model.pod import Pod
from engine.core.queueing.events import ADD, DELETE, UPDATE
from engine.core.queueing.hints.interest import ClusterContext, Table, on, peek


def claim_names(pod: Pod) -> frozenset[str]:
    """The names of the pod's resource claims, as far as they are known."""
    manifest = pod.manifest
    named = {one.resource_claim_name for one in manifest.spec.resource_claims}
    made = {peek(one, "resourceClaimName") for one in manifest.status.resource_claim_statuses}
    made.add(peek(manifest.status, "extendedResourceClaimStatus", "resourceClaimName"))
    return frozenset(name for name in (*named, *made) if name)


def _claim_changed(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    had = peek(old, "status", "allocation")
    if had and had != peek(new, "status", "allocation"):
        return True  # its devices are free for any pod
    if new is None:
        # An earlier attempt may have created it and then failed: no node is feasible while it
        # exists. Which pod's attempt does not matter: pods of a workload are judged together.
        meta = old.metadata
        return meta.namespace == pod.namespace and EXTENDED_CLAIM_ANNOTATION in meta.annotations
    if new.metadata.namespace != pod.namespace:
        return False
    if new.metadata.name not in claim_names(pod):
        return False
    return old is None or peek(old, "status") != peek(new, "status")


def _released_claims(context: ClusterContext, pod: Pod, old: Pod, new: None) -> bool:
    return bool(old.manifest.spec.resource_claims) or bool(claim_names(old))


HINTS: Final[Table] = {
    "DynamicResources": (
        on(ASSIGNED_POD, DELETE, check=_released_claims),
        on(NODE, ADD, "UpdateNodeLabel", "UpdateNodeAllocatable"),
        on(TARGET_POD, "UpdatePodGeneratedResourceClaim"),
        on("ResourceClaim", ADD, UPDATE, DELETE, check=_claim_changed),
        on("DeviceClass", ADD, UPDATE),
        # Once a slice is gone, its pool may be complete. A change of a DeviceTaintRule is an update
        # of the slices whose devices it means.
        on("ResourceSlice", ADD, UPDATE, DELETE),
    ),
}
