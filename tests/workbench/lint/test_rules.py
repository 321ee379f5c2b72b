"""What the lints report of the policies in `rules/`, and what they leave alone.

A folder has one rule, or one side of it: `bad.star` what is reported, `good.star` what is not.
Each file holds cases, and each case is a file `x.star` of its own, unless it names more:

    # === the name of the case
    def filter(pod, node):
        return False  # want error wrong-return: returns True or False here
    # --- y.star
    ...

`# want LINT` at the end of a line expects one finding there: `error` before it if it is more than a
warning, and after a colon a part of its message or of its hint. A case fails for each finding that
no comment expects and for each that is missing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from engine.policy.check import check_files
from workbench.lint.finding import LINTS
from workbench.lint.linter import lint_files

_RULES: Final = Path(__file__).parent / "rules"
_WANT: Final = re.compile(r"  # want (error )?([\w-]+)(?:: (.*?))?(?=  # want |$)")


@dataclass(frozen=True, slots=True)
class _Want:
    lint: str
    is_error: bool
    part: str


@dataclass(frozen=True, slots=True)
class _Case:
    files: dict[str, str]
    wants: dict[tuple[str, int], list[_Want]]


def _case(text: str) -> _Case:
    files: dict[str, list[str]] = {}
    wants: dict[tuple[str, int], list[_Want]] = {}
    file = "x.star"
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("# --- "):
            file = line.removeprefix("# --- ")
            continue
        lines = files.setdefault(file, [])
        found = list(_WANT.finditer(line))
        lines.append(line[: found[0].start()] if found else line)
        if found:
            wants[file, len(lines)] = [_Want(m[2], bool(m[1]), m[3] or "") for m in found]
    return _Case({name: "\n".join(lines) + "\n" for name, lines in files.items()}, wants)


def _cases() -> Iterator[tuple[str, _Case]]:
    for path in sorted(_RULES.glob("*/*.star")):
        _, *parts = re.split(r"^# === ", path.read_text(), flags=re.MULTILINE)
        for part in parts:
            name, _, text = part.partition("\n")
            yield f"{path.parent.name}, {path.stem}: {name}", _case(text)


_CASES: Final = dict(_cases())


@pytest.mark.parametrize("name", _CASES)
def test_findings_are_those_that_the_comments_expect(name: str) -> None:
    case = _CASES[name]
    assert [p for p in check_files(case.files) if p.severity == "error"] == []
    assert bool(case.wants) is (", bad: " in name)
    wants = {place: list(wants) for place, wants in case.wants.items()}
    for finding in lint_files(case.files):
        problem = finding.problem
        here = wants.setdefault((problem.file, problem.line), [])
        expected = next((want for want in here if want.lint == finding.lint), None)
        assert expected is not None, f"nothing expects {finding}"
        here.remove(expected)
        assert (problem.severity == "error") is expected.is_error, finding
        assert expected.part in f"{problem.message}\n{problem.hint}"
    assert {place: missing for place, missing in wants.items() if missing} == {}


def test_every_lint_has_a_case() -> None:
    wanted = {w.lint for case in _CASES.values() for wants in case.wants.values() for w in wants}
    assert wanted == set(LINTS)
