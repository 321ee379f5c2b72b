"""What the screen of a roll-out shows: gates as bars, and differences by what they concern.

Owns the lengths of the bars and the order of the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.comparing.difference import KINDS, Difference
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.status import GateResult
from engine.surfaces.live.answers import RolloutPage
from engine.surfaces.live.rollout_page import stage_text
from engine.surfaces.page.words import word

_MOST_ROWS: Final = 20


@dataclass(frozen=True)
class Step:
    """A stage in words."""

    name: str
    state: str


@dataclass(frozen=True)
class GateView:
    """A gate.

    Attributes:
        share: How much of its bound is reached, at most 1.
        text: Without the gate's name, which it has in a verdict.
    """

    gate: GateResult
    share: float
    text: str


@dataclass(frozen=True)
class Row:
    """A number and the share of the compared decisions that it is."""

    name: str
    number: int
    share: float


@dataclass(frozen=True)
class Table:
    """Differences by policy, namespace or class; the largest first."""

    title: str
    rows: tuple[Row, ...]
    not_listed: int = 0


@dataclass(frozen=True)
class ScoreRow:
    """A policy's score of the nodes of an example, as its columns are; None: no score."""

    policy: str
    scores: tuple[int | None, ...]


@dataclass(frozen=True)
class ScoreColumn:
    """A node under a text; it is `chosen` there or not."""

    node: str
    is_chosen: bool
    total: int | None


@dataclass(frozen=True)
class ExampleView:
    """A difference with both nodes under both texts: first those in force, then the candidate's.

    Attributes:
        each: How many nodes there are under each text: one if its rival is not known.
    """

    example: Difference[str]
    each: int
    columns: tuple[ScoreColumn, ...]
    scores: tuple[ScoreRow, ...]


@dataclass(frozen=True)
class ArmRow:
    """A measure of the canary and of its control sample, in words."""

    name: str
    canary: str
    control: str


@dataclass(frozen=True)
class RolloutView:
    """The whole screen."""

    steps: tuple[Step, ...]
    gates: tuple[GateView, ...]
    compared: tuple[Row, ...] = ()
    kinds: tuple[Row, ...] = ()
    tables: tuple[Table, ...] = ()
    examples: tuple[ExampleView, ...] = ()
    arms: tuple[ArmRow, ...] = ()


def rollout_view(page: RolloutPage) -> RolloutView:
    """What the template shows for *page*."""
    steps = tuple(Step(stage_text(stage), stage.state) for stage in page.stages)
    gates = () if page.verdict is None else page.verdict.gates
    shown = tuple(
        GateView(gate, reached(gate), gate.text.removeprefix(f"{gate.name}: ")) for gate in gates
    )
    arms = arm_rows(page.canary or ArmMeasures(), page.control or ArmMeasures())
    if page.canary is None and page.control is None:
        arms = ()
    shadow = page.shadow
    if shadow is None:
        return RolloutView(steps, shown, arms=arms)
    return RolloutView(
        steps,
        shown,
        denominators(shadow),
        difference_rows(shadow),
        tuple(
            _table(title, counts, shadow.compared)
            for title, counts in (
                ("Policy", shadow.by_policy),
                ("Namespace", shadow.by_namespace),
                ("Class of pods", shadow.by_class),
            )
            if counts
        ),
        tuple(example_view(example) for example in shadow.examples),
        arms,
    )


def reached(gate: GateResult) -> float:
    """How much of the bound is reached: of 0, all of it by anything else."""
    if gate.value is None or gate.value <= 0:
        return 0.0
    return min(1.0, gate.value / gate.bound) if gate.bound > 0 else 1.0


def denominators(shadow: ShadowMeasures) -> tuple[Row, ...]:
    """What was decided, and how much of it was compared, or skipped and why, or is in line."""
    rows = [("compared", shadow.compared)]
    rows += [(f"skipped: {why}", n) for why, n in _largest_first(shadow.skipped)]
    if (in_line := shadow.decided - sum(n for _, n in rows)) > 0:
        rows.append(("not reached", in_line))
    return (
        Row("decided", shadow.decided, 1.0 if shadow.decided else 0.0),
        *(Row(name, n, _share(n, shadow.decided)) for name, n in rows),
    )


def difference_rows(shadow: ShadowMeasures) -> tuple[Row, ...]:
    """The differences by kind, the worst kind first; also those that do not occur."""
    kinds = (*KINDS, *(kind for kind in shadow.counts if kind not in KINDS))
    return tuple(
        Row(word(kind), n := shadow.counts.get(kind, 0), _share(n, shadow.compared))
        for kind in kinds
    )


def example_view(example: Difference[str]) -> ExampleView:
    """*example* with a row for each policy, those whose scores differ most first."""
    before, after = example.before, example.after
    shown = [
        (before, True, example.scores_before),
        (after, False, example.rival_before),
        (before, False, example.rival_after),
        (after, True, example.scores_after),
    ]
    if not (example.rival_before or example.rival_after):
        shown = [one for one in shown if one[1]]

    def difference(policy: str) -> tuple[int, str]:
        scores = [of.get(policy, 0) for _, _, of in shown if of]
        # What the texts say of one node, before what one text says of two.
        both = [(example.scores_before, example.rival_after)]
        both += [(example.rival_before, example.scores_after)]
        edit = max(abs(a.get(policy, 0) - b.get(policy, 0)) if a and b else 0 for a, b in both)
        return -(1_000_000 * edit + max(scores) - min(scores)), policy

    policies = {policy for _, _, of in shown for policy in of}
    return ExampleView(
        example,
        len(shown) // 2,
        tuple(
            ScoreColumn(node, is_it, sum(of.values()) if of else None) for node, is_it, of in shown
        ),
        tuple(
            ScoreRow(policy, tuple(of.get(policy) for _, _, of in shown))
            for policy in sorted(policies, key=difference)
        ),
    )


def arm_rows(canary: ArmMeasures, control: ArmMeasures) -> tuple[ArmRow, ...]:
    """The measures of both samples, side by side."""

    def mean(total: float, number: int, scale: float, unit: str) -> str:
        return f"{total / number * scale:,.1f} {unit}" if number else "–"

    def both(name: str, field: str) -> ArmRow:
        return ArmRow(name, f"{getattr(canary, field):,}", f"{getattr(control, field):,}")

    return (
        both("owners", "owners"),
        both("decisions", "decisions"),
        both("failed", "failed"),
        both("without a node", "pending"),
        both("victims", "victims"),
        ArmRow(
            "time of a decision",
            mean(canary.seconds, canary.decisions, 1000, "ms"),
            mean(control.seconds, control.decisions, 1000, "ms"),
        ),
        both("bound", "bound"),
        ArmRow(
            "time to bind",
            mean(canary.bind_seconds, canary.bound, 1, "s"),
            mean(control.bind_seconds, control.bound, 1, "s"),
        ),
    )


def _table(title: str, counts: Mapping[str, int], compared: int) -> Table:
    rows = _largest_first(counts)
    return Table(
        title,
        tuple(Row(name, n, _share(n, compared)) for name, n in rows[:_MOST_ROWS]),
        max(0, len(rows) - _MOST_ROWS),
    )


def _largest_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _share(number: int, of: int) -> float:
    return number / of if of else 0.0
