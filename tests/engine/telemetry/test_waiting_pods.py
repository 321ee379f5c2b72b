"""The metric of pods that wait: one row for each reason, and never too many rows."""

from collections import Counter

from prometheus_client import CollectorRegistry

from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.lib.clock import VirtualClock
from engine.surfaces.pulled_metrics import show_oldest, show_waiting
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod

Key = tuple[str, str, str]


def _scraped(reasons: Counter[Key]) -> dict[Key, float]:
    """What a scrape says of *reasons*."""
    registry = CollectorRegistry()
    show_waiting(Metrics(registry), lambda: reasons)
    return {
        (one.labels["reason"], one.labels["policy"], one.labels["profile"]): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "starsched_waiting_pods"
    }


def test_each_reason_has_a_row() -> None:
    reasons = Counter({("QuotaReached", "teams", "a"): 2, ("NotYetTried", "", "b"): 1})
    assert _scraped(reasons) == dict(reasons)


def test_a_reason_that_no_pod_has_any_more_has_none() -> None:
    assert _scraped(Counter()) == {}


def test_policies_that_make_up_tokens_do_not_flood_a_scrape() -> None:
    few = Counter({("QuotaReached", "teams", "a"): 9})
    many = Counter({(f"Made{n}", "teams", "a"): 1 for n in range(2_000)})
    got = _scraped(few + many)
    assert len(got) == 501
    assert got["QuotaReached", "teams", "a"] == 9
    assert got["Other", "", "a"] == 2_000 - 499


class _Uncountable(dict[str, QueuedPod]):
    """Pods that nobody may go through."""

    def __iter__(self) -> object:  # type: ignore[override]  # it does not return
        raise AssertionError("a scrape looks at every pod")

    values = items = __iter__  # type: ignore[assignment]  # likewise


def test_a_scrape_looks_at_reasons_and_not_at_pods() -> None:
    queue = SchedulingQueue(
        VirtualClock(), key_of=lambda pod: ((0, 0),), pre_enqueue=lambda pod: None
    )
    for number in range(100):
        queue.add(make_pod(f"p{number}", uid=f"u{number}"))
    queue._places._known = _Uncountable(queue._places._known)
    assert queue.waiting_reasons() == {("NotYetTried", "", "default-scheduler"): 100}


def test_the_oldest_pod_of_a_reason_is_known() -> None:

    def gate(pod: Pod) -> Gate | None:
        return None if pod.name != "gated" else Gate("quota", "full", "QuotaReached")

    queue = SchedulingQueue(VirtualClock(), key_of=lambda pod: ((0, 0),), pre_enqueue=gate)
    made = {
        name: make_pod(name, uid=name, created=f"2026-01-{day}T00:00:00Z")
        for name, day in (("b", "02"), ("a", "01"), ("gated", "03"))
    }
    for name in made:
        queue.add(made[name])
    first = epoch_seconds("2026-01-01T00:00:00Z")
    assert first is not None
    not_tried = ("NotYetTried", "", "default-scheduler")
    gated = ("QuotaReached", "quota", "default-scheduler")
    assert queue.oldest_waiting() == {not_tried: first, gated: first + 2 * 86_400}
    queue.delete(made["a"])
    queue.delete(made["gated"])
    assert queue.oldest_waiting() == {not_tried: first + 86_400}


def test_a_scrape_has_the_oldest_pods_of_the_most_urgent_reasons() -> None:
    registry = CollectorRegistry()
    ages = {(f"Made{n}", "teams", "a"): float(n) for n in range(2_000)}
    show_oldest(Metrics(registry), lambda: ages)
    got = [
        one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "starsched_oldest_waiting_pod_age_seconds"
    ]
    assert got == [float(n) for n in range(1_999, 1_499, -1)]
