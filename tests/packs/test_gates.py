"""The gates of riya and coscheduling, live, beside a count of each group that is made anew."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.cluster import DevCluster
from engine.app import App
from tests import builders
from tests.engine.app.harness import scheduler, stages_in_process
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
COSCHEDULING = "pod-group.scheduling.sigs.k8s.io/"
NAMESPACES = ("a", "b")
Json = dict[str, Any]
Key = tuple[str, str]


class Pods:
    """Pods of groups in a cluster, changed at random; those of a group want the same of it."""

    def __init__(self, cluster: DevCluster, profile: str, labels: tuple[str, str]) -> None:
        self.cluster = cluster
        self.scheduler_name = yaml.safe_load(profile)["profiles"][0]["schedulerName"]
        self.labels = labels
        self.made = 0

    def add(self, namespace: str, group: str, wanted: int, name: str = "") -> None:
        self.made += 1
        labels = dict(zip(self.labels, (group, str(wanted)), strict=True))
        name = name or f"{group}-{self.made}"
        manifest = builders.pod_manifest(name, namespace, cpu="1", labels=labels, image="app")
        manifest["metadata"].pop("uid", None)
        manifest["spec"]["schedulerName"] = self.scheduler_name
        self.cluster.create(manifest)

    def all(self) -> dict[Key, Json]:
        """Those that have not ended."""
        return {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in self.cluster.list("pods")
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
        }

    def end(self, key: Key, phase: str) -> None:
        pod = self.all()[key]
        ended = {**pod, "status": {**pod.get("status", {}), "phase": phase}}
        self.cluster.update("pods", ended, subresource="status")

    def resize(self, key: Key, wanted: int) -> None:
        """What the whole group of a pod wants from now on."""
        for _, pod in self.group_of(key):
            labels = {**pod["metadata"]["labels"], self.labels[1]: str(wanted)}
            self.cluster.update("pods", {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def group_of(self, key: Key) -> Iterator[tuple[Key, Json]]:
        name = self.all()[key]["metadata"]["labels"][self.labels[0]]
        for other, pod in self.all().items():
            if other[0] == key[0] and pod["metadata"]["labels"][self.labels[0]] == name:
                yield other, pod

    def change(self, chance: random.Random) -> str:
        """Do something at random; returns what."""
        keys = sorted(self.all())
        what = chance.choice(("add", "add", "add", "delete", "end", "resize", "again"))
        if what == "add" or not keys:
            namespace, group = chance.choice(NAMESPACES), chance.choice("xy")
            sizes = [
                self.wanted(pod)
                for key, pod in self.all().items()
                if key[0] == namespace and pod["metadata"]["labels"][self.labels[0]] == group
            ]
            self.add(namespace, group, sizes[0] if sizes else 3)
            return "add"
        key = chance.choice(keys)
        if what == "resize":
            self.resize(key, chance.randint(1, 5))
        elif what == "end":
            self.end(key, chance.choice(("Succeeded", "Failed")))
        else:
            group, wanted = (self.all()[key]["metadata"]["labels"][one] for one in self.labels)
            self.cluster.delete("pods", key[1], key[0], grace=0)
            if what == "again":
                self.add(key[0], group, int(wanted), key[1])
        return f"{what} {key}"

    def wrong(self, few: str) -> list[Key]:
        """The pods that ought to be placed, or to be told *few*, and are not."""
        found = []
        for key, pod in self.all().items():
            if pod["spec"].get("nodeName"):
                continue
            count, wanted = len(list(self.group_of(key))), self.wanted(pod)
            conditions = pod["status"].get("conditions") or [{}]
            reported = few.format(count=count, wanted=wanted)
            if count >= wanted or reported not in conditions[0].get("message", ""):
                found.append(key)
        return found

    def wanted(self, pod: Json) -> int:
        return int(pod["metadata"]["labels"][self.labels[1]])


@pytest.mark.usefixtures("gates_reported_soon")
@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize(
    ("pack", "labels", "few"),
    [
        pytest.param(
            "riya",
            ("podGroup", "minAvailable"),
            "pods in group ({count}) < minAvailable ({wanted})",
            id="riya",
        ),
        pytest.param(
            "coscheduling",
            (f"{COSCHEDULING}name", f"{COSCHEDULING}min-available"),
            "the pod group has fewer pods than belong together",
            id="coscheduling",
        ),
    ],
)
async def test_a_pod_is_held_while_its_group_is_too_small_and_no_longer(
    pack: str, labels: tuple[str, str], few: str
) -> None:
    chance = random.Random(pack)
    profile = (EXAMPLES / pack / "profile.yaml").read_text()
    async with DevCluster() as cluster:
        for name in NAMESPACES:
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        node = builders.node_manifest("n", cpu="1000", memory="1000Gi", pods=1000)
        node["metadata"].pop("uid", None)
        cluster.create(node)
        pods = Pods(cluster, profile, labels)
        async with scheduler(cluster, stages=stages_in_process(profile)) as app:
            placed = 0
            for _ in range(25):
                done = pods.change(chance)
                await eventually(lambda: not pods.wrong(few), what=f"{done}: {pods.wrong(few)}")
                await _is_at_rest(app)
                placed += any("nodeName" in pod["spec"] for pod in pods.all().values())
            assert placed > 0


async def _is_at_rest(app: App) -> None:
    """Nobody holds a node without leave to be bound."""
    await eventually(lambda: not len(app.kernel.permits) and not app.cache.assumed_count)
    await asyncio.sleep(0)
