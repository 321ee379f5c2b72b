"""Adds the types of function parameters to a policy's text, for language servers.

Owns the comments. Policies say no types, and parameters have theirs by their names: `pod`, `node`
and so on. Servers for Python understand `# type: (Pod, Node) -> Any` behind a function's first
line, so that is where it goes: nothing that stands before it moves. The text may be half written.
"""

import re
from collections.abc import Iterator
from typing import Final

from workbench.stubs.stubs import PARAMETERS

_DEF: Final = re.compile(r"^[ \t]*def[ \t]+\w+[ \t]*\(", re.MULTILINE)
# What ends a function's first line: the colon and nothing, or a comment, which gives way.
_END: Final = re.compile(r"[ \t]*:([ \t]*(?:#[^\n\r]*)?)(?=\r?\n|\Z)")
_OPENING, _CLOSING = "([{", ")]}"


def typed(text: str) -> str:
    """*text* with a comment behind every function that has a parameter of known type."""
    parts, done = [], 0
    for found in _DEF.finditer(text):
        closing = _closing(text, found.end())
        if closing is None:
            continue
        end = _END.match(text, closing + 1)
        if end is None:
            continue
        types = _types(text[found.end() : closing])
        if types is not None:
            parts += [text[done : end.start(1)], f"  # type: ({types}) -> Any"]
            done = end.end(1)
    return "".join([*parts, text[done:]])


def _types(parameters: str) -> str | None:
    """The types of *parameters*, as a comment says them; None if none is known."""
    types, is_known = [], False
    for parameter in _split(parameters):
        name = parameter.split("=")[0].strip()
        if not name.lstrip("*").isidentifier() or ":" in name:
            return None  # half written, or it has types of its own
        stars = name[: len(name) - len(name.lstrip("*"))]
        is_known |= name in PARAMETERS
        types.append(stars + PARAMETERS.get(name, "Any"))
    return ", ".join(types) if is_known else None


def _closing(text: str, start: int) -> int | None:
    """Where the bracket that was opened before *start* is closed; None if it is not."""
    depth = 1
    for place in _outside_strings(text, start):
        depth += (text[place] in _OPENING) - (text[place] in _CLOSING)
        if not depth:
            return place
    return None


def _split(parameters: str) -> list[str]:
    """*parameters* at their commas, without comments and without an empty last one."""
    parts, depth = [""], 0
    for place in _outside_strings(parameters, 0):
        letter = parameters[place]
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if parts[-1].strip() else parts[:-1]


def _outside_strings(text: str, start: int) -> Iterator[int]:
    """The places from *start* on that are in no string (of one line) and no comment."""
    place = start
    while place < len(text):
        letter = text[place]
        if letter == "#":
            newline = text.find("\n", place)
            place = len(text) if newline < 0 else newline
        elif letter in "\"'":
            place += 1
            while place < len(text) and text[place] not in (letter, "\n"):
                place += 2 if text[place] == "\\" else 1
            place += 1
        else:
            yield place
            place += 1
