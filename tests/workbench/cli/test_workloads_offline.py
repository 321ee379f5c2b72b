"""Policies that read workloads, without a cluster: manifests, snapshots, simulations and tests."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.workloads import SPOT_SHARE, owned_by, replica_set, workload
from workbench.cli.main import main

_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "spot", "labels": {"capacity": "spot"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
}
_REASON = "too many replicas on spot nodes"


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir()
    (path / "share.star").write_text(SPOT_SHARE)
    return path


def _file(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments])
    return result.exit_code, result.stdout


def _cron_job(parallelism: int) -> dict[str, Any]:
    job = workload("Job", parallelism=parallelism)["spec"]
    del job["selector"]
    job["template"]["spec"]["restartPolicy"] = "Never"
    spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": job}}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "fits"),
    [
        pytest.param(workload("Deployment", replicas=4), True, id="a Deployment of four"),
        pytest.param(workload("Deployment", replicas=3), False, id="a Deployment of three"),
        pytest.param(workload("StatefulSet", serviceName="web", replicas=3), False, id="three"),
        pytest.param(_cron_job(3), False, id="a CronJob"),
        pytest.param(_cron_job(4), True, id="a larger CronJob"),
    ],
)
def test_the_pod_of_a_manifest_has_its_workload(
    policies: Path, tmp_path: Path, manifest: dict[str, Any], fits: bool
) -> None:
    cluster = _file(tmp_path / "cluster.yaml", _NODE)
    new = _file(tmp_path / "new.yaml", manifest)
    code, text = _run("explain", f"-f{new}", f"--snapshot={cluster}", f"--policies={policies}")
    assert (code, _REASON in text) == (0 if fits else 3, not fits), text


def test_a_simulation_counts_the_replicas_of_each_workload(policies: Path, tmp_path: Path) -> None:
    job = workload("Job", "batch", parallelism=7)
    del job["spec"]["selector"]  # the API server gives it one
    deployment = workload("Deployment", replicas=10)
    cluster = _file(tmp_path / "cluster.yaml", _NODE, deployment, job)
    code, text = _run("simulate", cluster, f"--policies={policies}", "--output=json")
    assert code == 3, text
    assert json.loads(text)["placed"] == 3 + 2, text


def test_the_pods_of_a_snapshot_have_their_workloads(policies: Path, tmp_path: Path) -> None:
    waiting = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1-a",
            "namespace": "default",
            "uid": "a",
            "ownerReferences": [owned_by("ReplicaSet", "web-1")],
        },
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    owner = owned_by("Deployment", "web")
    for replicas, want in ((3, 3), (4, 0)):
        objects = [replica_set("web-1", owner=owner), workload("Deployment", replicas=replicas)]
        for one in objects:
            one["metadata"]["uid"] = one["metadata"]["name"]
        cluster = _file(tmp_path / "cluster.yaml", _NODE, waiting, *objects)
        code, text = _run("explain", "web-1-a", f"--snapshot={cluster}", f"--policies={policies}")
        assert code == want, text
    # A snapshot of a reader who may not list Deployments.
    items = [_NODE, waiting, objects[0]]
    missing = {"deployments.apps": "forbidden"}
    head = {"apiVersion": "starsched.dev/v1", "kind": "ClusterSnapshot", "missing": missing}
    cluster = _file(tmp_path / "cluster.yaml", {**head, "items": items})
    code, text = _run("explain", "web-1-a", f"--snapshot={cluster}", f"--policies={policies}")
    assert code == 3
    assert "depends on what cannot be read: deployments.apps" in " ".join(text.split())


def test_a_test_of_a_policy_says_what_the_workload_is(policies: Path) -> None:
    objects = [
        _NODE,
        replica_set("web-1", owner=owned_by("Deployment", "web")),
        workload("Deployment", replicas=3),
    ]
    _file(policies / "cluster_test.yaml", *objects)
    (policies / "share_test.star").write_text('''"""Tests for share.star."""

load("@std/testing.star", "asserts", "cluster", "load_manifests", "make_node", "make_pod")

def test_a_third_of_three_is_no_replica():
    there = load_manifests("cluster_test.yaml").cluster
    asserts.rejects(there, _owned_by("ReplicaSet", "web-1"), "too many replicas on spot nodes")

def test_of_ten_replicas_three_may_be_there():
    spot = make_node("spot", labels = {"capacity": "spot"})
    ten = {"kind": "StatefulSet", "metadata": {"name": "web", "namespace": "default"},
           "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web"}}}}
    asserts.fits(cluster(spot, ten), _owned_by("StatefulSet", "web"))

def _owned_by(kind, name):
    owner = {"kind": kind, "name": name, "apiVersion": "apps/v1", "controller": True}
    return make_pod(metadata = {"ownerReferences": [owner]})
''')
    code, text = _run("test", str(policies))
    assert code == 0, text
