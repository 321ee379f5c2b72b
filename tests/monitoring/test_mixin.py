"""What kubernetes-mixin asks about kube-scheduler has an answer, if the job is called so.

Its expressions are made here from the names of metrics and labels that it uses, in both the form
with the names that kube-scheduler has now and the one with those that it had once.
"""

import pytest

from tests.monitoring.world import JOB, World, has_data
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("runs a scheduler and Prometheus")

OF_JOB = f'cluster="", job="{JOB}"'
SELECTED = f'{OF_JOB}, instance=~".+"'

#: Histograms of recording rules and of the panels about rate and latency.
DURATIONS = [
    "scheduler_scheduling_attempt_duration_seconds",
    "scheduler_scheduling_algorithm_duration_seconds",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_e2e_scheduling_duration_seconds",
    "scheduler_binding_duration_seconds",
    "scheduler_volume_scheduling_duration_seconds",
]


@pytest.mark.parametrize("quantile", ["0.99", "0.9", "0.5"])
@pytest.mark.parametrize("metric", DURATIONS)
def test_recording_rules_of_quantiles(monitored: World, metric: str, quantile: str) -> None:
    """`cluster_quantile:METRIC:histogram_quantile`."""
    rates = f'rate({metric}_bucket{{job="{JOB}"}}[5m])'
    expression = f"histogram_quantile({quantile}, sum without (instance, pod) ({rates}))"
    assert has_data(monitored.prometheus.query(expression, monitored.ended_at))


@pytest.mark.parametrize("metric", DURATIONS)
def test_panels_of_rate_and_latency(monitored: World, metric: str) -> None:
    for expression in (
        f"sum by (cluster, instance) (rate({metric}_count{{{SELECTED}}}[5m]))",
        f"histogram_quantile(0.99, sum by (cluster, instance, le) "
        f"(rate({metric}_bucket{{{SELECTED}}}[5m])))",
    ):
        assert has_data(monitored.prometheus.query(expression, monitored.ended_at)), expression


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f"sum(up{{{OF_JOB}}})", id="up"),
        # No request of a scheduler is redirected or answered with 304.
        *(
            pytest.param(
                f'sum(rate(rest_client_requests_total{{{SELECTED}, code=~"{code}.."}}[5m]))',
                id=f"requests {code}xx",
            )
            for code in (2, 4, 5)
        ),
        *(
            pytest.param(
                "histogram_quantile(0.99, sum by (verb, url, le) (rate("
                f'rest_client_request_duration_seconds_bucket{{{SELECTED}, verb="{verb}"}}[5m])))',
                id=f"latency of {verb}",
            )
            for verb in ("POST", "GET")
        ),
        pytest.param(f"process_resident_memory_bytes{{{SELECTED}}}", id="memory"),
        pytest.param(f"rate(process_cpu_seconds_total{{{SELECTED}}}[5m])", id="cpu"),
        pytest.param(f"go_goroutines{{{SELECTED}}}", id="goroutines"),
    ],
)
def test_other_panels(monitored: World, expression: str) -> None:
    assert has_data(monitored.prometheus.query(expression, monitored.ended_at)), expression


def test_the_alert_about_a_scheduler_that_is_down(monitored: World) -> None:
    """`KubeSchedulerDown` fires without a scheduler, and not with one."""
    expression = f'absent(up{{job="{JOB}"}} == 1)'
    assert not has_data(monitored.prometheus.query(expression, monitored.ended_at))
    wait_until(lambda: has_data(monitored.prometheus.query(expression)), what="the alert")
