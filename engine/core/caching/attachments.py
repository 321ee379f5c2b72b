"""Which CSI volume a pod's claim or disk stands for, and which nodes use it.

Owns the way from a claim to the volume that a driver attaches, an index of the nodes on which
claims and disks are used, and which nodes a change of a storage object is about.
"""

from collections.abc import Iterable
from typing import Any, Final

from engine.core.caching.objects import ObjectStore, object_key
from engine.core.model.csi_migration import (
    Attachment,
    migrated_plugin,
    provisioning_driver,
    volume_attachment,
)
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod_volumes import ClaimUse, VolumeUse
from engine.core.model.storage import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

VOLUMES: Final = "persistentvolumes"
CLAIMS: Final = "persistentvolumeclaims"
CLASSES: Final = "storageclasses"
CSI_NODES: Final = "csinodes"
CSI_DRIVERS: Final = "csidrivers"
ATTACHMENTS: Final = "volumeattachments"


# --- indexes of the store --------------------------------------------------------------------


def by_attachment(volume: PersistentVolume) -> str | None:
    """Files volumes by what a driver knows them as."""
    attachment = volume_attachment(volume)
    return None if attachment is None else "/".join(attachment)


def by_volume(claim: PersistentVolumeClaim) -> str | None:
    """Files claims by the name of their volume."""
    return claim.spec.volume_name or None


def by_node(attachment: VolumeAttachment) -> str:
    """Files attachments by the name of their node."""
    return attachment.spec.node_name


def by_attached_volume(attachment: VolumeAttachment) -> str | None:
    """Files attachments by the name of their volume."""
    return attachment.spec.source.persistent_volume_name


# --- from a use to a volume ------------------------------------------------------------------


def attachment_of(use: VolumeUse, objects: ObjectStore) -> Attachment | None:
    """What *use* counts as against the limits of a driver; None if it counts for none.

    A claim without a volume counts as a volume of its own, of the driver that will make it.
    """
    if not isinstance(use, ClaimUse):
        return use.attachment
    claim: PersistentVolumeClaim | None = objects.get(CLAIMS, use.key)
    if claim is None or (use.owner_uid and claim.controller_uid != use.owner_uid):
        return None
    if claim.spec.volume_name:
        volume = objects.get(VOLUMES, claim.spec.volume_name)
        if volume is not None:
            return volume_attachment(volume)
    storage_class = objects.get(CLASSES, claim.class_name) if claim.class_name else None
    driver = "" if storage_class is None else provisioning_driver(storage_class.provisioner)
    # No driver's handle looks like this, so it never meets the volume that it will become.
    return Attachment(driver, f"claim {use.key}") if driver else None


def is_for_in_tree_plugin(use: VolumeUse, objects: ObjectStore) -> bool:
    """True if what *use* means was an in-tree plugin's before a CSI driver took over.

    Only for a use that has an attachment.
    """
    if not isinstance(use, ClaimUse):
        return True  # a pod names no other disks that count
    claim: PersistentVolumeClaim | None = objects.get(CLAIMS, use.key)
    assert claim is not None, f"claim `{use.key}` has an attachment"
    volume = objects.get(VOLUMES, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return bool(migrated_plugin(volume))
    storage_class: StorageClass | None = objects.get(CLASSES, claim.class_name)
    assert storage_class is not None, f"claim `{use.key}` has an attachment"
    return provisioning_driver(storage_class.provisioner) != storage_class.provisioner


def must_be_installed(driver: str, objects: ObjectStore) -> bool:
    """True if no pod may use *driver* on a node that does not have it, as its CSIDriver says."""
    found: CSIDriver | None = objects.get(CSI_DRIVERS, driver)
    return found is not None and bool(found.spec.prevent_pod_scheduling_if_missing)


def volumes_in_use(info: NodeInfo, objects: ObjectStore) -> dict[str, list[str]]:
    """The volumes that the pods of *info* use: by driver, the handles in order, each once."""
    if not info.volumes:
        return {}
    found = {attachment_of(use, objects) for use in info.volumes}
    handles: dict[str, list[str]] = {}
    for attachment in sorted(a for a in found if a is not None):
        handles.setdefault(attachment.driver, []).append(attachment.handle)
    return handles


def other_attached_volumes(info: NodeInfo, objects: ObjectStore) -> dict[str, int]:
    """How many volumes are attached to the node that no pod of *info* uses, by driver."""
    attached = set()
    for attachment in objects.indexed(ATTACHMENTS, by_node, info.name):
        volume = objects.get(VOLUMES, attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
            attached.add(Attachment(attachment.spec.attacher, volume.spec.csi.volume_handle))
    counts: dict[str, int] = {}
    if attached:
        attached -= {attachment_of(use, objects) for use in info.volumes}
        for attachment in attached:
            counts[attachment.driver] = counts.get(attachment.driver, 0) + 1
    return counts


def volume_limits(node_name: str, objects: ObjectStore) -> dict[str, int]:
    """How many volumes of each driver the node takes; drivers without a limit are left out."""
    csi_node: CSINode | None = objects.get(CSI_NODES, node_name)
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def csi_drivers(node_name: str, objects: ObjectStore) -> list[str] | None:
    """The CSI drivers that are installed on the node, sorted; None if nothing says which."""
    csi_node: CSINode | None = objects.get(CSI_NODES, node_name)
    return None if csi_node is None else sorted(driver.name for driver in csi_node.spec.drivers)


# --- from a volume to nodes ------------------------------------------------------------------


class VolumeUsers:
    """On which nodes claims and disks are used, as of a snapshot."""

    def __init__(self) -> None:
        self._nodes: dict[VolumeUse, dict[str, None]] = {}
        self._attachments: dict[Attachment, int] = {}  # of disks: on how many nodes

    def copy(self) -> "VolumeUsers":
        """The same, on its own from now on."""
        copy = VolumeUsers()
        copy._nodes = {use: nodes.copy() for use, nodes in self._nodes.items()}
        copy._attachments = self._attachments.copy()
        return copy

    def move(self, old: NodeInfo | None, new: NodeInfo | None) -> None:
        """Note that *old* has become *new*, which is the same node or none."""
        before = {} if old is None else old.volumes
        after = {} if new is None else new.volumes
        if before is after:
            return
        if old is not None:
            for use in before.keys() - after.keys():
                nodes = self._nodes[use]
                del nodes[old.name]
                if not nodes:
                    del self._nodes[use]
                self._count_disk(use, -1)
        if new is not None:
            for use in after.keys() - before.keys():
                self._nodes.setdefault(use, {})[new.name] = None
                self._count_disk(use, 1)

    def _count_disk(self, use: VolumeUse, difference: int) -> None:
        if isinstance(use, ClaimUse) or use.attachment is None:
            return
        count = self._attachments.get(use.attachment, 0) + difference
        if count:
            self._attachments[use.attachment] = count
        else:
            del self._attachments[use.attachment]

    def nodes_of(self, use: VolumeUse) -> list[str]:
        """The names of the nodes with pods that use it, sorted."""
        return sorted(self._nodes.get(use, ()))

    def all_nodes(self) -> set[str]:
        """The names of all nodes whose pods use a claim or a disk."""
        return {name for nodes in self._nodes.values() for name in nodes}

    def may_share(self, use: VolumeUse, attachment: Attachment, objects: ObjectStore) -> bool:
        """False only if no pod anywhere uses the volume of *attachment*, by whatever claim."""
        if use in self._nodes or attachment in self._attachments:
            return True
        # A volume that another object speaks of may be in use through that one.
        volumes = objects.indexed(VOLUMES, by_attachment, "/".join(attachment))
        return len(volumes) > isinstance(use, ClaimUse)


class StorageChanges:
    """Collects the nodes that are affected by changes of storage objects."""

    def __init__(self, objects: ObjectStore, users: VolumeUsers) -> None:
        self._objects = objects
        self._users = users
        self._names: set[str] = set()
        objects.listen(CSI_NODES, self._csi_node)
        objects.listen(ATTACHMENTS, self._attachment)
        objects.listen(CLAIMS, self._claim)
        objects.listen(VOLUMES, self._volume)
        objects.listen(CLASSES, self._class)

    def take(self) -> Iterable[str]:
        """The names of the nodes since the last call, in a fixed order."""
        if not self._names:
            return ()
        names, self._names = sorted(self._names), set()
        return names

    def _csi_node(self, old: CSINode | None, new: CSINode | None) -> None:
        self._names.update(obj.metadata.name for obj in (old, new) if obj is not None)

    def _attachment(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        self._names.update(obj.spec.node_name for obj in (old, new) if obj is not None)

    def _claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        claims = [claim for claim in (old, new) if claim is not None]
        owners = {"", *(claim.controller_uid for claim in claims)}
        for owner in owners:
            self._names.update(self._users.nodes_of(ClaimUse(object_key(claims[0]), owner)))

    def _volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None and new is not None and old.spec == new.spec and _same_zone(old, new):
            return  # most changes of a volume are of its status
        volume = old or new
        assert volume is not None
        name = volume.metadata.name
        for claim in self._objects.indexed(CLAIMS, by_volume, name):
            self._claim(claim, None)
        for attachment in self._objects.indexed(ATTACHMENTS, by_attached_volume, name):
            self._names.add(attachment.spec.node_name)

    def _class(self, *_: Any) -> None:
        self._names |= self._users.all_nodes()


def _same_zone(one: PersistentVolume, other: PersistentVolume) -> bool:
    # Zone labels are part of the handle of some migrated volumes.
    return one.metadata.labels == other.metadata.labels
