"""What formatting changes, line by line."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cli.format_diff import format_diff
from workbench.formatting import formatted


def applied(before: str, diff: str) -> list[str]:
    """The lines of *before* with *diff* in force; fails where they are not what it says."""
    old, new, at = before.splitlines(), list[str](), 0
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1].removeprefix("-").partition(",")
            begin = int(start) - (count != "0")
            new += old[at:begin]
            at = begin
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            new += [line[1:]] if line[0] == " " else []
            at += 1
    return new + old[at:]


_lines = st.lists(st.sampled_from(["", "", "  ", "a", "b=1", "b = 1", "c"]), max_size=12)


@given(_lines, _lines)
def test_a_diff_says_all_that_changes(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(old), "\n".join(new)
    diff = format_diff("x", before, after)
    assert (diff == "") == (before.splitlines() == after.splitlines())
    assert applied(before, diff) == after.splitlines()


TEXT = """x=1
y = 2


def f( a ):
  return a
def g():
    return 1
z = 3


"""


def test_it_reads_as_every_unified_diff() -> None:
    assert format_diff("x", TEXT, formatted(TEXT)).splitlines() == [
        "--- x",
        "+++ x (formatted)",
        "@@ -1,11 +1,10 @@",
        "-x=1",
        "+x = 1",
        " y = 2",
        " ",
        "-",
        "-def f( a ):",
        "-  return a",
        "+def f(a):",
        "+    return a",
        "+",
        " def g():",
        "     return 1",
        "+",
        " z = 3",
        "-",
        "-",
    ]


def test_large_files_are_not_searched_for_the_likes_of_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every second line is changed, and to find that for 20,000 took six minutes."""

    def refuse(*_: object) -> None:
        raise AssertionError("a search")

    monkeypatch.setattr(difflib.SequenceMatcher, "find_longest_match", refuse)
    before = "".join(f"def f{n}(a,b):\n    return {n}\n" for n in range(300))
    diff = format_diff("x", before, formatted(before))
    assert diff.count("\n-def f") == diff.count("\n+def f") == 300
