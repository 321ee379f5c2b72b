"""Which type an expression of a policy has, as far as the views' schema tells.

A guess that errs on the side of not knowing: one type per variable and function, joined over all
assignments and calls. Types are the texts of the documents (`dict[str, int]`, `Taint`,
`int?`), with `@pod` for a whole view, `items[T]` for the pairs of a dict, and "" for not known.
"""

import ast
from typing import Final

from engine.language.syntax import local_names, stored_names, walk
from engine.language.values import element_type
from engine.policy.lint.finding import PolicySource
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS

UNKNOWN: Final = ""
NONE: Final = "none"
_ROUNDS: Final = 6

Scope = dict[str, str]


def joined(a: str | None, b: str | None) -> str | None:
    """What has type *a* or *b*; None is nothing yet."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if NONE in (a, b) or a.rstrip("?") == b.rstrip("?"):
        base = (b if a == NONE else a).rstrip("?")
        return f"{base}?" if base else UNKNOWN
    return UNKNOWN


class Types:
    """The types of the variables of one file, by function."""

    def __init__(self, source: PolicySource) -> None:
        self._functions = source.functions
        self._own = source.names
        self._scopes: dict[str, Scope] = {name: {} for name in source.functions}
        called = {id(n.func) for n in walk(source.tree) if isinstance(n, ast.Call)}
        as_values = {
            n.id for n in walk(source.tree) if isinstance(n, ast.Name) and id(n) not in called
        }
        # Not assigned yet is not the same as not known.
        self._locals = {
            name
            for node in walk(source.tree)
            if isinstance(node, ast.FunctionDef | ast.Lambda)
            for name in local_names(node)
        }
        self._locals |= {
            name
            for node in walk(source.tree)
            if isinstance(node, ast.comprehension)
            for name in stored_names(node.target)
        }
        self._constants: Scope = {}
        for statement in source.tree.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
                if isinstance(target, ast.Name) and isinstance(statement.value, ast.Constant):
                    self._constants[target.id] = self.of(statement.value, {}) or UNKNOWN
        for name, function in source.functions.items():
            for parameter in [*function.args.args, *function.args.kwonlyargs]:
                if name in source.hooks:
                    self._scopes[name][parameter.arg] = _GIVEN.get(parameter.arg, UNKNOWN)
                elif not name.startswith("_") or name in as_values or source.is_test:
                    self._scopes[name][parameter.arg] = UNKNOWN
            for rest in (function.args.vararg, function.args.kwarg):
                if rest is not None:
                    self._scopes[name][rest.arg] = UNKNOWN
        for _ in range(_ROUNDS):
            before = {name: dict(scope) for name, scope in self._scopes.items()}
            for name, function in source.functions.items():
                self._walk(function, self._scopes[name])
            if before == self._scopes:
                return
        for scope in self._scopes.values():
            scope.update(dict.fromkeys(scope, UNKNOWN))

    def scope(self, function: str) -> Scope:
        """The types of the names of *function*."""
        return self._scopes[function]

    def of(self, node: ast.expr | None, scope: Scope) -> str | None:
        """The type of *node*; None: nothing is known yet, "": it is not known."""
        if isinstance(node, ast.Constant):
            return _CONSTANTS.get(type(node.value), UNKNOWN)
        if isinstance(node, ast.Name):
            if node.id in scope:
                return scope[node.id]
            return None if node.id in self._locals else self._constants.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return _attribute(self.of(node.value, scope), node.attr)
        if isinstance(node, ast.Subscript):
            owner = (self.of(node.value, scope) or "").rstrip("?")
            if isinstance(node.slice, ast.Slice):
                return owner
            return element_type(owner) or UNKNOWN
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return "bool"
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand, scope)
        if isinstance(node, ast.BoolOp):
            found: str | None = None
            for value in node.values:
                found = joined(found, self.of(value, scope))
            return found
        if isinstance(node, ast.IfExp):
            return joined(self.of(node.body, scope), self.of(node.orelse, scope))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return "float"  # whatever it divides
        if isinstance(node, ast.BinOp):
            left, right = self.of(node.left, scope), self.of(node.right, scope)
            if left in _NUMBERS and right in _NUMBERS:
                return "int" if left == right == "int" else "float"
            return left if left == right == "str" else UNKNOWN
        if isinstance(node, ast.JoinedStr):
            return "str"
        return UNKNOWN

    def elements(self, type_text: str | None) -> str:
        """What a loop over a value of this type gives."""
        base = (type_text or "").rstrip("?")
        if base.startswith("items["):
            return base
        if base.startswith("dict["):
            return "str"
        return element_type(base) or UNKNOWN

    def _call(self, node: ast.Call, scope: Scope) -> str:
        if isinstance(node.func, ast.Name):
            if node.func.id in self._own or node.func.id in scope:
                return UNKNOWN
            if node.func.id in ("sorted", "list", "reversed") and node.args:
                element = self.elements(self.of(node.args[0], scope))
                return f"list[{element}]" if element and element[:5] != "items" else UNKNOWN
            if node.func.id in _PARSED and not node.keywords:
                default = self.of(node.args[1], scope) if len(node.args) > 1 else NONE
                return joined(_PARSED[node.func.id], default) or UNKNOWN if default else UNKNOWN
            return _RESULTS.get(node.func.id, UNKNOWN)
        if not isinstance(node.func, ast.Attribute):
            return UNKNOWN
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "math":
            is_own = "math" in self._own or "math" in scope
            return UNKNOWN if is_own else _OF_MATH.get(node.func.attr, UNKNOWN)
        owner = (self.of(node.func.value, scope) or "").rstrip("?")
        value = element_type(owner) if owner.startswith("dict[") else None
        if value is None:
            return UNKNOWN
        if node.func.attr == "get":
            default = self.of(node.args[1], scope) if len(node.args) > 1 else NONE
            return UNKNOWN if default is None else joined(value, default) or UNKNOWN
        kinds = {"keys": "list[str]", "values": f"list[{value}]", "items": f"items[{value}]"}
        return kinds.get(node.func.attr, UNKNOWN)

    def _walk(self, function: ast.FunctionDef, scope: Scope) -> None:
        for node in walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value, scope)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._set(scope, node.target.id, UNKNOWN)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                current, value = scope.get(node.target.id), self.of(node.value, scope)
                self._set(scope, node.target.id, current if current == value else UNKNOWN)
            elif isinstance(node, ast.For | ast.comprehension):
                self._loop(node.target, self.of(node.iter, scope), scope)
            elif isinstance(node, ast.Lambda) or (
                isinstance(node, ast.FunctionDef) and node is not function
            ):
                for parameter in [*node.args.args, *node.args.kwonlyargs]:
                    self._set(scope, parameter.arg, UNKNOWN)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                self._pass_on(node, node.func.id, scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self._set(scope, target.id, self.of(value, scope))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            if len(target.elts) == len(value.elts):
                for one, given in zip(target.elts, value.elts, strict=True):
                    self._assign(one, given, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                if isinstance(one, ast.Name):
                    self._set(scope, one.id, UNKNOWN)

    def _loop(self, target: ast.expr, over: str | None, scope: Scope) -> None:
        if over is None:
            return
        element = self.elements(over)
        if isinstance(target, ast.Name):
            self._set(scope, target.id, UNKNOWN if element.startswith("items[") else element)
            return
        parts = getattr(target, "elts", [])
        types = [UNKNOWN] * len(parts)
        if element.startswith("items[") and len(parts) == 2:
            types = ["str", element[6:-1]]
        for part, type_text in zip(parts, types, strict=True):
            if isinstance(part, ast.Name):
                self._set(scope, part.id, type_text)

    def _pass_on(self, call: ast.Call, name: str, scope: Scope) -> None:
        function = self._functions.get(name)
        if function is None:
            return
        names = [a.arg for a in function.args.args]
        is_open = any(isinstance(a, ast.Starred) for a in call.args)
        is_open = is_open or any(k.arg is None for k in call.keywords)
        inner = self._scopes[name]
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        given = dict(zip(names, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
        for parameter in names:
            if is_open:
                self._set(inner, parameter, UNKNOWN)
            elif parameter in given:
                self._set(inner, parameter, self.of(given[parameter], scope))
            elif parameter in defaults:
                self._set(inner, parameter, self.of(defaults[parameter], {}) or UNKNOWN)

    def _set(self, scope: Scope, name: str, type_text: str | None) -> None:
        found = joined(scope.get(name), type_text)
        if found is not None:
            scope[name] = found


def _attribute(owner: str | None, name: str) -> str | None:
    if owner is None:
        return None
    base = owner.rstrip("?")
    if base.startswith("@"):
        field = VIEWS[base[1:]].get(name)
        return UNKNOWN if field is None else _known(field.type)
    if base in RECORDS and name in RECORDS[base]:
        return _known(RECORDS[base][name][0])
    return UNKNOWN


def _known(type_text: str) -> str:
    return UNKNOWN if "any" in type_text else type_text


_GIVEN: Final = {
    **{view: f"@{view}" for view in ("pod", "node", "cluster")},
    "group": "@group?",
    "nodes": "list[@node]",
    "victims": "list[@pod]",
}
_CONSTANTS: Final[dict[type, str]] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    type(None): NONE,
}
_NUMBERS: Final = ("int", "float")
_RESULTS: Final = {
    **dict.fromkeys(("len", "int"), "int"),
    **dict.fromkeys(("str", "repr"), "str"),
    "bool": "bool",
    "float": "float",
}
_PARSED: Final = {"parse_int": "int", "parse_float": "float"}
_OF_MATH: Final = {
    **dict.fromkeys(("floor", "ceil", "round"), "int"),
    **dict.fromkeys(("sqrt", "exp", "log", "pow", "lgamma", "beta_cdf"), "float"),
}
