"""The ring of samples behind `/activity`."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.lib.clock import VirtualClock
from engine.surfaces.live.activity import Activity, quantile
from engine.telemetry.bounded_counts import BoundedCounts


class Counters:
    def __init__(self, most: int = 3) -> None:
        registry = CollectorRegistry()
        self.attempts = Counter("attempts", "-", ["result", "profile"], registry=registry)
        self.latency = Histogram("latency", "-", buckets=(0.01, 0.1, 1), registry=registry)
        self.rejections = BoundedCounts()
        self.clock = VirtualClock()
        self.waiting: dict[str, int] = {}
        self.present = ("", "")
        self.attempts.labels("scheduled", "a").inc(100)  # before there was a ring
        self.activity = Activity(
            attempts=self.attempts,
            latency=self.latency,
            rejections=self.rejections,
            waiting=lambda: self.waiting,
            present=lambda: self.present,
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
    counters = Counters()
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
    counters = Counters(most=3)
    for index in range(50):
        counters.reject(f"Reason{index:02}", index + 1)
    for _ in range(5):
        counters.sample()
    assert len(counters.activity.samples) == 3
    counters = Counters()
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


def test_the_depth_of_the_queue_and_what_changed_are_kept() -> None:
    counters = Counters(most=9)
    counters.waiting = {"unschedulable": 7, "gated": 0}
    for present in (("a1", "x_1"), ("a1", "x_1"), ("b2", "x_1"), ("", ""), ("b2", "y_2")):
        counters.present = present
        counters.sample()
    assert counters.activity.samples[-1].waiting == {"unschedulable": 7}
    # Not the first ones, which are no change, and not what is not known for a while.
    assert [(one.kind, one.text) for one in counters.activity.marks] == [
        ("policies", "b2"), ("leader", "y_2"),
    ]  # fmt: skip


def test_the_next_leader_goes_on_with_the_last_hour() -> None:
    """In samples of a minute, and with a mark where it began to lead."""
    before = Counters(most=360)
    before.present = "a1", "x_1"
    for _ in range(13):
        before.attempts.labels("scheduled", "a").inc(2)
        before.reject("InsufficientResources", 1)
        before.sample()
    history = before.activity.history()
    assert [(one.seconds, one.bound) for one in history.samples] == [(60, 12), (60, 12), (10, 2)]
    assert history.samples[0].rejections == {"InsufficientResources": 6}

    after = Counters(most=360)
    after.clock.advance(130)
    after.activity.sample()  # as a standby: what it saw of that time is the leader's to say
    after.activity.restore(history)
    assert after.activity.samples == history.samples
    after.present = "a1", "y_2"
    after.sample()
    assert len(after.activity.samples) == 4
    assert [(one.kind, one.text) for one in after.activity.marks] == [("leader", "y_2")]
    # A second hand-over loses nothing, and an hour later it is gone.
    again = Counters(most=360)
    again.clock.advance(150)
    again.activity.restore(after.activity.history())
    assert sum(one.bound for one in again.activity.samples) == 26
    again.clock.advance(3700)
    assert not again.activity.samples
    assert not again.activity.marks


def test_a_history_is_bounded() -> None:
    counters = Counters(most=360)
    for number in range(360):
        for reason in range(12):
            counters.reject(f"{number:03}-{reason:02}-{'x' * 200}", 1)
        counters.sample()
    history = counters.activity.history()
    assert len(msgspec.json.encode(history)) < 128 * 1024
    assert history.samples[-1].at == counters.activity.samples[-1].at
