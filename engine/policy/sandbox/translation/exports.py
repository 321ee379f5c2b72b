"""Exports the frozen constants of a policy file from the interpreter as plain data.

Owns how they are encoded: JSON does not distinguish a tuple from a list nor a struct from a dict,
so those are marked. A constant that is no plain data (a function, a range) is left out.
"""

import ast
import functools
import math
import re
from typing import Any, Final

import msgspec

from engine.language.syntax import assigned_names
from engine.lib.syntax_tree import syntax_tree

# No underscores in front: nothing of Python's own can be reached by such a name.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

MODULE: Final = "@starsched/exports.star"

TEXT: Final = """
def starsched_export(v):
    kind = type(v)
    if kind in ("string", "bool", "NoneType", "int"):
        return v
    if kind == "float":
        if v != v or v == float("inf") or v == float("-inf"):
            return {"f": str(v)}
        return {"f": v}
    if kind == "list":
        return [starsched_export(x) for x in v]
    if kind == "tuple":
        return {"t": [starsched_export(x) for x in v]}
    if kind == "dict":
        return {"d": [[starsched_export(k), starsched_export(x)] for k, x in v.items()]}
    if kind == "struct":
        return {"s": [[name, starsched_export(getattr(v, name))] for name in dir(v)]}
    return {"x": kind}
"""


def reader_text(text: str) -> str:
    """Starlark that, run after the file *text*, writes out its constants.

    Raises whatever Python's parser does.
    """
    constants = [one for one in syntax_tree(text).body if not isinstance(one, ast.FunctionDef)]
    names = sorted(set(assigned_names(constants)))
    pairs = ", ".join(f'"{name}": starsched_export({name})' for name in names)
    return f'load("{MODULE}", "starsched_export")\njson.encode({{{pairs}}})\n'


def read(text: str) -> dict[str, Any]:
    """The constants that *text* holds; structs are objects of `struct_class`."""
    found = {}
    for name, written in msgspec.json.decode(text).items():
        try:
            found[name] = _value(written)
        except ValueError:
            continue
    return found


def _value(written: Any) -> Any:
    if type(written) is list:
        return [_value(item) for item in written]
    if type(written) is not dict:
        if type(written) is float or (type(written) is int and not -(1 << 63) <= written < 1 << 63):
            raise ValueError("a number that is not as it was")
        return written
    ((mark, held),) = written.items()
    if mark == "f":
        number = float(held)
        if not math.isfinite(number):
            raise ValueError("a float that is no finite number")
        return number
    if mark == "t":
        return tuple(_value(item) for item in held)
    if mark == "d":
        pairs = [(_value(key), _value(item)) for key, item in held]
        if {type(key) for key, _ in pairs} not in (set(), {str}, {int}):
            raise ValueError("keys that Python and Starlark may tell apart differently")
        return dict(pairs)
    if mark == "s":
        names = tuple(name for name, _ in held)
        return struct_class(names)(*[_value(item) for _, item in held])
    raise ValueError("no plain data")


@functools.lru_cache(maxsize=512)
def struct_class(names: tuple[str, ...]) -> Any:
    """The class of structs that have the fields *names*."""
    if not all(_NAME.fullmatch(name) for name in names):
        raise ValueError("a field's name that could mean something to Python")
    fields = [(name, Any) for name in names]
    return msgspec.defstruct("struct", fields, frozen=True, eq=False, gc=False)
