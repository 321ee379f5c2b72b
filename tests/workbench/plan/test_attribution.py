"""The cause of a difference: which changed files make it, and at which line."""

from collections.abc import Mapping

import pytest

from workbench.plan.attribution import cause_of, changed_files, changed_line, changed_place

BASE = {"a.star": "1", "b.star": "1", "c.star": "1", "profile.yaml": "1"}


def test_files_that_are_equal_or_cannot_decide_are_no_cause() -> None:
    after = {**BASE, "a.star": "2", "a_test.star": "new", "data_test.yaml": "new"}
    assert changed_files(BASE, after) == ("a.star",)


def test_a_file_that_alone_makes_the_difference_is_the_cause() -> None:
    after = {**BASE, "a.star": "2", "b.star": "2", "c.star": "2"}
    asked: list[Mapping[str, str]] = []

    def differs(files: Mapping[str, str]) -> bool:
        asked.append(files)
        return files["b.star"] == "2"

    assert cause_of(BASE, after, differs) == ("b.star",)
    assert len(asked) == 2
    asked.clear()
    assert cause_of(BASE, after, differs, likely=["b.star"]) == ("b.star",)
    assert len(asked) == 1


def test_files_that_work_only_together_are_named_together() -> None:
    after = {**BASE, "a.star": "2", "new.star": "1", "profile.yaml": "2"}

    def differs(files: Mapping[str, str]) -> bool:
        return "new.star" in files and files["profile.yaml"] == "2"

    assert cause_of(BASE, after, differs) == ("new.star", "profile.yaml")


def test_a_file_that_is_removed_can_be_the_cause() -> None:
    after = {"b.star": "2", "c.star": "1", "profile.yaml": "1"}
    assert cause_of(BASE, after, lambda files: "a.star" not in files) == ("a.star",)


def test_the_only_changed_file_is_not_asked_about() -> None:
    def never(files: Mapping[str, str]) -> bool:
        raise AssertionError(files)

    assert cause_of(BASE, {**BASE, "a.star": "2"}, never) == ("a.star",)


@pytest.mark.parametrize(
    ("before", "after", "near", "want"),
    [
        pytest.param("a\nb\nc\n", "a\nx\nc\n", 0, 2, id="the changed line"),
        pytest.param("a\nb\nc\nd\n", "x\nb\nc\ny\n", 3, 4, id="the nearest to the rule"),
        pytest.param("a\nb\n", "# said\na\n\nx\n", 0, 4, id="comments are passed over"),
        pytest.param("a\nb\nc\n", "a\nc\n", 0, 2, id="after removed lines"),
        pytest.param("a\nb\n", "a\n", 0, 1, id="removed at the end"),
        pytest.param(None, "a\nb\n", 2, 2, id="a new file"),
        pytest.param("a\n", "a\n", 1, 0, id="no change"),
    ],
)
def test_the_changed_line(before: str | None, after: str, near: int, want: int) -> None:
    assert changed_line(before, after, near) == want


@pytest.mark.parametrize(
    ("causes", "rule", "want"),
    [
        pytest.param(["a.star"], "a.star:3", "a.star:3", id="in the file of the rule"),
        pytest.param(["a.star", "p.yaml"], "x.star:9", "a.star:1", id="a policy first"),
        pytest.param(["p.yaml"], "a.star:2", "p.yaml:2", id="the profile alone"),
        pytest.param(["gone.star"], "", "gone.star (removed)", id="a file that is removed"),
    ],
)
def test_the_changed_place(causes: list[str], rule: str, want: str) -> None:
    base = {"a.star": "1\n2\n3\n", "p.yaml": "1\n2\n", "gone.star": "1\n"}
    candidate = {"a.star": "x\n2\ny\n", "p.yaml": "1\nx\n"}
    assert changed_place(base, candidate, causes, rule) == want
