"""Every hook has its extension point in the metrics, and every evaluation is counted there."""

from engine.language.hooks import HOOKS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator
from engine.policy.metered import Evaluations, MeteredEvaluator


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
