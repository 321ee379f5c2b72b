"""Evaluates a policy's expressions to abstract values, in scopes whose variables are known.

Owns every form of expression, what methods and builtins give, and what all of them read. Calls of
functions and assignments are left to the class that derives from this one, in `infer`.
"""

import ast
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.language.effects import Effects
from engine.language.flow import Flow, Variables
from engine.language.modules import Module, World
from engine.language.resolve import bound_to, is_open, parameters_of
from engine.language.starlark import TEXT_METHODS
from engine.language.summaries import SUMMARIES, counter_fields
from engine.language.syntax import has_star, stored_names
from engine.language.table import Effect, builtins
from engine.language.values import (
    ADDED,
    BOOL,
    DICT,
    INT,
    MAX_NESTING,
    MAX_TUPLE,
    NONE,
    NOTHING,
    OPAQUE,
    STR,
    Added,
    Atom,
    Builtin,
    Constructed,
    Field,
    Function,
    Items,
    Map,
    Opaque,
    Part,
    Plain,
    Summary,
    Text,
    Thunk,
    Tuple,
    UnknownField,
    Value,
    View,
    added,
    computed,
    element_type,
    left_by,
    nesting,
    of_constant,
    of_result,
    of_type,
    union,
    widened,
)

MUTATORS: Final = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "popitem"}
)

# Variables that one function's ways are followed for: five hundred where five hundred meet, twice.
_MAX_MEETING: Final = 500_000


@dataclass(eq=False, slots=True)
class Scope:
    """The variables of one function in one context, or of one comprehension in it.

    `values` has all that a variable ever holds: what functions inside see, whenever they run, and
    what is known where too many ways meet to follow them.
    """

    module: Module
    parent: "Scope | None"
    names: frozenset[str]
    values: dict[str, Value] = field(default_factory=dict)
    inner: dict[ast.AST, "Scope"] = field(default_factory=dict)
    functions: dict[ast.AST, Function] = field(default_factory=dict)
    #: What a walk knows where it is; a comprehension's is that of its function.
    flow: Flow = field(default_factory=lambda: Flow(limit=_MAX_MEETING))
    #: By loop, what its rounds may begin with; by default of a parameter, what it may be.
    heads: dict[ast.AST, Variables] = field(default_factory=dict)
    defaults: dict[ast.AST, Value] = field(default_factory=dict)
    # By variable: in how many passes it got more to hold, and the last of them.
    grown: dict[str, tuple[int, int]] = field(default_factory=dict)


class Evaluation(ABC):
    """Evaluates expressions, and records what that reads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schema = world.schema
        self.effects = Effects(world)
        #: The pass over the code, from 1, and how many functions are being walked.
        self._pass = 0
        self._calls = 0
        self._hook = ""
        self._escaped: dict[Function, int] = {}

    @abstractmethod
    def _call_function(
        self, function: Function, given: Mapping[str, Value], *, is_open: bool = False
    ) -> Value:
        """What a call may return. With `is_open`, parameters without an argument are opaque."""

    @abstractmethod
    def _assign(self, scope: Scope, target: ast.expr, value: Value) -> None:
        """Bind what *target* names to *value*."""

    # --- escapes -----------------------------------------------------------------------------

    def _escape(self, value: Value) -> None:
        """*value* goes where it cannot be followed: all that it holds counts as read."""
        if value is OPAQUE:
            return
        for atom in value:
            if isinstance(atom, Opaque | Plain | Text | Added):
                continue
            if isinstance(atom, View):
                self.effects.read_whole(atom.view)
            elif isinstance(atom, Thunk):
                self.effects.read_dict(atom)
            elif isinstance(atom, Part):
                self.effects.facts_escape |= "Fact" in atom.type
            elif isinstance(atom, Summary):
                self.effects.read_summary(atom, "*")
            elif isinstance(atom, Items):
                self._escape(atom.items)
            elif isinstance(atom, Tuple):
                for item in atom.items:
                    self._escape(item)
            elif isinstance(atom, Map):
                self._escape(atom.values)
            elif isinstance(atom, Constructed):
                self._escape(atom.functions)
            elif isinstance(atom, Function) and self._escaped.get(atom) != self._pass:
                # It may be called with anything that has escaped itself.
                self._escaped[atom] = self._pass
                self._escape(self._call_function(atom, {}, is_open=True))

    def _escape_atom(self, atom: Atom) -> None:
        self._escape(frozenset({atom}))

    def _note_change(self, scope: Scope, node: ast.expr, owner: Value) -> None:
        """Note a change of what the hook was given, if it cannot be anything else."""
        given = owner - NONE
        if given and all(isinstance(atom, View | Thunk | Part) for atom in given):
            self.effects.note_change(scope.module.path, node, given)

    def _elements(self, value: Value) -> Value:
        """What looping over *value* gives."""
        found: Value = NOTHING
        for atom in value:
            if isinstance(atom, Items):
                found |= atom.items
            elif isinstance(atom, Tuple):
                found = found.union(*atom.items)
            elif isinstance(atom, Map):
                found |= atom.keys
            elif isinstance(atom, Thunk):
                self._escape_atom(atom)
                found |= STR
            elif isinstance(atom, Part):
                found |= STR if atom.type.startswith("dict[") else self._element(atom.type)
            elif atom not in NONE:  # which fails
                self._escape_atom(atom)
                found |= OPAQUE
        return found

    def _named_entry(self, field: Field, key: Value) -> Value:
        """The entry of a dict field of a view that *key* names."""
        found: Value = NOTHING
        for atom in key or OPAQUE:
            own = field.if_named.get(atom.value) if isinstance(atom, Text) else None
            found |= of_type(own, self._schema.records) if own else self._element(field.type)
        return found

    def _element(self, type_text: str) -> Value:
        """An element of a list, or a value of a dict, of this type."""
        return of_type(element_type(type_text), self._schema.records)

    def _items_of(self, scope: Scope, node: ast.expr) -> Value:
        """What looping over the expression gives. A list that nothing else sees stays exact."""
        if isinstance(node, ast.List | ast.Tuple) and not has_star(node.elts):
            return union([self.evaluate(scope, e) for e in node.elts])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._items_of(scope, node.left) | self._items_of(scope, node.right)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and len(node.args) == 1
            and not has_star(node.args)
            and node.func.id in _OF_ELEMENTS
            and self.evaluate(scope, node.func) == {Builtin(node.func.id)}
        ):
            items = self._items_of(scope, node.args[0])
            self._call_keys(scope, node, items)
            return items
        if isinstance(node, ast.ListComp):
            return self._comprehension(scope, node, [node.elt])[0]
        return self._elements(self.evaluate(scope, node))

    def _test(self, scope: Scope, node: ast.expr) -> Value:
        """*node* is asked whether it is true: an empty dict is not, so that reads the dict."""
        value = self.evaluate(scope, node)
        for atom in value:
            if isinstance(atom, Thunk):
                self._escape_atom(atom)
        return value

    # --- expressions -------------------------------------------------------------------------

    def evaluate(self, scope: Scope, node: ast.expr) -> Value:
        """What *node* may give."""
        return _FORMS.get(type(node), Evaluation._container)(self, scope, node)

    def _lookup(self, scope: Scope, name: str) -> Value:
        inner: Scope | None = scope
        while inner is not None:
            if name in inner.names:
                if inner.flow is not scope.flow or not scope.flow.is_exact:
                    return inner.values.get(name, NOTHING)
                known = (scope.flow.variables or {}).get(name)
                return NOTHING if known is None else known.value
            inner = inner.parent
        value = scope.module.value(name)
        return frozenset({Builtin(name)}) if value is None else value

    def _constant(self, scope: Scope, node: ast.Constant) -> Value:
        return of_constant(node.value)

    def _name(self, scope: Scope, node: ast.Name) -> Value:
        return self._lookup(scope, node.id)

    def _if_else(self, scope: Scope, node: ast.IfExp) -> Value:
        self._test(scope, node.test)
        body, orelse = scope.flow.choose(
            node.test,
            lambda: self.evaluate(scope, node.body),
            lambda: self.evaluate(scope, node.orelse),
        )
        return body | orelse

    def _bool_op(self, scope: Scope, node: ast.BoolOp) -> Value:
        found: Value = NOTHING
        is_and = isinstance(node.op, ast.And)
        before = scope.flow.variables
        for part in node.values[:-1]:
            value = self._test(scope, part)
            found |= left_by(value, not is_and)
            scope.flow.assume(part, is_and)
        found |= self.evaluate(scope, node.values[-1])
        scope.flow.variables = before
        return found

    def _unary(self, scope: Scope, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            self._test(scope, node.operand)
            return BOOL
        operand = self.evaluate(scope, node.operand)
        self._escape(operand)
        return computed(operand, operand, is_division=False)

    def _define(self, scope: Scope, node: ast.FunctionDef | ast.Lambda) -> Value:
        """The function of *node*. Its defaults are evaluated now, also if no call needs them."""
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                known = scope.defaults.get(default, NOTHING)
                scope.defaults[default] = known | self.evaluate(scope, default)
        atom = scope.functions.get(node)
        if atom is None:
            atom = scope.functions[node] = Function(scope.module, node, scope)
        return frozenset({atom})

    def _container(self, scope: Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Tuple) and not has_star(node.elts):
            items = tuple([self.evaluate(scope, e) for e in node.elts])
            return self._bounded(Tuple(items))
        if isinstance(node, ast.List) and not has_star(node.elts):
            # It may be appended to, so it may hold other texts too. Views that are put into it
            # later escape where that happens.
            found = union([self.evaluate(scope, e) for e in node.elts])
            return self._bounded(Items(found | OPAQUE, "list"))
        if isinstance(node, ast.ListComp):
            (found,) = self._comprehension(scope, node, [node.elt])
            return self._bounded(Items(found | OPAQUE, "list"))
        if isinstance(node, ast.DictComp):
            for value in self._comprehension(scope, node, [node.key, node.value]):
                self._escape(value)
            return DICT
        for child in ast.iter_child_nodes(node):
            # Dict displays, f-strings, starred arguments, slices: all of it escapes.
            if isinstance(child, ast.expr):
                self._escape(self.evaluate(scope, child))
        if isinstance(node, ast.JoinedStr):
            return STR
        return DICT if isinstance(node, ast.Dict) else OPAQUE

    def _bounded(self, atom: Items | Tuple) -> Value:
        """*atom*, or what is left when it nests too deep or is too large to be followed."""
        if nesting(atom) > MAX_NESTING or (isinstance(atom, Tuple) and len(atom.items) > MAX_TUPLE):
            self._escape_atom(atom)
            return OPAQUE
        return frozenset({atom})

    def _comprehension(
        self, scope: Scope, node: ast.ListComp | ast.DictComp, results: list[ast.expr]
    ) -> list[Value]:
        inner = scope.inner.get(node)
        if inner is None:
            names = {n for g in node.generators for n in stored_names(g.target)}
            inner = Scope(scope.module, scope, frozenset(names), flow=scope.flow)
            scope.inner[node] = inner
        with scope.flow.apart():
            for index, generator in enumerate(node.generators):
                # The first is evaluated outside: there a variable of the same name is another one.
                items = self._items_of(scope if index == 0 else inner, generator.iter)
                self._assign(inner, generator.target, items)
                for condition in generator.ifs:
                    self._test(inner, condition)
                    scope.flow.assume(condition, True)
            return [self.evaluate(inner, result) for result in results]

    def _attribute(self, scope: Scope, node: ast.Attribute) -> Value:
        owner = self.evaluate(scope, node.value)
        self.effects.asks_name(node.attr)
        found: Value = NOTHING
        lacking: set[str] = set()
        for atom in owner:
            got, missing = self._field(atom, node.attr)
            found |= got
            lacking |= missing
        if self._calls == 1 and owner == _COUNTER:
            # Only of the hook's own text: a helper may know which hook it serves.
            given = counter_fields(self._hook)
            if given and node.attr not in given:
                self.effects.note(scope.module.path, node, "counter", self._hook, node.attr)
        if lacking and len(lacking) == len(owner - NONE):
            self.effects.note(scope.module.path, node, "field", min(lacking), node.attr)
        return found

    def _field(self, atom: Atom, name: str) -> tuple[Value, set[str]]:
        """The value of field *name* of *atom*; and the record's name if it has no such field."""
        if isinstance(atom, View):
            known = self._schema.views[atom.view].get(name)
            if known is None:
                return OPAQUE, {atom.view}
            if known.type.startswith("dict[") and name != "manifest":
                self.effects.touched.add((atom.view, name))
                return frozenset({Thunk(atom.view, name)}), set()
            self.effects.read(atom.view, name)
            return of_type(known.type, self._schema.records), set()
        if isinstance(atom, Summary):
            self.effects.read_summary(atom, name)
            field = SUMMARIES[atom.parameter].get(name)
            return of_type(field.type if field else None, ()), set()
        if isinstance(atom, Part):
            record = self._schema.records.get(atom.type)
            if record is None:
                return OPAQUE, set()
            if name not in record:
                return OPAQUE, {atom.type}
            return of_type(record[name][0], self._schema.records), set()
        if isinstance(atom, Plain):
            return (NOTHING if atom.type == "none" else OPAQUE), set()
        self._escape_atom(atom)
        if isinstance(atom, Opaque | Added):
            self.effects.reads_manifest |= name == "manifest"
            if name in self._world.named_fields:
                return OPAQUE | {UnknownField(name)}, set()
        return OPAQUE, set()

    def _subscript(self, scope: Scope, node: ast.Subscript) -> Value:
        owner = self.evaluate(scope, node.value)
        if isinstance(node.slice, ast.Slice):
            self._container(scope, node.slice)
            return self._sliced(owner)
        key = self.evaluate(scope, node.slice)
        self.effects.note_key(scope.module.path, node, owner, key)
        return self._entry(owner, key)

    def _sliced(self, owner: Value) -> Value:
        """Part of a list, tuple or text."""
        items = self._elements(owner)
        if owner and widened(owner) <= STR | NONE:
            return STR
        is_list = all(
            (isinstance(a, Items) and a.type == "list")
            or (isinstance(a, Part) and a.type.startswith("list["))
            for a in owner - NONE
        )
        whole = Items(items | ADDED, "list" if is_list else "")
        return self._bounded(whole) if owner - OPAQUE else OPAQUE

    def _entry(self, owner: Value, key: Value) -> Value:
        """What `owner[key]` or `owner.get(key)` may give."""
        self._escape(key)
        found: Value = NOTHING
        for atom in owner:
            if isinstance(atom, Thunk):
                self.effects.read_keys(atom, key)
                found |= self._named_entry(self._schema.views[atom.view][atom.field], key)
            elif isinstance(atom, Part):
                found |= self._element(atom.type)
            elif isinstance(atom, UnknownField):
                self.effects.named |= {(atom.field, a.value) for a in key if isinstance(a, Text)}
                found |= OPAQUE
            elif isinstance(atom, Map):
                found |= atom.values
            elif isinstance(atom, Text) or atom in STR:
                found |= STR
            else:
                found |= self._elements(frozenset({atom}))
        return found

    def _compare(self, scope: Scope, node: ast.Compare) -> Value:
        parts = [node.left, *node.comparators]
        values = [self.evaluate(scope, part) for part in parts]
        is_identity = any(isinstance(p, ast.Name) and p.id == "None" for p in parts) or any(
            isinstance(p, ast.Constant) and p.value is None for p in parts
        )
        for index, operator in enumerate(node.ops):
            left, right = values[index], values[index + 1]
            if isinstance(operator, ast.In | ast.NotIn):
                thunks = frozenset(a for a in right if isinstance(a, Thunk))
                if thunks:
                    self.effects.note_presence(scope.module.path, node, thunks)
                    self.effects.note_key(scope.module.path, node, thunks, left)
                    self._entry(thunks, left)
                self._escape(left)
                self._escape(right - thunks)
            elif not is_identity:
                # Comparing with None looks at no field: a view or a dict is never None.
                self._escape(left)
                self._escape(right)
        return BOOL

    def _binary(self, scope: Scope, node: ast.BinOp) -> Value:
        left = self.evaluate(scope, node.left)
        right = self.evaluate(scope, node.right)
        if isinstance(node.op, ast.Add):
            found = added(left, right)
            if Opaque() in found:
                self._escape(left)
                self._escape(right)
            # A list made by adding is as open to changes as any other.
            return frozenset(
                [Items(a.items | OPAQUE, a.type) if isinstance(a, Items) else a for a in found]
            )
        self._escape(left)
        self._escape(right)
        if isinstance(node.op, ast.Mod) and left and widened(left) <= STR | NONE:
            return STR
        return computed(left, right, is_division=isinstance(node.op, ast.Div))

    # --- calls -------------------------------------------------------------------------------

    def _call(self, scope: Scope, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            return self._method(scope, node, node.func)
        callees = self.evaluate(scope, node.func)
        if is_open(node):
            # Which argument meets which parameter is not known: all of them escape.
            for argument in [*node.args, *[k.value for k in node.keywords]]:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                self._escape(self.evaluate(scope, inner))
            return union([self._call_unknown(callee) for callee in callees]) | OPAQUE
        name = getattr(node.func, "id", "")
        if callees == {Builtin(name)}:
            return self._call_builtin(scope, node, name)
        values = {id(a): self.evaluate(scope, a) for a in node.args}
        values |= {id(k.value): self.evaluate(scope, k.value) for k in node.keywords}
        found: Value = NOTHING
        for callee in callees:
            if isinstance(callee, Function):
                arguments = bound_to(parameters_of(callee.node.args), node)
                for extra in (*arguments.surplus, *[k.value for k in arguments.unknown]):
                    self._escape(values[id(extra)])
                given = {name: values[id(one)] for name, one in arguments.given.items()}
                found |= self._call_function(callee, given)
            else:
                for value in values.values():
                    self._escape(value)
                self._escape_atom(callee)
                found |= OPAQUE
        return found

    def _call_unknown(self, callee: Atom) -> Value:
        if isinstance(callee, Function):
            return self._call_function(callee, {}, is_open=True)
        self._escape_atom(callee)
        return OPAQUE

    def _method(self, scope: Scope, node: ast.Call, func: ast.Attribute) -> Value:
        owner = self.evaluate(scope, func.value) - NONE  # of which every method fails
        is_plain = not has_star(node.args) and not node.keywords
        if func.attr in MUTATORS:
            self._note_change(scope, func, owner)
        if is_plain and func.attr == "get" and 1 <= len(node.args) <= 2:
            dicts = frozenset(a for a in owner if _is_followed_dict(a))
            if dicts:
                return self._get(scope, node, dicts, owner - dicts)
        if is_plain and not node.args and func.attr in ("items", "keys", "values") and owner:
            pairs = [self._pair(atom) for atom in owner]
            if all(pair is not None for pair in pairs):
                for atom in owner:
                    if isinstance(atom, Thunk):
                        self._escape_atom(atom)
                keys = union([pair[0] for pair in pairs if pair is not None])
                values = union([pair[1] for pair in pairs if pair is not None])
                if func.attr == "items":
                    return frozenset({Items(frozenset({Tuple((keys, values))}), "items")})
                held = keys if func.attr == "keys" else values
                return frozenset({Items(held | ADDED, "list")})
        # `x.f(...)` where `f` is a field: a function kept in a struct, which has escaped before.
        for atom in owner:
            if isinstance(atom, View | Part | Summary):
                got, missing = self._field(atom, func.attr)
                self._escape(got)
                if missing and len(owner) == 1:
                    self.effects.note(scope.module.path, func, "field", min(missing), func.attr)
            else:
                self._escape_atom(atom)
        for argument in [*node.args, *[k.value for k in node.keywords]]:
            self._escape(self.evaluate(scope, argument))
        library = next(iter(owner), None) if len(owner) == 1 else None
        if isinstance(library, Builtin):
            return _result_of(f"{library.name}.{func.attr}")
        is_text = owner and widened(owner) <= STR
        return of_result(TEXT_METHODS.get(func.attr, "")) if is_text else OPAQUE

    def _get(self, scope: Scope, node: ast.Call, dicts: Value, rest: Value) -> Value:
        """`owner.get(key, default)`, where the owner is one of *dicts* or *rest*."""
        key = self.evaluate(scope, node.args[0])
        self.effects.note_key(scope.module.path, node, dicts, key)
        fallback = NONE
        if len(node.args) == 2:
            self.effects.note_presence(scope.module.path, node, dicts)
            fallback = self.evaluate(scope, node.args[1])
        found = self._entry(dicts, key) | fallback
        if rest:
            self._escape(rest)
            self._escape(key | fallback)
            found |= OPAQUE
        return found

    def _pair(self, atom: Atom) -> tuple[Value, Value] | None:
        """The keys and the values of *atom*, if it is a dict that is followed."""
        if isinstance(atom, Map):
            return atom.keys, atom.values
        if isinstance(atom, Thunk):
            return STR, self._element(self._schema.views[atom.view][atom.field].type)
        if isinstance(atom, Part) and atom.type.startswith("dict["):
            return STR, self._element(atom.type)
        return None

    def _call_builtin(self, scope: Scope, node: ast.Call, name: str) -> Value:
        args = [self.evaluate(scope, a) for a in node.args]
        keywords = {k.arg: self.evaluate(scope, k.value) for k in node.keywords if k.arg}
        entry = builtins().get(name)
        effect = Effect.WHOLE if entry is None else entry.effect
        if entry is not None and entry.result == "counter":
            self.effects.makes_counter(name)
        if effect is Effect.TYPE and args:
            for extra in args[1:]:
                self._escape(extra)
            return _result_of(name)
        if effect is Effect.LENGTH and len(args) == 1:
            # How many there are says nothing of the fields of each; of a dict's entries it does.
            self._escape(frozenset(a for a in args[0] if not isinstance(a, Items | Tuple)))
            return _result_of(name)
        if name == "dir":
            self.effects.reads_ages = True
        if effect is Effect.REFLECTS and len(args) >= 2:
            return self._reflect(name, args)
        if effect is Effect.ELEMENTS and len(args) == 1:
            items = self._elements(args[0])
            self._call_keys(scope, node, items)
            kind = "tuple" if name == "tuple" else "list"
            return self._bounded(Items(items | ADDED, kind))
        if effect is Effect.PAIRS and (args or name == "zip"):
            is_numbered = name == "enumerate"
            for extra in args[1:] if is_numbered else ():
                self._escape(extra)
            held = [self._elements(a) for a in (args[:1] if is_numbered else args)]
            pair = Tuple((INT, *held) if is_numbered else tuple(held))
            return self._bounded(Items(frozenset({pair}), "list"))
        if effect is Effect.CHOOSES and args:
            items = self._elements(args[0]) if len(args) == 1 else union(args)
            if "key" in keywords:
                self._call_keys(scope, node, items)
                return items
            self._escape(items)
            return items
        if effect is Effect.TRUTH and len(args) == 1:
            items = self._items_of(scope, node.args[0])
            self._escape(frozenset(a for a in items if isinstance(a, Thunk)))
            return _result_of(name)
        for value in [*args, *keywords.values()]:
            self._escape(value)
        if entry is None or not entry.default:
            return _result_of(name)
        place = [parameter.name for parameter in entry.parameters].index(entry.default)
        default = args[place] if len(args) > place else keywords.get(entry.default, NONE)
        return _result_of(name) | default

    def _call_keys(self, scope: Scope, node: ast.Call, items: Value) -> None:
        """`key = f` of sorted, min and max: f meets every item. Without it items are compared."""
        has_key = False
        for keyword in node.keywords:
            value = self.evaluate(scope, keyword.value)
            if keyword.arg != "key":
                self._escape(value)
                continue
            has_key = True
            for callee in value:
                if isinstance(callee, Function):
                    named = parameters_of(callee.node.args).positional[:1]
                    if not named:
                        self._escape(items)
                    result = self._call_function(callee, dict.fromkeys(named, items))
                    self._escape(result)
                else:
                    self._escape(items)
                    self._escape_atom(callee)
        if not has_key and isinstance(node.func, ast.Name) and node.func.id == "sorted":
            self._escape(items)

    def _reflect(self, name: str, args: list[Value]) -> Value:
        """`getattr` and `hasattr`: a field under a name that may be computed."""
        found = union(args[2:])
        names = [a.value for a in args[1] if isinstance(a, Text)]
        is_known = bool(names) and len(names) == len(args[1])
        self.effects.reads_ages |= not is_known
        for name_of_field in names:
            self.effects.asks_name(name_of_field)
        for atom in args[0]:
            if not is_known:
                self._escape_atom(atom)
                found |= OPAQUE
                continue
            for name_of_field in names:
                got, _ = self._field(atom, name_of_field)
                if name == "hasattr":
                    # Whether it is there depends on its being sent.
                    self._escape(got)
                else:
                    found |= got
        return BOOL if name == "hasattr" else found


_COUNTER: Final[Value] = frozenset({Summary("counts")})


def _is_followed_dict(atom: Atom) -> bool:
    if isinstance(atom, Part):
        return atom.type.startswith("dict[")
    return isinstance(atom, Thunk | UnknownField | Map)


@functools.cache
def _result_of(name: str) -> Value:
    """What a call of the builtin *name* gives, whatever its arguments are."""
    entry = builtins().get(name)
    return OPAQUE if entry is None else of_result(entry.result)


_OF_ELEMENTS: Final = frozenset(
    name for name, entry in builtins().items() if entry.effect is Effect.ELEMENTS
)

# The forms of expressions that are not merely containers of others.
_FORMS: Final[Mapping[type[ast.expr], Callable[[Evaluation, Scope, Any], Value]]] = {
    ast.Constant: Evaluation._constant,
    ast.Name: Evaluation._name,
    ast.Attribute: Evaluation._attribute,
    ast.Subscript: Evaluation._subscript,
    ast.Call: Evaluation._call,
    ast.IfExp: Evaluation._if_else,
    ast.BoolOp: Evaluation._bool_op,
    ast.Compare: Evaluation._compare,
    ast.BinOp: Evaluation._binary,
    ast.UnaryOp: Evaluation._unary,
    ast.Lambda: Evaluation._define,
}
