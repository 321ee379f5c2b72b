"""What the names of the top level of policy files mean, for a translation.

Owns the rules for which text is read alike by Python and by Starlark. What a file defines is known
from `engine.language.modules`; the values of its constants come from the interpreter.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.language import prelude
from engine.language.modules import Module, World
from engine.language.syntax import is_load, loads_of, walk
from engine.language.table import builtins
from engine.language.values import Builtin, Function, Schema
from engine.policy.sandbox.protocol import Files
from engine.policy.sandbox.translation.kinds import Untranslatable

# Escapes beyond these, tabs and returns are not read alike, or we are not sure.
_ODD: Final = re.compile(r"\\[^nt\"'\\]|[\t\r\f\0]")
# A quote with a backslash is one character to the interpreter in a raw string, too.
_RAW: Final = re.compile(r"(?<![\w%])f?rf?[\"']")
_ESCAPED_QUOTE: Final = re.compile(r"\\[\"']")
# It takes some 7 us a character to translate the worst texts, which the first answer waits for: all
# of it has to come long before the deadline, on slow machines too.
_MAX_TEXT: Final = 64_000


@dataclass(frozen=True, slots=True)
class Constant:
    """A frozen value of a file's top level, as plain data."""

    value: Any


Meaning = Function | Constant | Builtin


class Texts:
    """The files that one instance of a policy consists of.

    *constants* gives the frozen constants of a file by its path.
    """

    def __init__(self, files: Files, constants: Callable[[str], Mapping[str, Any]]) -> None:
        self._world = World({**files, prelude.MODULE: prelude.text()}, Schema({}, {}))
        self._constants = constants
        self._modules: dict[str, Module] = {}
        self._values: dict[str, Mapping[str, Any]] = {}

    def meaning(self, path: str, name: str) -> Meaning:
        """What *name* means at the top level of *path*. Raises `Untranslatable`."""
        module = self._module(path)
        functions, load = module.functions.get(name, []), module.loads.get(name)
        is_assigned = name in module.assigned or name in module.unknown
        if len(functions) + (load is not None) + is_assigned > 1:
            raise Untranslatable(f"`{name}` has several meanings")
        if functions:
            return module.function(functions[0])
        if load is not None:
            return self.meaning(load.module, load.name)
        if is_assigned:
            if path not in self._values:
                self._values[path] = self._constants(path)
            if name not in self._values[path]:
                raise Untranslatable(f"`{name}` is no plain constant")
            return Constant(self._values[path][name])
        if path != prelude.MODULE and name in prelude.names():
            entry = builtins().get(name)
            # Others are functions in Python, or `methods` knows what they make.
            if entry is not None and entry.python is None and not entry.makes:
                return self.meaning(prelude.MODULE, name)
        return Builtin(name)

    def _module(self, path: str) -> Module:
        found = self._modules.get(path)
        if found is None:
            _check_text(self._world.files.get(path, ""))
            module = self._world.module(path)
            if module is None:
                raise Untranslatable("text that is no Python")
            _check_tree(module.tree)
            found = self._modules[path] = module
        return found


def _check_text(text: str) -> None:
    if len(text) > _MAX_TEXT:
        raise Untranslatable("too much text")
    if _ODD.search(text) or (_RAW.search(text) and _ESCAPED_QUOTE.search(text)):
        raise Untranslatable("text that Python and Starlark may read differently")


def _check_tree(tree: ast.Module) -> None:
    written = Counter(id(load.call) for load in loads_of(tree))
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            continue
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and is_load(call):
            if written[id(call)] != len(call.args) - 1 + len(call.keywords):
                raise Untranslatable("a load whose names are not literals")
        elif any(isinstance(part, ast.FunctionDef) for part in walk(statement)):
            raise Untranslatable("a function that is defined inside of something")
