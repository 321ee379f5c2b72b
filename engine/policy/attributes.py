"""Which attribute names occur in a policy at all.

Owns a coarse question that needs no data flow: a field whose name is written nowhere in a policy,
or in what it loads, is not read by it. Used for the fields of counters.
"""

import ast
import functools

from engine.policy.evaluator import Files
from engine.policy.syntax import loads_of, parse


def attributes_read(
    files: Files, module: str, *, without_ranges: bool = False
) -> frozenset[str] | None:
    """Every attribute name in *module* and the files that it loads; None if one does not parse.

    With *without_ranges*, what `normalize` reads of its second parameter is left out: `over.min`
    is not a counter's `min`.
    """
    names: set[str] = set()
    seen: set[str] = set()
    todo = [module]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        found = _of_text(files.get(path, ""), without_ranges)
        if found is None:
            return None
        names |= found[0]
        todo.extend(found[1])
    return frozenset(names)


# Kept by text: the files that a new revision has in common with the last one are not read again.
@functools.lru_cache(maxsize=512)
def _of_text(text: str, without_ranges: bool) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """The attribute names in one file and the modules that it loads; None if it does not parse."""
    tree = parse(text)
    if tree is None:
        return None
    ranges = _range_reads(tree) if without_ranges else set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node not in ranges:
                names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # getattr(count, "min") and the like
    return frozenset(names), tuple(load.module for load in loads_of(tree))


def _range_reads(tree: ast.Module) -> set[ast.Attribute]:
    """The attributes of the second parameter of `normalize`, unless it is given another value."""
    found: set[ast.Attribute] = set()
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef) or statement.name != "normalize":
            continue
        if len(statement.args.args) < 2:
            continue
        name = statement.args.args[1].arg
        mine = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
        if any(not isinstance(n.ctx, ast.Load) for n in mine):
            return set()
        found |= {
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute) and node.value in mine
        }
    return found
