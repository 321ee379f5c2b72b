"""The lint about state: a function that changes a value of the top level.

The interpreter freezes what a file holds once it is loaded: such a line fails when it is reached.
"""

import ast
from collections.abc import Iterator
from typing import Final

from engine.language.syntax import stored_names, walk
from workbench.lint.finding import Finding, PolicySource

_CHANGES: Final = frozenset(
    {"append", "extend", "insert", "remove", "clear", "pop", "popitem", "setdefault", "update"}
)
_COLLECTIONS: Final = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)
_HINT: Final = "nothing is kept between calls: make a new one here, or pass it with `state(...)`"


def lint_kept(source: PolicySource) -> Iterator[Finding]:
    """Lists and dicts of the top level that functions change, and names that they count up."""
    if source.is_test:
        return
    top_level = _assigned(source.tree.body)
    collections = {name for name, value in top_level.items() if _is_collection(value)}
    for function in source.functions.values():
        counting = [
            node
            for node in walk(function)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        ]
        own = _own_names(function, {id(node.target) for node in counting})
        for node in walk(function):
            name = _changed(node)
            if name is not None and name in collections - own:
                text = f"`{name}` is changed: what the top level holds cannot be"
                yield source.finding("kept-value", node, text, _HINT, is_error=True)
        defaults = _collections_given(function)
        for node in walk(function):
            name = _changed(node)
            if name in defaults and name not in stored_names(function):
                text = (
                    f"`{name}` is changed: where it is not given, its default is, which cannot be"
                )
                hint = f"make it None, and a new one here: `{name} = {name} or []`"
                yield source.finding("kept-value", node, text, hint)
        for count in counting:
            name = ast.unparse(count.target)
            if name in top_level and name not in own:
                text = f"`{name}` is of the top level: a function cannot change it"
                yield source.finding("kept-value", count, text, _HINT, is_error=True)


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    return {
        target.id: statement.value
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _collections_given(function: ast.FunctionDef) -> set[str]:
    """The parameters whose defaults are lists or dicts."""
    names = [argument.arg for argument in function.args.args]
    defaults = zip(reversed(names), reversed(function.args.defaults), strict=False)
    return {name for name, value in defaults if _is_collection(value)}


def _is_collection(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("list", "dict")
    return isinstance(node, _COLLECTIONS)


def _changed(node: ast.AST) -> str | None:
    """The name of the list or dict that *node* changes in place."""
    owner: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value if node.func.attr in _CHANGES else None
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        owner = node.value
    return owner.id if isinstance(owner, ast.Name) else None


def _own_names(function: ast.FunctionDef, counted: set[int]) -> set[str]:
    """The names that are set in *function* or given to it; the nodes *counted* set none."""
    names = set()
    for node in walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names |= {node.id} if id(node) not in counted else set()
    return names
