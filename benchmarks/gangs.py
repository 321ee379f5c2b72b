"""Decisions about groups: the kernel, its queue and the sandbox, without an API server.

Owns the groups that are decided and the timing. A decision is about a whole group: its pods are
taken out of the queue, placed one after the other, and all let through or all put back.
"""

import gc
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from benchmarks import objects
from benchmarks.load import percentile
from benchmarks.measure import Machine
from benchmarks.processes import usage_of
from engine.caching.cache import Cache
from engine.kernel.events import PODS, LeadershipAcquired, ObjectChanged, RevisionSwitched
from engine.kernel.instructions import Bind
from engine.kernel.kernel import Kernel, decided
from engine.lib import garbage
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.pod_group import POD_GROUPS, PodGroup
from engine.policy.bundle import build_bundle
from engine.policy.sandbox.process import SandboxEvaluator
from engine.scheduling.scheduling_cycle import Scheduler
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


@dataclass(frozen=True, slots=True)
class Gangs:
    """Groups of *size* pods to decide on *nodes* nodes: PodGroups, or pods with labels alone."""

    name: str
    title: str
    nodes: int
    groups: int
    size: int
    has_labels: bool = False


@dataclass(frozen=True, slots=True)
class GangResult:
    """Figures of one run: milliseconds of decisions, one a group, and of CPU a pod.

    `failed` are the pods that found no node. `first_ms` is the first decision of all, which
    evaluates everything.
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

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


def scenarios(nodes: int, groups: int, members: int) -> list[Gangs]:
    """*groups* of three by PodGroup and by label, and one of *members*."""
    return [
        Gangs("gang", "one PodGroup", nodes, 1, members),
        Gangs("gangs", "PodGroups of 3", nodes, groups, 3),
        Gangs("label-gangs", "groups of 3 by label", nodes, groups, 3, has_labels=True),
    ]


def run_gangs(
    gangs: Gangs, *, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> GangResult:
    """Decide all groups and measure it; *around* is entered around the decisions."""
    bundle = build_bundle({"config.yaml": _BY_LABEL} if gangs.has_labels else {}, None)
    cache = Cache()
    for number in range(gangs.nodes):
        cache.add_node(Node.from_raw(msgspec.json.encode(objects.node(number))))
    pods = [_pod(gangs, number) for number in range(gangs.groups * gangs.size)]
    evaluator = SandboxEvaluator(bundle.program)
    try:
        evaluator.wait_until_ready()
        kernel = Kernel(cache, {}, metrics=Metrics(CollectorRegistry()))
        kernel.handle(RevisionSwitched(Scheduler(bundle, evaluator)), 0.0)
        kernel.handle(LeadershipAcquired(), 0.0)
        for number in range(0 if gangs.has_labels else gangs.groups):
            kernel.handle(ObjectChanged(POD_GROUPS, None, _pod_group(gangs, number)), 0.0)
        gc.collect()
        gc.freeze()
        with garbage.thresholds(*garbage.WHILE_DECIDING), around():
            return _decide(gangs, kernel, pods)
    finally:
        gc.unfreeze()
        evaluator.close()


def _decide(gangs: Gangs, kernel: Kernel, pods: Sequence[Pod]) -> GangResult:
    me, machine = os.getpid(), Machine()
    cpu = usage_of(me).cpu_seconds
    seconds = []
    placed = 0
    # A group comes and is decided before the next one.
    for first in range(0, len(pods), gangs.size):
        for pod in pods[first : first + gangs.size]:
            kernel.handle(ObjectChanged(PODS, None, pod), 0.0)
        started = time.perf_counter()
        done = decided(kernel.decide(0.0))
        seconds.append(time.perf_counter() - started)
        placed += sum(isinstance(one, Bind) for one in done)
    cpu = usage_of(me).cpu_seconds - cpu
    ascending = sorted(seconds)
    return GangResult(
        gangs.name,
        gangs.title,
        gangs.nodes,
        gangs.groups,
        len(pods),
        len(pods) - placed,
        first_ms=1000 * seconds[0],
        p50_ms=1000 * percentile(ascending, 0.50),
        p99_ms=1000 * percentile(ascending, 0.99),
        pods_per_second=placed / sum(seconds),
        cpu_ms=1000 * cpu / len(pods),
        others_share=machine.others_share(cpu),
    )


def _pod(gangs: Gangs, number: int) -> Pod:
    """The pod with *number*; those of a group follow each other."""
    group = f"gang-{number // gangs.size:06d}"
    name = f"pod-{number:06d}"
    if gangs.has_labels:
        manifest = objects.pod(name, labels={_NAME: group, _WANTED: str(gangs.size)})
    else:
        manifest = objects.pod(name, spec={"schedulingGroup": {"podGroupName": group}})
    manifest["metadata"]["uid"] = f"00000000-0000-4000-8000-{number:012d}"
    return Pod.from_raw(msgspec.json.encode(manifest))


def _pod_group(gangs: Gangs, number: int) -> PodGroup:
    manifest = objects.pod_group(f"gang-{number:06d}", gangs.size)
    return msgspec.convert(manifest, PodGroup)
