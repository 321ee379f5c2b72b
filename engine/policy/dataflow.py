"""Following the views through a policy: which fields can any run of a hook reach?

A variable stands for everything that it may ever hold (no order of statements), a call for every
call with the same arguments, and passes over all reachable code are made until nothing new is
found. A view that goes where it cannot be followed has *escaped*: all of it counts as read.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.policy.abstract import (
    MAX_NESTING,
    MAX_TUPLE,
    NOTHING,
    OTHER,
    Atom,
    Builtin,
    Context,
    Figures,
    Function,
    Items,
    Lazy,
    Loose,
    Made,
    Map,
    Module,
    Other,
    Scope,
    Text,
    Tuple,
    Typed,
    Value,
    View,
    World,
    added,
    element_type,
    nesting,
    parameter_value,
    typed,
    union,
)
from engine.policy.syntax import has_star, local_names, stored_names
from engine.policy.view_fields import RECORDS
from engine.policy.views import AGES, VIEWS

ALL: Final = "*"

# The dict fields of which an entry may be there only because it is named.
_NAMED_FIELDS: Final = frozenset(
    name
    for fields in VIEWS.values()
    for name, field in fields.items()
    if field.fills or field.is_asked
)

# Bounds of the walk; a policy beyond them reads everything.
_MAX_PASSES: Final = 40
_MAX_CONTEXTS: Final = 3_000
_MAX_ATOMS: Final = 64
# A variable that holds more in pass after pass, such as a text that a loop makes longer, may hold
# anything.
_MAX_GROWTH: Final = 12
_MAX_CALLS: Final = 50

# What a fact is not given with unless it is asked for.
_AGE: Final = AGES.partition(".")[2]

MUTATORS: Final = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "popitem"}
)


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """Something seen on the way that is wrong: an unknown field, or a changed parameter."""

    module: str
    line: int
    column: int
    kind: str  # "field", "change", "presence" or "unnamed"
    owner: str  # a view or record name; for changes what is changed
    name: str


class Walk:
    """One hook's walk: passes over all reachable code until nothing new is found."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.reads: dict[str, set[str]] = {view: set() for view in VIEWS}
        self.figures: dict[str, set[str]] = {"counts": set(), "over": set()}
        self.notes: set[Note] = set()
        self._touched: set[tuple[str, str]] = set()
        self._reads_ages = False
        self._lets_facts_go = False
        self._is_too_much = False
        # What is named of values that may be views that have escaped: a field, and an entry of it.
        self._named: set[tuple[str, str]] = set()
        self._reads_manifest = False
        self._contexts: dict[tuple[object, ...], Context] = {}
        self._changed = True
        self._pass = 0
        self._calls = 0
        self._escaped: dict[Function, int] = {}

    def hook(self, module: str, name: str, params: tuple[str, ...]) -> None:
        """Walk a hook. Where that goes too far, it reads everything, and asks for what was seen."""
        home = self._world.module(module)
        try:
            if home is None or not self._settles(home, name, params):
                self._is_too_much = True
        except RecursionError:
            self._is_too_much = True
        # A dict field that is only named (`x = pod.labels`, never looked at) must be there too.
        for view, field in self._touched:
            if not any(path.partition("[")[0] in (field, ALL) for path in self.reads[view]):
                self.reads[view].add(field)
        if self._is_too_much:
            for paths in (*self.reads.values(), *self.figures.values()):
                paths.add(ALL)
            self._reads_ages = True
            self.notes.clear()

    def _settles(self, home: Module, name: str, params: tuple[str, ...]) -> bool:
        """Make passes over the hook until one finds nothing new; False if there are too many."""
        given = {p: parameter_value(p) for p in params}
        self._reads_ages |= self._world.hands_reflection_on(home.path)
        while self._changed:
            self._changed = False
            self._pass += 1
            self.notes.clear()
            for node in home.functions.get(name, ()):
                self._escape(self._call_function(home.function(node), [], given, is_open=True))
            if self._is_too_much or self._pass > _MAX_PASSES:
                return False
        return True

    def pass_on(self, others: Iterable["Walk"]) -> None:
        """What escaped here is given to *others*, which have been walked."""
        for other in others:
            self._named |= other._named
            self._reads_ages |= other._reads_ages and self._lets_facts_go
            self._reads_manifest |= other._reads_manifest

    def found(self) -> dict[str, set[str]]:
        """What was read, with what only those are given who ask for it."""
        for view, paths in self.reads.items():
            paths |= {
                f"{name}[{key}]"
                for name, key in self._named
                if name in VIEWS[view] and not paths.isdisjoint((ALL, name))
            }
            if ALL in paths and self._reads_manifest and "manifest" in VIEWS[view]:
                paths.add("manifest")
        if self._reads_ages:
            for view, paths in self.reads.items():
                fields = (VIEWS[view].get(path.partition("[")[0]) for path in paths)
                if ALL in paths or any(field and field.fills for field in fields):
                    paths.add(AGES)
        return self.reads

    # --- effects ---------------------------------------------------------------------------

    def _read_figure(self, figures: Figures, name: str) -> None:
        self.figures[figures.parameter].add(name)

    def _read(self, view: str, path: str) -> None:
        if path not in self.reads[view]:
            self.reads[view].add(path)
            self._changed = True

    def _escape(self, value: Value) -> None:
        """*value* goes where it cannot be followed: all that it holds counts as read."""
        for atom in value:
            if isinstance(atom, View):
                self._read(atom.view, ALL)
                self._lets_facts_go = True
            elif isinstance(atom, Lazy):
                self._read(atom.view, atom.field)
                self._lets_facts_go |= VIEWS[atom.view][atom.field].fills
            elif isinstance(atom, Typed):
                self._lets_facts_go |= "Fact" in atom.type
            elif isinstance(atom, Figures):
                self._read_figure(atom, ALL)
            elif isinstance(atom, Items):
                self._escape(atom.items)
            elif isinstance(atom, Tuple):
                for item in atom.items:
                    self._escape(item)
            elif isinstance(atom, Map):
                self._escape(atom.values)
            elif isinstance(atom, Made):
                self._escape(atom.functions)
            elif isinstance(atom, Function) and self._escaped.get(atom) != self._pass:
                # Somebody may call it with anything that has escaped itself.
                self._escaped[atom] = self._pass
                self._escape(self._call_function(atom, [], {}, is_open=True))

    def _note(self, module: Module, node: ast.expr, kind: str, owner: str, name: str) -> None:
        # Of `a.b` the name that is wrong is at the end.
        line, offset = node.lineno, node.col_offset
        if isinstance(node, ast.Attribute) and node.end_col_offset is not None:
            line, offset = node.end_lineno or line, node.end_col_offset - len(node.attr.encode())
        self.notes.add(Note(module.path, line, offset + 1, kind, owner, name))

    def _note_presence(self, module: Module, node: ast.expr, owners: Value) -> None:
        """*node* asks whether a dict has an entry that is always there, if need be as None."""
        for atom in owners:
            if isinstance(atom, Lazy) and VIEWS[atom.view][atom.field].fills:
                self._note(module, node, "presence", atom.view, atom.field)

    def _note_key(self, module: Module, node: ast.expr, owners: Value, key: Value) -> None:
        """*node* asks for an entry that is there only where it is named, by another name."""
        for atom in owners:
            if (
                isinstance(atom, Lazy)
                and VIEWS[atom.view][atom.field].is_asked
                and not any(isinstance(a, Text) for a in key)
            ):
                self._note(module, node, "unnamed", atom.view, atom.field)

    # --- calls -----------------------------------------------------------------------------

    def _call_function(
        self,
        function: Function,
        positional: list[Value],
        named: Mapping[str, Value],
        *,
        is_open: bool = False,
    ) -> Value:
        """What a call may return. With `is_open`, parameters without an argument are unknown."""
        arguments = function.node.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
        bound: dict[str, Value] = dict(zip(names, positional, strict=False))
        extra = positional[len(names) :]
        keyword_only = {a.arg for a in arguments.kwonlyargs}
        for name, value in named.items():
            if name in names or name in keyword_only:
                bound[name] = bound.get(name, NOTHING) | value
            else:
                self._escape(value)
        for value in extra:
            self._escape(value)
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                defaults[parameter.arg] = default
        for name in [*names, *keyword_only]:
            if name in bound:
                continue
            bound[name] = OTHER
            if name in defaults:
                bound[name] = self._default(function, defaults[name])
                if is_open:
                    bound[name] |= OTHER
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                bound[rest.arg] = OTHER
        return self._walk_function(function, bound)

    def _default(self, function: Function, node: ast.expr) -> Value:
        if function.scope is None:
            return function.module.constant(node)
        return self._eval(function.module, function.scope, node)

    def _walk_function(self, function: Function, bound: dict[str, Value]) -> Value:
        key = (function, tuple(sorted(bound.items(), key=lambda item: item[0])))
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._is_too_much = True
                return OTHER
            scope = Scope(function.scope, frozenset(local_names(function.node)))
            context = self._contexts[key] = Context(scope)
            self._changed = True
        if context.walked_in == self._pass:
            return context.result  # done, or under way: the next pass sees the rest
        if self._calls >= _MAX_CALLS:
            self._is_too_much = True
            return OTHER
        context.walked_in = self._pass
        for name, value in bound.items():
            self._bind(context.scope, name, value)
        self._calls += 1
        if isinstance(function.node, ast.Lambda):
            result = self._eval(function.module, context.scope, function.node.body)
        else:
            result = self._block(function.module, context.scope, function.node.body)
        self._calls -= 1
        if not result <= context.result:
            context.result |= result
            self._changed = True
        return context.result

    def _bind(self, scope: Scope, name: str, value: Value) -> None:
        known = scope.values.get(name, NOTHING)
        if value <= known:
            return
        times, last = scope.grown.get(name, (0, 0))
        if last != self._pass:
            times += 1
            scope.grown[name] = times, self._pass
        if len(known | value) > _MAX_ATOMS or times > _MAX_GROWTH:
            self._escape(value)
            value = OTHER
        if not value <= known:
            scope.values[name] = known | value
            self._changed = True

    # --- statements ------------------------------------------------------------------------

    def _block(self, module: Module, scope: Scope, body: Iterable[ast.stmt]) -> Value:
        """Walk *body*; what its `return`s may give."""
        result: set[Atom] = set()
        for statement in body:
            result |= self._statement(module, scope, statement)
        return frozenset(result)

    def _statement(self, module: Module, scope: Scope, node: ast.stmt) -> Value:
        if isinstance(node, ast.Return):
            return OTHER if node.value is None else self._eval(module, scope, node.value)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign_expression(module, scope, target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign_expression(module, scope, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            value = self._eval(module, scope, node.value)
            self._escape(value)
            if isinstance(node.target, ast.Name):
                current = self._lookup(module, scope, node.target.id)
                if any(isinstance(atom, Lazy | Typed) for atom in current):
                    self._escape(current)
                self._bind(scope, node.target.id, OTHER)
            else:
                self._assign(module, scope, node.target, OTHER)
        elif isinstance(node, ast.For):
            self._assign(module, scope, node.target, self._items_of(module, scope, node.iter))
            return self._block(module, scope, [*node.body, *node.orelse])
        elif isinstance(node, ast.If):
            self._test(module, scope, node.test)
            return self._block(module, scope, [*node.body, *node.orelse])
        elif isinstance(node, ast.Expr):
            self._eval(module, scope, node.value)
        elif isinstance(node, ast.FunctionDef):
            self._bind(scope, node.name, self._define(module, scope, node))
        elif not isinstance(node, ast.Pass | ast.Break | ast.Continue):
            self._is_too_much = True  # not Starlark
        return NOTHING

    def _assign_expression(
        self, module: Module, scope: Scope, target: ast.expr, node: ast.expr
    ) -> None:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(node, ast.Tuple | ast.List)
            and len(target.elts) == len(node.elts)
        ):
            for part, value in zip(target.elts, node.elts, strict=True):
                self._assign_expression(module, scope, part, value)
            return
        self._assign(module, scope, target, self._eval(module, scope, node))

    def _assign(self, module: Module, scope: Scope, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._assign(module, scope, part, self._part(value, index, len(target.elts)))
        elif isinstance(target, ast.Subscript | ast.Attribute):
            owner = self._eval(module, scope, target.value)
            if isinstance(target, ast.Subscript):
                self._escape(self._eval(module, scope, target.slice))
            self._note_change(module, target, owner)
            self._escape(owner)
            self._escape(value)
        else:
            self._is_too_much = True  # not Starlark

    def _note_change(self, module: Module, node: ast.expr, owner: Value) -> None:
        """Note a change of what the hook was given, if it cannot be anything else."""
        if owner and all(isinstance(atom, View | Lazy | Typed) for atom in owner):
            names = {
                f"{a.view}.{a.field}" if isinstance(a, Lazy) else "the view"
                for a in owner
                if isinstance(a, Lazy | View)
            }
            self._note(module, node, "change", min(names, default="a part of a view"), "")

    def _part(self, value: Value, index: int, count: int) -> Value:
        """Element *index* of *value* unpacked into *count* variables."""
        found: set[Atom] = set()
        for atom in value:
            if isinstance(atom, Tuple) and len(atom.items) == count:
                found |= atom.items[index]
            else:
                found |= self._elements(frozenset({atom}))
        return frozenset(found)

    def _elements(self, value: Value) -> Value:
        """What looping over *value* gives."""
        found: set[Atom] = set()
        for atom in value:
            if isinstance(atom, Items):
                found |= atom.items
            elif isinstance(atom, Tuple):
                found |= union(atom.items)
            elif isinstance(atom, Map):
                found |= atom.keys
            elif isinstance(atom, Lazy):
                self._escape(frozenset({atom}))
                found |= OTHER
            elif isinstance(atom, Typed):
                found |= typed(element_type(atom.type))
            else:
                self._escape(frozenset({atom}))
                found |= OTHER
        return frozenset(found)

    def _items_of(self, module: Module, scope: Scope, node: ast.expr) -> Value:
        """What looping over the expression gives. A list that nobody else sees stays exact."""
        if isinstance(node, ast.List | ast.Tuple) and not has_star(node.elts):
            return union(self._eval(module, scope, e) for e in node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._items_of(module, scope, node.left) | self._items_of(
                module, scope, node.right
            )
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and len(node.args) == 1
            and not has_star(node.args)
            and node.func.id in ("sorted", "list", "tuple", "reversed")
            and self._lookup(module, scope, node.func.id) == {Builtin(node.func.id)}
        ):
            items = self._items_of(module, scope, node.args[0])
            self._call_keys(module, scope, node, items)
            return items
        if isinstance(node, ast.ListComp):
            return self._comprehension(module, scope, node, [node.elt])[0]
        return self._elements(self._eval(module, scope, node))

    def _test(self, module: Module, scope: Scope, node: ast.expr) -> None:
        """*node* is asked whether it is true: an empty dict is not, so that reads the dict."""
        for atom in self._eval(module, scope, node):
            if isinstance(atom, Lazy):
                self._escape(frozenset({atom}))

    # --- expressions -----------------------------------------------------------------------

    def _lookup(self, module: Module, scope: Scope | None, name: str) -> Value:
        while scope is not None:
            if name in scope.names:
                return scope.values.get(name, NOTHING)
            scope = scope.parent
        value = module.value(name)
        if value is not None:
            return value
        return frozenset({Builtin(name)})

    def _eval(self, module: Module, scope: Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            return frozenset({Text(node.value)}) if isinstance(node.value, str) else OTHER
        if isinstance(node, ast.Name):
            return self._lookup(module, scope, node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, scope, node)
        if isinstance(node, ast.Subscript):
            return self._subscript(module, scope, node)
        if isinstance(node, ast.Call):
            return self._call(module, scope, node)
        if isinstance(node, ast.IfExp):
            self._test(module, scope, node.test)
            return self._eval(module, scope, node.body) | self._eval(module, scope, node.orelse)
        if isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                self._test(module, scope, part)
            return union(self._eval(module, scope, part) for part in node.values)
        if isinstance(node, ast.Compare):
            return self._compare(module, scope, node)
        if isinstance(node, ast.BinOp):
            return self._binary(module, scope, node)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                self._test(module, scope, node.operand)
            else:
                self._escape(self._eval(module, scope, node.operand))
            return OTHER
        if isinstance(node, ast.Lambda):
            return self._define(module, scope, node)
        return self._container(module, scope, node)

    def _define(self, module: Module, scope: Scope, node: ast.FunctionDef | ast.Lambda) -> Value:
        """The function of *node*. Its defaults are evaluated now, also if no call needs them."""
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self._eval(module, scope, default)
        atom = scope.functions.get(node)
        if atom is None:
            atom = scope.functions[node] = Function(module, node, scope)
        return frozenset({atom})

    def _container(self, module: Module, scope: Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Tuple) and not has_star(node.elts):
            items = tuple(self._eval(module, scope, e) for e in node.elts)
            return self._bounded(Tuple(items))
        if isinstance(node, ast.List) and not has_star(node.elts):
            # It may be appended to, so it may hold other texts too. Views that are put into it
            # later escape where that happens.
            items_value = union(self._eval(module, scope, e) for e in node.elts)
            return self._bounded(Items(items_value | OTHER))
        if isinstance(node, ast.ListComp):
            (items_value,) = self._comprehension(module, scope, node, [node.elt])
            return self._bounded(Items(items_value | OTHER))
        if isinstance(node, ast.DictComp):
            for value in self._comprehension(module, scope, node, [node.key, node.value]):
                self._escape(value)
            return OTHER
        for child in ast.iter_child_nodes(node):
            # Dict displays, f-strings, starred arguments, slices: all of it escapes.
            if isinstance(child, ast.expr):
                self._escape(self._eval(module, scope, child))
        return OTHER

    def _bounded(self, atom: Items | Tuple) -> Value:
        """*atom*, or what is left when it nests too deep or is too large to be followed."""
        if nesting(atom) > MAX_NESTING or (isinstance(atom, Tuple) and len(atom.items) > MAX_TUPLE):
            self._escape(frozenset({atom}))
            return OTHER
        return frozenset({atom})

    def _comprehension(
        self,
        module: Module,
        scope: Scope,
        node: ast.ListComp | ast.DictComp,
        results: list[ast.expr],
    ) -> list[Value]:
        inner = scope.inner.get(node)
        if inner is None:
            names = {n for g in node.generators for n in stored_names(g.target)}
            inner = scope.inner[node] = Scope(scope, frozenset(names))
        for index, generator in enumerate(node.generators):
            # The first is evaluated outside, where a variable of the same name is another one.
            items = self._items_of(module, scope if index == 0 else inner, generator.iter)
            self._assign(module, inner, generator.target, items)
            for condition in generator.ifs:
                self._test(module, inner, condition)
        return [self._eval(module, inner, result) for result in results]

    def _attribute(self, module: Module, scope: Scope, node: ast.Attribute) -> Value:
        owner = self._eval(module, scope, node.value)
        # Whatever it is taken from: facts cannot be followed everywhere, the name can.
        self._reads_ages |= node.attr == _AGE
        found: set[Atom] = set()
        unknown: set[str] = set()
        for atom in owner:
            got, missing = self._field(atom, node.attr)
            found |= got
            unknown |= missing
        if owner and len(unknown) == len(owner):
            self._note(module, node, "field", min(unknown), node.attr)
        return frozenset(found)

    def _field(self, atom: Atom, name: str) -> tuple[Value, set[str]]:
        """The value of field *name* of *atom*; and the record's name if it has no such field."""
        if isinstance(atom, View):
            known = VIEWS[atom.view].get(name)
            if known is None:
                return OTHER, {atom.view}
            if known.type.startswith("dict[") and name != "manifest":
                self._touched.add((atom.view, name))
                return frozenset({Lazy(atom.view, name)}), set()
            self._read(atom.view, name)
            return typed(known.type), set()
        if isinstance(atom, Figures):
            self._read_figure(atom, name)
            return OTHER, set()
        if isinstance(atom, Typed):
            record = RECORDS.get(atom.type)
            if record is not None:
                if name not in record:
                    return OTHER, {atom.type}
                return typed(record[name][0]), set()
            return OTHER, set()
        self._escape(frozenset({atom}))
        if isinstance(atom, Other):
            self._reads_manifest |= name == "manifest"
            if name in _NAMED_FIELDS:
                return OTHER | {Loose(name)}, set()
        return OTHER, set()

    def _subscript(self, module: Module, scope: Scope, node: ast.Subscript) -> Value:
        owner = self._eval(module, scope, node.value)
        if isinstance(node.slice, ast.Slice):
            self._container(module, scope, node.slice)
            # Part of a list, tuple or text.
            items = self._elements(owner)
            return self._bounded(Items(items | OTHER)) if owner - OTHER else OTHER
        key = self._eval(module, scope, node.slice)
        self._note_key(module, node, owner, key)
        return self._entry(owner, key)

    def _entry(self, owner: Value, key: Value) -> Value:
        """What `owner[key]` or `owner.get(key)` may give."""
        self._escape(frozenset(a for a in key if not isinstance(a, Text)))
        found: set[Atom] = set()
        for atom in owner:
            if isinstance(atom, Lazy):
                self._read_keys(atom, key)
                found |= typed(element_type(VIEWS[atom.view][atom.field].type))
            elif isinstance(atom, Loose):
                self._named |= {(atom.field, a.value) for a in key if isinstance(a, Text)}
                found |= OTHER
            elif isinstance(atom, Map):
                found |= atom.values
            else:
                found |= self._elements(frozenset({atom}))
        return frozenset(found)

    def _read_keys(self, atom: Lazy, key: Value) -> None:
        """Read the entries of a dict field that *key* may name."""
        is_known = bool(key) and all(isinstance(a, Text) for a in key)
        if not is_known:
            self._read(atom.view, atom.field)
        if is_known or atom.field in _NAMED_FIELDS:
            for a in key:
                if isinstance(a, Text):
                    self._read(atom.view, f"{atom.field}[{a.value}]")

    def _compare(self, module: Module, scope: Scope, node: ast.Compare) -> Value:
        parts = [node.left, *node.comparators]
        values = [self._eval(module, scope, part) for part in parts]
        is_identity = any(isinstance(p, ast.Name) and p.id == "None" for p in parts) or any(
            isinstance(p, ast.Constant) and p.value is None for p in parts
        )
        for index, operator in enumerate(node.ops):
            left, right = values[index], values[index + 1]
            if isinstance(operator, ast.In | ast.NotIn):
                lazy = frozenset(a for a in right if isinstance(a, Lazy))
                if lazy:
                    self._note_presence(module, node, lazy)
                    self._note_key(module, node, lazy, left)
                    self._entry(lazy, left)
                self._escape(frozenset(a for a in left if not isinstance(a, Text)))
                self._escape(right - lazy)
            elif not is_identity:
                # Comparing with None looks at no field: a view or a dict is never None.
                self._escape(left)
                self._escape(right)
        return OTHER

    def _binary(self, module: Module, scope: Scope, node: ast.BinOp) -> Value:
        left = self._eval(module, scope, node.left)
        right = self._eval(module, scope, node.right)
        if isinstance(node.op, ast.Add):
            summed = added(left, right)
            if Other() in summed:
                self._escape(left)
                self._escape(right)
            # A list made by adding is as open to changes as any other.
            return frozenset(Items(a.items | OTHER) if isinstance(a, Items) else a for a in summed)
        self._escape(left)
        self._escape(right)
        return OTHER

    # --- call expressions --------------------------------------------------------------------

    def _call(self, module: Module, scope: Scope, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            return self._method(module, scope, node, node.func)
        callees = self._eval(module, scope, node.func)
        if has_star(node.args) or any(k.arg is None for k in node.keywords):
            # Which argument meets which parameter is not known: all of them escape.
            for argument in [*node.args, *[k.value for k in node.keywords]]:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                self._escape(self._eval(module, scope, inner))
            return union(self._call_unknown(callee) for callee in callees) | OTHER
        if callees == {Builtin(getattr(node.func, "id", ""))}:
            return self._call_builtin(module, scope, node, getattr(node.func, "id", ""))
        positional = [self._eval(module, scope, a) for a in node.args]
        named = {k.arg: self._eval(module, scope, k.value) for k in node.keywords if k.arg}
        found: set[Atom] = set()
        for callee in callees:
            if isinstance(callee, Function):
                found |= self._call_function(callee, positional, named)
            else:
                for value in [*positional, *named.values()]:
                    self._escape(value)
                self._escape(frozenset({callee}))
                found |= OTHER
        return frozenset(found)

    def _call_unknown(self, callee: Atom) -> Value:
        if isinstance(callee, Function):
            return self._call_function(callee, [], {}, is_open=True)
        self._escape(frozenset({callee}))
        return OTHER

    def _method(self, module: Module, scope: Scope, node: ast.Call, func: ast.Attribute) -> Value:
        owner = self._eval(module, scope, func.value)
        is_plain = not has_star(node.args) and not node.keywords
        lazy = frozenset(a for a in owner if isinstance(a, Lazy))
        loose = frozenset(a for a in owner if isinstance(a, Loose))
        maps = frozenset(a for a in owner if isinstance(a, Map))
        if func.attr in MUTATORS:
            self._note_change(module, func, owner)
        if func.attr == "get" and is_plain and 1 <= len(node.args) <= 2 and (lazy or maps or loose):
            key = self._eval(module, scope, node.args[0])
            self._note_key(module, node, lazy, key)
            if len(node.args) == 2:
                self._note_presence(module, node, lazy)
            fallback = self._eval(module, scope, node.args[1]) if len(node.args) == 2 else OTHER
            found = self._entry(lazy | maps | loose, key) | fallback
            if rest := owner - lazy - maps - loose:
                self._escape(rest)
                self._escape(key | fallback)
                found |= OTHER
            return found
        if maps and maps == owner and is_plain and not node.args:
            keys, values = union(m.keys for m in maps), union(m.values for m in maps)
            if func.attr == "keys":
                return frozenset({Items(keys | OTHER)})
            if func.attr == "values":
                return frozenset({Items(values | OTHER)})
            if func.attr == "items":
                return frozenset({Items(frozenset({Tuple((keys, values))}))})
        if func.attr in ("items", "keys", "values") and lazy and lazy == owner and not node.args:
            self._escape(lazy)
            return OTHER
        # `x.f(...)` where `f` is a field: a function kept in a struct, which has escaped before.
        for atom in owner:
            if isinstance(atom, View | Typed | Figures):
                got, missing = self._field(atom, func.attr)
                self._escape(got)
                if missing and len(owner) == 1:
                    self._note(module, func, "field", min(missing), func.attr)
            else:
                self._escape(frozenset({atom}))
        for argument in [*node.args, *[k.value for k in node.keywords]]:
            self._escape(self._eval(module, scope, argument))
        return OTHER

    def _call_builtin(self, module: Module, scope: Scope, node: ast.Call, name: str) -> Value:
        args = [self._eval(module, scope, a) for a in node.args]
        keywords = {k.arg: self._eval(module, scope, k.value) for k in node.keywords if k.arg}
        if name == "type" and len(args) == 1:
            return OTHER
        if name == "len" and len(args) == 1:
            # How many there are says nothing of the fields of each; of a dict's entries it does.
            self._escape(frozenset(a for a in args[0] if not isinstance(a, Items | Tuple)))
            return OTHER
        self._reads_ages |= name == "dir"
        if name in ("getattr", "hasattr") and len(args) >= 2:
            return self._reflect(name, args)
        if name in ("list", "tuple", "reversed", "sorted") and len(args) == 1:
            items = self._elements(args[0])
            self._call_keys(module, scope, node, items)
            return self._bounded(Items(items | OTHER))
        if name == "enumerate" and args:
            for extra in args[1:]:
                self._escape(extra)
            return self._bounded(Items(frozenset({Tuple((OTHER, self._elements(args[0])))})))
        if name == "zip":
            return self._bounded(Items(frozenset({Tuple(tuple(self._elements(a) for a in args))})))
        if name in ("min", "max") and args:
            items = self._elements(args[0]) if len(args) == 1 else union(args)
            if "key" in keywords:
                self._call_keys(module, scope, node, items)
                return items
            self._escape(items)
            return items
        if name in ("any", "all") and len(args) == 1:
            items = self._items_of(module, scope, node.args[0])
            self._escape(frozenset(a for a in items if isinstance(a, Lazy)))
            return OTHER
        for value in [*args, *keywords.values()]:
            self._escape(value)
        return OTHER

    def _call_keys(self, module: Module, scope: Scope, node: ast.Call, items: Value) -> None:
        """`key = f` of sorted, min and max: f meets every item. Without it items are compared."""
        has_key = False
        for keyword in node.keywords:
            value = self._eval(module, scope, keyword.value)
            if keyword.arg != "key":
                self._escape(value)
                continue
            has_key = True
            for callee in value:
                if isinstance(callee, Function):
                    self._escape(self._call_function(callee, [items], {}))
                else:
                    self._escape(items)
                    self._escape(frozenset({callee}))
        if not has_key and isinstance(node.func, ast.Name) and node.func.id == "sorted":
            self._escape(items)

    def _reflect(self, name: str, args: list[Value]) -> Value:
        """`getattr` and `hasattr`: a field under a name that may be computed."""
        found: set[Atom] = set()
        for extra in args[2:]:
            found |= extra
        names = [a.value for a in args[1] if isinstance(a, Text)]
        is_known = bool(names) and len(names) == len(args[1])
        self._reads_ages |= not is_known or _AGE in names
        for atom in args[0]:
            if not is_known:
                self._escape(frozenset({atom}))
                found |= OTHER
                continue
            for field_name in names:
                got, _ = self._field(atom, field_name)
                if name == "hasattr":
                    # Whether it is there depends on its being sent.
                    self._escape(got)
                else:
                    found |= got
        return OTHER if name == "hasattr" else frozenset(found)
