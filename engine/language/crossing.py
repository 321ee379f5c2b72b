"""How values cross between Starlark and the builtins in Python.

The interpreter hands arguments and results over as JSON, which has no infinity, no NaN and no
tuple, and drops what it does not have. Owns how a value is written so that it arrives as it was, or
is refused under its name, and the wrapper that every builtin in Python is called through.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from engine.language.table import Builtin

# No underscores in front: nothing of Python's own can be reached by such a name.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_LONGEST_SHOWN: Final = 60

#: Starlark: `carried(v)` is JSON's form of any value. Texts, bools, None and ints are themselves,
#: lists are lists, and everything else is a dict with one key, its mark. NaN equals itself here, so
#: only a difference shows what is not finite.
TEXT: Final = """
def carried(v):
    kind = type(v)
    if kind in ("string", "bool", "NoneType", "int"):
        return v
    if kind == "float":
        return {"f": v if v - v == 0.0 else str(v)}
    if kind == "list":
        return [carried(x) for x in v]
    if kind == "tuple":
        return {"t": [carried(x) for x in v]}
    if kind == "dict":
        return {"d": [[carried(k), carried(x)] for k, x in v.items()]}
    if kind == "struct":
        return {"s": [[name, carried(getattr(v, name))] for name in dir(v)]}
    return {"x": kind}

def _sent(v):
    kind = type(v)
    if kind == "string" or kind == "int" or kind == "float" and v - v == 0.0:
        return v
    return carried(v)

def _received(v):
    if type(v) != "dict":
        return v
    return float(v["f"]) if "f" in v else v["d"]
"""


class Foreign:
    """A value that Python has nothing like: a function, a range, a type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def read(written: Any) -> Any:
    """The value that `carried` wrote: structs are objects of `struct_class`.

    Raises `ValueError` for a dict whose keys Python could take for equal, or a struct whose fields
    it could take for its own.
    """
    if type(written) is list:
        return [read(item) for item in written]
    if type(written) is not dict:
        return written
    ((mark, held),) = written.items()
    if mark == "f":
        return float(held)
    if mark == "t":
        return tuple(read(item) for item in held)
    if mark == "d":
        pairs = [(read(key), read(item)) for key, item in held]
        if {type(key) for key, _ in pairs} not in (set(), {str}, {int}):
            raise ValueError("keys that Python and Starlark may tell apart differently")
        return dict(pairs)
    if mark == "s":
        names = tuple(name for name, _ in held)
        return struct_class(names)(*[read(item) for _, item in held])
    return Foreign(held)


@functools.lru_cache(maxsize=512)
def struct_class(names: tuple[str, ...]) -> Any:
    """The class of structs that have the fields *names*."""
    if not all(_NAME.fullmatch(name) for name in names):
        raise ValueError("a field's name that could mean something to Python")
    fields = [(name, Any) for name in names]
    return msgspec.defstruct("struct", fields, frozen=True, eq=False, gc=False)


def wrapper_text(one: Builtin, name: str) -> str:
    """Starlark that defines *name*, which calls the builtin in Python *one*.

    The default of a builtin that has one stays on this side: it is returned as it was given.
    """
    sent = ", ".join(f"_sent({p.name})" for p in one.parameters if p.name != one.default)
    lines = [f"def {name}({_signature(one)}):", f"    found = _received({one.native}({sent}))"]
    lines.append(f"    return {f'{one.default} if found == None else ' * bool(one.default)}found")
    return "\n".join([*lines, ""])


def _signature(one: Builtin) -> str:
    is_positional = [p.is_positional for p in one.parameters]
    parts = one.signature.replace("math.e", repr(math.e)).split(", ")
    if any(is_positional):
        parts.insert(sum(is_positional), "/")
    return ", ".join(parts)


def callable_of(one: Builtin) -> Callable[..., Any]:
    """What the interpreter calls for the builtin in Python *one*.

    It fails with a `ValueError` that names the builtin and what it was given.
    """
    function = one.python
    assert function is not None
    wanted = [p for p in one.parameters if p.name != one.default]

    def call(*written: Any) -> Any:
        given = [value if type(value) is str else read(value) for value in written]
        for parameter, value in zip(wanted, given, strict=False):
            taken = (str, int, float) if "str" in parameter.kinds else (int, float, bool)
            if "int" in parameter.kinds and type(value) not in taken:
                raise ValueError(f"{one.name}() wants {parameter.wants}, got {_shown(value)}")
        try:
            found = function(*given)
        except Exception as error:
            shown = ", ".join(map(_shown, given))
            raise ValueError(f"{one.name}({shown}): {error}") from error
        if type(found) is float and not math.isfinite(found):
            return {"f": str(found)}
        if type(found) is dict:
            return {"d": found}
        if found is not None and type(found) not in (bool, int, float, str):
            raise TypeError(f"{one.name}() in Python returned a {type(found).__name__}")
        return found

    return call


def _shown(value: Any) -> str:
    """*value* as Starlark writes it, cut."""
    if isinstance(value, Foreign):
        return f"a {value.kind}"
    if type(value) is int and value.bit_length() > 64:
        return f"an int of {value.bit_length()} bits"
    if type(value) is float and math.isinf(value):
        return "+inf" if value > 0 else "-inf"
    text = msgspec.json.encode(value).decode() if type(value) is str else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
