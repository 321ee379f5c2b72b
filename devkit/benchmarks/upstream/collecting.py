"""What is measured between the start and the end of a collection.

Owns the sampling: as scheduler_perf does it, for its thresholds, and as `make bench` does.
"""

import itertools
import math
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from devkit.benchmarks.load import percentile
from devkit.benchmarks.measure import Machine
from devkit.benchmarks.report import median
from devkit.benchmarks.upstream.pods import BoundPods, Labels

#: Seconds between two samples.
_INTERVAL: Final = 1.0


@dataclass(frozen=True, slots=True)
class Collected:
    """Figures of one collection.

    Attributes:
        name: Of the collection; "" for the only one of a workload.
        pods: Bound meanwhile.
        seconds: From its start to the last binding.
        sampled: Pods per second as scheduler_perf averages them over the seconds, without the first
            one; 0 if it took less than two.
        p50_ms, p99_ms: From creation to binding, of pods that were created meanwhile.
        cpu_ms: Of the scheduler, per pod.
        servers: The share of the machine's time that went, up to the last binding, to everything
            but the scheduler: the API server, etcd, the load. Where that is almost all of it, no
            scheduler that writes as much can be faster.
        load: The share of the time in which the load itself was at work, and did not wait for pods.
            Where that is almost all of it, no scheduler can be faster.
        is_idle: The CPU time is until the scheduler was idle again, what it wrote later included.
    """

    name: str
    pods: int
    seconds: float
    sampled: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    servers: float
    load: float
    is_idle: bool

    @property
    def pods_per_second(self) -> float:
        """Pods bound per second."""
        return self.pods / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, rounded to what is meaningful."""
        found = asdict(self) | {"pods_per_second": self.pods_per_second}
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}


@dataclass(slots=True)
class Collector:
    """Counts the pods of *namespaces* with *labels* that are bound from now on."""

    name: str
    namespaces: Collection[str]
    labels: Labels | None
    bound: BoundPods
    cpu: float  # seconds of the scheduler, so far
    load_waited: float = 0.0  # seconds that the load waited for pods, so far
    started: float = field(default_factory=time.monotonic)
    _machine: Machine = field(default_factory=Machine)
    _at: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bound.on_bound.append(self._note)

    def _note(self, namespace: str, name: str, labels: Labels) -> None:
        if namespace in self.namespaces and (self.labels or {}).items() <= labels.items():
            self._at.append((f"{namespace}/{name}", time.monotonic()))

    def servers(self, cpu: float) -> float:
        """The share of the machine that went to everything but the scheduler; *cpu* is its, now."""
        return self._machine.others_share(cpu - self.cpu)

    def stop(
        self,
        created_at: dict[str, float],
        cpu: float,
        load_waited: float,
        *,
        servers: float,
        is_idle: bool,
    ) -> Collected:
        """The figures. *created_at* is by `namespace/name`, *cpu* and *load_waited* are of now."""
        self.bound.on_bound.remove(self._note)
        times = [at for _, at in self._at]
        waited = sorted(
            at - created_at[key] for key, at in self._at if created_at.get(key, 0) >= self.started
        )
        per_pod = 1000 / max(1, len(times))
        seconds = max(times, default=self.started) - self.started
        return Collected(
            name=self.name,
            pods=len(times),
            seconds=seconds,
            sampled=sampled(self.started, times),
            p50_ms=1000 * median(waited) if waited else 0.0,
            p99_ms=1000 * percentile(waited, 0.99),
            cpu_ms=(cpu - self.cpu) * per_pod,
            servers=servers,
            load=max(0.0, 1 - (load_waited - self.load_waited) / seconds) if seconds else 0.0,
            is_idle=is_idle,
        )

    @property
    def count(self) -> int:
        """How many pods were bound so far."""
        return len(self._at)


def sampled(started: float, times: Collection[float]) -> float:
    """Pods per second, averaged over the seconds as scheduler_perf does.

    The second in which the first pod is bound does not count. Seconds without any share in the
    average of the next one with some. *times*, when pods were bound, are in order.
    """
    counts: dict[int, int] = {}
    for at in times:
        second = math.floor((at - started) / _INTERVAL)
        counts[second] = counts.get(second, 0) + 1
    seconds = sorted(counts)
    samples: list[float] = []
    for before, second in itertools.pairwise(seconds):
        gap = second - before
        samples += [counts[second] / (gap * _INTERVAL)] * gap
    return sum(samples) / len(samples) if samples else 0.0
