"""Fixtures of tests: manifests as kubectl writes them, where they may be, what is wrong in them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.files.cluster_file import snapshot_bytes
from engine.policy.bundle import build_bundle
from engine.testing.fixtures import (
    DirectoryFiles,
    FixtureError,
    GivenFiles,
    NoFileHere,
    read_data,
    read_manifests,
)
from engine.testing.runner import PolicyTestResult, describe, discover, run_tests
from tests.controlplane import ControlPlane

LOADS = (
    'load("@std/testing.star", "asserts", "cluster", "judge", "load_data", "load_manifests", '
    '"make_node", "make_pod")\n'
)
POLICY = 'def filter(pod, node):\n    return "bad" if node.labels.get("bad") == "true" else None\n'
CLUSTER = """\
# What is left of a cluster.
apiVersion: v1
kind: List
items:
- kind: Node
  metadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}
  status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
- kind: Pod
  metadata: {name: web, namespace: shop}
  spec:
    nodeName: a
    containers: [{name: app, image: web, resources: {requests: {cpu: 500m}}}]
---
kind: Node
metadata: {name: b, labels: {bad: "true"}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  volumeName: pv-1
---
kind: Pod
metadata: {name: job}
spec: {priorityClassName: high, containers: [{name: app, image: job}]}
---
kind: Pod
metadata: {name: done}
spec: {nodeName: a, containers: [{name: app, image: job}]}
status: {phase: Succeeded}
---
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2}
"""


def run(root: Path, test: str, policy: str = POLICY) -> list[PolicyTestResult]:
    bundle = build_bundle({"x.star": policy, "x_test.star": LOADS + test})
    return list(run_tests(bundle, discover(bundle), files=lambda _: DirectoryFiles(root)))


def passes(root: Path, test: str, policy: str = POLICY) -> None:
    results = run(root, test, policy)
    assert results
    assert [describe(result) for result in results if not result.passed] == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def test_a_fixture_is_a_cluster_and_objects_by_kind_and_name(root: Path) -> None:
    passes(
        root,
        """
_FIXTURE = load_manifests("fixtures/cluster.yaml")

def test_it():
    asserts.equal(sorted(_FIXTURE.nodes), ["a", "b"])
    asserts.equal(sorted(_FIXTURE.pods), ["default/done", "default/job", "shop/web"])
    asserts.equal([pod["metadata"]["name"] for pod in _FIXTURE.pending], ["job"])
    kinds = ["Deployment", "PersistentVolumeClaim", "PriorityClass"]
    asserts.equal(sorted(_FIXTURE.objects), kinds)
    claim = _FIXTURE.object("PersistentVolumeClaim", "shop/data")
    asserts.equal(claim["spec"]["volumeName"], "pv-1")
    asserts.feasible(_FIXTURE.cluster, _FIXTURE.pod("job"), ["a"])
    asserts.equal(_FIXTURE.node("a")["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z")
""",
    )


def test_pods_get_their_class_and_placed_ones_can_be_asked_about(root: Path) -> None:
    passes(
        root,
        """
def test_it():
    fixture = load_manifests("fixtures/cluster.yaml")
    asserts.equal(fixture.pod("job")["spec"]["priority"], 1000)
    web = fixture.pod("shop/web")
    asserts.true("nodeName" not in web["spec"])
    asserts.scores(fixture.cluster, web, {"a": 1, "b": 0})
    asserts.scores(fixture.without("shop/web"), web, {"a": 0, "b": 0})
""",
        "def score(pod, node):\n    return node.pod_count\n",
    )


def test_builders_add_to_a_fixture_and_take_the_place_of_its_nodes(root: Path) -> None:
    passes(
        root,
        """
def test_it():
    fixture = load_manifests("fixtures/cluster.yaml")
    asserts.feasible(cluster(fixture.cluster, make_node("c")), make_pod(), ["a", "c"])
    asserts.feasible(cluster(fixture.cluster, make_node("b")), make_pod(), ["a", "b"])
    known = cluster(fixture.cluster, facts = {"nodes": {"a": {"load": 3}}})
    asserts.equal(known.facts["nodes"], {"a": {"load": 3}})
""",
    )


def test_the_claims_and_volumes_of_a_fixture_are_seen(root: Path) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "disk.example.com", "volumeHandle": "1"},
    }
    items = [{"metadata": {"name": "pv-1"}, "spec": spec}]
    volumes = {"kind": "PersistentVolumeList", "items": items}
    (root / "volumes.json").write_text(json.dumps(volumes))
    policy = (
        "def filter(pod, node):\n"
        "    for volume in pod.volumes:\n"
        '        if volume.claim and volume.claim.volume_name == "pv-1":\n'
        '            return "has pv-1"\n'
        "    return None\n"
    )
    passes(
        root,
        """
def test_it():
    fixture = load_manifests("fixtures/cluster.yaml", "volumes.json")
    asserts.equal(list(fixture.objects["PersistentVolume"]), ["pv-1"])
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    pod = make_pod(namespace = "shop", spec = {"volumes": [claim]})
    asserts.rejects(fixture.cluster, pod, "has pv-1", "a")
    asserts.fits(fixture.cluster, make_pod(), "a")
""",
        policy,
    )


GANG = """\
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: gang, namespace: default}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
---
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
""" + "".join(
    f"""---
kind: Pod
metadata: {{name: p{i}, labels: {{group: gang}}}}
spec: {{{"nodeName: a, " if i == 0 else ""}containers: [{{name: app, image: x}}]}}
"""
    for i in range(2)
)


def test_the_groups_of_a_fixture_are_counted(tmp_path: Path) -> None:
    """As the scheduler counts them: PodGroup objects, placed pods, pending ones, the one asked."""
    (tmp_path / "gang.yaml").write_text(GANG)
    policy = """
def group_of(pod):
    name = pod.labels.get("group")
    return gang(name) if name else None

def pre_enqueue(pod, group):
    return "too few" if group != None and group.pod_count < group.min_count else None

def permit(pod, group):
    if group != None and group.waiting + group.placed < group.min_count:
        return wait(60, "%d of %d" % (group.waiting + group.placed, group.min_count))
    return None
"""
    passes(
        tmp_path,
        """
def _more(name):
    return make_pod(name, labels = {"group": "gang"})

def test_it():
    fixture = load_manifests("gang.yaml")
    asserts.gated(fixture.pod("p1"), "too few", cluster = fixture.cluster)
    asserts.not_gated(_more("p2"), cluster = fixture.cluster)
    asserts.waits(fixture.pod("p1"), None, 60, cluster = fixture.cluster)
    asserts.not_gated(make_pod(), cluster = fixture.cluster)
""",
        policy,
    )


def test_what_a_real_cluster_lists_is_a_fixture(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Kinds are left out of the items of the API's lists; `kubectl -o yaml` writes a `List`."""
    control_plane.create_if_missing(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"containers": [{"name": "a", "image": "b"}], "schedulerName": "nobody"},
        },
    )
    listed = control_plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    spaces = control_plane.request("GET", "/api/v1/namespaces")
    (tmp_path / "pods.json").write_text(json.dumps(listed))
    items = [{"apiVersion": "v1", "kind": "Namespace", **one} for one in spaces["items"]]
    (tmp_path / "spaces.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    )
    found = read_manifests(DirectoryFiles(tmp_path), ["."])
    assert [pod["metadata"]["name"] for pod in found["pods"]] == ["web"]
    assert namespace in {one["metadata"]["name"] for one in found["objects"]}


def test_a_snapshot_is_a_fixture(tmp_path: Path) -> None:
    items = [{"kind": "Node", "metadata": {"name": "a"}}]
    text = snapshot_bytes(items, "2026-01-01T00:00:00Z", {}, compress=True)
    (tmp_path / "cluster.json.gz").write_bytes(text)
    found = read_manifests(DirectoryFiles(tmp_path), ["cluster.json.gz"])
    assert [node["metadata"]["name"] for node in found["nodes"]] == ["a"]


# --- where fixtures may be -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../secret.yaml", "/etc/hostname", "fixtures/link.yaml", ""])
def test_nothing_outside_the_directory_of_the_test_can_be_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.yaml").write_text("kind: Node\nmetadata: {name: secret}\n")
    root = tmp_path / "policies"
    (root / "fixtures").mkdir(parents=True)
    (root / "fixtures" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(FixtureError, match="want a path in or below the directory of the test"):
        read_manifests(DirectoryFiles(root), [path])
    with pytest.raises(
        FixtureError, match=r"want a (path in or below the directory|file that ends)"
    ):
        read_data(DirectoryFiles(root), path)


def test_a_link_inside_the_directory_is_followed(root: Path) -> None:
    (root / "link.yaml").symlink_to(root / "fixtures" / "cluster.yaml")
    assert read_manifests(DirectoryFiles(root), ["link.yaml"])["nodes"]


def test_files_that_are_not_at_hand_are_another_error() -> None:
    with pytest.raises(NoFileHere):
        read_data(GivenFiles({}), "a.yaml")
    assert read_data(GivenFiles({"x_test.yaml": "[1]"}), "x_test.yaml") == [1]


# --- what is wrong in them -------------------------------------------------------------------

NODE = "kind: Node\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            NODE + "---\nkind: Node\nmetadata: {name: b}\nspec:\n  taints:\n  - key: x\n"
            "    effect: 7\n",
            "f.yaml:9: document 2, Node `b`: spec.taints[0].effect: want a string, got `7` (int)",
            id="wrong type",
        ),
        pytest.param(
            "kind: List\nitems:\n- kind: Node\n  metadata:\n    name: a\n    labels:\n"
            "      zone: z1\n      size: 5\n",
            "f.yaml:8: document 1, items[0], Node `a`: metadata.labels.size: "
            "want a string, got `5` (int)",
            id="label that is no text",
        ),
        pytest.param(
            NODE + "status:\n  allocatable:\n    cpu: lots\n",
            "f.yaml:5: document 1, Node `a`: status.allocatable.cpu: want a quantity, got `lots`",
            id="quantity",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n    resources:\n"
            "      requests:\n        example.com/gpu: many\n",
            "f.yaml:8: document 1, Pod `default/p`: spec.containers[0].resources.requests"
            "[example.com/gpu]: want a quantity, got `many`",
            id="quantity of an extended resource",
        ),
        pytest.param(
            "kind: Nodes\nmetadata: {name: a}\n",
            "f.yaml:1: document 1, Nodes `a`: kind: want a kind, got `Nodes`; did you mean `Node`?",
            id="misspelt kind",
        ),
        pytest.param(
            "metadata: {name: a}\n",
            "f.yaml:1: document 1: kind: want the kind of the object, got nothing",
            id="no kind",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {}\n",
            "f.yaml:2: document 1, Pod: metadata.name: want a text, got nothing",
            id="no name",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: p}\n",
            "f.yaml:1: document 1, Pod `default/p`: spec: want an object, got nothing",
            id="no spec",
        ),
        pytest.param(
            NODE + "---\n" + NODE,
            "f.yaml:4: document 2, Node `a`: the second of this name; the first is f.yaml:1",
            id="twice",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: p}\nspec:\n  priorityClassName: high\n",
            "f.yaml:4: document 1, Pod `default/p`: spec.priorityClassName: "
            "no PriorityClass with name high was found",
            id="priority class",
        ),
        pytest.param(
            "kind: NodeList\nitems: 5\n",
            "f.yaml:2: document 1, NodeList: items: want a list, got `5` (int)",
            id="items",
        ),
        pytest.param(
            "kind: ClusterSnapshot\napiVersion: starsched.dev/v2\nitems: []\n",
            "f.yaml:2: document 1, ClusterSnapshot: apiVersion: want `starsched.dev/v1`, "
            "got `starsched.dev/v2` (str)",
            id="snapshot of a later version",
        ),
        pytest.param("- 1\n", "f.yaml:1: document 1: want an object, got an array", id="list"),
        pytest.param("kind: Node\n  metadata: {\n", "f.yaml:2:11: want YAML: ", id="no YAML"),
        pytest.param(
            "kind: PersistentVolumeClaim\nmetadata: {name: c}\nspec:\n  accessModes: 4\n",
            "f.yaml:4: document 1, PersistentVolumeClaim `c`: spec.accessModes: "
            "want an array, got `4` (int)",
            id="claim",
        ),
    ],
)
def test_a_problem_names_file_line_document_field_and_value(
    tmp_path: Path, text: str, want: str
) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(FixtureError) as caught:
        read_manifests(DirectoryFiles(tmp_path), ["f.yaml"])
    assert str(caught.value).startswith(want)


def test_the_test_that_loads_a_wrong_file_fails_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("kind: Nodes\nmetadata: {name: a}\n")
    inside = "def test_it():\n    load_manifests('f.yaml')\n"
    top = "F = load_manifests('f.yaml')\n\ndef test_it():\n    asserts.true(F)\n"
    for test, line in ((inside, 3), (top, 2)):
        (result,) = run(tmp_path, test)
        assert not result.passed
        assert result.line == line
        assert result.message.startswith("f.yaml:1: document 1")


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ('pod("shop/wbe")', "no pod `shop/wbe`, want one of default/done, default/job, shop/web"),
        ('node("z")', "no node `z`, want one of a, b"),
        ('object("Service", "x")', "no Service, want one of Deployment"),
        ('without("x")', "no pod `x`"),
    ],
)
def test_a_name_that_is_not_there_is_reported_with_those_that_are(
    root: Path, call: str, want: str
) -> None:
    test = f'def test_it():\n    load_manifests("fixtures/cluster.yaml").{call}\n'
    (result,) = run(root, test)
    assert not result.passed
    assert f"fixtures/cluster.yaml: {want}" in result.message


@pytest.mark.parametrize(
    ("call", "want"),
    [
        pytest.param('load_manifests(["a.yaml"])', 'want paths, got ["a.yaml"]', id="a list"),
        pytest.param("load_manifests()", "want paths, got none", id="nothing"),
        pytest.param('load_data(["a.csv"])', 'want a path, got ["a.csv"]', id="a list of data"),
    ],
)
def test_what_is_no_path_is_reported(tmp_path: Path, call: str, want: str) -> None:
    """Of a list it said that it "has no attribute 'endswith'"; without any there was a cluster."""
    (result,) = run(tmp_path, f"def test_it():\n    {call}\n")
    assert result.message == f"{call.partition('(')[0]}: {want}"


# --- data ------------------------------------------------------------------------------------


def test_a_key_that_is_there_twice_is_refused_in_json_too(tmp_path: Path) -> None:
    """YAML refused it; of JSON the last one counted, in silence."""
    (tmp_path / "a.json").write_text('{\n "x": {"want": 1},\n "x": {"want": 2}\n}')
    message = r"^a\.json:3:2: want JSON: the key `x` is already used in line 2$"
    with pytest.raises(FixtureError, match=message):
        read_data(DirectoryFiles(tmp_path), "a.json")


def test_data_is_read_from_yaml_json_and_csv(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("half: {mean: 70, at: 2026-01-01}\n")
    (tmp_path / "a.json").write_text('[{"name": "x", "want": 1.5}]')
    (tmp_path / "a.csv").write_text(
        'name,mean,on,note\n"a, b",70,true,500m\nc,-1.5,false,\n\n007,007,x,"say ""hi"""\n'
    )
    files = DirectoryFiles(tmp_path)
    assert read_data(files, "a.yaml") == {"half": {"mean": 70, "at": "2026-01-01"}}
    assert read_data(files, "a.json") == [{"name": "x", "want": 1.5}]
    assert read_data(files, "a.csv") == [
        {"name": "a, b", "mean": 70, "on": True, "note": "500m"},
        {"name": "c", "mean": -1.5, "on": False, "note": None},
        {"name": "007", "mean": "007", "on": "x", "note": 'say "hi"'},
    ]


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("a.csv", "a,b\n1,2\n1,2,3\n", "a.csv:3: want 2 cells, got 3"),
        ("a.csv", "a,a\n", "a.csv:1: want unique column names in the first line"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "a.yaml: want one document, got 2"),
        ("a.json", "{", "a.json:1:2: want JSON: Input data was truncated"),
        ("a.txt", "", "a.txt: want a file that ends in one of"),
        ("b.yaml", None, "b.yaml: no such file or directory"),
    ],
)
def test_data_that_cannot_be_read_is_reported(
    tmp_path: Path, name: str, text: Any, want: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(FixtureError, match="^" + want.replace("(", "[(]")):
        read_data(DirectoryFiles(tmp_path), name)


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.testing.fixtures.MOST_BYTES", 1000)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * 2000))
    (tmp_path / "a.json").write_text(" " * 2000)
    for name in ("a.json.gz", "a.json"):
        with pytest.raises(FixtureError, match="want at most 1,000 bytes"):
            read_manifests(DirectoryFiles(tmp_path), [name])
