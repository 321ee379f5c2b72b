"""What a what-if answer predicts is what the scheduler decides once it has really happened.

Random clusters come to rest; a question is asked about them; then nodes are added or drained, a
taint is removed or a quota is raised, as an API server would report it, and the same kernel decides
on until it is at rest again. The pods that start, and those that do not, are those of the answer.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from engine.core.caching.cache import Cache
from engine.core.kernel.events import NODES, PODS, ObjectChanged, PreemptionEnd, PreemptionEnded
from engine.core.kernel.instructions import Evict, Instruction
from engine.core.kernel.kernel import Kernel
from engine.core.model.node import Node
from engine.core.model.objects import Taint
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.rollout.trial import frozen_copy
from engine.surfaces.live.what_if.changes import (
    AddNodes,
    Change,
    Drain,
    RaiseQuota,
    RemoveTaint,
)
from engine.surfaces.live.what_if.imagined_cluster import ImaginedCluster, Material
from tests.builders import HOSTNAME, ZONE, make_node, make_pod, taint, toleration
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.small_world import World
from tests.profiles import only

CLUSTERS: Final = 200
# Of these, the tests of each change try so many.
_USUAL: Final = 60

QUOTAS: Final = '''"""Quotas by queue.

Hooks: queue_of, admit.
"""

load("@std/amounts.star", "over", "plus")

tree = queue_attributes(quota = {}, weight = 1)

def queue_of(pod):
    return pod.labels.get("queue")

def admit(request, path):
    for q in path[:-1]:
        short = over(plus(q.allocated, request.resources), q.quota, of = request.resources)
        if short:
            return hold("the quota is used", token = "QuotaReached", at = q.path, short = short)
    return None
'''
PROFILE: Final = (
    only(
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "InterPodAffinity",
        "NodeResourcesFit",
        "DefaultPreemption",
        "GangScheduling",
    )
    + """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
"""
)
PLAIN: Final = {"config.yaml": PROFILE}


def quotas(cores: int) -> dict[str, str]:
    """A tree of two queues, the first of which may have so many cores."""
    queues = {"a": {"quota": {"cpu": cores}}, "b": {"quota": {"cpu": 4}}}
    return {**tree_files(QUOTAS, queues=queues), "config.yaml": PROFILE}


def _kernel(cache: Cache, _: Mapping[str, RuntimePlugin], **words: Any) -> Kernel:
    return Kernel(cache, make_plugins(cache.objects), **words)


class Reality(World):
    """A cluster with controllers, which make pods again that were evicted."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files, _kernel)

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        evictions = [one for one in instructions if isinstance(one, Evict)]
        super()._carry_out([one for one in instructions if not isinstance(one, Evict)])
        for eviction in evictions:
            end = PreemptionEnd.DONE
            for victim in eviction.victims:
                self.evict(victim)
            self.report(PreemptionEnded(eviction.preemptor, eviction.preemption.node, end))
        return instructions

    def evict(self, pod: Pod) -> None:
        """Delete a pod; its controller, if it has one, makes another of its name."""
        while any(one.pod.uid == pod.uid for one in self.bindings):
            at = next(i for i, one in enumerate(self.bindings) if one.pod.uid == pod.uid)
            self.end_binding(at, succeeds=True)
        known = self.known[pod.name]
        self.delete(pod.name)
        if known.controller is not None:
            # Which of two equal nodes a pod gets goes by its uid.
            self.add(known.unplaced().renamed(f"{known.uid}+"))

    def where(self) -> dict[str, str]:
        """The node of each pod."""
        return {name: pod.node_name for name, pod in self.known.items()}

    def node(self, name: str) -> Node:
        """A node as it is."""
        info = self.cache.node_info(name)
        assert info is not None
        assert info.node is not None
        return info.node

    def scheduler_of_a_copy(self, plugins: Mapping[str, RuntimePlugin]) -> Scheduler:
        """What decides on a copy."""
        made = Scheduler(self.bundle, self.evaluator, plugins=plugins, has_extenders=False)
        made.reuse_from(self.scheduler, {one: one for one in range(len(self.bundle.policies))})
        return made


# --- random clusters ---------------------------------------------------------------------------

GPU: Final = taint("dedicated", "gpu")


def _node(rng: random.Random, name: str) -> Node:
    labels = {HOSTNAME: name, ZONE: rng.choice("ab"), "disk": rng.choice(["ssd", "hdd"])}
    taints = [GPU] if rng.random() < 0.3 else []
    return make_node(name, cpu=rng.choice([2, 4, 8]), memory="64Gi", labels=labels, taints=taints)


def _pod(rng: random.Random, name: str, *, has_queues: bool) -> Pod:
    labels = {"app": rng.choice(["web", "db"])}
    if has_queues and rng.random() < 0.8:
        labels["queue"] = rng.choice("ab")
    words: dict[str, Any] = {"cpu": rng.choice([1, 2, 3, 5]), "priority": rng.choice([0, 0, 5, 9])}
    kind = rng.random()
    if kind < 0.15:
        words["tolerations"] = [toleration("dedicated")]
    elif kind < 0.3:
        words["node_selector"] = {"disk": "ssd"}
    elif kind < 0.45:
        term = {"labelSelector": {"matchLabels": {"app": labels["app"]}}, "topologyKey": HOSTNAME}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        words["affinity"] = {"podAntiAffinity": {required: [term]}}
    elif kind < 0.6 and not has_queues:
        labels |= {"group": rng.choice(["g1", "g2"]), "min": "3"}
        words["priority"] = 5  # the whole group is as important
    if rng.random() < 0.7:
        words["owner"] = {"kind": "ReplicaSet", "name": "rs"}
    return make_pod(name, labels=labels, **words)


def _world(rng: random.Random) -> Reality:
    has_queues = rng.random() < 0.4
    world = Reality(quotas(4) if has_queues else PLAIN)
    for number in range(rng.randint(2, 5)):
        world.add_node(_node(rng, f"n{number}"))
    for number in range(rng.randint(6, 24)):
        world.add(_pod(rng, f"p{number}", has_queues=has_queues))
    if rng.random() < 0.5:
        daemon = make_pod(
            "agent", cpu="500m", owner={"kind": "DaemonSet", "name": "agent"}
        ).with_node("n0")
        world.add(daemon)
    world.come_to_rest()
    return world


def _changes(rng: random.Random, world: Reality) -> list[Change]:
    names = sorted(info.name for info in world.cache.infos())
    found: list[Change] = []
    tainted = [name for name in names if world.node(name).taints]
    if tainted and rng.random() < 0.4:
        where = rng.choice(["", rng.choice(tainted)])
        found.append(RemoveTaint(Taint(key="dedicated", value="gpu", effect="NoSchedule"), where))
    if rng.random() < 0.5:
        found.append(AddNodes(rng.randint(1, 3), rng.choice(names)))
    if world.bundle.queue_tree is not None and rng.random() < 0.6:
        found.append(RaiseQuota("a", "", "cpu", 9000, "9"))
    if not found or rng.random() < 0.3:
        found.append(Drain(rng.choice(names)))
    return found


# --- reality -----------------------------------------------------------------------------------


def _really(world: Reality, change: Change) -> None:
    """Have *change* happen, as an API server reports it."""
    match change:
        case AddNodes(count=count, like=like):
            _add(world, world.node(like), count)
        case RemoveTaint(node=name):
            nodes = [info.node for info in world.cache.infos() if info.node is not None]
            for node in nodes:
                if node.taints and name in ("", node.name):
                    spec = msgspec.structs.replace(node.manifest.spec, taints=())
                    after = Node(msgspec.structs.replace(node.manifest, spec=spec))
                    world.report(ObjectChanged(NODES, node, after))
        case RaiseQuota():
            bundle = Reality(quotas(9))
            world.bundle, world.evaluator = bundle.bundle, bundle.evaluator
            world.switch()
        case Drain(node=name):
            node = world.node(name)
            mark = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
            spec = msgspec.structs.replace(
                node.manifest.spec, unschedulable=True, taints=(*node.taints, mark)
            )
            after = Node(msgspec.structs.replace(node.manifest, spec=spec))
            world.report(ObjectChanged(NODES, node, after))
            info = world.cache.node_info(name)
            assert info is not None
            for pod in list(info.pods.values()):
                if pod.controller is None or pod.controller.kind != "DaemonSet":
                    world.evict(pod)


def _add(world: Reality, like: Node, count: int) -> None:
    info = world.cache.node_info(like.name)
    assert info is not None
    daemons = [
        pod
        for pod in info.pods.values()
        if pod.controller is not None and pod.controller.kind == "DaemonSet"
    ]
    for number in range(1, count + 1):
        name = f"{like.name}-new-{number}"
        meta = like.manifest.metadata
        made = msgspec.structs.replace(meta, name=name, labels=meta.labels | {HOSTNAME: name})
        for pod in daemons:
            placed = pod.renamed(f"{pod.uid}-{name}", f"{pod.name}-{name}").with_node(name)
            world.known[placed.name] = placed
            world.report(ObjectChanged(PODS, None, placed))
        world.add_node(Node(msgspec.structs.replace(like.manifest, metadata=made)))


# --- both --------------------------------------------------------------------------------------


def _predicted(world: Reality, changes: Sequence[Change]) -> tuple[dict[str, str], ImaginedCluster]:
    """The node of each pod that has none now, or loses it, as the answer has it."""
    copy = ImaginedCluster(
        frozen_copy(world.cache.snapshot()),
        Material.of(world.kernel),
        world.scheduler_of_a_copy,
        {},
        lambda: None,
    )
    copy.change(changes)
    return {one.pod.name: one.node for one in copy.found.tracked.values()}, copy


_LONG: Final = pytest.mark.long("the first clusters cover each kind of change")


@pytest.mark.parametrize(
    "seed",
    [*range(_USUAL), *(pytest.param(seed, marks=_LONG) for seed in range(_USUAL, CLUSTERS))],
)
def test_the_pods_that_start_are_those_of_the_answer(seed: int) -> None:
    rng = random.Random(seed)
    world = _world(rng)
    changes = _changes(rng, world)
    before = world.where()
    predicted, copy = _predicted(world, changes)
    assert world.where() == before, "a question changes nothing"
    for change in changes:
        _really(world, change)
    world.come_to_rest()
    after = world.where()
    got = {name: bool(after.get(name)) for name in predicted}
    assert got == {name: bool(node) for name, node in predicted.items()}, changes
    copy.kernel.check_invariants()
