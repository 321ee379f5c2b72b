"""Exports the frozen constants of a policy file from the interpreter as plain data.

Owns which of them are data that Python computes with as Starlark does; how they are written is
`crossing`'s. A constant that is no such data (a function, a range, NaN) is left out.
"""

import ast
import json
import math
from typing import Any, Final

import msgspec

from engine.language import crossing
from engine.language.syntax import assigned_names
from engine.lib.syntax_tree import syntax_tree

MODULE: Final = "@starsched/exports.star"
TEXT: Final = crossing.TEXT


def reader_text(text: str) -> str:
    """Starlark that, run after the file *text*, writes out its constants.

    Raises whatever Python's parser does.
    """
    constants = [one for one in syntax_tree(text).body if not isinstance(one, ast.FunctionDef)]
    names = sorted(set(assigned_names(constants)))
    pairs = ", ".join(f'"{name}": carried({name})' for name in names)
    return f'load("{MODULE}", "carried")\njson.encode({{{pairs}}})\n'


def read(text: str) -> dict[str, Any]:
    """The constants that *text* holds; structs are objects of `crossing.struct_class`."""
    found = {}
    for name, written in json.loads(text).items():
        try:
            value = crossing.read(written)
        except ValueError:
            continue
        if _is_plain(value):
            found[name] = value
    return found


def _is_plain(value: Any) -> bool:
    """Whether both languages compute with *value* alike."""
    match value:
        case int():
            return -(1 << 63) <= value < 1 << 63
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_is_plain, value))
        case dict():
            return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
        case msgspec.Struct():
            return all(map(_is_plain, msgspec.structs.astuple(value)))
    return not isinstance(value, crossing.Foreign)
