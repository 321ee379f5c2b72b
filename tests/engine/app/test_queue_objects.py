"""Queues that objects of other schedulers stand for, on a real API server without controllers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import CONFIG_MAP, NAMESPACE
from engine.app import App
from tests.controlplane import ControlPlane
from tests.engine.app.test_story import MAPS, app_for
from tests.engine.io.facts.prometheus_server import free_port
from tests.faults.processes import Replica
from tests.live import LiveCluster
from tests.waiting import eventually, idle

pytestmark = pytest.mark.slow("starts the real control plane")

_GROUP: Final = "scheduling.volcano.sh"
_QUEUES: Final = f"/apis/{_GROUP}/v1beta1/queues"
_CRD: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"queues.{_GROUP}"},
    "spec": {
        "group": _GROUP,
        "names": {
            "plural": "queues",
            "singular": "queue",
            "kind": "Queue",
            "listKind": "QueueList",
        },
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
_POLICY: Final = '''"""Divides by weight among the queues of Volcano.

Hooks: queues, queue_of, shares.
"""

load("@std/amounts.star", "entry")

tree = queue_attributes(weight = 1)

def queues(object):
    spec = object["spec"]
    return queue(
        object["metadata"]["name"], parent = spec.get("parent", ""), weight = spec.get("weight", 1)
    )

def queue_of(pod):
    return pod.labels.get("queue")

def shares(parent, children):
    share = {q.name: {} for q in children}
    for r, total in parent.share.items():
        entries = [entry(q.name, most = q.requested.get(r, 0), weight = q.weight) for q in children]
        for name, amount in divide(total, entries).items():
            share[name][r] = amount
    return share
'''
_TREE: Final = {
    "apiVersion": "starsched.dev/v1",
    "kind": "QueueTree",
    "policy": "volcano",
    "objects": [{"apiVersion": f"{_GROUP}/v1beta1", "kind": "Queue"}],
}


@pytest.fixture
async def cluster(own_control_plane: ControlPlane) -> AsyncIterator[LiveCluster]:
    """One node of 4 cores, and policies with a tree of Volcano's queues, which are not served."""
    async with own_control_plane.client() as client:
        live = LiveCluster(client)
        await live.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await live.create({"apiVersion": "v1", "kind": "Node", **make_node("n", cpu="4")})
        files = {"volcano.star": _POLICY, "tree.yaml": yaml.safe_dump(_TREE)}
        await live.request("POST", MAPS, {"metadata": {"name": CONFIG_MAP}, "data": files})
        yield live


def _cpu_shares(app: App) -> dict[str, int]:
    states = app.kernel.shares.states()
    return {s.queue.path: (s.standing.share or {}).get("cpu", 0) for s in states if s.queue.path}


async def _put(cluster: LiveCluster, name: str, **spec: Any) -> None:
    made = {"apiVersion": f"{_GROUP}/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    await cluster.request("POST", _QUEUES, {**made, "spec": spec})


async def _served(cluster: LiveCluster) -> None:
    """Wait until the definition is."""

    async def is_served() -> bool:
        try:
            await cluster.request("GET", _QUEUES)
        except Exception:
            return False
        return True

    await eventually(is_served, seconds=30, what="the queues to be served")


async def test_queues_are_followed_as_they_come_change_and_go(cluster: LiveCluster) -> None:
    """Also where the API server does not have the kind yet: then there are none, and no error."""
    app = app_for(cluster.client)
    running = asyncio.create_task(app.run())

    async def until(what: str, holds: Callable[[], bool]) -> None:
        await eventually(holds, seconds=60, what=what)

    try:
        await until("the scheduler to lead", app.leadership.leading.is_set)
        assert app.kernel.shares.tree.queues.keys() == {""}
        await cluster.request(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _CRD
        )
        await _served(cluster)
        await _put(cluster, "research", weight=3)
        await _put(cluster, "vision", parent="research")
        await _put(cluster, "web", weight=1)
        for number in range(6):
            for queue in ("vision", "web"):
                pod = make_pod(f"{queue}-{number}", cpu="1", labels={"queue": queue})
                await cluster.create(pod)
        want = {"research": 3000, "research/vision": 3000, "web": 1000}
        await until("shares by weight", lambda: _cpu_shares(app) == want)
        change = {"spec": {"weight": 3}}
        await cluster.request("PATCH", f"{_QUEUES}/web", change)
        want = {"research": 2000, "research/vision": 2000, "web": 2000}
        await until("shares by the new weight", lambda: _cpu_shares(app) == want)
        await cluster.request("DELETE", f"{_QUEUES}/web")
        await until("the queue to go", lambda: "web" not in app.kernel.shares.tree.queues)
        missing = "queue `web` is not there, and 6 pods name it: default/web-0, default/web-1"
        assert app.kernel.shares.problems() == [f"{missing}, default/web-2"]
        app.kernel.check_invariants()
        sums = {s.queue.path: s.sums.of("requested") for s in app.kernel.shares.states()}
        assert sums["research"]["pods"] == 6
        await cluster.request("PATCH", f"{MAPS}/{CONFIG_MAP}", {"data": {"tree.yaml": None}})
        await until("the tree to go", lambda: not app.kernel.shares.is_on)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


_GIVING_BACK: Final = (
    _POLICY.replace(
        "Hooks: queues, queue_of, shares.", "Hooks: queues, queue_of, shares, admit, reclaim."
    ).replace('"entry")', '"entry", "over", "plus")')
    + """
def admit(request, path):
    short = over(plus(path[0].allocated, request.resources), path[0].share, of = {"cpu": 1})
    return hold("has its share", at = path[0].path, short = short) if short else None

def reclaim(taker, victim):
    return 0 if over(victim.queue.allocated, victim.queue.share) else None
"""
)


class _Seen:
    """What the API server has of the pods of two teams."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster

    async def alive(self) -> list[dict[str, Any]]:
        """The pods that are not to go."""
        found = await self._cluster.items("Pod")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def evicted(self) -> int:
        """How many of the eight pods of web are gone, or are to go."""
        names = [str(pod["metadata"]["name"]) for pod in await self.alive()]
        return 8 - sum(name.startswith("web") for name in names)

    async def running(self) -> tuple[int, int]:
        """How many pods of web and of research are on nodes, those left out that are to go."""
        placed = [pod for pod in await self.alive() if pod["spec"].get("nodeName")]
        of_web = sum(str(pod["metadata"]["name"]).startswith("web") for pod in placed)
        return of_web, len(placed) - of_web

    async def nominated(self) -> int:
        """How many pods wait for the nodes that others were evicted from."""
        return sum(
            bool((pod.get("status") or {}).get("nominatedNodeName"))
            and not pod["spec"].get("nodeName")
            for pod in await self.alive()
        )


async def test_a_leader_that_is_killed_in_a_reclaim_leaves_none_evicted_that_is_not_needed(
    cluster: LiveCluster, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """One team has both nodes to itself, another comes, and the leader dies with its first victim
    on its way out. Half of what there is goes back all the same, and no pod more.
    """
    tree = {**_TREE, "limits": {"minRuntime": "0s"}}
    data = {"volcano.star": _GIVING_BACK, "tree.yaml": yaml.safe_dump(tree)}
    await cluster.request("PATCH", f"{MAPS}/{CONFIG_MAP}", {"data": data})
    await cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _CRD)
    await _served(cluster)
    await cluster.create({"apiVersion": "v1", "kind": "Node", **make_node("m", cpu="4")})
    await _put(cluster, "research")
    await _put(cluster, "web")
    for number in range(8):
        await cluster.create(make_pod(f"web-{number}", cpu="1", labels={"queue": "web"}))
    seen, port = _Seen(cluster), free_port()
    kubeconfig = own_control_plane.kubeconfig(tmp_path / "kubeconfig")
    arguments = (
        f"--policies=configmap:{NAMESPACE}/{CONFIG_MAP}",
        "--leader-elect",
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=500ms",
    )

    async def until(what: str, holds: Callable[[], Awaitable[Any]]) -> None:
        await eventually(holds, seconds=90, what=what)

    async def runs(*counts: int) -> bool:
        return await seen.running() == counts

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Replica(kubeconfig, tmp_path / "one.log", *arguments))
        await eventually(lambda: first.reported("Became leader"), seconds=60)
        second = stack.enter_context(
            Replica(kubeconfig, tmp_path / "two.log", *arguments, f"--local-port={port}")
        )
        await eventually(lambda: second.reported("In sync"), seconds=60)
        # 1. The one that leads is killed as soon as a victim is on its way out.
        await until("one team to have all", lambda: runs(8, 0))
        for number in range(8):
            name = f"research-{number}"
            await cluster.create(make_pod(name, cpu="1", labels={"queue": "research"}))
        await until("a victim", seen.evicted)
        first.kill()
        # 2. The other one goes on while no victim has ended yet.
        await eventually(lambda: second.reported("Became leader"), seconds=60)

        # If the first one died before it nominated a pod, all wait to see what the victim leaves.
        async def is_claimed() -> bool:
            found = await _queues(port)
            claimed = {one["path"]: one["pods"]["claimed"] for one in found.get("rows", ())}
            owned = await seen.nominated()
            return claimed == {"": owned, "research": owned, "web": 0}

        await idle()
        await until("what is claimed to be that of pods that are nominated", is_claimed)
        assert 1 <= await seen.evicted() <= 4
        # 3. Victims end, and those that claimed it run.

        async def is_shared() -> bool:
            await _stop_terminating(cluster)
            return await runs(4, 4)

        await until("each to have half", is_shared)
        await idle()
        assert await runs(4, 4), "none takes more"
        assert await seen.evicted() == 4
        found = await _queues(port)
        assert found["reversals"] == 0
        assert [one["pods"]["claimed"] for one in found["rows"]] == [0, 0, 0]
        assert await asyncio.to_thread(second.terminate) == 0


async def _queues(port: int) -> dict[str, Any]:
    """`/queues` of the scheduler that listens on *port*; empty while it does not lead."""
    url = f"http://127.0.0.1:{port}/queues"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        if response.status == 503:
            return {}
        found: dict[str, Any] = await response.json()
        return found


async def _stop_terminating(cluster: LiveCluster) -> None:
    """Play the kubelets: pods that are being deleted end."""
    for pod in await cluster.items("Pod"):
        if "deletionTimestamp" in pod["metadata"]:
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            await cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
