"""What the process did in the last hour: a small ring of samples of its own counters.

Owns the ring, the marks of what changed, and their form for the next leader. A sample is what the
counters grew by since the one before, so a page needs no Prometheus to show rates; nothing is kept
beyond the hour.
"""

import asyncio
import math
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

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
_HOUR: Final = 3600.0
_MOST_MARKS: Final = 50
#: Samples of a history are of a minute, and so many bytes of them are kept at most.
_MINUTE: Final = 60.0
_MOST_BYTES: Final = 96 * 1024


class ActivitySample(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the *seconds* before *at*.

    Attributes:
        decisions: Attempts that came to an end, whatever the result.
        bound, unschedulable, errors: By result.
        p50_seconds, p99_seconds: Quantiles of how long decisions took, interpolated within the
            buckets of the metric; null without decisions.
        rejections: Attempts that placed nothing, by the token of the dominant reason.
        waiting: Pods that waited at its end, by place.
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
    waiting: Mapping[str, int] = {}


class ActivityMark(msgspec.Struct, frozen=True):
    """A change that explains others: from *at* on, *text* was the revision, or the leader."""

    at: str
    kind: Literal["policies", "leader"]
    text: str


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What one leader leaves to the next: samples of a minute, and what was in force at the end."""

    samples: tuple[ActivitySample, ...] = ()
    marks: tuple[ActivityMark, ...] = ()
    policies: str = ""
    leader: str = ""


class ActivityPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/activity`: samples and marks of the last hour, the oldest first.

    Samples of leaders before this one are of a minute.
    """

    revision: str
    at: str
    leader: Leader
    interval_seconds: float
    samples: tuple[ActivitySample, ...]
    marks: tuple[ActivityMark, ...] = ()


class Activity:
    """Takes samples of counters.

    Args:
        attempts: By `result` and `profile`.
        latency: Of decisions.
        rejections: By `reason`.
        waiting: How many pods wait, by place.
        present: The revision in force, and the identity of the leader; empty if there is none.
        clock: Dates samples.
        most: How many are kept.
    """

    def __init__(
        self,
        *,
        attempts: Counter,
        latency: Histogram,
        rejections: BoundedCounts,
        waiting: Callable[[], Mapping[str, int]] = dict,
        present: Callable[[], tuple[str, str]] = lambda: ("", ""),
        clock: Clock,
        most: int = MOST_SAMPLES,
    ) -> None:
        self._attempts, self._latency, self._rejections = attempts, latency, rejections
        self._waiting, self._present = waiting, present
        self._clock = clock
        self._ring: deque[ActivitySample] = deque(maxlen=most)
        self._marks: deque[ActivityMark] = deque(maxlen=_MOST_MARKS)
        self._known: tuple[str, str] = "", ""
        self._sampled_at = clock.monotonic()
        self._before = self._readings()

    @property
    def samples(self) -> tuple[ActivitySample, ...]:
        """Those of the last hour, the oldest first."""
        return tuple(one for one in self._ring if self._is_recent(one.at))

    @property
    def marks(self) -> tuple[ActivityMark, ...]:
        """Those of the last hour, the oldest first."""
        return tuple(one for one in self._marks if self._is_recent(one.at))

    def history(self) -> History:
        """What the next leader is to know."""
        minutes = _by_minute(self.samples)
        left = _MOST_BYTES
        kept: list[ActivitySample] = []
        for sample in reversed(minutes):
            left -= len(msgspec.json.encode(sample))
            if left < 0:
                break
            kept.append(sample)
        policies, leader = self._known
        return History(
            samples=tuple(reversed(kept)), marks=self.marks, policies=policies, leader=leader
        )

    def restore(self, history: History) -> None:
        """Go on from what the leader before has left; of what this process saw, what is newer."""
        last = history.samples[-1].at if history.samples else ""
        newer = [one for one in self._ring if one.at > last]
        self._ring.clear()
        self._ring.extend((*history.samples, *newer))
        # What differs now from what was in force then is marked with the next sample.
        self._marks.clear()
        self._marks.extend(history.marks)
        self._known = history.policies, history.leader

    def page(self, revision: str, leader: Leader) -> ActivityPage:
        """The answer of `/activity`."""
        return ActivityPage(
            revision=revision,
            at=at_text(self._clock.now()),
            leader=leader,
            interval_seconds=INTERVAL,
            samples=self.samples,
            marks=self.marks,
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
                waiting={place: count for place, count in self._waiting().items() if count},
            )
        )
        self._mark()
        self._sampled_at, self._before = now, readings

    def _mark(self) -> None:
        """Mark what is another than it was at the last sample."""
        policies, leader = self._present()
        at = at_text(self._clock.now())
        if policies and self._known[0] not in ("", policies):
            self._marks.append(ActivityMark(at, "policies", policies))
        if leader and self._known[1] not in ("", leader):
            self._marks.append(ActivityMark(at, "leader", leader))
        self._known = policies or self._known[0], leader or self._known[1]

    def _is_recent(self, at: str) -> bool:
        return at >= at_text(self._clock.now() - _HOUR)

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


def _by_minute(samples: Iterable[ActivitySample]) -> list[ActivitySample]:
    """*samples* put together to some of a minute; those that are as long stay as they are."""
    found: list[ActivitySample] = []
    parts: list[ActivitySample] = []
    for sample in samples:
        parts.append(sample)
        if sum(part.seconds for part in parts) >= _MINUTE - 1:
            found.append(_together(parts))
            parts = []
    return [*found, _together(parts)] if parts else found


def _together(parts: Sequence[ActivitySample]) -> ActivitySample:
    """One sample for *parts*; of the quantiles, the largest: what they are at most."""
    rejections: Counts[str] = Counts()
    for part in parts:
        rejections.update(part.rejections)
    return msgspec.structs.replace(
        parts[-1],
        seconds=round(sum(part.seconds for part in parts), 3),
        decisions=sum(part.decisions for part in parts),
        bound=sum(part.bound for part in parts),
        unschedulable=sum(part.unschedulable for part in parts),
        errors=sum(part.errors for part in parts),
        p50_seconds=_most(part.p50_seconds for part in parts),
        p99_seconds=_most(part.p99_seconds for part in parts),
        rejections=_largest(rejections),
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


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
