"""Policy texts: checked, linted, formatted, compiled, and asked about a pod in the sandbox."""

import functools
import zlib
from typing import Final

from prometheus_client import CollectorRegistry

from engine.core.caching.cache import Cache
from engine.core.kernel.events import (
    NODES,
    PODS,
    LeadershipAcquired,
    ObjectChanged,
    RevisionSwitched,
)
from engine.core.kernel.instructions import Instruction, ReportFault
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.plugins.registry import make_plugins
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import Evaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.warm_pool import WarmPool
from engine.telemetry.metrics import Metrics
from tests.builders import node_manifest, pod_manifest
from tests.profiles import only
from workbench.formatting import FormatError, formatted
from workbench.lint.linter import lint_files

#: One input of so many is linted, for which every shipped policy is parsed.
_LINTED_OF: Final = 8
#: One of so many runs in the sandbox, whose process has to be made for it.
_RUNS_OF: Final = 64

_LIMITS: Final = """
apiVersion: starsched.dev/v1
kind: PolicyRuntime
limits: {steps: 20000, deadline: 500ms, memory: 256Mi}
"""
_FILES: Final = {"config.yaml": only("fuzzed"), "limits.yaml": _LIMITS}


def run(data: bytes) -> None:
    """Hand *data* to everything that reads a policy."""
    text = data.decode(errors="replace")
    files = {"fuzzed.star": text}
    chosen = zlib.crc32(data)
    if chosen % _LINTED_OF == 0:
        lint_files(files)
    _format(text)
    try:
        bundle = build_bundle({**_FILES, **files})
    except PolicyErrors as error:
        str(error)
        return
    if chosen % _RUNS_OF == 0:
        try:
            evaluator = SandboxEvaluator(bundle.program, _pool())
        except PolicyErrors:
            return
        with evaluator:
            decide_a_pod(bundle, evaluator)


def _format(text: str) -> None:
    try:
        once = formatted(text)
    except FormatError:
        return
    assert formatted(once) == once, "formatting twice is not formatting once"


@functools.cache
def _pool() -> WarmPool:
    return WarmPool()


@functools.cache
def metrics() -> Metrics:
    """Metrics for every kernel: making them takes longer than most inputs."""
    return Metrics(CollectorRegistry())


@functools.cache
def _cluster() -> tuple[list[Node], list[Pod]]:
    labels = {"topology.kubernetes.io/zone": "a", "app": "web"}
    nodes = [
        Node.from_plain(node_manifest(name, cpu=4, memory="8Gi", labels=labels)) for name in "ab"
    ]
    placed = pod_manifest("placed", cpu=1, labels=labels, node="a")
    waiting = pod_manifest("waiting", cpu="500m", memory="1Gi", labels=labels)
    return nodes, [Pod.from_plain(one) for one in (placed, waiting)]


def decide_a_pod(bundle: Bundle, evaluator: Evaluator) -> None:
    """Have *bundle* decide about a pod in a small cluster."""
    nodes, pods = _cluster()
    kernel = kernel_of(bundle, evaluator)
    for kind, objects in ((NODES, nodes), (PODS, pods)):
        for one in objects:
            survived(kernel.handle(ObjectChanged(kind, None, one), 0.0))
    survived(decided(kernel.decide(1.0)))
    kernel.check_invariants()


def kernel_of(bundle: Bundle, evaluator: Evaluator) -> Kernel:
    """A kernel that leads, without a cluster."""
    cache = Cache()
    kernel = Kernel(cache, make_plugins(cache.objects), metrics=metrics())
    survived(kernel.handle(RevisionSwitched(Scheduler(bundle, evaluator)), 0.0))
    survived(kernel.handle(LeadershipAcquired(), 0.0))
    return kernel


def survived(instructions: list[Instruction]) -> None:
    """Raise what the kernel reports as a fault of its own."""
    for one in instructions:
        if isinstance(one, ReportFault):
            raise one.error
