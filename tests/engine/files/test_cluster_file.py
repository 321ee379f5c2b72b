"""A cluster as a file: what goes in comes out, in every form that people keep; secrets do not."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.files.cluster_file import (
    Cluster,
    ClusterFileError,
    read_cluster,
    read_documents,
    redact,
    redacted,
    snapshot_bytes,
)
from engine.files.world import ManifestError

NODE = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "spec": spec}


def test_pods_that_differ_in_their_names_alone_are_each_read_as_if_alone(tmp_path: Path) -> None:
    ranges = {
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "a"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2000m"}}]},
    }
    pods = [pod(name, containers=[{"name": "c", "image": "i"}]) for name in ("p", "q", "r")]
    pods[2]["metadata"]["labels"] = {"app": "r"}
    file = tmp_path / "a.json"

    def read(*objects: dict[str, Any]) -> list[dict[str, Any]]:
        file.write_text(json.dumps({"kind": "List", "items": objects}))
        return read_cluster(file).pods

    got = read(*pods, ranges)
    assert got == [one for each in pods for one in read(each, ranges)]
    # Each is an object of its own.
    got[0]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    assert got[1]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    with pytest.raises(ManifestError, match=r"metadata\.name"):
        read(*pods, pod("Not_a_name", **pods[0]["spec"]))


def test_the_configuration_of_containers_is_left_out() -> None:
    reported = {
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "envFrom": [{"secretRef": {"name": "hunter2"}}],
        "args": ["--password=hunter2"],
        "command": ["hunter2"],
        "lifecycle": {"preStop": {"exec": {"command": ["hunter2"]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"value": "hunter2"}]}},
    }
    kept = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {name: [kept | reported] for name in ("containers", "initContainers")}
    manifest = pod() | {
        "metadata": {
            "name": "p",
            "managedFields": [{"x": "hunter2"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
                "env": "kept",
            },
        },
        "spec": spec
        | {"volumes": [{"csi": {"driver": "d", "volumeAttributes": {"k": "hunter2"}}}]},
    }
    workload = {"kind": "ReplicaSet", "spec": {"template": {"spec": spec}}}
    got = redacted(manifest)
    assert "hunter2" not in json.dumps([got, redacted(workload)])
    assert got["spec"]["containers"] == [kept]
    assert got["metadata"]["annotations"] == {"env": "kept"}
    assert got["spec"]["volumes"] == [{"csi": {"driver": "d"}}]


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["containers", "env", "csi", "options", "annotations", "name", "spec"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(manifest=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _plain))
def test_redacting_never_fails_and_twice_is_once(manifest: dict[str, Any]) -> None:
    once = redacted(manifest)
    assert redacted(once) == once


@pytest.mark.parametrize("name", ["s.json", "s.json.gz"])
def test_a_snapshot_can_be_read_again(tmp_path: Path, name: str) -> None:
    items = [NODE, pod(), pod("q", nodeName="n"), {"kind": "Service", "metadata": {"name": "s"}}]
    stored = {"uid": "u", "resourceVersion": "1"}
    items = [{**item, "metadata": {**item["metadata"], **stored}} for item in items]
    text = snapshot_bytes(items, "2026-01-01T00:00:00Z", {"x": "no"}, compress=name.endswith("gz"))
    (tmp_path / name).write_bytes(text)
    got = read_cluster(tmp_path / name)
    assert (got.nodes, got.pods, len(got.objects)) == (items[:1], items[1:3], 1)
    assert (got.taken_at, got.missing) == ("2026-01-01T00:00:00Z", {"x": "no"})
    document = json.loads(gzip.decompress(text) if name.endswith("gz") else text)
    assert (document["apiVersion"], document["kind"]) == ("starsched.dev/v1", "ClusterSnapshot")


def test_what_no_cluster_has_seen_is_read_as_a_cluster_would(tmp_path: Path) -> None:
    """A GPU in the limits alone was not asked for, and the pod went to a node without one."""
    (tmp_path / "x.yaml").write_text(
        "kind: Node\nmetadata: {name: n}\nstatus: {capacity: {cpu: 4}}\n---\n"
        "kind: LimitRange\nmetadata: {name: l}\n"
        "spec: {limits: [{type: Container, default: {memory: 1Gi}}]}\n---\n"
        "kind: Pod\nmetadata: {name: p}\nspec:\n  hostNetwork: true\n  containers:\n"
        "  - {name: c, ports: [{containerPort: 80}], resources: {limits: {nvidia.com/gpu: 1}}}\n"
    )
    cluster = read_cluster(tmp_path / "x.yaml")
    assert cluster.nodes[0]["status"]["allocatable"] == {"cpu": "4"}
    [container] = cluster.pods[0]["spec"]["containers"]
    assert container["resources"]["requests"] == {"nvidia.com/gpu": "1", "memory": "1Gi"}
    assert container["ports"][0]["hostPort"] == 80
    assert cluster.is_written


def test_all_problems_of_all_files_are_reported_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod\nmetadata: {name: p}\nspec:\n  nodename: x\n")
    (tmp_path / "b.yaml").write_text("---\nkind: Node\nspec: {taints: [{effect: No}]}\n")
    with pytest.raises(ManifestError) as error:
        read_cluster(tmp_path)
    first, second = str(error.value).splitlines()
    assert first == (
        f"{tmp_path}/a.yaml:4: document 1, Pod `p`: spec.nodename: no such field; "
        "did you mean `nodeName`?"
    )
    assert second.startswith(f"{tmp_path}/b.yaml:3: document 1, Node: spec.taints[0].effect: want ")


def test_an_empty_cluster_is_a_snapshot_too(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(snapshot_bytes([], "", {}, compress=False))
    assert read_cluster(tmp_path / "s.json").nodes == []


def test_lists_documents_and_directories_are_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".hidden.yaml").write_text("not: [closed")
    (tmp_path / "list.json").write_text(json.dumps({"kind": "List", "items": [NODE, pod("x")]}))
    (tmp_path / "typed.json").write_text(
        json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "y"}}]})
    )
    (tmp_path / "deep" / "two.yaml").write_text(
        "---\nkind: Pod\nmetadata: {name: z, creationTimestamp: 2024-01-02T03:04:05Z}\n"
        "---\n# nothing\n---\nkind: Secret\nmetadata: {name: s}\n"
    )
    got = read_cluster(tmp_path)
    assert [p["metadata"]["name"] for p in got.pods] == ["z", "x", "y"]
    assert got.pods[0]["metadata"]["creationTimestamp"] == "2024-01-02T03:04:05Z"
    assert [node["metadata"]["name"] for node in got.nodes] == ["n"]
    assert dict(got.skipped) == {"Secret": 1}


def test_what_names_no_namespace_is_in_the_default_one(tmp_path: Path) -> None:
    """A pod did not find its claim, nor a StatefulSet those of its templates: `not found`."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
    workload = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "template": {"spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": spec}],
        },
    }
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}}
    given = [claim, pod("x", volumes=[volume]), workload, budget, NODE]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump_all(given))
    cluster = read_cluster(tmp_path / "x.yaml")
    within = {
        (one["metadata"]["name"], one["metadata"].get("namespace")) for one in cluster.objects
    }
    assert {("data", "default"), ("d-db-0", "default"), ("b", "default")} <= within
    claims = cluster.world().cache.objects.list("persistentvolumeclaims", "default")
    assert {one.metadata.name for one in claims} == {"data", "d-db-0"}
    assert "namespace" not in cluster.nodes[0]["metadata"]


def test_json_values_after_one_another_are_objects(tmp_path: Path) -> None:
    """What `jq '.items[]'` prints was "trailing characters", and kubectl reads it."""
    (tmp_path / "x.json").write_text(json.dumps(NODE, indent=1) + "\n" + json.dumps(pod("x")))
    got = read_cluster(tmp_path / "x.json")
    assert [one["metadata"]["name"] for one in got.nodes + got.pods] == ["n", "x"]


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param({"apiVersion": "v1", "kind": "pod"}, "kind.*did you mean `Pod`?", id="case"),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "Deploymnet"},
            "kind: want a kind, got `Deploymnet`; did you mean `Deployment`?",
            id="typing error",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Deployment"},
            "apiVersion: want `apps/v1`, got `v1`",
            id="group",
        ),
        pytest.param(
            {"apiVersion": "extensions/v1beta1", "kind": "Deployment"},
            "apiVersion: want `apps/v1`, got `extensions/v1beta1`",
            id="old group",
        ),
        pytest.param(
            {"apiVersion": "batch/v1beta1", "kind": "CronJob"},
            "apiVersion: want `batch/v1`, got `batch/v1beta1`",
            id="old version",
        ),
    ],
)
def test_a_kind_that_the_api_has_not_is_no_other_kind(
    tmp_path: Path, kind: dict[str, str], want: str
) -> None:
    """A `pod` was left out, and a Deployment of a version that is gone made pods."""
    (tmp_path / "x.json").write_text(json.dumps({**kind, "metadata": {"name": "x"}}))
    with pytest.raises(ManifestError, match=want):
        read_cluster(tmp_path / "x.json")


def test_kinds_of_others_and_their_versions_are_left_alone(tmp_path: Path) -> None:
    others = [
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("kueue.x-k8s.io/v1beta1", "Workload"),
        ("v1", "Endpoints"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ("storage.k8s.io/v1beta1", "VolumeAttributesClass"),
        ("resource.k8s.io/v1beta2", "DeviceClass"),
    ]
    items = [{"apiVersion": one, "kind": kind, "metadata": {"name": "x"}} for one, kind in others]
    (tmp_path / "x.json").write_text(json.dumps({"kind": "List", "items": items}))
    assert read_cluster(tmp_path / "x.json").pods == []


@pytest.mark.parametrize(
    ("amount", "hint"),
    [
        ("2GB", "; did you mean `2G`?"),
        ("512 MiB", "; did you mean `512Mi`?"),
        ("1.5gi", "; did you mean `1.5Gi`?"),
        ("lots", ""),
        ("", ""),
        ("0x10", ""),
    ],
)
def test_what_is_no_amount_is_named_with_its_place(tmp_path: Path, amount: str, hint: str) -> None:
    """It said line 1 and the API server's regular expression, and no field."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": amount}}}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(pod("x", containers=[container])))
    with pytest.raises(ManifestError) as caught:
        read_cluster(tmp_path / "x.yaml")
    place, _, said = str(caught.value).partition(": document 1, Pod `a/x`: ")
    line = int(place.rpartition(":")[2])
    assert (tmp_path / "x.yaml").read_text().splitlines()[line - 1].strip().startswith("memory:")
    at = "spec.containers[0].resources.requests.memory"
    assert said == f"{at}: want a quantity such as `500m` or `2Gi`, got `{amount}`{hint}"


def test_the_field_of_a_refusal_is_said_once(tmp_path: Path) -> None:
    """It was `requests.cpu: spec.containers[0].resources.requests[cpu]: Invalid value`."""
    container = {"name": "c", "resources": {"requests": {"cpu": "-1"}}}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(pod("x", containers=[container])))
    with pytest.raises(ManifestError, match=r"requests\.cpu: Invalid value: \"-1\": must"):
        read_cluster(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("x.json", "{", "x.json", id="half"),
        pytest.param("x.json", '{"kind": "A"}\n{"kind": }', "x.json:2:10: want JSON", id="second"),
        pytest.param("x.yaml", "a: [", "x.yaml", id="yaml"),
        pytest.param("x.yaml", "- a\n", "document 1: want an object, got list", id="no object"),
        pytest.param("x.json", '{"kind": "PodList"}', "want `items` to be a list", id="no items"),
        pytest.param("x.gz", "\x1f\x8bno", "x.gz", id="no gzip"),
    ],
)
def test_what_is_no_cluster_is_reported_with_its_file(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ClusterFileError, match=message):
        read_cluster(tmp_path / name)


def test_a_directory_without_manifests_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match="found none"):
        read_cluster(tmp_path)


def test_a_pod_gets_the_priority_of_its_class_and_no_node() -> None:
    cluster = Cluster()
    cluster.add({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    got = cluster.pod_of(pod(priorityClassName="high", nodeName="n"))
    assert (got.priority, got.node_name) == (7, "")
    system = cluster.pod_of(pod(priorityClassName="system-node-critical"))
    assert system.priority == 2_000_001_000
    with pytest.raises(ManifestError, match="no PriorityClass with name low was found"):
        cluster.pod_of(pod(priorityClassName="low"))


@pytest.mark.parametrize("created", [False, True])
def test_only_a_pod_that_was_created_may_request_devices_without_a_limit(created: bool) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"example.com/gpu": "1"}}}
    asked = pod(containers=[container])
    if created:
        asked["metadata"]["uid"] = "u"
        assert Cluster(nodes=[], pods=[asked]).pod_of(asked).requests == {"example.com/gpu": 1}
    else:
        with pytest.raises(ManifestError, match="Limit must be set for non overcommitable"):
            Cluster(nodes=[], pods=[asked]).pod_of(asked)


def test_a_placed_pod_has_the_priority_of_its_class() -> None:
    """It had 0 where only the class was named, and less urgent ones evicted it."""
    cluster = Cluster(nodes=[{"metadata": {"name": "n"}}])
    cluster.add({"kind": "Pod", **pod(priorityClassName="high", nodeName="n")})
    cluster.add({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    info = cluster.world().cache.node_info("n")
    assert info is not None
    (placed,) = info.pods.values()
    assert (placed.priority, placed.node_name) == (7, "n")


def test_a_pod_gets_what_its_class_says_of_preemption() -> None:
    """It evicted others, as in no cluster."""
    cluster = Cluster()
    cluster.add(
        {
            "kind": "PriorityClass", "metadata": {"name": "polite"}, "value": 7,
            "preemptionPolicy": "Never", "globalDefault": True,
        }
    )  # fmt: skip
    for named in (pod(priorityClassName="polite"), pod()):
        spec = cluster.pod_of(named).manifest.spec
        assert (spec.preemption_policy, spec.priority_class_name) == ("Never", "polite")
    # The API server has resolved the class of one that has a priority.
    assert cluster.pod_of(pod(priority=7)).manifest.spec.preemption_policy is None
    odd = {"kind": "PriorityClass", "metadata": {"name": "x"}, "preemptionPolicy": "never"}
    with pytest.raises(ManifestError, match=r"`x`: preemptionPolicy: want .*, got `never`"):
        cluster.add(odd)


def test_a_pod_is_found_by_its_name_alone_unless_two_have_it() -> None:
    cluster = Cluster(pods=[pod("p"), {"metadata": {"name": "p"}}, pod("q")])
    assert cluster.find_pod("q") is cluster.pods[2]
    assert cluster.find_pod("default/p") is cluster.pods[1]
    with pytest.raises(KeyError, match="several pods"):
        cluster.find_pod("p")
    with pytest.raises(KeyError, match="no pod `b/q`"):
        cluster.find_pod("b/q")


def test_pods_of_one_name_are_reported_by_names_that_find_them() -> None:
    """One without a namespace was told as `/p`, a name that finds none."""
    cluster = Cluster(
        pods=[{"metadata": {"name": "p"}}, {"metadata": {"name": "p", "namespace": "a"}}]
    )
    with pytest.raises(KeyError, match="several pods are called `p`: `a/p`, `default/p`"):
        cluster.find_pod("p")
    assert cluster.find_pod("default/p") is cluster.pods[0]


def test_finished_pods_take_no_capacity_and_the_one_asked_about_neither() -> None:
    gone = pod("gone", nodeName="n") | {"status": {"phase": "Succeeded"}}
    cluster = Cluster(nodes=[NODE], pods=[gone, pod("p", nodeName="n"), pod("q", nodeName="n")])
    world = cluster.world(without=cluster.pod_of(cluster.pods[1]))
    info = world.snapshot.info("n")
    assert info is not None
    assert [one.key for one in info.pods.values()] == ["a/q"]


_LEAF = st.sampled_from(["x", 1, None, ["y"], {"env": "kept outside of containers"}])
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TEXTS = st.dictionaries(st.sampled_from(["a", _APPLIED]), st.just("t"), max_size=2)
_TOLD_KEYS = ["name", "env", "envFrom", "args", "command", "lifecycle", "livenessProbe", "image"]
_CONTAINER = st.dictionaries(st.sampled_from(_TOLD_KEYS), _LEAF, max_size=5)
_DRIVER = st.dictionaries(
    st.sampled_from(["driver", "volumeAttributes", "options"]), _LEAF, max_size=3
)
_META = st.fixed_dictionaries(
    {},
    optional={"annotations": _TEXTS, "labels": _TEXTS, "managedFields": _LEAF, "name": _LEAF},
)
_CLAIM = st.fixed_dictionaries({"volumeClaimTemplate": st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"annotations": _TEXTS})})})  # fmt: skip
_VOLUME = st.fixed_dictionaries(
    {"name": _LEAF}, optional={"csi": _DRIVER, "flexVolume": _DRIVER, "ephemeral": _CLAIM}
)
_WHOLE = st.fixed_dictionaries(
    {"metadata": _META},
    optional={
        "status": st.fixed_dictionaries({"phase": _LEAF}),
        "spec": st.fixed_dictionaries(
            {"nodeName": _LEAF},
            optional={
                "containers": st.lists(_CONTAINER, max_size=2),
                "initContainers": st.lists(_CONTAINER, max_size=2),
                "ephemeralContainers": st.lists(_CONTAINER, max_size=1),
                "volumes": st.lists(_VOLUME, max_size=2),
            },
        ),
    },
)


@given(_WHOLE)
def test_looking_only_where_the_api_has_secrets_leaves_out_as_much(whole: dict[str, Any]) -> None:
    want = redacted(whole)
    redact(whole)
    assert whole == want


def test_what_is_merged_into_an_object_may_be_said_otherwise_there(tmp_path: Path) -> None:
    """Only a key that is written twice is one too many; and a mapping is merged once, met often."""
    path = tmp_path / "x.yaml"
    path.write_text(
        "kind: Node\n"
        "first: {is: {<<: &both {<<: &one {a: 1, b: 1}, a: 2}, c: 1}}\n"
        "second: *both\n"
        "third: {<<: *both, <<: *one, a: 3}\n"
    )
    [got] = read_documents(path)
    assert got["first"] == {"is": {"a": 2, "b": 1, "c": 1}}
    assert (got["second"], got["third"]) == ({"a": 2, "b": 1}, {"a": 3, "b": 1})


@pytest.mark.parametrize("policy", [{"basic": {}}, {"gang": {"minCount": 2}}])
@pytest.mark.parametrize("mode", ["single", "all"])
@pytest.mark.parametrize("minor", [None, 37, 38])
@pytest.mark.parametrize("kind", ["PodGroup", "Workload"])
def test_from_1_38_on_only_gangs_are_disrupted_as_one(
    tmp_path: Path, policy: dict[str, Any], mode: str, minor: int | None, kind: str
) -> None:
    terms = {"schedulingPolicy": policy, "disruptionMode": {mode: {}}}
    spec = terms if kind == "PodGroup" else {"podGroupTemplates": [{"name": "t", **terms}]}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": kind, "metadata": {"name": "g"}}
    path = tmp_path / "group.yaml"
    path.write_text(yaml.safe_dump({**group, "spec": spec}), encoding="utf-8")
    if minor == 38 and mode == "all" and "basic" in policy:
        with pytest.raises(ManifestError) as caught:
            read_cluster(path, minor=minor)
        at = "spec.disruptionMode" if kind == "PodGroup" else "disruptionMode"
        why = 'cannot have "all" disruption mode when scheduling policy is other than "gang"'
        assert f"{at}: Invalid value: {why}" in str(caught.value)
    else:
        read_cluster(path, minor=minor)


def test_a_group_that_was_created_before_the_upgrade_stays(tmp_path: Path) -> None:
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }
    path = tmp_path / "group.json"
    path.write_text(json.dumps(group), encoding="utf-8")
    assert read_cluster(path, minor=38).objects == [group]
