"""Lints about what hooks are given by other hooks of their file: counters and state.

Such a mistake runs until the value is asked for, and then fails for every pod. Owns what is plain
to see: list and dict literals in `counters`, and the names in `state(...)`.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.hooks import ENTRIES
from engine.language.syntax import (
    alternatives,
    assignments,
    loads_of,
    may_fall_through,
    own_returns,
    text_of,
    walk,
)
from engine.policy.documents import did_you_mean
from workbench.lint.counts import index_in_counts
from workbench.lint.finding import Finding, PolicySource

# Whose counters a hook is given, and whose state.
_COUNTS_OF: Final[Mapping[str, str]] = {
    hook.name: hook.name.removeprefix("pre_") for hook in ENTRIES if "counts" in hook.parameters
}
_STATE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    hook.name: tuple(one.name for one in ENTRIES[:place] if one.may_return("state()"))
    for place, hook in enumerate(ENTRIES)
    if "state" in hook.parameters
}
_KEYS: Final = ("filter", "score")


def lint_given(source: PolicySource) -> Iterator[Finding]:
    """Counters that a hook asks for and does not get, or the other way round; and state."""
    counters = source.hooks.get("counters")
    if counters is not None:
        yield from _keys(source, counters)
        yield from _counts(source, counters)
    yield from _states(source)


# --- counters ------------------------------------------------------------------------------------


def _keys(source: PolicySource, counters: ast.FunctionDef) -> Iterator[Finding]:
    """Keys of the answer other than those of the two hooks."""
    returned = [one.value for one in own_returns(counters)]
    names = {value.id for value in returned if isinstance(value, ast.Name)}
    keys: list[ast.expr | None] = []
    for value in returned:
        keys += value.keys if isinstance(value, ast.Dict) else []
    for name, assigned in assignments(counters):
        keys += assigned.keys if name in names and isinstance(assigned, ast.Dict) else []
    for node in walk(counters):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            keys += [target.slice] if target.value.id in names else []
    for key in keys:
        text = text_of(key) if key is not None else None
        if key is not None and text is not None and text not in _KEYS:
            message = (
                f'counters() returns counters for `{text}`, want the keys "filter" and "score"'
            )
            hint = did_you_mean(text, _KEYS)
            yield source.finding("wrong-return", key, message, hint, is_error=True)


def _counts(source: PolicySource, counters: ast.FunctionDef) -> Iterator[Finding]:
    """`counts[1]` where there is one counter, and counters for a hook that takes none."""
    numbers = {key: _number_of_counters(counters, key) for key in _KEYS}
    takers: dict[str, bool] = dict.fromkeys(_KEYS, False)
    for hook, key in _COUNTS_OF.items():
        function = source.hooks.get(hook)
        if function is None or "counts" not in {a.arg for a in function.args.args}:
            continue
        takers[key] = True
        number = numbers[key]
        if number is None or hook in source.loaded_by_others:
            continue
        for node in walk(function):
            index = index_in_counts(node)
            if index is not None and index >= number:
                text = (
                    f"{hook}() has no `{ast.unparse(node)}`: counters() gives it {number or 'none'}"
                )
                hint = "" if number else f'`counters` returns a list for both, or one for "{key}"'
                yield source.finding("never-given", node, text, hint, is_error=True)
    for key, is_taken in takers.items():
        number = numbers[key]
        if number and not is_taken and any(takers.values()) and _is_by_hook(counters):
            text = f"counters() returns counters for `{key}`, and {key}() does not take `counts`"
            yield source.finding("never-given", counters, text)


def _number_of_counters(counters: ast.FunctionDef, key: str) -> int | None:
    """How many counters there are at most for the hook *key*; None if that is not plain to see."""
    if not any(True for _ in own_returns(counters)):
        return None  # which has a finding of its own
    numbers = [0] if may_fall_through(counters.body) else []
    for one in own_returns(counters):
        if one.value is None:
            return None
        for value in alternatives(one.value):
            of_hook = value
            if isinstance(value, ast.Dict):
                keys = [text_of(key) if key is not None else None for key in value.keys]
                if None in keys:
                    return None
                of_hook = value.values[keys.index(key)] if key in keys else ast.List([])
            if not isinstance(of_hook, ast.List):
                return None
            if any(isinstance(element, ast.Starred) for element in of_hook.elts):
                return None
            numbers.append(len(of_hook.elts))
    return max(numbers, default=None)


def _is_by_hook(counters: ast.FunctionDef) -> bool:
    return any(isinstance(one.value, ast.Dict) for one in own_returns(counters))


# --- state ---------------------------------------------------------------------------------------


def _states(source: PolicySource) -> Iterator[Finding]:
    """Fields of `state` that no hook before sets."""
    for hook, keepers in _STATE_OF.items():
        function = source.hooks.get(hook)
        if function is None or "state" not in {a.arg for a in function.args.args}:
            continue
        if hook in source.loaded_by_others or _is_asked_for(function):
            continue
        fields = _kept(source, keepers)
        if fields is None:
            continue
        keeper = _may_keep_none(source, keepers) if fields else ""
        use = _unconditional(function) if keeper else None
        if use is not None:
            text = f"`state` is None where {keeper}() returns None, which has no fields"
            hint = f"ask for that before, `state == None`, or let {keeper}() return skip()"
            yield source.finding("wrong-type", use, text, hint)
        for node in walk(function):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id != "state" or node.attr in fields:
                continue
            if fields:
                text = f"`state` of {hook}() has no field `{node.attr}`"
                hint = did_you_mean(node.attr, fields)
            else:
                text = f"`state` of {hook}() is None: {' or '.join(keepers)} keeps none"
                hint = f"`{keepers[0]}` returns it: `state({node.attr} = ...)`"
            yield source.finding("never-given", node, text, hint, is_error=True)


def _may_keep_none(source: PolicySource, keepers: tuple[str, ...]) -> str:
    """The one of *keepers* that plainly keeps no state for some pods, if no other keeps any."""
    present = [source.hooks[keeper] for keeper in keepers if keeper in source.hooks]
    if len(present) != 1:
        return ""
    keeper = present[0]
    returned = [one.value or ast.Constant(None) for one in own_returns(keeper)]
    values = [value for one in returned for value in alternatives(one)]
    is_none = any(isinstance(value, ast.Constant) and value.value is None for value in values)
    return keeper.name if is_none or may_fall_through(keeper.body) else ""


def _unconditional(function: ast.FunctionDef) -> ast.AST | None:
    """A field of `state` that *function* asks for on every way through it, before anything else.

    Code that looks at the pod first may have left out those without a state.
    """
    for statement in function.body:
        if isinstance(statement, ast.If):
            part: ast.AST = statement.test
        elif isinstance(statement, ast.For):
            part = statement.iter
        elif isinstance(statement, ast.Return | ast.Assign | ast.AugAssign | ast.Expr):
            part = statement
        else:
            return None
        for node in _always(part):
            is_field = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_field and node.value.id == "state":  # type: ignore[attr-defined]  # checked before
                return node
        if isinstance(statement, ast.If | ast.For):
            return None
    return None


def _always(node: ast.AST) -> Iterator[ast.AST]:
    """*node* and the parts of it that are worked out whatever the others are."""
    yield node
    if isinstance(node, ast.IfExp):
        yield from _always(node.test)
    elif isinstance(node, ast.BoolOp):
        yield from _always(node.values[0])
    elif isinstance(node, ast.ListComp | ast.DictComp):
        yield from _always(node.generators[0].iter)
    elif not isinstance(node, ast.Lambda):
        for part in ast.iter_child_nodes(node):
            yield from _always(part)


def _is_asked_for(function: ast.FunctionDef) -> bool:
    """Whether *function* looks if there is a state, or hands it on, or has another one."""
    owners = {id(n.value) for n in walk(function) if isinstance(n, ast.Attribute)}
    return any(
        isinstance(node, ast.Name) and node.id == "state" and id(node) not in owners
        for node in walk(function)
    )


def _kept(source: PolicySource, keepers: tuple[str, ...]) -> list[str] | None:
    """The fields that one of *keepers* may keep; None if that is not plain to see."""
    if not any(keeper in source.hooks for keeper in keepers):
        return []
    called_names = {id(node.func) for node in walk(source.tree) if isinstance(node, ast.Call)}
    for statement in source.tree.body:
        # `state` by another name?
        if isinstance(statement, ast.Assign) and any(
            isinstance(node, ast.Name) and node.id == "state" and id(node) not in called_names
            for node in walk(statement)
        ):
            return None
    own = set(source.functions)
    loaded = {load.local for load in loads_of(source.tree)}
    fields: dict[str, None] = {}
    for name in own - set(source.hooks) | set(keepers):
        function = source.functions.get(name)
        for node in walk(function) if function is not None else ():
            called = node.func if isinstance(node, ast.Call) else None
            if not isinstance(node, ast.Call) or not isinstance(called, ast.Name):
                continue
            if called.id == "state":
                if any(keyword.arg is None for keyword in node.keywords):
                    return None
                fields |= {word.arg: None for word in node.keywords if word.arg is not None}
            elif called.id in loaded and _is_returned(function, node):
                return None
    return list(fields)


def _is_returned(function: ast.FunctionDef | None, call: ast.Call) -> bool:
    """Whether what *call* gives may be what *function* returns."""
    if function is None:
        return False
    returned = [one.value for one in own_returns(function) if one.value is not None]
    names = {node.id for value in returned for node in walk(value) if isinstance(node, ast.Name)}
    assigned = {id(value) for name, value in assignments(function) if name in names}
    inside = {id(node) for value in returned for node in alternatives(value)}
    return id(call) in assigned | inside
