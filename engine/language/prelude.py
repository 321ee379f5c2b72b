"""The Starlark module of the runtime's builtins, made of their entries.

Owns how the parts come together: functions in Python get a Starlark one around them, `math` is a
struct of its members.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from engine.language import (
    counter_makers,
    crossing,
    json_numbers,
    numbers,
    starlark,
    verdict_makers,
)
from engine.language.table import Builtin, builtins

MODULE: Final = "@starsched/builtins.star"


@functools.cache
def names() -> tuple[str, ...]:
    """What the runtime adds to every policy file. A file may define such a name itself."""
    made = (name for name, one in builtins().items() if not one.is_starlark)
    return tuple(dict.fromkeys(name.partition(".")[0] for name in made))


@functools.cache
def known_names() -> frozenset[str]:
    """Every name that a policy file can use without defining it."""
    own = (name.partition(".")[0] for name in builtins())
    return frozenset({*starlark.VALUES, *starlark.LIBRARIES, *own})


def members(library: str) -> Mapping[str, str]:
    """What `json` or `math` has: the Starlark expression of each member, if it is ours."""
    if library == "json":
        return dict.fromkeys(("decode", "encode"), "")
    found = dict(numbers.CONSTANTS)
    for name, one in builtins().items():
        if name.startswith(f"{library}."):
            found[name.partition(".")[2]] = one.starlark or wrapper(one)
    return found


def wrapper(one: Builtin) -> str:
    """The name, in the text, of the Starlark function around a builtin in Python."""
    return f"_{one.name.replace('.', '_')}" if "." in one.name else one.name


@functools.cache
def natives() -> Mapping[str, Callable[..., Any]]:
    """The functions in Python, by the name that the text calls them."""
    found = {
        one.native: crossing.callable_of(one)
        for one in builtins().values()
        if one.python is not None
    }
    found[json_numbers.NATIVE] = json_numbers.refusal
    return MappingProxyType(found)


@functools.cache
def text() -> str:
    """The text of the module."""
    wrapped = [
        crossing.wrapper_text(one, wrapper(one))
        for one in builtins().values()
        if one.python is not None
    ]
    head = '"""Names that every policy can use."""\n'
    lines = [f"    {name} = {value},\n" for name, value in members("math").items()]
    library = f"math = struct(\n{''.join(lines)})\n"
    own = [verdict_makers.TEXT, numbers.TEXT, crossing.TEXT, json_numbers.TEXT]
    parts = [head, *own, *wrapped, library]
    return "\n".join([*parts, counter_makers.TEXT, _ARGUMENTS])


_ARGUMENTS: Final = '''\
def _word(value):
    names = {"NoneType": "None", "string": "str"}
    return names.get(type(value), type(value))

def _fits(given, default):
    if default == None or type(given) == type(default):
        return True
    return type(default) == "float" and type(given) == "int"

def bind_arguments(given, defaults, convert):
    """The struct of arguments: *defaults* overridden by *given*."""
    for name, value in given.items():
        if name not in defaults:
            fail("unknown argument `%s`, want one of %s" % (name, sorted(defaults)))
        if not _fits(value, defaults[name]):
            fail("argument `%s`: want %s, got %s" % (name, _word(defaults[name]), repr(value)))
    converted = {name: convert(name, value) for name, value in given.items()}
    return struct(**(defaults | converted))
'''
