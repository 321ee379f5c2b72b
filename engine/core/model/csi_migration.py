"""Translates in-tree volumes that CSI drivers have taken over to volumes of those drivers.

Owns the translation of the sources that Kubernetes still migrates: which driver serves them,
the handle that the driver knows the volume by, and the topology key that the driver sets on nodes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from engine.core.model.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from engine.core.model.storage import PersistentVolume

_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_ZONES_SEPARATOR: Final = "__"
_EBS_ID: Final = re.compile(r"vol-[^/]*")


class MigrationError(ValueError):
    """A volume that cannot be given to its CSI driver; the message reads on after a colon."""


class Attachment(NamedTuple):
    """A volume as its CSI driver knows it."""

    driver: str
    handle: str


class _Plugin(NamedTuple):
    name: str
    driver: str
    topology_key: str


# By the field of the source in a volume's or a pod's spec.
_MIGRATED: Final[Mapping[str, _Plugin]] = {
    "awsElasticBlockStore": _Plugin(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"
    ),
    "azureDisk": _Plugin("kubernetes.io/azure-disk", "disk.csi.azure.com", ""),
    "cinder": _Plugin(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "gcePersistentDisk": _Plugin(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"
    ),
    "portworxVolume": _Plugin("kubernetes.io/portworx-volume", "pxd.portworx.com", ""),
}
# Translated by Kubernetes, but not counted as migrated by the scheduler.
_NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
_DRIVERS: Final = {plugin.name: plugin.driver for plugin in _MIGRATED.values()}


def provisioning_driver(provisioner: str) -> str:
    """The CSI driver whose limits a volume made by *provisioner* counts for, or empty."""
    return "" if provisioner in _NOT_COUNTED else _DRIVERS.get(provisioner, provisioner)


def inline_attachment(source: str, fields: Mapping[str, Any]) -> Attachment | None:
    """What a volume of a pod's spec counts as; None for a source that is not attached by CSI.

    Raises `MigrationError` if the volume cannot be identified to the driver.
    """
    plugin = _MIGRATED.get(source)
    if plugin is None:
        return None
    return Attachment(plugin.driver, _handle(source, fields, ("",)))


def volume_attachment(volume: PersistentVolume) -> Attachment | None:
    """What *volume* counts as; None if no CSI driver attaches it, or if it is malformed."""
    if volume.spec.csi is not None:
        attachment = Attachment(volume.spec.csi.driver, volume.spec.csi.volume_handle)
        return attachment if all(attachment) else None
    found = _source(volume)
    if found is None:
        return None
    source, fields = found
    try:
        handle = _handle(source, fields, _zones(volume))
    except MigrationError:
        return None
    return Attachment(_MIGRATED[source].driver, handle) if handle else None


def migrated_plugin(volume: PersistentVolume) -> str:
    """The in-tree plugin whose volumes a CSI driver has taken over; "" if *volume* is none."""
    found = _source(volume)
    return "" if found is None else _MIGRATED[found[0]].name


def reachable_from(
    volume: PersistentVolume, migrated_plugins: frozenset[str]
) -> NodeSelector | None:
    """The nodes that can reach *volume*, seen by a node with *migrated_plugins*; None: all can.

    On such a node the driver's own topology key stands for the zone. Raises `MigrationError`.
    """
    affinity = volume.spec.node_affinity
    required = None if affinity is None else affinity.required
    found = _source(volume)
    if found is None or _MIGRATED[found[0]].name not in migrated_plugins:
        return required
    source, fields = found
    _handle(source, fields, _zones(volume))  # raises if the driver could not find it
    key = _MIGRATED[source].topology_key
    return _with_driver_topology(volume, required, key) if key else required


def _source(volume: PersistentVolume) -> tuple[str, Mapping[str, Any]] | None:
    spec = volume.spec
    for name, fields in (
        ("awsElasticBlockStore", spec.aws_elastic_block_store),
        ("azureDisk", spec.azure_disk),
        ("cinder", spec.cinder),
        ("gcePersistentDisk", spec.gce_persistent_disk),
        ("portworxVolume", spec.portworx_volume),
    ):
        if fields is not None:
            return name, fields
    return None


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """A text field of plain data; empty if it is not there or not a text."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _zones(volume: PersistentVolume) -> Sequence[str]:
    labels = volume.metadata.labels
    return (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split(_ZONES_SEPARATOR)


def _handle(source: str, fields: Mapping[str, Any], zones: Sequence[str]) -> str:
    match source:
        case "awsElasticBlockStore":
            return _ebs_id(text_of(fields, "volumeID"))
        case "azureDisk":
            kind = fields.get("kind")
            if kind is not None and str(kind).lower() != "managed":
                raise MigrationError(f"kind({kind}) is not supported in csi migration")
            return text_of(fields, "diskURI")
        case "gcePersistentDisk":
            name = text_of(fields, "pdName")
            if len(zones) > 1:
                return f"projects/UNSPECIFIED/regions/{_gce_region(zones)}/disks/{name}"
            return f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{name}"
    return text_of(fields, "volumeID")  # cinder, portworxVolume


def _ebs_id(volume_id: str) -> str:
    """`vol-1` of `aws://zone/vol-1`; any other text is an id already."""
    if not volume_id.startswith("aws://"):
        return volume_id
    try:
        path = unquote(urlsplit(volume_id).path).strip("/")
    except ValueError:
        path = ""
    if _EBS_ID.fullmatch(path) is None:
        raise MigrationError(
            "failed to translate Kubernetes ID to EBS Volume ID "
            f"Invalid format for AWS volume ({volume_id})"
        )
    return path


def _gce_region(zones: Sequence[str]) -> str:
    parts = [zone.split("-") for zone in zones]
    wrong = next((zone for zone, part in zip(zones, parts, strict=True) if len(part) != 3), None)
    if wrong is not None:
        raise MigrationError(
            "failed to get region from zones: zone in unexpected format, "
            f"expected: {{locale}}-{{region}}-{{zone}}, got: {wrong}"
        )
    regions = sorted({"-".join(part[:2]) for part in parts})
    if len(regions) != 1:
        raise MigrationError(
            "failed to get region from zones: multiple or no regions gotten from zones, "
            f"got: {', '.join(regions)}"
        )
    return regions[0]


def _with_driver_topology(
    volume: PersistentVolume, required: NodeSelector | None, key: str
) -> NodeSelector | None:
    terms = [] if required is None else required.node_selector_terms
    keys = {r.key for term in terms for r in term.match_expressions}
    labels = volume.metadata.labels
    is_beta = next(
        (label == _BETA_ZONE for label in (_ZONE, _BETA_ZONE) if label in keys),
        _ZONE not in labels and _BETA_ZONE in labels,
    )
    zone = _BETA_ZONE if is_beta else _ZONE
    if any(r.values for term in terms for r in term.match_expressions if r.key == zone):
        renamed = {zone: key}
        added: tuple[NodeSelectorRequirement, ...] = ()
    else:
        renamed = {}
        zones = sorted({z.strip() for z in labels.get(zone, "").split(_ZONES_SEPARATOR)} - {""})
        added = (NodeSelectorRequirement(key, "In", tuple(zones)),) if zones else ()
        if added and not terms:
            terms = (NodeSelectorTerm(),)
    if is_beta and any(
        r.values for term in terms for r in term.match_expressions if r.key == _BETA_REGION
    ):
        renamed[_BETA_REGION] = _REGION
    if not renamed and not added:
        return required
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                (
                    *(
                        NodeSelectorRequirement(renamed.get(r.key, r.key), r.operator, r.values)
                        for r in term.match_expressions
                    ),
                    *added,
                ),
                term.match_fields,
            )
            for term in terms
        )
    )
