"""Measures which lines of policies their tests reach.

Owns the marking of texts and the counts. The interpreter has no hook for lines, so each statement
of a copy of the text first says its line, on the same line: places in error messages stay. Only
test runs see such copies.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from engine.language.syntax import parse, statements_of, with_loaded
from engine.policy.bundle import Bundle

_MARK: Final = "starsched_covered"
# The testing library is not part of what tests test.
_FOR_TESTS: Final = frozenset({"@std/testing.star", "@std/generators.star"})


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """How often each line that begins a statement was run; `text` is the file."""

    file: str
    text: str
    hits: Mapping[int, int]

    @property
    def is_shipped(self) -> bool:
        """True for a library of the runtime, which policies load."""
        return self.file.startswith("@")

    @property
    def covered(self) -> int:
        """How many lines were run at least once."""
        return sum(count > 0 for count in self.hits.values())

    @property
    def missing(self) -> list[int]:
        """The lines that were never run."""
        return sorted(line for line, count in self.hits.items() if not count)

    @property
    def missing_ranges(self) -> str:
        """The same, neighbours together: `3, 7-9`."""
        lines, ranges = sorted(self.hits), []
        start = last = 0
        for line in [*lines, 0]:
            if line and not self.hits[line]:
                start, last = start or line, line
            elif start:
                ranges.append(f"{start}-{last}" if last > start else str(start))
                start = 0
        return ", ".join(ranges)


@dataclass(slots=True)
class Coverage:
    """The counts of one bundle's tests.

    `bundle` is what to run; `natives` are the functions that its files need for it.
    """

    bundle: Bundle
    natives: dict[str, dict[str, Callable[..., Any]]] = field(default_factory=dict)
    _hits: dict[str, dict[int, int]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)

    def files(self) -> list[FileCoverage]:
        """The coverage so far, by file."""
        return [
            FileCoverage(file, self._texts[file], dict(hits))
            for file, hits in sorted(self._hits.items())
        ]

    def _reached(self, file: str, line: int) -> None:
        self._hits[file][line] += 1

    def watch(self, files: Iterable[str]) -> None:
        """Count the lines of *files* of the bundle from now on."""
        marked = {}
        for file in files:
            text = self.bundle.files[file]
            copy, lines = marked_text(text)
            if lines:
                marked[file] = copy
                self._texts[file] = text
                self._hits[file] = dict.fromkeys(lines, 0)
                self.natives[file] = {_MARK: partial(self._reached, file)}
        texts = {**self.bundle.files, **marked}
        program = replace(self.bundle.program, files=texts)
        self.bundle = replace(self.bundle, files=texts, program=program)


def with_libraries(bundle: Bundle, files: Iterable[str]) -> list[str]:
    """*files* and all that they load, directly or not, in order."""
    own = {file: text for file, text in bundle.files.items() if file not in _FOR_TESTS}
    return sorted(with_loaded(own, files))


def merged(counted: Iterable[FileCoverage]) -> list[FileCoverage]:
    """One entry per file: a library is counted with every directory whose policies load it."""
    found: dict[str, FileCoverage] = {}
    for one in counted:
        known = found.get(one.file)
        if known is not None:
            hits = {line: count + known.hits.get(line, 0) for line, count in one.hits.items()}
            one = replace(one, hits=hits)
        found[one.file] = one
    return sorted(found.values(), key=lambda one: (one.is_shipped, one.file))


def percent(files: Iterable[FileCoverage]) -> float:
    """The share of lines that were run, 0..100; 100 if there are none."""
    every = list(files)
    total = sum(len(one.hits) for one in every)
    return 100.0 if not total else 100.0 * sum(one.covered for one in every) / total


def marked_text(text: str) -> tuple[str, list[int]]:
    """*text* with each statement saying its line, and those lines. No lines if it cannot be read.

    `if x:` and `for y in z:` say it in what they look at first, other statements before they run.
    """
    tree = parse(text)
    if tree is None:
        return text, []
    # (line, offset in bytes, what to insert); of two at one place the later is outside.
    marks: list[tuple[int, int, str]] = []
    lines = set()
    for statement in statements_of(tree):
        line = statement.lineno
        head: ast.expr | None = None
        if isinstance(statement, ast.If):
            head = statement.test
        elif isinstance(statement, ast.For):
            head = statement.iter
        elif isinstance(statement, ast.FunctionDef):
            continue
        lines.add(line)
        if head is None:
            marks.append((line, statement.col_offset, f"{_MARK}({line}); "))
        else:
            marks.append((head.lineno, head.col_offset, f"({_MARK}({line}) or ("))
            end = head.end_lineno or head.lineno
            marks.append((end, head.end_col_offset or 0, "))"))
    rows = [row.encode() for row in text.split("\n")]
    for row, offset, mark in sorted(marks, key=lambda m: m[:2], reverse=True):
        rows[row - 1] = rows[row - 1][:offset] + mark.encode() + rows[row - 1][offset:]
    return b"\n".join(rows).decode(), sorted(lines)
