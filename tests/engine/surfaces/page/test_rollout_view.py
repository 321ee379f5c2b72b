"""The screen of a roll-out: bars, shares and tables."""

import pytest

from engine.comparing.difference import Difference
from engine.rollout.measures import ShadowMeasures
from engine.rollout.status import GateResult
from engine.surfaces.live.answers import RolloutPage
from engine.surfaces.page.rendering import render_content
from engine.surfaces.page.rollout_view import denominators, example_view, reached, rollout_view
from engine.surfaces.page.screens import ROLLOUT
from tests.engine.surfaces.page import answers


@pytest.mark.parametrize(
    ("value", "bound", "want"),
    [(0.1, 0.25, 0.4), (0.5, 0.25, 1.0), (0, 0, 0.0), (1, 0, 1.0), (None, 2.0, 0.0), (-3, 0, 0.0)],
)
def test_a_bar_shows_how_much_of_the_bound_is_reached(
    value: float | None, bound: float, want: float
) -> None:
    assert reached(GateResult("maxMoved", value, bound, "pass", "")) == want


def test_decisions_that_the_shadow_has_not_reached_are_no_gap() -> None:
    """50 decided, 14 compared and nothing skipped: where were the others?"""
    rows = denominators(ShadowMeasures(decided=50, compared=14, skipped={"busy": 6}))
    assert [(row.name, row.number) for row in rows[2:]] == [
        ("skipped: busy", 6),
        ("not reached", 30),
    ]


def test_denominators_come_first_and_every_kind_is_listed() -> None:
    view = rollout_view(answers.rollout())
    assert [(row.name, row.number) for row in view.compared] == [
        ("decided", 1300), ("compared", 1204), ("skipped: busy", 90), ("skipped: claims", 6),
    ]  # fmt: skip
    assert view.compared[1].share == pytest.approx(1204 / 1300)
    assert [(row.name, row.number) for row in view.kinds] == [
        ("failed", 0), ("newly pending", 1), ("other victims", 0), ("moved", 41),
        ("newly placed", 0),
    ]  # fmt: skip
    assert view.kinds[3].share == pytest.approx(41 / 1204)
    assert [(table.title, table.rows[0].name) for table in view.tables] == [
        ("Policy", "prefer_disk"), ("Namespace", "shop"), ("Class of pods", "shop/checkout"),
    ]  # fmt: skip


def test_the_rows_of_a_table_are_limited() -> None:
    shadow = ShadowMeasures(compared=100, by_class={f"c{i:02}": i for i in range(30)})
    (table,) = rollout_view(answers.rollout(shadow=shadow)).tables
    assert (len(table.rows), table.not_listed, table.rows[0].name) == (20, 10, "c29")


def test_both_nodes_are_scored_by_both_texts_and_what_the_edit_changes_comes_first() -> None:
    """`x` differs most between the nodes, but is the same under both texts."""
    before, rival_before = {"x": 900, "y": 50, "gone": 1}, {"x": 100, "y": 40}
    rival_after, after = {"x": 900, "y": 0}, {"x": 100, "y": 870}
    view = example_view(
        Difference("moved", "a/b", "n1", "n2", "", "", "", before, after, rival_before, rival_after)
    )
    assert [(one.node, one.is_chosen, one.total) for one in view.columns] == [
        ("n1", True, 951), ("n2", False, 140), ("n1", False, 900), ("n2", True, 970),
    ]  # fmt: skip
    assert [(row.policy, row.scores) for row in view.scores] == [
        ("y", (50, 40, 0, 870)),
        ("gone", (1, None, None, None)),
        ("x", (900, 100, 900, 100)),
    ]


def test_without_rivals_each_text_has_its_node_alone() -> None:
    view = example_view(Difference("moved", "a/b", "n1", "n2", "", "", "", {"x": 5}, {"x": 90}))
    assert (view.each, [one.node for one in view.columns]) == (1, ["n1", "n2"])
    assert view.scores[0].scores == (5, 90)


def test_both_samples_are_side_by_side() -> None:
    rows = {row.name: (row.canary, row.control) for row in rollout_view(answers.rollout()).arms}
    assert rows["owners"] == ("12", "11")
    assert rows["without a node"] == ("1", "0")
    assert rows["time of a decision"] == ("5.0 ms", "3.3 ms")
    assert rows["time to bind"] == ("0.4 s", "0.3 s")


def test_a_page_without_a_candidate_has_no_numbers() -> None:
    page = RolloutPage(
        revision=answers.REVISION, at=answers.AT, leader=answers.LEADER, headline="Nothing."
    )
    text = render_content(ROLLOUT, page, {})
    assert "Nothing." in text
    assert "come from no ConfigMap" in text
    for absent in ("gates", "compared", "canary", "examples", "commands"):
        assert f'id="{absent}"' not in text


def test_what_the_caller_may_not_see_is_said_to_be_left_out() -> None:
    text = render_content(ROLLOUT, answers.rollout(left_out=2), {})
    assert "2 namespaces whose pods are not yours to see are left out" in text
