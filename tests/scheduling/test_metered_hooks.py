"""Every hook has its extension point in the metrics, and every evaluation is counted there."""

from collections.abc import Sequence

from engine.framework.extension_points import HOOKS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, Take
from engine.rollout.metered import EXTENSION_POINTS, Evaluations, MeteredEvaluator


class _Refusing(InProcessEvaluator):
    """Has no time for guesses."""

    def guess(self, calls: Sequence[Call], take: Take) -> bool:
        return False


def test_every_hook_is_counted_at_an_extension_point() -> None:
    assert set(EXTENSION_POINTS) == set(HOOKS)


def test_a_guess_is_counted_if_it_is_asked() -> None:
    bundle = build_bundle({})
    names = [instance.policy for instance in bundle.program.instances]
    over = b'{"over":{"min":1,"max":2,"count":2}}'
    call = Call(names.index("TaintToleration"), "normalize", b"{}", [b"1", b"2"], over)
    evaluations = Evaluations()
    taken: list[object] = []
    kinds = InProcessEvaluator, _Refusing
    one, other = (
        MeteredEvaluator(kind(bundle.program), bundle, evaluations, lambda: 0.0) for kind in kinds
    )
    assert one.guess([call], taken.append)
    assert not other.guess([call], taken.append)
    assert taken == [one.evaluate([call])]
    key = ("TaintToleration", "ScoreExtensionNormalize", "default-scheduler")
    assert evaluations.counts == {key: 4}


def test_who_counts_is_counted_with_the_counters() -> None:
    bundle = build_bundle({})
    names = [instance.policy for instance in bundle.program.instances]
    index = names.index("PodTopologySpread")
    evaluations = Evaluations()
    metered = MeteredEvaluator(InProcessEvaluator(bundle.program), bundle, evaluations, lambda: 0.0)
    metered.evaluate([Call(index, "among_taints", b"{}", [b"{}", b"{}"])])
    assert evaluations.counts == {("PodTopologySpread", "PreFilter", "default-scheduler"): 2}
