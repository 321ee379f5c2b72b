"""Lints about hooks as a whole: what one returns that nobody takes, and one that nobody asks.

Kinds are told by the form of an expression alone, where that leaves no doubt.
"""

import ast
from collections.abc import Iterator
from typing import Final

from engine.policy.lint.finding import Finding, PolicySource
from engine.policy.syntax import AMONG_PREFIX, text_of, walk

_KEY: Final = "an int, a string or a tuple of those"
_NO_KEY: Final = frozenset({"None", "bool", "float", "dict"})
_NO_REASON: Final = frozenset({"bool", "int", "float", "dict"})
_NO_SCORE: Final = frozenset({"bool", "float", "text", "list", "dict"})
_PASSES: Final = "None lets the pod pass, a text says why not"
_WHOLE: Final = "`//` divides to an int; math.round(...) makes one of a float"

# What a hook never takes, what it wants, and what helps.
_RULES: Final[dict[str, tuple[frozenset[str], str, str]]] = {
    "filter": (_NO_REASON, "None, a reason, a list of reasons or unresolvable(...)", _PASSES),
    "pre_enqueue": (_NO_REASON | {"list"}, "None or a reason", _PASSES),
    "permit": (_NO_REASON, "None, wait(...) or a reason", _PASSES),
    "score": (_NO_SCORE, "an int or None", _WHOLE),
    "normalize": (_NO_SCORE | {"None"}, "an int in 0..100", _WHOLE),
    "queue_key": (_NO_KEY, _KEY, ""),
    "tie_key": (_NO_KEY, _KEY, ""),
    "victim_key": (_NO_KEY, _KEY, ""),
    "candidate_key": (_NO_KEY, _KEY, ""),
}

_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float", str: "text"}
_SHOWN: Final = {"None": "None", "int": "an int", "float": "a fraction", "bool": "True or False"}
_TAKES_COUNTS: Final = ("pre_filter", "filter", "pre_score", "score")


def lint_returns(source: PolicySource) -> Iterator[Finding]:
    """Answers of another kind than the hook's."""
    for hook, function in source.hooks.items():
        refused, want, hint = _RULES.get(hook, (frozenset(), "", ""))
        for node in _own_returns(function):
            for value in _alternatives(node.value, into=hook.endswith("_key")):
                kind = _kind(value)
                if kind in refused:
                    text = f"{hook}() returns {_SHOWN.get(kind, f'a {kind}')} here, want {want}"
                    helps = hint if kind in ("bool", "float") else ""
                    yield source.finding("wrong-return", value or node, text, helps, is_error=True)


def lint_hooks(source: PolicySource) -> Iterator[Finding]:
    """Hooks that are never asked, as the one that they serve is not there."""
    hooks = source.hooks
    scores = "score" in hooks or "score_all" in hooks
    named = {text_of(node) for node in walk(source.tree) if isinstance(node, ast.Constant)}
    for hook, function in hooks.items():
        why = ""
        if hook in ("pre_score", "normalize") and not scores:
            why = "there is no `score`"
        elif hook == "counters" and not any(_takes_counts(hooks.get(h)) for h in _TAKES_COUNTS):
            why = "no hook has the parameter `counts`"
        elif hook.startswith(AMONG_PREFIX) and hook not in named:
            why = f'no counter has `among = "{hook}"`'
        if why and hook not in source.loaded_by_others:
            yield source.finding("unused-hook", function, f"{hook}() is never asked: {why}")


def _takes_counts(function: ast.FunctionDef | None) -> bool:
    return function is not None and any(a.arg == "counts" for a in function.args.args)


def _own_returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """Its returns, without those of functions inside."""
    stack: list[ast.stmt] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            yield node
        elif isinstance(node, ast.If | ast.For):
            stack += [*node.body, *node.orelse]


def _alternatives(node: ast.expr | None, *, into: bool) -> Iterator[ast.expr | None]:
    """What *node* may be; with *into* the parts of a tuple or a list, each by itself."""
    if isinstance(node, ast.IfExp):
        yield from _alternatives(node.body, into=into)
        yield from _alternatives(node.orelse, into=into)
    elif into and isinstance(node, ast.Tuple | ast.List):
        for part in node.elts:
            yield from _alternatives(part, into=into)
    else:
        yield node


def _kind(node: ast.expr | None) -> str:
    """The kind of value that *node* is, whatever it is made of; "" if that cannot be told."""
    if node is None:
        return "None"
    if isinstance(node, ast.Constant):
        return "None" if node.value is None else _KINDS.get(type(node.value), "")
    if isinstance(node, ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    ):
        return "bool"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "float"
    if isinstance(node, ast.JoinedStr):
        return "text"
    if isinstance(node, ast.List | ast.ListComp):
        return "list"
    return "dict" if isinstance(node, ast.Dict | ast.DictComp) else ""
