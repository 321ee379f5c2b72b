"""GpuPacking and GpuShare beside a model of them, written from the published rules alone."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.testing.full_decision import decide
from tests import builders

GPU = "alibabacloud.com/gpu-"
WHOLE = 1000
MODELS = ("P100", "T4", "V100")
Annotations = Mapping[str, str]

_PROFILE = {
    "schedulerName": "gpu",
    "plugins": {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [
                {"name": name}
                for name in ("PrioritySort", "GpuPacking", "GpuShare", "DefaultBinder")
            ],
        }
    },
}
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [_PROFILE],
}


@dataclasses.dataclass
class GpuNode:
    """A node, and what is left of each of its GPUs."""

    name: str
    model: str
    left: list[int]
    pods: list[Annotations] = dataclasses.field(default_factory=list)

    def take(self, pod: Annotations, chosen: list[int]) -> None:
        for gpu in chosen:
            self.left[gpu] -= _milli(pod)
        self.pods.append({**pod, f"{GPU}index": "-".join(map(str, chosen))})


# --- the model -----------------------------------------------------------------------------------


def _count(pod: Annotations) -> int:
    return int(pod.get(f"{GPU}count", f"{GPU}milli" in pod))


def _milli(pod: Annotations) -> int:
    return int(pod.get(f"{GPU}milli", WHOLE)) if _count(pod) == 1 else WHOLE


def _gpus_for(pod: Annotations, node: GpuNode) -> list[int]:
    """The tightest GPUs that take *pod*; none if there are too few."""
    room = [gpu for gpu, left in enumerate(node.left) if left >= _milli(pod)]
    room.sort(key=lambda gpu: (node.left[gpu], gpu))
    return sorted(room[: _count(pod)]) if _count(pod) <= len(room) else []


def _accepts(pod: Annotations, node: GpuNode) -> bool:
    models = pod.get(f"{GPU}card-model")
    return models is None or node.model in models.split("|")


def _score(pod: Annotations, node: GpuNode) -> int:
    if all(left == WHOLE for left in node.left):  # an idle node: the fewer GPUs, the better
        return max(33 - len(node.left), 0)
    chosen = [node.left[gpu] for gpu in _gpus_for(pod, node)]
    if fresh := chosen.count(WHOLE):  # idle GPUs of a node in use: the fewer, the better
        return max(50 - fresh, 33)
    idle = sum(left * 100 // WHOLE for left in chosen)  # GPUs in use: the fuller, the better
    return max(100 - idle // 10, 50)


# --- drawn clusters ------------------------------------------------------------------------------


def _pod(chance: random.Random) -> Annotations:
    """What a pod asks for: a share of a GPU, or some GPUs, of any model or of some."""
    wants: dict[str, Any] = {"count": chance.choice((1, 1, 2, 3, 4, 8))}
    if chance.random() < 0.6:
        wants = {"milli": chance.choice((50, 200, 333, 500, 999, 1000))}
        if chance.random() < 0.5:
            wants["count"] = 1
    if chance.random() < 0.25:
        wants["card-model"] = "|".join(chance.sample(MODELS, chance.randint(1, 2)))
    return {f"{GPU}{key}": str(value) for key, value in wants.items()}


def _node(chance: random.Random, name: str) -> GpuNode:
    gpus = chance.choice((1, 2, 4, 8, 16, 20, 40))
    node = GpuNode(name, chance.choice(MODELS), [WHOLE] * gpus)
    for _ in range(chance.choice((0, 0, 1, 3, 8))):
        pod = _pod(chance)
        room = [gpu for gpu, left in enumerate(node.left) if left >= _milli(pod)]
        if len(room) >= _count(pod):
            node.take(pod, chance.sample(room, _count(pod)))
    return node


def _world(nodes: list[GpuNode]) -> World:
    manifests = [
        builders.node_manifest(
            node.name,
            labels={f"{GPU}card-model": node.model},
            allocatable={f"{GPU}count": str(len(node.left))},
        )
        for node in nodes
    ]
    pods = [
        builders.pod_manifest(f"{node.name}-{i}", annotations=pod, node=node.name)
        for node in nodes
        for i, pod in enumerate(node.pods)
    ]
    return World.from_manifests(manifests, pods)


@pytest.mark.parametrize("seed", range(4))
def test_scores_and_gpus_are_those_of_the_published_rules(seed: int) -> None:
    chance = random.Random(seed)
    bundle = build_bundle({"config.yaml": yaml.safe_dump(CONFIG)})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    for _ in range(60):
        nodes = [_node(chance, f"n-{i}") for i in range(chance.randint(1, 5))]
        asks = _pod(chance)
        manifest = builders.pod_manifest("it", annotations=asks)
        manifest["spec"]["schedulerName"] = "gpu"

        got = decide(_world(nodes), scheduler, pod_of(manifest))
        fitting = {n.name: n for n in nodes if _accepts(asks, n) and _gpus_for(asks, n)}
        assert got.total == {name: _score(asks, node) for name, node in fitting.items()}
        if len(got.best) == 1:
            chosen = _gpus_for(asks, fitting[got.best[0]])
            assert got.annotations == {f"{GPU}index": "-".join(map(str, chosen))}
