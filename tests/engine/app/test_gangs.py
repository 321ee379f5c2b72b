"""Pods that are placed together or not at all: on the embedded API server and on a real one."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from devkit.cluster import DevCluster
from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import ApiError, NotFound
from engine.io.leader_election import LeaseSettings
from tests.controlplane import ControlPlane, serving_groups
from tests.engine.app.gang_world import GANGS, Shelf, World, members, patient, scheduling
from tests.engine.app.harness import metric

SLOW = pytest.mark.slow("starts the real control plane")
LATER = pytest.mark.long("the same on the real control plane")
#: On one worker, which starts one control plane.
TOGETHER = pytest.mark.xdist_group(__name__)

pytestmark = pytest.mark.usefixtures("no_sandboxes", "gates_reported_soon")

UNSCHEDULABLE = "0/1 nodes are available: 1 pod group is unschedulable."
FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
CONFIG = {"config.yaml": GANGS}


@pytest.fixture(scope="module")
def plane_with_groups() -> Iterator[ControlPlane]:
    """A real API server that serves pod groups, which is off by default."""
    with ControlPlane(apiserver_args=serving_groups()) as plane:
        yield plane


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("real", marks=[LATER, TOGETHER]),
    ]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """An empty cluster."""
    name = f"gang-{secrets.token_hex(3)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("plane_with_groups")
        plane.create_if_missing("/api/v1/namespaces", manifest)
        async with plane.client() as client:
            world = World(plane.endpoint(), client, name)
            yield world
            await world.clean()
        return
    async with DevCluster() as cluster:
        cluster.create(manifest)
        endpoint = Endpoint(server=cluster.url)
        async with ApiClient(endpoint) as client:
            yield World(endpoint, client, name)


#: For what the real server has a say in: validation, status, bindings of others.
ON_THE_REAL_ONE = pytest.mark.parametrize(
    "world",
    [
        pytest.param("embedded", marks=pytest.mark.long("the same on the embedded server")),
        pytest.param("real", marks=[SLOW, TOGETHER]),
    ],
    indirect=True,
)
ON_BOTH = pytest.mark.parametrize(
    "world", ["embedded", pytest.param("real", marks=[SLOW, TOGETHER])], indirect=True
)


# --- whole or not at all -------------------------------------------------------------------


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_a_group_that_does_not_fit_holds_nothing_and_is_placed_when_it_fits(
    world: World,
) -> None:
    await world.node("a", cpu=3)
    await world.group("train", min_count=4)
    await world.pods("train", 0, 1, 2, 3)
    async with scheduling(world, CONFIG) as app:
        short = "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining"
        for number in range(3):
            await world.says(f"train-{number}", f"pod group is unschedulable, {short}")
        await world.says("train-3", "0/1 nodes are available: 1 Insufficient cpu.")
        assert await world.placed() == set()
        assert (len(app.kernel.permits), app.cache.assumed_count) == (0, 0)
        # What the group does not hold, others can have.
        await world.pods("single", 0, cpu="3", labels={})
        await world.places("single-0")
        # Room for one more is not enough, room for all is.
        await world.node("b", cpu=1)
        await world.delete("single-0")
        await world.places(*members("train", 4))


@pytest.mark.slow("runs a whole scheduler")
async def test_of_two_groups_with_capacity_for_one_exactly_one_is_placed(world: World) -> None:
    await world.node("a", cpu=3)
    await world.node("b", cpu=3)
    for group in ("red", "blue"):
        await world.group(group, min_count=4)
    for number in range(4):  # so that their pods take turns in the queue
        await world.pods("red", number)
        await world.pods("blue", number)
    async with scheduling(world, CONFIG) as app:
        await world.eventually(world.placed)
        first = next(iter(await world.placed())).partition("-")[0]
        other = "blue" if first == "red" else "red"
        await world.places(*members(first, 4))
        for number in range(4):
            await world.says(f"{other}-{number}", "minCount (4)" if number != 2 else "Insufficient")
        assert (len(app.kernel.permits), app.cache.pod_count) == (0, 4)
        await world.node("c", cpu=2)
        await world.places(*members("red", 4), *members("blue", 4))


async def test_more_pods_than_the_group_needs_are_placed_as_far_as_they_fit(world: World) -> None:
    await world.node("a", cpu=4)
    await world.group("train", min_count=3)
    await world.pods("train", 0, 1, 2, 3, 4)
    async with scheduling(world, CONFIG) as app:

        async def are_four() -> bool:
            return len(await world.placed()) == 4

        await world.eventually(are_four)
        assert len(app.kernel.permits) == 0


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_a_group_that_changes_while_it_waits_is_judged_anew(world: World) -> None:
    await world.node("n", 2)
    await world.group("g", 3)
    async with scheduling(world, CONFIG):
        await world.pods("g", 0, 1, 2)
        await world.says("g-0", "minCount (3) cannot be satisfied")
        await world.set_min_count("g", 4)
        await world.says("g-0", FEW)
        await world.set_min_count("g", 2)
        await world.eventually(lambda: _count(world, 2))
        await world.says("g-2", "Insufficient cpu")


async def _count(world: World, count: int) -> bool:
    return len(await world.placed()) == count


@pytest.mark.slow("runs a whole scheduler")
@ON_BOTH
async def test_words_of_a_later_version_keep_no_other_pod_waiting(world: World) -> None:
    """Both API servers drop a policy that they do not know, and refuse the group without one."""
    await world.node("n", 2)
    with pytest.raises(ApiError, match="schedulingPolicy"):
        await world.pod_group("g", {"schedulingPolicy": {"elastic": {"minCount": 2}}})
    async with scheduling(world, CONFIG):
        await world.pods("g", 0, 1)
        await world.pods("plain", 0, labels={})
        await world.places("plain-0")
        await world.says("g-0", 'waiting for pods\'s pod group "g" to appear')


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_pods_wait_at_the_gate_until_their_group_is_there(world: World) -> None:
    await world.node("a", cpu=8)
    async with scheduling(world, CONFIG):
        await world.pods("train", 0)
        missing = 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        await world.says("train-0", f"gated by policy `GangScheduling`: {missing}")
        await world.group("train", min_count=3)
        await world.says("train-0", FEW)
        await world.pods("train", 1)
        await world.says("train-1", FEW)
        await world.pods("train", 2)
        await world.places(*members("train", 3))


async def test_a_label_can_make_a_group(world: World) -> None:
    await world.node("a", cpu=2)
    labels = {"example.com/group": "mpi", "example.com/min": "3"}
    async with scheduling(world, CONFIG) as app:
        await world.pods("mpi", 0, 1, labels=labels)
        await world.says("mpi-1", FEW)
        await world.pods("mpi", 2, labels=labels)
        await world.says("mpi-0", "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining")
        await world.says("mpi-2", "nodes are available")
        assert app.cache.assumed_count == 0
        await world.node("b", cpu=1)
        await world.places(*members("mpi", 3))


async def test_a_group_that_loses_a_pod_is_gated_again_and_completed_by_another(
    world: World,
) -> None:
    await world.node("a", cpu=2)
    await world.group("train", min_count=3)
    await world.pods("train", 0, 1, 2)
    async with scheduling(world, CONFIG):
        await world.says("train-2", "nodes are available")
        await world.delete("train-1")
        await world.node("b", cpu=1)
        await world.says("train-0", FEW)
        await world.pods("train", 3)
        await world.places("train-0", "train-2", "train-3")


# --- the end of waiting --------------------------------------------------------------------


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_that_waits_too_long_is_rejected_with_its_whole_group(world: World) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, 1, labels={"example.com/group": "slow"})
    shelf = Shelf(patient(1))
    async with scheduling(world, shelf) as app:
        text = "rejected due to timeout after waiting 1s at plugin patient"
        await world.says("slow-0", f"0/1 nodes are available: 1 {text}.")
        await world.says("slow-1", UNSCHEDULABLE)
        waited = "scheduler_permit_wait_duration_seconds"
        await world.eventually(lambda: metric(app, f"{waited}_count", result="Unschedulable") >= 2)
        assert metric(app, f"{waited}_sum", result="Unschedulable") >= 2.0
        # They are tried again after a while.
        shelf.change({})
        await world.places("slow-0", "slow-1")


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_a_pod_that_waits_says_so_until_it_is_bound(world: World) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, labels={"example.com/group": "slow"})
    shelf = Shelf(patient(600))
    async with scheduling(world, shelf):
        await world.says("slow-0", "for policy `patient`, 10m0s at most: waiting for the rest")
        status = (await world.pod("slow-0"))["status"]
        conditions = status["conditions"]
        assert [(c["status"], c["reason"]) for c in conditions] == [("False", "WaitingOnPermit")]
        assert status["nominatedNodeName"] == f"{world.namespace}-a"
        shelf.change({})
        await world.places("slow-0")
        assert await world.message("slow-0") == ""


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_a_pod_that_waited_in_vain_names_its_node_no_more(world: World) -> None:
    """Nor is the room promised to it: another pod may have it."""
    await world.node("a", cpu=1)
    await world.pods("slow", 0, labels={"example.com/group": "slow"})
    shelf = Shelf(patient(3))
    async with scheduling(world, shelf):
        await world.says("slow-0", f"waiting on node `{world.namespace}-a`")
        assert (await world.pod("slow-0"))["status"]["nominatedNodeName"]
        await world.pods("single", 0, labels={})
        await world.places("single-0")
        await world.says("slow-0", "0/1 nodes are available")
        assert "nominatedNodeName" not in (await world.pod("slow-0"))["status"]


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_that_is_deleted_while_it_waits_frees_its_group(world: World) -> None:
    await world.node("a", cpu=2)
    labels = {"example.com/group": "slow"}
    await world.pods("slow", 0, 1, labels=labels)
    async with scheduling(world, patient(600)) as app:
        await world.eventually(lambda: len(app.kernel.permits) == 2)
        await world.pods("single", 0, labels={})
        await world.says("single-0", "Insufficient cpu")
        await world.delete("slow-0")
        await world.places("single-0")
        await world.says("slow-1", UNSCHEDULABLE)


@pytest.mark.slow("runs a whole scheduler")
async def test_new_policies_decide_again_about_pods_that_wait(world: World) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, 1, labels={"example.com/group": "slow"})
    shelf = Shelf(patient(600))
    async with scheduling(world, shelf) as app:
        await world.eventually(lambda: len(app.kernel.permits) == 2)
        shelf.change(CONFIG)
        await world.places("slow-0", "slow-1")
        assert len(app.kernel.permits) == 0


@pytest.mark.slow("runs a whole scheduler")
async def test_new_policies_take_the_node_back_from_a_pod_that_they_let_not_in(
    world: World,
) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, labels={"example.com/group": "slow"})
    shelf = Shelf(patient(600))
    async with scheduling(world, shelf):
        await world.says("slow-0", "waiting on node")
        shelf.change({"closed.star": 'def pre_enqueue(pod):\n    return "not today"\n'})
        await world.says("slow-0", "not today")

        async def names_none() -> bool:
            return "nominatedNodeName" not in (await world.pod("slow-0"))["status"]

        await world.eventually(names_none)


@pytest.mark.slow("runs a whole scheduler")
async def test_a_stop_does_not_wait_in_permit_and_leaves_the_pods_to_the_next(
    world: World,
) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, 1, labels={"example.com/group": "slow"})
    async with scheduling(world, patient(600)) as app:
        await world.eventually(lambda: len(app.kernel.permits) == 2)
        stopped_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stopped_at < 60.0
    assert await world.placed() == set()
    async with scheduling(world, {}):
        await world.places("slow-0", "slow-1")


async def test_a_scheduler_that_loses_the_lease_binds_no_more_pods(world: World) -> None:
    await world.node("a", cpu=2)
    await world.pods("slow", 0, 1, labels={"example.com/group": "slow"})
    lease = LeaseSettings(namespace=world.namespace, name="gangs")
    shelf = Shelf(patient(600))
    async with scheduling(world, shelf, lease=lease) as app:
        await world.eventually(lambda: len(app.kernel.permits) == 2)
        raw = await world.client.get(resources.LEASES, "gangs", world.namespace)
        taken = json.loads(raw)
        taken["spec"]["holderIdentity"] = "another"
        body = json.dumps(taken).encode()
        await world.client.update(resources.LEASES, "gangs", body, world.namespace)
        await world.eventually(lambda: len(app.kernel.permits) == 0)
        shelf.change({})  # under these they would be bound
        assert app.leadership.elector is not None
        assert not app.leadership.elector.is_leading
    assert await world.placed() == set()
    assert app.cache.assumed_count == 2  # what they held is forgotten with the process


@pytest.mark.slow("runs a whole scheduler")
@ON_THE_REAL_ONE
async def test_a_pod_that_another_client_binds_while_it_waits_is_let_go(world: World) -> None:
    await world.node("a", cpu=2)
    await world.node("b", cpu=2)
    await world.pods("slow", 0, labels={"example.com/group": "slow"})
    async with scheduling(world, patient(600)) as app:
        await world.eventually(lambda: len(app.kernel.permits) == 1)
        pod = await world.pod("slow-0")
        node = f"{world.namespace}-b"
        await world.client.bind(world.namespace, "slow-0", pod["metadata"]["uid"], node)
        await world.eventually(lambda: len(app.kernel.permits) == 0)
        await world.eventually(lambda: app.cache.assumed_count == 0)
        assert (await world.pod("slow-0"))["spec"]["nodeName"] == node


@pytest.mark.slow("runs a whole scheduler")
async def test_a_permit_that_says_no_says_why(world: World) -> None:
    text = '"""Gives no leave."""\n\ndef permit(pod, group):\n    return "it is not the season"\n'
    await world.node("a", cpu=2)
    await world.pods("web", 0, labels={})
    async with scheduling(world, {"season.star": text}) as app:
        await world.says("web-0", "0/1 nodes are available: 1 it is not the season.")
        assert app.cache.assumed_count == 0


async def test_a_permit_that_fails_is_named(world: World) -> None:
    text = '"""Fails."""\n\ndef permit(pod, group):\n    return group.name\n'
    await world.node("a", cpu=2)
    async with scheduling(world, {"broken.star": text}) as app:
        await world.pods("web", 0, labels={})
        await world.says("web-0", "broken.star:4")
        assert app.cache.assumed_count == 0
        failed = {"policy": "broken", "hook": "permit", "kind": "error"}
        assert metric(app, "starsched_policy_failures_total", **failed) >= 1


async def test_pod_groups_that_the_server_does_not_have_are_none(admin: ApiClient) -> None:
    """The shared control plane does not serve them; the scheduler goes on without."""
    with pytest.raises(NotFound):
        await admin.get(resources.POD_GROUPS, "x", namespace="default")
