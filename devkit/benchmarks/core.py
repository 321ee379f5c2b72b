"""The core alone: decisions by the scheduling cycle and the sandbox, without an API server.

Owns the clusters and pods that the core decides for, and the timing of decisions. A decision is
what the scheduling loop does between two pods: bring the snapshot up, decide, assume.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

from devkit.benchmarks import objects, openb
from devkit.benchmarks.kernel_decisions import collecting_as_deciding, read_pod
from devkit.benchmarks.load import percentile
from devkit.benchmarks.measure import Machine
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.processes import forget_peak, resident_mib_of, usage_of
from devkit.benchmarks.workloads import Workload
from engine.core.caching.cache import Cache
from engine.core.model import objects as api
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.policy.sandbox.process import SandboxEvaluator

_PLURALS: Final[dict[str, tuple[str, Any]]] = {
    "Namespace": ("namespaces", api.Namespace),
    "Service": ("services", api.Service),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and the pods to decide, in order.

    `make_nodes` yields `node_count` manifests, `make_placed` those of pods that are placed already;
    they are not kept, so that the memory measured is the scheduler's. `policies` are files that
    decide in addition to the shipped ones.
    """

    name: str
    title: str
    node_count: int
    make_nodes: Callable[[], Iterable[Manifest]]
    pods: Sequence[Manifest]
    objects: Sequence[Manifest] = ()
    needs: frozenset[str] = frozenset()
    make_placed: Callable[[], Iterable[Manifest]] = tuple
    policies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoreResult:
    """Figures of one scenario.

    `pods` are decisions, `placed` those that found a node. `first_ms` is the first decision of
    all, which evaluates everything; `pods_per_second` leaves it out, and
    `pods_per_second_with_first` is over everything, so that it hides in no rate. `p50_ms` and
    `p99_ms` are over the decisions after the first pod of each class. `evaluations` and
    `round_trips` are per pod, over those same decisions. `reuse` is the share of (pod, node, hook)
    triples that were not evaluated. `us_per_triple` is the whole time over the number of triples.
    `cpu_ms` is per pod, sandbox included. `memory_growth_mib` is over the second half of the run.
    `others_share` is the share of the machine (0..1) that other processes took meanwhile: with
    more than a few hundredths, compare `cpu_ms` and not the rest.
    """

    scenario: str
    title: str
    nodes: int
    pods: int
    placed: int
    failed: int
    classes: int
    hooks: int
    pods_per_second: float
    pods_per_second_with_first: float
    first_ms: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    evaluations: float
    round_trips: float
    reuse: float
    us_per_triple: float
    cpu_ms: float
    peak_mib: float
    memory_growth_mib: float
    others_share: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


def of_workload(workload: Workload, nodes: int, pods: int, placed: int = 0) -> Scenario:
    """A workload of `make bench`, on *nodes* nodes that hold *placed* of its pods already.

    Pods that the workload adds to the measured ones are decided too, evenly between them.
    """
    existing = list(workload.objects(nodes))
    unmeasured = list(workload.unmeasured(nodes))
    decided: list[Manifest] = []
    for number in range(pods):
        decided += unmeasured[
            number * len(unmeasured) // pods : (number + 1) * len(unmeasured) // pods
        ]
        decided.append(workload.make_pod(number))
    return Scenario(
        workload.name,
        workload.title,
        nodes,
        lambda: map(workload.make_node, range(nodes)),
        decided,
        existing,
        workload.plugins,
        lambda: (_placed(workload, number, nodes) for number in range(placed)),
    )


def _placed(workload: Workload, number: int, nodes: int) -> Manifest:
    manifest = workload.make_pod(number)
    manifest["metadata"]["name"] = f"placed-{number:06d}"
    manifest["spec"]["nodeName"] = workload.make_node(number % nodes)["metadata"]["name"]
    return manifest


#: One filter by what counts: nothing, pods, what they request, nodes.
COUNTERS: Final[Mapping[str, str]] = {
    "no counter": "def counters(pod):\n    return []\n",
    "count_pods": """
def counters(pod):
    return [count_pods(None, [pods_in([], {}, {"team": pod.namespace_labels.get("team", "")})])]
""",
    "sum_requests": """
def counters(pod):
    team = pod.namespace_labels.get("team", "")
    return [sum_requests(None, [pods_in([], {}, {"team": team})], "cpu")]
""",
    "count_nodes": """
def counters(pod):
    return [count_nodes(None, free = {"cpu": 3400})]
""",
}
_COUNTED: Final = """
def filter(pod, node, counts):
    return "no" if counts and counts[0].total > 1000000000 else None
"""


def of_counters(title: str, workload: Workload, nodes: int, pods: int, placed: int) -> Scenario:
    """Pods of *workload*, with a filter by a counter of `COUNTERS`."""
    plain = of_workload(workload, nodes, pods, placed)
    policies = {"counted.star": COUNTERS[title] + _COUNTED}
    team = {"metadata": {"name": objects.NAMESPACE, "labels": {"team": "red"}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", **team}
    title = f"filter by {title}, {placed} placed pods"
    return replace(plain, name="counters", title=title, objects=[namespace], policies=policies)


def of_openb(pods: int = 0) -> Scenario:
    """The openb trace, in order of creation."""
    trace = openb.read_trace()
    return Scenario(
        "openb",
        "openb (heterogeneous)",
        len(trace.nodes),
        lambda: trace.nodes,
        trace.pods[: pods or None],
    )


def of_adversary(nodes: int, pods: int) -> Scenario:
    """Nodes and pods of which no two are equal in anything that a hook may read."""

    def node(number: int) -> Manifest:
        manifest = objects.node(
            number,
            cpu=f"{64_000 + number}m",
            memory=f"{64 * 1024 + number}Mi",
            pods=f"{110 + number}",
            labels={"serial": f"s{number}", objects.ZONE: f"zone-{number}"},
        )
        manifest["spec"]["taints"] = [
            {"key": f"taint-{number}", "value": "x", "effect": "PreferNoSchedule"}
        ]
        manifest["status"]["images"] = [
            {"names": [f"registry.example/image-{number}:1"], "sizeBytes": 100_000_000 + number}
        ]
        return manifest

    def pod(number: int) -> Manifest:
        other = {"key": "serial", "operator": "NotIn", "values": [f"s{number}"]}
        near = {"key": "serial", "operator": "In", "values": [f"s{number + 1}"]}
        manifest = objects.pod(
            f"pod-{number:06d}",
            labels={"app": f"app-{number}"},
            requests={"cpu": f"{100 + number}m", "memory": f"{128 * 1024 + number}Ki"},
            spec={
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [other]}]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "preference": {"matchExpressions": [near]}}
                        ],
                    }
                },
                "tolerations": [{"key": f"taint-{number}", "operator": "Exists"}],
            },
        )
        (container,) = manifest["spec"]["containers"]
        container["image"] = f"registry.example/image-{number}:1"
        container["ports"] = [{"containerPort": 80, "hostPort": 10_000 + number}]
        return manifest

    return Scenario(
        "adversarial",
        "adversarial (nothing repeats)",
        nodes,
        lambda: map(node, range(nodes)),
        [pod(number) for number in range(pods)],
    )


def of_rare_resources(nodes: int, pods: int, offering: int) -> Scenario:
    """Pods that each name an extended resource which only *offering* of the nodes have.

    Every node has one of such resources, and every pod is the first of its class.
    """
    kinds = -(-nodes // offering)

    def name(number: int) -> str:
        return f"example.com/rare-{number % kinds}"

    def node(number: int) -> Manifest:
        manifest = objects.node(number)
        manifest["status"]["allocatable"][name(number)] = "1000"
        return manifest

    def pod(number: int) -> Manifest:
        manifest = objects.pod(f"pod-{number:06d}")
        resources = manifest["spec"]["containers"][0]["resources"]
        resources["requests"][name(number)] = "1"
        resources["limits"] = {name(number): "1"}
        return manifest

    return Scenario(
        f"rare-{offering}",
        f"an extended resource of {offering} node{'s' if offering > 1 else ''}",
        nodes,
        lambda: map(node, range(nodes)),
        [pod(number) for number in range(pods)],
    )


def missing_plugins(scenario: Scenario, bundle: Bundle) -> list[str]:
    """Plugins that *scenario* is about and that no profile of *bundle* runs."""
    shipped = {
        enabled.policy
        for profile in bundle.profiles
        for points in profile.points.values()
        for enabled in points
    }
    return sorted(scenario.needs - shipped)


def run_scenario(
    scenario: Scenario,
    *,
    bundle: Bundle | None = None,
    in_process: bool = False,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> CoreResult:
    """Decide every pod of *scenario* and measure it.

    Args:
        scenario: See there.
        bundle: The policies; None for the shipped ones, those of *scenario* and the default
            profile.
        in_process: Evaluate without the sandbox.
        around: Entered around the decisions, for a profiler.
        progress: Called with a step's name, what is done of it and how much there is.
    """
    bundle = bundle if bundle is not None else build_bundle(scenario.policies, None)
    cache = _cache_of(scenario)
    pods = [read_pod(manifest, number) for number, manifest in enumerate(scenario.pods)]
    evaluator: Evaluator
    if in_process:
        evaluator = InProcessEvaluator(bundle.program)
    else:
        evaluator = sandbox = SandboxEvaluator(bundle.program)
        sandbox.wait_until_ready()  # with all of its processes, as it is soon after a start
    try:
        scheduler = Scheduler(bundle, evaluator)
        with collecting_as_deciding(), around():
            forget_peak()
            timing = _decide_all(scheduler, cache, pods, progress)
        return _result(scenario, scheduler, pods, timing)
    finally:
        evaluator.close()


@dataclass(slots=True)
class _Timing:
    seconds: list[float]
    starts: list[bool]  # this pod is the first of its class
    asked: list[int]
    trips: list[int]
    placed: int = 0
    failed: int = 0
    total: float = 0.0
    first: float = 0.0  # of that, the first decision
    cpu: float = 0.0
    half_rss: float = 0.0
    rss: float = 0.0
    others_share: float = 0.0
    peak: float = 0.0


def _decide_all(
    scheduler: Scheduler,
    cache: Cache,
    pods: Sequence[Pod],
    progress: Callable[[str, int, int], None],
) -> _Timing:
    timing = _Timing([], [], [], [])
    memo = scheduler.memo
    me = os.getpid()
    cpu = usage_of(me).cpu_seconds
    machine = Machine()
    seen: set[bytes] = set()
    clock = time.perf_counter
    busy = 0.0
    for number, pod in enumerate(pods):
        shape = _shape_of(pod)
        timing.starts.append(shape not in seen)
        seen.add(shape)
        asked, trips = memo.asked, memo.round_trips
        started = clock()
        decision = scheduler.schedule(pod, cache.snapshot())
        if decision.eviction is not None:
            # As in a cluster: the victims are deleted, and the pod is decided again.
            for victim in decision.eviction.victims:
                cache.remove_pod(victim)
            decision = scheduler.schedule(pod, cache.snapshot())
        decided = clock()
        if decision.node is not None:
            cache.assume(pod, decision.node)
            timing.placed += 1
        elif decision.is_error:
            timing.failed += 1
        busy += clock() - started
        timing.first = timing.first or busy
        timing.seconds.append(decided - started)
        timing.asked.append(memo.asked - asked)
        timing.trips.append(memo.round_trips - trips)
        if number == len(pods) // 2:
            timing.half_rss = resident_mib_of(me)
        if number % 64 == 0:
            progress("deciding pods", number, len(pods))
    timing.total = busy
    usage = usage_of(me)
    timing.cpu = usage.cpu_seconds - cpu
    timing.others_share = machine.others_share(timing.cpu)
    timing.peak = usage.peak_mib
    timing.rss = resident_mib_of(me)
    return timing


def _result(
    scenario: Scenario, scheduler: Scheduler, pods: Sequence[Pod], timing: _Timing
) -> CoreResult:
    later = [n for n in range(len(pods)) if not timing.starts[n]] or list(range(len(pods)))
    ascending = sorted(timing.seconds[n] for n in later)
    profile = scheduler.profile_of(pods[0])
    assert profile is not None
    hooks = len(profile.at("filter")) + len(profile.at("score"))
    triples = len(pods) * scenario.node_count * hooks
    return CoreResult(
        scenario=scenario.name,
        title=scenario.title,
        nodes=scenario.node_count,
        pods=len(pods),
        placed=timing.placed,
        failed=timing.failed,
        classes=sum(timing.starts),
        hooks=hooks,
        pods_per_second=(len(pods) - 1) / (timing.total - timing.first) if len(pods) > 1 else 0.0,
        pods_per_second_with_first=len(pods) / timing.total,
        first_ms=timing.seconds[0] * 1000,
        p50_ms=percentile(ascending, 0.50) * 1000,
        p99_ms=percentile(ascending, 0.99) * 1000,
        worst_ms=ascending[-1] * 1000,
        evaluations=sum(timing.asked[n] for n in later) / len(later),
        round_trips=sum(timing.trips[n] for n in later) / len(later),
        reuse=1 - sum(timing.asked) / triples,
        us_per_triple=timing.total * 1e6 / triples,
        cpu_ms=timing.cpu * 1000 / len(pods),
        peak_mib=timing.peak,
        memory_growth_mib=timing.rss - timing.half_rss,
        others_share=timing.others_share,
    )


def _cache_of(scenario: Scenario) -> Cache:
    cache = Cache()
    for manifest in scenario.make_nodes():
        cache.add_node(Node.from_raw(msgspec.json.encode(manifest)))
    existing = (m for m in scenario.objects if m["kind"] == "Pod")
    for number, manifest in enumerate(itertools.chain(existing, scenario.make_placed())):
        cache.add_pod(read_pod(manifest, 10_000_000 + number))
    for manifest in scenario.objects:
        if manifest["kind"] in _PLURALS:
            plural, record = _PLURALS[manifest["kind"]]
            cache.objects.put(plural, api.from_plain(record, manifest))
    return cache


def _shape_of(pod: Pod) -> bytes:
    """A key that is the same for pods that are alike to every policy: all but their names."""
    return msgspec.json.encode((pod.manifest.spec, pod.namespace, sorted(pod.labels.items())))
