"""Metrics keep kube-scheduler's names, labels and buckets."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from engine.telemetry.metrics import Metrics, exponential


def test_buckets_are_kube_schedulers() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.profile("default-scheduler").observe("scheduled", 0.003)
    text = generate_latest(metrics.registry).decode()
    assert (
        'scheduler_scheduling_attempt_duration_seconds_bucket{le="16.384",'
        'profile="default-scheduler",result="scheduled"} 1.0'
    ) in text
    assert (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0'
        in text
    )


@pytest.mark.parametrize(
    ("attempts", "label"),
    [
        pytest.param(1, "1", id="first try"),
        pytest.param(14, "14", id="last number of its own"),
        pytest.param(15, "15+", id="fifteen"),
        pytest.param(400, "15+", id="many"),
    ],
)
def test_the_sli_is_split_by_attempts_up_to_15(attempts: int, label: str) -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.pod_bound(attempts, 0.5)
    name = "scheduler_pod_scheduling_sli_duration_seconds_count"
    assert metrics.registry.get_sample_value(name, {"attempts": label}) == 1


def test_classes_of_pods_that_are_bound_at_once_are_bounded() -> None:
    metrics = Metrics(CollectorRegistry())
    for name in (*(f"class-{number}" for number in range(100)), "class-0"):
        metrics.bound_at_once(name, 6.0)
    name = "starsched_first_attempt_duration_seconds_count"
    value = metrics.registry.get_sample_value
    assert value(name, {"priority_class": "class-0"}) == 2
    assert value(name, {"priority_class": "class-20"}) is None
    assert value(name, {"priority_class": "Other"}) == 80


def test_only_the_revision_in_force_is_shown() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.set_revision("aaa", 1.0)
    metrics.set_revision("bbb", 2.0)
    info = "starsched_policy_revision_info"
    assert metrics.registry.get_sample_value(info, {"revision": "bbb"}) == 1
    assert metrics.registry.get_sample_value(info, {"revision": "aaa"}) is None


def test_sizes_are_read_when_they_are_scraped() -> None:
    metrics = Metrics(CollectorRegistry())
    sizes = {"active": 0.0}
    metrics.pending_pods.read = lambda: sizes
    metrics.sandbox_restarts.read = lambda: 4.0
    sizes["active"] = 7.0
    value = metrics.registry.get_sample_value
    assert value("scheduler_pending_pods", {"queue": "active"}) == 7
    assert value("starsched_sandbox_restarts_total") == 4


def test_exponential_counts_its_bounds() -> None:
    assert exponential(1, 2, 5) == [1, 2, 4, 8, 16]


def test_a_start_is_no_rejection() -> None:
    """A scheduler that was just started looked as if its policies had been rejected."""
    metrics = Metrics(CollectorRegistry())
    value = metrics.registry.get_sample_value
    assert value("starsched_policy_last_reload_successful") == 1


def test_what_alerts_watch_for_is_there_before_it_happens() -> None:
    """The increase of a counter that appears with its first event is 0."""
    metrics = Metrics(CollectorRegistry())
    value = metrics.registry.get_sample_value
    assert value("starsched_policy_reloads_total", {"result": "rolled_back"}) == 0
    stage = {"stage": "canary", "outcome": "inconclusive"}
    assert value("starsched_rollout_verdicts_total", stage) == 0


def test_former_names_show_the_same_numbers() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.profile("p").observe("scheduled", 0.003)
    metrics.binding_seconds.labels("bound").observe(0.003)
    value = metrics.registry.get_sample_value
    for former, name, labels in (
        (
            "scheduler_e2e_scheduling_duration_seconds",
            "scheduler_scheduling_attempt_duration_seconds",
            {"result": "scheduled", "profile": "p"},
        ),
        (
            "scheduler_binding_duration_seconds",
            "starsched_binding_duration_seconds",
            {"result": "bound"},
        ),
    ):
        for part, bucket in (("_count", {}), ("_sum", {}), ("_bucket", {"le": "0.004"})):
            got = value(former + part, labels | bucket)
            assert got == value(name + part, labels | bucket)
            assert got is not None
            assert got > 0
    assert (
        "# TYPE scheduler_binding_duration_seconds histogram"
        in generate_latest(metrics.registry).decode()
    )
