"""Lints about names: those that nothing uses, and those that hide others."""

import ast
from collections.abc import Iterator, Set
from typing import Final

from engine.language import prelude
from engine.language.hooks import HOOKS, is_hook
from engine.language.syntax import loads_of, local_names, walk
from engine.policy.arguments import ARGUMENTS, ATTRIBUTES, declarations_in
from workbench.lint.finding import Finding, PolicySource

# What hooks call their parameters: helpers that are handed these may call them the same.
_GIVEN: Final = frozenset(name for hook in HOOKS.values() for name in hook.parameters)


def lint_names(source: PolicySource) -> Iterator[Finding]:
    """Unused loads, functions, variables, arguments and parameters; names that hide others."""
    used = _read_names(source.tree)
    for load in loads_of(source.tree):
        if load.local not in used:
            yield source.finding(
                "unused-load", load.node, f"`{load.local}` is loaded and never used"
            )
    yield from _unused_functions(source, used)
    yield from _unused_variables(source, used)
    yield from _unused_arguments(source)
    yield from _unused_parameters(source)
    yield from _shadowed(source)


def _read_names(root: ast.AST) -> set[str]:
    return {n.id for n in walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _unused_functions(source: PolicySource, used: set[str]) -> Iterator[Finding]:
    for name, function in source.functions.items():
        if name in used or name in source.hooks:
            continue
        if source.is_test:
            if name.startswith("test_"):
                continue
            hint = "tests are functions whose names start with `test_`"
        else:
            hint = ""
            if not name.startswith("_") and (not source.hooks or name in source.loaded_by_others):
                continue
        yield source.finding("unused-function", function, f"nothing calls `{name}`", hint)


def _unused_variables(source: PolicySource, used: set[str]) -> Iterator[Finding]:
    declared = {
        id(call)
        for declares in (ARGUMENTS, ATTRIBUTES)
        for call in declarations_in(source.tree, declares)
    }
    for statement in source.tree.body:
        target = _plain_target(statement)
        if target is None or target.id in used or id(getattr(statement, "value", None)) in declared:
            continue
        if source.is_test and target.id.startswith("test_"):
            continue  # a table of cases
        if target.id.startswith("_") or source.is_test:
            yield source.finding("unused-variable", target, f"`{target.id}` is never read")
        elif source.hooks and target.id not in source.loaded_by_others:
            yield source.finding("unused-variable", target, f"nothing reads or loads `{target.id}`")
    for function in walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        read = _read_names(function)
        reported: set[str] = set()
        for node in walk(function):
            target = _plain_target(node) if isinstance(node, ast.stmt) else None
            if target is None or target.id in read or target.id.startswith("_"):
                continue
            if target.id in reported:
                continue
            reported.add(target.id)
            yield source.finding("unused-variable", target, f"`{target.id}` is set and never read")


def _plain_target(statement: ast.stmt) -> ast.Name | None:
    """The name that *statement* sets; None for others, also for several at once."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        target = statement.target
    else:
        return None
    return target if isinstance(target, ast.Name) else None


def _unused_arguments(source: PolicySource) -> Iterator[Finding]:
    if source.is_test:
        return
    calls = set(declarations_in(source.tree))
    for statement in source.tree.body:
        target = _plain_target(statement)
        call = getattr(statement, "value", None)
        if target is None or call not in calls:
            continue
        read: set[str] = set()
        escapes = not target.id.startswith("_") and target.id in source.loaded_by_others
        owned = set()
        for node in walk(source.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id == target.id:
                read.add(node.attr)
                owned.add(id(node.value))
        for node in walk(source.tree):
            if isinstance(node, ast.Name) and node.id == target.id and id(node) not in owned:
                escapes = escapes or isinstance(node.ctx, ast.Load)
        if escapes:
            continue
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg not in read:
                yield source.finding(
                    "unused-argument", keyword, f"the argument `{keyword.arg}` is never read"
                )


def _unused_parameters(source: PolicySource) -> Iterator[Finding]:
    for name, function in source.hooks.items():
        hook = HOOKS.get(name)
        optional = hook.parameters[hook.required :] if hook is not None else ()
        read = _read_names(function)
        for parameter in function.args.args:
            if parameter.arg in optional and parameter.arg not in read:
                yield source.finding(
                    "unused-parameter",
                    parameter,
                    f"{name}() does not use `{parameter.arg}`",
                    "leave it out: answers are reused less when what is given differs",
                )
            elif parameter.arg == "counts" and not _may_be_given_counts(source, name):
                text = f"{name}() is given nothing in `counts`: there is no `counters`"
                hint = "`def counters(pod)` says what is counted"
                yield source.finding("unused-parameter", parameter, text, hint)


def _may_be_given_counts(source: PolicySource, hook: str) -> bool:
    return "counters" in source.hooks or hook in source.loaded_by_others


def _shadowed(source: PolicySource) -> Iterator[Finding]:
    hint = "take another name"
    for load in loads_of(source.tree):
        if load.local in prelude.known_names():
            text = f"`{load.local}` hides the built-in of that name"
            yield source.finding("shadowed-name", load.node, text, hint)
    for statement in source.tree.body:
        target = _plain_target(statement)
        name = statement.name if isinstance(statement, ast.FunctionDef) else None
        name = target.id if target is not None else name
        if name in prelude.known_names():
            text = f"`{name}` hides the built-in of that name"
            yield source.finding("shadowed-name", target or statement, text, hint)
    for function in walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        # What hooks have to call their parameters is not theirs to choose.
        parameters = {a.arg for a in function.args.args}
        given = parameters if is_hook(function.name) else parameters & _GIVEN
        for name in dict.fromkeys(local_names(function)):
            if name in prelude.known_names() and name not in given:
                text = f"`{name}` hides the built-in of that name in {function.name}()"
                yield source.finding("shadowed-name", _place(function, name), text, hint)
            elif name in source.hooks and name not in given:
                text = f"`{name}` hides the hook of that name in {function.name}()"
                yield source.finding("shadowed-name", _place(function, name), text, hint)
        yield from _called_parameters(source, function, parameters & prelude.known_names())


def _called_parameters(
    source: PolicySource, function: ast.FunctionDef, names: Set[str]
) -> Iterator[Finding]:
    """Calls of built-ins that a hook's parameter hides: `state(...)` where `state` is given."""
    for node in walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in names:
                text = f"`{name}` is what {function.name}() is given, not the function"
                hint = f"name the function otherwise above: `new_{name} = {name}`"
                yield source.finding("shadowed-name", node.func, text, hint)


def _place(function: ast.FunctionDef, name: str) -> ast.AST:
    places: list[ast.AST] = []
    for node in walk(function):
        is_named = isinstance(node, ast.Name) and node.id == name
        if (is_named and isinstance(getattr(node, "ctx", None), ast.Store)) or (
            isinstance(node, ast.arg) and node.arg == name
        ):
            places.append(node)
    return min(
        places,
        key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)),
        default=function,
    )
