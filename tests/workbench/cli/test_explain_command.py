"""`starsched explain`, from files and from a real cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.controlplane import ControlPlane
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

ROOM = {"cpu": "2", "memory": "4Gi", "pods": "10"}
NODE = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": ROOM}}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"containers": [container], **spec},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    items = [NODE, pod("fits", "1"), pod("big", "9"), pod("there", "1500m", nodeName="n")]
    path.write_text(yaml.safe_dump_all(items))
    return f"--snapshot={path}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def test_a_pod_that_fits_nowhere_ends_with_3_and_says_why(cluster: str) -> None:
    result = run("a/big", cluster)
    assert result.exit_code == 3, result.output
    assert "a/big fits nowhere" in result.output
    assert "Insufficient cpu" in result.output
    assert "@kubernetes/node_resources_fit.star:" in result.output
    assert "it asks for 9 cpu, and the largest of these nodes, n, has 2 cpu" in result.output
    # The sentence of the event as it is, and what is puzzling in it in words.
    assert "1 Insufficient cpu. preemption: 0/1" in result.output
    assert "`Preemption is not helpful for scheduling`: evicting pods there" in result.output
    assert "What the queue waits for" in result.output
    assert "\x1b[" not in result.output


def test_a_pod_may_name_a_priority_class_of_its_own_file(cluster: str, tmp_path: Path) -> None:
    """It was said not to be known."""
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump_all([high, pod("new", "1", priorityClassName="high")]))
    result = run(f"-f{file}", cluster)
    assert "Preemption would evict a/there on n" in result.output


def test_a_profile_that_is_not_there_is_not_said_to_be_the_pod_s(cluster: str) -> None:
    result = run("fits", cluster, "--profile=x")
    assert result.exit_code == 2
    assert "--profile: want one of `default-scheduler`, got `x`" in result.output


def test_the_policies_of_a_cluster_explain_as_their_config_map(
    cluster: str, tmp_path: Path
) -> None:
    """Only diff and bench took one; here it was wanted as a directory."""
    text = '"""X."""\n\ndef filter(pod, node):\n    return "no"\n'
    live = tmp_path / "live.yaml"
    live.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {"x.star": text}}))
    result = run("fits", cluster, f"--policies={live}")
    assert result.exit_code == 3, result.output
    assert f"{live}/x.star:4" in result.output
    result = run("fits", cluster, "--policies=configmap:a/live")
    assert result.exit_code == 2
    assert "hint: what `kubectl get configmap NAME -o yaml` prints will do" in result.output


def test_a_placed_pod_is_explained_as_if_it_were_not(cluster: str) -> None:
    """On the node there is room for it only if it does not count itself."""
    result = run("there", cluster, "--node=n")
    assert result.exit_code == 0, result.output
    assert "goes to n (it is on n)" in result.output
    assert "`n` is the only feasible node" in result.output
    assert "n is feasible: place 1" in result.output


def test_a_waiting_pod_goes_where_it_is_nominated(tmp_path: Path) -> None:
    """After an eviction a scheduler takes it there; it was sent to the node with more room."""
    small = {**NODE, "metadata": {"name": "small"}}
    large = {**NODE, "metadata": {"name": "large"}, "status": {"allocatable": {**ROOM, "cpu": "9"}}}
    path = tmp_path / "cluster.yaml"
    waits = {**pod("waits", "1"), "status": {"nominatedNodeName": "small"}}
    path.write_text(yaml.safe_dump_all([small, large, waits]))
    result = run("waits", f"--snapshot={path}")
    assert result.exit_code == 0, result.output
    assert "goes to small;" in result.output
    assert "the pod is nominated to `small`" in result.output


def test_json_holds_everything(cluster: str) -> None:
    result = run("fits", cluster, "--output=json")
    assert result.exit_code == 3
    got = json.loads(result.stdout)
    assert (got["pod"], got["outcome"], got["nodes"]) == ("a/fits", "unschedulable", 1)
    fit = next(v for v in got["policies"] if v["policy"] == "NodeResourcesFit")
    assert fit["groups"][0]["examples"] == ["n"]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
def test_a_pod_that_does_not_exist_is_a_manifest(cluster: str, tmp_path: Path, kind: str) -> None:
    manifest = pod("new", "100m")
    if kind != "Pod":
        template = {"metadata": {"labels": {"app": "x"}}, "spec": manifest["spec"]}
        spec: dict[str, Any] = {"template": template}
        if kind == "CronJob":
            spec = {"jobTemplate": {"spec": spec}}
        manifest = {"kind": kind, "metadata": {"name": "new", "namespace": "a"}, "spec": spec}
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(manifest))
    result = run("-f", str(path), cluster)
    assert result.exit_code == 0, result.output
    assert "a/new fits" in result.output


def test_policies_of_a_directory_decide_and_are_shown_by_path(cluster: str, tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    text = 'def filter(pod, node):\n    return "node(s) were not to my taste"\n'
    (policies / "taste.star").write_text(text)
    result = run("there", cluster, f"--policies={policies}")
    assert result.exit_code == 3
    assert f"{policies}/taste.star:2" in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param([], 2, "want POD", id="no pod"),
        pytest.param(["nobody"], 2, "no pod `nobody`", id="unknown pod"),
        pytest.param(["fist"], 2, "hint: did you mean `fits`?", id="misspelt pod"),
        pytest.param(["fits", "--node=x"], 2, "no node `x`", id="unknown node"),
        pytest.param(["fits", "--policies=/nowhere"], 2, "no such file", id="no policies"),
        pytest.param(["fits", "--context=c"], 2, "either --snapshot", id="two clusters"),
        pytest.param(
            ["fits", "--profile=x"], 2, "want one of `default-scheduler`, got `x`", id="profile"
        ),
    ],
)
def test_what_cannot_be_answered_is_reported(
    cluster: str, arguments: list[str], code: int, message: str
) -> None:
    result = run(*arguments, cluster)
    assert result.exit_code == code
    assert message in result.output


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        pytest.param("explain", ", or give its objects with --snapshot PATH", id="explain"),
        pytest.param("snapshot", "", id="snapshot"),
    ],
)
def test_without_a_cluster_it_says_how_to_name_one(
    command: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a file was named that nobody had asked for."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    result = CliRunner().invoke(main, [command, str(tmp_path / "web")])
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines[-2:] == [
        f"Error: kubeconfig: no such file: {tmp_path / 'absent'}",
        f"hint: name a cluster with --kubeconfig FILE or $KUBECONFIG{hint}",
    ]


def test_a_policy_that_fails_is_reported_once_and_not_among_those_without_objection(
    cluster: str, tmp_path: Path
) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "broken.star").write_text("def filter(pod, node):\n    return 7\n")
    result = run("a/there", cluster, f"--policies={policies}")
    assert result.exit_code == 1, result.output
    assert "a/there cannot be decided: a policy failed" in result.output
    assert result.output.count("filter() returned 7") == 1
    silent = [line for line in result.output.splitlines() if line.startswith("No objection")]
    assert "NodeResourcesFit" in silent[0]
    assert "broken" not in silent[0]
    answer = json.loads(run("a/there", cluster, f"--policies={policies}", "--output=json").output)
    assert [one["policy"] for one in answer["policies"] if one["failed"]] == ["broken"]


def test_warnings_of_the_policies_are_printed_with_the_answer(cluster: str, tmp_path: Path) -> None:
    """A policy that no profile names says nothing; who explains a pod looks for why it does."""
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "mine.star").write_text("def score(pod, node):\n    return 1\n")
    config = {"kind": "KubeSchedulerConfiguration", "profiles": [{"schedulerName": "s"}]}
    config["apiVersion"] = "kubescheduler.config.k8s.io/v1"
    (policies / "profile.yaml").write_text(yaml.safe_dump(config))
    result = run("a/there", cluster, f"--policies={policies}", "--profile=s", "--output=json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outcome"] == "placed"
    assert result.stderr.startswith(f"{policies}/profile.yaml: warning: profiles: policy `mine` is")


def test_policies_with_an_error_are_not_asked(cluster: str, tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "x.star").write_text("def filter(pod, node):\n    return node.nam\n")
    result = run("fits", cluster, f"--policies={policies}")
    assert result.exit_code == 2
    assert f"{policies}/x.star:2:" in result.output


def test_a_live_cluster_is_asked_if_no_file_is_given(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    # The scheduler of a name of its own leaves the pod to nobody else.
    manifest = pod("live", "100m", nodeSelector={"explain-test": namespace})
    manifest["metadata"]["namespace"] = namespace
    control_plane.create_if_missing(f"/api/v1/namespaces/{namespace}/pods", manifest)
    name = f"node-{namespace}"
    meta = {"name": name, "labels": {"explain-test": "other"}}
    control_plane.create_if_missing(
        "/api/v1/nodes",
        {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": ROOM}},
    )
    config = control_plane.kubeconfig(tmp_path / "kubeconfig")
    # Another test may have left policies of its own in the ConfigMap of those in force.
    where = (f"--kubeconfig={config}", "--policies=builtin")
    result = run(f"{namespace}/live", *where, f"--node={name}", "--output=json")
    assert result.exit_code == 3, result.output
    got = json.loads(result.stdout)
    reasons = got["asked"][0]["rejections"]
    assert "node(s) didn't match Pod's node affinity/selector" in reasons["NodeAffinity"]
    texts = [r["text"] for r in got["remedies"] if r["policy"] == "NodeAffinity"]
    assert any(f"explain-test={namespace}" in text for text in texts)


def test_a_pod_of_a_list_is_found_with_f(cluster: str, tmp_path: Path) -> None:
    """What `kubectl get pods -o yaml` prints held "no pod"."""
    path = tmp_path / "list.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": [pod("one", "1"), pod("two", "9")]}))
    assert run("-f", str(path), "two", cluster).exit_code == 3
    result = run("-f", str(path), cluster)
    assert "want one pod, or its name as POD; got `one`, `two`" in result.output
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap"}))
    assert "got none, but ConfigMap" in run("-f", str(path), cluster).output
    path.write_text("# nothing")
    assert "got none: it is empty" in run("-f", str(path), cluster).output


def test_a_claim_at_fault_is_no_policy_that_fails(tmp_path: Path) -> None:
    """It ended with 1, and `repair the policy at the file and line in the message`: of neither."""
    selector = {"cel": {"expression": 'device.attributes["g.example.com"].model == "large"'}}
    exactly = {"deviceClassName": "gpu", "selectors": [selector]}
    resource = {"apiVersion": "resource.k8s.io/v1"}
    objects: list[dict[str, Any]] = [
        NODE,
        {**resource, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            **resource,
            "kind": "ResourceSlice",
            "metadata": {"name": "n"},
            "spec": {
                "driver": "g.example.com",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "n",
                "devices": [{"name": "d"}],
            },
        },
        {
            **resource,
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "a", "uid": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        },
        pod("p", "1", resourceClaims=[{"name": "c", "resourceClaimName": "c"}]),
    ]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    result = run("a/p", f"--snapshot={path}")
    assert result.exit_code == 3, result.output
    assert "ClaimSelectorFailed" in result.output
    assert "claim a/c: selector #0 on device g.example.com/n/d: CEL runtime" in result.output
    assert "file and line" not in result.output
    simulated = CliRunner().invoke(main, ["simulate", str(path)])
    assert simulated.exit_code == 3, simulated.output
    assert "of failing policies" not in simulated.output
