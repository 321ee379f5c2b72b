"""Static types of policy expressions: what a value can be, for the translation into Python.

Owns the types, their join, and where they come from: the type texts of the views' schema, and
plain constants. A type is a set of alternatives; the empty set is what never has a value.

A list or dict that the hook itself makes has *sites*, the places in the text that make it; what it
holds is kept by site (see `translate.Store`), because it grows. Whatever comes from outside has no
sites and must not be changed; what may be either has `OUTSIDE` among its sites.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.language.values import element_type
from engine.policy.sandbox.protocol import Schema

Site: TypeAlias = tuple[Any, ...]
Sites: TypeAlias = frozenset[Site]
NO_SITES: Final[Sites] = frozenset()
#: Of what may also be a list or dict that the hook did not make.
OUTSIDE: Final[Site] = ("outside",)

# Types that nest deeper than this do not end.
_MAX_DEPTH: Final = 8


class Untranslatable(Exception):
    """The text is outside of the subset, or its types cannot be determined; says why."""


@dataclass(frozen=True, slots=True)
class Plain:
    """`none`, `bool`, `int`, `float`, `str`, or `any`, of which nothing is known."""

    name: str


@dataclass(frozen=True, slots=True)
class List:
    """A list; *item* is what it holds in addition to what was put in at its sites."""

    item: "Type"
    sites: Sites = NO_SITES


@dataclass(frozen=True, slots=True)
class Dict:
    """A dict. *known* are the types of single keys; *is_unsorted*: JSON in any order.

    The interpreter's JSON decoder sorts the keys of objects and Python's does not, so code that
    loops over such a dict sorts it first. *is_mixed*: it may be such a dict or another one.
    """

    key: "Type"
    value: "Type"
    known: tuple[tuple[str, "Type"], ...] | None = None
    sites: Sites = NO_SITES
    is_unsorted: bool = False
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple, each of its items by place."""

    items: tuple["Type", ...]


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct with these fields; *record* names the view or record that it is, if it is one."""

    record: str
    fields: tuple[tuple[str, "Type"], ...]

    def field(self, name: str) -> "Type | None":
        """The type of one field, or None."""
        return dict(self.fields).get(name)


Alternative: TypeAlias = Plain | List | Dict | Tuple | Struct
Type: TypeAlias = frozenset[Alternative]

NEVER: Final[Type] = frozenset()
NONE: Final[Type] = frozenset({Plain("none")})
BOOL: Final[Type] = frozenset({Plain("bool")})
INT: Final[Type] = frozenset({Plain("int")})
FLOAT: Final[Type] = frozenset({Plain("float")})
STR: Final[Type] = frozenset({Plain("str")})
ANY: Final[Type] = frozenset({Plain("any")})
NUMBER: Final[Type] = INT | FLOAT


def join(*types: Type) -> Type:
    """What is of any of *types*: at most one list and one dict, tuples by length."""
    merged: dict[Any, Alternative] = {}
    for type_ in types:
        for one in type_:
            key = _key(one)
            other = merged.get(key)
            merged[key] = one if other is None or other == one else _merge(other, one)
    return frozenset(merged.values())


def _key(one: Alternative) -> Any:
    if isinstance(one, Plain):
        return one.name
    if isinstance(one, Tuple):
        return Tuple, len(one.items)
    if isinstance(one, Struct):
        return Struct, one.record, tuple(name for name, _ in one.fields)
    return type(one)


def _merge(a: Alternative, b: Alternative) -> Alternative:
    if isinstance(a, List) and isinstance(b, List):
        return List(join(a.item, b.item), _sites_of_either(a.sites, b.sites))
    if isinstance(a, Dict) and isinstance(b, Dict):
        known = None
        if a.known is not None and b.known is not None:
            names = {**dict(a.known), **dict(b.known)}
            known = tuple(
                (n, join(dict(a.known).get(n, NEVER), dict(b.known).get(n, NEVER)))
                for n in sorted(names)
            )
        is_mixed = a.is_mixed or b.is_mixed or a.is_unsorted is not b.is_unsorted
        key, value = join(a.key, b.key), join(a.value, b.value)
        sites = _sites_of_either(a.sites, b.sites)
        return Dict(key, value, known, sites, a.is_unsorted, is_mixed)
    if isinstance(a, Tuple) and isinstance(b, Tuple):
        return Tuple(tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
    if isinstance(a, Struct) and isinstance(b, Struct):
        of_b = dict(b.fields)
        return Struct(a.record, tuple((name, join(t, of_b[name])) for name, t in a.fields))
    raise AssertionError("alternatives of one key are of one class")


def _sites_of_either(a: Sites, b: Sites) -> Sites:
    # An empty constant holds nothing that would distinguish it from what the hook made.
    return a | b if bool(a) is bool(b) else a | b | {OUTSIDE}


def check_depth(type_: Type, depth: int = 0) -> None:
    """Raises `Untranslatable` for a type without end."""
    if depth > _MAX_DEPTH:
        raise Untranslatable("a value that nests too deep")
    for one in type_:
        for inner in parts(one):
            check_depth(inner, depth + 1)


def parts(one: Alternative) -> Iterable[Type]:
    """The types directly in an alternative."""
    if isinstance(one, List):
        return (one.item,)
    if isinstance(one, Dict):
        return (one.key, one.value, *(t for _, t in one.known or ()))
    if isinstance(one, Tuple):
        return one.items
    if isinstance(one, Struct):
        return tuple(t for _, t in one.fields)
    return ()


def names(type_: Type) -> set[str]:
    """The kinds of *type_*: names of plain types, and `list`, `dict`, `tuple`, `struct`."""
    return {one.name if isinstance(one, Plain) else type(one).__name__.lower() for one in type_}


def only(type_: Type, *wanted: str) -> bool:
    """True if every alternative is of one of these kinds."""
    return names(type_) <= set(wanted)


# --- where types come from -----------------------------------------------------------------------


class SchemaTypes:
    """The types of the views and records of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._known: dict[str, Type] = {}

    def view(self, name: str) -> Struct:
        """The struct of a view."""
        return self._struct(f"view:{name}", self.schema.views[name])

    def of(self, text: str) -> Type:
        """The type that a type text means."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._of(text)
        return found

    def _of(self, text: str) -> Type:
        if text.endswith("?"):
            return NONE | self.of(text[:-1])
        if text in self.schema.records:
            return frozenset({self._struct(text, self.schema.records[text])})
        element = element_type(text)
        if element is not None and text.startswith("list["):
            return frozenset({List(self.of(element))})
        if element is not None:
            return frozenset({Dict(STR, self.of(element), is_unsorted=True)})
        # A float may be written as an int in JSON.
        return {"bool": BOOL, "int": INT, "float": NUMBER, "str": STR}.get(text, ANY)

    def _struct(self, record: str, fields: Mapping[str, str]) -> Struct:
        return Struct(record, tuple((name, self.of(text)) for name, text in fields.items()))

    @functools.cached_property
    def whole(self) -> frozenset[str]:
        """The records that the interpreter makes field by field: those that hold records."""
        return frozenset(
            name
            for name, fields in self.schema.records.items()
            if any(_holds_record(self.of(text)) for text in fields.values())
        )


def _holds_record(type_: Type) -> bool:
    return any(
        isinstance(one, Struct) or any(_holds_record(inner) for inner in parts(one))
        for one in type_
    )


def of_constant(value: Any, depth: int = 0) -> Type:
    """The type of plain data, where a struct is an object with `__match_args__`."""
    if depth > _MAX_DEPTH:
        raise Untranslatable("a constant that nests too deep")
    plain = {type(None): NONE, bool: BOOL, int: INT, float: FLOAT, str: STR}.get(type(value))
    if plain is not None:
        return plain
    if type(value) is list:
        return frozenset({List(join(*(of_constant(item, depth + 1) for item in value)))})
    if type(value) is tuple:
        return frozenset({Tuple(tuple(of_constant(item, depth + 1) for item in value))})
    if type(value) is dict:
        pairs = {key: of_constant(item, depth + 1) for key, item in value.items()}
        keys = join(*(of_constant(key, depth + 1) for key in value))
        known = None
        if all(type(key) is str for key in value):
            known = tuple(sorted(pairs.items()))
        return frozenset({Dict(keys, join(*pairs.values()), known)})
    fields = getattr(type(value), "__struct_fields__", None)
    if fields is None:
        raise Untranslatable("a constant that is no plain data")
    return frozenset(
        {Struct("", tuple((f, of_constant(getattr(value, f), depth + 1)) for f in fields))}
    )
