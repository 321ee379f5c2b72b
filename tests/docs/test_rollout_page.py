"""The page on roll-outs names the gates, reasons, keys and times that there are."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.comparing.difference import KINDS
from engine.policy.rollout_config import CanaryStage, Gates, ShadowStage
from engine.rollout import control, readings
from engine.rollout.judge import CANARY_GATES, LOSS_GATES, SHADOW_GATES, Arms
from engine.rollout.measures import ArmMeasures
from engine.rollout.shadow import comparer, shadow
from engine.surfaces.page.words import word

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rollout.md").read_text()


def table(first: str) -> list[list[str]]:
    """The cells of the rows of the table whose first heading is *first*."""
    head = re.search(rf"^\| {first} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert head is not None, first
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in head[1].splitlines()]


def names(cells: list[str]) -> list[str]:
    """What is written as code in *cells*."""
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize(
    ("column", "gates"),
    [(1, SHADOW_GATES), (2, CANARY_GATES)],
)
def test_each_gate_is_at_the_stages_that_measure_it(column: int, gates: Any) -> None:
    rows = table("gate")
    measured = [names([row[0]])[0] for row in rows if row[column] != "not measured"]
    known = [name for name, *_ in (*gates, *LOSS_GATES)]
    assert sorted(measured) == sorted(known)
    assert len(rows) == len(Gates.__slots__)


def test_what_is_said_of_chance_has_the_figures_of_the_code() -> None:
    text = " ".join(PAGE.partition("How chance is taken into account")[2].split())
    arms = Arms(ArmMeasures(), ArmMeasures())
    needed = {name: getattr(reading(arms), "needed", 0) for name, _, reading in CANARY_GATES}
    assert f"needs {needed['latency']} decisions ({needed['timeToBind']} bound pods" in text
    assert f"more than {readings.FAR_MULTIPLE:g} times as long, {readings.FAR_COUNT} dec" in text
    assert f"fewer than {readings.FEW_OWNERS} owners in an arm" in text
    assert f"`maxMoved` needs {readings.FEW_PLACED} decisions" in text
    assert f"fewer than {readings.FEW_OF_CLASS} such decisions" in text
    assert f"when there are {readings.PATIENCE} times as many decisions" in text


def test_why_decisions_are_skipped_is_all_there() -> None:
    known = {
        *(shadow.BUSY, shadow.CANARY, shadow.EXTENDERS, shadow.OTHERS),
        *(comparer.CLAIMS, comparer.DRIFTED, comparer.ERROR),
    }
    assert set(names([row[0] for row in table("skipped")])) == known


def test_the_keys_and_modes_of_the_control_are_all_there() -> None:
    rows = table("key")
    assert set(names([row[0] for row in rows])) == {
        control.MODE,
        control.PROMOTE,
        control.ABORT,
    }
    modes = names([row[1] for row in rows if row[0] in ("`mode`", "")])
    assert modes == [control.STAGED, control.PAUSED, control.AT_ONCE]


def test_the_kinds_of_differences_are_listed_in_their_order() -> None:
    assert f"({', '.join(word(kind) for kind in KINDS)})" in PAGE


@pytest.mark.parametrize("row", table("decisions a second"), ids=lambda row: row[0])
def test_the_times_follow_from_the_defaults(row: list[str]) -> None:
    rate = float(row[0])
    wanted = [
        (ShadowStage().duration, float(ShadowStage().compared)),
        *((step.duration, step.decisions / step.share) for step in CanaryStage().steps),
    ]
    seconds = [max(least.total_seconds(), count / rate) for least, count in wanted]
    assert row[1:] == [f"{one / 60:.0f} min" for one in (*seconds, sum(seconds))]


def test_the_decisions_that_are_said_to_be_wanted_follow_from_the_defaults() -> None:
    first, second = (f"{step.decisions / step.share:,.0f}" for step in CanaryStage().steps)
    assert f"({first} in all)" in PAGE
    assert f"({second} in all)" in PAGE
