"""Lints about calls of built-ins: arguments of a kind that they never take.

Such a call runs until it is reached, and then fails for every pod. Owns what each built-in takes;
kinds are told by the form of an expression, or by its type, where that leaves no doubt.
"""

import ast
import difflib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from engine.language.hooks import AMONG_PREFIX
from engine.language.syntax import (
    alternatives,
    number_of,
    shown,
    text_of,
    walk,
)
from engine.policy.lint.finding import Finding, PolicySource
from engine.policy.view_fields import RECORDS


@dataclass(frozen=True, slots=True)
class _Want:
    """What one parameter takes: the kinds, and what to call them."""

    kinds: frozenset[str]
    text: str


def _want(kinds: str, text: str) -> _Want:
    return _Want(frozenset(kinds.split()), text)


_NUMBER: Final = _want("int float bool", "a number")
_REASON: Final = _want("text list tuple", "a reason or a list of reasons")
_NAMES: Final = _want("list tuple dict", "a list of node names")
_LABELS: Final = _want("dict struct None", "a selector or a dict of labels")
_NAMESPACES: Final = _want("list tuple", "a list of namespaces")
_SIZED: Final = _want("text list tuple dict", "a text, a list or a dict")
_MANY: Final = _want("list tuple dict", "a list or a dict")
_SPELT: Final = _want("text None", "a text")
_ANYTHING: Final = _Want(frozenset(), "")
_WEIGHT: Final = ("weight", _want("int", "an int"))
_UP_TO: Final = ("up_to", _want("int None", "an int of at least 0 or None"))

# What the parameters take, by built-in, in their order.
_TAKES: Final[Mapping[str, tuple[tuple[str, _Want], ...]]] = {
    "unresolvable": (("reasons", _REASON),),
    "reject": (("reasons", _REASON),),
    "only_nodes": (("names", _NAMES), ("state", _want("verdict None", "state(...) or None"))),
    "wait": (("seconds", _want("int float", "a number of seconds above 0")), ("reason", _REASON)),
    "gang": (
        ("name", _want("text", "a text that is not empty")),
        ("min_count", _want("int None", "an int of at least 0 or None")),
    ),
    "count_pods": (
        ("topology", _want("text None", "a label key or None")),
        ("selectors", _want("list tuple None", "a list of pods_in(...)")),
        ("labels", _LABELS),
        ("namespaces", _want("list tuple None", "a list of namespaces")),
        ("among", _want("text None", 'the name of a function, such as "among_x"')),
        ("keys", _want("list tuple", "a list of label keys")),
        _WEIGHT,
        ("terminating", _want("bool", "True or False")),
        _UP_TO,
    ),
    "count_terms": (("kind", _want("text", "a kind of terms")), _WEIGHT, _UP_TO),
    "pods_in": (
        ("namespaces", _NAMESPACES),
        ("selector", _LABELS),
        ("namespace_selector", _LABELS),
    ),
    "matches": (("selector", _LABELS), ("labels", _want("dict", "a dict of labels"))),
    "parse_int": (("text", _SPELT), ("default", _ANYTHING)),
    "parse_float": (("text", _SPELT), ("default", _ANYTHING)),
    **dict.fromkeys(("int", "float"), (("", _want("int float bool text", "a number or a text")),)),
    "len": (("", _SIZED),),
    "abs": (("", _NUMBER),),
    "range": (("", _want("int", "an int")),) * 3,
    **dict.fromkeys(("sorted", "list", "tuple", "reversed", "enumerate"), (("", _MANY),)),
    **dict.fromkeys(("all", "any"), (("", _MANY),)),
}
# The functions of `math`: each takes numbers alone.
_MATH: Final = frozenset(
    {"sqrt", "exp", "log", "pow", "floor", "ceil", "round", "abs", "clamp", "lgamma", "beta_cdf"}
)
# How many arguments those of them take that do not take one.
_MATH_TAKES: Final = {"log": (1, 2), "pow": (2,), "clamp": (3,), "beta_cdf": (3,)}
# What must not be empty; the latter two take lists.
_FILLED: Final = ("name", "reason", "reasons")
# Arguments of these that are texts in place of lists of one.
_LISTED: Final = frozenset({"names", "namespaces", "keys"})
_TERMS: Final = (
    *("required_affinity", "required_anti_affinity"),
    *("preferred_affinity", "preferred_anti_affinity"),
)
# The sum of these is made element by element: one alone has to be a list.
_OF_MANY: Final = ("min", "max")
_ASK_TYPES: Final = ("type", "isinstance")
_MADE: Final = frozenset({"unresolvable", "reject", "skip", "only_nodes", "state", "wait", "gang"})
_KINDS: Final[dict[type, str]] = {
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.List: "list",
    ast.ListComp: "list",
    ast.Tuple: "tuple",
    ast.Lambda: "function",
}
_OF_TYPES: Final = {
    "str": "text",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "list": "list",
    "dict": "dict",
    "function": "function",
}
_SHOWN: Final = {
    "None": "None",
    "int": "an int",
    "float": "a fraction",
    "bool": "True or False",
    "verdict": "an answer of a hook",
}


def lint_calls(source: PolicySource) -> Iterator[Finding]:
    """Arguments of built-ins that those never take."""
    for name, function in source.functions.items():
        own = source.names_in[name]
        asked = {
            ast.dump(node.args[0])
            for node in walk(function)
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _ASK_TYPES
        }
        for node in walk(function):
            if isinstance(node, ast.Call):
                for word, given, want in _arguments(node, own):
                    if ast.dump(given) in asked:  # it is looked at first
                        continue
                    for one in alternatives(given):
                        yield from _argument(source, node, (word, one, want), own)
                if isinstance(node.func, ast.Name) and node.func.id not in own:
                    yield from _counter(source, node)
                elif ast.unparse(node.func).startswith("math.") and "math" not in own:
                    yield from _number_of_arguments(source, node)


def needing_a_value(node: ast.Call, own: Set[str]) -> Iterator[ast.expr]:
    """The arguments of *node* that must not be None; *own* are names that are no built-ins."""
    is_plain = isinstance(node.func, ast.Name) and node.func.id not in own
    if is_plain and node.func.id in _OF_MANY and len(node.args) > 1:  # type: ignore[attr-defined]  # a name
        yield from node.args
    for _, given, want in _arguments(node, own):
        if want.kinds and "None" not in want.kinds:
            yield given


def _arguments(node: ast.Call, own: Set[str]) -> Iterator[tuple[str, ast.expr, _Want]]:
    """The arguments of *node* that a built-in is called with: the name, the value, the wish."""
    if any(isinstance(one, ast.Starred) for one in node.args):
        return
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        is_math = isinstance(owner, ast.Name) and owner.id == "math" and "math" not in own
        if is_math and node.func.attr in _MATH:
            yield from (("", given, _NUMBER) for given in node.args)
        return
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in own:
        return
    if name in _OF_MANY and len(node.args) == 1:
        yield "", node.args[0], _MANY
    takes = _TAKES.get(name, ())
    for (word, want), given in zip(takes, node.args, strict=False):
        yield word, given, want
    wants = dict(takes)
    for keyword in node.keywords:
        if keyword.arg in wants:
            yield keyword.arg, keyword.value, wants[keyword.arg]


def _argument(
    source: PolicySource,
    call: ast.Call,
    argument: tuple[str, ast.expr, _Want],
    own: Set[str],
) -> Iterator[Finding]:
    word, given, want = argument
    name = ast.unparse(call.func)
    given_text = shown(given)
    kind = _kind(source, given, own)
    is_one = len(_TAKES.get(name, ())) == 1 or not word
    takes = (
        f"{name}() wants {want.text}" if is_one else f"{name}() wants `{word}` to be {want.text}"
    )
    if kind and want.kinds and kind not in want.kinds:
        got = _got(kind, given_text)
        hint = _hint(name, word, kind, given_text)
        yield source.finding("wrong-type", given, f"{takes}, got {got}", hint, is_error=True)
        return
    for part in given.elts if isinstance(given, ast.List | ast.Tuple) else ():
        inner = _kind(source, part, own)
        if name in _TEXTS and word in _TEXTS[name] and inner and inner != "text":
            got = (
                "None" if inner == "None" else f"{_SHOWN.get(inner, f'a {inner}')}: `{shown(part)}`"
            )
            text = f"{takes}, each a text, got {got}"
            yield source.finding("wrong-type", part, text, is_error=True)
    number, written = number_of(given), text_of(given)
    is_blank = written is not None and not written.strip()
    is_empty = isinstance(given, ast.List | ast.Tuple) and not given.elts
    is_low = number is not None and (
        (word == "seconds" and number <= 0) or (word in ("min_count", "up_to") and number < 0)
    )
    if is_low or (is_blank and word in _FILLED) or (is_empty and word in _FILLED[1:]):
        got = "an empty text" if is_blank else "an empty list" if is_empty else f"`{given_text}`"
        yield source.finding("wrong-type", given, f"{takes}, got {got}", is_error=True)
    if name == "count_terms" and word == "kind" and written is not None and written not in _TERMS:
        close = difflib.get_close_matches(written, _TERMS, 1)
        listed = ", ".join(f"`{term}`" for term in _TERMS)
        text = f"count_terms() wants one of {listed}, got `{written}`"
        hint = f"did you mean `{close[0]}`?" if close else ""
        yield source.finding("wrong-type", given, text, hint, is_error=True)


def _got(kind: str, text: str) -> str:
    return "None" if kind == "None" else f"{_SHOWN.get(kind, f'a {kind}')}: `{text}`"


# Whose elements are texts.
_TEXTS: Final = {
    "unresolvable": ("reasons",),
    "reject": ("reasons",),
    "wait": ("reason",),
    "only_nodes": ("names",),
    "count_pods": ("namespaces", "keys"),
    "pods_in": ("namespaces",),
}


def _hint(name: str, word: str, kind: str, text: str) -> str:
    if kind == "text" and word in _LISTED:
        return f"a list of one will do: `[{text}]`"
    if name == "wait" and word == "seconds" and kind == "text":
        return "seconds are a number: `wait(10)`"
    if kind == "text" and name in ("abs", "range", *(f"math.{one}" for one in _MATH)):
        return f"`parse_int({text}, 0)` makes an int of a text"
    if kind == "float" and name == "range":
        return "`//` divides to an int"
    if kind in ("list", "dict") and name == "range":
        return f"go through it, `for x in {text}:`, or `range(len({text}))`"
    if name in ("parse_int", "parse_float") and kind in ("int", "float"):
        return "it is a number already; for one, the default is given"
    if name in ("parse_int", "parse_float"):
        return "for anything but a text, the default is given"
    if word == "among" and kind == "function":
        return f'a counter names it: `among = "{text}"`'
    if word == "state" and kind == "dict":
        return "`state(name = value)` keeps values for later hooks"
    if kind == "text" and name in ("sorted", "list", "tuple", "enumerate", "reversed"):
        return f"its letters are `{text}.elems()`"
    return ""


def _number_of_arguments(source: PolicySource, node: ast.Call) -> Iterator[Finding]:
    """`math.round(x, 2)`: one argument too many."""
    name = ast.unparse(node.func)
    wants = _MATH_TAKES.get(name.removeprefix("math."), (1,))
    if name.removeprefix("math.") not in _MATH or len(node.args) in wants:
        return
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        return
    want = f"{wants[0]} argument{'s' * (wants[0] != 1)}"
    text = f"{name}() takes {want}, got {len(node.args)}"
    yield source.finding("wrong-type", node, text, is_error=True)


def _counter(source: PolicySource, node: ast.Call) -> Iterator[Finding]:
    """`count_pods` with half of what says which pods are counted."""
    if getattr(node.func, "id", "") != "count_pods" or any(k.arg is None for k in node.keywords):
        return
    if any(isinstance(one, ast.Starred) for one in node.args):
        return
    words = [word for word, _ in _TAKES["count_pods"]]
    given = dict(zip(words, node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    for word, value in list(given.items()):
        if isinstance(value, ast.Constant) and value.value is None:
            del given[word]
    hint = "for all namespaces: `count_pods(topology, [pods_in([], labels, {})])`"
    text = ""
    if "labels" in given and "namespaces" not in given:
        text = "count_pods() wants `namespaces` beside `labels`, such as `[pod.namespace]`"
    elif "namespaces" in given and "labels" not in given:
        text, hint = (
            "count_pods() wants `labels` beside `namespaces`",
            "`{}` means all of their pods",
        )
    elif not {"labels", "selectors"} & given.keys():
        text = "count_pods() wants `labels` and `namespaces`, or `selectors` made by pods_in(...)"
    if text:
        yield source.finding("wrong-type", node, text, hint, is_error=True)
    among = text_of(given["among"]) if "among" in given else None
    if among is not None and not (among.startswith(AMONG_PREFIX) and among in source.functions):
        known = [one for one in source.functions if one.startswith(AMONG_PREFIX)]
        close = difflib.get_close_matches(among, known, 1)
        text = f"no function `{among}` of this file says which nodes count"
        hint = f"did you mean `{close[0]}`?" if close else "`def among_x(pod, node):` says it"
        if among not in source.loaded:
            yield source.finding("wrong-type", given["among"], text, hint, is_error=True)


def _kind(source: PolicySource, node: ast.expr, own: Set[str]) -> str:
    """The kind of *node*, or "" if it is not known for sure; what may be None is of its kind."""
    if type(node) in _KINDS:
        return _KINDS[type(node)]
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    if name in _MADE and name not in own:
        return "verdict"
    known = source.types.of(node)
    base = known.rstrip("?")
    if base in RECORDS or base.startswith("@"):
        return "struct"
    return _OF_TYPES.get(base.partition("[")[0], "")
