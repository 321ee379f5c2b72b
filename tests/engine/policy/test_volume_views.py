"""What policies see of the volumes of pods: alike where only names differ."""

from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from engine.core.caching.cache import Cache
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.files.world import OBJECT_KINDS
from engine.policy.pod_views import POD_FIELDS
from tests.builders import make_node, make_pod
from tests.storage_builders import claim, uses, volume
from workbench.cli.main import main


def _cache(*objects: dict[str, Any]) -> Cache:
    cache = Cache()
    for manifest in objects:
        plural, record = OBJECT_KINDS[manifest["kind"]]
        decoded: Any = from_plain(record, manifest)
        cache.objects.put(plural, decoded)
    return cache


def _seen(cache: Cache, pod: Pod, field: str) -> Any:
    return POD_FIELDS[field].extract(pod, cache.snapshot())


def _using(*claims: str, name: str = "p", node: str = "") -> Pod:
    return make_pod(name, volumes=uses(*claims), node=node)


def test_without_names_volumes_that_are_alike_are_the_same() -> None:
    cache = _cache(
        volume("v0", zone="x"), volume("v1", zone="x"), volume("v2", labels={"a": "b"}),
        claim("c0", volume="v0"), claim("c1", volume="v1"), claim("c2", volume="v2"),
    )  # fmt: skip
    one, other, labelled = (_using(c) for c in ("c0", "c1", "c2"))
    assert _seen(cache, one, "volumes") != _seen(cache, other, "volumes")
    assert _seen(cache, one, "unnamed_volumes") == _seen(cache, other, "unnamed_volumes")
    assert _seen(cache, one, "unnamed_volumes") != _seen(cache, labelled, "unnamed_volumes")


def test_a_volume_that_a_pod_mounts_twice_counts_once() -> None:
    cache = _cache(
        volume("v0"), volume("again", source=volume("v0")["spec"]), volume("v1"),
        claim("c0", volume="v0"), claim("c1", volume="again"), claim("c2", volume="v1"),
    )  # fmt: skip
    found = _seen(cache, _using("c0", "c1", "c2"), "unnamed_volumes")
    assert [one["is_repeated"] for one in found] == [False, True, False]


def test_what_is_not_there_is_named() -> None:
    cache = _cache(claim("c0", volume="gone"), claim("c1"))
    found = _seen(cache, _using("c0", "c1", "c2"), "unnamed_volumes")
    assert [one["claim"]["missing"] for one in found] == [
        'persistentvolume "gone" not found',
        "",
        'persistentvolumeclaim "c2" not found',
    ]


def test_claims_for_one_pod_alone_are_in_use_where_one_has_them() -> None:
    once = ["ReadWriteOncePod"]
    cache = _cache(claim("c0", modes=once), claim("c1", modes=once), claim("c2"))
    cache.add_node(make_node("n0"))
    cache.add_pod(_using("c0", "c2", name="other", node="n0"))
    found = _seen(cache, _using("c0", "c1", "c2"), "exclusive_claims")
    assert found == {"default/c0": ["n0"]}


def test_a_volume_says_from_which_nodes_it_is_reached() -> None:
    """CSI volumes have their zone there alone. Pods whose volumes are alike stay so."""
    cache = _cache(
        volume("v0", zone="x"), volume("v1"), volume("v2", node="n"),
        claim("c0", volume="v0"), claim("c1", volume="v1"), claim("c2", volume="v2"),
    )  # fmt: skip
    pods = [_using(one) for one in ("c0", "c1", "c2")]
    zone, anywhere, _ = (_seen(cache, pod, "volumes")[0]["claim"]["volume"] for pod in pods)
    (term,) = msgspec.to_builtins(zone["node_affinity"])["required"]
    requirement = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["x"]}
    assert term == {"expressions": [requirement], "fields": []}
    assert anywhere["node_affinity"] is None
    first, *others = (_seen(cache, pod, "unnamed_volumes") for pod in pods)
    assert others == [first, first]


def test_a_policy_keeps_a_pod_near_its_volume(tmp_path: Path) -> None:
    """As the built-in volume binding does, but softly."""
    files = {
        "near.star": """
load("@std/selectors.star", "matches_any_term")

def score(pod, node):
    reached = [v.claim.volume.node_affinity for v in pod.volumes if v.claim and v.claim.volume]
    return 100 if all([a == None or matches_any_term(a.required, node) for a in reached]) else 0
""",
        "near_test.star": """
load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_near():
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {"nodeAffinity": affinity},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"volumeName": "v"},
    }
    pod = make_pod() | {}
    pod["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    nodes = cluster(make_node("a", zone = "a"), make_node("b", zone = "b"), volume, claim)
    asserts.scores(nodes, pod, {"a": 0, "b": 100})
""",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(main, ["test", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
