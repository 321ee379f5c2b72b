"""Lints about hooks as a whole: what one returns that nobody takes, and one that nobody asks.

Kinds are told by the form of an expression, or by its type, where that leaves no doubt.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.language.hooks import AMONG_PREFIX
from engine.language.syntax import (
    local_names,
    may_fall_through,
    own_returns,
    shown,
    text_of,
    walk,
)
from engine.policy.lint.finding import Finding, PolicySource
from engine.policy.view_fields import RECORDS

_KEY: Final = "an int, a string or a tuple of those"
_NO_KEY: Final = frozenset({"None", "bool", "float", "dict", "struct", "verdict"})
_NO_REASON: Final = frozenset({"bool", "int", "float", "dict", "struct", "blank"})
_NO_SCORE: Final = frozenset({"bool", "float", "text", "list", "dict", "struct", "verdict"})
_NO_VERDICT: Final = frozenset({"bool", "int", "float", "text", "list", "dict", "struct"})
_NO_LIST: Final = frozenset({"None", "bool", "int", "float", "text", "dict", "struct", "verdict"})
_PASSES: Final = "None lets the pod pass, a text says why not"
_WHOLE: Final = "`//` divides to an int; math.round(...) makes one of a float"
_REJECTS: Final = '`reject("why")` rejects the pod, None lets it pass'

# What a hook never takes, what it wants, and what helps.
_RULES: Final[dict[str, tuple[frozenset[str], str, str]]] = {
    "group_of": (_NO_VERDICT, "None or gang(...)", "`gang(name)` names it"),
    "pre_enqueue": (_NO_REASON | {"list"}, "None or a reason", _PASSES),
    "counters": (
        (_NO_LIST - {"dict"}) | {"counter"},
        "a list of count_pods(...) and count_terms(...), or a dict of such lists",
        "a list of one will do: `[count_pods(...)]`",
    ),
    "pre_filter": (
        _NO_VERDICT,
        "None, reject(...), unresolvable(...), skip(), only_nodes(...) or state(...)",
        _REJECTS,
    ),
    "filter": (_NO_REASON, "None, a reason, a list of reasons or unresolvable(...)", _PASSES),
    "pre_score": (_NO_VERDICT, "None, skip() or state(...)", ""),
    "score": (_NO_SCORE, "an int or None", _WHOLE),
    "normalize": (_NO_SCORE | {"None"}, "an int in 0..100", _WHOLE),
    "score_all": (_NO_LIST, "a list of ints, one per node", ""),
    "annotate": (
        frozenset({"bool", "int", "float", "text", "list", "struct", "verdict"}),
        "None or a dict of annotations",
        "",
    ),
    "permit": (_NO_REASON, "None, wait(...) or a reason", _PASSES),
    "queue_key": (_NO_KEY, _KEY, ""),
    "tie_key": (_NO_KEY, _KEY, ""),
    "victim_key": (_NO_KEY, f"None, {_KEY}", ""),
    "candidate_key": (_NO_KEY, _KEY, ""),
}

# The built-ins that make answers, and who takes them.
_REJECTIONS: Final = frozenset({"pre_enqueue", "pre_filter", "filter", "permit"})
_VERDICTS: Final = {
    "reject": _REJECTIONS,
    "unresolvable": _REJECTIONS,
    "skip": frozenset({"pre_filter", "pre_score"}),
    "only_nodes": frozenset({"pre_filter"}),
    "state": frozenset({"pre_filter", "pre_score"}),
    "gang": frozenset({"group_of"}),
    "wait": frozenset({"permit"}),
}
_COUNTERS: Final = ("count_pods", "count_terms")
# These are of no use where they are not handed on.
_MADE: Final = frozenset({*_VERDICTS, *_COUNTERS, "pods_in"})

_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float", str: "text"}
_SHOWN: Final = {
    "None": "None",
    "int": "an int",
    "float": "a fraction",
    "bool": "True or False",
    "blank": "an empty text",
}
# Of types that are known for sure: what may be None is something else then.
_OF_TYPES: Final = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "text",
    "list": "list",
    "dict": "dict",
}
_TAKES_COUNTS: Final = ("pre_filter", "filter", "pre_score", "score")
_TAKES_GROUP: Final = ("queue_key", "pre_enqueue", "permit")


def lint_returns(source: PolicySource) -> Iterator[Finding]:
    """Answers of another kind than the hook's, those that are missing, and values not taken."""
    for hook, function in source.hooks.items():
        refused, want, hint = _RULES.get(hook, (frozenset(), "", ""))
        for place, value, own in _answers(source, hook, function):
            kind = _kind_of(source, hook, value, own)
            if kind == "function" and isinstance(value, ast.Name):
                text = f"{hook}() returns the function `{value.id}` here, want {want}"
                is_answer = hook in _VERDICTS.get(value.id, (hook,))
                calls = f"call it: `{value.id}(...)`" if is_answer else ""
                yield source.finding("wrong-return", place, text, calls, is_error=True)
                continue
            if kind not in refused and kind != "verdict":
                continue
            if kind == "verdict" and value is not None:
                made = f"{ast.unparse(value).partition('(')[0]}(...)"
            else:
                made = _SHOWN.get(kind, f"a {kind}")
            text = f"{hook}() returns {made} here, want {want}"
            is_told = kind in ("bool", "float", "counter") or hook in ("pre_filter", "group_of")
            helps = hint if is_told and kind != "verdict" else ""
            yield source.finding("wrong-return", place, text, helps, is_error=True)
        if refused:
            yield from _missing(source, hook, function, want)
        if hook in ("filter", "permit"):
            yield from _empty(source, hook, function, want)
    for function in source.functions.values():
        yield from _thrown_away(source, function)
    if source.is_test:
        yield from _idle_tests(source)


def _idle_tests(source: PolicySource) -> Iterator[Finding]:
    """Tests that ask nothing, and so always pass."""
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
    | {"load_data", "load_manifests"}
)


def _answers(
    source: PolicySource,
    hook: str,
    function: ast.FunctionDef,
    seen: frozenset[str] = frozenset(),
) -> Iterator[tuple[ast.AST, ast.expr | None, frozenset[str]]]:
    """What *hook* may return: where, what, and the names that are known there.

    Calls of functions of the file are followed.
    """
    own = set(local_names(function))
    for node in own_returns(function):
        for value in _values(hook, node.value):
            name = _called(value)
            inner = source.functions.get(name) if name not in own else None
            if inner is None:
                yield value or node, value, source.variables_in[function.name]
            elif name not in seen:
                yield from _answers(source, hook, inner, seen | {name})


def _missing(
    source: PolicySource, hook: str, function: ast.FunctionDef, want: str
) -> Iterator[Finding]:
    """An answer that is not there on every way through the hook."""
    refuses_none = "None" in _RULES[hook][0] and hook != "victim_key"
    if not may_fall_through(function.body):
        return
    wanted = f", want {want}" if refuses_none else ""
    means = "" if refuses_none else _NONE_MEANS.get(hook, "")
    if not any(True for _ in own_returns(function)):
        if isinstance(function.body[-1], ast.Pass) and not refuses_none:
            return
        text = f"{hook}() has no `return`: its answer is always None{wanted}"
        yield source.finding("missing-return", function, text, means, is_error=refuses_none)
    elif refuses_none or means:
        text = f"{hook}() can end without a `return`, which is None{wanted}"
        hint = f"{means}; write `return None` where that is meant" if means else ""
        yield source.finding("missing-return", function, text, hint)


def _empty(
    source: PolicySource, hook: str, function: ast.FunctionDef, want: str
) -> Iterator[Finding]:
    """A list of reasons that has none in it where the pod fits."""
    lists = {
        node.targets[0].id
        for node in walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and (isinstance(node.value, ast.ListComp) or ast.unparse(node.value) in ("[]", "list()"))
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


_NONE_MEANS: Final = {
    "victim_key": "a pod without a key is never evicted",
    "score": "a node without a score counts as one with 0",
}


def _thrown_away(source: PolicySource, function: ast.FunctionDef) -> Iterator[Finding]:
    """Statements that only make a value."""
    own = set(local_names(function))
    for node in walk(function):
        if not isinstance(node, ast.Expr):
            continue
        value = node.value
        if node is function.body[0] and _is_text(value):
            continue
        name = _called(value)
        is_made = name in _MADE and name not in own and name not in source.functions
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
    return node.func.id if is_plain else ""  # type: ignore[union-attr]  # told before


def _kind_of(source: PolicySource, hook: str, node: ast.expr | None, own: frozenset[str]) -> str:
    """The kind of *node*, by its form or its type; "verdict" if it is one that *hook* refuses."""
    name = _called(node)
    is_plain = isinstance(node, ast.Name) and node.id not in own
    if is_plain and (node.id in source.functions or node.id in _MADE):  # type: ignore[union-attr]  # told before
        return "function"
    is_own = name in own or name in source.functions or name in source.loaded
    if name in _VERDICTS and not is_own:
        return "" if hook in _VERDICTS[name] else "verdict"
    if name in _COUNTERS and not is_own and hook == "counters":
        return "counter"
    if _is_text(node) and isinstance(node, ast.Constant) and not node.value.strip():  # type: ignore[arg-type, union-attr]
        return "blank"
    kind = _kind(node)
    if kind or node is None:
        return kind
    known = source.types.of(node)
    if known.startswith("@") or known in RECORDS:
        return "struct"
    return _OF_TYPES.get(known.partition("[")[0], "")


def _values(hook: str, node: ast.expr | None) -> Iterator[ast.expr | None]:
    """What *hook* may return at `return node`; of a key the parts."""
    for value in _alternatives(node, into=False):
        if hook == "victim_key" and _kind(value) == "None":
            continue  # alone, it says that the pod is never evicted
        yield from _alternatives(value, into=hook.endswith("_key"))


def lint_hooks(source: PolicySource) -> Iterator[Finding]:
    """Hooks that are never asked, as the one that they serve is not there."""
    hooks = source.hooks
    scores = "score" in hooks or "score_all" in hooks
    named = {text_of(node) for node in walk(source.tree) if isinstance(node, ast.Constant)}
    for hook, function in hooks.items():
        why = ""
        if hook in ("pre_score", "normalize") and not scores:
            why = "there is no `score`"
        elif hook == "counters" and not _is_taken("counts", hooks, _TAKES_COUNTS):
            why = "no hook has the parameter `counts`"
        elif hook == "group_of" and not _is_taken("group", hooks, _TAKES_GROUP):
            why = "no hook has the parameter `group`"
        elif hook.startswith(AMONG_PREFIX) and hook not in named:
            why = f'no counter has `among = "{hook}"`'
        if why and hook not in source.loaded_by_others:
            yield source.finding("unused-hook", function, f"{hook}() is never asked: {why}")


def _is_taken(parameter: str, hooks: Mapping[str, ast.FunctionDef], by: Iterable[str]) -> bool:
    takers = [hooks[name] for name in by if name in hooks]
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
