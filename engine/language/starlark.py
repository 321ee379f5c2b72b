"""What Starlark itself defines in a policy file.

Owns what is known of it: nothing of it is implemented here.
"""

from collections.abc import Mapping
from typing import Final

from engine.language.table import Builtin, Effect, Parameter, kinds, number

_INF: Final = float("inf")
_LETTERS: Final = {"str": "its letters are `{given}.elems()`"}


def _one(
    name: str, taken: str = "", wants: str = "", default: str | None = None, **hints: str
) -> Parameter:
    return Parameter(name, kinds(taken), wants, default, is_positional=True, hints=hints)


_ANY: Final = _one("x")
_MANY: Final = _one("items", "list tuple dict", "a list or a dict", **_LETTERS)
_FLAG: Final = Parameter("reverse", default="False")
_KEY: Final = Parameter("key", default="None")
_BOUND: Final = {
    **dict.fromkeys(
        ("list", "dict"), "go through it, `for x in {given}:`, or `range(len({given}))`"
    ),
    "str": "`parse_int({given}, 0)` makes an int of a text",
    "float": "`//` divides to an int",
}


def _bound(name: str, default: str | None = None) -> Parameter:
    return _one(name, "int", "an int", default, **_BOUND)


_INTERPRETED: Final = kinds(
    "chr dict dir enum eval_type field getattr hasattr isinstance ord record repr reversed tuple"
)


def _starlark(name: str, *parameters: Parameter, **more: object) -> Builtin:
    fast = name not in _INTERPRETED
    return Builtin(
        name=name,
        parameters=parameters,
        is_starlark=True,
        is_translated=fast,
        **more,  # type: ignore[arg-type]  # as Builtin has them
    )


VALUES: Final = ("None", "True", "False")
#: Libraries and types beyond the core of the language, and what they are.
LIBRARIES: Final[Mapping[str, str]] = {
    "struct": "A value with these fields.",
    "record": "A type of values with fields of these types.",
    "field": "A field of a record, with a default.",
    "enum": "A type of a few named values.",
    "json": "`json.encode(value)` and `json.decode(text)`.",
    "typing": "Names of types, for annotations.",
}

#: The methods of texts, and the type texts of what they give; empty: it is not followed.
TEXT_METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(kinds("capitalize format join lower lstrip removeprefix removesuffix"), "str"),
    **dict.fromkeys(kinds("replace rstrip strip title upper"), "str"),
    **dict.fromkeys(kinds("endswith isalnum isalpha isdigit islower isspace istitle"), "bool"),
    **dict.fromkeys(kinds("isupper startswith"), "bool"),
    **dict.fromkeys(kinds("count find index rfind rindex"), "int"),
    **dict.fromkeys(kinds("rsplit split splitlines"), "list[str]"),
    **dict.fromkeys(kinds("partition rpartition"), "tuple[str, str, str]"),
    **dict.fromkeys(kinds("codepoints elems"), ""),
}

ENTRIES: Final[tuple[Builtin, ...]] = (
    _starlark("abs", number("x")),
    _starlark(
        "all",
        _one("items", "list tuple dict", "a list or a dict"),
        result="bool",
        effect=Effect.TRUTH,
    ),
    _starlark(
        "any",
        _one("items", "list tuple dict", "a list or a dict"),
        result="bool",
        effect=Effect.TRUTH,
    ),
    _starlark("bool", _one("x", default="False"), result="bool"),
    _starlark("chr", _ANY, result="str"),
    _starlark("dict", _one("pairs", default="[]"), Parameter("values", is_rest=True)),
    _starlark("dir", _ANY, result="list[str]"),
    _starlark("enumerate", _MANY, Parameter("start", default="0"), effect=Effect.PAIRS),
    _starlark("eval_type", _ANY),
    _starlark("fail", _one("words"), is_variadic=True, is_pure=False),
    _starlark(
        "float", _one("x", "int float bool str", "a number or a text", "0.0"), result="float"
    ),
    _starlark(
        "getattr", _ANY, _one("name"), _one("default", default="None"), effect=Effect.REFLECTS
    ),
    _starlark("hasattr", _ANY, _one("name"), result="bool", effect=Effect.REFLECTS),
    _starlark("hash", _ANY, result="int", bounds=(-(1 << 31), (1 << 31) - 1)),
    _starlark(
        "int",
        _one("x", "int float bool str", "a number or a text"),
        Parameter("base", default="10"),
        result="int",
    ),
    _starlark("isinstance", _ANY, _one("type"), result="bool"),
    _starlark(
        "len",
        _one("items", "str list tuple dict", "a text, a list or a dict"),
        result="int",
        bounds=(0, _INF),
        effect=Effect.LENGTH,
    ),
    _starlark(
        "list",
        _one("items", "list tuple dict", "a list or a dict", "[]", **_LETTERS),
        effect=Effect.ELEMENTS,
    ),
    _starlark("max", _MANY, _KEY, is_variadic=True, effect=Effect.CHOOSES),
    _starlark("min", _MANY, _KEY, is_variadic=True, effect=Effect.CHOOSES),
    _starlark("ord", _ANY, result="int", bounds=(0, 0x10FFFF)),
    _starlark(
        "range", _bound("start"), _bound("stop", "None"), _bound("step", "1"), result="list[int]"
    ),
    _starlark("repr", _ANY, result="str"),
    _starlark("reversed", _MANY, effect=Effect.ELEMENTS),
    _starlark("sorted", _MANY, _KEY, _FLAG, effect=Effect.ELEMENTS),
    _starlark("str", _one("x", default='""'), result="str"),
    _starlark(
        "tuple",
        _one("items", "list tuple dict", "a list or a dict", "()", **_LETTERS),
        effect=Effect.ELEMENTS,
    ),
    _starlark("type", _ANY, result="str", effect=Effect.TYPE),
    _starlark("zip", _one("items"), is_variadic=True, effect=Effect.PAIRS),
    _starlark(
        "plugin_args",
        Parameter("defaults", is_rest=True),
        doc="The policy's arguments, at top level: these defaults, or what a profile's "
        "pluginConfig gives instead.",
    ),
    *(
        _starlark(name, Parameter("values", is_rest=True))
        for name in ("struct", "record", "field", "enum")
    ),
)
