"""Which nodes a change of a storage object is about, and who uses which volume."""

from typing import Any

import pytest

from engine.core.caching.attachments import (
    attachment_of,
    csi_drivers,
    is_for_in_tree_plugin,
    must_be_installed,
    volume_limits,
)
from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.model.csi_migration import Attachment
from engine.core.model.objects import ConfigMap, ManagedMeta, from_plain
from engine.core.model.pod_volumes import ClaimUse, Disk
from engine.files.world import OBJECT_KINDS
from tests.builders import make_node, make_pod
from tests.storage_builders import DRIVER, Json, claim, csi_node, storage_class, uses, volume


def _put(cache: Cache, plain: Json) -> None:
    plural, record = OBJECT_KINDS[plain["kind"]]
    obj: Any = from_plain(record, plain)
    cache.objects.put(plural, obj)


def _attachment(node: str, volume_name: str, name: str = "a") -> Json:
    source = {"persistentVolumeName": volume_name}
    spec = {"attacher": DRIVER, "nodeName": node, "source": source}
    return {"kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec}


def _cluster() -> Cache:
    """Nodes `a`, `b` and `c`; a pod on `a` uses the claim `data`, which has the volume `disk`.

    The volume `attached` is attached to `b`.
    """
    cache = Cache()
    for name in "abc":
        cache.add_node(make_node(name))
    cache.add_pod(make_pod("p", volumes=uses("data"), node="a"))
    plain = (claim(volume="disk"), volume(), storage_class("local"), volume("attached"))
    for one in (*plain, _attachment("b", "attached", "of-b")):
        _put(cache, one)
    cache.snapshot()
    return cache


@pytest.mark.parametrize(
    ("change", "nodes"),
    [
        pytest.param(csi_node("b", limits={DRIVER: 1}), {"b"}, id="what drivers say of a node"),
        pytest.param(csi_node("z"), set(), id="of a node that is not there"),
        pytest.param(claim(volume="other"), {"a"}, id="a claim in use"),
        pytest.param(claim("unused"), set(), id="a claim that nobody uses"),
        pytest.param(
            volume(source={"csi": {"driver": DRIVER, "volumeHandle": "h"}}),
            {"a"},
            id="a volume in use",
        ),
        pytest.param(volume(phase="Released"), set(), id="the phase of a volume"),
        pytest.param(volume(labels={"zone": "a"}), {"a"}, id="a label of a volume"),
        pytest.param(volume("attached", storage_class="x"), {"b"}, id="an attached volume"),
        pytest.param(volume("unused"), set(), id="a volume that nobody uses"),
        pytest.param(_attachment("c", "disk"), {"c"}, id="an attachment"),
        pytest.param(storage_class("local", provisioner="p"), {"a"}, id="a class"),
    ],
)
def test_a_change_is_about_the_nodes_that_have_to_do_with_it(change: Json, nodes: set[str]) -> None:
    cache = _cluster()
    generation = cache.snapshot().generation
    _put(cache, change)
    snapshot = cache.snapshot()
    changed = snapshot.changed_since(generation)
    assert changed is not None
    assert {info.name for slot in changed if (info := snapshot.infos[slot])} == nodes
    cache.check_invariants()


def test_a_deletion_is_a_change() -> None:
    cache = _cluster()
    generation = cache.snapshot().generation
    cache.objects.delete("persistentvolumes", "disk")
    assert cache.snapshot().changed_since(generation) == [0]


def test_a_claim_of_a_pods_own_is_known_by_its_owner() -> None:
    cache = _cluster()
    scratch = [{"name": "s", "ephemeral": {"volumeClaimTemplate": {}}}]
    cache.add_pod(make_pod("q", uid="u", volumes=scratch, node="b"))
    generation = cache.snapshot().generation
    _put(cache, claim("q-s", ownerReferences=[{"kind": "Pod", "uid": "u", "controller": True}]))
    assert cache.snapshot().changed_since(generation) == [1]


def test_users_come_and_go_with_pods_and_nodes() -> None:
    cache = _cluster()
    use = ClaimUse("default/data")
    other = make_pod("q", volumes=uses("data", "data"), node="c")
    cache.add_pod(other)
    users = cache.snapshot().volume_users
    assert users.nodes_of(use) == ["a", "c"]
    cache.remove_pod(other)
    assert cache.snapshot().volume_users.nodes_of(use) == ["a"]
    cache.remove_node("a")
    assert cache.snapshot().volume_users.nodes_of(use) == []
    assert not cache.snapshot().volume_users.may_share(use, Attachment(DRIVER, "h"), cache.objects)
    cache.add_node(make_node("a"))
    assert cache.snapshot().volume_users.nodes_of(use) == ["a"]


def _cloud_disk(name: str) -> list[Json]:
    return [{"name": name, "awsElasticBlockStore": {"volumeID": name}}]


def test_a_disk_is_shared_until_its_last_pod_is_gone() -> None:
    """Two nodes used it, one let it go, and it counted as if no node had it (or all for ever)."""
    cache = _cluster()
    first, second = (
        make_pod(f"d-{node}", volumes=_cloud_disk("vol-1"), node=node) for node in "ab"
    )
    (used,) = first.volumes
    assert isinstance(used.use, Disk)
    attachment = used.use.attachment
    assert attachment is not None
    by_claim = ClaimUse("default/elsewhere")

    def shared() -> bool:
        users = cache.snapshot().volume_users
        return users.may_share(by_claim, attachment, cache.objects)

    assert not shared()
    for pod in (first, second):
        cache.add_pod(pod)
        assert shared()
    cache.remove_pod(first)
    assert shared()
    cache.remove_pod(second)
    assert not shared()
    cache.check_invariants()


def test_a_disk_may_be_shared_by_any_claim_of_its_volume() -> None:
    """A pod that names the disk itself meets those that claim a volume of it, and other claims."""
    cache = _cluster()
    (named,) = make_pod(volumes=_cloud_disk("vol-1")).volumes
    assert isinstance(named.use, Disk)
    attachment, by_claim = named.use.attachment, ClaimUse("default/elsewhere")
    assert attachment is not None
    users, source = cache.snapshot().volume_users, {"awsElasticBlockStore": {"volumeID": "vol-1"}}

    def shared() -> tuple[bool, ...]:
        both = named.use, by_claim
        return tuple(users.may_share(use, attachment, cache.objects) for use in both)

    assert shared() == (False, False)
    _put(cache, volume("local", source={"local": {"path": "/vol-1"}}))
    assert shared() == (False, False)
    _put(cache, volume("one", source=source))
    assert shared() == (True, False)
    _put(cache, volume("two", source=source))
    assert shared() == (True, True)
    cache.objects.delete("persistentvolumes", "one")
    assert shared() == (True, False)


@pytest.mark.parametrize(
    ("objects", "owner", "counts", "in_tree"),
    [
        pytest.param([], "", None, False, id="no claim"),
        pytest.param(
            [claim(volume="disk"), volume()], "", (DRIVER, "disk"), False, id="a driver's volume"
        ),
        pytest.param([claim(volume="disk"), volume()], "u", None, False, id="another pod's claim"),
        pytest.param(
            [claim(volume="disk"), storage_class("local", provisioner=DRIVER)],
            "",
            (DRIVER, "claim default/data"),
            False,
            id="a volume that is gone",
        ),
        pytest.param(
            [claim(), storage_class("local", provisioner=DRIVER)],
            "",
            (DRIVER, "claim default/data"),
            False,
            id="a volume to be made",
        ),
        pytest.param(
            [claim(), storage_class("local", provisioner="kubernetes.io/aws-ebs")],
            "",
            ("ebs.csi.aws.com", "claim default/data"),
            True,
            id="a volume to be made by what was in the tree",
        ),
        pytest.param(
            [
                claim(volume="disk"),
                volume(source={"awsElasticBlockStore": {"volumeID": "vol-1"}}),
                storage_class("local", provisioner=DRIVER),
            ],
            "",
            ("ebs.csi.aws.com", "vol-1"),
            True,
            id="a volume of what was in the tree",
        ),
        pytest.param(
            [claim(), storage_class("local", provisioner="kubernetes.io/azure-file")],
            "",
            None,
            False,
            id="a volume that counts for no driver",
        ),
        pytest.param([claim()], "", None, False, id="no class of that name"),
        pytest.param([claim(storage_class=None)], "", None, False, id="no class"),
    ],
)
def test_what_the_claim_of_a_pod_counts_as(
    objects: list[Json], owner: str, counts: tuple[str, str] | None, in_tree: bool
) -> None:
    cache = Cache()
    for plain in objects:
        _put(cache, plain)
    use = ClaimUse("default/data", owner)
    found = attachment_of(use, cache.objects)
    assert found == (None if counts is None else Attachment(*counts))
    assert found is None or is_for_in_tree_plugin(use, cache.objects) is in_tree


def test_what_drivers_say_of_a_node_and_of_themselves() -> None:
    """A node of which nothing is known yet is not one without drivers."""
    cache = Cache()
    _put(
        cache, csi_node("n", limits={"z.example.com": 3, "a.example.com": None, "o.example.com": 0})
    )
    _put(cache, csi_node("none"))
    limits = {"n": {"z.example.com": 3, "o.example.com": 0}, "none": {}, "unknown": {}}
    drivers = {
        "n": ["a.example.com", "o.example.com", "z.example.com"],
        "none": [],
        "unknown": None,
    }
    for name in limits:
        assert volume_limits(name, cache.objects) == limits[name]
        assert csi_drivers(name, cache.objects) == drivers[name]
    for name, says in (("must", True), ("may", False), ("silent", None)):
        spec = {} if says is None else {"preventPodSchedulingIfMissing": says}
        _put(cache, {"kind": "CSIDriver", "metadata": {"name": name}, "spec": spec})
        assert must_be_installed(name, cache.objects) is (says is True)
    assert not must_be_installed("unknown", cache.objects)


# --- the store's part --------------------------------------------------------------------------


def _text(name: str, group: str | None) -> ConfigMap:
    return ConfigMap(ManagedMeta(name=name), {} if group is None else {"group": group})


def _group(obj: ConfigMap) -> str | None:
    return obj.data.get("group")


def test_an_index_follows_every_change() -> None:
    store = ObjectStore()
    store.put("configmaps", _text("old", "x"))
    assert [o.metadata.name for o in store.indexed("configmaps", _group, "x")] == ["old"]
    store.put("configmaps", _text("new", "x"))
    store.put("configmaps", _text("none", None))
    assert [o.metadata.name for o in store.indexed("configmaps", _group, "x")] == ["new", "old"]
    store.put("configmaps", _text("old", "y"))
    assert [o.metadata.name for o in store.indexed("configmaps", _group, "x")] == ["new"]
    assert [o.metadata.name for o in store.indexed("configmaps", _group, "y")] == ["old"]
    newer = _text("new", "x")
    store.put("configmaps", newer)
    assert store.indexed("configmaps", _group, "x") == [newer]
    store.delete("configmaps", "new")
    store.put("configmaps", _text("old", None))
    assert store.indexed("configmaps", _group, "x") == []
    assert store.indexed("configmaps", _group, "y") == []


def test_a_listener_is_notified_of_every_change_until_it_has_enough() -> None:
    store = ObjectStore()
    reported: list[tuple[Any, Any]] = []
    stop = store.listen("configmaps", lambda old, new: reported.append((old, new)))
    one, two = _text("a", None), _text("a", "x")
    store.put("configmaps", one)
    store.put("configmaps", two)
    store.delete("configmaps", "a")
    store.delete("configmaps", "a")
    store.put("services", one)
    assert reported == [(None, one), (one, two), (two, None)]
    stop()
    store.put("configmaps", one)
    assert len(reported) == 3
