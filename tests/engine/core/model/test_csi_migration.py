"""In-tree volumes as their CSI drivers know them."""

from typing import Any

import pytest

from engine.core.model.csi_migration import (
    Attachment,
    MigrationError,
    inline_attachment,
    provisioning_driver,
    reachable_from,
    volume_attachment,
)
from engine.core.model.objects import from_plain
from engine.core.model.storage import PersistentVolume
from tests.storage_builders import Json, need, volume

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
EBS_KEY = "topology.ebs.csi.aws.com/zone"
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
MIGRATED = frozenset({"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk"})


def _volume(source: Json, **words: Any) -> PersistentVolume:
    return from_plain(PersistentVolume, volume(source=source, **words))


@pytest.mark.parametrize(
    ("source", "fields", "want"),
    [
        ("awsElasticBlockStore", {"volumeID": "vol-1"}, ("ebs.csi.aws.com", "vol-1")),
        ("awsElasticBlockStore", {"volumeID": "aws://z/vol-1"}, ("ebs.csi.aws.com", "vol-1")),
        ("awsElasticBlockStore", {"volumeID": "aws:///vol-1"}, ("ebs.csi.aws.com", "vol-1")),
        (
            "gcePersistentDisk",
            {"pdName": "d"},
            ("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ),
        ("azureDisk", {"diskURI": "/d", "kind": "Managed"}, ("disk.csi.azure.com", "/d")),
        ("azureDisk", {"diskURI": "/d"}, ("disk.csi.azure.com", "/d")),
        ("cinder", {"volumeID": "c"}, ("cinder.csi.openstack.org", "c")),
        ("portworxVolume", {"volumeID": "p"}, ("pxd.portworx.com", "p")),
        ("iscsi", {"iqn": "i"}, None),
    ],
)
def test_a_disk_of_a_pod_counts_for_the_driver_that_took_over(
    source: str, fields: Json, want: tuple[str, str] | None
) -> None:
    got = inline_attachment(source, fields)
    assert got == (None if want is None else Attachment(*want))


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("awsElasticBlockStore", {"volumeID": "aws://z/disk-1"}),
        ("awsElasticBlockStore", {"volumeID": "aws://z/vol-1/x"}),
        ("azureDisk", {"diskURI": "/d", "kind": "Dedicated"}),
    ],
)
def test_a_disk_that_the_driver_could_not_find_is_an_error(source: str, fields: Json) -> None:
    with pytest.raises(MigrationError):
        inline_attachment(source, fields)
    assert volume_attachment(_volume({source: fields})) is None


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({}, "zones/UNSPECIFIED"),
        ({ZONE: "us-east1-b"}, "zones/us-east1-b"),
        ({ZONE: "a-b-c", BETA_ZONE: "us-east1-b"}, "zones/us-east1-b"),
        ({ZONE: "us-east1-b__us-east1-c"}, "regions/us-east1"),
    ],
)
def test_a_disk_of_gce_is_distinguished_by_its_place(labels: dict[str, str], place: str) -> None:
    found = volume_attachment(_volume({"gcePersistentDisk": {"pdName": "d"}}, labels=labels))
    assert found == Attachment("pd.csi.storage.gke.io", f"projects/UNSPECIFIED/{place}/disks/d")


@pytest.mark.parametrize("zones", ["us-east1-b__eu-west1-b", "us-east1-b__nowhere"])
def test_a_disk_of_gce_in_no_region_does_not_count(zones: str) -> None:
    disk = _volume({"gcePersistentDisk": {"pdName": "d"}}, labels={ZONE: zones})
    assert volume_attachment(disk) is None


def test_a_volume_of_a_driver_is_what_it_says() -> None:
    csi = {"csi": {"driver": "d", "volumeHandle": "h"}}
    assert volume_attachment(_volume(csi)) == Attachment("d", "h")
    assert volume_attachment(_volume({"csi": {"driver": "d"}})) is None
    assert volume_attachment(_volume({"nfs": {"server": "s"}})) is None


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        ("disk.example.com", "disk.example.com"),
        ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("kubernetes.io/vsphere-volume", ""),
        ("kubernetes.io/azure-file", ""),
        ("kubernetes.io/no-provisioner", "kubernetes.io/no-provisioner"),
    ],
)
def test_volumes_to_be_made_count_for_a_driver(provisioner: str, driver: str) -> None:
    assert provisioning_driver(provisioner) == driver


def _expressions(found: PersistentVolume, plugins: frozenset[str] = MIGRATED) -> list[list[Json]]:
    selector = reachable_from(found, plugins)
    assert selector is not None
    return [
        [
            {"key": r.key, "operator": r.operator, "values": list(r.values)}
            for r in t.match_expressions
        ]
        for t in selector.node_selector_terms
    ]


def _reached(*terms: list[Json]) -> Json:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}


def test_on_a_node_that_migrated_the_drivers_key_stands_for_the_zone() -> None:
    disk = _volume(EBS, affinity=_reached([need(ZONE, "a"), need("x", "y")], [need(ZONE, "b")]))
    assert _expressions(disk) == [[need(EBS_KEY, "a"), need("x", "y")], [need(EBS_KEY, "b")]]
    assert _expressions(disk, frozenset())[0][0] == need(ZONE, "a")


def test_without_a_zone_in_the_affinity_the_label_is_taken() -> None:
    disk = _volume(EBS, labels={ZONE: "b__a__"})
    assert _expressions(disk) == [[need(EBS_KEY, "a", "b")]]
    both = _volume(EBS, labels={ZONE: "a"}, affinity=_reached([need("x", "y")]))
    assert _expressions(both) == [[need("x", "y"), need(EBS_KEY, "a")]]


def test_old_labels_are_read_as_new_ones() -> None:
    disk = _volume(EBS, affinity=_reached([need(BETA_ZONE, "a"), need(BETA_REGION, "r")]))
    assert _expressions(disk) == [[need(EBS_KEY, "a"), need(REGION, "r")]]
    assert _expressions(_volume(EBS, labels={BETA_ZONE: "a"})) == [[need(EBS_KEY, "a")]]


def test_what_has_no_place_is_everywhere() -> None:
    assert reachable_from(_volume(EBS), MIGRATED) is None
    assert reachable_from(_volume({"nfs": {}}), MIGRATED) is None


def test_a_driver_without_zones_leaves_the_affinity() -> None:
    disk = _volume({"azureDisk": {"diskURI": "/d"}}, affinity=_reached([need(ZONE, "a")]))
    assert _expressions(disk) == [[need(ZONE, "a")]]


def test_a_volume_that_its_driver_could_not_find_is_reached_from_nowhere() -> None:
    disk = _volume({"awsElasticBlockStore": {"volumeID": "aws://x/y"}})
    with pytest.raises(MigrationError):
        reachable_from(disk, MIGRATED)
    assert reachable_from(disk, frozenset()) is None
