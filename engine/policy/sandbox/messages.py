"""Parses Starlark's error texts into places and messages.

The interpreter reports errors as text only: a call stack, `error: sentence`, then
`--> file:line:column` and a drawing of the source. Owns the reading of that text.
"""

import re
from dataclasses import dataclass
from typing import Final

from engine.lib.printable import printable

# Modules of the runtime itself: an error there is shown at the policy line that led to it.
PRIVATE: Final = "@starsched/"
# The same holds for this file, which checks arguments for its callers: their line is shown.
_CHECKS: Final = "@std/arguments.star"

_PLACE: Final = re.compile(r"^\s*--> (.+):(\d+):(\d+)$", re.MULTILINE)
_FRAME: Final = re.compile(r"^  \* (.+):(\d+), in .*$", re.MULTILINE)
_ERROR: Final = re.compile(r"^error: (.*?)(?=^\s*--> |\Z)", re.MULTILINE | re.DOTALL)
# Exceptions of natives and loaders arrive as `Name: text`.
_NATIVE: Final = re.compile(r"^(?:[A-Za-z_.]*(?:Error|Exception)): ")

_STEPS: Final = "Evaluation cancelled"
_DEPTH: Final = "Starlark call stack overflow"
_MEMORY: Final = "out of memory"


# Terse errors of the interpreter, and what to do about them.
_HINTS: Final = (
    (
        re.compile(r"Immutable$"),
        "what a hook is given, or the top level holds, cannot be changed: change a copy, "
        "`list(...)` or `dict(...)`",
    ),
    (
        re.compile(r"Local variable `(\w+)` referenced before assignment$"),
        "a function that assigns `{0}` has a `{0}` of its own: set it first, or name it otherwise",
    ),
    (
        re.compile(r'Key `("[^`]*")` was not found$'),
        'give it a default: `.get({0}, 0)` for an amount, `.get({0}, "")` for a text',
    ),
    (
        re.compile(r"Object of type `NoneType` has no attribute"),
        "the value is None here: ask for that before",
    ),
)


@dataclass(frozen=True, slots=True)
class StarlarkProblem:
    """One interpreter error: where, what, which limit if it was one, and what may help."""

    file: str
    line: int
    column: int
    message: str
    kind: str
    hint: str = ""


def read(error: BaseException, file: str) -> StarlarkProblem:
    """Understand *error*, raised while *file* was parsed or run."""
    text = str(error)
    found = _ERROR.search(text)
    sentence = (found.group(1) if found else text).strip()
    sentence = _NATIVE.sub("", sentence.removeprefix("fail: "))
    kind = "error"
    if sentence == _STEPS:
        kind, sentence = "steps", "ran out of steps: a loop that is too long or never ends"
    elif sentence == _DEPTH:
        kind, sentence = "depth", "too many nested calls: functions must not call themselves"
    elif sentence == _MEMORY:
        kind, sentence = "memory", "ran out of memory"
    line = column = 0
    where = file
    place = _PLACE.search(text)
    if place and not _is_of_others(place.group(1)):
        where, line, column = place.group(1), int(place.group(2)), int(place.group(3))
    else:
        # An error inside the runtime's own Starlark or a check of arguments, or without a place:
        # blame the innermost frame that is the author's.
        for frame in _FRAME.finditer(text):
            if not _is_of_others(frame.group(1)):
                where, line = frame.group(1), int(frame.group(2))
    return StarlarkProblem(where, line, column, _shorten(sentence), kind, _hint(sentence))


def _is_of_others(file: str) -> bool:
    """True if errors in *file* are shown at the line that led to it."""
    return file.startswith(PRIVATE) or file == _CHECKS


def _hint(sentence: str) -> str:
    for pattern, hint in _HINTS:
        if match := pattern.match(sentence):
            return hint.format(*match.groups())
    return ""


def _shorten(sentence: str) -> str:
    """The sentence on one line, without controls, and of a length that fits an event."""
    flat = printable(" ".join(sentence.split()))
    return flat if len(flat) <= 500 else flat[:497] + "..."
