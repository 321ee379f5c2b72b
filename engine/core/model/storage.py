"""Storage objects as the scheduler reads them: volumes, claims, and what CSI drivers say of nodes.

Owns their shape and what is read off one object alone: its class, whether it is bound. How objects
belong together is the business of the code that holds the store.
"""

from typing import Any, Final

import msgspec

from engine.core.model.objects import (
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    Record,
    ResourceRequirements,
)

BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

STORAGE: Final = "storage"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"


class ClaimReference(Record, frozen=True):
    """The claim that a volume is for."""

    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class CSISource(Record, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Record, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Record, frozen=True):
    """What a volume is. Sources that CSI drivers have taken over are kept as plain data."""

    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    csi: CSISource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None


class PersistentVolumeStatus(Record, frozen=True):
    """Available, Bound, Released, Failed or Pending."""

    phase: str = ""


class PersistentVolume(Record, frozen=True):
    """A volume of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def class_name(self) -> str:
        """Its storage class, or empty."""
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name)


class PersistentVolumeClaimSpec(Record, frozen=True):
    """What a claim asks for, and the volume that it got."""

    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Record, frozen=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(Record, frozen=True):
    """A claim to a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def class_name(self) -> str:
        """Its storage class, or empty."""
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name or "")

    @property
    def is_bound(self) -> bool:
        """True once it and its volume belong to each other, and both say so."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def controller_uid(self) -> str:
        """The uid of the object that manages it, or empty."""
        controller = self.metadata.controller
        return "" if controller is None else controller.uid


class CSIAllocatable(Record, frozen=True):
    """How many volumes of a driver a node takes; None: as many as there are."""

    count: int | None = None


class CSINodeDriver(Record, frozen=True):
    """A driver that is installed on a node."""

    name: str = ""
    allocatable: CSIAllocatable | None = None


class CSINodeSpec(Record, frozen=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Record, frozen=True):
    """What CSI drivers say of the node of this name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """The in-tree plugins whose volumes a CSI driver serves on this node."""
        return frozenset(self.metadata.annotations.get(MIGRATED_PLUGINS, "").split(","))


class CSIDriverSpec(Record, frozen=True):
    """What a driver can do."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Record, frozen=True):
    """A CSI driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class AttachmentSource(Record, frozen=True):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Record, frozen=True):
    """Which driver attaches which volume to which node."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Record, frozen=True):
    """A volume that is attached to a node, or on its way there or back."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class TopologyRequirement(Record, frozen=True):
    """A node label that must have one of these values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Record, frozen=True):
    """Requirements that must all hold."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Record, frozen=True):
    """A class of volumes: their provisioner, and when and where they are made."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class CSIStorageCapacity(Record, frozen=True):
    """How much a driver can still provision for a class in a topology."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None
