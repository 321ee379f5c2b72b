"""The metric of pods that wait: one row for each reason, and never too many rows."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.lib.clock import VirtualClock
from engine.surfaces.pulled_metrics import show_oldest, show_waiting, show_waiting_namespaces
from engine.telemetry.metrics import Metrics
from tests.builders import make_pod

Key = tuple[str, str, str]


def _rows(registry: CollectorRegistry, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(one.labels[label] for label in labels): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == metric
    }


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


def _by_namespace(
    pods: Iterable[Pod], *, is_leading: bool = True
) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """How many of *pods* wait, and how old the oldest is, at noon of a day."""
    noon = epoch_seconds("2026-01-01T12:00:00Z")
    assert noon is not None
    registry, clock = CollectorRegistry(), VirtualClock(noon)
    queue = SchedulingQueue(clock, key_of=lambda pod: ((0, 0),), pre_enqueue=lambda pod: None)
    for pod in pods:
        queue.add(pod)
    show_waiting_namespaces(Metrics(registry), queue.waiting_pods, clock, lambda: is_leading)
    counts, ages = (
        _rows(registry, f"starsched_namespace_{name}", "pod_namespace", "priority_class")
        for name in ("waiting_pods", "oldest_waiting_pod_age_seconds")
    )
    return counts, ages


def _pod(number: int, namespace: str, priority_class: str = "") -> Pod:
    name = f"p{number}"
    spec = {"priorityClassName": priority_class}
    return make_pod(name, namespace, uid=name, created="2026-01-01T11:59:00Z", spec=spec)


def test_pods_wait_by_namespace_and_priority_class() -> None:
    spec = {"priorityClassName": "low"}
    since = "2026-01-01T00:00:00Z"
    pods = [
        _pod(0, "shop"),
        _pod(1, "shop", "urgent"),
        _pod(2, "shop", "urgent"),
        make_pod("gated", "lab", uid="gated", created=since, spec=spec, gates=["quota"]),
    ]
    counts, ages = _by_namespace(pods)
    assert counts == {("shop", ""): 1, ("shop", "urgent"): 2, ("lab", "low"): 1}
    # Who opens the gate knows why the last one waits.
    assert ages == {("shop", ""): 60, ("shop", "urgent"): 60}
    assert _by_namespace(pods, is_leading=False) == (counts, {})


def test_namespaces_and_classes_without_end_do_not_flood_a_scrape() -> None:
    large = [_pod(number, "large", "often") for number in range(3)]
    counts, ages = _by_namespace(
        [*large, *(_pod(number, f"n{number}", f"c{number}") for number in range(10, 1_010))]
    )
    assert counts["large", "often"] == 3
    assert len({namespace for namespace, _ in counts}) == 101
    assert len({priority_class for _, priority_class in counts}) == 21
    assert sum(counts.values()) == 1_003
    assert counts["Other", "Other"] > 800
    assert ages["Other", "Other"] == 60
