"""Every hook has its extension point in the metrics, and every evaluation is counted there."""

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from engine.language.hooks import HOOKS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure, Timing, Verdict
from engine.policy.metered import Evaluations, MeteredEvaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.telemetry.metrics import Metrics


def test_every_hook_is_counted_at_an_extension_point() -> None:
    assert all(hook.extension_point for hook in HOOKS.values())


def test_who_counts_is_counted_with_the_counters() -> None:
    bundle = build_bundle({})
    names = [instance.policy for instance in bundle.program.instances]
    index = names.index("PodTopologySpread")
    evaluations = Evaluations()
    metered = MeteredEvaluator(InProcessEvaluator(bundle.program), bundle, evaluations)
    metered.evaluate([Call(index, "among_taints", b"{}", [b"{}", b"{}"])])
    assert evaluations.counts == {("PodTopologySpread", "PreFilter", "default-scheduler"): 2}


class Scripted:
    """Times calls as it is given to, if it is asked to."""

    def __init__(self, *timings: Timing) -> None:
        self.is_timed = False
        self.timings: Sequence[Timing] = timings
        self.timed: list[bool] = []

    def evaluate(self, calls: Sequence[Call]) -> Sequence[Sequence[Verdict | PolicyFailure]]:
        self.timed.append(self.is_timed)
        return [[None]] * len(calls)

    def close(self) -> None:
        pass


def _measured(metrics: Metrics, seconds_of_a_trip: float) -> Evaluations:
    evaluations = Evaluations()
    ticks = iter(range(10**6))
    evaluations.measure(
        lambda: next(ticks) * seconds_of_a_trip, metrics.evaluation_seconds, metrics.plugin
    )
    return evaluations


@pytest.mark.parametrize("every", [1, 2, 3, 7, 10])
def test_one_round_trip_in_ten_is_timed_whatever_their_rhythm(every: int) -> None:
    """A decision asks filters, then scores: neither may be what is always timed."""
    bundle = build_bundle({})
    scripted = Scripted()
    metered = MeteredEvaluator(scripted, bundle, _measured(Metrics(CollectorRegistry()), 1.0))
    for _ in range(1_000 * every):
        metered.evaluate([])
    for first in range(every):
        assert 90 <= sum(scripted.timed[first::every]) <= 110


def test_timed_calls_are_observed_by_plugin_point_and_status() -> None:
    bundle = build_bundle({})
    names = [instance.policy for instance in bundle.program.instances]
    spread, taints = names.index("PodTopologySpread"), names.index("TaintToleration")
    calls = [Call(spread, "filter"), Call(taints, "filter"), Call(taints, "score")]
    # The last one is of a sandbox that says what cannot be.
    scripted = Scripted(Timing(0.25, True), Timing(0.0, False), Timing(1e9, False))
    metrics = Metrics(CollectorRegistry())
    metered = MeteredEvaluator(scripted, bundle, _measured(metrics, 0.5))
    while True not in scripted.timed:
        metered.evaluate(calls)
    name = "scheduler_plugin_execution_duration_seconds_sum"
    found = {
        tuple(one.labels[label] for label in ("plugin", "extension_point", "status")): one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == name
    }
    assert found == {
        ("PodTopologySpread", "Filter", "Error"): 0.25,
        ("TaintToleration", "Score", "Success"): 0.5,
    }


CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: busy}]}
"""
BUSY = '''"""Works for some nodes."""

def filter(pod, node):
    if node.name == "failing":
        fail("as wanted")
    found = 0
    if node.name == "busy":
        for number in range(20000):
            found += number
    return None if found >= 0 else reject("no")
'''


@pytest.mark.slow("starts a process")
def test_a_sandbox_says_how_long_each_call_took() -> None:
    bundle = build_bundle({"busy.star": BUSY, "config.yaml": CONFIG})
    index = [instance.policy for instance in bundle.program.instances].index("busy")
    quick, busy, failing = (
        Call(index, "filter", b"{}", [b'{"name":"%s"}' % name])
        for name in (b"quick", b"busy", b"failing")
    )
    with SandboxEvaluator(bundle.program) as evaluator:
        plain = evaluator.evaluate([quick, busy, failing])
        assert not evaluator.timings
        evaluator.is_timed = True
        timed = evaluator.evaluate([quick, busy, failing])
        assert list(map(str, timed)) == list(map(str, plain))
        first, second, third = evaluator.timings
    assert 0 < first.seconds < second.seconds < 10
    assert [first.has_failed, second.has_failed, third.has_failed] == [False, False, True]
