"""What the checks found: the findings, the exit code that they mean, and the table of them.

Owns their form. A thing that could not be checked is neither good nor bad: it is a state of its
own, with an exit code of its own.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from engine.lib.printable import printable
from engine.policy.documents import write_documents
from engine.surfaces.preflight.rights import Right

#: Exit codes.
FINE: Final = 0
MISSING: Final = 1
UNCHECKED: Final = 3

_WIDTH: Final = 80


class State(StrEnum):
    """What became of one check."""

    OK = "ok"
    NOTE = "note"  # fine, and worth knowing
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Which: `right`, `lease`, `clock`, ...
        subject: What was checked.
        state: What became of it.
        detail: Why, or what was seen.
        remedy: What to do; "" if nothing has to be done.
        right: The right that was asked for; None if this is about something else.
    """

    check: str
    subject: str
    state: State
    detail: str = ""
    remedy: str = ""
    right: Right | None = None


def exit_code(findings: Iterable[Finding]) -> int:
    """0 if all is fine, 1 if something is missing, else 3 if something could not be checked."""
    states = {finding.state for finding in findings}
    if State.MISSING in states:
        return MISSING
    return UNCHECKED if State.UNKNOWN in states else FINE


#: Checks of what a scheduler starts without: it goes on with the last good policies, say.
_NOT_NEEDED_AT_START: Final = frozenset({"clock", "policies", "store"})


def for_a_start(findings: Iterable[Finding]) -> list[Finding]:
    """The findings as they count for a scheduler that is about to start.

    What it starts without is no more than a note.
    """
    return [
        replace(one, state=State.NOTE)
        if one.state is State.MISSING and one.check in _NOT_NEEDED_AT_START
        else one
        for one in findings
    ]


def as_json(
    findings: Sequence[Finding], manifests: Sequence[dict[str, Any]], code: int
) -> dict[str, Any]:
    """The findings as plain data; `rules` are the objects that grant the missing rights."""
    return {
        "exitCode": code,
        "findings": [
            {
                "check": finding.check,
                "subject": finding.subject,
                "state": str(finding.state),
                "detail": finding.detail,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
        "rules": list(manifests),
    }


def as_text(findings: Sequence[Finding], manifests: Sequence[dict[str, Any]]) -> str:
    """A table of at most 80 columns, then the YAML that grants what is missing."""
    lines = [_row("STATE", "CHECK", "WHAT")]
    for finding in _folded(findings):
        lines += _rows(finding)
    lines += ["", _summary(findings)]
    if manifests:
        lines += ["", "These rules grant the missing rights (kubectl apply -f):", ""]
        lines.append(write_documents(manifests).rstrip("\n"))
    return "".join(f"{line}\n" for line in lines)


def _row(state: str, check: str, what: str) -> str:
    return f"{state:<9}{check:<15}{what}".rstrip()


def _rows(finding: Finding) -> Iterator[str]:
    first, *rest = _wrapped(finding.subject)
    yield _row(finding.state, finding.check, first)
    for line in rest:
        yield _row("", "", line)
    for text in (finding.detail, finding.remedy):
        for line in _wrapped(text) if text else ():
            yield _row("", "", f"  {line}")


def _wrapped(text: str) -> list[str]:
    """*text* in lines that fit behind the first two columns, with an indent of two."""
    width = _WIDTH - len(_row("", "", "|")) - 1
    return [
        line
        for part in text.splitlines()
        for line in textwrap.wrap(printable(part), width, break_on_hyphens=False) or [""]
    ] or [""]


def _folded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings with the rights that are there as one of each resource: they are many."""
    granted: dict[str, list[str]] = {}
    others: list[Finding] = []
    for finding in findings:
        if finding.right is not None and finding.state is State.OK:
            _, _, about = str(finding.right).partition(" ")
            granted.setdefault(about, []).append(finding.right.verb)
        else:
            others.append(finding)
    for finding in others:
        if finding.right is None:
            yield finding
    for about, verbs in granted.items():
        yield Finding("right", f"{', '.join(verbs)}: {about}", State.OK)
    yield from (finding for finding in others if finding.right is not None)


def _summary(findings: Sequence[Finding]) -> str:
    count = {state: sum(one.state is state for one in findings) for state in State}
    if not count[State.MISSING] and not count[State.UNKNOWN]:
        return f"{len(findings)} checks: nothing is missing"
    return (
        f"{len(findings)} checks: {count[State.MISSING]} missing, "
        f"{count[State.UNKNOWN]} could not be checked"
    )
