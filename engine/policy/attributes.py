"""Which attribute names occur in a policy at all.

Owns a coarse question that needs no data flow: a field whose name is written nowhere in a policy,
or in what it loads, is not read by it. Used for the fields of counters.
"""

import ast

from engine.policy.evaluator import Files
from engine.policy.syntax import loads_of, parse


def attributes_read(files: Files, module: str, *, but_of: str = "") -> frozenset[str] | None:
    """Every attribute name in *module* and the files that it loads; None if one does not parse.

    Attributes of a variable called *but_of* are left out: `over.min` is not a counter's `min`.
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
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                if not (isinstance(node.value, ast.Name) and node.value.id == but_of):
                    names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)  # getattr(count, "min") and the like
        todo.extend(load.module for load in loads_of(tree))
    return frozenset(names)
