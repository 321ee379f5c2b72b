"""The four examples of riya end as they must, on a real control plane."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.watching.informer import Decoding, Handlers, Informer
from engine.io.watching.reflector import WatchOptions
from tests import builders
from tests.controlplane import ControlPlane
from tests.engine.app.harness import scheduler_at, stages_in_process
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "riya"
Json = dict[str, Any]


def _pods_of(file: str) -> list[Json]:
    """The pods of an example; those of a Job as its controller would make them."""
    pods: list[Json] = []
    for manifest in yaml.safe_load_all((EXAMPLES / file).read_text()):
        if manifest["kind"] == "Pod":
            pods.append(manifest)
            continue
        template, name = manifest["spec"]["template"], manifest["metadata"]["name"]
        for number in range(manifest["spec"]["parallelism"]):
            metadata = {**template["metadata"], "name": f"{name}-{number}"}
            pods.append({**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    return pods


class Cluster:
    """A namespace of pods, and the order in which they get their nodes."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.order: list[str] = []
        self.messages: dict[str, str] = {}

    async def create(self, *files: str) -> None:
        for file in files:
            for pod in _pods_of(file):
                body = msgspec.json.encode(pod)
                await self.client.create(resources.PODS, body, namespace=self.namespace)

    async def watch(self) -> None:
        """Follow the pods until cancelled."""

        def see(pod: Json) -> None:
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") and name not in self.order:
                self.order.append(name)
            for condition in pod.get("status", {}).get("conditions", ()):
                self.messages[name] = condition.get("message", "")

        handlers = Handlers[Json](on_add=see, on_update=lambda _, new: see(new))
        options = WatchOptions(namespace=self.namespace)
        await Informer[Json](
            self.client, resources.PODS, Decoding(msgspec.json.decode), handlers, options=options
        ).run()

    def words(self) -> list[str]:
        """The order, of each name the part before the hyphen."""
        return [name.partition("-")[0] for name in self.order]


@pytest.fixture
async def cluster(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Cluster]:
    """A namespace of the real control plane, with a node that takes everything."""
    async with control_plane.client() as client:
        node = builders.node_manifest(f"{namespace}-n", cpu="100", memory="100Gi")
        node["metadata"].pop("uid", None)
        await client.create(resources.NODES, msgspec.json.encode(node))
        made = Cluster(client, namespace)
        watching = asyncio.ensure_future(made.watch())
        yield made
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await client.delete(resources.NODES, f"{namespace}-n")


def _scheduler(plane: ControlPlane) -> Any:
    """The scheduler of the example's profile; one binding at a time shows the order."""
    text = (EXAMPLES / "profile.yaml").read_text()
    return scheduler_at(plane.endpoint(), stages=stages_in_process(text), bindings=1)


@pytest.mark.usefixtures("gates_reported_soon")
async def test_a_group_that_is_too_small_stays_pending(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    await cluster.create("prefilter_test.yaml")
    async with _scheduler(control_plane):
        text = "pods in group (2) < minAvailable (3)"
        await eventually(
            lambda: sum(text in message for message in cluster.messages.values()) == 2,
            what="both pods told",
        )
        assert cluster.order == []
        # A third one is enough for all of them.
        third = _pods_of("prefilter_test.yaml")[0]
        third["metadata"]["name"] = "nginx-2"
        body = msgspec.json.encode(third)
        await cluster.client.create(resources.PODS, body, namespace=cluster.namespace)
        await eventually(lambda: len(cluster.order) == 3, what="three pods placed")


async def test_groups_go_by_their_priority(control_plane: ControlPlane, cluster: Cluster) -> None:
    await cluster.create("green.yaml", "yallow.yaml", "red.yaml")
    async with _scheduler(control_plane):
        await eventually(lambda: len(cluster.order) == 30, seconds=60)
    assert cluster.words() == ["red"] * 10 + ["yellow"] * 10 + ["green"] * 10


async def test_guaranteed_pods_go_before_best_effort_ones(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    await cluster.create("hello.yaml", "hi.yaml")
    async with _scheduler(control_plane):
        await eventually(lambda: len(cluster.order) == 20, seconds=60)
    assert cluster.words() == ["hi"] * 10 + ["hello"] * 10


async def test_one_group_goes_by_quality_of_service(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    await cluster.create("pusheen.yaml")
    async with _scheduler(control_plane):
        await eventually(lambda: len(cluster.order) == 15, seconds=60)
    assert cluster.words() == ["white"] * 5 + ["gray"] * 5 + ["black"] * 5
