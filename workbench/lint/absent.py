"""Lints about values that some pods or nodes lack and that are used as if all had them.

Nothing is said of what the file asks for anywhere else, be it in another hook: a filter may have
left out the nodes that a score fails on.
"""

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Final

from engine.language.syntax import assignments, local_names, set_once, shown, text_of, walk, written
from engine.language.values import element_type
from engine.policy.arguments import declaration, declarations_in
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS
from workbench.lint.calls import needing_a_value
from workbench.lint.finding import Finding, PolicySource

_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_IN: Final = (ast.In, ast.NotIn)
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_MANIFEST: Final = "dict[str, any]"
# What a value that is missing counts as, by its type.
_DEFAULTS: Final = {"int": "0", "float": "0", "str": '""'}
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
    def arguments(self) -> dict[str, dict[str, str]]:
        """By name of the struct, its arguments that are dicts, with the type of their values.

        A configuration gives a dict as a whole, so that none of the keys has to be there.
        """
        declared = declaration(self.source.text).defaults
        dicts = {
            name: "/".join(sorted({type(value).__name__ for value in default.values()})) or "any"
            for name, default in declared.items()
            if isinstance(default, dict)
        }
        calls = set(declarations_in(self.source.tree))
        return {name: dicts for name, value in self.source.constants.items() if value in calls}

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
            is_key = isinstance(node, ast.Constant | ast.Name | ast.Attribute)
            if is_key and id(node) not in needed:
                found.setdefault(ast.dump(node), set()).add(fields.get(id(node), ""))
        return found

    def is_key_asked(self, owner: ast.expr, key: ast.expr) -> bool:
        """Whether the file has *key* where it may be to ask if *owner* has it."""
        fields = self._keys.get(ast.dump(key), set())
        field = owner.attr if isinstance(owner, ast.Attribute) else ""
        return bool(fields if not field else fields & {"", field})

    @functools.cached_property
    def asked(self) -> set[str]:
        """The dict fields that the file asks for a key that is no constant."""
        return {
            node.comparators[0].attr
            for node in walk(self.source.tree)
            if isinstance(node, ast.Compare)
            and isinstance(node.ops[0], _IN)
            and isinstance(node.comparators[0], ast.Attribute)
            and text_of(node.left) is None
        }

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
    """A label, an amount, or what else not all have, taken as if it were there: `labels["a"]`."""
    taken = [
        node
        for node in walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Attribute)
        and (isinstance(node.slice, ast.Name | ast.Attribute) or text_of(node.slice) is not None)
    ]
    first: dict[str, ast.Subscript] = {}
    for node in sorted(taken, key=lambda one: (one.lineno, one.col_offset)):
        first.setdefault(ast.dump(node), node)
    for node in first.values():
        owner, key = node.value, node.slice
        assert isinstance(owner, ast.Attribute)
        held = _held(source, needs, owner)
        if not held or _is_there(source, owner, key) or _is_asked(needs, function, owner, key):
            continue
        text = f"`{shown(node)}` fails where there is no such key"
        hint = f"ask for it before: `{written(key)} in {written(owner)}`"
        if held in _DEFAULTS:
            default = f"{written(owner)}.get({written(key)}, {_DEFAULTS[held]})"
            hint = f"give it a default: `{default}`"
        yield source.finding("wrong-type", node, text, hint)


def _held(source: PolicySource, needs: Needs, owner: ast.Attribute) -> str:
    """The type of what the dict *owner* holds, "" if it is none of the API or the configuration."""
    if isinstance(owner.value, ast.Name) and owner.value.id in needs.arguments:
        return needs.arguments[owner.value.id].get(owner.attr, "")
    known = source.types.of(owner)
    return element_type(known) or "" if known.startswith("dict[") else ""


def _is_there(source: PolicySource, owner: ast.Attribute, key: ast.expr) -> bool:
    """Whether every object has *key* in its field *owner*."""
    of = source.types.of(owner.value)
    field = VIEWS.get(of.removeprefix("@"), {}).get(owner.attr)
    if field is None:
        return False
    # (What a whole manifest has follows from the API.)
    is_given = field.fills or field.is_asked or field.type == _MANIFEST
    constant = source.constants.get(key.id, key) if isinstance(key, ast.Name) else key
    return is_given or text_of(constant) in field.keys


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
            parts = [part for part in walk(node.iter) if isinstance(part, ast.expr)]
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
        is_passed_on = function.name not in needs.source.hooks and key.id in {
            a.arg for a in function.args.args
        }
        return is_passed_on or (isinstance(owner, ast.Attribute) and owner.attr in needs.asked)
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
