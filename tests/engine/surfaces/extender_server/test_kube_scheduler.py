"""The real kube-scheduler, on a real API server, with our policies as its extender."""

import asyncio
import contextlib
import functools
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from tests.builders import node_manifest, pod_manifest
from tests.controlplane import ControlPlane, binaries
from tests.engine.surfaces.extender_server.harness import Running, extender, write
from tests.waiting import eventually

pytestmark = pytest.mark.slow("starts the real kube-scheduler")

SECONDS = 60.0

POLICY = '''"""Keeps pods off closed nodes, and likes the best one."""

def filter(pod, node):
    if node.labels.get("state") == "closed":
        return "node(s) were closed"
    if node.labels.get("state") == "gone":
        return unresolvable("node(s) were gone")
    return None

def score(pod, node):
    return 100 if node.labels.get("state") == "best" else 0
'''


class World:
    """Nodes of this test alone, kube-scheduler for its pods alone, on the shared API server."""

    def __init__(self, plane: ControlPlane, client: ApiClient, namespace: str) -> None:
        self.plane = plane
        self.client = client
        self.namespace = namespace
        self.profile = f"stock-{namespace}"
        self.nodes: list[str] = []

    def node(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    async def add_node(self, name: str, state: str = "", **words: Any) -> None:
        labels = {"world": self.namespace} | ({"state": state} if state else {})
        manifest = node_manifest(self.node(name), labels=labels, **words)
        status = manifest["status"]
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        await self.client.create(resources.NODES, json.dumps(manifest).encode())
        self.nodes.append(self.node(name))

    async def add_pod(self, name: str, **words: Any) -> None:
        words.setdefault("node_selector", {"world": self.namespace})
        manifest = pod_manifest(
            name,
            self.namespace,
            image="example.com/app:1",
            scheduler_name=self.profile,
            **words,
        )
        del manifest["metadata"]["uid"]
        manifest["spec"]["automountServiceAccountToken"] = False
        await self.client.create(resources.PODS, json.dumps(manifest).encode(), self.namespace)

    async def pod(self, name: str) -> dict[str, Any]:
        raw = await self.client.get(resources.PODS, name, self.namespace)
        found: dict[str, Any] = json.loads(raw)
        return found

    async def node_of(self, name: str) -> str:
        return str((await self.pod(name))["spec"].get("nodeName", ""))

    async def is_ending(self, name: str) -> bool:
        return "deletionTimestamp" in (await self.pod(name))["metadata"]

    async def message_of(self, name: str) -> str:
        conditions = (await self.pod(name))["status"].get("conditions") or []
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    async def until(self, is_so: Callable[[], Awaitable[Any]]) -> None:
        await eventually(is_so, seconds=SECONDS)

    @contextlib.asynccontextmanager
    async def kube_scheduler(self, folder: Path, **entry: Any) -> AsyncIterator[None]:
        """The real one, with one extender."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.plane.kubeconfig(folder / "kubeconfig"))},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
            "profiles": [{"schedulerName": self.profile}],
            "extenders": [{"weight": 100, **entry}],
        }
        path = folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            binaries()["kube-scheduler"],
            f"--config={path}",
            "--secure-port=0",
            "--authentication-skip-lookup=true",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()


@pytest.fixture
async def world(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> AsyncIterator[World]:
    world = World(control_plane, admin, namespace)
    try:
        yield world
    finally:
        for name in world.nodes:
            await admin.delete(resources.NODES, name)


def verbs(running: Running, *names: str, **more: Any) -> dict[str, Any]:
    return {"urlPrefix": running.url, **{f"{name}Verb": name for name in names}, **more}


@pytest.mark.parametrize("cached", [False, True], ids=["whole nodes", "names"])
async def test_policies_decide_where_kube_scheduler_puts_pods(
    world: World, tmp_path: Path, cached: bool
) -> None:
    for name, state in (("a", "closed"), ("b", ""), ("c", "best"), ("d", "gone")):
        await world.add_node(name, state)
    folder = write(tmp_path / "policies", {"states.star": POLICY})
    client = world.client if cached else None
    async with extender(folder, client=client, watches=cached) as running:
        entry = verbs(running, "filter", "prioritize", nodeCacheCapable=cached)
        async with world.kube_scheduler(tmp_path, **entry):
            for i in range(3):
                await world.add_pod(f"p{i}")
            for i in range(3):
                await world.until(functools.partial(world.node_of, f"p{i}"))
                assert await world.node_of(f"p{i}") == world.node("c")
            # Nobody takes this one, and kube-scheduler says so in the policies' words.
            await world.add_pod(
                "picky",
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "state",
                                            "operator": "In",
                                            "values": ["closed", "gone"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                },
            )
            await world.until(lambda: world.message_of("picky"))
            message = await world.message_of("picky")
            assert "1 node(s) were closed" in message
            assert "1 node(s) were gone" in message
            # An edit decides the next pod, without kube-scheduler's knowledge.
            write(folder, {"states.star": POLICY.replace('== "best"', '!= "best"')})
            revision = running.app.rollout.active.bundle.revision
            await eventually(
                lambda: running.app.rollout.active.bundle.revision != revision, seconds=SECONDS
            )
            await world.add_pod("later")
            await world.until(lambda: world.node_of("later"))
            assert await world.node_of("later") == world.node("b")
            served = "starsched_extender_served_duration_seconds_count"
            assert running.metric(served, verb="filter", result="success") >= 5
            assert running.metric(served, verb="prioritize", result="success") >= 4


async def test_the_extender_binds_and_has_its_say_in_preemption(
    world: World, tmp_path: Path
) -> None:
    """Evicting pods from a closed node would not help: the policies refuse it anyway."""
    await world.add_node("a", "closed", cpu="2")
    await world.add_node("b", cpu="2")
    world.plane.create_if_missing(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"high-{world.namespace}"},
            "value": 1000,
        },
    )
    folder = write(tmp_path / "policies", {"states.star": POLICY})
    # Placed by hand on the closed node, as a pod that was there before it was closed.
    await world.add_pod("old", cpu="2", node=world.node("a"))
    async with extender(folder, client=world.client, watches=True) as running:
        entry = verbs(running, "filter", "preempt", "bind", nodeCacheCapable=True)
        async with world.kube_scheduler(tmp_path, **entry):
            await world.add_pod("low", cpu="2")
            await world.until(lambda: world.node_of("low"))
            assert await world.node_of("low") == world.node("b")
            await world.add_pod(
                "high", cpu="2", spec={"priorityClassName": f"high-{world.namespace}"}
            )

            async def nominated() -> str:
                status = (await world.pod("high"))["status"]
                return str(status.get("nominatedNodeName", ""))

            await world.until(nominated)
            assert await nominated() == world.node("b")
            # Kube-scheduler writes the nomination before it evicts, in a task of its own.
            await world.until(functools.partial(world.is_ending, "low"))
            assert not await world.is_ending("old")
            await world.client.delete(
                resources.PODS,
                "low",
                world.namespace,
                body=b'{"gracePeriodSeconds":0,"kind":"DeleteOptions","apiVersion":"v1"}',
            )
            await world.until(lambda: world.node_of("high"))
            assert await world.node_of("high") == world.node("b")
            served = "starsched_extender_served_duration_seconds_count"
            for verb in ("preempt", "bind"):
                assert running.metric(served, verb=verb, result="success") >= 1


async def test_the_command_serves_kube_scheduler_with_tls(world: World, tmp_path: Path) -> None:
    """As it is deployed: a process of its own, TLS, names only, the cluster from a kubeconfig."""
    await world.add_node("b")
    await world.add_node("c", "best")
    certificates = world.plane.ca_file.parent
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workbench.cli.main",
        "extender",
        f"--policies={write(tmp_path / 'policies', {'states.star': POLICY})}",
        f"--kubeconfig={world.plane.kubeconfig(tmp_path / 'extender.kubeconfig')}",
        "--address=127.0.0.1:0",
        "--secure-port=0",
        f"--tls-cert-file={certificates / 'apiserver.crt'}",
        f"--tls-private-key-file={certificates / 'apiserver.key'}",
        "--log-format=text",
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                line = re.sub(r"\x1b\[[0-9;]*m", "", (await process.stderr.readline()).decode())
                assert line, "the extender ended"
                if "Serving the extender protocol" in line:
                    break
        port = re.search(r"port=(\d+)", line)
        assert port is not None
        entry = {
            "urlPrefix": f"https://127.0.0.1:{port[1]}",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "nodeCacheCapable": True,
            "enableHTTPS": True,
            "tlsConfig": {"caFile": str(certificates / "apiserver.crt")},
        }
        async with world.kube_scheduler(tmp_path, **entry):
            await world.add_pod("p")
            await world.until(lambda: world.node_of("p"))
            assert await world.node_of("p") == world.node("c")
        process.terminate()
        _, log = await asyncio.wait_for(process.communicate(), SECONDS)
        assert process.returncode == 0
        assert b"Traceback" not in log
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
