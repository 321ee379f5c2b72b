"""Hints of the policies that look at volumes.

Source: `EventsToRegister` of kube-scheduler's plugins of these names. Unlike there, a new node is
of interest to each of them; disks conflict across namespaces; a limit that is lifted counts as
raised; a driver that is installed later, or that is not required any more, may help; a volume that
a failed placement released is free again.
"""

from typing import Any, Final

from engine.core.caching.objects import object_key
from engine.core.model.event_kinds import ASSIGNED_POD, NODE
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.pod_volumes import ClaimUse, Disk
from engine.core.model.quantity import QuantityError, nano_value, resource_amount
from engine.core.model.storage import BETA_CLASS
from engine.core.queueing.events import ADD, DELETE, UPDATE
from engine.core.queueing.hints.interest import ClusterContext, Table, on, peek

_CLAIM: Final = "PersistentVolumeClaim"
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUME: Final = "PersistentVolume"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def _claims_of(pod: Pod) -> frozenset[str]:
    """The keys of the pod's claims, including those created for it."""
    return frozenset(v.use.key for v in pod.volumes if isinstance(v.use, ClaimUse))


def _disks_of(pod: Pod) -> frozenset[tuple[str, str]]:
    return frozenset((v.use.kind, v.use.name) for v in pod.volumes if isinstance(v.use, Disk))


def _own_claim(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return object_key(new) in _claims_of(pod)


def _classes_of(context: ClusterContext, pod: Pod) -> frozenset[str] | None:
    """The storage classes of the pod's claims; None if a claim is not known or names none."""
    classes = set()
    for key in _claims_of(pod):
        claim = context.objects.get(_CLAIMS, key)
        if claim is None:
            return None
        given = claim.metadata.annotations.get(BETA_CLASS)
        given = given or peek(claim, "spec", "storageClassName")
        if not given:
            return None
        classes.add(str(given))
    return frozenset(classes)


def _may_be_its_volume(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Whether a volume belongs to a claim of the pod, or to none yet."""
    ref = peek(new, "spec", "claimRef")
    if not peek(ref, "name"):
        return True
    bound = context.objects.indexed(_CLAIMS, _volume_of, new.metadata.name)
    wanted = {f"{peek(ref, 'namespace')}/{peek(ref, 'name')}", *map(object_key, bound)}
    return any(isinstance(v.use, ClaimUse) and v.use.key in wanted for v in pod.volumes)


def _volume_of(claim: Any) -> str:
    """The name of the volume that a claim is bound to, or empty."""
    return peek(claim, "spec", "volumeName") or ""


def _uses_claims(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return bool(_claims_of(pod))


def _uses_volumes(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return bool(pod.volumes)


# --- VolumeRestrictions ----------------------------------------------------------------------


def _shares_a_volume(context: ClusterContext, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    other = new if old is None else old
    assert other is not None
    return bool(_claims_of(other) & _claims_of(pod) or _disks_of(other) & _disks_of(pod))


# --- NodeVolumeLimits ------------------------------------------------------------------------


def _limits(csi_node: Any) -> dict[str, int | None]:
    """By driver, how many volumes a node takes; None: any number."""
    return {
        peek(driver, "name"): peek(driver, "allocatable", "count")
        for driver in peek(csi_node, "spec", "drivers") or ()
    }


def _limit_grew(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    if _migration_changed(context, pod, old, new):
        return True
    before, after = _limits(old), _limits(new)
    for driver, limit in before.items():
        now = after.get(driver)
        if limit is not None and (now is None or now > limit):
            return True
    return bool(after.keys() - before.keys())  # a driver that was not installed


def _is_optional_now(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Whether a driver kept pods off nodes without it, and does not any more."""
    was_required = bool(peek(old, "spec", "preventPodSchedulingIfMissing"))
    is_required = bool(peek(new, "spec", "preventPodSchedulingIfMissing"))
    return was_required and not is_required and bool(pod.volumes)


def _released_volumes(context: ClusterContext, pod: Pod, old: Pod, new: None) -> bool:
    return bool(old.node_name or old.nominated_node_name) and bool(old.volumes)


# --- VolumeBinding ---------------------------------------------------------------------------


def _migration_changed(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return old is None or bool(
        old.metadata.annotations.get(_MIGRATED) != new.metadata.annotations.get(_MIGRATED)
    )


def _topologies_changed(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return old is None or bool(old.allowed_topologies != new.allowed_topologies)


def _capacity_is_ignored(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Whether a driver's capacity was looked at and is not any more."""
    was_tracked = bool(peek(old, "spec", "storageCapacity"))
    is_tracked = bool(peek(new, "spec", "storageCapacity"))
    return was_tracked and not is_tracked and bool(_claims_of(pod))


def _capacity_grew(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    is_exact = context.objects.behaves.growth_in_fractions
    before, after = _largest(old, is_exact), _largest(new, is_exact)
    if old is not None and (after is None or (before is not None and after <= before)):
        return False
    classes = _classes_of(context, pod)
    return classes is None or new.storage_class_name in classes


def _largest(capacity: Any, is_exact: bool) -> int | None:
    """The largest volume that a capacity allows; None if it does not say.

    In 10^-9 bytes if *is_exact*; else in bytes, rounded up, and no more than an int64 holds.
    """
    for name in ("maximumVolumeSize", "capacity"):
        amount = peek(capacity, name)
        if amount is not None:
            try:
                return nano_value(amount) if is_exact else resource_amount("storage", amount)
            except QuantityError:
                return None
    return None


# --- VolumeZone ------------------------------------------------------------------------------


def _zone_changed(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    return old is None or any(old.labels.get(key) != new.labels.get(key) for key in _ZONE_LABELS)


def _zone_of_volume_changed(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    if not _may_be_its_volume(context, pod, old, new):
        return False
    return old is None or any(
        old.metadata.labels.get(key) != new.metadata.labels.get(key) for key in _ZONE_LABELS
    )


def _waits_for_consumers(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    return bool(new.volume_binding_mode == "WaitForFirstConsumer")


HINTS: Final[Table] = {
    "VolumeRestrictions": (
        on(ASSIGNED_POD, DELETE, check=_shares_a_volume),
        on(NODE, ADD),
        on(NODE, DELETE, check=_uses_claims),
        on(_CLAIM, ADD, check=_own_claim),
    ),
    "NodeVolumeLimits": (
        on(ASSIGNED_POD, DELETE, check=_released_volumes),
        on(ASSIGNED_POD, ADD, check=_shares_a_volume),  # there it counts against no limit again
        on(NODE, ADD),
        on("CSINode", ADD, DELETE),
        on("CSINode", UPDATE, check=_limit_grew),
        on("CSIDriver", UPDATE, DELETE, check=_is_optional_now),
        on(_CLAIM, ADD, UPDATE, check=_own_claim),
        on(_VOLUME, ADD, UPDATE, check=_may_be_its_volume),
        # A volume without a driver counts against no limit.
        on(_VOLUME, DELETE, check=_uses_volumes),
        on("StorageClass", DELETE, check=_uses_claims),
        on("VolumeAttachment", DELETE, check=_uses_volumes),
    ),
    "VolumeBinding": (
        on(ASSIGNED_POD, DELETE, check=_released_volumes),
        on(NODE, ADD, "UpdateNodeLabel"),
        on("StorageClass", ADD, UPDATE, check=_topologies_changed),
        on(_CLAIM, ADD, UPDATE, check=_own_claim),
        on(_VOLUME, ADD, UPDATE, check=_may_be_its_volume),
        on("CSINode", ADD, UPDATE, check=_migration_changed),
        on("CSIDriver", UPDATE, DELETE, check=_capacity_is_ignored),
        on("CSIStorageCapacity", ADD, UPDATE, check=_capacity_grew),
    ),
    "VolumeZone": (
        on(NODE, ADD, "UpdateNodeLabel", check=_zone_changed),
        on("StorageClass", ADD, check=_waits_for_consumers),
        on(_CLAIM, ADD, UPDATE, check=_own_claim),
        on(_VOLUME, ADD, UPDATE, check=_zone_of_volume_changed),
    ),
}
