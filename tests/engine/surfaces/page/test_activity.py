"""The ring of samples behind `/activity`."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.lib.clock import VirtualClock
from engine.surfaces.live.activity import Activity, quantile
from engine.telemetry.bounded_counts import BoundedCounts


class _Counters:
    def __init__(self, most: int = 3) -> None:
        registry = CollectorRegistry()
        self.attempts = Counter("attempts", "-", ["result", "profile"], registry=registry)
        self.latency = Histogram("latency", "-", buckets=(0.01, 0.1, 1), registry=registry)
        self.rejections = BoundedCounts()
        self.clock = VirtualClock()
        self.attempts.labels("scheduled", "a").inc(100)  # before there was a ring
        self.activity = Activity(
            attempts=self.attempts,
            latency=self.latency,
            rejections=self.rejections,
            clock=self.clock,
            most=most,
        )

    def reject(self, token: str, times: int) -> None:
        for _ in range(times):
            self.rejections.add(token, self.clock.monotonic())

    def sample(self) -> None:
        self.clock.advance(10)
        self.activity.sample()


def test_a_sample_is_what_happened_since_the_one_before() -> None:
    counters = _Counters()
    for profile in ("a", "b"):
        counters.attempts.labels("scheduled", profile).inc(4)
    counters.attempts.labels("unschedulable", "a").inc(3)
    counters.attempts.labels("error", "a").inc()
    counters.reject("InsufficientResources", 3)
    for seconds in (0.005,) * 9 + (0.5,):
        counters.latency.observe(seconds)
    counters.sample()
    (sample,) = counters.activity.samples
    assert (sample.seconds, sample.decisions, sample.bound) == (10.0, 12, 8)
    assert (sample.unschedulable, sample.errors) == (3, 1)
    assert sample.rejections == {"InsufficientResources": 3}
    assert sample.p50_seconds == pytest.approx(0.01 * 5 / 9)
    assert sample.p99_seconds == pytest.approx(0.1 + 0.9 * 0.9)
    counters.sample()
    assert counters.activity.samples[-1].decisions == 0
    assert counters.activity.samples[-1].p50_seconds is None
    assert counters.activity.samples[-1].rejections == {}


def test_the_ring_and_the_reasons_of_a_sample_are_bounded() -> None:
    counters = _Counters(most=3)
    for index in range(50):
        counters.reject(f"Reason{index:02}", index + 1)
    for _ in range(5):
        counters.sample()
    assert len(counters.activity.samples) == 3
    counters = _Counters()
    for index in range(50):
        counters.reject(f"Reason{index:02}", index + 1)
    counters.sample()
    rejections = counters.activity.samples[0].rejections
    assert len(rejections) == 13
    assert sum(rejections.values()) == 50 * 51 / 2
    assert rejections["Reason49"] == 50


@pytest.mark.parametrize(
    ("buckets", "want"),
    [
        ({}, None),
        ({"0.1": 0, "+Inf": 0}, None),
        ({"0.1": 10, "+Inf": 10}, 0.05),
        ({"0.1": 0, "0.2": 10, "+Inf": 10}, 0.15),
        ({"0.1": 1, "+Inf": 10}, 0.1),
    ],
)
def test_quantiles(buckets: dict[str, int], want: float | None) -> None:
    assert quantile(buckets, 0.5) == (None if want is None else pytest.approx(want))
