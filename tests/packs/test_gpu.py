"""Shares of GPUs on a real control plane, and the example's typical pods."""

import collections
import csv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from tests import builders
from tests.controlplane import ControlPlane
from tests.engine.app.gang_world import World
from tests.engine.app.harness import scheduler_at, stages_in_process

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "examples" / "gpu"
GPU = "alibabacloud.com/gpu-"


@pytest.fixture
async def world(control_plane: ControlPlane, namespace: str) -> AsyncIterator[World]:
    async with control_plane.client() as client:
        made = World(control_plane.endpoint(), client, namespace)
        yield made
        await made.clean()


async def _gpu_node(world: World, name: str, gpus: int) -> None:
    full = f"{world.namespace}-{name}"
    more = {f"{GPU}count": str(gpus)}
    manifest = builders.node_manifest(full, cpu="64", memory="256Gi", allocatable=more)
    manifest["metadata"].pop("uid", None)
    world._nodes.append(full)
    await world.client.create(resources.NODES, msgspec.json.encode(manifest))


async def _gpu_pod(client: ApiClient, namespace: str, name: str, **wants: str) -> None:
    annotations = {f"{GPU}{key}": text for key, text in wants.items()}
    manifest = builders.pod_manifest(name, namespace, cpu="1", annotations=annotations, image="app")
    manifest["metadata"].pop("uid", None)
    manifest["spec"]["schedulerName"] = "gpu"
    await client.create(resources.PODS, msgspec.json.encode(manifest), namespace=namespace)


async def test_pods_learn_their_gpus_and_a_new_scheduler_knows_them(
    control_plane: ControlPlane, world: World
) -> None:
    await _gpu_node(world, "n", 2)
    stages = stages_in_process((EXAMPLE / "profile.yaml").read_text())

    async def index(name: str) -> Any:
        pod = await world.pod(name)
        placed = pod["spec"].get("nodeName")
        return placed and (pod["metadata"].get("annotations") or {}).get(f"{GPU}index")

    async def gets(name: str, want: str) -> None:
        async def is_reported() -> bool:
            return bool(await index(name) == want)

        await world.eventually(is_reported)

    async with scheduler_at(control_plane.endpoint(), stages=stages):
        await _gpu_pod(world.client, world.namespace, "a", count="1", milli="600")
        await gets("a", "0")
        await _gpu_pod(world.client, world.namespace, "b", count="1", milli="400")
        await gets("b", "0")
    async with scheduler_at(control_plane.endpoint(), stages=stages):
        await _gpu_pod(world.client, world.namespace, "c", count="1", milli="1000")
        await gets("c", "1")
        await _gpu_pod(world.client, world.namespace, "d", count="1", milli="100")
        await world.says("d", "didn't have enough room on their GPUs")
        await world.delete("a")
        await gets("d", "0")


def test_the_examples_typical_pods_are_those_of_the_trace() -> None:
    """The kinds that make 95 % of its pods, each with its share of those."""
    counts: collections.Counter[tuple[int, int, int, str]] = collections.Counter()
    with (ROOT / "tests" / "data" / "openb" / "openb_pod_list_default.csv").open() as file:
        for row in csv.DictReader(file):
            count = int(row["num_gpu"])
            milli = int(row["gpu_milli"]) if count == 1 else 1000 * min(count, 1)
            counts[int(row["cpu_milli"]), count, milli, row["gpu_spec"]] += 1
    total = sum(counts.values())
    typical: dict[tuple[int, int, int, str], int] = {}
    for kind, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if sum(typical.values()) >= 0.95 * total:
            break
        typical[kind] = number
    covered = sum(typical.values())
    want = {kind: round(number / covered, 6) for kind, number in typical.items()}
    profile = yaml.safe_load((EXAMPLE / "profile.yaml").read_text())["profiles"][0]
    (config,) = profile["pluginConfig"]
    got = {
        (p["cpu"], p["count"], p["milli"], p["models"]): p["share"]
        for p in config["args"]["typicalPods"]
    }
    assert got == want
    assert len(got) == 35
