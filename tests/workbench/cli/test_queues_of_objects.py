"""Commands read the objects that a tree of queues is made of, from a real API server."""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.controlplane import ControlPlane
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.waiting import wait_until
from workbench.cli.main import main

pytestmark = [
    pytest.mark.usefixtures("policies_load_in_process"),
    pytest.mark.slow("starts the real control plane"),
]


@pytest.fixture
def group(control_plane: ControlPlane) -> str:
    """An API group with queues, of this test alone."""
    group = f"q{secrets.token_hex(4)}.example.com"
    names = {"plural": "queues", "singular": "queue", "kind": "Queue", "listKind": "QueueList"}
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": open_schema},
    }
    control_plane.create_if_missing(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"queues.{group}"},
            "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [version]},
        },
    )
    return group


def _policies(directory: Path, group: str) -> str:
    directory.mkdir()
    source = [{"apiVersion": f"{group}/v1", "kind": "Queue"}]
    for name, text in tree_files(DRF, objects=source).items():
        (directory / name).write_text(text)
    return str(directory)


def _queue(group: str, name: str, cpu: int) -> dict[str, Any]:
    spec = {"has": {"limit": {"cpu": cpu}}}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_a_snapshot_has_them_and_a_pod_is_explained_by_them(
    control_plane: ControlPlane, namespace: str, group: str, tmp_path: Path
) -> None:
    team = f"team-{secrets.token_hex(4)}"
    path = f"/apis/{group}/v1/queues"

    def made() -> bool:
        control_plane.create_if_missing(path, _queue(group, team, 500))
        return True

    await asyncio.to_thread(wait_until, _without_errors(made))
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    control_plane.create_if_missing(
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"queue": team}},
            "spec": {"containers": [container]},
        },
    )
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    policies, snapshot = _policies(tmp_path / "policies", group), tmp_path / "cluster.json"
    wrote = await _run("snapshot", str(snapshot), f"--kubeconfig={kubeconfig}",
                       f"--policies={policies}")  # fmt: skip
    assert wrote.exit_code == 0, wrote.output
    kept = json.loads(snapshot.read_text())["items"]
    assert [one["metadata"]["name"] for one in kept if one["kind"] == "Queue"] == [team]
    live = ("--copy", f"--kubeconfig={kubeconfig}")
    for where in (live, (f"--snapshot={snapshot}",)):
        got = await _run("explain", f"{namespace}/p", f"--policies={policies}", *where)
        assert f"queue `{team}`: is at its limit (short of 500m cpu at `{team}`)" in got.output
        assert got.exit_code == 3


async def test_a_kind_that_is_not_served_is_said(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Without its objects the tree has no queues, which is no finding.

    A pod of no queue that came before, and whose turn it is, changes nothing about that.
    """
    other = {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    control_plane.create_if_missing(
        f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **other}
    )
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    policies = _policies(tmp_path / "policies", "nowhere.example.com")
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": namespace, "labels": {"queue": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
        )
    )
    words = (f"-f{pod}", f"--policies={policies}", f"--kubeconfig={kubeconfig}")
    got = await _run("explain", *words)
    assert "queues.nowhere.example.com: it is not served: no queues come from it" in got.output
    assert "QueueMissing" in got.output


def _without_errors(made: Any) -> Any:
    """*made*, until the API server serves the kind."""

    def tried() -> bool:
        try:
            return bool(made())
        except Exception:  # whatever it says before that
            return False

    return tried


async def _run(*words: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, main, list(words))
