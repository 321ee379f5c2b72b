"""`starsched explain` of a live cluster where no scheduler can be asked: the policies in force."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from tests.contract.conftest import embedded_api
from tests.contract.harness import Api
from tests.workbench.cli.test_plan_command import _kubeconfig, _node
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

REJECTS = '''"""Lets nothing in."""

def filter(pod, node):
    return "nobody gets in"
'''
PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: frozen}]}
"""
TEXTS = {"frozen.star": REJECTS, "p.yaml": PROFILE}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[tuple[DevCluster, Api]]:
    """A cluster with a node and a pod, and no scheduler."""
    async with (
        aiohttp.ClientSession() as session,
        DevCluster(token="secret") as cluster,
    ):
        api = await embedded_api(cluster, session)
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(_kubeconfig(api.url)))
        await api.make(api.nodes(), _node("n1", {}))
        await api.make("/api/v1/namespaces/default/pods", POD)
        yield cluster, api


async def _write(api: Api, name: str, texts: dict[str, str], **notes: str) -> None:
    await api.make("/api/v1/namespaces", {"metadata": {"name": "starsched"}})
    manifest = {"metadata": {"name": name, "annotations": notes}, "data": texts}
    await api.make("/api/v1/namespaces/starsched/configmaps", manifest)


async def _explain(directory: Path, *arguments: str) -> Result:
    words = ["explain", "default/p", f"--kubeconfig={directory / 'kubeconfig'}", *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, main, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("arguments", [(), ("--copy",)], ids=["no leader", "a copy"])
async def test_the_policies_in_force_explain_where_no_scheduler_can_be_asked(
    live: tuple[DevCluster, Api], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """It said "fits", by the built-in policies, of a pod that the policies in force reject."""
    await _write(live[1], "starsched-policies", TEXTS)
    result = await _explain(tmp_path, *arguments)
    assert result.exit_code == 3, result.output
    assert "nobody gets in" in result.output
    said = " ".join(result.output.split())
    assert "(in force by ConfigMap `starsched/starsched-policies`)" in said
    assert "configmap:starsched/starsched-policies/frozen.star:4" in said
    answer = json.loads((await _explain(tmp_path, "--output=json", *arguments)).stdout)
    assert answer["outcome"] == "unschedulable"
    assert "ConfigMap" in answer["policies_from"]


async def test_what_was_last_in_force_explains_and_not_a_text_that_was_refused(
    live: tuple[DevCluster, Api], tmp_path: Path
) -> None:
    saved = {"starsched.dev/revision": "0123456789ab"}
    await _write(live[1], "starsched-policies", {"broken.star": "def filter("})
    path = "/api/v1/namespaces/starsched/configmaps"
    manifest = {
        "metadata": {"name": "starsched-policies-last-good", "annotations": saved},
        "data": TEXTS,
    }
    await live[1].make(path, manifest)
    result = await _explain(tmp_path)
    assert result.exit_code == 3, result.output
    assert "policies 0123456789ab" in " ".join(result.output.split())


async def test_without_a_config_map_the_headline_says_that_the_policies_are_built_in(
    live: tuple[DevCluster, Api], tmp_path: Path
) -> None:
    result = await _explain(tmp_path)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "(built-in: there is no ConfigMap `starsched/starsched-policies`)" in said


async def test_policies_that_are_given_are_taken_and_named(
    live: tuple[DevCluster, Api], tmp_path: Path
) -> None:
    await _write(live[1], "starsched-policies", TEXTS)
    result = await _explain(tmp_path, "--policies=builtin")
    assert result.exit_code == 0, result.output
    assert "(built-in)" in " ".join(result.output.split())
    assert "could not be asked" not in result.output


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("starsched-policies", 403),
        ("starsched-policies", 500),
        ("starsched-policies-last-good", 403),
        ("starsched-policies-last-good", 500),
    ],
)
async def test_policies_in_force_that_cannot_be_read_are_not_taken_for_none(
    live: tuple[DevCluster, Api], tmp_path: Path, name: str, status: int
) -> None:
    await _write(live[1], "starsched-policies", TEXTS)
    live[0].faults.fail(status, verb="get", resource="configmaps", name=name, times=None)
    result = await _explain(tmp_path)
    assert result.exit_code == 2, result.output
    assert "ConfigMap" in result.output
    assert "--policies names others" in result.output
    assert "fits" not in result.stdout


@pytest.mark.parametrize(
    ("plural", "code"), [("namespaces", 3), ("services", 3), ("resourceslices", 0)]
)
async def test_a_kind_that_may_not_be_listed_is_not_taken_for_empty(
    live: tuple[DevCluster, Api], tmp_path: Path, plural: str, code: int
) -> None:
    """It said "fits" by objects that it had not seen, and a note below."""
    live[0].faults.fail(403, verb="list", resource=f"{plural}*", times=None)
    result = await _explain(tmp_path)
    assert result.exit_code == code, result.output
    assert f"not read: {plural}" in result.output
    answer = json.loads((await _explain(tmp_path, "--output=json")).stdout)
    assert (answer["outcome"] == "unschedulable") is bool(code)
    assert (f"{plural} cannot be read: " in result.output) is bool(code)
    given = tmp_path / "pod.yaml"
    given.write_text(yaml.safe_dump(POD | {"metadata": {"name": "new"}}))
    words = ["plan", "-f", str(given), f"--kubeconfig={tmp_path / 'kubeconfig'}"]
    planned = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert planned.exit_code == (1 if code else 0), planned.output
    assert f"`{plural}` not read" in " ".join(planned.output.split())
