"""The volume policies and DynamicResources: what is news to a pod that one of them rejected."""

import time
from typing import Any

import pytest

from engine.core.framework.behaviors import RELEASED
from engine.core.model.devices import EXTENDED_CLAIM_ANNOTATION, ClaimMeta, ResourceClaim
from engine.core.model.objects import ObjectMeta, from_plain
from engine.core.model.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_DELETE,
    ClusterEvent,
)
from tests.builders import make_node, make_pod
from tests.engine.core.queueing.hinting import hints_with, plain, worth

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
EPHEMERAL = {"name": "v", "ephemeral": {}}
DISK = {"name": "v", "gcePersistentDisk": {"pdName": "d"}}
TOKEN = {"name": "kube-api-access-x", "projected": {}}


def event(kind: str, action: str = "Update") -> ClusterEvent:
    return ClusterEvent(kind, action)


def using(*volumes: Any, **words: Any) -> Any:
    return make_pod("p", volumes=list(volumes), **words)


def typed(kind: Any, one: Any) -> Any:
    """A plain object as a typed record."""
    meta = {"name": one.metadata.name, "namespace": one.metadata.namespace}
    meta |= {"labels": one.metadata.labels, "annotations": one.metadata.annotations}
    return from_plain(kind, {"metadata": meta, "spec": one.spec, "status": one.status})


def both(kind: Any, one: Any) -> list[Any]:
    """An object as it comes with a record of its own, and without."""
    return [one, typed(kind, one)]


# --- claims and volumes ------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["VolumeBinding", "VolumeZone", "NodeVolumeLimits"])
@pytest.mark.parametrize("action", ["Add", "Update"])
def test_own_claims_may_help(plugin: str, action: str) -> None:
    def may_help(pod: Any, name: str, ns: str = "default") -> bool:
        return all(
            worth(plugin, event("PersistentVolumeClaim", action), pod, None, claim)
            for claim in both(PersistentVolumeClaim, plain(name, ns))
        )

    assert may_help(using(CLAIM), "c")
    assert may_help(using(EPHEMERAL), "p-v")
    assert not may_help(using(CLAIM), "other")
    assert not may_help(using(CLAIM), "c", "elsewhere")
    assert not may_help(using(TOKEN), "c")


@pytest.mark.parametrize("plugin", ["VolumeBinding", "VolumeZone"])
def test_a_volume_may_help_unless_it_belongs_to_another_claim(plugin: str) -> None:
    def may_help(ref: dict[str, str] | None) -> bool:
        spec = {"claimRef": ref} if ref else {}
        answers = {
            worth(plugin, event("PersistentVolume", "Add"), using(CLAIM), None, volume)
            for volume in both(PersistentVolume, plain("pv", spec=spec))
        }
        (answer,) = answers
        return answer

    assert may_help(None)
    assert may_help({"namespace": "default", "name": "c"})
    assert not may_help({"namespace": "default", "name": "other"})
    assert not may_help({"namespace": "elsewhere", "name": "c"})


def test_a_thousand_claims_are_not_gone_through_for_each_volume() -> None:
    """Each volume that changed took a millisecond and a half for each pod with so many."""
    names = [f"c{i}" for i in range(1_000)]
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
    claims = [plain(n, "default", spec={"volumeName": f"pv-{n}"}) for n in names]
    hints = hints_with(persistentvolumeclaims=claims)
    pod, ref = using(*volumes), {"namespace": "default", "name": "other"}
    foreign, own = (plain(n, spec={"claimRef": ref}) for n in ("pv", "pv-c999"))
    began = time.process_time()
    for _ in range(3_000):
        assert not worth("VolumeBinding", event("PersistentVolume"), pod, foreign, foreign, hints)
    assert time.process_time() - began < 2.5
    assert worth("VolumeBinding", event("PersistentVolume"), pod, own, own, hints)


def test_a_volume_s_zone_may_help_when_it_changes() -> None:
    here, there = plain("pv"), plain("pv", labels={"topology.kubernetes.io/zone": "z"})
    renamed = plain("pv", labels={"x": "y"})
    assert worth("VolumeZone", event("PersistentVolume"), using(CLAIM), here, there)
    assert not worth("VolumeZone", event("PersistentVolume"), using(CLAIM), here, renamed)


def test_a_node_s_zone_may_help_when_it_changes() -> None:
    label = event("Node", "UpdateNodeLabel")
    bare, zoned, other = make_node("n"), make_node("n", zone="z"), make_node("n", labels={"x": "y"})
    assert worth("VolumeZone", label, using(CLAIM), bare, zoned)
    assert not worth("VolumeZone", label, using(CLAIM), bare, other)
    assert worth("VolumeBinding", label, using(CLAIM), bare, other)


# --- VolumeRestrictions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "ns", "want"),
    [
        pytest.param(CLAIM, CLAIM, "default", True, id="the same claim"),
        pytest.param(CLAIM, CLAIM, "elsewhere", False, id="a namesake elsewhere"),
        pytest.param(DISK, DISK, "default", True, id="the same disk"),
        pytest.param(DISK, DISK, "elsewhere", True, id="the same disk, from another namespace"),
        pytest.param(DISK, CLAIM, "default", False, id="something else"),
        pytest.param(
            DISK,
            {"name": "v", "gcePersistentDisk": {"pdName": "e"}},
            "default",
            False,
            id="another disk",
        ),
    ],
)
def test_a_pod_that_shared_a_volume_may_help_when_it_goes(
    mine: Any, theirs: Any, ns: str, want: bool
) -> None:
    """kube-scheduler looks at pods of the same namespace only, though disks have none."""
    gone = make_pod("q", ns, node="n", volumes=[theirs])
    assert worth("VolumeRestrictions", ASSIGNED_POD_DELETE, using(mine), gone) is want


def test_a_node_that_goes_with_its_pods_may_free_a_claim() -> None:
    assert worth("VolumeRestrictions", NODE_DELETE, using(CLAIM), make_node("n"))
    assert not worth("VolumeRestrictions", NODE_DELETE, using(DISK), make_node("n"))


# --- NodeVolumeLimits --------------------------------------------------------------------------


def test_a_pod_that_comes_with_a_volume_may_help_those_that_share_it() -> None:
    """Where it is they need no place of their own; to other policies it frees nothing."""

    def may_help(plugin: str, mine: Any, theirs: Any) -> bool:
        comes = make_pod("q", node="n", volumes=[theirs])
        return worth(plugin, ASSIGNED_POD_ADD, using(mine), None, comes)

    another = {"name": "v", "persistentVolumeClaim": {"claimName": "another"}}
    assert may_help("NodeVolumeLimits", CLAIM, CLAIM)
    assert not may_help("NodeVolumeLimits", CLAIM, another)
    assert not may_help("NodeVolumeLimits", DISK, CLAIM)
    assert not may_help("VolumeRestrictions", CLAIM, CLAIM)
    assert not may_help("VolumeBinding", CLAIM, CLAIM)


def csi_node(**limits: int | None) -> Any:
    drivers = [
        {"name": name, "nodeID": "i"} | ({} if count is None else {"allocatable": {"count": count}})
        for name, count in limits.items()
    ]
    return plain("n", spec={"drivers": drivers})


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({"d": 1}, {"d": 2}, True, id="grew"),
        pytest.param({"d": 2}, {"d": 1}, False, id="shrank"),
        pytest.param({"d": 2}, {"d": None}, True, id="lifted"),
        pytest.param({"d": 2}, {}, True, id="the driver went, and its limit"),
        pytest.param({}, {"d": 2}, True, id="the driver came"),
        pytest.param({"d": None}, {"d": 2}, False, id="a limit came"),
    ],
)
def test_limits_may_help_when_they_grow(
    old: dict[str, Any], new: dict[str, Any], want: bool
) -> None:
    before, after = both(CSINode, csi_node(**old)), both(CSINode, csi_node(**new))
    for one, other in zip(before, after, strict=True):
        assert worth("NodeVolumeLimits", event("CSINode"), using(CLAIM), one, other) is want


def test_a_driver_that_need_not_be_installed_any_more_may_help() -> None:
    """kube-scheduler does not hear of it."""

    def may_help(volume: Any, old: Any, new: Any, action: str = "Update") -> bool:
        return worth("NodeVolumeLimits", event("CSIDriver", action), using(volume), old, new)

    required = plain("d", spec={"preventPodSchedulingIfMissing": True})
    optional = plain("d", spec={"preventPodSchedulingIfMissing": False})
    assert may_help(CLAIM, required, optional)
    assert may_help(DISK, required, None, "Delete")
    assert not may_help(CLAIM, optional, required)
    assert not may_help(CLAIM, optional, None, "Delete")
    assert not may_help(TOKEN, required, optional)


def test_a_driver_that_is_installed_may_help_with_a_count_or_without() -> None:
    """kube-scheduler hears only of one with a count."""
    for count in (None, 1):
        without, there = csi_node(e=5), csi_node(e=5, d=count)
        assert worth("NodeVolumeLimits", event("CSINode"), using(CLAIM), without, there)


@pytest.mark.parametrize(
    ("volume", "want"), [(CLAIM, True), (EPHEMERAL, True), (DISK, True), (TOKEN, False)]
)
def test_a_pod_with_volumes_that_goes_frees_capacity(volume: Any, want: bool) -> None:
    gone = make_pod("q", node="n", volumes=[volume])
    assert worth("NodeVolumeLimits", ASSIGNED_POD_DELETE, using(CLAIM), gone) is want
    waiting = make_pod("q", volumes=[volume])
    assert not worth("NodeVolumeLimits", ASSIGNED_POD_DELETE, using(CLAIM), waiting)


def test_an_attachment_that_goes_may_help_pods_that_attach() -> None:
    gone = event("VolumeAttachment", "Delete")
    assert worth("NodeVolumeLimits", gone, using(CLAIM), plain("a"))
    assert not worth("NodeVolumeLimits", gone, using(TOKEN), plain("a"))


# --- VolumeBinding -----------------------------------------------------------------------------


def binding(kind: str, old: Any, new: Any, action: str = "Update", hints: Any = None) -> bool:
    return worth("VolumeBinding", event(kind, action), using(CLAIM), old, new, hints)


def test_a_class_may_help_when_its_topologies_change() -> None:
    def of(*zones: str) -> StorageClass:
        topology = {"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}
        return from_plain(StorageClass, {"allowedTopologies": [topology]})

    assert binding("StorageClass", None, of(), "Add")
    assert binding("StorageClass", of("a"), of("a", "b"))
    assert not binding("StorageClass", of("a"), of("a"))


def test_a_class_may_help_zones_if_it_waits_for_consumers() -> None:
    def of(mode: str | None) -> StorageClass:
        return StorageClass(ObjectMeta(name="s"), volume_binding_mode=mode)

    added = event("StorageClass", "Add")
    assert worth("VolumeZone", added, using(CLAIM), None, of("WaitForFirstConsumer"))
    assert not worth("VolumeZone", added, using(CLAIM), None, of(None))


def test_a_csi_node_may_help_when_it_serves_other_plugins() -> None:
    key = "storage.alpha.kubernetes.io/migrated-plugins"
    assert binding("CSINode", None, plain("n"), "Add")
    assert binding("CSINode", plain("n"), plain("n", annotations={key: "x"}))
    assert not binding("CSINode", plain("n"), plain("n", annotations={"a": "b"}))


@pytest.mark.parametrize("after", [{"storageCapacity": False}, {}])
def test_a_driver_may_help_when_its_capacity_is_not_looked_at_any_more(after: Any) -> None:
    """kube-scheduler looks at inline volumes here, which have no capacity."""
    before = plain("d", spec={"storageCapacity": True})
    assert binding("CSIDriver", before, plain("d", spec=after))
    assert not binding("CSIDriver", plain("d", spec=after), before)
    assert binding("CSIDriver", before, None, "Delete")


def capacity(size: str | None, largest: str | None = None, of: str = "s") -> CSIStorageCapacity:
    meta = ObjectMeta(name="x")
    return CSIStorageCapacity(meta, of, capacity=size, maximum_volume_size=largest)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, capacity("1Gi"), True, id="new"),
        pytest.param(capacity("1Gi"), capacity("2Gi"), True, id="grew"),
        pytest.param(capacity("2Gi"), capacity("1Gi"), False, id="shrank"),
        pytest.param(capacity(None), capacity("1Gi"), True, id="is known now"),
        pytest.param(capacity("1Gi", "1Gi"), capacity("9Gi", "1Gi"), False, id="no larger volume"),
    ],
)
def test_capacity_may_help_when_larger_volumes_fit(old: Any, new: Any, want: bool) -> None:
    action = "Add" if old is None else "Update"
    assert binding("CSIStorageCapacity", old, new, action) is want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param("1.2", "1.7", True, id="within a byte"),
        pytest.param("20E", "30E", True, id="beyond int64"),
        pytest.param("1.7", "1.2", False, id="shrank"),
        pytest.param("1", "1000m", False, id="the same"),
    ],
)
def test_capacity_that_grows_by_less_than_a_byte_may_help(old: str, new: str, want: bool) -> None:
    """Since 1.38; `isSchedulableAfterCSIStorageCapacityChange` rounded to bytes until then."""
    for minor in (37, 38):
        hints = hints_with(minor=minor)
        said = binding("CSIStorageCapacity", capacity(old), capacity(new), hints=hints)
        assert said is (want and minor == 38), minor


def test_capacity_of_another_class_does_not_help() -> None:
    claim = plain("c", "default", spec={"storageClassName": "s"})
    for one in both(PersistentVolumeClaim, claim):
        hints = hints_with(persistentvolumeclaims=[one])
        assert binding("CSIStorageCapacity", None, capacity("1Gi"), "Add", hints)
        assert not binding("CSIStorageCapacity", None, capacity("1Gi", of="t"), "Add", hints)


def test_a_volume_that_a_failed_placement_gives_back_is_free() -> None:
    """kube-scheduler has no event for an assumed volume that is released."""
    failed = make_pod("q", node="n", volumes=[CLAIM])
    assert worth("VolumeBinding", ASSIGNED_POD_DELETE, using(CLAIM), failed)
    bare = make_pod("q", node="n")
    assert not worth("VolumeBinding", ASSIGNED_POD_DELETE, using(CLAIM), bare)


# --- DynamicResources --------------------------------------------------------------------------


def claiming(name: str | None = "c", **words: Any) -> Any:
    spec = {"resourceClaims": [{"name": "r"} | ({"resourceClaimName": name} if name else {})]}
    return make_pod("p", uid="p", spec=spec, **words)


def devices(
    old: Any, new: Any, pod: Any = None, action: str = "Update", *, minor: int = RELEASED
) -> bool:
    happened = event("ResourceClaim", action)
    hints = hints_with(minor=minor)
    return worth("DynamicResources", happened, pod or claiming(), old, new, hints)


def claim(name: str = "c", ns: str = "default", **status: Any) -> Any:
    return plain(name, ns, status=status)


def test_a_claim_that_releases_its_devices_may_help_any_pod() -> None:
    taken, free = claim("x", "elsewhere", allocation={"d": "1"}), claim("x", "elsewhere")
    assert devices(taken, free)
    assert devices(taken, None, action="Delete")
    assert devices(taken, claim("x", "elsewhere", allocation={"d": "2"}))
    assert not devices(free, None, action="Delete")
    assert not devices(free, taken)


@pytest.mark.parametrize("minor", [37, 38])
def test_a_change_of_a_claim_is_news_to_the_pods_that_name_it_alone(minor: int) -> None:
    """kube-scheduler 1.38 offers it to no others, whose hints had said no until 1.37.

    Source: `preQueueingHint` and `isSchedulableAfterClaimChange` of DynamicResources.
    """
    other, none = claiming("d"), make_pod("q")
    news = {
        "Add": (None, claim()),
        "Update": (claim(), claim(allocation={"d": "1"})),
        "Delete": (claim(), None),
    }
    for action, change in news.items():
        assert devices(*change, action=action, minor=minor) is (action != "Delete")
        assert not devices(*change, other, action, minor=minor)
        assert not devices(*change, none, action, minor=minor)
    freed = claim(allocation={"d": "1"}), claim()
    for pod in (claiming(), other, none):
        assert devices(*freed, pod, minor=minor)


def test_own_claims_may_help_when_they_come_or_their_status_changes() -> None:
    assert devices(None, claim(), action="Add")
    assert devices(claim(), claim(reservedFor=[{"uid": "x"}]))
    assert not devices(claim(), claim())
    assert not devices(None, claim("other"), action="Add")
    assert not devices(None, claim(ns="elsewhere"), action="Add")


def test_a_deleted_claim_for_extended_resources_may_help_similar_pods() -> None:
    """One whose creation was not answered kept its pod for minutes after it was deleted."""
    marked = {EXTENDED_CLAIM_ANNOTATION: "true"}
    made = ResourceClaim(ClaimMeta(name="q-x", namespace="default", annotations=marked))
    assert devices(made, None, claiming(None), "Delete")
    assert not devices(made, None, make_pod(namespace="elsewhere"), "Delete")


def test_claims_that_were_made_for_the_pod_are_its_own() -> None:
    made = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "p-r-x"}]}
    assert devices(None, claim("p-r-x"), claiming(None, status=made), "Add")
    assert not devices(None, claim("p-r-x"), claiming(None), "Add")


def test_the_name_of_a_generated_claim_may_help_its_own_pod_alone() -> None:
    happened, pod = event("TargetPod", "UpdatePodGeneratedResourceClaim"), claiming()
    assert worth("DynamicResources", happened, pod, pod, claiming("d"))
    assert not worth("DynamicResources", happened, make_pod(), pod, claiming("d"))


def test_devices_that_a_failed_placement_gives_back_are_free() -> None:
    assert worth("DynamicResources", ASSIGNED_POD_DELETE, make_pod(), claiming(node="n"))
    assert not worth("DynamicResources", ASSIGNED_POD_DELETE, make_pod(), make_pod(node="n"))


@pytest.mark.parametrize("kind", ["ResourceSlice", "DeviceClass"])
@pytest.mark.parametrize("action", ["Add", "Update"])
def test_new_devices_and_classes_may_help(kind: str, action: str) -> None:
    assert worth("DynamicResources", event(kind, action), claiming(), plain("x"), plain("x"))


def test_a_slice_that_is_gone_may_help() -> None:
    assert worth("DynamicResources", event("ResourceSlice", "Delete"), claiming(), plain("x"), None)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, "example.com/gpu", True, id="comes"),
        pytest.param("example.com/tpu", "example.com/gpu", True, id="changes"),
        pytest.param("example.com/gpu", "example.com/gpu", False, id="stays"),
        pytest.param(None, "example.com/tpu", False, id="is another one"),
    ],
)
def test_a_class_that_provides_a_requested_resource_may_help_the_fit(
    old: str | None, new: str, want: bool
) -> None:
    pod = make_pod(requests={"example.com/gpu": 1})
    before, after = (
        None if name is None else plain("c", spec={"extendedResourceName": name})
        for name in (old, new)
    )
    happened = event("DeviceClass", "Add" if old is None else "Update")
    assert worth("NodeResourcesFit", happened, pod, before, after) is want


def test_a_class_provides_a_resource_of_its_own_name() -> None:
    pod = make_pod(requests={"deviceclass.resource.kubernetes.io/gpu": 1})
    happened = event("DeviceClass", "Add")
    assert worth("NodeResourcesFit", happened, pod, None, plain("gpu"))
    assert not worth("NodeResourcesFit", happened, pod, None, plain("tpu"))
