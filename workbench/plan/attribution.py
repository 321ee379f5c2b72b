"""Which changed files make a difference between two texts: they are swapped one by one.

Owns the search, and which changed line of a file is nearest to a rule. Deciding with a mixture of
both texts is the caller's.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from engine.policy.file_names import STARLARK_SUFFIX, TEST_DATA_SUFFIXES, TEST_SUFFIX

Differs: TypeAlias = Callable[[Mapping[str, str]], bool]
"""True if with these files the outcome differs from that of the base as the candidate's does. False
for a mixture that makes no bundle."""


def changed_files(base: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[str, ...]:
    """The files that differ and can decide, by name: tests cannot."""
    names = sorted({*base, *candidate})
    of_tests = (TEST_SUFFIX, *TEST_DATA_SUFFIXES)
    return tuple(
        name
        for name in names
        if base.get(name) != candidate.get(name) and not name.endswith(of_tests)
    )


def mixed(
    base: Mapping[str, str], candidate: Mapping[str, str], names: Iterable[str]
) -> dict[str, str]:
    """The files of *base*, with those of *names* as in *candidate*, where they may be missing."""
    files = dict(base)
    for name in names:
        if name in candidate:
            files[name] = candidate[name]
        else:
            files.pop(name, None)
    return files


def cause_of(
    base: Mapping[str, str],
    candidate: Mapping[str, str],
    differs: Differs,
    likely: Sequence[str] = (),
) -> tuple[str, ...]:
    """The changed files that make the difference: one that alone does, or as few as are needed.

    If several do it alone, the first. Files that only work together, as a new policy and the
    profile that enables it, are named together. Asks about at most two mixtures for each file.

    Args:
        base: The files in force.
        candidate: The new files, with which the outcome differs.
        differs: Decides with a mixture.
        likely: Files to try first, such as the cause of the difference before.
    """
    changed = changed_files(base, candidate)
    first = [name for name in likely if name in changed]
    ordered = [*first, *(name for name in changed if name not in first)]
    if len(ordered) <= 1:
        return tuple(ordered)
    for name in ordered:
        if differs(mixed(base, candidate, [name])):
            return (name,)
    needed = list(ordered)
    for name in ordered:
        without = [one for one in needed if one != name]
        # One alone was tried above.
        if len(without) > 1 and differs(mixed(base, candidate, without)):
            needed = without
    return tuple(sorted(needed))


def changed_line(before: str | None, after: str, near: int = 0) -> int:
    """The line of *after* that an edit changed and that is nearest to the line *near*.

    Comments and empty lines are passed over if other lines changed. Where lines were only removed,
    the line that follows them. 1 for a new file without *near*; 0 if nothing changed.
    """
    lines = after.splitlines()
    if before is None:
        return near or 1
    found: list[int] = []
    matcher = difflib.SequenceMatcher(None, before.splitlines(), lines, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal":
            found += range(start + 1, end + 1) if end > start else [min(start + 1, len(lines))]
    telling = [one for one in found if 0 < one <= len(lines) and _says_something(lines[one - 1])]
    return min(telling or found, key=lambda one: (abs(one - near) if near else 0, one), default=0)


def changed_place(
    base: Mapping[str, str], candidate: Mapping[str, str], causes: Sequence[str], rule: str
) -> str:
    """`file:line` of what has changed in *causes* nearest to *rule*, a place or "".

    If the rule is in none of them, in the first that is a policy.
    """
    file, _, line = rule.rpartition(":")
    if file not in causes:
        policies = [name for name in causes if name.endswith(STARLARK_SUFFIX)]
        file, line = (policies or causes)[0], "0"
    text = candidate.get(file)
    if text is None:
        return f"{file} (removed)"
    return f"{file}:{changed_line(base.get(file), text, int(line)) or 1}"


def _says_something(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("#")
