"""Counts the operations that the lines of a hook carry out, as an exact measure of its cost.

Owns the weighing of lines and the counts. The interpreter counts loop rounds and calls only, for
its limits, and names no line. So each statement of a copy of the text first says where it is, and
counts as the operations that it contains: one for itself, one for each call, attribute, item,
operator, condition and literal list or dict in it. What one call of the interpreter's own functions
costs (`sorted`, `in` a long list) is one operation, however long it takes; in `a and b` both
count. The same text on the same input gives the same number, on any machine.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from engine.language.syntax import children, parse, statements_of, with_loaded
from engine.policy.evaluator import Call, InProcessEvaluator, Program
from engine.policy.sandbox.modules import Natives

_MARK: Final = "starsched_at"
_COMPREHENSIONS: Final = (ast.ListComp, ast.DictComp)
_OPERATIONS: Final = (
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.JoinedStr,
    *_COMPREHENSIONS,
)
# Marks cost calls of their own, which count against the limit of steps.
_MORE_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class Line:
    """What one line did in some calls: how often it ran, and its operations in all."""

    file: str
    line: int
    runs: int
    operations: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place that says when it is reached: its line, and what it counts as."""

    line: int
    operations: int


class OperationCounter:
    """Runs a program whose files count; only for text that may run in this process.

    Raises `PolicyErrors` if a file does not load. `evaluator` gives the same verdicts as any other.
    """

    def __init__(self, program: Program) -> None:
        self._marks: dict[str, list[_Mark]] = {}
        self._hits: dict[str, list[int]] = {}
        texts = dict(program.files)
        natives: dict[str, Natives] = {}
        for file in sorted(_reached(program)):
            copy, marks = marked(texts[file])
            if marks:
                texts[file] = copy
                self._marks[file], self._hits[file] = marks, [0] * len(marks)
                natives[file] = {_MARK: partial(_reach, self._hits[file])}
        limits = replace(program.limits, steps=program.limits.steps * _MORE_STEPS)
        counting = replace(program, files=texts, limits=limits)
        self.evaluator = InProcessEvaluator(counting, natives)

    def count(self, calls: Iterable[Call]) -> list[Line]:
        """The lines that *calls* ran, those with most operations first."""
        for hits in self._hits.values():
            hits[:] = [0] * len(hits)
        self.evaluator.evaluate(list(calls))
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for file, hits in self._hits.items():
            for mark, count in zip(self._marks[file], hits, strict=True):
                if count:
                    runs, operations = found.get((file, mark.line), (0, 0))
                    added = operations + count * mark.operations
                    found[file, mark.line] = max(runs, count), added
        lines = [Line(*place, *counted) for place, counted in found.items()]
        return sorted(lines, key=lambda one: (-one.operations, one.file, one.line))


def _reach(hits: list[int], mark: int) -> None:
    hits[mark] += 1


def _reached(program: Program) -> set[str]:
    """The files that the program's policies are in, with all that those load."""
    return set(with_loaded(program.files, (one.module for one in program.instances)))


# --- marking ---------------------------------------------------------------------------------


def marked(text: str) -> tuple[str, list[_Mark]]:
    """*text* with its marks, on the lines where they were; no marks if it cannot be read."""
    tree = parse(text)
    if tree is None:
        return text, []
    marks: list[_Mark] = []
    # (line, offset in bytes, what to insert); of two at one place the later is inside.
    inserts: list[tuple[int, int, str]] = []

    def wrap(node: ast.expr, mark: int) -> None:
        inserts.append((node.lineno, node.col_offset, f"({_MARK}({mark}) or ("))
        inserts.append((node.end_lineno or 0, node.end_col_offset or 0, "))"))

    for statement in statements_of(tree):
        if isinstance(statement, ast.FunctionDef):
            continue  # a definition is not counted as an operation
        own = _own_expressions(statement)
        number = len(marks)
        marks.append(_Mark(statement.lineno, 1 + sum(map(_weight, own))))
        if isinstance(statement, ast.If):
            wrap(statement.test, number)
        elif isinstance(statement, ast.For):
            wrap(statement.iter, number)
        else:
            inserts.append((statement.lineno, statement.col_offset, f"{_MARK}({number}); "))
        for comprehension in (c for part in own for c in _comprehensions(part)):
            # Reported once for each round of the innermost loop, by the expression it evaluates
            # first.
            inner = _inner(comprehension)
            marks.append(_Mark(inner[0].lineno, 1 + sum(map(_weight, inner))))
            wrap(inner[0], len(marks) - 1)
    rows = [row.encode() for row in text.split("\n")]
    closing = {"))": 0}
    ordered = sorted(inserts, key=lambda i: (i[0], i[1], closing.get(i[2], 1)))
    for row, offset, mark in reversed(ordered):
        rows[row - 1] = rows[row - 1][:offset] + mark.encode() + rows[row - 1][offset:]
    return b"\n".join(rows).decode(), marks


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement itself, not of those inside it."""
    return [part for part in children(statement) if isinstance(part, ast.expr)]


def _inner(comprehension: ast.ListComp | ast.DictComp) -> list[ast.expr]:
    """What a comprehension looks at in each round of its innermost loop, in this order."""
    tests = [test for generator in comprehension.generators for test in generator.ifs]
    if isinstance(comprehension, ast.DictComp):
        return [*tests, comprehension.key, comprehension.value]
    return [*tests, comprehension.elt]


def _comprehensions(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, _COMPREHENSIONS):
        yield node
    for child in children(node):
        yield from _comprehensions(child)


def _weight(node: ast.AST) -> int:
    """The operations that an expression contains, without what comprehensions in it repeat."""
    own = int(isinstance(node, _OPERATIONS))
    if isinstance(node, _COMPREHENSIONS):
        return own + sum(_weight(generator.iter) for generator in node.generators)
    return own + sum(map(_weight, children(node)))


def source_line(files: Mapping[str, str], line: Line) -> str:
    """The text of *line*, without its indentation."""
    return files[line.file].split("\n")[line.line - 1].strip()
