"""Inference: what every expression of a policy may be, and what running it reads.

One abstract interpreter for all that is known of a policy's text. A variable stands for what it may
hold at that place (see `flow`), a call for every call with arguments of the same origins, and
passes over all reachable code are made until nothing new is found. A view that goes where it cannot
be followed has *escaped*: all of it counts as read.

The result over-approximates: an expression gives one of the atoms of its value or fails. `Reads`
(see `engine.policy.analysis`) trust that alone. Lints ask for the type of a value, which is known
only where every alternative is.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.language.evaluate import Evaluation, Scope
from engine.language.flow import Variable
from engine.language.modules import World
from engine.language.resolve import parameters_of
from engine.language.values import (
    NONE,
    NOTHING,
    OPAQUE,
    Atom,
    Builtin,
    Function,
    Items,
    Part,
    Plain,
    Summary,
    Thunk,
    Tuple,
    Value,
    View,
    added,
    computed,
    erased,
    widened,
)

# Bounds of the inference; a policy beyond them reads everything, and no type of it is known.
_MAX_PASSES: Final = 40
_MAX_CONTEXTS: Final = 3_000
_MAX_ATOMS: Final = 64
# A variable that holds more in pass after pass, such as a text that a loop makes longer, may hold
# anything.
_MAX_GROWTH: Final = 12
_MAX_CALLS: Final = 50


@dataclass(eq=False, slots=True)
class _Context:
    """One function with arguments of the same origins."""

    scope: Scope
    result: Value = NOTHING
    walked_in: int = 0


class Inference(Evaluation):
    """Passes over all code that some entry points reach, until nothing new is found.

    Args:
        world: The files.
        by_arguments: True to infer calls with arguments of different origins separately, as reads
            must; False to infer each function once for all of its calls.
    """

    def __init__(self, world: World, *, by_arguments: bool = True) -> None:
        super().__init__(world)
        self._by_arguments = by_arguments
        #: Anything that could not be followed; and what the entry points may return.
        self.is_too_much = False
        self.result = NOTHING
        self._contexts: dict[object, _Context] = {}
        self._changed = True

    def enter_hook(self, path: str, name: str, parameters: Iterable[str]) -> None:
        """Infer a hook. Where that goes too far, it reads everything."""
        self._hook = name
        module = self._world.module(path)
        if module is None:
            self.is_too_much = True
        else:
            given = {parameter: given_to_hooks(parameter) for parameter in parameters}
            entries = [(module.function(node), given) for node in module.functions.get(name, ())]
            self.effects.reads_ages |= self._world.passes_reflection_on(path)
            self.enter(entries)
        self.effects.finish()
        if self.is_too_much:
            self.effects.read_everything()

    def enter(self, entries: Sequence[tuple[Function, Mapping[str, Value]]]) -> None:
        """Infer all that the functions of *entries* reach, each called with what it is given.

        Parameters that are not given may be anything. Sets `is_too_much` where that is beyond
        what can be followed.
        """
        self._calls = 0
        try:
            self._changed = True
            while self._changed or self.effects.has_grown:
                self._changed = self.effects.has_grown = False
                self.walk_once(entries)
                if self.is_too_much or self._pass > _MAX_PASSES:
                    self.is_too_much = True
                    return
        except RecursionError:
            self.is_too_much = True

    def walk_once(self, entries: Sequence[tuple[Function, Mapping[str, Value]]]) -> None:
        """One pass."""
        self._pass += 1
        self.effects.notes.clear()
        for function, given in entries:
            value = self._call_function(function, given, is_open=True)
            self._escape(value)
            self.result |= value

    def reaches(self, function: Function) -> bool:
        """True if a call of *function* was inferred; only without *by_arguments*."""
        return function in self._contexts

    # --- functions ---------------------------------------------------------------------------

    def _call_function(
        self, function: Function, given: Mapping[str, Value], *, is_open: bool = False
    ) -> Value:
        """What a call may return. With `is_open`, parameters without an argument are opaque."""
        parameters = parameters_of(function.node.args)
        bound: dict[str, Value] = {}
        for name in parameters.named:
            if name in given:
                bound[name] = given[name]
            elif name in parameters.defaults:
                default = self._default(function, parameters.defaults[name])
                bound[name] = default | OPAQUE if is_open else default
            else:
                bound[name] = OPAQUE
        for value in (given[name] for name in given if name not in bound):
            self._escape(value)
        for rest in (parameters.rest, parameters.keywords):
            if rest is not None:
                bound[rest] = OPAQUE
        return self._walk_function(function, bound)

    def _default(self, function: Function, node: ast.expr) -> Value:
        if function.scope is None:
            return function.module.constant(node)
        return function.scope.defaults.get(node, NOTHING)

    def _key(self, function: Function, bound: Mapping[str, Value]) -> object:
        """Calls of the same key are inferred together."""
        return (function, *map(erased, bound.values())) if self._by_arguments else function

    def _walk_function(self, function: Function, bound: Mapping[str, Value]) -> Value:
        key = self._key(function, bound)
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self.is_too_much = True
                return OPAQUE
            scope = Scope(function.module, function.scope, self._world.locals_of(function.node))
            scope.flow.has_type = self._lookup(scope, "type") == _TYPE
            context = self._contexts[key] = _Context(scope)
            self._changed = True
        scope = context.scope
        for name, value in bound.items():
            self._bind(scope, name, value)
        if context.walked_in == self._pass:
            return context.result  # done, or under way: the next pass sees the rest
        if self._calls >= _MAX_CALLS:
            self.is_too_much = True
            return OPAQUE
        context.walked_in = self._pass
        self._calls += 1
        scope.flow.variables = {name: Variable(scope.values.get(name, NOTHING)) for name in bound}
        if isinstance(function.node, ast.Lambda):
            result = self.evaluate(scope, function.node.body)
        else:
            result = self._block(scope, function.node.body)
            if scope.flow.variables is not None:
                result |= NONE
        self._calls -= 1
        if not result <= context.result:
            context.result |= result
            self._changed = True
        return context.result

    def _bind(self, scope: Scope, name: str, value: Value) -> None:
        scope.flow.bind(name, self._kept(scope, name, value))

    def _kept(self, scope: Scope, name: str, value: Value) -> Value:
        """*value*, or what is left of it when there is no end of what the variable may hold."""
        known = scope.values.get(name, NOTHING)
        if value <= known:
            return value
        times, last = scope.grown.get(name, (0, 0))
        if last != self._pass:
            times += 1
            scope.grown[name] = times, self._pass
        joined = known | value
        if len(joined) > _MAX_ATOMS or times > _MAX_GROWTH:
            value = widened(value)
            joined = known | value
            if len(joined) > 2 * _MAX_ATOMS or not _is_plain(value):
                self._escape(value)
                value, joined = OPAQUE, known | OPAQUE
        if joined != known:
            scope.values[name] = joined
            self._changed = True
        return value

    # --- statements --------------------------------------------------------------------------

    def _block(self, scope: Scope, body: Iterable[ast.stmt]) -> Value:
        """Walk *body*; what its `return`s may give."""
        result: Value = NOTHING
        for statement in body:
            if scope.flow.variables is None:
                break
            result |= self._statement(scope, statement)
        return result

    def _statement(self, scope: Scope, node: ast.stmt) -> Value:
        if isinstance(node, ast.Return):
            value = NONE if node.value is None else self.evaluate(scope, node.value)
            scope.flow.end()
            return value
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign_expression(scope, target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign_expression(scope, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._augment(scope, node)
        elif isinstance(node, ast.For):
            return self._loop(scope, node) | self._block(scope, node.orelse)
        elif isinstance(node, ast.If):
            self._test(scope, node.test)
            body, orelse = scope.flow.choose(
                node.test,
                lambda: self._block(scope, node.body),
                lambda: self._block(scope, node.orelse),
            )
            return body | orelse
        elif isinstance(node, ast.Break | ast.Continue):
            scope.flow.leave(node)
        elif isinstance(node, ast.Expr):
            self.evaluate(scope, node.value)
            if self._fails(scope, node.value):
                scope.flow.end()
        elif isinstance(node, ast.FunctionDef):
            self._bind(scope, node.name, self._define(scope, node))
        elif not isinstance(node, ast.Pass):
            self.is_too_much = True  # not Starlark
        return NOTHING

    def _loop(self, scope: Scope, node: ast.For) -> Value:
        items = self._items_of(scope, node.iter)

        def one_round() -> Value:
            self._assign(scope, node.target, items)
            return self._block(scope, node.body)

        # What a round leaves to the next one is kept for the next pass.
        head = scope.flow.merged(scope.flow.variables, scope.heads.get(node))
        assert head is not None
        result, again = scope.flow.loop(head, one_round)
        if again != head:
            self._changed = True
        scope.heads[node] = again
        return result

    def _fails(self, scope: Scope, node: ast.expr) -> bool:
        """True for `fail(...)`."""
        return isinstance(node, ast.Call) and self.evaluate(scope, node.func) == _FAIL

    def _augment(self, scope: Scope, node: ast.AugAssign) -> None:
        value = self.evaluate(scope, node.value)
        self._escape(value)
        if not isinstance(node.target, ast.Name):
            self._assign(scope, node.target, OPAQUE)
            return
        current = self._lookup(scope, node.target.id)
        if any(isinstance(atom, Thunk | Part) for atom in current):
            self._escape(current)
        if isinstance(node.op, ast.Add):
            found = added(widened(current), widened(value))
        else:
            found = computed(current, value, is_division=isinstance(node.op, ast.Div))
        self._bind(scope, node.target.id, found if _is_plain(found) else OPAQUE)

    def _assign_expression(self, scope: Scope, target: ast.expr, node: ast.expr) -> None:
        if (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(node, ast.Tuple | ast.List)
            and len(target.elts) == len(node.elts)
        ):
            for part, value in zip(target.elts, node.elts, strict=True):
                self._assign_expression(scope, part, value)
            return
        self._assign(scope, target, self.evaluate(scope, node))

    def _assign(self, scope: Scope, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._assign(scope, part, self._part(value, index, len(target.elts)))
        elif isinstance(target, ast.Subscript | ast.Attribute):
            owner = self.evaluate(scope, target.value)
            if isinstance(target, ast.Subscript):
                self._escape(self.evaluate(scope, target.slice))
            self._note_change(scope, target, owner)
            self._escape(owner)
            self._escape(value)
        else:
            self.is_too_much = True  # not Starlark

    def _part(self, value: Value, index: int, count: int) -> Value:
        """Element *index* of *value* unpacked into *count* variables."""
        found: Value = NOTHING
        for atom in value:
            if isinstance(atom, Tuple) and len(atom.items) == count:
                found |= atom.items[index]
            else:
                found |= self._elements(frozenset({atom}))
        return found


_FAIL: Final[Value] = frozenset({Builtin("fail")})
_TYPE: Final[Value] = frozenset({Builtin("type")})


def given_to_hooks(parameter: str) -> Value:
    """What a hook is given for the parameter of this name."""
    return _GIVEN.get(parameter, OPAQUE)


def _items(atom: Atom) -> Value:
    return frozenset({Items(frozenset({atom}), "list")})


_GIVEN: Final[Mapping[str, Value]] = {
    **{view: frozenset[Atom]({View(view)}) for view in ("pod", "node", "cluster")},
    "group": frozenset[Atom]({View("group")}) | NONE,
    "nodes": _items(View("node")),
    "victims": _items(View("pod")),
    "counts": _items(Summary("counts")),
    "over": frozenset({Summary("over")}),
}


def _is_plain(value: Value) -> bool:
    return all(isinstance(atom, Plain) for atom in value)
