"""The real API server killed, frozen and made to forget, while pods are being scheduled."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.io.kube.client import ApiClient
from engine.io.kube.resources import NODES, PODS
from tests.builders import node_manifest, pod_manifest
from tests.controlplane import ControlPlane
from tests.faults.processes import Replica
from tests.waiting import eventually

pytestmark = pytest.mark.slow("breaks whole schedulers")

NAMESPACE = "default"
NODE_COUNT = 8
BATCH = 80


async def create_nodes(client: ApiClient) -> None:
    """Make the nodes of these tests, with room for all their pods."""
    for i in range(NODE_COUNT):
        manifest = node_manifest(f"node-{i}", cpu="64", memory="256Gi", zone=f"z{i % 2}")
        manifest["metadata"].pop("uid")
        status = manifest.pop("status")
        created = json.loads(await client.create(NODES, json.dumps(manifest).encode()))
        created["status"] = status
        await client.update(NODES, f"node-{i}", json.dumps(created).encode(), subresource="status")


async def create_pods(client: ApiClient, prefix: str, count: int = BATCH) -> None:
    """Make a batch of pods at once."""

    async def create(i: int) -> None:
        manifest = pod_manifest(f"{prefix}-{i}", NAMESPACE, cpu="100m", memory="64Mi")
        manifest["metadata"].pop("uid")
        manifest["spec"]["containers"][0]["image"] = "registry.example/app:1"
        manifest.pop("status")
        await client.create(PODS, json.dumps(manifest).encode(), NAMESPACE)

    await asyncio.gather(*(create(i) for i in range(count)))


async def nodes_of(client: ApiClient) -> dict[str, str]:
    """Where each pod is; "" while it is pending."""
    found: dict[str, str] = {}
    async for page in client.list_pages(PODS, namespace=NAMESPACE):
        for raw in page.items:
            pod: Any = json.loads(bytes(raw))
            found[pod["metadata"]["name"]] = pod["spec"].get("nodeName", "")
    return found


async def all_placed(client: ApiClient, count: int, *, seconds: float = 60) -> dict[str, str]:
    """Wait until that many pods have nodes; where each is."""

    async def placed() -> dict[str, str]:
        found = await nodes_of(client)
        return found if len(found) >= count and all(found.values()) else {}

    found: dict[str, str] = await eventually(placed, seconds=seconds)
    assert len(found) == count
    most = max(Counter(found.values()).values())
    assert most <= count, found
    return found


async def test_the_scheduler_outlives_a_server_that_does_not(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Killed under load, restarted, frozen, and with its history compacted away."""
    plane = own_control_plane
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    async with plane.client() as client:
        await create_nodes(client)
        with Replica(kubeconfig, tmp_path / "log") as replica:
            # 1. Killed while bindings are under way.
            await create_pods(client, "killed")
            await asyncio.to_thread(plane.kill_apiserver)
            await asyncio.to_thread(plane.restart_apiserver)
            placed = await all_placed(client, BATCH)
            # 2. Away, and all history gone when it is back: every watch must list again.
            await asyncio.to_thread(plane.kill_apiserver)
            await asyncio.to_thread(plane.compact_etcd)
            await asyncio.to_thread(plane.restart_apiserver)
            await create_pods(client, "compacted")
            still = await all_placed(client, 2 * BATCH)
            assert placed.items() <= still.items(), "a bound pod moved"
            # 3. Frozen in the middle: it neither answers nor closes.
            await create_pods(client, "frozen")
            await asyncio.to_thread(plane.pause_apiserver)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.request("GET", "/readyz"), 3)
            await asyncio.to_thread(plane.resume_apiserver)
            await create_pods(client, "after")
            last = await all_placed(client, 4 * BATCH)
            assert still.items() <= last.items(), "a bound pod moved"
            assert replica.process.poll() is None, "the scheduler ended"
            assert await asyncio.to_thread(replica.terminate) == 0
