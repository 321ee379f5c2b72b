"""What a policy sees of volumes: a pod's claims and disks, and what is used on a node.

Owns their plain form. A claim is shown together with its class and its volume, so that a policy
needs no second look; what is shown of it changes with those objects.
"""

from typing import Any, Final

from engine.core.caching.attachments import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    VolumeUsers,
    attachment_of,
    is_for_in_tree_plugin,
    must_be_installed,
)
from engine.core.caching.objects import ObjectStore
from engine.core.model.csi_migration import Attachment
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.pod_volumes import ClaimUse, Disk, PodVolume
from engine.core.model.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from engine.policy.term_views import node_affinity

#: The kinds of objects that say what a claim stands for.
STORAGE_KINDS: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")

# What names a claim and its volume.
_NO_NAMES: Final[dict[str, Any]] = {"name": "", "key": "", "volume_name": ""}
# Many a volume is reached from one node, which says as much as its name.
_NO_NODES: Final[dict[str, Any]] = {"node_affinity": None}

VOLUME_RECORDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Volume": {
        "name": ("str", "its name in the pod"),
        "claim": ("Claim?", "the claim that it uses"),
        "disk": ("Disk?", "or the disk that it names itself"),
        "driver": ("str", 'the CSI driver that attaches it, or ""'),
        "handle": ("str", "the name by which the driver knows it"),
        "is_repeated": ("bool", "a volume before it in the pod has its driver and handle"),
        "driver_required": ("bool", "its CSIDriver keeps pods off nodes without the driver"),
        "is_migrated": ("bool", "the driver has taken it over from an in-tree plugin"),
        "problem": ("str", 'why it cannot be had, or ""'),
    },
    "Claim": {
        "name": ("str", "its name"),
        "key": ("str", "`namespace/name`"),
        "is_ephemeral": ("bool", "it is made for this pod alone"),
        "found": ("bool", "False: there is no such claim, and the rest is empty"),
        "missing": ("str", 'says that it or its volume is not there, with the name, or ""'),
        "is_owned": ("bool", "False: it is ephemeral and was made for something else"),
        "phase": ("str", "Pending, Bound or Lost"),
        "is_terminating": ("bool", "it is being deleted"),
        "access_modes": ("list[str]", "for example ReadWriteOnce"),
        "class_name": ("str", 'its storage class, or ""'),
        "storage_class": ("StorageClass?", "that class; None if there is none"),
        "volume_name": ("str", 'the volume that it is bound to, or ""'),
        "volume": ("PersistentVolume?", "that volume; None if there is none"),
    },
    "StorageClass": {
        "provisioner": ("str", "what provisions its volumes"),
        "binding_mode": ("str?", "Immediate or WaitForFirstConsumer"),
    },
    "PersistentVolume": {
        "labels": ("dict[str, str]", "its labels"),
        "node_affinity": (
            "NodeAffinity?",
            "from which nodes it is reached (`required`); None: from all, or it is not looked at, "
            "as in `unnamed_volumes`",
        ),
    },
    "Disk": {
        "kind": ("str", "the field of the pod's volume: gcePersistentDisk, rbd, ..."),
        "name": ("str", "which disk: its name or id; pool/image for rbd"),
        "read_only": ("bool", "it is mounted for reading only"),
        "monitors": ("list[str]", "of rbd: the monitors of the Ceph cluster"),
    },
}


def volumes_view(pod: Pod, objects: ObjectStore) -> list[dict[str, Any]]:
    """The `Volume` records of *pod*, in the order of its spec."""
    found = []
    before: set[Attachment] = set()
    for volume in pod.volumes:
        use = volume.use
        attachment = attachment_of(use, objects)
        found.append(
            {
                "name": volume.name,
                "claim": _claim(use, objects) if isinstance(use, ClaimUse) else None,
                "disk": _disk(use) if isinstance(use, Disk) else None,
                "driver": "" if attachment is None else attachment.driver,
                "handle": "" if attachment is None else attachment.handle,
                "is_repeated": attachment in before,
                "driver_required": attachment is not None
                and must_be_installed(attachment.driver, objects),
                "is_migrated": attachment is not None and is_for_in_tree_plugin(use, objects),
                "problem": _problem(pod, volume, objects),
            }
        )
        if attachment is not None:
            before.add(attachment)
    return found


def unnamed_volumes_view(pod: Pod, objects: ObjectStore) -> list[dict[str, Any]]:
    """The same with nothing that names a volume or its claim, but in texts about what is wrong."""
    return [
        {
            **volume,
            "name": "",
            "handle": "",
            "claim": volume["claim"] and _unnamed(volume["claim"]),
        }
        for volume in volumes_view(pod, objects)
    ]


def _unnamed(claim: dict[str, Any]) -> dict[str, Any]:
    volume = claim["volume"]
    return {**claim, **_NO_NAMES, "volume": volume and {**volume, **_NO_NODES}}


def shared_volumes(pod: Pod, objects: ObjectStore, users: VolumeUsers) -> list[str]:
    """Of the volumes that *pod* mounts, those that other pods may use, as `driver/handle`."""
    found = []
    for volume in pod.volumes:
        attachment = attachment_of(volume.use, objects)
        if attachment is not None and users.may_share(volume.use, attachment, objects):
            found.append("/".join(attachment))
    return found


def exclusive_claims(pod: Pod, objects: ObjectStore, users: VolumeUsers) -> dict[str, list[str]]:
    """Of the claims that *pod* names, those that one pod may use and one does: on which nodes."""
    used: dict[str, list[str]] = {}
    for volume in pod.volumes:
        use = volume.use
        if not isinstance(use, ClaimUse) or use.owner_uid:
            continue
        claim: PersistentVolumeClaim | None = objects.get(CLAIMS, use.key)
        if claim is None or READ_WRITE_ONCE_POD not in claim.spec.access_modes:
            continue
        if nodes := users.nodes_of(use):
            used[use.key] = nodes
    return used


def used_disks_view(info: NodeInfo) -> list[dict[str, Any]]:
    """The `Disk` records of the pods on a node, each once."""
    return [_disk(disk) for disk in sorted(_disks(info), key=repr)]


def _disks(info: NodeInfo) -> list[Disk]:
    return [use for use in info.volumes if isinstance(use, Disk)]


def used_claims_view(info: NodeInfo) -> list[str]:
    """The keys of the claims that pods on a node name, sorted; those made for one pod left out."""
    return sorted(
        use.key for use in info.volumes if isinstance(use, ClaimUse) and not use.owner_uid
    )


def _problem(pod: Pod, volume: PodVolume, objects: ObjectStore) -> str:
    """In kube-scheduler's words: of a missing claim, a wrong owner, an id that makes no sense."""
    use = volume.use
    if isinstance(use, Disk):
        if not use.problem:
            return ""
        return f"converting volume({volume.name}) from inline to csi: {use.problem}"
    claim = objects.get(CLAIMS, use.key)
    if claim is None:
        name = use.key.partition("/")[2]
        return f'looking up PVC {use.key}: persistentvolumeclaim "{name}" not found'
    if use.owner_uid and claim.controller_uid != use.owner_uid:
        return f"PVC {use.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def _disk(disk: Disk) -> dict[str, Any]:
    return {
        "kind": disk.kind,
        "name": disk.name,
        "read_only": disk.read_only,
        "monitors": list(disk.monitors),
    }


def _claim(use: ClaimUse, objects: ObjectStore) -> dict[str, Any]:
    claim: PersistentVolumeClaim | None = objects.get(CLAIMS, use.key)
    found = claim is not None
    if claim is None:
        claim = PersistentVolumeClaim()
    storage_class = objects.get(CLASSES, claim.class_name) if claim.class_name else None
    volume_name = claim.spec.volume_name
    volume = objects.get(VOLUMES, volume_name) if volume_name else None
    name, missing = use.key.partition("/")[2], ""
    if not found:
        missing = f'persistentvolumeclaim "{name}" not found'
    elif volume_name and volume is None:
        missing = f'persistentvolume "{volume_name}" not found'
    return {
        "name": name,
        "key": use.key,
        "is_ephemeral": bool(use.owner_uid),
        "found": found,
        "missing": missing,
        "is_owned": not use.owner_uid or claim.controller_uid == use.owner_uid,
        "phase": claim.status.phase,
        "is_terminating": claim.metadata.deletion_timestamp is not None,
        "access_modes": list(claim.spec.access_modes),
        "class_name": claim.class_name,
        "storage_class": None
        if storage_class is None
        else {
            "provisioner": storage_class.provisioner,
            "binding_mode": storage_class.volume_binding_mode,
        },
        "volume_name": volume_name,
        "volume": None
        if volume is None
        else {
            "labels": volume.metadata.labels,
            "node_affinity": node_affinity(volume.spec.node_affinity),
        },
    }
