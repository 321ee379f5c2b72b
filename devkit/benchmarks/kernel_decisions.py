"""Decisions of the kernel: its queue, its permits and the sandbox, without an API server.

Owns what is decided so and the timing: groups, which are placed all or not at all, and pods with
claims for devices. A decision is about a whole group: its pods are taken out of the queue, placed
one after the other, and all let through or all put back.
"""

import gc
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from devkit.benchmarks import objects, trees
from devkit.benchmarks.load import percentile
from devkit.benchmarks.measure import Machine
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.processes import usage_of
from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    PODS,
    Bound,
    LeadershipAcquired,
    ObjectChanged,
    RevisionSwitched,
)
from engine.core.kernel.instructions import Bind
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.io.informers import OTHER_OBJECTS
from engine.lib import garbage
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call
from engine.policy.metered import Evaluations, MeteredEvaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.telemetry.metrics import Metrics

_NAME: Final = "example.com/group"
_WANTED: Final = "example.com/min"
_BY_LABEL: Final = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    pluginConfig:
      - name: GangScheduling
        args: {{groupLabel: {_NAME}, minCountLabel: {_WANTED}}}
"""
_RECORDS: Final = {resource.kind: (resource.plural, record) for resource, record in OTHER_OBJECTS}


@dataclass(frozen=True, slots=True)
class Decisions:
    """*groups* decisions, each about *size* pods, on *nodes* nodes with *others* beside them.

    `classes` are how many decisions at the beginning are the first of their class: they are in the
    throughput, and in no percentile. `are_waiting`: all pods are there before the first decision.
    `pods_end`: when none may start, the pod that was placed first ends.
    """

    name: str
    title: str
    nodes: int
    groups: int
    size: int
    make_pod: Callable[[int], Manifest]
    others: Callable[[], Iterable[Manifest]] = tuple
    classes: int = 0
    are_waiting: bool = False
    pods_end: bool = False
    configuration: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one run: milliseconds of decisions, one a group, and of CPU a pod.

    `failed` are the pods that found no node. `first_ms` is the first decision of all, which
    evaluates everything. Of a tree of queues, per pod that was placed: how often its policy was
    asked for keys (`keys`), shares and what is passed up (`shares`), and quotas (`admits`), what
    was answered from memory left out; how many requests were asked about again because something
    became free (`wakes`), and how many of these in vain.
    """

    scenario: str
    title: str
    nodes: int
    groups: int
    pods: int
    failed: int
    first_ms: float
    p50_ms: float
    p99_ms: float
    pods_per_second: float
    cpu_ms: float
    others_share: float
    keys: float
    shares: float
    admits: float
    wakes: float
    in_vain: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


def of_groups(nodes: int, groups: int, members: int) -> list[Decisions]:
    """*groups* of three by PodGroup and by label, and one of *members*."""

    def by_group(size: int) -> Callable[[int], Manifest]:
        return lambda n: objects.pod(
            f"pod-{n:06d}", spec={"schedulingGroup": {"podGroupName": f"gang-{n // size:06d}"}}
        )

    def by_label(n: int) -> Manifest:
        return objects.pod(f"pod-{n:06d}", labels={_NAME: f"gang-{n // 3:06d}", _WANTED: "3"})

    def pod_groups(count: int, size: int) -> Callable[[], Iterable[Manifest]]:
        return lambda: (objects.pod_group(f"gang-{n:06d}", size) for n in range(count))

    return [
        Decisions(
            "gang", "one PodGroup", nodes, 1, members, by_group(members), pod_groups(1, members)
        ),
        Decisions(
            "gangs", "PodGroups of 3", nodes, groups, 3, by_group(3), pod_groups(groups, 3)
        ),
        Decisions(
            "label-gangs", "groups of 3 by label", nodes, groups, 3, by_label,
            configuration={"config.yaml": _BY_LABEL},
        ),
    ]  # fmt: skip


def of_claims(nodes: int, pods: int) -> list[Decisions]:
    """*pods* pods with a claim for one or two of the eight devices of a node, alone or by fives."""

    def named(sharing: int) -> Callable[[int], Manifest]:
        def pod(number: int) -> Manifest:
            claim = number // sharing
            name = {"name": "devices", "resourceClaimName": objects.claim_name(claim)}
            return objects.pod(
                f"pod-{number:06d}",
                labels={"app": f"app-{claim % objects.CLAIM_KINDS}"},
                spec={"resourceClaims": [name]},
            )

        return pod

    def others() -> Iterable[Manifest]:
        yield objects.device_class()
        yield from map(objects.resource_slice, range(nodes))
        yield from map(objects.claim, range(pods))

    return [
        Decisions(
            name, title, nodes, pods, 1, named(sharing), others, sharing * objects.CLAIM_KINDS
        )
        for name, title, sharing in (
            ("claims", "pods with a claim, 8 devices a node", 1),
            ("shared-claims", "the same, five pods a claim", 5),
        )
    ]


def of_queues(nodes: int, pods: int, queues: int) -> list[Decisions]:
    """*pods* pods of so many *queues* in three levels, by each of the rules of `trees`.

    All wait at first: whose turn it is decides among all queues. Where pods end, the one that was
    placed first does when no other may start.
    """
    return [
        Decisions(
            f"queues-{name}", rules.title, nodes, pods, 1, partial(trees.pod, queues=queues),
            are_waiting=True, pods_end=rules.pods_end, configuration=trees.files_of(rules, queues),
        )
        for name, rules in trees.RULES.items()
        if rules.policy or not rules.pods_end  # without a tree nothing waits for an end
    ]  # fmt: skip


class Asked:
    """Counts what the policy of a tree is asked, by hook."""

    def __init__(self) -> None:
        self.by_hook: Counter[str] = Counter()
        self.evaluations = Evaluations()
        self.evaluations.on_round_trip = self._note

    def _note(self, seconds: float, calls: Sequence[Call]) -> None:
        self.by_hook.update(call.hook for call in calls)


@contextmanager
def kernel_on(
    nodes: int,
    configuration: Mapping[str, str] | None = None,
    evaluations: Evaluations | None = None,
) -> Iterator[Kernel]:
    """A kernel that leads on *nodes* nodes, by the shipped policies in a sandbox of their own.

    What the sandbox is asked is counted in *evaluations*.
    """
    bundle = build_bundle(configuration or {}, None)
    cache = Cache()
    for number in range(nodes):
        cache.add_node(Node.from_raw(msgspec.json.encode(objects.node(number))))
    sandbox = SandboxEvaluator(bundle.program)
    evaluator = MeteredEvaluator(sandbox, bundle, evaluations or Evaluations())
    try:
        sandbox.wait_until_ready()
        plugins = make_plugins(cache.objects)
        kernel = Kernel(cache, plugins, metrics=Metrics(CollectorRegistry()))
        kernel.handle(RevisionSwitched(Scheduler(bundle, evaluator, plugins=plugins)), 0.0)
        kernel.handle(LeadershipAcquired(), 0.0)
        yield kernel
    finally:
        evaluator.close()


@contextmanager
def collecting_as_deciding() -> Iterator[None]:
    """Collect garbage as the scheduler's process does after its first lists."""
    gc.collect()
    gc.freeze()
    try:
        with garbage.thresholds(*garbage.WHILE_DECIDING):
            yield
    finally:
        gc.unfreeze()


def read(manifest: Manifest) -> tuple[str, Any]:
    """The resource name and the record of an object that is neither a pod nor a node."""
    plural, record = _RECORDS[manifest["kind"]]
    return plural, msgspec.convert(manifest, record)


def read_pod(manifest: Manifest, number: int) -> Pod:
    """The pod as the API server would show it: with a uid."""
    metadata = {**manifest["metadata"], "uid": f"00000000-0000-4000-8000-{number:012d}"}
    return Pod.from_raw(msgspec.json.encode({**manifest, "metadata": metadata}))


def run_decisions(
    scenario: Decisions, *, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Result:
    """Make all decisions and measure them; *around* is entered around them."""
    pods = [read_pod(scenario.make_pod(n), n) for n in range(scenario.groups * scenario.size)]
    asked = Asked()
    with kernel_on(scenario.nodes, scenario.configuration, asked.evaluations) as kernel:
        for manifest in scenario.others():
            plural, record = read(manifest)
            kernel.handle(ObjectChanged(plural, None, record), 0.0)
        with collecting_as_deciding(), around():
            return _decide(scenario, kernel, pods, asked)


def _decide(scenario: Decisions, kernel: Kernel, pods: Sequence[Pod], asked: Asked) -> Result:
    me, machine = os.getpid(), Machine()
    cpu = usage_of(me).cpu_seconds
    seconds = []
    placed = 0
    began = time.perf_counter()
    running = deque[Placement]()
    for pod in pods if scenario.are_waiting else ():
        kernel.handle(ObjectChanged(PODS, None, pod), 0.0)
    # A group comes and is decided before the next one.
    for first in range(0, len(pods), scenario.size):
        for pod in () if scenario.are_waiting else pods[first : first + scenario.size]:
            kernel.handle(ObjectChanged(PODS, None, pod), 0.0)
        started = time.perf_counter()
        now = started - began  # shares are computed every so often
        bound = _bound(kernel, now)
        while scenario.pods_end and not bound and (running or kernel.queue.has_poppable):
            if not kernel.queue.has_poppable:
                _end(kernel, running.popleft(), now)
            bound = _bound(kernel, now)
        seconds.append(time.perf_counter() - started)
        placed += len(bound)
        running.extend(bound if scenario.pods_end else ())
    cpu = usage_of(me).cpu_seconds - cpu
    ascending = sorted(seconds[scenario.classes :] or seconds)
    per_pod = 1 / max(1, placed)
    hooks = asked.by_hook
    return Result(
        scenario.name,
        scenario.title,
        scenario.nodes,
        scenario.groups,
        len(pods),
        len(pods) - placed,
        first_ms=1000 * seconds[0],
        p50_ms=1000 * percentile(ascending, 0.50),
        p99_ms=1000 * percentile(ascending, 0.99),
        pods_per_second=placed / sum(seconds),
        cpu_ms=1000 * cpu / len(pods),
        others_share=machine.others_share(cpu),
        keys=hooks["turn_key"] * per_pod,
        shares=(hooks["shares"] + hooks["passes_up"]) * per_pod,
        admits=hooks["admit"] * per_pod,
        wakes=kernel.turns.woken * per_pod,
        in_vain=kernel.turns.woken_in_vain * per_pod,
    )


def _bound(kernel: Kernel, now: float) -> list[Placement]:
    """Decide once: what is bound by that."""
    return [one.placement for one in decided(kernel.decide(now)) if isinstance(one, Bind)]


def _end(kernel: Kernel, placement: Placement, now: float) -> None:
    """The pod was bound, ran, and is gone."""
    pod = placement.pod
    there = pod.with_node(placement.node)
    for event in (
        Bound(placement),
        ObjectChanged(PODS, pod, there),
        ObjectChanged(PODS, there, None),
    ):
        kernel.handle(event, now)
