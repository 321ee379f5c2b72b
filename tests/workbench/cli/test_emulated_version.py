"""`--emulated-version`, and the version that a snapshot says: what is answered like without one."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.core.framework.behaviors import RELEASED
from engine.files.cluster_file import API_VERSION, KIND
from tests.builders import ZONE, node_manifest, pod_manifest
from tests.workbench.cli.test_diff_command import STRATEGY
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

#: Only 1.38 counts any pod for it, and then zone `a` has one more than `b`, which has no room.
EVERY_POD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}
PLACED, PENDING = 0, 3


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def snapshot(path: Path, version: str = "", spread: tuple[Any, ...] = (EVERY_POD,)) -> Path:
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", **node_manifest("a", cpu=4, labels={ZONE: "a"})},
        {"apiVersion": "v1", "kind": "Node", **node_manifest("b", cpu=1, labels={ZONE: "b"})},
    ]
    pods = [
        pod_manifest("there", node="a", cpu=1, priority=0, image="app"),
        pod_manifest("large", cpu=2, priority=0, image="app", topology_spread=spread),
    ]
    items += [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    head = {"apiVersion": API_VERSION, "kind": KIND}
    said = {"serverVersion": version} if version else {}
    path.write_text(json.dumps({**head, **said, "items": items}))
    return path


@pytest.mark.parametrize(
    ("said", "given", "code"),
    [
        ("", [], PLACED if RELEASED < 38 else PENDING),
        ("", ["--emulated-version", "1.38"], PENDING),
        ("", ["--emulated-version", "kube=v1.38.0-beta.0"], PENDING),
        ("v1.38.0", [], PENDING),
        ("v1.38.0", ["--emulated-version", "1.37"], PLACED),
        ("v1.36.4", [], PLACED),
    ],
)
def test_what_is_given_counts_then_what_the_snapshot_says(
    tmp_path: Path, said: str, given: list[str], code: int
) -> None:
    path = snapshot(tmp_path / "cluster.json", said)
    assert run("explain", "large", "--snapshot", path, *given).exit_code == code
    assert run("simulate", path, *given).exit_code == code


@pytest.mark.slow("decides many times")
def test_a_policy_reads_the_version_and_diff_and_compare_go_by_it(tmp_path: Path) -> None:
    path = snapshot(tmp_path / "cluster.json", spread=())
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "config.yaml").write_text(STRATEGY)
    (policies / "only.star").write_text(
        "def filter(pod, node, cluster):\n"
        '    return "too new" if cluster.kubernetes_minor > 37 else None\n'
    )
    for version, more in (("1.37", 0), ("1.38", 1)):
        given = ["builtin", policies, "--on", path, "--emulated-version", version]
        result = run("diff", *given, "--output", "json")
        assert json.loads(result.stdout)["pending_more"] == more
        assert run("compare", *given).exit_code == more


@pytest.mark.parametrize("said", ["1.39", "1.34", "1", "38", "kube"])
def test_a_version_that_is_not_known_is_refused(tmp_path: Path, said: str) -> None:
    result = run("simulate", snapshot(tmp_path / "c.json"), "--emulated-version", said)
    assert result.exit_code == 2
    assert f"want one from 1.35 to 1.38, got `{said}`" in result.output


def test_tests_of_policies_run_for_a_version(tmp_path: Path) -> None:
    (tmp_path / "newer.star").write_text(
        "def filter(pod, node, cluster):\n"
        '    return "too new" if cluster.behaves["victims_by_uid"] else None\n'
    )
    (tmp_path / "newer_test.star").write_text(
        'load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")\n'
        "def test_fits():\n    asserts.fits(cluster(make_node()), make_pod())\n"
        "def test_since():\n"
        "    nodes = cluster(make_node(), kubernetes_minor = 38)\n"
        '    asserts.rejects(nodes, make_pod(), "too new")\n'
        '    asserts.rejects(cluster(nodes), make_pod(), "too new")\n'
    )
    assert run("test", tmp_path).exit_code == 0
    result = run("test", tmp_path, "--emulated-version", "1.38")
    assert result.exit_code == 1
    assert "1 passed, 1 failed" in result.output


async def test_a_snapshot_of_a_live_cluster_says_its_version(tmp_path: Path) -> None:
    async with DevCluster() as cluster:
        cluster.create(node_manifest("n"))
        config = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        path = tmp_path / "cluster.json.gz"
        result = await asyncio.to_thread(run, "snapshot", path, "--kubeconfig", config)
    assert result.exit_code == 0, result.output
    assert json.loads(gzip.decompress(path.read_bytes()))["serverVersion"] == "v1.37.2"
