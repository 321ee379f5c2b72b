"""What large pods cost: CPU time of decisions, and memory before, at most, and when they are gone.

Owns the measurement. Each shape has a process of its own: memory that was taken once is seldom
given back as a whole.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from devkit.benchmarks.costly_pods import COSTLY, PLAIN, Shape
from devkit.benchmarks.kernel_decisions import collecting_as_deciding, kernel_on
from devkit.benchmarks.memory import memory_by_part
from devkit.benchmarks.processes import usage_of
from engine.core.kernel.events import PODS, Bound, ObjectChanged
from engine.core.kernel.instructions import Bind
from engine.core.kernel.kernel import Kernel, decided
from engine.core.model.pod import Pod
from engine.io.informers import pod_decoder
from engine.lib import free_memory

_NODES: Final = 100
# What a call may take is not measured here, and a busy machine is slow.
_RUNTIME: Final = {
    "runtime.yaml": ("apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {deadline: 30s}\n")
}


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of *pods* pods of one shape, CPU and memory of the sandbox included.

    `bytes` are those of one pod. `gone_mib` is when all pods were deleted, and one small one was
    decided.
    """

    shape: str
    title: str
    pods: int
    bytes: int
    bound: int
    cpu_ms: float
    before_mib: float
    peak_mib: float
    gone_mib: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}


def measure(name: str, pods: int) -> Result:
    """The figures of the shape *name*, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_measure, name, pods).result()


def _measure(name: str, count: int) -> Result:
    shape = COSTLY.get(name, PLAIN)
    texts = [_text(shape, number) for number in range(count)]
    with kernel_on(_NODES, _RUNTIME) as kernel, collecting_as_deciding():
        world = _World(kernel)
        world.decide(_text(PLAIN, count))
        world.remove_all()
        before = _mib()
        cpu = usage_of(os.getpid()).cpu_seconds
        bound = sum(world.decide(text) for text in texts)
        cpu = usage_of(os.getpid()).cpu_seconds - cpu
        peak = _mib()
        world.remove_all()
        world.decide(_text(PLAIN, count + 1))
        free_memory.give_back()
        return Result(
            name,
            f"{shape.count:,} {shape.what}" if shape is not PLAIN else "plain",
            count,
            len(texts[0]),
            bound,
            1000 * cpu / count,
            before,
            peak,
            _mib(),
        )


class _World:
    """A kernel and its pods, whose bindings all succeed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._decode = pod_decoder()
        self._pods: list[Pod] = []

    def decide(self, text: bytes) -> int:
        """Decide the pod of *text*, which is bound then; the number of bindings."""
        pod, bound = self._decode(text), 0
        self._kernel.handle(ObjectChanged(PODS, None, pod), 0.0)
        for one in decided(self._kernel.decide(0.0)):
            if isinstance(one, Bind):
                self._kernel.handle(Bound(one.placement), 0.0)
                placed = self._decode(_on(text, one.placement.node))
                self._kernel.handle(ObjectChanged(PODS, pod, placed), 0.0)
                pod, bound = placed, bound + 1
        self._pods.append(pod)
        return bound

    def remove_all(self) -> None:
        """Delete every pod."""
        while self._pods:
            self._kernel.handle(ObjectChanged(PODS, self._pods.pop(), None), 0.0)


def _text(shape: Shape, number: int) -> bytes:
    manifest = shape.pod(number)
    manifest["metadata"]["uid"] = f"uid-{number}"
    return msgspec.json.encode(manifest)


def _on(text: bytes, node: str) -> bytes:
    manifest = msgspec.json.decode(text)
    manifest["spec"]["nodeName"] = node
    return msgspec.json.encode(manifest)


def _mib() -> float:
    return memory_by_part(os.getpid())["both"].rss_mib
