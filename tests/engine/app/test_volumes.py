"""Pods with claims, from the queue to the node: a whole scheduler on both API servers.

The volume controller and the provisioner are played by the tests.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from devkit.cluster import DevCluster
from engine.app import App
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from tests.controlplane import ControlPlane
from tests.engine.app import harness
from tests.live import Json, LiveCluster, condition, node, pod
from tests.storage_builders import (
    BOUND,
    DRIVER,
    SELECTED_NODE,
    claim,
    csi_node,
    storage_class,
    uses,
    volume,
)
from tests.waiting import eventually

SLOW = pytest.mark.slow("starts the real control plane")
LATER = pytest.mark.long("the same on the real control plane")
#: On one worker, which starts one control plane.
TOGETHER = pytest.mark.xdist_group(__name__)

pytestmark = [pytest.mark.slow("runs a whole scheduler"), pytest.mark.usefixtures("no_sandboxes")]

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A real control plane for this module: its scheduler takes every pod."""
    with ControlPlane() as plane:
        yield plane


class World:
    """A cluster, a scheduler in it, and the controllers that finish what it begins."""

    def __init__(self, cluster: LiveCluster, app: App) -> None:
        self.cluster = cluster
        self.app = app

    async def create(self, *manifests: Json) -> None:
        for manifest in manifests:
            for name in ("uid", "resourceVersion"):
                manifest["metadata"].pop(name, None)
            await self.cluster.create(manifest)

    async def until(self, is_so: Callable[[], Awaitable[Any]], what: str) -> Any:
        """The first true answer of *is_so*."""
        return await eventually(is_so, seconds=30, what=what)

    async def bound(self, name: str) -> str:
        async def node_of() -> Any:
            return (await self.cluster.pod(name))["spec"].get("nodeName")

        return str(await self.until(node_of, f"{name} to be bound"))

    async def pending_because(self, name: str, text: str) -> None:
        """Wait until the condition of pod *name* says *text*; it may say something else before."""

        async def says_so() -> bool:
            found = condition(await self.cluster.pod(name), "PodScheduled")
            return found is not None and text in found.get("message", "")

        await self.until(says_so, f"the condition of {name} to say: {text}")

    async def claimed(self, name: str) -> Json:
        async def reference() -> Any:
            return (await self.cluster.request("GET", f"{VOLUMES}/{name}"))["spec"].get("claimRef")

        found: Json = await self.until(reference, f"{name} to be claimed")
        return found

    async def selected(self, name: str) -> str:
        async def chosen() -> Any:
            found = await self.cluster.request("GET", f"{CLAIMS}/{name}")
            return found["metadata"].get("annotations", {}).get(SELECTED_NODE)

        return str(await self.until(chosen, f"a node for {name}"))

    async def bind_claim(self, name: str, volume_name: str) -> None:
        """What the volume controller does for a volume that names its claim."""
        change = {"spec": {"volumeName": volume_name}, "metadata": {"annotations": BOUND}}
        await self.cluster.request("PATCH", f"{CLAIMS}/{name}", change)
        await self.cluster.request(
            "PATCH", f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound"}}
        )

    async def provision(self, name: str, volume_name: str) -> None:
        """What a provisioner does for a claim with a node."""
        await self.create(volume(volume_name, storage_class="made", node=await self.selected(name)))
        await self.bind_claim(name, volume_name)


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("real", marks=[LATER, TOGETHER]),
    ]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "real":
            endpoint = request.getfixturevalue("plane").endpoint()
        else:
            server = await stack.enter_async_context(DevCluster())
            endpoint = Endpoint(server=server.url)
        cluster = LiveCluster(await stack.enter_async_context(ApiClient(endpoint)))
        await cluster.prepare()
        app = await stack.enter_async_context(harness.scheduler_at(endpoint))
        yield World(cluster, app)
        await cluster.clear()


#: For what the real server has a say in: who may change a claim and a volume, and how.
ON_THE_REAL_ONE = pytest.mark.parametrize(
    "world",
    [
        pytest.param("embedded", marks=pytest.mark.long("the same on the embedded server")),
        pytest.param("real", marks=[SLOW, TOGETHER]),
    ],
    indirect=True,
)


@ON_THE_REAL_ONE
async def test_a_pod_follows_its_volume(world: World) -> None:
    await world.create(storage_class("local"), node("n1"), node("n2"))
    await world.create(volume(node="n2"), claim(), pod("web", volumes=uses("data")))
    reference = await world.claimed("disk")
    assert reference["name"] == "data"
    assert "nodeName" not in (await world.cluster.pod("web"))["spec"], "the volume comes first"
    await world.bind_claim("data", "disk")
    assert await world.bound("web") == "n2"


@ON_THE_REAL_ONE
async def test_a_pod_comes_with_the_volume_that_is_made_for_it(world: World) -> None:
    await world.create(storage_class("made", provisioner=DRIVER), node("n1"))
    await world.create(claim(storage_class="made"), pod("web", volumes=uses("data")))
    await world.provision("data", "new")
    assert await world.bound("web") == "n1"


async def test_others_are_placed_while_a_volume_is_made(world: World) -> None:
    await world.create(storage_class("made", provisioner=DRIVER), node("n1"))
    names = [f"p{i:03}" for i in range(100)]  # more than bindings are in flight at once
    for name in names:
        await world.create(claim(name, storage_class="made"))
        await world.create(pod(name, volumes=uses(name)))
    for name in names:
        await world.selected(name)
    await world.create(pod("plain"))
    assert await world.bound("plain") == "n1"
    await world.provision("p007", "new")
    assert await world.bound("p007") == "n1"


@ON_THE_REAL_ONE
async def test_a_pod_is_tried_again_when_its_volume_could_not_be_made(world: World) -> None:
    await world.create(storage_class("made", provisioner=DRIVER), node("n1"))
    await world.create(claim(storage_class="made"), pod("web", volumes=uses("data")))
    await world.selected("data")
    failed = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    await world.until(
        lambda: _has(world.app, "data"), "the scheduler to see that the claim has a node"
    )
    await world.cluster.request("PATCH", f"{CLAIMS}/data", failed)
    await world.pending_because(
        "web",
        'running PreBind plugin "VolumeBinding": binding volumes: '
        'selectedNode annotation reset for PVC "data"',
    )
    await world.provision("data", "new")
    assert await world.bound("web") == "n1"


async def _has(app: App, name: str) -> bool:
    found = app.cache.objects.get("persistentvolumeclaims", f"default/{name}")
    return found is not None and SELECTED_NODE in found.metadata.annotations


async def test_a_pod_waits_for_its_claim_and_for_a_volume(world: World) -> None:
    await world.create(storage_class("local"), node("n1"))
    await world.create(pod("web", volumes=uses("data")))
    await world.pending_because(
        "web", '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    )
    await world.create(claim())
    await world.pending_because("web", "node(s) didn't find available persistent volumes to bind")
    await world.create(volume())
    await world.claimed("disk")
    await world.bind_claim("data", "disk")
    assert await world.bound("web") == "n1"


async def test_two_pods_do_not_get_one_volume(world: World) -> None:
    await world.create(storage_class("local"), node("n1"), volume("v1"), volume("v2"))
    for name in ("a", "b"):
        await world.create(claim(name))
    for name in ("a", "b"):
        await world.create(pod(name, volumes=uses(name)))
    owners = {}
    for name in ("v1", "v2"):
        owners[(await world.claimed(name))["name"]] = name
    assert sorted(owners) == ["a", "b"]
    for name, disk in owners.items():
        await world.bind_claim(name, disk)
        assert await world.bound(name) == "n1"


async def test_a_node_takes_no_more_volumes_than_its_driver_says(world: World) -> None:
    await world.create(storage_class("made", provisioner=DRIVER), node("n1"))
    await world.create(csi_node("n1", limits={DRIVER: 1}))
    for name in ("a", "b"):
        await world.create(volume(f"v-{name}", storage_class="made", phase="Bound"))
        await world.create(claim(name, storage_class="made", volume=f"v-{name}"))
    await world.create(pod("a", volumes=uses("a")))
    assert await world.bound("a") == "n1"
    await world.create(pod("b", volumes=uses("b")))
    await world.pending_because("b", "1 node(s) exceed max volume count")
    await world.cluster.end_pod("a")
    assert await world.bound("b") == "n1"


async def test_a_claim_of_one_pod_passes_to_the_next_when_it_ends(world: World) -> None:
    await world.create(storage_class("local"), node("n1"), node("n2"))
    await world.create(volume(modes=["ReadWriteOncePod"], phase="Bound"))
    await world.create(claim(volume="disk", modes=["ReadWriteOncePod"]))
    await world.create(pod("a", volumes=uses("data")))
    await world.bound("a")
    await world.create(pod("b", volumes=uses("data")))
    await world.pending_because("b", "ReadWriteOncePod access mode already in-use")
    await world.cluster.end_pod("a")
    await world.bound("b")
