"""Lints about calls of builtins: arguments of a kind that they never take.

Such a call fails for every pod once it is reached. What each builtin takes is in the table of the
language; the kinds of arguments are inferred, and nothing is reported where one is not certain.
"""

import ast
import difflib
from collections.abc import Iterator
from typing import Final, TypeAlias

from engine.language.hooks import AMONG_PREFIX
from engine.language.syntax import alternatives, number_of, shown, text_of, walk
from engine.language.table import Builtin, Effect, Parameter
from workbench.lint.finding import Finding, PolicySource

_SHOWN: Final = {
    "none": "None",
    "int": "an int",
    "float": "a fraction",
    "bool": "True or False",
    "str": "a text",
    "verdict": "an answer of a hook",
}
#: A builtin that is called, the parameter that is given a value, and the value.
_Argument: TypeAlias = tuple[Builtin, Parameter, ast.expr]


def lint_calls(source: PolicySource) -> Iterator[Finding]:
    """Arguments of builtins that those never take."""
    for function in source.functions.values():
        asked = {
            ast.dump(node.args[0])
            for node in walk(function)
            if isinstance(node, ast.Call) and node.args and _asks_type(source, node)
        }
        for node in walk(function):
            if isinstance(node, ast.Call):
                for builtin, parameter, given in _arguments(source, node):
                    if ast.dump(given) in asked:  # it is looked at first
                        continue
                    for one in alternatives(given):
                        yield from _argument(source, (builtin, parameter, one))
                if (called := source.types.builtin(node)) is not None:
                    if called.parameter("among") is not None:
                        yield from _counter(source, node, called)
                    elif called.name.startswith("math."):
                        yield from _number_of_arguments(source, node, called)


def needing_a_value(source: PolicySource, node: ast.Call) -> Iterator[ast.expr]:
    """The arguments of *node*, a call of a builtin, that must not be None."""
    called = source.types.builtin(node)
    if called is not None and called.effect is Effect.CHOOSES and len(node.args) > 1:
        yield from node.args
    for _, parameter, given in _arguments(source, node):
        if parameter.kinds and "none" not in parameter.kinds:
            yield given


def _asks_type(source: PolicySource, node: ast.Call) -> bool:
    called = source.types.builtin(node)
    return called is not None and called.effect is Effect.TYPE


def _arguments(source: PolicySource, node: ast.Call) -> Iterator[_Argument]:
    """The arguments of *node* that a builtin is called with."""
    called = source.types.builtin(node)
    if called is None or any(isinstance(one, ast.Starred) for one in node.args):
        return
    if not called.is_variadic or len(node.args) == 1:
        for parameter, given in zip(called.parameters, node.args, strict=False):
            yield called, parameter, given
    for keyword in node.keywords:
        named = called.parameter(keyword.arg) if keyword.arg is not None else None
        if named is not None:
            yield called, named, keyword.value


def _argument(source: PolicySource, argument: _Argument) -> Iterator[Finding]:
    called, parameter, given = argument
    name, wants = called.name, parameter.wants
    kind = source.types.kind_of(given)
    is_only = len(called.parameters) == 1 or parameter.is_positional
    takes = f"{name}() wants {wants if is_only else f'`{parameter.name}` to be {wants}'}"
    if kind and parameter.kinds and kind not in parameter.kinds:
        got = _got(kind, given)
        hint = parameter.hints.get(kind, parameter.hints.get("", "")).format(given=shown(given))
        yield source.finding("wrong-type", given, f"{takes}, got {got}", hint, is_error=True)
        return
    if parameter.holds_texts and isinstance(given, ast.List | ast.Tuple):
        for part in given.elts:
            inner = source.types.kind_of(part)
            if inner and inner != "str":
                text = f"{takes}, each a text, got {_got(inner, part)}"
                yield source.finding("wrong-type", part, text, is_error=True)
    number, written = number_of(given), text_of(given)
    is_low = number is not None and _is_below(parameter, number)
    is_blank = parameter.is_filled and written is not None and not written.strip()
    is_empty = (
        parameter.is_filled
        and "list" in parameter.kinds
        and isinstance(given, ast.List | ast.Tuple)
        and not given.elts
    )
    if is_low or is_blank or is_empty:
        got = "an empty text" if is_blank else "an empty list" if is_empty else f"`{shown(given)}`"
        yield source.finding("wrong-type", given, f"{takes}, got {got}", is_error=True)
    yield from _form(source, argument)
    if parameter.choices and written is not None and written not in parameter.choices:
        close = difflib.get_close_matches(written, parameter.choices, 1)
        listed = ", ".join(f"`{one}`" for one in parameter.choices)
        text = f"{name}() wants one of {listed}, got `{written}`"
        hint = f"did you mean `{close[0]}`?" if close else ""
        yield source.finding("wrong-type", given, text, hint, is_error=True)


def _form(source: PolicySource, argument: _Argument) -> Iterator[Finding]:
    """A text that the parameter does not take, also if it is a constant of the file."""
    called, parameter, given = argument
    written = text_of(given)
    if parameter.problem is None:
        return
    if isinstance(given, ast.Name):
        set_to = [
            one.value
            for one in source.tree.body
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == given.id
        ]
        written = text_of(set_to[0]) if len(set_to) == 1 else None
    wants, hint = parameter.problem(written) if written else ("", "")
    if wants:
        text = f"{called.name}() wants `{parameter.name}` to be {wants}, got `{written}`"
        yield source.finding("wrong-type", given, text, hint, is_error=True)


def _is_below(parameter: Parameter, number: float) -> bool:
    low = parameter.low
    return low is not None and (number < low or (parameter.is_above_low and number == low))


def _got(kind: str, node: ast.expr) -> str:
    return "None" if kind == "none" else f"{_SHOWN.get(kind, f'a {kind}')}: `{shown(node)}`"


def _number_of_arguments(
    source: PolicySource, node: ast.Call, called: Builtin
) -> Iterator[Finding]:
    """`math.round(x, 2)`: one argument too many."""
    least, most = called.required, len(called.parameters)
    if least <= len(node.args) <= most:
        return
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        return
    want = f"{least} argument{'s' * (least != 1)}"
    text = f"{called.name}() takes {want}, got {len(node.args)}"
    yield source.finding("wrong-type", node, text, is_error=True)


def _counter(source: PolicySource, node: ast.Call, called: Builtin) -> Iterator[Finding]:
    """A counter with half of what says which pods are counted, or among no known nodes."""
    if any(k.arg is None for k in node.keywords):
        return
    if any(isinstance(one, ast.Starred) for one in node.args):
        return
    words = [parameter.name for parameter in called.parameters]
    given = dict(zip(words, node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    for word, value in list(given.items()):
        if isinstance(value, ast.Constant) and value.value is None:
            del given[word]
    hint = "for all namespaces: `selectors = [pods_in([], labels, {})]`"
    text = ""
    if called.parameter("selectors") is None:
        pass
    elif "labels" in given and "namespaces" not in given:
        text = "`namespaces` in addition to `labels`, such as `[pod.namespace]`"
    elif "namespaces" in given and "labels" not in given:
        text, hint = "`labels` in addition to `namespaces`", "`{}` selects all of their pods"
    elif not {"labels", "selectors"} & given.keys():
        text = "`labels` and `namespaces`, or `selectors` made by pods_in(...)"
    elif called.parameter("resource") is not None and "resource" not in given:
        text, hint = "`resource`", 'such as `resource = "cpu"`'
    if text:
        yield source.finding(
            "wrong-type", node, f"{called.name}() wants {text}", hint, is_error=True
        )
    among = text_of(given["among"]) if "among" in given else None
    if among is not None and not (among.startswith(AMONG_PREFIX) and among in source.functions):
        known = [one for one in source.functions if one.startswith(AMONG_PREFIX)]
        close = difflib.get_close_matches(among, known, 1)
        text = f"no function `{among}` of this file says which nodes count"
        hint = f"did you mean `{close[0]}`?" if close else "`def among_x(pod, node):` says it"
        if among not in source.loaded:
            yield source.finding("wrong-type", given["among"], text, hint, is_error=True)
