"""The metric of pods that wait: one row for each reason, and never too many rows."""

from collections import Counter

from prometheus_client import CollectorRegistry

from engine.lib.clock import VirtualClock
from engine.pulled_metrics import show_waiting
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
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
