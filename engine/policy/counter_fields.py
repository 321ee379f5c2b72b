"""The fields of counters that a hook reads and is not given.

Owns the plain cases: `counts[0].x`, and a variable that only ever holds an element of `counts`. A
field of a counter that was passed on is found when the hook runs.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final

from engine.language.summaries import counter_fields
from engine.language.syntax import stored_names, walk

_COUNTS: Final = "counts"


def misread_counters(function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """The fields of counters that *function*, a hook, reads and that they have not for it."""
    fields = counter_fields(function.name)
    if not fields or _COUNTS not in {argument.arg for argument in function.args.args}:
        return
    if _COUNTS in stored_names(function):
        return
    counters = _counters_in(function)
    for node in walk(function):
        if (
            isinstance(node, ast.Attribute)
            and node.attr not in fields
            and (_is_element(node.value) or _is_one_of(counters, node.value))
        ):
            yield node


def _counters_in(function: ast.FunctionDef) -> set[str]:
    """The variables that are given elements of `counts`, and nothing else."""
    counters: Counter[str] = Counter()
    for node in walk(function):
        if isinstance(node, ast.For | ast.comprehension) and _is_counts(node.iter):
            target = node.target
        elif isinstance(node, ast.Assign) and _is_element(node.value):
            target = node.targets[0]
        else:
            continue
        if isinstance(target, ast.Name):
            counters[target.id] += 1
    stored = Counter(stored_names(function))
    inner = {part.arg for part in walk(function) if isinstance(part, ast.arg)}
    return {name for name, times in counters.items() if times == stored[name]} - inner


def _is_element(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and _is_counts(node.value)


def _is_counts(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == _COUNTS


def _is_one_of(names: set[str], node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in names
