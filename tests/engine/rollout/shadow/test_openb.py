"""Real nodes and pods: the same policies in other words, and a text that differs for one pod."""

from typing import Final

import pytest

from engine.comparing.difference import MOVED
from tests.engine.rollout.shadow.openb import BASE, ODD_TASTE, decided, rephrased
from tests.engine.rollout.shadow.watched import WatchedWorld

SLOW: Final = pytest.mark.long("thousands of decisions, two or three times each")


def test_the_policies_of_this_test_are_rephrased() -> None:
    files = rephrased()
    assert {"taste.star", "node_resources_fit.star", "taint_toleration.star"} <= files.keys()
    world = WatchedWorld(BASE, BASE | files)
    builtin = {p.name for p in world.candidate.bundle.policies.values() if p.is_builtin}
    assert "NodeResourcesFit" not in builtin


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param(400, id="a few"),
        pytest.param(8_000, id="the trace", marks=[SLOW, pytest.mark.timeout(1_200)]),
    ],
)
def test_the_same_policies_in_other_words_make_no_difference(decisions: int) -> None:
    got = decided(BASE | rephrased(), decisions)
    assert got.counts == {}, got
    assert got.skipped == {}, got
    assert got.compared == got.decided >= decisions


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param(400, id="a few"),
        pytest.param(8_000, id="the trace", marks=[SLOW, pytest.mark.timeout(1_200)]),
    ],
)
def test_a_text_that_differs_for_one_pod_makes_exactly_that_difference(decisions: int) -> None:
    got = decided(BASE | {"taste.star": ODD_TASTE}, decisions, odd=decisions - 300)
    assert got.counts == {MOVED: 1}, got
    assert (got.compared, got.skipped) == (got.decided, {})
    (example,) = got.examples
    assert (example.pod, example.policy, example.hook, example.place) == (
        f"openb/pod-{decisions - 300}",
        "taste",
        "score",
        "taste.star:11",
    )
