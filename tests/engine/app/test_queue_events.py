"""What users see of pods that their queues hold back, and of those that queues give back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.surfaces.live.answers import PodAnswer
from tests.engine.app.harness import config_map, events, namespace, scheduler
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.test_reclaims import SHARED
from tests.engine.core.kernel.test_turn_queue import DRF
from tests.engine.surfaces.live.test_service import ALL
from tests.live import node, pod
from tests.waiting import eventually

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster() as running:
        running.create(namespace(), node("n", cpu="4"))
        yield running


def _found(cluster: DevCluster, name: str) -> dict[str, Any]:
    found = cluster.get("pods", name)
    assert found is not None
    return found


async def test_a_pod_learns_what_its_queue_is_short_of(cluster: DevCluster) -> None:
    limits = {"research": {"limit": {"cpu": "1500m"}}}
    cluster.create(config_map(tree_files(DRF, queues=limits)))
    async with scheduler(cluster, from_config_map=True) as app:
        cluster.create(pod("r0", cpu="1", labels={"queue": "research"}))
        await eventually(lambda: app.cache.pod_count == 1)
        cluster.create(pod("r1", cpu="1", labels={"queue": "research"}))
        cluster.create(pod("lost", cpu="1", labels={"queue": "nowhere"}))
        await eventually(lambda: len(events(cluster, "FailedScheduling")) == 2)
        notes = {e["regarding"]["name"]: e["note"] for e in events(cluster, "FailedScheduling")}
        held = "held by policy `fair`: queue `research`: is at its limit"
        assert notes == {
            "r1": f"{held} (short of 500m cpu at `research`)",
            "lost": "held by policy `fair`: queue `nowhere`: there is no queue of this name",
        }
        condition = _found(cluster, "r1")["status"]["conditions"][0]
        assert (condition["reason"], condition["message"]) == ("SchedulingGated", notes["r1"])


async def test_a_victim_learns_which_queue_gives_back_for_which(cluster: DevCluster) -> None:
    files = tree_files(SHARED, queues={"research": {}, "web": {}}, limits={"minRuntime": "0s"})
    cluster.create(config_map(files))
    async with scheduler(cluster, from_config_map=True) as app:
        for number in range(4):
            cluster.create(pod(f"w{number}", cpu="1", labels={"queue": "web"}))
        await eventually(lambda: app.cache.pod_count == 4)
        cluster.create(pod("r", cpu="1", labels={"queue": "research"}))
        await eventually(lambda: len(events(cluster, "Preempted")) == 1)
        (event,) = events(cluster, "Preempted")
        uid = _found(cluster, "r")["metadata"]["uid"]
        line = 1 + SHARED.splitlines().index("def reclaim(taker, victim):")
        assert event["note"] == (
            f"Preempted by pod {uid} on node n: queue `web` gives back to queue `research`, by "
            f"fair.star:{line} (research: 0 cpu -> 1 cpu of a share of 1 cpu; "
            "web: 4 cpu -> 3 cpu of a share of 3 cpu)"
        )
        _, answer = await app.surfaces.live.explain(ALL, {}, "default", "r")
        assert isinstance(answer, PodAnswer)
        gave = event["note"].partition("node n: ")[2]
        assert any(note.endswith(f"1 pod had to go for it: {gave}") for note in answer.notes)
        assert app.kernel.reclaims.latest[-1].queue == "research"
