"""Lints about hooks as a whole: return values that are not accepted, and hooks never called.

What a hook may return is in the table of the language; the kinds of answers are inferred, and
nothing is reported where one is not certain.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from engine.language.hook import Hook
from engine.language.hooks import AMONG_PREFIX, hook_of
from engine.language.syntax import (
    assignments,
    local_names,
    may_fall_through,
    own_returns,
    shown,
    text_of,
    walk,
)
from engine.language.table import builtins
from engine.language.verdicts import wanted
from workbench.lint.finding import Finding, PolicySource

_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float", str: "str"}
_SHOWN: Final = {
    "none": "None",
    "int": "an int",
    "float": "a fraction",
    "bool": "True or False",
    "str": "a text",
    "blank": "an empty text",
}


def lint_returns(source: PolicySource) -> Iterator[Finding]:
    """Answers of another kind than the hook's, those that are missing, and values not taken."""
    for name, function in source.hooks.items():
        hook = hook_of(name)
        want = wanted(hook.forms)
        for place, value in _answers(source, hook, function):
            kind = _kind_of(source, hook, value)
            if kind == "function" and isinstance(value, ast.Name):
                text = f"{name}() returns the function `{value.id}` here, want {want}"
                is_answer = not _makes(value.id) or f"{value.id}()" in _taken(hook)
                calls = f"call it: `{value.id}(...)`" if is_answer else ""
                yield source.finding("wrong-return", place, text, calls, is_error=True)
                continue
            if kind not in _REFUSABLE or kind in _taken(hook):
                continue
            if kind == "verdict" and value is not None:
                made = f"{ast.unparse(value).partition('(')[0]}(...)"
            else:
                made = _SHOWN.get(kind, f"a {kind}")
            text = f"{name}() returns {made} here, want {want}"
            hints = hook.lint_hints
            helps = "" if kind == "verdict" else hints.get(kind, hints.get("", ""))
            yield source.finding("wrong-return", place, text, helps, is_error=True)
        yield from _missing(source, hook, name, function)
        if hook.may_reject and hook.may_return("list"):
            yield from _empty(source, name, function, want)
    for function in source.functions.values():
        yield from _thrown_away(source, function)
    if source.is_test:
        yield from _idle_tests(source)


def _idle_tests(source: PolicySource) -> Iterator[Finding]:
    """Tests that assert nothing, and so always pass."""
    # What may fail: assertions, and whatever another file does.
    names = {"asserts", "fail"} | (source.loaded - _BUILDERS)
    used: dict[str, set[str]] = {}
    for name, function in source.functions.items():
        # A name alone, such as `asserts.fits` without its parentheses, asks nothing.
        alone = {
            id(part)
            for node in walk(function)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Attribute)
            for part in walk(node)
        }
        nodes = (node for node in walk(function) if id(node) not in alone)
        used[name] = {node.id for node in nodes if isinstance(node, ast.Name)}
    asking = {name for name in used if used[name] & names}
    while more := {name for name in used if name not in asking and used[name] & asking}:
        asking |= more
    for name, function in source.functions.items():
        if name.startswith("test_") and name not in asking:
            text = f"{name}() asserts nothing: it always passes"
            yield source.finding("no-effect", function, text, "`asserts.fits(...)` and the like do")


# What tests load to make things; these fail for nothing that the policy does.
_BUILDERS: Final = frozenset(
    {"asserts", "cluster", "make_fact", "make_group", "make_node", "make_pod"}
    | {"make_queue", "make_request"}
    | {"load_data", "load_manifests"}
)


def _answers(
    source: PolicySource,
    hook: Hook,
    function: ast.FunctionDef,
    seen: frozenset[str] = frozenset(),
) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """What *hook* may return: where, and what.

    Calls of functions of the file are followed.
    """
    own = set(local_names(function))
    for node in own_returns(function):
        for value in _values(hook, node.value):
            name = _called(value)
            inner = source.functions.get(name) if name not in own else None
            if inner is None:
                yield value or node, value
            elif name not in seen:
                yield from _answers(source, hook, inner, seen | {name})


def _missing(
    source: PolicySource, hook: Hook, name: str, function: ast.FunctionDef
) -> Iterator[Finding]:
    """An answer that is not there on every way through the hook."""
    if not may_fall_through(function.body):
        return
    refuses_none, means = not hook.may_return_none, hook.none_means
    want = f", want {wanted(hook.forms)}" if refuses_none else ""
    if not any(True for _ in own_returns(function)):
        if isinstance(function.body[-1], ast.Pass) and not refuses_none:
            return
        text = f"{name}() has no `return`: its answer is always None{want}"
        yield source.finding("missing-return", function, text, means, is_error=refuses_none)
    elif refuses_none or means:
        text = f"{name}() can end without a `return`, which is None{want}"
        hint = f"{means}; write `return None` where that is meant" if means else ""
        yield source.finding("missing-return", function, text, hint)


def _empty(
    source: PolicySource, hook: str, function: ast.FunctionDef, want: str
) -> Iterator[Finding]:
    """A list of reasons that has none in it where the pod fits."""
    lists = {
        name
        for name, value in assignments(function)
        if isinstance(value, ast.ListComp) or ast.unparse(value) in ("[]", "list()")
    }
    lists -= {
        node.id
        for statement in walk(function)
        if isinstance(statement, ast.If | ast.IfExp | ast.BoolOp)
        for node in walk(statement.test if not isinstance(statement, ast.BoolOp) else statement)
        if isinstance(node, ast.Name)
    }
    for node in own_returns(function):
        value = node.value
        if isinstance(value, ast.ListComp) or (isinstance(value, ast.Name) and value.id in lists):
            text = f"{hook}() returns an empty list where there is no reason, want {want}"
            hint = f"None lets the pod pass: `return {shown(value)} or None`"
            yield source.finding("wrong-return", value, text, hint)
        elif isinstance(value, ast.List) and not value.elts:
            text = f"{hook}() returns an empty list here, want {want}"
            yield source.finding(
                "wrong-return", value, text, "None lets the pod pass", is_error=True
            )


def _thrown_away(source: PolicySource, function: ast.FunctionDef) -> Iterator[Finding]:
    """Statements that only make a value."""
    for node in walk(function):
        if not isinstance(node, ast.Expr):
            continue
        value = node.value
        if node is function.body[0] and _is_text(value):
            continue
        called = source.types.builtin(value) if isinstance(value, ast.Call) else None
        is_made = called is not None and called.result in _FOR_THE_RUNTIME
        if isinstance(value, _EFFECTIVE) and not is_made:
            continue
        if isinstance(value, ast.Constant) and value.value is Ellipsis:
            continue
        text = f"nothing takes `{shown(value)}`"
        hint = "write `return` before it, or give it a name"
        yield source.finding("no-effect", node, text, hint)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


# Expressions that may do something: calls, and what may hold one.
_EFFECTIVE: Final = (ast.Call, ast.IfExp, ast.BoolOp, ast.ListComp, ast.DictComp)


def _called(node: ast.expr | None) -> str:
    """The name of the function that *node* calls, else ""."""
    is_plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id if is_plain else ""  # type: ignore[union-attr]  # checked before


def _makes(name: str) -> str:
    """What the builtin *name* makes for the runtime: `verdict`, `counter`, `selector` or ""."""
    known = builtins().get(name)
    return known.result if known is not None and known.result in _FOR_THE_RUNTIME else ""


_FOR_THE_RUNTIME: Final = ("verdict", "counter", "selector")
#: The kinds of answers that are refused where no form of the hook takes them. A "blank" is a text
#: without letters, a "verdict" one that a builtin makes for other hooks.
_REFUSABLE: Final = frozenset(
    {"none", "bool", "int", "float", "str", "blank", "list", "dict", "struct"}
    | {"verdict", "counter"}
)


def _taken(hook: Hook) -> frozenset[str]:
    """The kinds that *hook* may return; of a key those of its parts."""
    keys = [form.kinds for form in hook.forms if form.has_parts]
    if keys:
        return keys[0]
    return frozenset().union(*(form.kinds for form in hook.forms))


def _kind_of(source: PolicySource, hook: Hook, node: ast.expr | None) -> str:
    """The kind of *node*; "verdict" if it is one that *hook* refuses, "" if it is not certain."""
    if node is None:
        return "none"
    called = source.types.builtin(node) if isinstance(node, ast.Call) else None
    if called is not None and called.result == "verdict":
        return "" if f"{called.name}()" in _taken(hook) else "verdict"
    if called is not None and called.result == "counter":
        return "counter" if hook.name == "counters" else ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.strip():
        return "blank"
    # What may be None is something else then.
    return "" if source.types.of(node).endswith("?") else source.types.kind_of(node)


def _values(hook: Hook, node: ast.expr | None) -> Iterator[ast.expr | None]:
    """What *hook* may return at `return node`; of a key the parts."""
    is_key = any(form.has_parts for form in hook.forms)
    for value in _alternatives(node, into=False):
        if is_key and hook.may_return_none and _kind(value) == "none":
            continue  # as a whole; no part of a key is None
        yield from _alternatives(value, into=is_key)


def lint_hooks(source: PolicySource) -> Iterator[Finding]:
    """Hooks that are never called, because the hook that they serve is missing."""
    hooks = source.hooks
    scores = "score" in hooks or "score_all" in hooks
    named = {text_of(node) for node in walk(source.tree) if isinstance(node, ast.Constant)}
    for hook, function in hooks.items():
        why = ""
        if hook in ("pre_score", "normalize") and not scores:
            why = "there is no `score`"
        elif hook == "counters" and not _is_taken("counts", hooks):
            why = "no hook has the parameter `counts`"
        elif hook == "group_of" and not _is_taken("group", hooks):
            why = "no hook has the parameter `group`"
        elif hook.startswith(AMONG_PREFIX) and hook not in named:
            why = f'no counter has `among = "{hook}"`'
        if why and hook not in source.loaded_by_others:
            yield source.finding("unused-hook", function, f"{hook}() is never asked: {why}")


def _is_taken(parameter: str, hooks: Mapping[str, ast.FunctionDef]) -> bool:
    takers = [one for name, one in hooks.items() if parameter in hook_of(name).parameters]
    return any(a.arg == parameter for function in takers for a in function.args.args)


def _alternatives(node: ast.expr | None, *, into: bool) -> Iterator[ast.expr | None]:
    """What *node* may be; with *into* the parts of a tuple or a list, each by itself."""
    if isinstance(node, ast.IfExp):
        yield from _alternatives(node.body, into=into)
        yield from _alternatives(node.orelse, into=into)
    elif isinstance(node, ast.BoolOp):
        # The first ones are the answer where they are False, for `and`, or True, for `or`.
        yield from (value for value in node.values[:-1] if _kind(value) == "bool")
        yield from _alternatives(node.values[-1], into=into)
    elif into and isinstance(node, ast.Tuple | ast.List):
        for part in node.elts:
            yield from _alternatives(part, into=into)
    else:
        yield node


def _kind(node: ast.expr | None) -> str:
    """The kind of value that *node* is, whatever it is made of; "" if that is not certain."""
    if node is None:
        return "none"
    if isinstance(node, ast.Constant):
        return "none" if node.value is None else _KINDS.get(type(node.value), "")
    if isinstance(node, ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    ):
        return "bool"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "float"
    if isinstance(node, ast.JoinedStr):
        return "str"
    if isinstance(node, ast.List | ast.ListComp):
        return "list"
    return "dict" if isinstance(node, ast.Dict | ast.DictComp) else ""
