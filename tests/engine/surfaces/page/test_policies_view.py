"""The screen of the policies: the way of a revision, and where its problems are shown."""

import pytest

from engine.surfaces.live.answers import FileDiff, ProblemAnswer, RevisionAnswer, Stage
from engine.surfaces.page.policies_view import diff_view, policies_view, revision_view, steps_of
from tests.engine.surfaces.page import answers


def _revision(*stages: str, result: str = "", note: str = "", **fields: bool) -> RevisionAnswer:
    return RevisionAnswer(
        revision="abc",
        at=answers.AT,
        result=result,
        stages=tuple(Stage(stage=name, at=answers.AT, seconds=0.5, note=note) for name in stages),
        **fields,  # type: ignore[arg-type]  # is_in_force alone
    )


@pytest.mark.parametrize(
    ("revision", "want"),
    [
        pytest.param(_revision("offered"), "now ahead ahead ahead ahead ahead", id="offered"),
        pytest.param(
            _revision("offered", "checked", "tested"),
            "done done now ahead ahead ahead",
            id="tested",
        ),
        pytest.param(
            _revision("offered", "checked", "tested", "loaded", "tried", "probation"),
            "done done done done now ahead",
            id="on probation",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "in_force",
                result="accepted", is_in_force=True,
            ),
            "done done done done skipped done",
            id="in force without a probation",
        ),
        pytest.param(
            _revision("offered", "rejected", result="rejected", note="check: 1 problem"),
            "done failed ahead ahead ahead ahead",
            id="rejected by the check",
        ),
        pytest.param(
            _revision("offered", "checked", "rejected", result="rejected"),
            "done done failed ahead ahead ahead",
            id="rejected without naming the stage",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "probation", "rolled_back",
                result="rolled_back",
            ),
            "done done done done failed ahead",
            id="rolled back",
        ),
        pytest.param(
            _revision("offered", "checked", "tested", "tried", "shadow"),
            "done done done done now ahead ahead",
            id="in a shadow",
        ),
        pytest.param(
            _revision("offered", "checked", "tested", "tried", "shadow", "canary", "canary"),
            "done done done done done now ahead ahead",
            id="in a canary",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "shadow", "canary", "probation",
                "in_force", result="in_force", is_in_force=True,
            ),
            "done done done done done done done done",
            id="in force after all stages",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "shadow", "rejected",
                result="rejected", note="shadow: maxNewlyPending",
            ),
            "done done done done failed ahead ahead",
            id="failed in a shadow",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "shadow", "canary", "rejected",
                result="rejected", note="abort: aborted by jane",
            ),
            "done done done done done failed ahead ahead",
            id="aborted in a canary",
        ),
        pytest.param(
            _revision(
                "offered", "checked", "tested", "tried", "canary", "superseded",
                result="superseded",
            ),
            "done done done done skipped ahead ahead",
            id="superseded in a canary",
        ),
    ],
)  # fmt: skip
def test_the_way_of_a_revision(revision: RevisionAnswer, want: str) -> None:
    assert [step.state for step in steps_of(revision)] == want.split()


def test_loading_counts_as_trying() -> None:
    steps = {step.name: step for step in steps_of(_revision("offered", "loaded", "tried"))}
    assert steps["tried"].seconds == 1.0


def test_a_problem_is_shown_at_its_line_of_the_difference() -> None:
    problem = ProblemAnswer("a.star", 11, 3, "no such field")
    diff = FileDiff(
        "a.star", ("--- a", "+++ b", "@@ -9,3 +9,3 @@", " x", " y", "-old", "+new", "\\ No newline")
    )
    view = diff_view(diff, {11: [problem]})
    assert [(line.kind, line.number) for line in view.lines] == [
        ("hunk", None), ("same", 9), ("same", 10), ("removed", None), ("added", 11),
        ("hunk", None),
    ]  # fmt: skip
    assert view.lines[-2].problems == (problem,)


def test_a_changed_line_that_looks_like_a_header_is_a_line() -> None:
    view = diff_view(FileDiff("a.star", ("@@ -1 +1 @@", "--- x", "+++ y")), {})
    assert [(line.kind, line.text) for line in view.lines[1:]] == [
        ("removed", "-- x"),
        ("added", "++ y"),
    ]


def test_a_problem_elsewhere_is_listed() -> None:
    page = answers.policies()
    far = ProblemAnswer("prefer_disk.star", 99, 1, "far away")
    other = ProblemAnswer("profile.yaml", 0, 0, "no such policy")
    revision = RevisionAnswer(
        revision="x", at=answers.AT, result="rejected", problems=(far, other),
        diff=page.revisions[0].diff,
    )  # fmt: skip
    assert revision_view(revision, answers.AT).problems == (far, other)


def test_warnings_are_shown_at_the_lines_in_force() -> None:
    warning = {"file": "prefer_disk.star", "line": 2, "column": 4, "message": "slow", "hint": ""}
    page = answers.policies(active={"warnings": [warning]})
    (file,) = policies_view(page).files
    assert [len(line.problems) for line in file.lines] == [0, 1]
