"""Days of tenants that share GPUs, scheduled in virtual time by the rules of a pack.

Owns the synthetic day of four tenants on 64 GPUs, the queues of each pack over a day, and what is
measured of a run. The day of a trace is `openb_day`'s, and the command is `bench_queues`.

    d floods from the start with jobs of 1 and 2 GPUs; 1/8 of the GPUs are its
    b comes after ten minutes, with jobs of 1 to 4; 1/4
    a comes after twenty, with jobs of 1 to 8, and is away from 1:20 to 2:20; 1/2
    c sends a gang of eight pods with a GPU each, every five minutes; 1/8

All four want more than is theirs while they are there. Jobs run for some time once they have what
they asked for, and begin again if they are evicted.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from engine.files.cluster_file import Cluster
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from workbench.simulation.shares_over_time import Curves, QueueReport
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder, queue_curves, report
from workbench.simulation.workload import Arrival, Workload

GPU: Final = "nvidia.com/gpu"
NODES, GPUS = 8, 8
SECONDS: Final = 4 * 3600.0
SEED: Final = 1
#: What each tenant's part of the GPUs goes by.
WEIGHTS: Final = {"a": 4, "b": 2, "c": 1, "d": 1}

_PROFILE: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: PrioritySort}
      - {name: DefaultBinder}
      - {name: NodeResourcesFit}
      - {name: GangScheduling}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: GPU, weight: 1}]}
  - name: GangScheduling
    args: {groupLabel: gang, minCountLabel: gang-size}
"""
#: Sums alone: what comes first goes first.
_SEEN: Final = '''"""Has the queues of tenants summed up, and decides nothing by them.

Hooks: queue_of. Reads: pod.labels["team"].
"""

tree = queue_attributes(weight = 1)

def queue_of(pod):
    return pod.labels["team"]
'''


@dataclass(frozen=True)
class Tenants:
    """Who shares what during a day.

    Attributes:
        weights: What each tenant's part goes by.
        resource: What is shared, and `unit`, how much of it is one GPU.
        gpus: How many there are.
        seconds: How long the day is.
        workload: Nodes, objects and pods, the same whatever the rules, by a seed.
    """

    weights: Mapping[str, int]
    resource: str
    unit: int
    gpus: int
    seconds: float
    workload: Callable[[int], Workload]


@dataclass(frozen=True)
class Pack:
    """The rules by which the day is scheduled.

    Attributes:
        tree: The fields of the QueueTree; if no objects are read, the queues are added to it.
        files: Policies that do not ship.
        above: The path that the queues of the tenants are under, with a slash; "" is the root.
    """

    tree: Mapping[str, Any]
    files: Mapping[str, str]
    above: str = ""

    def bundle(self, tenants: Tenants) -> Bundle:
        """Its policies, for *tenants*."""
        tree = {"apiVersion": "starsched.dev/v1", "kind": "QueueTree", **self.tree}
        if "objects" not in tree:
            tree["queues"] = {name: {"weight": part} for name, part in tenants.weights.items()}
        return build_bundle(
            {
                "profile.yaml": _PROFILE.replace("GPU", tenants.resource),
                "tree.yaml": yaml.safe_dump(tree),
                **self.files,
            }
        )


_VOLCANO: Final = [{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}]
_KUEUE: Final = [
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind}
    for kind in ("ClusterQueue", "Cohort", "LocalQueue")
]
#: By name; all of them see the same objects and pods.
PACKS: Final[Mapping[str, Pack]] = {
    "none": Pack({"policy": "seen"}, {"seen.star": _SEEN}),
    "drf": Pack({"policy": "drf"}, {}),
    "proportion": Pack({"policy": "proportion", "objects": _VOLCANO}, {}),
    "kueue_fair": Pack({"policy": "kueue_fair", "objects": _KUEUE}, {}, "all/"),
}


class Day(msgspec.Struct, frozen=True):
    """What a day of tenants with these weights came to under a pack.

    Attributes:
        queues: The queues by their tenants; `curves` are of them.
        evicted_at: When pods were evicted.
        unit: How much of the resource is one GPU.
    """

    pack: str
    weights: Mapping[str, int]
    unit: int
    queues: QueueReport
    evicted_at: tuple[float, ...]
    curves: Curves

    def row(self) -> dict[str, Any]:
        """The figures: the share error, evictions, and by tenant GPUs and starved seconds."""
        by_tenant = {one.queue.rpartition("/")[2]: one for one in self.queues.queues}
        return {
            "pack": self.pack,
            "error": round(100 * self.queues.error, 1),
            "evictions": len(self.evicted_at),
            "reversals": self.queues.reversals,
            "gpus": {name: round(by_tenant[name].mean / self.unit, 1) for name in self.weights},
            "starved": {name: round(by_tenant[name].starved_seconds) for name in self.weights},
        }


def run_day(pack: str, seed: int = SEED, tenants: Tenants | None = None) -> Day:
    """The day of *tenants*, or the synthetic one, by the rules of *pack*."""
    tenants, rules = tenants or SYNTHETIC, PACKS[pack]
    bundle, recorder = rules.bundle(tenants), Recorder()
    evaluator = InProcessEvaluator(bundle.program)
    try:
        simulation = Simulation(bundle, evaluator, tenants.workload(seed), on_moment=recorder)
        simulation.run(until=tenants.seconds)
    finally:
        evaluator.close()
    level = 1 + rules.above.count("/")
    weights = {rules.above + name: weight for name, weight in tenants.weights.items()}
    steps = [step for step in recorder.steps if step.at <= tenants.seconds]
    resource = tenants.resource
    _, found = queue_curves(simulation, steps, resource, level, weights)
    result = report(simulation, steps, resource=resource, level=level, weights=weights)
    assert result.queues is not None, "every pack has a tree"
    evicted_at = tuple(simulation.evicted_at)
    return Day(pack, tenants.weights, tenants.unit, result.queues, evicted_at, found)


def day(seed: int = SEED) -> Workload:
    """The workload: the same pods and objects whatever the rules."""
    cluster = cluster_of(NODES, GPU, GPUS, WEIGHTS)
    rng = random.Random(seed)
    arrivals = []
    for tenant, jobs in _TENANTS.items():
        for number, (at, gpus, runs, gang) in enumerate(jobs(rng)):
            for member in range(gang or 1):
                name = f"{tenant}-{number}" + (f"-{member}" if gang else "")
                labels = {"gang": f"{tenant}-{number}", "gang-size": str(gang)} if gang else {}
                pod = pod_of(tenant, name, {GPU: str(gpus)}, labels)
                arrivals.append(Arrival(at, cluster.pod_of(pod), runs=runs))
    arrivals.sort(key=lambda one: (one.at, one.pod.key))
    return Workload(cluster, arrivals)


def cluster_of(nodes: int, resource: str, each: int, weights: Mapping[str, int]) -> Cluster:
    """So many nodes that offer *each* of *resource*, and the queues as objects."""
    cluster = Cluster(nodes=[_node(number, {resource: str(each)}) for number in range(nodes)])
    for manifest in objects(resource, nodes * each, weights):
        cluster.add(manifest)
    return cluster


def objects(resource: str, total: int, weights: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The queues as objects of Volcano and of Kueue; nominal quotas are what each deserves."""
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    yield {**kueue, "kind": "Cohort", "metadata": {"name": "all"}, "spec": {}}
    for name, weight in weights.items():
        meta = {"metadata": {"name": name}}
        volcano = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        yield {**volcano, **meta, "spec": {"weight": weight}}
        quota = {"name": resource, "nominalQuota": total * weight // sum(weights.values())}
        group = {"coveredResources": [resource], "flavors": [{"name": "any", "resources": [quota]}]}
        spec = {
            "cohortName": "all",
            "fairSharing": {"weight": str(weight)},
            "resourceGroups": [group],
            "preemption": {"reclaimWithinCohort": "Any"},
        }
        yield {**kueue, "kind": "ClusterQueue", **meta, "spec": spec}
        local = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
        yield {**kueue, "kind": "LocalQueue", **local}


# --- the tenants ----------------------------------------------------------------------------

_Job = tuple[float, int, float, int]
"""When it comes, GPUs of a pod, for how long it runs, and how many pods it has if it is a gang."""


def _a(rng: random.Random) -> Iterator[_Job]:
    for begins, ends in ((1200, 4800), (8400, SECONDS)):
        at = float(begins)
        for _ in range(20):  # a backlog, as people come back to
            yield at, rng.choice((1, 2, 4, 8)), rng.uniform(600, 1500), 0
        while at < ends:
            yield at, rng.choice((1, 2, 4, 8)), rng.uniform(600, 1500), 0
            at += rng.expovariate(1 / 75)


def _b(rng: random.Random) -> Iterator[_Job]:
    at = 600.0
    while at < SECONDS:
        yield at, rng.choice((1, 2, 2, 4)), rng.uniform(300, 1200), 0
        at += rng.expovariate(1 / 60)


def _c(rng: random.Random) -> Iterator[_Job]:
    for number in range(int(SECONDS) // 300):
        yield 300.0 * number, 1, rng.uniform(600, 900), 8


def _d(rng: random.Random) -> Iterator[_Job]:
    for _ in range(120):
        yield 0.0, rng.choice((1, 2)), rng.uniform(600, 1800), 0
    at = 0.0
    while at < SECONDS:
        yield at, rng.choice((1, 2)), rng.uniform(600, 1800), 0
        at += rng.expovariate(1 / 25)


_TENANTS: Final[Mapping[str, Callable[[random.Random], Iterator[_Job]]]] = {
    "a": _a,
    "b": _b,
    "c": _c,
    "d": _d,
}


SYNTHETIC: Final = Tenants(WEIGHTS, GPU, 1, NODES * GPUS, SECONDS, day)


def _node(number: int, offered: Mapping[str, str]) -> dict[str, Any]:
    room = {"cpu": "128", "memory": "512Gi", "pods": "200", **offered}
    name = f"gpu-{number}"
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def pod_of(
    tenant: str, name: str, limits: Mapping[str, str], labels: Mapping[str, str] = {}
) -> dict[str, Any]:
    """A pod of *tenant* that every pack finds the queue of."""
    own = {"team": tenant, "kueue.x-k8s.io/queue-name": tenant}
    # A controller creates it again if it is evicted.
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": dict(limits), "limits": dict(limits)},
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": tenant,
            "labels": {**own, **labels},
            "annotations": {"scheduling.volcano.sh/queue-name": tenant},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
