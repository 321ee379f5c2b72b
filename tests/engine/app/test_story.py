"""The story of `starsched demo` on a real control plane, of whichever minor version."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from devkit.cluster import example_cluster, make_pod
from devkit.demo.edit import AFTER, BEFORE, BROKEN
from devkit.demo.stage import CONFIG_MAP, NAMESPACE
from engine.app import App, PolicyParts, Settings
from engine.io.kube.client import ApiClient
from engine.rollout.assembly import make_stages
from engine.rollout.last_good import SUFFIX, ConfigMapStore
from engine.rollout.sources import ConfigMapSource
from tests.controlplane import ControlPlane
from tests.live import Json, LiveCluster
from tests.waiting import eventually

pytestmark = pytest.mark.slow("starts the real control plane")

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture
async def cluster(own_control_plane: ControlPlane) -> AsyncIterator[LiveCluster]:
    """The demo's nodes and policies."""
    async with own_control_plane.client() as client:
        live = LiveCluster(client)
        await live.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await live.create(*({"apiVersion": "v1", "kind": "Node", **n} for n in example_cluster()))
        made = {"metadata": {"name": CONFIG_MAP}, "data": BEFORE}
        await live.request("POST", MAPS, made)
        yield live


def app_for(client: ApiClient) -> App:
    return App(
        client,
        policies=PolicyParts(
            source=ConfigMapSource(client, NAMESPACE, CONFIG_MAP),
            stages=make_stages(),
            store=ConfigMapStore(client, NAMESPACE, CONFIG_MAP + SUFFIX),
        ),
        settings=Settings(local_port=0),
    )


async def place(cluster: LiveCluster, prefix: str) -> set[str]:
    """The disks of the nodes that new pods are placed on."""
    names = {f"{prefix}-{i}" for i in range(9)}
    for name in sorted(names):
        await cluster.create(make_pod(name, cpu="500m", memory="512Mi"))
    placed: list[Json] = []

    async def all_placed() -> bool:
        pods = await cluster.items("Pod")
        placed[:] = [p for p in pods if p["metadata"]["name"] in names and _node(p)]
        return len(placed) == len(names)

    await eventually(all_placed, seconds=60, what=f"the pods {prefix}")
    disks = {
        node["metadata"]["name"]: node["metadata"]["labels"].get("example.com/disk", "")
        for node in await cluster.items("Node")
    }
    return {disks[_node(pod)] for pod in placed}


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


async def edit(cluster: LiveCluster, files: dict[str, str]) -> None:
    await cluster.request("PATCH", f"{MAPS}/{CONFIG_MAP}", {"data": files})


async def rejection(cluster: LiveCluster) -> Any:
    events = (await cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
    return next((e["message"] for e in events if e["reason"] == "PolicyRejected"), None)


async def test_an_edit_moves_pods_and_a_bad_one_changes_nothing(cluster: LiveCluster) -> None:
    """What the API server lacks is found out once, and nothing is said of it as an error."""
    with capture_logs() as logs:
        app = app_for(cluster.client)
        running = asyncio.create_task(app.run())
        try:
            await eventually(
                app.leadership.leading.is_set, seconds=60, what="the scheduler to lead"
            )
            assert await place(cluster, "before") == {"ssd"}
            first = app.policies.rollout.active.bundle.revision
            await edit(cluster, AFTER)
            await eventually(
                lambda: app.policies.rollout.active.bundle.revision != first,
                seconds=60,
                what="the new policy",
            )
            second = app.policies.rollout.active.bundle.revision
            assert await place(cluster, "after") == {"hdd"}
            await edit(cluster, BROKEN)
            found: list[str] = []

            async def is_rejected() -> bool:
                found[:] = [text for text in [await rejection(cluster)] if text]
                return bool(found)

            await eventually(is_rejected, seconds=60, what="the rejection")
            assert "lables" in found[0]
            assert app.policies.rollout.active.bundle.revision == second
            assert await place(cluster, "still") == {"hdd"}
        finally:
            app.request_stop()
            await running
            loud = [e for e in logs if e["log_level"] in ("warning", "error", "critical")]
            print(*loud, sep="\n")  # shown if this fails
    assert [entry for entry in loud if entry.get("component") != "rollout"] == []
