"""`starsched snapshot`, on a real cluster with an account that may only list."""

import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.files.cluster_file import read_cluster
from tests.controlplane import ControlPlane
from tests.engine.core.scheduling.devices.builders import claim
from workbench.cli.main import main

RULES = [
    {"apiGroups": [""], "resources": ["nodes", "pods", "namespaces"], "verbs": ["list"]},
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list"]},
]


@pytest.fixture
def reader(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig of an account that may list some kinds and nothing else."""
    name = f"reader-{secrets.token_hex(4)}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    control_plane.create_if_missing(
        f"{rbac}/clusterroles", meta | {"kind": "ClusterRole", "rules": RULES}
    )
    control_plane.create_if_missing(
        f"{rbac}/clusterrolebindings",
        meta
        | {
            "kind": "ClusterRoleBinding",
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
    token = control_plane.service_account_token(namespace, name)
    return control_plane.kubeconfig(tmp_path / "kubeconfig", token)


def test_an_account_that_may_only_list_is_enough(
    control_plane: ControlPlane, namespace: str, reader: Path, tmp_path: Path
) -> None:
    container = {
        "name": "main",
        "image": "example.com/x",
        "command": ["hunter2"],
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
    }
    control_plane.create_if_missing(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"containers": [container], "schedulerName": "nobody"},
        },
    )
    file = tmp_path / "cluster.json"
    result = CliRunner().invoke(main, ["snapshot", str(file), f"--kubeconfig={reader}"])
    assert result.exit_code == 0, result.output
    assert "not read: services" in result.output
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert "hunter2" not in text
    assert "managedFields" not in text
    cluster = read_cluster(file)
    assert cluster.find_pod(f"{namespace}/web")["spec"]["schedulerName"] == "nobody"
    assert cluster.pod_of(cluster.find_pod(f"{namespace}/web")).scheduler_name == "nobody"
    assert "services" in cluster.missing
    assert "storageclasses.storage.k8s.io" not in cluster.missing
    assert any(one["kind"] == "Namespace" for one in cluster.objects)


def test_a_claim_with_deep_parameters_costs_no_snapshot(
    control_plane: ControlPlane, namespace: str, reader: Path, tmp_path: Path
) -> None:
    """Anybody who may make a claim could end every snapshot in a traceback."""
    parameters: dict[str, Any] = {}
    for _ in range(600):
        parameters = {"a": parameters}
    opaque = {"driver": "gpu.example.com", "parameters": parameters}
    control_plane.create_if_missing(
        f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
        claim("deep", namespace=namespace, config=[{"opaque": opaque}]),
    )
    file = tmp_path / "cluster.json"
    result = CliRunner().invoke(main, ["snapshot", str(file), f"--kubeconfig={reader}"])
    assert result.exit_code == 0, result.output
    objects = read_cluster(file).objects
    found = [one["kind"] for one in objects if one["metadata"].get("namespace") == namespace]
    assert "ResourceClaim" in found


def test_a_cluster_that_cannot_be_asked_is_reported_and_no_file_is_left(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: a, user: {}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    file = tmp_path / "cluster.json"
    result = CliRunner().invoke(main, ["snapshot", str(file), f"--kubeconfig={config}"])
    assert result.exit_code == 1
    assert "GET /api/v1/nodes" in result.output
    assert not file.exists()
    other = CliRunner().invoke(
        main, ["snapshot", str(file), f"--kubeconfig={config}", "--context=b"]
    )
    assert other.exit_code == 2


def test_a_link_and_a_pipe_are_written_and_stay(reader: Path, tmp_path: Path) -> None:
    """A file took their place: `/dev/stdout` and devices were gone after it, for everybody."""
    link, pipe = tmp_path / "link.json", tmp_path / "pipe.json"
    link.symlink_to("real.json")
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as cat:
        for file in (link, pipe):
            result = CliRunner().invoke(main, ["snapshot", str(file), f"--kubeconfig={reader}"])
            assert result.exit_code == 0, result.output
        assert cat.stdout is not None
        read = tmp_path / "read.json"
        read.write_bytes(cat.stdout.read())
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert read_cluster(tmp_path / "real.json").taken_at
    assert read_cluster(read).taken_at


def test_a_file_that_cannot_be_written_is_reported_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "nowhere" / "cluster.json"
    result = CliRunner().invoke(main, ["snapshot", str(file)])
    assert result.exit_code == 2
    assert f"Error: {file}: there is no directory `{file.parent}` to write it to" in result.output
