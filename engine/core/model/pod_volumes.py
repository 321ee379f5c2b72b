"""The volumes of a pod that scheduling cares about: claims, and disks that it names itself.

Owns which sources those are. Volumes that live on the node anyway (emptyDir, configMap, projected,
...) do not count, so most pods have none.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from engine.core.model.csi_migration import Attachment, MigrationError, inline_attachment, text_of
from engine.core.model.objects import Volume


class ClaimUse(NamedTuple):
    """A pod's use of a claim.

    `key` is `namespace/name`. `owner_uid` is empty, or the uid of the pod that the claim was made
    for and must belong to.
    """

    key: str
    owner_uid: str = ""


class Disk(NamedTuple):
    """A disk of a cloud or a network that a pod names itself, without a claim.

    `kind` is the name of the source's field in the API. `monitors` distinguish Ceph clusters.
    `attachment` is what it counts as for a CSI driver that serves it; `problem` is why it cannot.
    """

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()
    attachment: Attachment | None = None
    problem: str = ""


VolumeUse = ClaimUse | Disk
"""What of a volume counts on the node of its pod."""


class PodVolume(NamedTuple):
    """A volume of a pod by its name in the pod."""

    name: str
    use: VolumeUse


def pod_volumes(
    volumes: Iterable[Volume], namespace: str, name: str, uid: str
) -> tuple[PodVolume, ...]:
    """The volumes of the pod *name* that scheduling cares about, in the order of its spec."""
    found = []
    for volume in volumes:
        use = _use(volume, namespace, name, uid)
        if use is not None:
            found.append(PodVolume(volume.name, use))
    return tuple(found)


def _use(volume: Volume, namespace: str, name: str, uid: str) -> VolumeUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
    if volume.ephemeral is not None:
        return ClaimUse(f"{namespace}/{name}-{volume.name}", uid)
    if volume.gce_persistent_disk is not None:
        return _disk("gcePersistentDisk", "pdName", volume.gce_persistent_disk)
    if volume.aws_elastic_block_store is not None:
        return _disk("awsElasticBlockStore", "volumeID", volume.aws_elastic_block_store)
    if volume.azure_disk is not None:
        return _disk("azureDisk", "diskURI", volume.azure_disk)
    if volume.cinder is not None:
        return _disk("cinder", "volumeID", volume.cinder)
    if volume.portworx_volume is not None:
        return _disk("portworxVolume", "volumeID", volume.portworx_volume)
    if volume.iscsi is not None:
        return _disk("iscsi", "iqn", volume.iscsi)
    if volume.rbd is not None:
        monitors = volume.rbd.get("monitors")
        pool = text_of(volume.rbd, "pool") or "rbd"
        return Disk(
            "rbd",
            f"{pool}/{text_of(volume.rbd, 'image')}",
            volume.rbd.get("readOnly") is True,
            tuple(map(str, monitors)) if isinstance(monitors, list) else (),
        )
    return None


def _disk(kind: str, name: str, fields: Mapping[str, Any]) -> Disk:
    attachment, problem = None, ""
    try:
        attachment = inline_attachment(kind, fields)
    except MigrationError as error:
        problem = str(error)
    read_only = fields.get("readOnly") is True
    return Disk(kind, text_of(fields, name), read_only, attachment=attachment, problem=problem)
