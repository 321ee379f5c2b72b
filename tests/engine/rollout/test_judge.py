"""What a stage of a roll-out comes to."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING
from engine.policy.rollout_config import CanaryStep, Gates, ShadowStage
from engine.rollout.arms import ArmCounter
from engine.rollout.judge import (
    CANARY_GATES,
    LOSS_GATES,
    SHADOW_GATES,
    TakenAway,
    judge_canary,
    judge_shadow,
)
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.readings import Progress, SomeClass
from engine.rollout.status import GateResult, Verdict

STAGE = ShadowStage(timedelta(seconds=60), compared=500)
STEP = CanaryStep(0.05, timedelta(seconds=60), decisions=50)
GATES = Gates()
MS = 0.001


def _shadow(compared: int = 500, **fields: Any) -> ShadowMeasures:
    """What a candidate that is as good gives, but for *fields*."""
    times = _times(compared, MS) | _times(compared, MS, "_before") | {"timed": compared}
    known: dict[str, Any] = {"decided": compared, "compared": compared}
    known |= {"placed": compared, "placed_by_class": {"no owner": compared}}
    return ShadowMeasures(**(known | times | fields))


def _times(count: int, mean: float, suffix: str = "", spread: float = 0.0) -> dict[str, Any]:
    """Sums of *count* durations with this mean and standard deviation."""
    squares = count * (mean * mean + spread * spread)
    return {f"seconds{suffix}": count * mean, f"squares{suffix}": squares}


def _arm(**fields: Any) -> ArmMeasures:
    """What policies without fault give, but for *fields*."""
    decisions = fields.get("decisions", 60)
    known = {"decisions": decisions, "owners": 30, "bound": 50, "bound_owners": 25}
    return ArmMeasures(**(known | _times(decisions, MS) | _binds(50, 2.0) | fields))


def _binds(count: int, mean: float, spread: float = 0.0) -> dict[str, float]:
    squares = count * (mean * mean + spread * spread)
    return {"bound": count, "bind_seconds": count * mean, "bind_squares": squares}


def _of_shadow(
    measures: ShadowMeasures,
    elapsed: float = 60.0,
    gates: Gates = GATES,
    stage: ShadowStage = STAGE,
) -> Verdict:
    return judge_shadow(measures, stage, gates, elapsed)


def _of_canary(
    canary: ArmMeasures, control: ArmMeasures | None = None, elapsed: float = 60.0
) -> Verdict:
    return judge_canary(canary, control or _arm(), STEP, GATES, elapsed)


def _gate(verdict: Verdict, name: str) -> GateResult:
    (found,) = (gate for gate in verdict.gates if gate.name == name)
    return found


# --- shadow ----------------------------------------------------------------------------------


def test_a_candidate_that_decides_alike_passes() -> None:
    verdict = _of_shadow(_shadow())
    assert verdict.outcome == "pass"
    assert {gate.verdict for gate in verdict.gates} == {"pass"}
    names = [*(name for name, _, _ in SHADOW_GATES), *(name for name, _, _ in LOSS_GATES)]
    assert [gate.name for gate in verdict.gates] == ["duration", "compared", *names]
    assert verdict.why.startswith("duration: 1m0s of 1m0s; compared: 500 of 500; maxMoved: 0% (0")


@pytest.mark.parametrize(
    ("measures", "elapsed", "want"),
    [
        pytest.param(_shadow(), 59.99, "duration: 59.9s of 1m0s", id="too early"),
        pytest.param(_shadow(), -5.0, "duration: 0s of 1m0s", id="a clock that went back"),
        pytest.param(_shadow(120), 600.0, "compared: 120 of 500", id="too few"),
        pytest.param(
            _shadow(120, skipped={"drifted": 2, "busy": 30, "claims": 0}),
            600.0,
            "compared: 120 of 500 (skipped: 30 busy, 2 drifted)",
            id="too few, and why",
        ),
        pytest.param(
            _shadow(timed=12, **_times(12, MS), **_times(12, MS, "_before")),
            600.0,
            "latency: 1 times (1ms, with the policies in force 1ms), want at most 2 times "
            "(12 of 50 timed decisions)",
            id="too few timed",
        ),
        pytest.param(
            _shadow(40, counts={MOVED: 12}, decided=40),
            600.0,
            "compared: 40 of 500; maxMoved: 30% (12 of 40 compared decisions), want at most 25% "
            "(may be chance); latency: 1 times (1ms, with the policies in force 1ms), want at most "
            "2 times (40 of 50 timed decisions)",
            id="moves by chance",
        ),
        pytest.param(
            _shadow(**_times(500, 3 * MS, spread=40 * MS)),
            600.0,
            "latency: 3 times (3ms, with the policies in force 1ms), want at most 2 times "
            "(may be chance)",
            id="one hiccup",
        ),
    ],
)
def test_what_is_missing_is_said(measures: ShadowMeasures, elapsed: float, want: str) -> None:
    verdict = _of_shadow(measures, elapsed)
    assert (verdict.outcome, verdict.why) == ("inconclusive", want)


@pytest.mark.parametrize(
    ("measures", "want"),
    [
        pytest.param(
            _shadow(12, counts={NEWLY_PENDING: 3}),
            "maxNewlyPending: 3 of 12 compared decisions, want at most 0",
            id="a count at once",
        ),
        pytest.param(
            _shadow(12, victims=2),
            "maxEvictions: +2 pods in 12 compared decisions, want at most 0 more",
            id="evictions at once",
        ),
        pytest.param(
            _shadow(12, counts={FAILED: 1}),
            "errorRate: 8.333% (1 of 12 compared decisions), want at most 0%",
            id="an error where none may be",
        ),
        pytest.param(
            _shadow(40, counts={MOVED: 24}),
            "maxMoved: 60% (24 of 40 compared decisions), want at most 25%",
            id="moves that are not chance",
        ),
        pytest.param(
            _shadow(50, **_times(50, 5 * MS, spread=MS)),
            "latency: 5 times (5ms, with the policies in force 1ms), want at most 2 times",
            id="slow",
        ),
        pytest.param(
            _shadow(5, **_times(5, 2.0, spread=0.5)),
            "latency: 2e+03 times (2s, with the policies in force 1ms), want at most 2 times",
            id="so slow that few decisions are made",
        ),
    ],
)
def test_a_bad_candidate_fails_long_before_the_end(measures: ShadowMeasures, want: str) -> None:
    verdict = _of_shadow(measures, 1.0)
    assert (verdict.outcome, verdict.why) == ("fail", want)


def test_at_the_end_a_share_counts_as_it_is() -> None:
    moved = _shadow(500, counts={MOVED: 126})
    assert _of_shadow(moved, 59.0).outcome == "inconclusive"
    assert _of_shadow(moved, 60.0).outcome == "fail"
    assert _of_shadow(_shadow(500, counts={MOVED: 125}), 60.0).outcome == "pass"


def test_a_slowdown_of_less_than_a_millisecond_passes() -> None:
    slower = _shadow(**_times(500, 0.9 * MS), **_times(500, 0.01 * MS, "_before"))
    assert _of_shadow(slower).outcome == "pass"


def test_a_slowdown_that_stays_unclear_fails_after_eight_times_the_decisions() -> None:
    unclear = {n: _shadow(n, **_times(n, 3 * MS, spread=150 * MS)) for n in (500, 3999, 4000)}
    got = {n: _of_shadow(measures).outcome for n, measures in unclear.items()}
    assert got == {500: "inconclusive", 3999: "inconclusive", 4000: "fail"}


def test_one_first_decision_that_is_slow_is_no_slow_candidate() -> None:
    measures = ShadowMeasures(compared=5)
    for seconds in (3.0, MS, MS, MS, MS):
        measures.count_time(seconds, MS)
    assert _of_shadow(measures).outcome == "inconclusive"


def test_without_squares_means_are_taken_as_they_are() -> None:
    assert _of_shadow(_shadow(seconds=5.0, squares=0.0, squares_before=0.0)).outcome == "fail"


def test_an_idle_cluster_promotes_nothing() -> None:
    week = 7 * 24 * 3600.0
    shadow = _of_shadow(ShadowMeasures(), week)
    canary = _of_canary(ArmMeasures(), ArmMeasures(), week)
    assert (shadow.outcome, canary.outcome) == ("inconclusive", "inconclusive")
    assert "compared: 0 of 500" in shadow.why
    assert "decisions: 0 of 50" in canary.why
    # Only that time is over is known, and what was before it began.
    before = [name for name, _, _ in LOSS_GATES]
    for verdict in (shadow, canary):
        passed = [gate.name for gate in verdict.gates if gate.verdict == "pass"]
        assert passed == ["duration", *before]


def test_a_stage_of_few_decisions_needs_few_timed_ones() -> None:
    """A shadow times a sample; it does not wait for fifty if the stage wants fewer decisions."""
    small = ShadowStage(STAGE.duration, compared=95)
    times = {n: _times(n, MS) | _times(n, MS, "_before") for n in (9, 10)}
    got = {n: _of_shadow(_shadow(95, timed=n, **times[n]), stage=small).outcome for n in times}
    assert got == {9: "inconclusive", 10: "pass"}


# --- classes and denominators ------------------------------------------------------------------


def test_a_class_of_pods_that_is_decided_wrong_fails_however_small_its_share() -> None:
    """GPU pods scored the wrong way were 8 % of all, below the 25 % that may be moved."""
    fields = {
        "counts": {MOVED: 12},
        "placed_by_class": {"namespace default": 150, "requests example.com/gpu": 12},
        "moved_by_class": {"namespace default": 12, "requests example.com/gpu": 12},
    }
    small = ShadowStage(STAGE.duration, compared=150)
    verdict = _of_shadow(_shadow(150, **fields), stage=small)
    assert verdict.outcome == "fail"
    assert verdict.why == (
        "maxMovedOfClass: 100% (12 of 12) of `requests example.com/gpu` in 2 of 2 classes, "
        "want at most 25%"
    )


def test_few_pods_of_a_class_that_may_be_chance_fail_nothing() -> None:
    """Of a quarter that may be moved, five of five are once in 1,000 edits, and there are classes
    in plenty: an approximation for many had them fail.
    """
    known, moved = {"namespace a": 5, "namespace b": 5, "no owner": 10}, {"namespace a": 5}
    progress = Progress(500, is_over=False, is_long=False)
    result = SomeClass(moved, known).judge("maxMovedOfClass", 0.25, progress)
    assert (result.verdict, result.value) == ("pass", 1.0)
    assert result.text.endswith("want at most 25% (within chance)")
    known["namespace a"] = moved["namespace a"] = 8
    assert SomeClass(moved, known).judge("maxMovedOfClass", 0.25, progress).verdict == "fail"


def test_pods_that_are_meant_to_move_may_move_and_nothing_else_may() -> None:
    """With a flipped sign in force the good text moves every pod: who wrote it knows why."""
    moved = _shadow(counts={MOVED: 500}, moved_by_class={"no owner": 500})
    verdict = judge_shadow(moved, STAGE, GATES, 60.0, TakenAway(is_meant=True))
    assert verdict.outcome == "pass"
    assert "want at most 25% (meant)" in verdict.why
    moved.counts[NEWLY_PENDING] = 1
    assert judge_shadow(moved, STAGE, GATES, 60.0, TakenAway(is_meant=True)).outcome == "fail"


def test_many_small_classes_raise_no_false_alarm() -> None:
    """An edit that moves 20 % of all pods of each class, judged for 100 classes after each ten."""
    random_ = random.Random(4)
    alarms = 0
    for _ in range(100):
        totals, moved = {f"namespace {n}": 0 for n in range(100)}, Counter[str]()
        for _ in range(60):
            for name in random_.sample(sorted(totals), 10):
                totals[name] += 1
                moved[name] += random_.random() < 0.2
            progress = Progress(500, is_over=False, is_long=False)
            result = SomeClass(moved, totals).judge("maxMovedOfClass", 0.25, progress)
            if result.verdict == "fail":
                alarms += 1
                break
    assert alarms <= 3


def test_pods_that_have_no_node_either_way_say_nothing_of_moves() -> None:
    """A flipped sign passed: the pods that were compared waited, whatever decided them."""
    verdict = _of_shadow(_shadow(placed=2, placed_by_class={"no owner": 2}))
    assert verdict.outcome == "inconclusive"
    assert "maxMoved: 0% (0 of 2 compared decisions), want at most 25% (2 of 30 needed)" in (
        verdict.why
    )
    assert "maxMovedOfClass: no class of 5 placed decisions" in verdict.why


def test_a_share_of_next_to_nothing_refuses_no_edit() -> None:
    """After 4 of 150 decisions, all of them moved, a text was refused: 100%, want at most 25%.

    The first decisions of a stage often are pods of one Deployment, which are all moved or none.
    """
    stage = ShadowStage(STAGE.duration, compared=150)
    few = _of_shadow(_shadow(4, counts={MOVED: 4}), 12.0, stage=stage)
    assert _gate(few, "maxMoved").verdict == "inconclusive"
    assert "maxMoved: 100% (4 of 4 compared decisions), want at most 25% (may be chance)" in few.why
    enough = _of_shadow(_shadow(30, counts={MOVED: 30}), 12.0, stage=stage)
    assert _gate(enough, "maxMoved").verdict == "fail"
    # A stage that wants fewer decides by as many as it wants.
    small = ShadowStage(STAGE.duration, compared=10)
    assert (
        _gate(_of_shadow(_shadow(10, counts={MOVED: 10}), 12.0, stage=small), "maxMoved").verdict
        == "fail"
    )


def test_differences_that_drifted_are_no_agreement() -> None:
    """On a busy machine what differed was left out as drifted, and what agreed was counted."""
    verdict = _of_shadow(_shadow(30, unsure=40), stage=ShadowStage(STAGE.duration, compared=30))
    assert verdict.outcome == "inconclusive"
    assert verdict.why == (
        "maxMoved: 0% (0 of 30 compared decisions), want at most 25% "
        "(40 others differed, and drifted)"
    )
    assert _of_shadow(_shadow(unsure=40)).outcome == "pass"


# --- canary ----------------------------------------------------------------------------------


def test_a_canary_as_good_as_its_control_sample_passes() -> None:
    verdict = _of_canary(_arm())
    assert verdict.outcome == "pass"
    names = [*(name for name, _, _ in CANARY_GATES), *(name for name, _, _ in LOSS_GATES)]
    assert [gate.name for gate in verdict.gates] == ["duration", "decisions", "control", *names]


@pytest.mark.parametrize(
    ("canary", "control", "want"),
    [
        pytest.param(
            _arm(pending=15, pending_owners=12),
            _arm(pending=1, pending_owners=1, decisions=58),
            "maxNewlyPending: 15 in 60 decisions, in the control sample 1 in 58, "
            "want at most 0 more",
            id="pending",
        ),
        pytest.param(
            _arm(victims=30, evicting_owners=12),
            _arm(),
            "maxEvictions: 30 in 60 decisions, in the control sample 0 in 60, want at most 0 more",
            id="evictions",
        ),
        pytest.param(
            _arm(failed=1, failed_owners=1),
            _arm(),
            "errorRate: 1.667% (1 of 60 decisions), want at most 0%",
            id="an error where there are none",
        ),
        pytest.param(
            _arm(failed=30, failed_owners=15),
            _arm(failed=1, failed_owners=1),
            "errorRate: 30 in 60 decisions, in the control sample 1 in 60, want at most 0% more",
            id="more errors than before",
        ),
        pytest.param(
            _arm(**_times(60, 4 * MS, spread=MS)),
            _arm(),
            "latency: 4 times (4ms, in the control sample 1ms), want at most 2 times",
            id="slow",
        ),
        pytest.param(
            _arm(**_binds(50, 8.0, spread=1.0)),
            _arm(),
            "timeToBind: 4 times (8s, in the control sample 2s), want at most 2 times",
            id="slow to bind",
        ),
    ],
)
def test_a_bad_canary_fails_before_the_end(
    canary: ArmMeasures, control: ArmMeasures, want: str
) -> None:
    verdict = _of_canary(canary, control, 1.0)
    assert (verdict.outcome, verdict.why) == ("fail", want)


@pytest.mark.parametrize(
    ("canary", "control", "want"),
    [
        pytest.param(
            _arm(),
            _arm(decisions=40),
            "control: 40 of 50 decisions; latency: 1 times (1ms, in the control sample 1ms), "
            "want at most 2 times (40 of 50 decisions)",
            id="small control sample",
        ),
        pytest.param(
            _arm(decisions=40),
            _arm(),
            "decisions: 40 of 50; latency: 1 times (1ms, in the control sample 1ms), "
            "want at most 2 times (40 of 50 decisions)",
            id="small canary",
        ),
        pytest.param(
            _arm(pending=40, pending_owners=6),
            _arm(pending=1, pending_owners=1),
            "maxNewlyPending: 40 in 60 decisions, in the control sample 1 in 60, "
            "want at most 0 more (may be chance)",
            id="not yet clear",
        ),
        pytest.param(
            _arm(pending=40, pending_owners=4, owners=4),
            _arm(),
            "maxNewlyPending: 40 in 60 decisions, in the control sample 0 in 60, "
            "want at most 0 more (too few owners to say: 4 of 10)",
            id="few owners",
        ),
        pytest.param(
            _arm(**_binds(19, 90.0)),
            _arm(),
            "timeToBind: 45 times (90s, in the control sample 2s), want at most 2 times "
            "(19 of 20 bound pods)",
            id="few are bound",
        ),
        pytest.param(
            _arm(**_binds(0, 0.0)),
            _arm(),
            "timeToBind: 0 of 20 bound pods, want at most 2 times",
            id="none is bound",
        ),
        pytest.param(
            _arm(**_binds(50, 90.0), bound_owners=2),
            _arm(),
            "timeToBind: 45 times (90s, in the control sample 2s), want at most 2 times "
            "(too few owners to say: 2 of 10)",
            id="pods of two owners wait together",
        ),
    ],
)
def test_what_a_canary_lacks_is_said(canary: ArmMeasures, control: ArmMeasures, want: str) -> None:
    verdict = _of_canary(canary, control)
    assert (verdict.outcome, verdict.why.replace("1m30s", "90s")) == ("inconclusive", want)


def test_one_pod_that_fits_nowhere_is_no_bad_canary() -> None:
    """It is decided again and again, and may be in either arm."""
    verdict = _of_canary(_arm(decisions=400, pending=340, pending_owners=1))
    assert verdict.outcome == "pass"
    assert _gate(verdict, "maxNewlyPending").text.endswith("want at most 0 more (within chance)")


def test_a_second_more_is_no_slow_binding() -> None:
    binds = {"control": _binds(50, 0.1, 0.01), "canary": _binds(50, 1.0, 0.1)}
    verdict = _of_canary(_arm(**binds["canary"]), _arm(**binds["control"]))
    assert verdict.outcome == "pass"


# --- as a whole ------------------------------------------------------------------------------


def test_a_verdict_can_be_sent_as_json() -> None:
    far = _of_canary(_arm(**_binds(50, 90.0)), _arm(**_binds(50, 0.0)))
    assert _gate(far, "timeToBind").value is None
    assert _gate(far, "timeToBind").text.startswith("timeToBind: many times (1m30s, ")
    assert msgspec.json.decode(msgspec.json.encode(far), type=Verdict) == far


_SMALL = st.integers(0, 60)


@st.composite
def _shadows(draw: st.DrawFn) -> ShadowMeasures:
    compared = draw(st.integers(0, 1_500))
    kinds = {kind: draw(st.integers(0, compared)) for kind in (MOVED, NEWLY_PENDING, FAILED)}
    timed = draw(st.integers(0, compared))
    mean, spread = draw(st.floats(0, 0.1)), draw(st.floats(0, 0.1))
    times = _times(timed, mean, spread=spread) | _times(timed, MS, "_before")
    rare = draw(st.booleans())
    counts = {kind: count if rare else 0 for kind, count in kinds.items()}
    victims = draw(st.integers(-3, 3)) if rare else 0
    return _shadow(compared, counts=counts, victims=victims, timed=timed, **times)


_GATES = st.builds(
    Gates,
    max_moved=st.floats(0, 1),
    max_newly_pending=st.integers(0, 50),
    max_evictions=st.integers(0, 3),
    error_rate=st.floats(0, 1),
    latency=st.floats(1, 20),
)


@given(_shadows(), _GATES, st.floats(0, 120))
def test_what_passes_the_shadow_is_within_every_bound(
    measures: ShadowMeasures, gates: Gates, elapsed: float
) -> None:
    verdict = _of_shadow(measures, elapsed, gates)
    if verdict.outcome != "pass":
        assert any(gate.verdict != "pass" for gate in verdict.gates)
        return
    assert elapsed >= 60
    assert measures.compared >= 500
    assert measures.counts.get(MOVED, 0) <= gates.max_moved * measures.compared
    assert measures.counts.get(NEWLY_PENDING, 0) <= gates.max_newly_pending
    assert measures.counts.get(FAILED, 0) <= gates.error_rate * measures.compared
    assert measures.victims <= gates.max_evictions
    more = measures.seconds - measures.seconds_before
    assert (
        measures.seconds <= gates.latency * measures.seconds_before
        or more <= 0.001 * measures.timed
    )


@given(_shadows(), st.floats(0, 120), st.sampled_from([MOVED, NEWLY_PENDING, FAILED]), _SMALL)
def test_more_bad_decisions_never_make_a_failed_shadow_pass(
    measures: ShadowMeasures, elapsed: float, kind: str, more: int
) -> None:
    before = _of_shadow(measures, elapsed)
    worse = msgspec.json.decode(msgspec.json.encode(measures), type=ShadowMeasures)
    worse.compared += more
    worse.placed += more * (kind == MOVED)
    worse.counts[kind] = worse.counts.get(kind, 0) + more
    after = _of_shadow(worse, elapsed)
    name = {MOVED: "maxMoved", NEWLY_PENDING: "maxNewlyPending", FAILED: "errorRate"}[kind]
    if _gate(before, name).verdict == "fail":
        assert _gate(after, name).verdict == "fail"
        assert after.outcome == "fail"


@st.composite
def _arms(draw: st.DrawFn) -> ArmMeasures:
    owners = draw(st.integers(0, 60))
    decisions = owners * draw(st.integers(1, 4))
    harm: dict[str, int] = {}
    for count, affected in (("pending", "pending_owners"), ("failed", "failed_owners")):
        harm[affected] = draw(st.integers(0, owners))
        harm[count] = min(decisions, harm[affected] * draw(st.integers(1, 4)))
    harm["evicting_owners"] = draw(st.integers(0, owners))
    harm["victims"] = harm["evicting_owners"] * 2
    bad = draw(st.sampled_from(["pending", "failed", "victims", "none"]))
    kept = {"pending": "pending_owners", "failed": "failed_owners", "victims": "evicting_owners"}
    harm = {k: v for k, v in harm.items() if k in (bad, kept.get(bad))}
    return _arm(decisions=decisions, owners=owners, **harm)


@given(_arms(), _arms(), st.floats(0, 120), st.integers(1, 60), st.booleans())
def test_more_pending_pods_never_make_a_failed_canary_pass(
    canary: ArmMeasures, control: ArmMeasures, elapsed: float, more: int, of_others: bool
) -> None:
    before = _gate(_of_canary(canary, control, elapsed), "maxNewlyPending")
    worse = msgspec.structs.replace(
        canary, decisions=canary.decisions + more, pending=canary.pending + more
    )
    if of_others:
        worse.owners += more
        worse.pending_owners += more
    verdict = _of_canary(worse, control, elapsed)
    if before.verdict == "fail":
        assert _gate(verdict, "maxNewlyPending").verdict == "fail"
        assert verdict.outcome == "fail"


@given(_arms(), _arms(), _GATES, st.floats(0, 120))
def test_what_passes_a_canary_is_within_every_bound_or_within_chance(
    canary: ArmMeasures, control: ArmMeasures, gates: Gates, elapsed: float
) -> None:
    verdict = judge_canary(canary, control, STEP, gates, elapsed)
    if verdict.outcome == "pass":
        assert elapsed >= 60
        assert min(canary.decisions, control.decisions) >= 50
        for gate in verdict.gates[3:]:
            assert gate.value is not None
            assert gate.value <= gate.bound or gate.text.endswith("(within chance)")


@given(_shadows(), _GATES, _arms(), _arms(), st.floats(0, 120))
def test_every_gate_names_measure_value_and_bound(
    measures: ShadowMeasures,
    gates: Gates,
    canary: ArmMeasures,
    control: ArmMeasures,
    elapsed: float,
) -> None:
    for verdict in (
        _of_shadow(measures, elapsed, gates),
        judge_canary(canary, control, STEP, gates, elapsed),
    ):
        deciding = [gate.text for gate in verdict.gates if gate.verdict == verdict.outcome]
        assert verdict.why == "; ".join(deciding) != ""
        for gate in verdict.gates:
            assert gate.text.startswith(f"{gate.name}: ")
            assert " of " in gate.text or ", want at most " in gate.text
            assert gate.verdict != "fail" or (gate.value is None or gate.value > gate.bound)


# --- how often it errs -----------------------------------------------------------------------


def _outcome(seed: int, strict: float = 0.0) -> str:
    """The outcome of a step that is judged after every ten pods, of up to 1,000 in each arm.

    Of the owners, who have few pods each, a tenth has pods that fit nowhere and are tried up to 20
    times, and with the candidate so many more as *strict* says. Durations have long tails.
    """
    random_ = random.Random(seed)
    arms = ArmCounter(), ArmCounter()
    hopeless = [{owner for owner in range(1_000) if random_.random() < 0.1} for _ in arms]
    hopeless[0] |= {owner for owner in range(1_000) if random_.random() < strict}
    for moment in range(1, 201):
        for arm, lost in zip(arms, hopeless, strict=True):
            for _ in range(5):
                number = moment // 4 * 8 + random_.randrange(8)
                pending = number in lost
                for _ in range(random_.randrange(1, 20) if pending else 1):
                    seconds = MS * random_.lognormvariate(0.0, 1.0)
                    arm.decided(f"{number}", seconds, failed=False, victims=0)
                    if pending:
                        arm.stays(f"{number}")
                if not pending:
                    arm.bound(f"{number}", random_.lognormvariate(0.0, 1.0))
        canary, control = (arm.measures for arm in arms)
        verdict = judge_canary(canary, control, STEP, GATES, moment * 6.0)
        if verdict.outcome != "inconclusive":
            return verdict.outcome
    return "inconclusive"


def test_equal_arms_hardly_ever_fail_and_are_promoted() -> None:
    outcomes = [_outcome(seed) for seed in range(200)]
    assert outcomes.count("fail") <= 2
    assert outcomes.count("pass") >= 198


def test_a_filter_that_rejects_a_third_of_the_owners_hardly_ever_passes() -> None:
    outcomes = [_outcome(seed, strict=0.33) for seed in range(100)]
    assert outcomes.count("fail") >= 85
