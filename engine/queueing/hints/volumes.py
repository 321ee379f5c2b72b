"""Hints of the policies that look at volumes.

Source: `EventsToRegister` of kube-scheduler's plugins of these names. Unlike there, a new node is
looked at by every one of them; disks conflict whatever the namespaces; a limit that is lifted is
one that grew; a volume that a failed placement gave back is free again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.model.node import Node
from engine.model.objects import Volume
from engine.model.pod import Pod
from engine.model.quantity import QuantityError, resource_amount
from engine.queueing.events import ADD, ASSIGNED_POD, DELETE, NODE, UPDATE
from engine.queueing.hints.interest import Around, Table, on, peek

_CLAIM: Final = "PersistentVolumeClaim"
_VOLUME: Final = "PersistentVolume"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)

# Sources of volumes that two pods on one node may contend for, and what tells disks apart.
_DISKS: Final[Mapping[str, tuple[str, ...]]] = {
    "gce_persistent_disk": ("pdName",),
    "aws_elastic_block_store": ("volumeID",),
    "iscsi": ("iqn",),
    "rbd": ("pool", "image"),
}
_ATTACHED: Final = (*_DISKS, "azure_disk", "cinder", "csi")


def claims_of(pod: Pod) -> frozenset[str]:
    """The names of the pod's claims, those that are made for it included."""
    return frozenset(
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim is not None
        else f"{pod.name}-{volume.name}"
        for volume in pod.manifest.spec.volumes
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    )


def _disks_of(pod: Pod) -> Iterator[tuple[str, ...]]:
    for volume in pod.manifest.spec.volumes:
        for source, names in _DISKS.items():
            disk = getattr(volume, source)
            if disk is not None:
                yield (source, *(str(disk.get(name, "")) for name in names))


def _is_attached(volume: Volume) -> bool:
    is_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return is_claim or any(getattr(volume, source) is not None for source in _ATTACHED)


def _own_claim(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    meta = new.metadata
    return meta.namespace == pod.namespace and meta.name in claims_of(pod)


def _classes_of(around: Around, pod: Pod) -> frozenset[str] | None:
    """The storage classes of the pod's claims; None if a claim is not known or names none."""
    classes = set()
    for name in claims_of(pod):
        claim = around.objects.get("persistentvolumeclaims", f"{pod.namespace}/{name}")
        if claim is None:
            return None
        given = claim.metadata.annotations.get(_BETA_CLASS)
        given = given or peek(claim, "spec", "storageClassName")
        if not given:
            return None
        classes.add(str(given))
    return frozenset(classes)


def _may_be_its_volume(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    """If a volume belongs to a claim of the pod, or to none yet."""
    claim = peek(new, "spec", "claimRef")
    if claim is None or not peek(claim, "name"):
        return True
    return peek(claim, "namespace") == pod.namespace and peek(claim, "name") in claims_of(pod)


def _uses_claims(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    return bool(claims_of(pod))


# --- VolumeRestrictions ----------------------------------------------------------------------


def _shared_a_volume(around: Around, pod: Pod, old: Pod, new: None) -> bool:
    if old.namespace == pod.namespace and claims_of(old) & claims_of(pod):
        return True
    return not set(_disks_of(old)).isdisjoint(_disks_of(pod))


# --- NodeVolumeLimits ------------------------------------------------------------------------


def _limits(csi_node: Any) -> dict[str, int | None]:
    """By driver, how many volumes a node takes; None for as many as there are."""
    return {
        peek(driver, "name"): peek(driver, "allocatable", "count")
        for driver in peek(csi_node, "spec", "drivers") or ()
    }


def _limit_grew(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    before, after = _limits(old), _limits(new)
    for driver, limit in before.items():
        now = after.get(driver)
        if limit is not None and (now is None or now > limit):
            return True
    return bool(after.keys() - before.keys())  # a driver that was not installed


def _let_go_of_volumes(around: Around, pod: Pod, old: Pod, new: None) -> bool:
    is_placed = old.node_name or old.nominated_node_name
    return bool(is_placed) and any(map(_is_attached, old.manifest.spec.volumes))


def _attaches(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    return any(map(_is_attached, pod.manifest.spec.volumes))


# --- VolumeBinding ---------------------------------------------------------------------------


def _migration_changed(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    return old is None or bool(
        old.metadata.annotations.get(_MIGRATED) != new.metadata.annotations.get(_MIGRATED)
    )


def _topologies_changed(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    return old is None or bool(old.allowed_topologies != new.allowed_topologies)


def _capacity_is_ignored(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    """If a driver's capacity was looked at and is not any more."""
    was_tracked = bool(peek(old, "spec", "storageCapacity"))
    is_tracked = bool(peek(new, "spec", "storageCapacity"))
    return was_tracked and not is_tracked and bool(claims_of(pod))


def _capacity_grew(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    classes = _classes_of(around, pod)
    if classes is not None and new.storage_class_name not in classes:
        return False
    before, after = _largest(old), _largest(new)
    return old is None or (after is not None and (before is None or after > before))


def _largest(capacity: Any) -> int | None:
    """The largest volume that a capacity has room for, in bytes; None if it does not say."""
    for name in ("maximumVolumeSize", "capacity"):
        amount = peek(capacity, name)
        if amount is not None:
            try:
                return resource_amount("storage", amount)
            except QuantityError:
                return None
    return None


# --- VolumeZone ------------------------------------------------------------------------------


def _zone_changed(around: Around, pod: Pod, old: Node | None, new: Node) -> bool:
    return old is None or any(old.labels.get(key) != new.labels.get(key) for key in _ZONE_LABELS)


def _zone_of_volume_changed(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    if not _may_be_its_volume(around, pod, old, new):
        return False
    return old is None or any(
        old.metadata.labels.get(key) != new.metadata.labels.get(key) for key in _ZONE_LABELS
    )


def _waits_for_consumers(around: Around, pod: Pod, old: Any, new: Any) -> bool:
    return bool(new.volume_binding_mode == "WaitForFirstConsumer")


HINTS: Final[Table] = {
    "VolumeRestrictions": (
        on(ASSIGNED_POD, DELETE, check=_shared_a_volume),
        on(NODE, ADD),
        on(NODE, DELETE, check=_uses_claims),
        on(_CLAIM, ADD, check=_own_claim),
    ),
    "NodeVolumeLimits": (
        on(ASSIGNED_POD, DELETE, check=_let_go_of_volumes),
        on(NODE, ADD),
        on("CSINode", ADD, DELETE),
        on("CSINode", UPDATE, check=_limit_grew),
        on(_CLAIM, ADD, UPDATE, check=_own_claim),
        on(_VOLUME, ADD, UPDATE, check=_may_be_its_volume),
        on("VolumeAttachment", DELETE, check=_attaches),
    ),
    "VolumeBinding": (
        on(ASSIGNED_POD, DELETE, check=_let_go_of_volumes),
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
