"""Automatic fixes that cannot change a decision: unused loads are removed.

What could change a decision is left to the author, even where the fix looks obvious.
"""

import ast
from collections.abc import Collection

from engine.language.syntax import parse
from workbench.lint.finding import Finding


def without_unused_loads(text: str, findings: Collection[Finding]) -> str:
    """*text* without the names that the `unused-load` findings are about."""
    places = {(f.problem.line, f.problem.column) for f in findings if f.lint == "unused-load"}
    tree = parse(text)
    if not places or tree is None:
        return text
    raw = text.encode()
    starts = [0]
    for line in raw.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    cuts: list[tuple[int, int]] = []
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id != "load" or not call.args:
            continue
        # Where each name ends, and if it is unused, in the order in which they are written.
        names: list[tuple[int, bool]] = []
        named: list[ast.expr | ast.keyword] = [*call.args[1:], *call.keywords]
        for node in named:
            place = node.value if isinstance(node, ast.keyword) else node
            column = _column(raw, starts, place.lineno, place.col_offset)
            names.append(
                (
                    offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
                    (place.lineno, column) in places,
                )
            )
        module = call.args[0]
        span = (
            offset(statement.lineno, statement.col_offset),
            offset(statement.end_lineno or statement.lineno, statement.end_col_offset or 0),
        )
        module_end = offset(module.end_lineno or module.lineno, module.end_col_offset or 0)
        if any(is_unused for _, is_unused in names):
            cuts += _cuts_of(raw, span, names, module_end)
    for start, end in sorted(cuts, reverse=True):
        raw = raw[:start] + raw[end:]
    return raw.decode()


def _column(raw: bytes, starts: list[int], line: int, offset: int) -> int:
    return len(raw[starts[line - 1] : starts[line - 1] + offset].decode()) + 1


def _cuts_of(
    raw: bytes, load: tuple[int, int], names: list[tuple[int, bool]], module_end: int
) -> list[tuple[int, int]]:
    """What to cut out of one load; nothing if a comment or another statement would go, too."""
    start, end = load
    if all(is_unused for _, is_unused in names):
        line_end = raw.find(b"\n", end)
        line_end = len(raw) if line_end < 0 else line_end + 1
        around = raw[raw.rfind(b"\n", 0, start) + 1 : start] + raw[end:line_end]
        is_alone = not around.strip()
        return [(start, line_end)] if is_alone and b"#" not in raw[start:end] else []
    cuts = []
    before = module_end
    for last, is_unused in names:
        # With the comma before it: what follows the last name (`,`, `)`) stays.
        if is_unused and b"#" not in raw[before:last]:
            cuts.append((before, last))
        before = last
    return cuts
