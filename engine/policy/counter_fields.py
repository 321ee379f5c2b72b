"""The fields of counters, and those that a hook reads and is not given.

Of the latter it owns what is plain to see: `counts[0].x`, and a variable that is nothing but an
element of `counts`. What a counter gives once it has gone elsewhere is found when the hook runs.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.syntax import stored_names, walk

# What is known only once all filters were asked.
_OF_FEASIBLE: Final = ("feasible_domains", "feasible_nodes", "feasible_outside")
#: What a hook may read of a counter, and which of it is about the node's own domain.
COUNT_FIELDS: Final = (
    "here",
    "min",
    "max",
    "total",
    "domains",
    "is_empty",
    *_OF_FEASIBLE,
)
# Before any node is looked at, nothing is counted yet.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pre_filter": ("is_empty",),
    "filter": tuple(field for field in COUNT_FIELDS if field not in _OF_FEASIBLE),
    "pre_score": ("is_empty",),
    "score": COUNT_FIELDS,
}
_COUNTS: Final = "counts"


def misread_counters(function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """The fields of counters that *function*, a hook, reads and that they have not for it."""
    fields = FIELDS.get(function.name)
    if fields is None or _COUNTS not in {argument.arg for argument in function.args.args}:
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
