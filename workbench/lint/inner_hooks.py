"""Hooks that are written inside another function, where the runtime does not look for them."""

import ast
from collections.abc import Iterator
from typing import Final

from engine.language.hooks import HOOKS
from engine.language.syntax import walk
from workbench.lint.finding import Finding, PolicySource

_HINT: Final = "hooks are functions at top level: take it out of `{}`"


def lint_inner_hooks(source: PolicySource) -> Iterator[Finding]:
    """Functions that are called and shaped like a hook, and that nothing inside or outside calls.

    Says nothing of one that its function uses itself, nor of one that it returns to a caller.
    """
    if source.is_test:
        return
    for outer, function in source.functions.items():
        for inner in walk(function):
            if inner is function or not isinstance(inner, ast.FunctionDef) or not _is_shaped(inner):
                continue
            is_kept, is_returned = _uses(function, inner)
            if is_kept or (is_returned and _has_caller(source, outer)):
                continue
            text = f"`{inner.name}` is inside of `{outer}`, where it is never called"
            hint = _HINT.format(outer)
            # What is returned may yet be meant for a file that is not looked at.
            yield source.finding("unused-hook", inner, text, hint, is_error=not is_returned)


def _is_shaped(function: ast.FunctionDef) -> bool:
    """Whether it has a hook's name, and takes what that hook is given."""
    hook = HOOKS.get(function.name)
    if hook is None:
        return False
    takes = {argument.arg for argument in function.args.args}
    return set(hook.parameters[: hook.required]) <= takes <= set(hook.parameters)


def _uses(function: ast.FunctionDef, inner: ast.FunctionDef) -> tuple[bool, bool]:
    """Whether *function* uses its function *inner*, and whether it returns it."""
    returned: set[int] = set()
    for node in walk(function):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Tuple | ast.List):
            returned |= {id(part) for part in value.elts}
        elif isinstance(value, ast.Dict):
            returned |= {id(part) for part in value.values}
        elif isinstance(value, ast.Call):
            returned |= {id(keyword.value) for keyword in value.keywords}
        elif value is not None:
            returned.add(id(value))
    reads = [
        id(node)
        for node in walk(function)
        if isinstance(node, ast.Name) and node.id == inner.name and isinstance(node.ctx, ast.Load)
    ]
    return any(one not in returned for one in reads), bool(reads)


def _has_caller(source: PolicySource, name: str) -> bool:
    """Whether the result of the function *name* may become a hook: it is one, loaded or called."""
    if name in source.hooks or name in source.loaded_by_others:
        return True
    # A call at top level that nothing takes, `make_policy()`, calls it to no effect.
    idle = {
        id(statement.value.func)
        for statement in source.tree.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    }
    return any(
        isinstance(node, ast.Name) and node.id == name and id(node) not in idle
        for node in walk(source.tree)
    )
