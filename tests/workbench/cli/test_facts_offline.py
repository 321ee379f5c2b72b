"""Packs that read facts, explained and simulated from a snapshot of a real cluster."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devkit.cluster import make_node
from tests.controlplane import ControlPlane
from tests.engine.io.facts.prometheus_server import free_port
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: measured
    plugins:
      multiPoint: {{enabled: [{{name: KubeRL}}, {{name: Congestion}}, {{name: TargetLoadPacking}}]}}
---
apiVersion: starsched.dev/v1
kind: PolicyRuntime
facts:
  sources:
    - annotations: {{keys: {{congestion_factor: congestion-factor}}}}
    - configMap: {{namespace: {namespace}, name: loads}}
    - podOutcomes: {{fact: reward, namespaces: [{namespace}]}}
    - prometheus:
        url: http://127.0.0.1:{port}
        timeout: 1s
        queries: [{{fact: x, query: x}}]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


@pytest.fixture
def nodes(control_plane: ControlPlane) -> list[str]:
    names = [f"{which}-{secrets.token_hex(4)}" for which in ("calm", "busy")]
    for name, factor in zip(names, ("5", "80"), strict=True):
        node = make_node(name)
        node["metadata"]["annotations"] = {"congestion-factor": factor}
        control_plane.create_if_missing("/api/v1/nodes", node)
    return names


@pytest.fixture
def kubeconfig(
    control_plane: ControlPlane, namespace: str, nodes: list[str], tmp_path: Path
) -> str:
    """A cluster with policies, their facts and a pending pod; and a ConfigMap of others."""
    calm, busy = nodes
    profile = PROFILE.format(namespace=namespace, port=free_port())
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "profile.yaml").write_text(profile)
    loads = {"nodes": {calm: {"cpu_utilization": 20}, busy: {"cpu_utilization": 95}}}
    learned = {"until": 1.0, "averages": [["pair", "web", calm, 0.9], ["pair", "web", busy, 0.2]]}
    maps = {
        "policies": {"profile.yaml": profile},
        "loads": {"loads.json": json.dumps(loads)},
        "policies-facts": {"pod-outcomes.json": json.dumps(learned)},
        "others": {"password": "hunter2"},
    }
    for name, data in maps.items():
        meta = {"name": name, "namespace": namespace}
        control_plane.create_if_missing(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data},
        )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace, "labels": {"app": "web"}},
        "spec": {
            "schedulerName": "measured",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    control_plane.create_if_missing(f"/api/v1/namespaces/{namespace}/pods", pod)
    return f"--kubeconfig={control_plane.kubeconfig(tmp_path / 'kubeconfig')}"


def scores(result: Result, policy: str, nodes: list[str]) -> list[Any]:
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    found = {row["node"]: row["scores"].get(policy) for row in answer["ranking"]}
    return [None if found[name] is None else found[name]["normalized"] for name in nodes]


def test_a_snapshot_explains_what_policies_with_facts_decided(
    kubeconfig: str, namespace: str, nodes: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    source = f"--policies=configmap:{namespace}/policies"
    written = run("snapshot", str(file), kubeconfig, source, "--output=json")
    assert written.exit_code == 0, written.output
    answer = json.loads(written.stdout)
    assert answer["facts"] == [f"configmap:{namespace}/loads", "learned:pod-outcomes"]
    assert "cannot be read" in next(v for k, v in answer["missing"].items() if "prometheus" in k)
    assert "hunter2" not in file.read_text()

    policies = f"--policies={tmp_path / 'policies'}"
    pod = f"{namespace}/web"
    offline = run("explain", pod, f"--snapshot={file}", policies, "--output=json")
    assert scores(offline, "KubeRL", nodes) == [90, 20]
    assert scores(offline, "Congestion", nodes) == [95, 20]
    calm, busy = scores(offline, "TargetLoadPacking", nodes)
    assert calm > busy
    # The live cluster says the same of what is read from it; what was learned is not asked there.
    live = run("explain", pod, kubeconfig, policies, "--output=json")
    for policy in ("Congestion", "TargetLoadPacking"):
        assert scores(live, policy, nodes) == scores(offline, policy, nodes)
    notes = json.loads(live.stdout)["notes"]
    assert any("learned:pod-outcomes" in note for note in notes)


@pytest.mark.slow("computes for long")
def test_a_simulation_goes_by_the_facts_of_a_file(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE.format(namespace="n", port=1))
    node = "{kind: Node, metadata: {name: %s}, status: {allocatable: {cpu: '8', pods: '9'}}}"
    pod = "{kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: c}]}}"
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("\n---\n".join([node % "a", node % "b", pod]))
    facts = tmp_path / "facts.json"
    placements = []
    for a, b in ((0.9, 0.2), (0.2, 0.9)):
        rewards = {"a": {"reward": a}, "b": {"reward": b}}
        facts.write_text(json.dumps({"pairs": {"web": rewards}}))
        simulation = run(
            *("simulate", str(cluster), str(facts), f"--config={profile}", "--profile=measured")
        )
        assert simulation.exit_code == 0, simulation.output
        assert "no facts are known from configmap:n/loads" in simulation.stderr
        explained = run(
            *("explain", "web", f"--snapshot={cluster}", f"--snapshot={facts}"),
            *(f"--config={profile}", "--profile=measured", "--output=json"),
        )
        placements.append(json.loads(explained.stdout)["node"])
    assert placements == ["a", "b"]


@pytest.mark.slow("computes for long")
def test_diff_and_sweep_report_as_simulate_does_which_facts_are_missing(tmp_path: Path) -> None:
    """Their results were as if nothing were measured, and they said nothing of it."""
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE.format(namespace="n", port=1))
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "{kind: Node, metadata: {name: a}, status: {allocatable: {cpu: '8', pods: '9'}}}\n---\n"
        "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}]}}\n"
    )
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "profile.yaml").write_text(profile.read_text())
    answer = run("simulate", str(cluster), f"--config={profile}").stderr
    assert "no facts are known from configmap:n/loads" in answer
    compared = run("diff", "builtin", str(tmp_path / "b"), f"--on={cluster}")
    swept = run(
        *("sweep", str(cluster), f"--to={tmp_path / 'out'}", f"--config={profile}", "--jobs=1"),
        "--set=NodeResourcesBalancedAllocation.resources=[{name: cpu}]",
    )
    assert swept.exit_code == compared.exit_code == 0, compared.output + swept.output
    for result in (compared, swept):
        assert result.stderr == answer
