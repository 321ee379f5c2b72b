"""Which attribute names occur in a policy at all.

Owns a coarse question that needs no data flow: a field whose name is written nowhere in a policy,
or in what it loads, is not read by it. Used for the fields of counters.
"""

import ast

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
        tree = parse(files.get(path, ""))
        if tree is None:
            return None
        ranges = _range_reads(tree) if without_ranges else set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                if node not in ranges:
                    names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)  # getattr(count, "min") and the like
        todo.extend(load.module for load in loads_of(tree))
    return frozenset(names)


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
