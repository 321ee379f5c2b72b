"""Who borrows what others lack, on a real API server, as all surfaces show it."""

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import CONFIG_MAP, NAMESPACE
from tests.controlplane import ControlPlane
from tests.engine.app.harness import metric
from tests.engine.app.test_story import MAPS, app_for
from tests.engine.core.kernel.queue_world import tree_files
from tests.live import LiveCluster
from tests.waiting import eventually
from workbench.cli.kubectl_plugin import main as kubectl_starsched

pytestmark = pytest.mark.slow("starts the real control plane")


async def test_a_queue_lacks_what_another_has_until_that_ends(
    own_control_plane: ControlPlane,
) -> None:
    files = tree_files(queues={"research": {"weight": 3}, "web": {"weight": 1}})
    async with own_control_plane.client() as client:
        cluster = LiveCluster(client)
        await cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await cluster.create({"apiVersion": "v1", "kind": "Node", **make_node("n", cpu="4")})
        await cluster.request("POST", MAPS, {"metadata": {"name": CONFIG_MAP}, "data": files})
        app = app_for(client)
        running = asyncio.create_task(app.run())

        async def asked(*arguments: str) -> Any:
            server = f"--server=http://127.0.0.1:{app.surfaces.endpoints.local_port}"
            words = ["shares", *arguments, "--output=json", server]
            result = await asyncio.to_thread(CliRunner().invoke, kubectl_starsched, words)
            assert result.exit_code == 0, result.output
            return json.loads(result.output)

        async def until(pairs: list[tuple[str, str, int]]) -> None:
            async def is_so() -> bool:
                found = (await asked())["pairs"]
                return [(p["starved"], p["borrowing"], p["amount"]) for p in found] == pairs

            await eventually(is_so, seconds=60, what=f"{pairs}")

        try:
            await eventually(app.leadership.leading.is_set, seconds=60, what="the scheduler")
            for number in range(4):
                await cluster.create(make_pod(f"w{number}", cpu="1", labels={"queue": "web"}))
            await eventually(lambda: app.cache.pod_count == 4, seconds=60, what="placed pods")
            for number in range(3):
                await cluster.create(make_pod(f"r{number}", cpu="1", labels={"queue": "research"}))
            await until([("research", "web", 3000)])
            research = await asked("research")
            assert {pod["phase"] for pod in research["pods"]} == {"waiting"}
            assert metric(app, "starsched_queue_share", queue="research", resource="cpu") == 3000
            assert metric(app, "starsched_queue_allocated", queue="web", resource="cpu") == 4000
            # What ends gives way: shares are what they were, and are had.
            for number in range(3):
                path = f"/api/v1/namespaces/default/pods/w{number}?gracePeriodSeconds=0"
                await cluster.request("DELETE", path)
            await until([])
            await eventually(lambda: app.cache.pod_count == 4, seconds=60, what="placed pods")
            rows = {row["path"]: row for row in (await asked())["rows"]}
            assert rows["research"]["resources"]["cpu"]["allocated"] == 3000
            assert rows["research"]["starved_seconds"] > 0
            assert not rows["web"]["is_borrowing"]
            app.kernel.check_invariants()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
