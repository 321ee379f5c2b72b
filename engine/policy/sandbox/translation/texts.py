"""Policy files as syntax trees, and what the names of their top level mean.

Owns the rules for which text is read alike by Python and by Starlark, and the finding of
functions, loaded names and frozen constants. Values come from the interpreter (`modules.exports`),
never from here.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.language import prelude
from engine.language.syntax import is_load, loads_of
from engine.language.table import builtins
from engine.lib.syntax_tree import syntax_tree
from engine.policy.sandbox.protocol import Files
from engine.policy.sandbox.translation import exports
from engine.policy.sandbox.translation.kinds import Untranslatable

# Escapes beyond these, tabs and returns are not read alike, or we are not sure.
_ODD: Final = re.compile(r"\\[^nt\"'\\]|[\t\r\f\0]")
# A quote with a backslash is one character to the interpreter in a raw string, too.
_RAW: Final = re.compile(r"(?<![\w%])f?rf?[\"']")
_ESCAPED_QUOTE: Final = re.compile(r"\\[\"']")
# It takes some 7 us a character to translate the worst texts, which the first answer waits for: all
# of it has to come long before the deadline, on slow machines too.
_MAX_TEXT: Final = 64_000

_BUILTINS_PATH: Final = prelude.MODULE


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a file's top level."""

    path: str
    node: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Constant:
    """A frozen value of a file's top level, as plain data."""

    value: Any


@dataclass(frozen=True, slots=True)
class Builtin:
    """A name that the file does not define."""

    name: str


Meaning = Function | Constant | Builtin


@dataclass
class _File:
    functions: dict[str, list[ast.FunctionDef]] = field(default_factory=dict)
    loads: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)


class Texts:
    """The files that one instance of a policy consists of.

    *constants* gives the frozen constants of a file by its path.
    """

    def __init__(self, files: Files, constants: Callable[[str], Mapping[str, Any]]) -> None:
        self._texts = files
        self._constants = constants
        self._files: dict[str, _File] = {}
        self._values: dict[str, Mapping[str, Any]] = {}

    def meaning(self, path: str, name: str) -> Meaning:
        """What *name* means at the top level of *path*. Raises `Untranslatable`."""
        file = self._file(path)
        functions, loads = file.functions.get(name, []), file.loads.get(name, [])
        if len(functions) + len(loads) + (name in file.assigned) > 1:
            raise Untranslatable(f"`{name}` has several meanings")
        if functions:
            return Function(path, functions[0])
        if loads:
            return self.meaning(*loads[0])
        if name in file.assigned:
            if path not in self._values:
                self._values[path] = self._constants(path)
            if name not in self._values[path]:
                raise Untranslatable(f"`{name}` is no plain constant")
            return Constant(self._values[path][name])
        if path != _BUILTINS_PATH and name in prelude.names():
            entry = builtins().get(name)
            # Others are functions in Python, or `methods` knows what they make.
            if entry is not None and entry.python is None and not entry.makes:
                return self.meaning(_BUILTINS_PATH, name)
        return Builtin(name)

    def _file(self, path: str) -> _File:
        found = self._files.get(path)
        if found is None:
            text = prelude.text() if path == _BUILTINS_PATH else self._texts.get(path, "")
            found = self._files[path] = _read(text)
        return found


def _read(text: str) -> _File:
    if len(text) > _MAX_TEXT:
        raise Untranslatable("too much text")
    if _ODD.search(text) or (_RAW.search(text) and _ESCAPED_QUOTE.search(text)):
        raise Untranslatable("text that Python and Starlark may read differently")
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Untranslatable("text that is no Python") from None
    file = _File()
    written: Counter[int] = Counter()
    for load in loads_of(tree):
        file.loads.setdefault(load.local, []).append((load.module, load.name))
        written[id(load.call)] += 1
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            file.functions.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Expr) and is_load(statement.value):
            call = statement.value
            assert isinstance(call, ast.Call)
            if written[id(call)] != len(call.args) - 1 + len(call.keywords):
                raise Untranslatable("a load whose names are not literals")
        else:
            for part in ast.walk(statement):
                if isinstance(part, ast.FunctionDef):
                    raise Untranslatable("a function that is defined inside of something")
    file.assigned = exports.assigned_names(text)
    return file
