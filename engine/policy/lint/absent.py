"""Lints about values that are None for some pods or nodes and are used as if they never were.

Nothing is said of what the file asks for anywhere else, be it in another hook: a filter may have
left out the nodes that a score fails on.
"""

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Final

from engine.language.syntax import assignments, local_names, set_once, shown, text_of, walk, written
from engine.policy.lint.calls import needing_a_value
from engine.policy.lint.finding import Finding, PolicySource
from engine.policy.view_fields import RECORDS

_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_IN: Final = (ast.In, ast.NotIn)
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_TEXTS: Final = "dict[str, str]"
_PLAIN: Final = frozenset({"int?", "float?", "str?"})


class Needs:
    """What the functions of a file need to be there, and what the file asks for."""

    def __init__(self, source: PolicySource) -> None:
        self.source: Final = source
        #: By function, the expressions that must not be None, by identity.
        self.of: Final = {n: _needed(source, f) for n, f in source.functions.items()}
        #: By function, the values of the names that it sets once and only ever needs.
        self.named: Final = {n: _named(f, self.of[n]) for n, f in source.functions.items()}

    @functools.cached_property
    def _keys(self) -> dict[str, set[str]]:
        """The dict fields that each key is looked up in, by the dump of the key; "" is any."""
        needed: set[int] = set()
        fields: dict[int, str] = {}
        for name, function in self.source.functions.items():
            for node in walk(function):
                of: ast.expr | None = None
                key: ast.expr | None = None
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr == "get" and node.args:
                        of, key = node.func.value, node.args[0]
                        has_none = len(node.args) == 1 or _is_none(node.args[1])
                        if has_none and id(node) in self.of[name] | self.named[name]:
                            needed.add(id(key))
                elif isinstance(node, ast.Subscript):
                    of, key = node.value, node.slice
                    needed.add(id(key))
                elif isinstance(node, ast.Compare) and isinstance(node.ops[0], _IN):
                    of, key = node.comparators[0], node.left
                if key is not None and isinstance(of, ast.Attribute):
                    fields[id(key)] = of.attr
        found: dict[str, set[str]] = {}
        for node in walk(self.source.tree):
            if isinstance(node, ast.Constant | ast.Name) and id(node) not in needed:
                found.setdefault(ast.dump(node), set()).add(fields.get(id(node), ""))
        return found

    def is_key_asked(self, owner: ast.expr, key: ast.expr) -> bool:
        """Whether the file has *key* where it may be to ask if *owner* has it."""
        fields = self._keys.get(ast.dump(key), set())
        field = owner.attr if isinstance(owner, ast.Attribute) else ""
        return bool(fields if not field else fields & {"", field})

    @functools.cached_property
    def _places(self) -> set[str]:
        """The fields and elements that the file has where they may be None, as they are dumped."""
        return {
            ast.dump(node)
            for name, function in self.source.functions.items()
            for node in walk(function)
            if isinstance(node, ast.Attribute | ast.Subscript) and id(node) not in self.of[name]
        }

    def is_only_needed(self, name: str, found: Sequence[ast.expr]) -> bool:
        """Whether *found*, alike and in the function *name*, are nowhere asked if they are None."""
        if not all(id(node) in self.of[name] for node in found):
            return False
        return isinstance(found[0], ast.Name) or ast.dump(found[0]) not in self._places


def _needed(source: PolicySource, function: ast.FunctionDef) -> set[int]:
    """The expressions of *function* that must not be None, by identity.

    Operands of arithmetic and of comparisons by order, arguments of builtins that do not take
    None, and the owners of methods, elements and loops.
    """
    found: set[int] = set()
    for node in walk(function):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERED):
            parts = [node.left, node.comparators[0]]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], _IN):
            parts = [node.comparators[0]]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            parts = [node.left, node.right]
            if isinstance(node.op, ast.Mod) and (
                text_of(node.left) is not None or isinstance(node.left, ast.Name)
            ):
                parts = []  # what a text is filled with may be None
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            parts = [node.operand]
        elif isinstance(node, ast.Attribute | ast.Subscript):
            parts = [node.value]
        elif isinstance(node, ast.For | ast.comprehension):
            parts = [node.iter]
        elif isinstance(node, ast.Call):
            parts = list(needing_a_value(source, node))
        found |= {id(part) for part in parts}
    return found


def lint_absent(source: PolicySource, needs: Needs, function: ast.FunctionDef) -> Iterator[Finding]:
    """What may be None as no default is given, and is only ever used as if it were there."""
    uses: dict[str, list[ast.Call]] = {}
    for node in walk(function):
        if isinstance(node, ast.Call) and _may_be_none(source, node):
            uses.setdefault(ast.dump(node), []).append(node)
    needed = needs.of[function.name] | needs.named[function.name]
    for found in uses.values():
        if not all(id(node) in needed for node in found):
            continue
        first = min(found, key=lambda one: (one.lineno, one.col_offset))
        is_key = isinstance(first.func, ast.Attribute)
        if isinstance(first.func, ast.Attribute) and _is_asked(
            needs, function, first.func.value, first.args[0]
        ):
            continue
        what = "there is no such key" if is_key else "it is no number"
        plain = f"{written(first.func)}({written(first.args[0])})"
        hint = _hint(source.types.of(first), plain, _wraps(function, first))
        text = f"`{shown(first)}` is None where {what}"
        yield source.finding("wrong-type", first, text, hint)


def lint_elements(
    source: PolicySource, needs: Needs, function: ast.FunctionDef
) -> Iterator[Finding]:
    """A label, or what else not all have, that is taken as if it were there: `pod.labels["a"]`."""
    taken = [
        node
        for node in walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Attribute)
        and text_of(node.slice) is not None
    ]
    first: dict[str, ast.Subscript] = {}
    for node in sorted(taken, key=lambda one: (one.lineno, one.col_offset)):
        first.setdefault(ast.dump(node), node)
    for node in first.values():
        owner, key = node.value, node.slice
        if source.types.of(owner) == _TEXTS and not _is_asked(needs, function, owner, key):
            text = f"`{shown(node)}` fails where there is no such key"
            hint = f'give it a default: `{written(owner)}.get({written(key)}, "")`'
            yield source.finding("wrong-type", node, text, hint)


def _may_be_none(source: PolicySource, node: ast.Call) -> bool:
    """Whether *node* looks up a key or reads a number, without a default."""
    is_none = len(node.args) == 2 and _is_none(node.args[1])
    if not (len(node.args) == 1 or is_none) or node.keywords:
        return False
    if isinstance(node.func, ast.Name):
        called = source.types.builtin(node)
        return called is not None and bool(called.default)
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "get":
        return False
    known = source.types.of(node)
    return known in _PLAIN or (known.endswith("?") and known[:-1] in RECORDS)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _named(function: ast.FunctionDef, needs: set[int]) -> set[int]:
    """The values, by identity, of the names that *function* sets once and only ever needs."""
    loads: dict[str, list[ast.Name]] = {}
    parameters: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.arg):
            parameters.add(node.arg)
    return {
        id(value)
        for name, value in set_once(function).items()
        if name in loads.keys() - parameters and all(id(load) in needs for load in loads[name])
    }


def _is_asked(needs: Needs, function: ast.FunctionDef, owner: ast.expr, key: ast.expr) -> bool:
    """Whether the file asks if *owner* has the *key* that *function* wants, or might do so."""
    dumped = ast.dump(owner)
    root = owner
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    for node in walk(function):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], _IN):
            parts = node.comparators
        elif isinstance(node, ast.For | ast.comprehension):
            parts = [node.iter]
        elif isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            parts = given
            # A function of another file may ask for any key of what it is given.
            if name not in needs.source.functions and isinstance(root, ast.Name):
                handed = {one.id for one in given if isinstance(one, ast.Name)}
                if root.id in handed:
                    return True
        elif isinstance(node, ast.If | ast.IfExp):
            parts = [node.test]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            parts = [node.operand]
        if any(ast.dump(part) == dumped for part in parts):
            return True
    if isinstance(key, ast.Name) and key.id in set(local_names(function)):
        # The caller of a helper may have checked for the key that it passes on.
        return function.name not in needs.source.hooks and key.id in {
            a.arg for a in function.args.args
        }
    return needs.is_key_asked(owner, key)


def _wraps(function: ast.FunctionDef, call: ast.Call) -> str:
    """The `int` or `float` that *call*, or the name of its value, is given to."""
    names = {name for name, value in assignments(function) if value is call}
    for node in walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            given = node.args[0]
            is_it = given is call or (isinstance(given, ast.Name) and given.id in names)
            if is_it and node.func.id in ("int", "float"):
                return node.func.id
    return ""


def _hint(known: str, text: str, wrap: str) -> str:
    if wrap and known == "str?":
        return f"`parse_{wrap}({text}, 0)` has a default, also for what is no number"
    if known == "str?":
        return f'give it a default: `{text[:-1]}, "")`'
    if known in _PLAIN or known == "":
        return f"give it a default: `{text[:-1]}, 0)`"
    return f"ask for that before: `{text} == None`"
