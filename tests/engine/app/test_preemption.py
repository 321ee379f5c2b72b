"""An urgent pod in a full cluster: who has to go, what they are told, and what the pod is told.

On the embedded API server and on a real one. There are no kubelets: a victim stays terminating
until the test ends it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import AlreadyExists, NotFound
from tests.controlplane import ControlPlane
from tests.engine.app import harness
from tests.live import POLITE, Json, LiveCluster, budget, condition, node, pod
from tests.waiting import eventually, idle

pytestmark = pytest.mark.usefixtures("no_sandboxes")

SLOW = pytest.mark.slow("starts the real control plane")
LATER = pytest.mark.long("the same on the real control plane")
#: On one worker, which starts one control plane.
TOGETHER = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A real control plane for this module: its scheduler takes every pod."""
    with ControlPlane() as plane:
        yield plane


class World:
    """A cluster, and schedulers to start in it."""

    def __init__(self, endpoint: Endpoint, cluster: LiveCluster) -> None:
        self._endpoint = endpoint
        self.cluster = cluster

    @contextlib.asynccontextmanager
    async def scheduler(self, **words: Any) -> AsyncIterator[App]:
        """A scheduler that runs until the block ends."""
        async with harness.scheduler_at(self._endpoint, **words) as app:
            yield app

    async def write_policies(self, files: Mapping[str, str]) -> None:
        """Put policies where a scheduler `from_config_map` looks for them."""
        folder = f"/api/v1/namespaces/{harness.NAMESPACE}/configmaps"
        for path, manifest in (
            ("/api/v1/namespaces", harness.namespace()),
            (folder, harness.config_map(files)),
        ):
            with contextlib.suppress(AlreadyExists):
                await self.cluster.request("POST", path, manifest)

    async def until(self, condition: Callable[[], Awaitable[Any]], what: str) -> Any:
        """The first true answer of *condition*."""
        return await eventually(condition, what=what)

    # What tests wait for.

    async def terminating(self, *names: str) -> list[Json]:
        async def are_terminating() -> list[Json]:
            pods = [await self.cluster.pod(name) for name in names]
            return pods if all(p["metadata"].get("deletionTimestamp") for p in pods) else []

        found: list[Json] = await self.until(are_terminating, f"{names} to be evicted")
        return found

    async def nominated(self, name: str, to: str) -> Json:
        async def is_nominated() -> Json | None:
            found = await self.cluster.pod(name)
            return found if found["status"].get("nominatedNodeName", "") == to else None

        found: Json = await self.until(is_nominated, f"{name} to be nominated to `{to}`")
        return found

    async def bound(self, name: str, on: str) -> Json:
        async def is_bound() -> Json | None:
            found = await self.cluster.pod(name)
            assert found["spec"].get("nodeName", on) == on
            return found if found["spec"].get("nodeName") else None

        found: Json = await self.until(is_bound, f"{name} to be bound")
        return found

    async def reported(self, name: str, message: str) -> None:
        async def is_reported() -> bool:
            answer = condition(await self.cluster.pod(name), "PodScheduled")
            return answer is not None and answer.get("message") == message

        await self.until(is_reported, f"{name} to be told {message}")

    async def events(self, reason: str, count: int = 1) -> list[Json]:
        async def are_there() -> list[Json]:
            found = await self.cluster.events(reason)
            return found if len(found) >= count else []

        found: list[Json] = await self.until(are_there, f"{count} {reason}")
        return found

    async def is_untouched(self, *names: str) -> bool:
        """True if nobody wanted to be rid of any of these pods."""
        for name in names:
            found = await self.cluster.pod(name)
            if found["metadata"].get("deletionTimestamp") or condition(found, "DisruptionTarget"):
                return False
        return True


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("real", marks=[LATER, TOGETHER]),
    ],
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "real":
            endpoint = request.getfixturevalue("plane").endpoint()
        else:
            server = await stack.enter_async_context(DevCluster())
            endpoint = Endpoint(server=server.url)
        client = await stack.enter_async_context(ApiClient(endpoint))
        cluster = LiveCluster(client)
        await cluster.prepare()
        yield World(endpoint, cluster)
        await cluster.clear()


#: For what the real server has a say in: evictions, conditions, nominations.
ON_BOTH = pytest.mark.parametrize(
    "world", ["embedded", pytest.param("real", marks=[SLOW, TOGETHER])], indirect=True
)

NO_ROOM = "0/{} nodes are available: {} Insufficient cpu."


@ON_BOTH
async def test_the_right_pods_go_and_the_urgent_one_comes(world: World) -> None:
    cluster = world.cluster
    await cluster.create(
        node("n1"),
        node("n2"),
        pod("low-1", on="n1", cpu="2", priority="low"),
        pod("middle-1", on="n1", cpu="2", priority="middle"),
        pod("middle-2", on="n2", cpu="2", priority="middle"),
        pod("other-2", on="n2", cpu="2", priority="middle"),
    )
    async with world.scheduler() as app:
        await cluster.create(pod("urgent", cpu="2", priority="high"))
        (victim,) = await world.terminating("low-1")
        # The victim is told, and has its grace period.
        assert victim["metadata"]["deletionGracePeriodSeconds"] == 30
        assert condition(victim, "DisruptionTarget") == {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "observedGeneration": victim["metadata"]["generation"] - 1,
        }
        # The preemptor is told, and waits.
        urgent = await world.nominated("urgent", "n1")
        answer = condition(urgent, "PodScheduled")
        assert answer is not None
        assert (answer["status"], answer["reason"]) == ("False", "Unschedulable")
        message = (
            f"{NO_ROOM.format(2, 2)} preemption: found a potential placement for pod on node n1"
        )
        message += ", preempting 1 victims"
        assert answer["message"] == message
        (event,) = await world.events("Preempted")
        assert (event["type"], event["action"]) == ("Normal", "Preempting")
        assert event["note"] == f"Preempted by pod {urgent['metadata']['uid']} on node n1"
        assert event["regarding"]["name"] == "low-1"
        assert event["related"]["uid"] == urgent["metadata"]["uid"]
        assert event["reportingController"] == "default-scheduler"
        (event,) = await world.events("FailedScheduling")
        assert event["note"] == message
        # The victim goes, and the pod comes.
        await cluster.end_pod("low-1")
        urgent = await world.bound("urgent", "n1")
        assert "nominatedNodeName" not in urgent["status"]
        assert await world.is_untouched("middle-1", "middle-2", "other-2")
        assert harness.metric(app, "scheduler_preemption_victims_count") == 1
        assert harness.metric(app, "scheduler_preemption_victims_sum") == 1
        assert harness.metric(app, "scheduler_preemption_attempts_total") >= 1


async def test_many_victims_of_one_node(world: World) -> None:
    cluster = world.cluster
    names = [f"low-{i}" for i in range(8)]
    await cluster.create(
        node("n1", cpu="8"), *(pod(name, on="n1", cpu="1", priority="low") for name in names)
    )
    async with world.scheduler() as app:
        await cluster.create(pod("urgent", cpu="8", priority="high"))
        await world.terminating(*names)
        for name in names:
            await cluster.end_pod(name)
        await world.bound("urgent", "n1")
        assert len(await world.events("Preempted", 8)) == 8
        assert harness.metric(app, "scheduler_preemption_victims_count") == 1


@pytest.mark.slow("runs a whole scheduler")
async def test_a_disruption_budget_sends_the_preemptor_elsewhere(world: World) -> None:
    cluster = world.cluster
    await cluster.create(
        node("n1"),
        node("n2"),
        budget("web", {"app": "web"}, 0),
        pod("guarded", on="n1", cpu="4", priority="low", labels={"app": "web"}),
        pod("free", on="n2", cpu="4", priority="middle"),
    )
    async with world.scheduler():
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await world.terminating("free")
        await cluster.end_pod("free")
        await world.bound("urgent", "n2")
        assert await world.is_untouched("guarded")


@pytest.mark.slow("runs a whole scheduler")
async def test_a_disruption_budget_gives_way_where_nothing_else_helps(world: World) -> None:
    cluster = world.cluster
    await cluster.create(
        node("n1"),
        budget("web", {"app": "web"}, 0),
        pod("guarded", on="n1", cpu="2", priority="low", labels={"app": "web"}),
        pod("free", on="n1", cpu="2", priority="middle"),
    )
    async with world.scheduler():
        # The guarded pod can be spared if the other goes, although that one is more important.
        await cluster.create(pod("urgent", cpu="2", priority="high"))
        await world.terminating("free")
        await cluster.end_pod("free")
        await world.bound("urgent", "n1")
        assert await world.is_untouched("guarded")
        # Now it cannot be spared.
        await cluster.create(pod("more-urgent", cpu="4", priority="highest"))
        await world.terminating("guarded", "urgent")


@pytest.mark.slow("runs a whole scheduler")
async def test_a_polite_pod_waits(world: World) -> None:
    cluster = world.cluster
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    async with world.scheduler():
        await cluster.create(pod("polite", cpu="4", priority=POLITE))
        (event,) = await world.events("FailedScheduling")
        want = "preemption: not eligible due to preemptionPolicy=Never."
        assert event["note"].endswith(want)
        assert await world.is_untouched("low")
        assert "nominatedNodeName" not in (await cluster.pod("polite"))["status"]


@pytest.mark.slow("runs a whole scheduler")
async def test_two_preemptors_do_not_want_the_same_capacity(world: World) -> None:
    cluster = world.cluster
    await cluster.create(
        node("n1", cpu="2"),
        node("n2", cpu="2"),
        pod("low", on="n1", cpu="2", priority="low"),
        pod("middle", on="n2", cpu="2", priority="middle"),
    )
    async with world.scheduler():
        await cluster.create(pod("first", cpu="2", priority="high"))
        await world.nominated("first", "n1")
        await cluster.create(pod("second", cpu="2", priority="high"))
        await world.nominated("second", "n2")
        await world.terminating("low", "middle")
        await cluster.create(pod("third", cpu="2", priority="high"))
        await world.events("FailedScheduling", 3)
        # Nobody else is let into the promised room.
        await cluster.create(pod("small", cpu="1", priority="low"))
        await cluster.end_pod("low")
        await cluster.end_pod("middle")
        await world.bound("first", "n1")
        await world.bound("second", "n2")
        assert len(await cluster.events("Preempted")) == 2
        for name in ("third", "small"):
            assert "nodeName" not in (await cluster.pod(name))["spec"]


@pytest.mark.slow("runs a whole scheduler")
async def test_a_terminating_victim_is_not_deleted_again(world: World) -> None:
    """The preemptor is woken meanwhile, and must neither evict again nor go elsewhere."""
    cluster = world.cluster
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    async with world.scheduler():
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        (before,) = await world.terminating("low")
        await world.nominated("urgent", "n1")
        # Something that is worth a try, and does not help: a node that holds a lesser pod.
        await cluster.create(
            pod("bystander", on="n2", cpu="4", priority="low"), node("n2", cpu="4")
        )
        refusal = "preemption: not eligible due to a terminating pod on the nominated node."

        async def is_ineligible() -> bool:
            answer = condition(await cluster.pod("urgent"), "PodScheduled")
            return answer is not None and answer["message"].endswith(refusal)

        await world.until(is_ineligible, "the second attempt")
        after = await cluster.pod("low")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert await world.is_untouched("bystander")
        assert (await cluster.pod("urgent"))["status"]["nominatedNodeName"] == "n1"
        assert len(await cluster.events("Preempted")) == 1
        await cluster.end_pod("low")
        await world.bound("urgent", "n1")


@pytest.mark.slow("runs a whole scheduler")
async def test_a_nomination_that_does_not_help_is_cleared(world: World) -> None:
    cluster = world.cluster
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    async with world.scheduler():
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await world.nominated("urgent", "n1")
        await world.terminating("low")
        # Before the room is free somebody puts a pod there that cannot be evicted.
        await cluster.create(pod("intruder", on="n1", cpu="4", priority="highest"))
        await cluster.end_pod("low")
        await world.nominated("urgent", "")
        await world.reported(
            "urgent",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: "
            "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        )


@pytest.mark.slow("runs a whole scheduler")
async def test_a_nomination_outlives_the_scheduler(world: World) -> None:
    cluster = world.cluster
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    async with world.scheduler():
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await world.terminating("low")
        await world.nominated("urgent", "n1")
    # Another process: it neither gives the room away nor evicts anybody else.
    await cluster.create(node("n2"), pod("other", on="n2", cpu="4", priority="low"))
    async with world.scheduler() as app:
        uid = (await cluster.pod("urgent"))["metadata"]["uid"]
        assert app.kernel.queue.nominator.node_of(uid) == "n1"
        await cluster.end_pod("low")
        # Two pods for one room: the promise decides, not who asks first.
        await cluster.create(pod("later", cpu="4", priority="low"))
        await world.bound("urgent", "n1")
        assert await world.is_untouched("other")
        assert len(await cluster.events("Preempted")) == 1


@ON_BOTH
async def test_a_lower_pod_loses_its_nomination_and_finds_another_place(world: World) -> None:
    cluster = world.cluster
    await cluster.create(
        node("n1"),
        pod("low", on="n1", cpu="2", priority="low"),
        pod("lower", on="n1", cpu="2", priority="middle"),
    )
    async with world.scheduler():
        await cluster.create(pod("high", cpu="2", priority="high"))
        await world.nominated("high", "n1")
        await world.terminating("low")
        await cluster.create(pod("highest", cpu="4", priority="highest"))
        await world.terminating("lower")
        await world.nominated("highest", "n1")
        await world.nominated("high", "")
        await cluster.end_pod("low")
        await cluster.end_pod("lower")
        await world.bound("highest", "n1")
        await cluster.create(node("n2"))
        await world.bound("high", "n2")


@ON_BOTH
async def test_a_pod_that_waits_in_permit_is_sent_back_and_not_deleted(world: World) -> None:
    cluster = world.cluster
    # A pod of low priority is not given leave, a pod of a high one needs none.
    permit = "def permit(pod, group):\n    return None if pod.priority > 100 else wait(600)\n"
    await world.write_policies({"patient.star": permit})
    await cluster.create(node("n1"))
    async with world.scheduler(from_config_map=True) as app:
        await cluster.create(pod("waits", cpu="4", priority="low"))
        waiting = (await cluster.pod("waits"))["metadata"]["uid"]
        await eventually(lambda: app.cache.is_assumed(waiting))
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        urgent = await world.bound("urgent", "n1")
        (event,) = await world.events("Preempted")
        assert event["note"] == (
            f"Preempted by pod {urgent['metadata']['uid']} on node n1 (in kube-scheduler memory)."
        )
        assert event["regarding"]["name"] == "waits"
        assert await world.is_untouched("waits")
        assert not app.cache.is_assumed(waiting)


async def test_a_preemptor_that_is_deleted_frees_its_capacity(world: World) -> None:
    cluster = world.cluster
    await cluster.create(node("n1"), pod("low", on="n1", cpu="4", priority="low"))
    async with world.scheduler():
        await cluster.create(pod("urgent", cpu="4", priority="high"))
        await world.terminating("low")
        await cluster.create(pod("waits", cpu="2", priority="middle"))
        await world.events("FailedScheduling", 2)
        # Before there is room: a pod that was bound would hold it until its kubelet let it go.
        await cluster.delete("Pod", "urgent")
        await cluster.end_pod("low")
        await world.bound("waits", "n1")
        with pytest.raises(NotFound):
            await cluster.pod("urgent")


@pytest.mark.slow("runs a whole scheduler")
async def test_many_preemptors_at_once_evict_no_more_than_they_need() -> None:
    """Each takes the room of two; promises keep them from the room of one another."""
    async with DevCluster() as server, ApiClient(Endpoint(server=server.url)) as client:
        cluster = LiveCluster(client)
        await cluster.prepare()
        for i in range(20):
            name = f"n{i:02}"
            await cluster.create(
                node(name),
                *(pod(f"{name}-{k}", on=name, cpu="1", priority="low") for k in range(4)),
            )
        server.start_kubelets(stop_delay=0.05)
        urgent = [f"urgent-{i:02}" for i in range(30)]
        async with harness.scheduler(server):
            await asyncio.gather(
                *(cluster.create(pod(name, cpu="2", priority="high")) for name in urgent)
            )
            await eventually(
                lambda: all(harness.node_of(server, name) for name in urgent), seconds=60
            )
        assert server.requests["delete", "pods"] == 60
        left = [p for p in server.list("pods") if p["metadata"]["name"] not in urgent]
        assert len(left) == 20 * 4 - 60
        assert not any(p["metadata"].get("deletionTimestamp") for p in left)


@pytest.mark.slow("runs a whole scheduler")
async def test_events_wait_while_victims_are_evicted() -> None:
    """They describe, and the preemptor waits for the deletions."""
    async with DevCluster() as server, ApiClient(Endpoint(server=server.url)) as client:
        cluster = LiveCluster(client)
        await cluster.prepare()
        victims = [pod(f"low-{i}", on="n1", cpu="2", priority="low") for i in range(2)]
        await cluster.create(node("n1"), *victims)
        async with harness.scheduler(server) as app:
            hold = server.faults.hang(verb="delete", resource="pods")
            await cluster.create(pod("urgent", cpu="4", priority="high"))
            await hold.wait_hit()
            # `until_idle` waits for what events wait for.
            is_idle = asyncio.ensure_future(app.policies.world.until_idle())
            await idle()
            assert not is_idle.done()
            assert len(app.reporting.writer) > 0
            hold.release()
            await is_idle
            await eventually(lambda: len(harness.events(server, "Preempted")) == 2)
