import pytest

from engine.files.world import OBJECT_KINDS, ManifestError, World, node_of, pod_of


def _node(name: str = "a", **status: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "status": status}


def _pod(name: str, node: str = "a", phase: str = "Running") -> dict[str, object]:
    spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def test_placed_pods_count_on_their_node() -> None:
    world = World.from_manifests([_node(allocatable={"cpu": "4"})], [_pod("p"), _pod("q")])
    info = world.snapshot.infos[world.snapshot.slot_of["a"]]
    assert info is not None
    assert (info.pod_count, info.requested["cpu"]) == (2, 2000)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_take_no_capacity(phase: str) -> None:
    world = World.from_manifests([_node()], [_pod("p", phase=phase)])
    info = world.snapshot.infos[world.snapshot.slot_of["a"]]
    assert info is not None
    assert info.pod_count == 0


def test_a_pod_without_a_node_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"pod `default/p`: want `spec.nodeName`"):
        World.from_manifests([_node()], [_pod("p", node="")])


@pytest.mark.parametrize("kind", sorted(OBJECT_KINDS))
def test_every_known_kind_is_kept(kind: str) -> None:
    plural, _ = OBJECT_KINDS[kind]
    world = World.from_manifests([], [], [{"kind": kind, "metadata": {"name": "x"}}])
    assert world.snapshot.objects.get(plural, "x") is not None


def test_an_unknown_kind_is_named() -> None:
    manifest = {"kind": "Gizmo", "metadata": {"namespace": "n", "name": "x"}}
    with pytest.raises(ManifestError, match=r"object `n/x`: want one of .*got `Gizmo`"):
        World.from_manifests([], [], [manifest])


def test_a_manifest_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(ManifestError, match="pod `default/p`"):
        pod_of({"metadata": {"namespace": "default", "name": "p"}, "spec": {"containers": 3}})
    with pytest.raises(ManifestError, match="node `a`"):
        node_of({"metadata": {"name": "a"}, "spec": []})
