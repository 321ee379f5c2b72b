"""A manifest for a live cluster is read by its API server, in a dry run, where the user may ask."""

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
from tests.workbench.cli.test_plan_command import _kubeconfig, _node
from workbench.cli.main import main

JOB = """
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}]
"""


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """A cluster with a node, and with a LimitRange that no file has."""
    async with aiohttp.ClientSession() as session, DevCluster(token="secret") as cluster:
        api = await embedded_api(cluster, session)
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(_kubeconfig(api.url)))
        (tmp_path / "job.yaml").write_text(JOB)
        await api.make(api.nodes(), _node("n1", {}))
        limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
        path = "/api/v1/namespaces/default/limitranges"
        await api.make(path, {"metadata": {"name": "l"}, "spec": limits})
        yield cluster


async def run(directory: Path, *words: str) -> Result:
    config = f"--kubeconfig={directory / 'kubeconfig'}"
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, config])


@pytest.mark.parametrize("command", [("explain",), ("plan",)], ids=["explain", "plan"])
async def test_the_api_server_is_asked_what_it_would_store(
    live: DevCluster, tmp_path: Path, command: tuple[str, ...]
) -> None:
    job = tmp_path / "job.yaml"
    result = await run(tmp_path, *command, "-f", str(job), "--output=json")
    got = json.loads(result.stdout)
    said = "manifests are read as the API server stores them: it was asked by a dry run"
    assert said in got["notes"]
    assert not live.list("pods")
    job.write_text(JOB.replace("cpu: 1", "cpu: 3"))
    result = await run(tmp_path, *command, "-f", str(job))
    assert result.exit_code == 2
    assert "maximum cpu usage per Container is 2, but limit is 3" in result.output


async def test_who_may_not_create_pods_gets_an_answer_all_the_same(
    live: DevCluster, tmp_path: Path
) -> None:
    why = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'
    live.faults.fail(403, message=why, verb="create", resource="pods", times=None)
    result = await run(tmp_path, "explain", "-f", str(tmp_path / "job.yaml"), "--output=json")
    got = json.loads(result.stdout)
    assert got["node"] == "n1"
    assert f"the API server may not be asked by a dry run: {why}" in got["notes"]
    assert "ResourceQuota" in got["not_applied"]
    # The LimitRange of the cluster counts all the same, unless it may not be read.
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("cpu: 1", "cpu: 3"))
    result = await run(tmp_path, "explain", "-f", str(job))
    assert result.exit_code == 2
    assert "maximum cpu usage per Container is 2, but limit is 3" in result.output
    live.faults.fail(403, message="no", verb="list", resource="limitranges", times=None)
    result = await run(tmp_path, "explain", "-f", str(job), "--output=json")
    assert any(
        note.endswith("; not read: limitranges: no") for note in json.loads(result.stdout)["notes"]
    )


POD = """
kind: Pod
metadata: {name: gpu}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]
  resourceClaims: [{name: g, resourceClaimTemplateName: one-gpu}]
"""


@pytest.mark.parametrize("command", ["explain", "plan"])
@pytest.mark.parametrize("may_ask", [True, False])
async def test_a_template_of_the_cluster_makes_the_claim_of_a_pod(
    live: DevCluster, tmp_path: Path, command: str, may_ask: bool
) -> None:
    """Only those of files were known; such a pod waited for a claim that nothing made."""
    exactly = {"deviceClassName": "gpu"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    devices = {"apiVersion": "resource.k8s.io/v1"}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    live.create(
        {**devices, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            **devices,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "default"},
            "spec": {"spec": spec},
        },
        {
            **devices,
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": "x.io",
                "nodeName": "n1",
                "pool": pool,
                "devices": [{"name": "d"}],
            },
        },
    )
    if not may_ask:
        why = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'
        live.faults.fail(403, message=why, verb="create", resource="pods", times=None)
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    got = json.loads((await run(tmp_path, command, "-f", str(file), "--output=json")).stdout)
    outcome = got if command == "explain" else got["new_pods"][0]["outcome"]
    assert outcome["node"] == "n1", got
    resource = "resourceclaimtemplates*"
    live.faults.fail(403, message="no", verb="get", resource=resource, times=None)
    got = json.loads((await run(tmp_path, command, "-f", str(file), "--output=json")).stdout)
    assert any(
        note.endswith("; not read: resourceclaimtemplates.resource.k8s.io: no")
        for note in got["notes"]
    ), got["notes"]
