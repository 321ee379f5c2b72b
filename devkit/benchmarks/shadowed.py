"""What a shadow costs the decisions that it compares: the same load with and without one.

Owns the scheduler with a shadow that never ends, and the figures. The load is `plain` of
`make bench`.
"""

import asyncio
import re
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from devkit.benchmarks import report
from devkit.benchmarks.measure import Measurement, Settings, measure
from devkit.benchmarks.objects import NAMESPACE
from devkit.benchmarks.rolling import POLICIES, write_map
from devkit.benchmarks.subjects import Starsched, SubjectError
from devkit.benchmarks.workloads import WORKLOADS
from engine.policy.bundle import build_bundle
from tests.controlplane import ControlPlane

KINDS: Final = ("without", "shadowed")
FIGURES: Final = ("pods_per_second", "p99_ms", "decision_p99_ms", "scheduler_cpu_ms")

_PATIENCE: Final = 60.0
_TASTE: Final = '''"""Prefers nodes of a pool.

Hooks: score. Reads: node.labels["pool"].
"""

def score(pod, node):
    return 100 if node.labels.get("pool") == "pool-1" else 0
'''
# Decisions enough for any load, and days: the shadow runs all the time.
_ROLLOUT: Final = {"shadow": {"duration": "24h", "compared": 1_000_000}}
_CONFIG: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: taste}]
"""
_BUCKET: Final = re.compile(
    r"^scheduler_scheduling_algorithm_duration_seconds_bucket"
    r'\{[^}]*le="([^"]+)"[^}]*\} ([\d.e+]+)$',
    re.MULTILINE,
)


class Shadowed(Starsched):
    """Ours, with an edit in its shadow from the start to the end, or without one."""

    def __init__(self, *, is_shadowed: bool) -> None:
        super().__init__(f"configmap:{NAMESPACE}/{POLICIES}")
        self._is_shadowed = is_shadowed
        self.shadow: dict[str, Any] = {}
        self.decision_p99_ms = 0.0
        self._started_at = self.shadow_seconds = 0.0

    async def start(self, plane: ControlPlane, directory: Path) -> float:
        """As `Subject.start`; returns once the edit is in its shadow."""
        runtime = {"apiVersion": "starsched.dev/v1", "kind": "PolicyRuntime", "rollout": _ROLLOUT}
        files = {
            "config.yaml": _CONFIG,
            "runtime.yaml": yaml.safe_dump(runtime),
            "taste.star": _TASTE,
        }
        await write_map(plane, POLICIES, files)
        seconds = await super().start(plane, directory)
        if self._is_shadowed:
            files["taste.star"] += "\n# The same in other words.\n"
            revision = build_bundle(files).revision
            await write_map(plane, POLICIES, files)
            ends_at = time.monotonic() + _PATIENCE
            while not self._is_in_shadow(await asyncio.to_thread(self._read, "/rollout"), revision):
                if time.monotonic() > ends_at:
                    raise SubjectError(f"no shadow began in {_PATIENCE:.0f} s\n{self.log_tail()}")
                await asyncio.sleep(0.1)
            self._started_at = time.monotonic()
        return seconds

    def _is_in_shadow(self, answer: bytes, revision: str) -> bool:
        page = msgspec.json.decode(answer)
        return bool(page["candidate"] == revision and page["shadow"] is not None)

    def stop(self) -> int | None:
        """As `Subject.stop`, once the figures are read."""
        if self._process is not None and self._process.poll() is None:
            self.decision_p99_ms = 1000 * percentile_of(self._read("/metrics").decode(), 0.99)
            self.shadow = msgspec.json.decode(self._read("/rollout"))["shadow"] or {}
            self.shadow_seconds = time.monotonic() - self._started_at
        return super().stop()

    def _read(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return bytes(answer.read())


def percentile_of(metrics: str, share: float) -> float:
    """Seconds below which *share* of the decisions lie, by the histogram's bounds; 0 of none."""
    buckets = sorted((float(bound), float(count)) for bound, count in _BUCKET.findall(metrics))
    wanted = share * buckets[-1][1] if buckets else 0.0
    low = below = 0.0
    for bound, count in buckets:
        if count >= wanted and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return 0.0


async def measure_cost(
    settings: Settings, repeat: int, reporter: report.Reporter
) -> dict[str, Any]:
    """The load with and without a shadow, in turn."""
    runs: dict[str, list[Measurement]] = {kind: [] for kind in KINDS}
    decisions: dict[str, list[float]] = {kind: [] for kind in KINDS}
    compared, decided, seconds = 0, 0, 0.0
    for number in range(repeat):
        # Each of them goes first as often.
        for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
            subject = Shadowed(is_shadowed=kind == "shadowed")
            with reporter.part(report.titled(f"plain, {kind}", number, repeat)):
                found = await measure(subject, WORKLOADS["plain"], settings, reporter.step)
            runs[kind].append(found)
            decisions[kind].append(subject.decision_p99_ms)
            if subject.shadow:
                compared += subject.shadow["compared"]
                decided += subject.shadow["decided"]
                seconds += subject.shadow_seconds
    return {
        "compared": compared,
        "decided": decided,
        "compared_per_second": round(compared / seconds, 1) if seconds else 0.0,
        "ratios": _ratios(runs["without"], runs["shadowed"]),
        "runs": {
            kind: {
                **report.medians([one.as_dict() for one in found]),
                "decision_p99_ms": round(report.median(decisions[kind]), 3),
            }
            for kind, found in runs.items()
        },
    }


def _ratios(without: Sequence[Measurement], shadowed: Sequence[Measurement]) -> list[float]:
    """Pods per second with a shadow over those without, by round."""
    return [
        round(b.pods_per_second / a.pods_per_second, 3)
        for a, b in zip(without, shadowed, strict=True)
    ]
