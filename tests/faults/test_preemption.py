"""A scheduler that dies in the middle of a preemption. Nobody is evicted who need not be."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devkit.cluster import DevCluster
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.engine.app.harness import node_of
from tests.faults.processes import Replica
from tests.live import LiveCluster, node, pod
from tests.waiting import eventually

pytestmark = pytest.mark.slow("breaks whole schedulers")


@pytest.fixture
async def server() -> AsyncIterator[DevCluster]:
    async with DevCluster() as server:
        yield server


@pytest.fixture
async def cluster(server: DevCluster) -> AsyncIterator[LiveCluster]:
    async with ApiClient(Endpoint(server=server.url)) as client:
        cluster = LiveCluster(client)
        await cluster.prepare()
        yield cluster


def terminating(server: DevCluster) -> set[str]:
    """The pods that somebody wants to be rid of."""
    return {
        found["metadata"]["name"]
        for found in server.list("pods")
        if found["metadata"].get("deletionTimestamp")
    }


@pytest.mark.parametrize(
    "applied",
    [
        pytest.param(False, id="before the server has the deletion"),
        pytest.param(True, id="when the server has it and the answer is on its way"),
    ],
)
async def test_killed_while_a_victim_is_evicted(
    server: DevCluster, cluster: LiveCluster, tmp_path: Path, applied: bool
) -> None:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    await cluster.create(
        node("n1"),
        pod("low-1", on="n1", cpu="2", priority="low"),
        pod("middle-1", on="n1", cpu="2", priority="middle"),
    )
    hung = server.faults.hang(verb="delete", resource="pods", applied=applied)
    with Replica(kubeconfig, tmp_path / "first.log") as first:
        await cluster.create(pod("urgent", cpu="2", priority="high"))
        await asyncio.wait_for(hung.wait_hit(), 30)
        first.kill()
    urgent = await cluster.pod("urgent")
    assert urgent["status"]["nominatedNodeName"] == "n1", "nobody knows what it was for"
    assert terminating(server) == ({"low-1"} if applied else set())
    if applied:
        # Where it would go if nothing had begun: that victim has run for a shorter time.
        late = "2026-06-01T00:00:00Z"
        await cluster.create(node("n2"), pod("low-2", on="n2", cpu="4", priority="low", start=late))
    with Replica(kubeconfig, tmp_path / "second.log") as second:
        await eventually(lambda: second.reported("In sync"), what="the second to know the cluster")
        if applied:
            why = "not eligible due to a terminating pod on the nominated node."
            await eventually(lambda: second.reported(why), what="the second to wait")
        await eventually(lambda: terminating(server) == {"low-1"}, what="the victim to go")
        await cluster.end_pod("low-1")
        await eventually(lambda: node_of(server, "urgent") == "n1", what="the preemptor to come")
        assert await asyncio.to_thread(second.terminate) == 0
    assert terminating(server) == set(), "more victims than needed"


async def test_killed_when_some_victims_are_evicted_and_others_not(
    server: DevCluster, cluster: LiveCluster, tmp_path: Path
) -> None:
    """Only all of them together make room: the next scheduler evicts the rest."""
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    names = {f"low-{i}" for i in range(4)}
    await cluster.create(
        node("n1"), *(pod(name, on="n1", cpu="1", priority="low") for name in sorted(names))
    )
    hung = server.faults.hang(verb="delete", resource="pods", name="low-1")
    with Replica(kubeconfig, tmp_path / "first.log") as first:
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await asyncio.wait_for(hung.wait_hit(), 30)
        # The last victim waits for all the others.
        await eventually(lambda: len(terminating(server)) == 2, what="two victims to go")
        first.kill()
    gone = terminating(server)
    assert "low-1" not in gone
    with Replica(kubeconfig, tmp_path / "second.log"):
        for name in gone:
            await cluster.end_pod(name)
        await eventually(lambda: terminating(server) == names - gone, what="the rest to go")
        for name in names - gone:
            await cluster.end_pod(name)
        await eventually(lambda: node_of(server, "urgent") == "n1", what="the preemptor to come")


async def test_an_eviction_that_the_server_refuses_for_a_while_is_done_in_the_end(
    server: DevCluster, cluster: LiveCluster, tmp_path: Path
) -> None:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    # More often than one preemption tries: it is given up, and begun again.
    refused = server.faults.fail(503, verb="delete", resource="pods", times=7)
    with Replica(kubeconfig, tmp_path / "log") as replica:
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await eventually(lambda: terminating(server) == {"low"}, what="the victim to go")
        assert refused.hits == 7
        assert replica.reported("Cannot evict all victims; trying the preemptor again")
        await cluster.end_pod("low")
        await eventually(lambda: node_of(server, "urgent") == "n1", what="the preemptor to come")
