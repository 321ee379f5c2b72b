"""The types of the expressions of one file, for all calls of its functions together.

Owns which functions are entered and with what, when a file is looked at for itself: hooks with
what the runtime gives them, functions that others can call with anything, the rest with what the
file calls them with. What other files define is not looked at.
"""

import ast
import contextlib
from collections.abc import Collection, Mapping
from typing import Final

from engine.language.evaluate import Scope
from engine.language.infer import Inference, given_to_hooks
from engine.language.modules import Module, World
from engine.language.resolve import parameters_of
from engine.language.syntax import walk
from engine.language.table import Builtin, builtins
from engine.language.values import (
    NONE,
    NOTHING,
    UNKNOWN_TYPE,
    Function,
    Part,
    Schema,
    Value,
    View,
    type_of,
)
from engine.language.values import Builtin as BuiltinName

_KINDS: Final = frozenset(
    {"none", "bool", "int", "float", "str", "list", "dict", "tuple", "function", "verdict"}
)


class _Recorder(Inference):
    """An inference that can write down what each expression gave."""

    def __init__(self, world: World) -> None:
        super().__init__(world, by_arguments=False)
        self.values: dict[ast.AST, Value] = {}
        self._is_recording = False

    def evaluate(self, scope: Scope, node: ast.expr) -> Value:
        """What *node* may give."""
        value = super().evaluate(scope, node)
        if self._is_recording:
            self.values[node] = self.values.get(node, NOTHING) | value
        return value

    def _method(self, scope: Scope, node: ast.Call, func: ast.Attribute) -> Value:
        value = super()._method(scope, node, func)
        owner = self.values.get(func.value, NOTHING) - NONE
        if self._is_recording and all(isinstance(a, View | Part) for a in owner):
            # A field that is called. A method of a list or dict has no type.
            found = [self._field(atom, func.attr)[0] for atom in owner]
            self.values[func] = NOTHING.union(*found)
        return value

    def record(self, entries: list[tuple[Function, Mapping[str, Value]]]) -> None:
        """One more pass, in which values are written down."""
        self._is_recording = True
        try:
            self.walk_once(entries)
        except RecursionError:
            self.is_too_much = True


class FileTypes:
    """The type of each expression in the functions of one file.

    Args:
        file: Its path.
        text: Its text.
        schema: The views and records.
        hooks: Its functions that the runtime calls.
        is_open: True if others can call any of its functions with anything.
    """

    def __init__(
        self, file: str, text: str, schema: Schema, hooks: Collection[str], *, is_open: bool
    ) -> None:
        self._schema = schema
        self._values: dict[ast.AST, Value] = {}
        with contextlib.closing(World({file: text}, schema)) as world:
            module = world.module(file)
            if module is not None:
                self._infer(world, module, hooks, is_open=is_open)

    def _infer(
        self, world: World, module: Module, hooks: Collection[str], *, is_open: bool
    ) -> None:
        recorder = _Recorder(world)
        entries: list[tuple[Function, Mapping[str, Value]]] = []
        left: list[Function] = []
        passed_on = _passed_on(module)
        for name, nodes in module.functions.items():
            for function in map(module.function, nodes):
                if name in hooks:
                    named = parameters_of(function.node.args).named
                    entries.append((function, {one: given_to_hooks(one) for one in named}))
                elif is_open or not name.startswith("_") or name in passed_on:
                    entries.append((function, {}))
                else:
                    left.append(function)
        recorder.enter(entries)
        idle = [function for function in left if not recorder.reaches(function)]
        if idle:
            entries += [(function, {}) for function in idle]
            recorder.enter(entries)
        if not recorder.is_too_much:
            recorder.record(entries)
        if not recorder.is_too_much:
            self._values = recorder.values

    def of(self, node: ast.expr | None) -> str:
        """The type of *node* as a type text (see `values.type_of`), "" if it is not certain."""
        value = self._values.get(node) if node is not None else None
        return UNKNOWN_TYPE if value is None else type_of(value, self._schema)

    def kind_of(self, node: ast.expr | None) -> str:
        """The kind of *node*, as the table of builtins has them, or "" if it is not certain.

        That is none, bool, int, float, str, list, dict, tuple, function, struct or verdict. What
        may also be None is of its kind.
        """
        return kind_of(self.of(node), self._schema)

    def builtin(self, call: ast.Call) -> Builtin | None:
        """The builtin that *call* surely calls."""
        func = call.func
        if isinstance(func, ast.Attribute):
            library = self._named_builtin(func.value)
            return builtins().get(f"{library}.{func.attr}") if library else None
        return builtins().get(self._named_builtin(func))

    def _named_builtin(self, node: ast.expr) -> str:
        value = self._values.get(node, NOTHING)
        atom = next(iter(value), None)
        return atom.name if len(value) == 1 and isinstance(atom, BuiltinName) else ""


def kind_of(type_text: str, schema: Schema) -> str:
    """The kind of values of this type, "" if there is none (see `FileTypes.kind_of`)."""
    base = type_text.rstrip("?")
    if base in schema.records or base.startswith("@"):
        return "struct"
    kind = base.partition("[")[0]
    return "list" if kind == "items" else kind if kind in _KINDS else ""


def _passed_on(module: Module) -> set[str]:
    """The names that the file uses in another way than by calling them."""
    called = {id(n.func) for n in walk(module.tree) if isinstance(n, ast.Call)}
    return {n.id for n in walk(module.tree) if isinstance(n, ast.Name) and id(n) not in called}
