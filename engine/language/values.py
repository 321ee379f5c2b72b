"""Abstract values: all that an expression of a policy may be at run time, as far as it matters.

A value is a set of atoms, one per alternative; joining two values is the union of their atoms.
An atom says what the alternative was made from (a view, a field of one, a constant) and which type
it has. `Opaque` stands for whatever is not followed, so a value is certain exactly if it has no
opaque atom. Consumers differ in what they trust: reads count every alternative, lints speak only
of values that are certain.

Owns the atoms, the types that the schema of the views gives them, and operations on values that
need no scope. What expressions evaluate to is `infer`'s, what a file defines is `modules`'.
"""

import ast
import functools
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from engine.language.table import builtins

if TYPE_CHECKING:
    from engine.language.evaluate import Scope
    from engine.language.modules import Module

# Values that nest deeper, or tuples and texts that are longer, are not followed.
MAX_NESTING: Final = 4
MAX_TUPLE: Final = 16
_MAX_TEXT: Final = 400
MAX_SUMS: Final = 256


class Field(Protocol):
    """A field of a view, as far as the language is concerned."""

    @property
    def type(self) -> str:
        """Its type text: `int`, `str?`, `list[Taint]`, `dict[str, int]`."""
        ...

    @property
    def fills(self) -> bool:
        """True for a dict in which an entry that is named and missing is there, as None."""
        ...

    @property
    def is_asked(self) -> bool:
        """True for a dict that has no entries but those that are named."""
        ...

    @property
    def if_named(self) -> Mapping[str, str]:
        """Entries of a dict that are there if they are named, with their type texts."""
        ...


class Schema(NamedTuple):
    """The fields of each view, and of each record the type text and the documentation."""

    views: Mapping[str, Mapping[str, Field]]
    records: Mapping[str, Mapping[str, tuple[str, str]]]


#: A place in a policy's text that makes a list or dict, in one context of its function.
Site: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is not followed. Views in it have escaped."""


@dataclass(frozen=True, slots=True)
class Added:
    """What may be put into a list after it was made. Views escape when they are put there."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A value of which only the type is known, and that holds no view that can be followed.

    `type` is none, bool, int, float, str, dict, number, or what builtins make: verdict, counter,
    selector. A number is what the schema calls a float: an int if it was written as one.
    """

    type: str


@dataclass(frozen=True, slots=True)
class View:
    """A whole view: `pod`, `node`, `cluster` or `group`."""

    view: str


@dataclass(frozen=True, slots=True)
class Thunk:
    """A dict field of a view before it is read: how much of it is read depends on its use."""

    view: str
    field: str


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field of this name of an opaque value, which may be a view that has escaped."""

    field: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A struct of numbers that a hook is given: an element of `counts`, or `over`."""

    parameter: str


@dataclass(frozen=True, slots=True)
class Part:
    """A list, dict or record out of a field that already counts as read."""

    type: str


@dataclass(frozen=True, slots=True)
class Text:
    """A known string. It may be a key."""

    value: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list, or another iterable that gives any of *items* when looped over or indexed.

    `sites` are the places that make it, for those that keep what is put into it later by place.
    """

    items: "Value"
    type: str = ""
    sites: frozenset[Site] = frozenset()


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of which every element is known by its place."""

    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Map:
    """A dict. `known` are the values of single keys, if all are known; `sites` as for `Items`.

    `is_unsorted`: it came as JSON, with its keys in any order. `is_mixed`: perhaps.
    """

    keys: "Value"
    values: "Value"
    known: tuple[tuple[str, "Value"], ...] | None = None
    sites: frozenset[Site] = frozenset()
    is_unsorted: bool = False
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct that a policy makes, by its fields."""

    fields: tuple[tuple[str, "Value"], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function or lambda, with the scope that it closes over; compared by identity."""

    module: "Module"
    node: ast.FunctionDef | ast.Lambda
    scope: "Scope | None"


@dataclass(frozen=True, slots=True)
class Constructed:
    """What a file's top level built out of these functions: its users may call them."""

    functions: frozenset[Function]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A name that the file does not define: Starlark's own, or the runtime's."""

    name: str


Atom: TypeAlias = (
    Opaque
    | Added
    | Plain
    | View
    | Thunk
    | UnknownField
    | Summary
    | Part
    | Text
    | Items
    | Tuple
    | Map
    | Struct
    | Function
    | Constructed
    | Builtin
)
Value: TypeAlias = frozenset[Atom]

NOTHING: Final[Value] = frozenset()
OPAQUE: Final[Value] = frozenset({Opaque()})
ADDED: Final[Value] = frozenset({Added()})
NONE: Final[Value] = frozenset({Plain("none")})
BOOL: Final[Value] = frozenset({Plain("bool")})
INT: Final[Value] = frozenset({Plain("int")})
FLOAT: Final[Value] = frozenset({Plain("float")})
STR: Final[Value] = frozenset({Plain("str")})
DICT: Final[Value] = frozenset({Plain("dict")})

_PLAIN: Final[Mapping[str, Value]] = {
    "none": NONE,
    "bool": BOOL,
    "int": INT,
    "float": frozenset({Plain("number")}),
    "str": STR,
}
_OF_CONSTANTS: Final[Mapping[type, Value]] = {
    type(None): NONE,
    bool: BOOL,
    int: INT,
    float: FLOAT,
}


def union(values: Iterable[Value]) -> Value:
    """All that any of *values* may be."""
    return NOTHING.union(*values)


@functools.lru_cache(maxsize=4096)
def erased(value: Value) -> Value:
    """*value* without the types of what holds no view: what reads depend on."""
    if value is OPAQUE:
        return value
    return frozenset(map(_erased, value))


def _erased(atom: Atom) -> Atom:
    if isinstance(atom, Plain | Added):
        return Opaque()
    if isinstance(atom, Items):
        return Items(erased(atom.items))
    if isinstance(atom, Tuple):
        return Tuple(tuple(map(erased, atom.items)))
    if isinstance(atom, Map):
        return Map(erased(atom.keys), erased(atom.values))
    return atom


def may_be_none(value: Value) -> bool:
    """False if *value* is surely not None."""
    return not value.isdisjoint(NONE | OPAQUE | ADDED)


def left_by(value: Value, is_true: bool) -> Value:
    """What is left of *value* where it is true, or where it is false."""
    if is_true:
        return value - NONE
    return frozenset(atom for atom in value if "struct" not in _kinds_of(atom))


def of_kinds(value: Value, kinds: frozenset[str], is_one: bool) -> Value:
    """What is left of *value* where `type()` of it is one of *kinds*, or where it is none."""
    found: set[Atom] = set()
    for atom in value:
        known = _kinds_of(atom)
        if not known and is_one and kinds <= _OF_KINDS.keys():
            found.update(*(_OF_KINDS[kind] for kind in kinds))
        elif not known or (known & kinds if is_one else known - kinds):
            found.add(atom)
    return frozenset(found)


def _kinds_of(atom: Atom) -> frozenset[str]:
    """What `type()` may say of *atom*; empty: anything."""
    if isinstance(atom, Plain | Items):
        return _KINDS.get(atom.type, frozenset())
    if isinstance(atom, Part):
        holder = atom.type.partition("[")[0]
        return _KINDS["struct" if holder == atom.type else holder]
    return _KINDS.get(_KINDS_OF_ATOMS.get(type(atom), ""), frozenset())


# Scalars of these kinds hold no view.
_OF_KINDS: Final[Mapping[str, Value]] = {
    "NoneType": NONE,
    "bool": BOOL,
    "int": INT,
    "float": FLOAT,
    "string": STR,
}
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    **{kind: frozenset({kind}) for kind in ("bool", "int", "float", "tuple", "dict", "struct")},
    "none": frozenset({"NoneType"}),
    "str": frozenset({"string"}),
    "number": frozenset({"int", "float"}),
    "list": frozenset({"list", "range"}),
    "items": frozenset({"list"}),
    "verdict": frozenset({"struct"}),
    "function": frozenset({"function"}),
}
_KINDS_OF_ATOMS: Final[Mapping[type, str]] = {
    **dict.fromkeys((View, Summary, Struct), "struct"),
    **dict.fromkeys((Thunk, Map), "dict"),
    Text: "str",
    Tuple: "tuple",
    Function: "function",
}


def widened(value: Value) -> Value:
    """*value* with its known texts as a string of which nothing is known."""
    rest = frozenset(atom for atom in value if not isinstance(atom, Text))
    return value if len(rest) == len(value) else rest | STR


def of_constant(constant: object) -> Value:
    """The value of a literal."""
    if isinstance(constant, str):
        return frozenset({Text(constant)})
    return _OF_CONSTANTS.get(type(constant), OPAQUE)


def of_type(type_text: str | None, records: Container[str]) -> Value:
    """A value of which only the type is known, by a type text of a schema with *records*."""
    if type_text is None:
        return OPAQUE
    base = type_text.removesuffix("?")
    if base in records or base.startswith(("list[", "dict[")):
        found: Value = frozenset({Part(base)})
    else:
        found = _PLAIN.get(base, OPAQUE)
    return found if base == type_text or found is OPAQUE else found | NONE


def of_result(type_text: str) -> Value:
    """A new value of a type of the table of builtins; opaque if there is none."""
    if type_text.startswith("list["):
        return frozenset({Items(of_result(type_text[5:-1]) | ADDED, "list")})
    if type_text.startswith("tuple["):
        return frozenset({Tuple(tuple(map(of_result, type_text[6:-1].split(", "))))})
    if type_text == "float":
        return FLOAT
    return _PLAIN.get(type_text) or (frozenset({Plain(type_text)}) if type_text else OPAQUE)


_LIST_TYPE: Final = re.compile(r"list\[(.+)\]")
_DICT_TYPE: Final = re.compile(r"dict\[str, ?(.+)\]")


@functools.lru_cache(maxsize=1024)
def element_type(type_text: str) -> str | None:
    """The type of an element of a list, or of a value of a dict."""
    match = _LIST_TYPE.fullmatch(type_text) or _DICT_TYPE.fullmatch(type_text)
    return match[1] if match else None


def added(left: Value, right: Value) -> Value:
    """What `left + right` may be."""
    if len(left) * len(right) > MAX_SUMS:
        return OPAQUE
    found: set[Atom] = set()
    for a in left:
        for b in right:
            if isinstance(a, Text) and isinstance(b, Text):
                text = a.value + b.value
                found.add(Text(text) if len(text) <= _MAX_TEXT else Plain("str"))
            elif isinstance(a, Tuple) and isinstance(b, Tuple):
                items = a.items + b.items
                is_long = len(items) > MAX_TUPLE
                found.add(Items(union(items), "tuple") if is_long else Tuple(items))
            elif isinstance(a, Items) and isinstance(b, Items):
                found.add(Items(a.items | b.items, a.type))
            else:
                found |= _sum(a, b)
    return frozenset(found)


def _sum(a: Atom, b: Atom) -> Value:
    if isinstance(a, Text | Plain) and isinstance(b, Text | Plain):
        types = {"str" if isinstance(x, Text) else x.type for x in (a, b)}
        if "none" in types:
            return NOTHING  # adding to None fails
        if types == {"str"}:
            return STR
        if types <= _NUMBERS:
            return INT if types == {"int"} else FLOAT
    return OPAQUE


_NUMBERS: Final = frozenset({"int", "float"})


def computed(left: Value, right: Value, *, is_division: bool) -> Value:
    """The number that arithmetic makes of two values, if they are surely numbers."""
    types: set[str] = set()
    for atom in left | right:
        if isinstance(atom, Plain) and atom.type in _NUMBERS:
            types.add(atom.type)
        elif not (isinstance(atom, Plain) and atom.type == "none"):
            return FLOAT if is_division else OPAQUE
    if is_division:
        return FLOAT
    if types == {"int"}:
        return INT
    of_each = (_number_types(left), _number_types(right))
    if {"float"} in of_each:
        return FLOAT
    return INT | FLOAT if types else NOTHING


def _number_types(value: Value) -> set[str]:
    return {a.type for a in value if isinstance(a, Plain)} & _NUMBERS


def functions_in(value: Value) -> frozenset[Function]:
    """The functions that *value* is, or holds."""
    found: set[Function] = set()
    for atom in value:
        if isinstance(atom, Function):
            found.add(atom)
        elif isinstance(atom, Constructed):
            found |= atom.functions
        elif isinstance(atom, Items):
            found |= functions_in(atom.items)
        elif isinstance(atom, Tuple):
            found |= functions_in(union(atom.items))
        elif isinstance(atom, Map):
            found |= functions_in(atom.values)
    return frozenset(found)


def nesting(atom: Atom) -> int:
    """How deep *atom* holds other atoms."""
    if isinstance(atom, Items):
        return 1 + max((nesting(a) for a in atom.items), default=0)
    if isinstance(atom, Tuple):
        return 1 + max((nesting(a) for item in set(atom.items) for a in item), default=0)
    if isinstance(atom, Map):
        return 1 + max((nesting(a) for a in atom.keys | atom.values), default=0)
    return 0


# --- types ---------------------------------------------------------------------------------------

UNKNOWN_TYPE: Final = ""
NONE_TYPE: Final = "none"


def type_of(value: Value, schema: Schema) -> str:
    """The type of *value* as a type text, "" if it is not certain.

    The texts are the documents' (`dict[str, int]`, `Taint`, `int?`), and in addition `@pod` for a
    view, `@counts` and `@over` for summaries, `items[T]` for the pairs of a dict whose values are
    of type T, and `none`, `list`, `dict`, `tuple` and `function`.
    """
    bases: set[str] = set()
    for atom in value:
        if isinstance(atom, Added):
            continue
        base = _type_of_atom(atom, schema)
        if not base:
            return UNKNOWN_TYPE
        bases.add(base)
    is_optional = NONE_TYPE in bases
    bases.discard(NONE_TYPE)
    if not bases:
        return NONE_TYPE if is_optional else UNKNOWN_TYPE
    if len(bases) > 1:
        return UNKNOWN_TYPE
    return f"{bases.pop()}?" if is_optional else bases.pop()


def _type_of_atom(atom: Atom, schema: Schema) -> str:
    if isinstance(atom, Plain):
        return "float" if atom.type == "number" else atom.type
    if isinstance(atom, Part):
        return atom.type
    if isinstance(atom, Text):
        return "str"
    if isinstance(atom, View):
        return f"@{atom.view}"
    if isinstance(atom, Summary):
        return f"@{atom.parameter}"
    if isinstance(atom, Thunk):
        return schema.views[atom.view][atom.field].type
    if isinstance(atom, Items):
        if atom.type == "items":
            pairs = [a.items[1] for a in atom.items if isinstance(a, Tuple)]
            return f"items[{type_of(union(pairs), schema)}]"
        inner = type_of(atom.items, schema) if atom.type == "list" else ""
        return f"list[{inner}]" if inner and "items[" not in inner else atom.type
    if isinstance(atom, Map):
        return "dict"
    if isinstance(atom, Tuple):
        return "tuple"
    is_function = isinstance(atom, Function) or (
        isinstance(atom, Builtin) and atom.name in builtins()
    )
    return "function" if is_function else UNKNOWN_TYPE
