"""Which counts of a hook are None on some nodes: those that are in no domain of the counter.

Owns what is plain to see: `counts[0].here`, and a counter that stands in a list that `counters`
returns. Of all others nothing is said.
"""

import ast
from collections.abc import Iterator
from typing import Final

from engine.language.syntax import assignments, text_of, walk
from engine.policy.node_views import NODE_FIELDS
from workbench.lint.finding import PolicySource

# What a hook may ask for first, to leave the nodes without a domain out.
_SHOWS_DOMAINS: Final = frozenset(name for name, field in NODE_FIELDS.items() if field.shows_labels)


def counts_that_may_be_none(
    source: PolicySource, function: ast.FunctionDef
) -> Iterator[ast.Attribute]:
    """Each `counts[0].here` of *function*, a hook, that is None on some nodes."""
    counters = source.hooks.get("counters")
    if counters is None or function.name not in ("filter", "score") or _asks_the_node(function):
        return
    for node in walk(function):
        if not isinstance(node, ast.Attribute) or node.attr != "here":
            continue
        index = index_in_counts(node.value)
        if index is not None and _leaves_nodes_out(source, counters, function.name, index):
            yield node


def _asks_the_node(function: ast.FunctionDef) -> bool:
    """Whether the node is asked for more than its other fields, or handed on."""
    other_fields = {
        id(node.value)
        for node in walk(function)
        if isinstance(node, ast.Attribute) and node.attr not in _SHOWS_DOMAINS
    }
    return any(
        isinstance(node, ast.Name) and node.id == "node" and id(node) not in other_fields
        for node in walk(function)
    )


def index_in_counts(node: ast.AST) -> int | None:
    """The n of `counts[n]`; None if *node* is no such thing."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return None
    is_counts = isinstance(node.value, ast.Name) and node.value.id == "counts"
    index = node.slice.value
    return index if is_counts and type(index) is int and index >= 0 else None


def _leaves_nodes_out(
    source: PolicySource, counters: ast.FunctionDef, hook: str, index: int
) -> bool:
    """Whether each list that *counters* returns, but for empty ones, has such a counter there."""
    assigned = dict(assignments(counters))
    leaves_out = False
    for node in walk(counters):
        if not isinstance(node, ast.Return):
            continue
        returned = _of_hook(node.value, hook)
        if not isinstance(returned, ast.List):
            return False
        if not returned.elts:
            continue
        counter = returned.elts[index] if index < len(returned.elts) else None
        if isinstance(counter, ast.Name):
            counter = assigned.get(counter.id)
        if not _has_domains(source, counter):
            return False
        leaves_out = True
    return leaves_out


def _of_hook(returned: ast.expr | None, hook: str) -> ast.expr | None:
    if not isinstance(returned, ast.Dict):
        return returned
    keys = [key and text_of(key) for key in returned.keys]
    return returned.values[keys.index(hook)] if hook in keys else None


def _has_domains(source: PolicySource, counter: ast.expr | None) -> bool:
    """Whether *counter* counts by a label, which a node may not have."""
    called = source.types.builtin(counter) if isinstance(counter, ast.Call) else None
    if not isinstance(counter, ast.Call) or called is None or called.result != "counter":
        return False
    given = {word.arg: word.value for word in counter.keywords}
    topology = counter.args[0] if counter.args else given.get("topology")
    return called.parameters[0].name == "topology" and source.types.of(topology) == "str"
