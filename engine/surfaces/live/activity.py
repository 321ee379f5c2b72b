"""What the process did in the last hour: a small ring of samples of its own counters.

Owns the ring. A sample is what the counters grew by since the one before, so a page needs no
Prometheus to show rates; nothing is kept beyond the ring.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from prometheus_client import Counter, Histogram

from engine.lib.clock import Clock
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.moments import at_text
from engine.telemetry.bounded_counts import BoundedCounts

#: Seconds between two samples, and how many of them are kept: an hour.
INTERVAL: Final = 10.0
MOST_SAMPLES: Final = 360
_MOST_REASONS: Final = 12
_OTHER: Final = "other"


class ActivitySample(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the *seconds* before *at*.

    Attributes:
        decisions: Attempts that came to an end, whatever the result.
        bound, unschedulable, errors: By result.
        p50_seconds, p99_seconds: Quantiles of how long decisions took, interpolated within the
            buckets of the metric; null without decisions.
        rejections: Attempts that placed nothing, by the token of the dominant reason.
    """

    at: str
    seconds: float
    decisions: int = 0
    bound: int = 0
    unschedulable: int = 0
    errors: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    rejections: Mapping[str, int] = {}


class ActivityPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/activity`: samples of the last hour, the oldest first."""

    revision: str
    at: str
    leader: Leader
    interval_seconds: float
    samples: tuple[ActivitySample, ...]


class Activity:
    """Takes samples of counters.

    Args:
        attempts: By `result` and `profile`.
        latency: Of decisions.
        rejections: By `reason`.
        clock: Dates samples.
        most: How many are kept.
    """

    def __init__(
        self,
        *,
        attempts: Counter,
        latency: Histogram,
        rejections: BoundedCounts,
        clock: Clock,
        most: int = MOST_SAMPLES,
    ) -> None:
        self._attempts, self._latency, self._rejections = attempts, latency, rejections
        self._clock = clock
        self._ring: deque[ActivitySample] = deque(maxlen=most)
        self._sampled_at = clock.monotonic()
        self._before = self._readings()

    @property
    def samples(self) -> tuple[ActivitySample, ...]:
        """The ring, the oldest sample first."""
        return tuple(self._ring)

    def page(self, revision: str, leader: Leader) -> ActivityPage:
        """The answer of `/activity`."""
        return ActivityPage(
            revision=revision,
            at=at_text(self._clock.now()),
            leader=leader,
            interval_seconds=INTERVAL,
            samples=self.samples,
        )

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.sample()

    def sample(self) -> None:
        """Take a sample of what has happened since the last one."""
        now, readings, before = self._clock.monotonic(), self._readings(), self._before
        results = _grown(readings[0], before[0])
        buckets = _grown(readings[1], before[1])
        self._ring.append(
            ActivitySample(
                at=at_text(self._clock.now()),
                seconds=round(now - self._sampled_at, 3),
                decisions=sum(results.values()),
                bound=results.get("scheduled", 0),
                unschedulable=results.get("unschedulable", 0),
                errors=results.get("error", 0),
                p50_seconds=quantile(buckets, 0.5),
                p99_seconds=quantile(buckets, 0.99),
                rejections=_largest(_grown(readings[2], before[2])),
            )
        )
        self._sampled_at, self._before = now, readings

    def _readings(
        self,
    ) -> tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]]:
        return (
            _read(self._attempts, "_total", "result"),
            _read(self._latency, "_bucket", "le"),
            self._rejections.counts(self._clock.monotonic()),
        )


def quantile(buckets: Mapping[str, int], wanted: float) -> float | None:
    """The quantile *wanted* of cumulative *buckets* by upper bound; None if they are empty."""
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or bounds[-1][1] == 0:
        return None
    rank = wanted * bounds[-1][1]
    lower, below = 0.0, 0
    for bound, count in bounds:
        if count >= rank:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / max(1, count - below)
        lower, below = bound, count
    return lower


def _read(metric: Counter | Histogram, ending: str, label: str) -> dict[str, float]:
    """The samples of *metric* whose name has that *ending*, summed up by *label*."""
    found: dict[str, float] = {}
    for family in metric.collect():
        for one in family.samples:
            if one.name.endswith(ending):
                name = one.labels[label]
                found[name] = found.get(name, 0.0) + one.value
    return found


def _grown(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, int]:
    return {name: round(value - before.get(name, 0.0)) for name, value in now.items()}


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest of *counts*; users name tokens, and a sample must stay small."""
    ordered: Iterable[tuple[str, int]] = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    kept: dict[str, int] = {}
    for name, count in ordered:
        if count > 0:
            short = name if name in kept or len(kept) < _MOST_REASONS else _OTHER
            kept[short] = kept.get(short, 0) + count
    return kept
