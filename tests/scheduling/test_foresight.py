"""What is asked before it is needed: it is there in time, and when it comes decides nothing."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine.caching.cache import Cache
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, Evaluator, InProcessEvaluator, PolicyFailure, Take
from engine.policy.verdicts import VerdictMemo
from engine.scheduling.scheduling_cycle import Scheduler
from engine.scheduling.scoring import Normalizer
from tests.builders import make_node, make_pod
from tests.properties.late_guesses import LateGuesses
from tests.properties.sameness import decided

BUNDLE = build_bundle({})
ZONE = "topology.kubernetes.io/zone"
ZONES = "abcabcabc"
WEB = {"matchLabels": {"app": "web"}}
NEAR = {
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": WEB}}
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
    }
]
LOOSE = [{**SPREAD[0], "maxSkew": 4}]
CLASSES: dict[str, dict[str, Any]] = {
    "near each other": {"affinity": NEAR},
    "spread over zones": {"spec": {"topologySpreadConstraints": SPREAD}},
    "loosely spread over zones": {"spec": {"topologySpreadConstraints": LOOSE}},
}


class _Asked:
    """Keeps what is asked and needed at once; of guesses, how they end is *fate*'s."""

    is_near = False

    def __init__(self, fate: Callable[[Evaluator, Sequence[Call], Take], bool]) -> None:
        self._inner = InProcessEvaluator(BUNDLE.program)
        self._fate = fate
        self.needed: list[Call] = []

    def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        self.needed += calls
        return self._inner.evaluate(calls)

    def guess(self, calls: Sequence[Call], take: Take) -> bool:
        return self._fate(self._inner, calls, take)

    def settle(self, patience: float = 0.0) -> None:
        pass

    def close(self) -> None:
        self._inner.close()


def _answered(evaluator: Evaluator, calls: Sequence[Call], take: Take) -> bool:
    take(evaluator.evaluate(calls))
    return True


def _refused(evaluator: Evaluator, calls: Sequence[Call], take: Take) -> bool:
    return False


def _lost(evaluator: Evaluator, calls: Sequence[Call], take: Take) -> bool:
    take(None)
    return True


def _place(
    evaluator: Evaluator, words: dict[str, Any], count: int, zones: str = ZONES
) -> list[Any]:
    """What a scheduler decides for *count* pods of one class, in full.

    *zones* has the zone of each node, a letter each.
    """
    cache = Cache()
    for number, zone in enumerate(zones):
        cache.add_node(make_node(f"n{number}", zone=zone, cpu="256", pods=1000))
    scheduler = Scheduler(BUNDLE, evaluator)
    found: list[Any] = []
    for number in range(count):
        pod = make_pod(f"p{number}", uid=f"u{number}", labels={"app": "web"}, cpu="10m", **words)
        decision = scheduler.schedule(pod, cache.snapshot())
        assert decision.node is not None
        found.append(decided(decision))
        cache.assume(pod, decision.node)
    return found


def _counted(calls: Sequence[Call]) -> int:
    return sum(
        call.hook == "normalize" or b'"counts":[' in b"".join(call.nodes or ()) for call in calls
    )


@pytest.mark.parametrize("words", CLASSES.values(), ids=CLASSES)
def test_what_a_series_of_pods_brings_is_known_when_they_come(words: dict[str, Any]) -> None:
    ahead, behind = _Asked(_answered), _Asked(_refused)
    _place(ahead, words, 60)
    _place(behind, words, 60)
    assert _counted(behind.needed) >= 30
    assert _counted(ahead.needed) <= _counted(behind.needed) // 3


@pytest.mark.parametrize("words", CLASSES.values(), ids=CLASSES)
def test_decisions_do_not_depend_on_when_a_guess_is_answered(words: dict[str, Any]) -> None:
    want = _place(_Asked(_refused), words, 60)
    assert _place(_Asked(_answered), words, 60) == want
    assert _place(_Asked(_lost), words, 60) == want
    inner = InProcessEvaluator(BUNDLE.program)
    for seed in range(5):
        assert _place(LateGuesses(inner, random.Random(seed), is_near=False), words, 60) == want


UNEVEN = "aaaaaaabbbbc"


@pytest.mark.parametrize("words", CLASSES.values(), ids=CLASSES)
def test_a_long_series_waits_for_next_to_nothing(words: dict[str, Any]) -> None:
    begun, whole = _Asked(_answered), _Asked(_answered)
    _place(begun, words, 80, UNEVEN)
    _place(whole, words, 280, UNEVEN)
    assert _counted(whole.needed[len(begun.needed) :]) <= 4


def test_any_score_of_a_narrow_range_is_known_when_the_range_has_moved_on_as_before() -> None:
    chance, asked = random.Random(3), _Asked(_answered)
    normalizer = Normalizer(VerdictMemo(asked, [i.policy for i in BUNDLE.program.instances]))
    spread = next(
        number
        for number, instance in enumerate(BUNDLE.program.instances)
        if instance.policy == "PodTopologySpread"
    )
    for low in range(200):
        inside = chance.sample(range(low + 1, low + 12), 3)
        scores = np.array([low, *inside, low + 12], np.int64)
        normal = normalizer.normalize(spread, scores, reads_count=False)
        assert not isinstance(normal, PolicyFailure)
        assert normal[0] == 100
    assert len(asked.needed) <= 8
