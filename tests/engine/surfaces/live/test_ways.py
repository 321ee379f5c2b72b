"""The ways to an answer: JSON at an address, `starsched explain`, and the plugin of kubectl."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import Forbidden, NotFound
from engine.io.leader_election import LeaseSettings
from tests.certificates import Authority
from tests.controlplane import ControlPlane
from tests.engine.app.harness import scheduler
from tests.engine.surfaces.live.forwarding import (
    api_server_with_kubelets,
    kubelet,
    serving,
    write_kubeconfig,
)
from tests.live import node, pod
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched
from workbench.cli.main import main
from workbench.port_forward import PodConnector

pytestmark = pytest.mark.usefixtures("no_sandboxes")

DEPLOY = Path(__file__).parents[4] / "deploy"
# What differs between two answers about the same pod at different moments.
_OF_THE_MOMENT = ("at", "queue", "moves")


class Cluster:
    """A cluster whose scheduler can be reached by its kubeconfig."""

    def __init__(self, kubeconfig: Path, url: str) -> None:
        self.kubeconfig = kubeconfig
        self.url = url

    async def run(self, command: Any, *arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, command, list(arguments))

    async def plugin(self, *arguments: str) -> Result:
        return await self.run(kubectl_starsched, *arguments, f"--kubeconfig={self.kubeconfig}")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with DevCluster() as running:
        running.create(node("n", cpu="1"))
        running.create(pod("big", cpu="9"))
        running.create(pod("small", cpu="1"))
        lease = LeaseSettings()
        async with scheduler(running, local_port=0, lease=lease) as app:
            await eventually(
                lambda: app.kernel.queue.counts()["unschedulable"] == 1 and app.cache.pod_count == 1
            )
            port = app.surfaces.endpoints.local_port
            async with api_server_with_kubelets(running.url, port) as server:
                path = write_kubeconfig(tmp_path / "kubeconfig", server)
                yield Cluster(path, f"http://127.0.0.1:{port}")


async def test_all_ways_show_the_same_answer(cluster: Cluster) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{cluster.url}/explain/default/big") as answer,
    ):
        want = await answer.json()
    by_plugin = await cluster.plugin("explain", "big", "-o", "json")
    assert by_plugin.exit_code == 3, by_plugin.output
    named = await cluster.plugin("explain", "pod/big", "-n", "default", "-o", "yaml")
    forwarded = await cluster.run(
        main, "explain", "default/big", f"--server={cluster.url}", "--output=json"
    )
    found = await cluster.run(
        main, "explain", "big", f"--kubeconfig={cluster.kubeconfig}", "--output=json"
    )
    assert (forwarded.exit_code, found.exit_code) == (3, 3), found.output
    answers = [
        json.loads(by_plugin.stdout),
        yaml.safe_load(named.stdout),
        json.loads(forwarded.stdout),
        json.loads(found.stdout),
    ]
    assert want["queue"]["reason"] == "InsufficientResources"
    for got in answers:
        for key in want.keys() - set(_OF_THE_MOMENT):
            assert got[key] == want[key], key
        assert got["queue"]["row_id"] == want["queue"]["row_id"]
    assert found.stderr == ""


async def test_an_answer_is_printed_for_people(cluster: Cluster) -> None:
    result = await cluster.plugin("explain", "big")
    assert "default/big fits nowhere" in result.output
    assert "InsufficientResources\n" in result.output
    assert "next: " in result.output
    assert "waits in: unschedulable" in result.output
    result = await cluster.plugin("explain", "small")
    assert "default/small is on n" in result.output
    asked = await cluster.plugin("explain", "small", "-o", "json")
    assert asked.exit_code == 0
    made = json.loads(asked.stdout)
    assert made["decided_at"]
    scores = f"Scores as it was decided at {made['decided_at']} by revision {made['decided_by']}"
    assert scores in result.output


async def test_the_queue_and_the_policies_are_listed(cluster: Cluster) -> None:
    result = await cluster.plugin("queue", "-A")
    assert result.exit_code == 0, result.output
    heads, row = result.output.splitlines()
    assert heads.split()[:3] == ["NAMESPACE", "POD", "PODS"]
    assert row.split()[:4] == ["default", "big", "1", "unschedulable"]
    assert "InsufficientResources" in row
    assert "No resources found" in (await cluster.plugin("queue", "-n", "other")).output
    result = await cluster.plugin("policies")
    assert "in_force" in result.output
    result = await cluster.plugin("queue", "--place=nowhere")
    assert result.exit_code == 1
    assert "place: want one of" in result.output


async def test_what_the_scheduler_refuses_is_said(cluster: Cluster) -> None:
    result = await cluster.plugin("explain", "absent")
    assert result.exit_code == 1
    assert "no pod `default/absent` is known here" in result.output
    result = await cluster.plugin("explain", "big", "--lease=kube-system/other")
    assert result.exit_code == 1
    assert "no Lease `kube-system/other`: no scheduler leads" in result.output


@pytest.mark.parametrize("namespace", ["starsched", "main"])
async def test_in_place_of_kube_scheduler_the_pod_is_not_where_the_lease_is(
    tmp_path: Path, namespace: str
) -> None:
    """The leader was looked for in `kube-system`, so it could not be asked."""
    async with DevCluster() as running:
        running.create(node("n", cpu="1"))
        lease = LeaseSettings(name="kube-scheduler")
        async with scheduler(running, local_port=0, lease=lease) as app:
            port = app.surfaces.endpoints.local_port
            async with api_server_with_kubelets(running.url, port, namespace) as server:
                cluster = Cluster(write_kubeconfig(tmp_path / "kubeconfig", server), "")
                by_default = await cluster.plugin("policies")
                named = await cluster.plugin("policies", f"--leader-namespace={namespace}")
                other = await cluster.plugin("policies", "--leader-namespace=other")
    assert "in_force" in named.output
    if namespace == "starsched":
        assert by_default.output == named.output
    else:
        assert "is no pod of namespace `starsched`: another scheduler leads" in by_default.output
    assert "is no pod of namespace `other`" in other.output


async def test_without_an_answer_a_copy_is_explained_and_said_so(
    tmp_path: Path,
) -> None:
    async with DevCluster() as running:
        running.create(node("n", cpu="1"))
        running.create(pod("big", cpu="9"))
        path = write_kubeconfig(tmp_path / "kubeconfig", running.url)
        arguments = ["explain", "default/big", f"--kubeconfig={path}", "--output=json"]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert result.exit_code == 3, result.output
        assert "note: the scheduler could not be asked (no Lease" in result.stderr
        got = json.loads(result.stdout)
        assert (got["source"], got["reason"]) == ("decided_again", "InsufficientResources")
        result = await asyncio.to_thread(CliRunner().invoke, main, [*arguments, "--copy"])
        assert result.stderr == ""


async def through_pod(client: ApiClient, namespace: str, name: str, target: str) -> str:
    """What port 10260 of a pod answers."""
    connector = PodConnector(client, namespace, name, 10260)
    try:
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://localhost{target}") as answer,
        ):
            return await answer.text()
    except aiohttp.ClientError as error:
        raise aiohttp.ClientError(connector.failure or str(error)) from error
    finally:
        await connector.stop()


async def test_a_port_that_nothing_listens_on_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        async with (
            api_server_with_kubelets("http://127.0.0.1:1", closed) as server,
            await ApiClient.from_kubeconfig(write_kubeconfig(tmp_path / "k", server)) as client,
        ):
            with pytest.raises(aiohttp.ClientError) as caught:
                await through_pod(client, "ns", "p", "/queue")
            assert "unable to forward" in str(caught.value)


def let_ask(plane: ControlPlane, namespace: str) -> None:
    """Bind the ServiceAccount `asker` to the role for those who ask from a terminal."""
    documents = yaml.safe_load_all((DEPLOY / "base" / "readers.yaml").read_text())
    role = next(one for one in documents if one["metadata"]["name"].endswith("asker"))
    plane.create_if_missing("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    folder = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "asker"},
        "subjects": [{"kind": "ServiceAccount", "name": "asker", "namespace": namespace}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role["metadata"]["name"],
        },
    }
    plane.create_if_missing(f"{folder}/rolebindings", binding)


@pytest.mark.slow("starts the real control plane")
async def test_the_real_api_server_forwards_to_the_leader(
    control_plane: ControlPlane, namespace: str, admin: ApiClient, tmp_path: Path
) -> None:
    """Its way to a kubelet is the one that kubectl's port-forward takes."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.method} {request.path_qs}")

    application = web.Application()
    application.router.add_get("/{path:.*}", hello)
    files = Authority(tmp_path).issue("127.0.0.1")
    async with serving(application) as local, kubelet(*files, local) as port:
        name = f"node-{namespace}"
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        }
        await asyncio.to_thread(control_plane.create_if_missing, "/api/v1/nodes", manifest)
        leader = pod("leader", nodeName=name)
        leader["metadata"]["namespace"] = namespace
        folder = f"/api/v1/namespaces/{namespace}/pods"
        await asyncio.to_thread(control_plane.create_if_missing, folder, leader)
        target = "/explain/a/b?x=1"
        assert await through_pod(admin, namespace, "leader", target) == f"GET {target}"
        with pytest.raises(NotFound):
            await through_pod(admin, namespace, "absent", target)
        # The Role that is shipped is enough, and nothing less is.
        token = await asyncio.to_thread(control_plane.service_account_token, namespace, "asker")
        async with control_plane.client(token) as asker:
            with pytest.raises(Forbidden):
                await through_pod(asker, namespace, "leader", target)
            await asyncio.to_thread(let_ask, control_plane, namespace)

            async def may_ask() -> bool:
                with contextlib.suppress(Forbidden):
                    await through_pod(asker, namespace, "leader", target)
                    return True
                return False

            await eventually(may_ask)


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_the_plugin_plans_and_applies_as_starsched_does(command: str) -> None:
    words = [sys.executable, "-c", "from workbench.cli.kubectl_plugin import main; main()"]
    done = subprocess.run(
        [*words, command, "--help"], capture_output=True, text=True, check=True, cwd=DEPLOY.parent
    )
    assert "starsched plan ./policies" in done.stdout
    assert "--configmap" in done.stdout
