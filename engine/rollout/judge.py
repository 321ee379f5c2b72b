"""Judges a stage of a roll-out by its measures: pass, fail or inconclusive, and why.

Pure. Owns which gate reads which measure, and what makes a stage pass: its time is over, it has as
many decisions as it wants, and every gate passes. The rule of each kind of gate is `readings`'.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from engine.comparing.difference import FAILED, MOVED, NEWLY_PENDING
from engine.policy.rollout_config import CanaryStep, Gates, ShadowStage
from engine.rollout.measures import (
    FIT_NOWHERE,
    NO_LOSSES,
    NODES,
    ORDER,
    WITHOUT_PROFILE,
    ArmMeasures,
    Losses,
    ShadowMeasures,
)
from engine.rollout.readings import (
    FEW_PLACED,
    PATIENCE,
    Count,
    Excess,
    Harm,
    Lost,
    Progress,
    Reading,
    Share,
    Slowdown,
    SomeClass,
    Times,
    enough,
    long_enough,
)
from engine.rollout.status import GateResult, Verdict

_M = TypeVar("_M")
_Gate = tuple[str, Callable[[Gates], float | None], Callable[[_M], Reading]]


class Arms(NamedTuple):
    """A canary and its control sample."""

    canary: ArmMeasures
    control: ArmMeasures


class TakenAway(NamedTuple):
    """What an edit takes away, and whether who wrote it has said that this is meant."""

    losses: Losses = NO_LOSSES
    is_meant: bool = False


NOTHING: Final = TakenAway()


def judge_losses(taken: TakenAway, gates: Gates) -> Verdict:
    """What is known of a candidate before its stages begin."""
    progress = Progress(0, is_over=True, is_long=True)
    return _verdict(_meant(_results(LOSS_GATES, taken.losses, gates, progress), taken))


def judge_shadow(
    measures: ShadowMeasures,
    stage: ShadowStage,
    gates: Gates,
    elapsed: float,
    taken: TakenAway = NOTHING,
) -> Verdict:
    """What the comparison with the policies in force says of a candidate.

    *elapsed* is seconds since the stage began.
    """
    skipped = sorted(measures.skipped.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count} {why}" for why, count in skipped if count)
    note = f" (skipped: {listed})" if listed else ""
    wanted = (
        long_enough(max(0.0, elapsed), stage.duration.total_seconds()),
        enough("compared", measures.compared, stage.compared, note),
    )
    progress = _progress(wanted, measures.compared, stage.compared)
    found = _results(SHADOW_GATES, measures, gates, progress)
    found += _results(LOSS_GATES, taken.losses, gates, progress)
    return _verdict([*wanted, *_meant(found, taken)])


def judge_canary(
    canary: ArmMeasures,
    control: ArmMeasures,
    step: CanaryStep,
    gates: Gates,
    elapsed: float,
    taken: TakenAway = NOTHING,
) -> Verdict:
    """What the pods that a candidate decides for say of it.

    *elapsed* is seconds since the step began, and so are the measures.
    """
    wanted = (
        long_enough(max(0.0, elapsed), step.duration.total_seconds()),
        enough("decisions", canary.decisions, step.decisions),
        enough("control", control.decisions, step.decisions, " decisions"),
    )
    least = min(canary.decisions, control.decisions)
    progress = _progress(wanted, least, step.decisions)
    found = _results(CANARY_GATES, Arms(canary, control), gates, progress)
    found += _results(LOSS_GATES, taken.losses, gates, progress)
    return _verdict([*wanted, *_meant(found, taken)])


def _progress(wanted: Sequence[GateResult], decisions: int, least: int) -> Progress:
    is_over = all(one.verdict == "pass" for one in wanted)
    return Progress(least, is_over, is_over and decisions >= PATIENCE * least)


def _results(
    table: Iterable[_Gate[_M]], measures: _M, gates: Gates, progress: Progress
) -> list[GateResult]:
    watched = [(name, bound_of(gates), reading) for name, bound_of, reading in table]
    return [
        reading(measures).judge(name, float(bound), progress)
        for name, bound, reading in watched
        if bound is not None
    ]


def _meant(results: Iterable[GateResult], taken: TakenAway) -> list[GateResult]:
    """*results*, of which those about intentions pass if what is beyond their bound is meant."""

    def is_meant(one: GateResult) -> bool:
        if not taken.is_meant or one.name not in MEANT_GATES or one.verdict == "pass":
            return False
        is_unknown = taken.losses.failed != "" and one.value is None
        return is_unknown or (one.value is not None and one.value > one.bound)

    return [
        msgspec.structs.replace(one, verdict="pass", text=f"{one.text} (meant)")
        if is_meant(one)
        else one
        for one in results
    ]


def _verdict(results: Sequence[GateResult]) -> Verdict:
    texts = {
        outcome: "; ".join(one.text for one in results if one.verdict == outcome)
        for outcome in ("fail", "inconclusive", "pass")
    }
    if texts["fail"]:
        return Verdict("fail", texts["fail"], tuple(results))
    if texts["inconclusive"]:
        return Verdict("inconclusive", texts["inconclusive"], tuple(results))
    return Verdict("pass", texts["pass"], tuple(results))


# --- gates -----------------------------------------------------------------------------------


#: A shadow times what both sides decide (`shadow.comparer`: the first ones), perhaps not all.
_TIMED_ONE_IN: Final = 10


def _latency(
    candidate: Times, before: Times, what: str, other: str, *, one_in: int = 1
) -> Slowdown:
    return Slowdown(candidate, before, 0.001, 50, what, other, one_in, fails_far=True)


def _shadow_latency(of: ShadowMeasures) -> Slowdown:
    candidate = Times(of.timed, of.seconds, of.squares, of.timed)
    before = Times(of.timed, of.seconds_before, of.squares_before, of.timed)
    what, other = "timed decisions", "with the policies in force"
    return _latency(candidate, before, what, other, one_in=_TIMED_ONE_IN)


#: In the order in which they are shown: the name, the bound (None: not watched), what is read.
SHADOW_GATES: Final[tuple[_Gate[ShadowMeasures], ...]] = (
    (
        "maxMoved",
        lambda gates: gates.max_moved,
        # A pod that has no node either way cannot be moved: it says nothing.
        lambda of: Share(of.counts.get(MOVED, 0), of.placed, needed=FEW_PLACED, unsure=of.unsure),
    ),
    (
        "maxMovedOfClass",
        lambda gates: gates.max_moved_of_class,
        lambda of: SomeClass(of.moved_by_class, of.placed_by_class),
    ),
    (
        "maxNewlyPending",
        lambda gates: gates.max_newly_pending,
        lambda of: Count(of.counts.get(NEWLY_PENDING, 0), of.compared),
    ),
    (
        "maxEvictions",
        lambda gates: gates.max_evictions,
        lambda of: Count(
            of.victims,
            of.compared,
            "{count:+d} pods in {decisions} compared decisions, want at most {bound} more",
        ),
    ),
    (
        "errorRate",
        lambda gates: gates.error_rate,
        lambda of: Share(of.counts.get(FAILED, 0), of.compared),
    ),
    ("latency", lambda gates: gates.latency, _shadow_latency),
)


def _pending(arm: ArmMeasures) -> Harm:
    return Harm(arm.pending, arm.attempts, arm.pending_owners, arm.owners)


def _evictions(arm: ArmMeasures) -> Harm:
    return Harm(arm.victims, arm.decisions, arm.evicting_owners, arm.owners)


def _failures(arm: ArmMeasures) -> Harm:
    return Harm(arm.failed, arm.attempts, arm.failed_owners, arm.owners)


def _errors(arms: Arms) -> Reading:
    canary, control = arms
    if control.failed:
        return Excess(_failures(canary), _failures(control), is_rate=True)
    # Where the policies in force never fail, a failure is the candidate's.
    return Share(canary.failed, canary.attempts, "decisions")


def _canary_latency(arms: Arms) -> Slowdown:
    canary, control = (Times(a.decisions, a.seconds, a.squares, a.owners) for a in arms)
    return _latency(canary, control, "decisions", "in the control sample")


def _time_to_bind(arms: Arms) -> Slowdown:
    canary, control = (Times(a.bound, a.bind_seconds, a.bind_squares, a.bound_owners) for a in arms)
    what, other = "bound pods", "in the control sample"
    return Slowdown(canary, control, 1.0, needed=20, what=what, other=other)


CANARY_GATES: Final[tuple[_Gate[Arms], ...]] = (
    (
        "maxNewlyPending",
        lambda gates: gates.max_newly_pending,
        lambda arms: Excess(_pending(arms.canary), _pending(arms.control)),
    ),
    (
        "maxEvictions",
        lambda gates: gates.max_evictions,
        lambda arms: Excess(_evictions(arms.canary), _evictions(arms.control)),
    ),
    ("errorRate", lambda gates: gates.error_rate, _errors),
    ("latency", lambda gates: gates.latency, _canary_latency),
    ("timeToBind", lambda gates: gates.time_to_bind, _time_to_bind),
)


def _lost(kind: str, what: str, *, is_share: bool = False) -> Callable[[Losses], Lost]:
    def read(losses: Losses) -> Lost:
        count, of = losses.count(kind), losses.of(kind)
        value = count / of if is_share and of else float(count)
        return Lost(value, count, of, what, is_share, losses.failed)

    return read


#: Of both stages.
LOSS_GATES: Final[tuple[_Gate[Losses], ...]] = (
    (
        "maxWithoutProfile",
        lambda gates: gates.max_without_profile,
        _lost(WITHOUT_PROFILE, "pods would have no profile"),
    ),
    (
        "maxFitNowhere",
        lambda gates: gates.max_fit_nowhere,
        _lost(FIT_NOWHERE, "pods would fit nowhere"),
    ),
    (
        "maxNodesLost",
        lambda gates: gates.max_nodes_lost,
        _lost(NODES, "of the nodes would take none of the pods", is_share=True),
    ),
    (
        "maxReordered",
        lambda gates: gates.max_reordered,
        _lost(ORDER, "of the pairs of pods would be tried the other way round", is_share=True),
    ),
)

#: What may be meant: an edit may move pods on purpose, and take something away. Failures, time,
#: evictions and pods that turn out to be pending are meant by no one.
MEANT_GATES: Final = frozenset(
    {"maxMoved", "maxMovedOfClass", *(name for name, _, _ in LOSS_GATES)}
)
