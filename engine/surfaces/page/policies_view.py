"""What the screen of the policies shows: revisions with their stages, differences, texts.

Owns the order of the stages that every revision is shown with, and where in a text or a difference
a problem belongs.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from engine.surfaces.live.answers import FileDiff, PoliciesPage, ProblemAnswer, RevisionAnswer
from engine.surfaces.page.words import key, seconds_between

StepState = Literal["done", "now", "failed", "skipped", "ahead"]

#: The way of an edit, as the page draws it.
_STEPS: Final = (
    "offered", "checked", "tested", "tried", "shadow", "canary", "probation", "in_force",
)  # fmt: skip
#: Those that are drawn only for edits that have come to them: not everybody has them.
_OPTIONAL: Final = ("shadow", "canary")
#: Stages that others are shown as: loading into the sandbox is a part of trying.
_SHOWN_AS: Final = {"loaded": "tried"}
#: What the roll-out names a stage that failed, by the step that it would have been.
_FAILED_STEPS: Final = {
    "source": "offered",
    "check": "checked",
    "test": "tested",
    "load": "tried",
    "trial": "tried",
    "shadow": "shadow",
    "canary": "canary",
    "probation": "probation",
    "internal": "tried",
}
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True)
class Step:
    """One stage on a revision's way."""

    name: str
    state: StepState
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a text or of a difference, with the problems found there."""

    kind: Literal["same", "added", "removed", "hunk"]
    number: int | None
    text: str
    problems: tuple[ProblemAnswer, ...] = ()


@dataclass(frozen=True)
class TextView:
    """A file, or what changed in it."""

    file: str
    lines: tuple[Line, ...]
    problems: int = 0
    #: What the ids of the lines begin with; empty if they have none.
    anchor: str = ""


@dataclass(frozen=True)
class RevisionView:
    """A revision on the timeline."""

    answer: RevisionAnswer
    steps: tuple[Step, ...]
    diff: tuple[TextView, ...] = ()
    #: Those at no line that the difference shows.
    problems: tuple[ProblemAnswer, ...] = ()
    waited: float = 0.0
    #: What other screens lead to; empty if there is a later one of the same revision.
    anchor: str = ""

    @property
    def status(self) -> str:
        """The word for what it is now."""
        if not self.answer.is_in_force:
            return self.answer.result
        is_tested_out = any(step.name == "probation" and step.state == "now" for step in self.steps)
        return "on_probation" if is_tested_out else "in_force"


@dataclass(frozen=True)
class PoliciesView:
    """The whole screen."""

    revisions: tuple[RevisionView, ...]
    files: tuple[TextView, ...]
    warnings: tuple[ProblemAnswer, ...] = field(default=())


def policies_view(page: PoliciesPage) -> PoliciesView:
    """What the template shows for *page*."""
    warnings = _problems((page.active or {}).get("warnings", ()))
    by_file = _by_file(warnings)
    files = tuple(
        text_view(name, text, by_file.get(name, {})) for name, text in sorted(page.files.items())
    )
    # The latest of each revision is what other screens lead to.
    latest = {one.revision: id(one) for one in reversed(page.revisions)}
    anchors = (
        f"edit-{one.revision}" if latest[one.revision] == id(one) else "" for one in page.revisions
    )
    revisions = tuple(
        revision_view(one, page.at, anchor)
        for one, anchor in zip(page.revisions, anchors, strict=True)
    )
    return PoliciesView(revisions, files, warnings)


def revision_view(revision: RevisionAnswer, now: str, anchor: str = "") -> RevisionView:
    """One revision, its problems at the lines of its difference where it has them."""
    by_file = _by_file(revision.problems)
    diff = tuple(diff_view(one, by_file.get(one.file, {})) for one in revision.diff)
    placed = {id(p) for view in diff for line in view.lines for p in line.problems}
    rest = tuple(problem for problem in revision.problems if id(problem) not in placed)
    waited = seconds_between(revision.at, now)
    return RevisionView(revision, steps_of(revision), diff, rest, waited, anchor)


def steps_of(revision: RevisionAnswer) -> tuple[Step, ...]:
    """The way of *revision*: every step, and how far it came."""
    reached: dict[str, tuple[float | None, str]] = {}
    failed, failure, left = "", "", False
    for stage in revision.stages:
        name = _SHOWN_AS.get(stage.stage, stage.stage)
        if name in _STEPS:
            seconds = stage.seconds
            if name in reached and seconds is not None:
                seconds += reached[name][0] or 0.0
            reached[name] = (seconds, stage.note)
        elif name in ("rejected", "rolled_back"):
            failed, failure = _failed_step(name, stage.note, reached), stage.note
        elif name == "superseded":
            left = True
    latest = max((_STEPS.index(name) for name in reached), default=0)
    is_done = revision.is_in_force or revision.result in ("accepted", "unchanged", "replaced")
    steps = []
    for index, name in enumerate(_STEPS):
        if name in _OPTIONAL and name not in reached and name != failed:
            continue
        seconds, note = reached.get(name, (None, ""))
        state = _state(name, index, latest, failed, reached, is_done)
        if left and state == "now":
            state = "skipped"
        steps.append(Step(name, state, seconds, failure if name == failed else note))
    return tuple(steps)


def _state(
    name: str,
    index: int,
    latest: int,
    failed: str,
    reached: Mapping[str, object],
    is_done: bool,
) -> StepState:
    if name == failed:
        return "failed"
    if name in reached:
        is_last = index == latest and not failed
        return "now" if is_last and (name == "probation" or not is_done) else "done"
    if failed and index > _STEPS.index(failed):
        return "ahead"
    return "skipped" if index < latest else "ahead"


def _failed_step(result: str, note: str, reached: Iterable[str]) -> str:
    """The step at which a revision was turned down: it is named, or the one after the last."""
    if result == "rolled_back":
        return "probation"
    stage = note.partition(":")[0].strip()
    if (named := _FAILED_STEPS.get(stage)) is not None:
        return named
    in_stage = max((_STEPS.index(name) for name in reached), default=0)
    if stage == "abort" and _STEPS[in_stage] in _OPTIONAL:
        return _STEPS[in_stage]
    without = [name for name in _STEPS if name not in _OPTIONAL or name in reached]
    after = 1 + max((without.index(name) for name in reached), default=-1)
    return without[min(after, len(without) - 1)]


def text_view(file: str, text: str, problems: Mapping[int, Sequence[ProblemAnswer]]) -> TextView:
    """A text with numbered lines, each with its problems."""
    lines = tuple(
        Line("same", number, line, tuple(problems.get(number, ())))
        for number, line in enumerate(text.splitlines(), 1)
    )
    return TextView(file, lines, sum(map(len, problems.values())), _anchor(file))


def anchor_of(source: str) -> str:
    """The id of the line that `file:line` names, in the texts in force."""
    file, _, line = source.rpartition(":")
    return f"{_anchor(file)}-{line}"


def _anchor(file: str) -> str:
    return f"line-{key(file)}"


def diff_view(diff: FileDiff, problems: Mapping[int, Sequence[ProblemAnswer]]) -> TextView:
    """A difference with the new text's line numbers, the problems at the lines that it shows."""
    lines: list[Line] = []
    number = 0
    for text in diff.lines:
        if (hunk := _HUNK.match(text)) is not None:
            number = int(hunk[2])
            lines.append(Line("hunk", None, text))
        elif text.startswith(("---", "+++")) and number == 0:
            continue
        elif text.startswith("-"):
            lines.append(Line("removed", None, text[1:]))
        elif not text.startswith((" ", "+")):
            lines.append(Line("hunk", None, text))  # a remark about what follows or is left out
        else:
            kind: Literal["added", "same"] = "added" if text.startswith("+") else "same"
            lines.append(Line(kind, number, text[1:], tuple(problems.get(number, ()))))
            number += 1
    return TextView(diff.file, tuple(lines), sum(len(line.problems) for line in lines))


def _by_file(
    problems: Iterable[ProblemAnswer],
) -> dict[str, dict[int, list[ProblemAnswer]]]:
    found: dict[str, dict[int, list[ProblemAnswer]]] = defaultdict(lambda: defaultdict(list))
    for problem in problems:
        found[problem.file][problem.line].append(problem)
    return found


def _problems(plain: Iterable[Mapping[str, Any]]) -> tuple[ProblemAnswer, ...]:
    """The problems of the part of the answer that is plain data."""
    return tuple(msgspec.convert(one, ProblemAnswer) for one in plain)
