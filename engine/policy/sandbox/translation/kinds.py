"""Abstract values as the translation into Python works with them: joined, and of whole types.

Owns how values are joined so that types stay small (at most one list, one dict, one struct of the
same fields), and where values come from: the type texts of the views' schema, and plain constants.
The empty value is what never has one.

A list or dict that the hook itself makes has *sites*, the places in the text that make it; what it
holds is kept by site (see `state.Translation`), because it grows. Whatever comes from outside has
no sites and must not be changed; what may be either has `OUTSIDE` among its sites.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from engine.language.summaries import SUMMARIES
from engine.language.values import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NOTHING,
    STR,
    Atom,
    Items,
    Map,
    Opaque,
    Part,
    Plain,
    Site,
    Struct,
    Summary,
    Tuple,
    Value,
    View,
    element_type,
    of_type,
)
from engine.policy.sandbox.protocol import Schema

Sites: TypeAlias = frozenset[Site]
NO_SITES: Final[Sites] = frozenset()
#: Of what may also be a list or dict that the hook did not make.
OUTSIDE: Final[Site] = ("outside",)
NUMBER: Final[Value] = INT | FLOAT
#: What hooks are given: a view, a record in one, or a struct of numbers.
Given: TypeAlias = View | Part | Summary

# Values that nest deeper than this do not end.
_MAX_DEPTH: Final = 8


class Untranslatable(Exception):
    """The text is outside of the subset, or its types cannot be determined; says why."""


def join(*values: Value) -> Value:
    """What is any of *values*: at most one list and one dict, tuples by length."""
    merged: dict[Any, Atom] = {}
    for value in values:
        for one in value:
            key = _key(one)
            other = merged.get(key)
            merged[key] = one if other is None or other == one else _merge(other, one)
    return frozenset(merged.values())


def _key(one: Atom) -> Any:
    if isinstance(one, Tuple):
        return Tuple, len(one.items)
    if isinstance(one, Struct):
        return Struct, tuple(name for name, _ in one.fields)
    return type(one) if isinstance(one, Items | Map) else one


def _merge(a: Atom, b: Atom) -> Atom:
    if isinstance(a, Items) and isinstance(b, Items):
        return Items(join(a.items, b.items), "list", _sites_of_either(a.sites, b.sites))
    if isinstance(a, Map) and isinstance(b, Map):
        known = None
        if a.known is not None and b.known is not None:
            in_a, in_b = dict(a.known), dict(b.known)
            names = sorted({*in_a, *in_b})
            known = tuple((n, join(in_a.get(n, NOTHING), in_b.get(n, NOTHING))) for n in names)
        is_mixed = a.is_mixed or b.is_mixed or a.is_unsorted is not b.is_unsorted
        keys, held = join(a.keys, b.keys), join(a.values, b.values)
        sites = _sites_of_either(a.sites, b.sites)
        return Map(keys, held, known, sites, a.is_unsorted, is_mixed)
    if isinstance(a, Tuple) and isinstance(b, Tuple):
        return Tuple(tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
    if isinstance(a, Struct) and isinstance(b, Struct):
        of_b = dict(b.fields)
        return Struct(tuple((name, join(value, of_b[name])) for name, value in a.fields))
    raise AssertionError("alternatives of one key are of one class")


def _sites_of_either(a: Sites, b: Sites) -> Sites:
    # An empty constant holds nothing that would distinguish it from what the hook made.
    return a | b if bool(a) is bool(b) else a | b | {OUTSIDE}


def check_depth(value: Value, depth: int = 0) -> None:
    """Raises `Untranslatable` for a value without end."""
    if depth > _MAX_DEPTH:
        raise Untranslatable("a value that nests too deep")
    for one in value:
        for inner in parts(one):
            check_depth(inner, depth + 1)


def parts(one: Atom) -> Iterable[Value]:
    """The values directly in an alternative."""
    if isinstance(one, Items):
        return (one.items,)
    if isinstance(one, Map):
        return (one.keys, one.values, *(value for _, value in one.known or ()))
    if isinstance(one, Tuple):
        return one.items
    if isinstance(one, Struct):
        return tuple(value for _, value in one.fields)
    return ()


def names(value: Value) -> set[str]:
    """The kinds of *value*: none, bool, int, float, str, any, list, dict, tuple, struct."""
    return {one.type if isinstance(one, Plain) else _KINDS[type(one)] for one in value}


_KINDS: Final[Mapping[type[Atom], str]] = {
    Opaque: "any",
    Items: "list",
    Map: "dict",
    Tuple: "tuple",
    Struct: "struct",
    View: "struct",
    Part: "struct",
    Summary: "struct",
}


def only(value: Value, *wanted: str) -> bool:
    """True if every alternative is of one of these kinds."""
    return names(value) <= set(wanted)


# --- where values come from ----------------------------------------------------------------------


class SchemaTypes:
    """The values of the views and records of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[str, Value] = {}

    def fields(self, given: Given) -> Mapping[str, str]:
        """The type texts of the fields of what a hook is given."""
        if isinstance(given, View):
            return self._schema.views[given.view]
        if isinstance(given, Part):
            return self._schema.records[given.type]
        return {name: field.type for name, field in SUMMARIES[given.parameter].items()}

    def of(self, text: str) -> Value:
        """What is of the type that a type text means: its lists and dicts with what they hold."""
        found = self._known.get(text)
        if found is None:
            made = (self._whole(one) for one in of_type(text, self._schema.records))
            found = self._known[text] = join(*made)
        return found

    def _whole(self, one: Atom) -> Value:
        if one == Plain("number"):
            return NUMBER  # a float may be written as an int in JSON
        element = element_type(one.type) if isinstance(one, Part) else None
        if element is None or not isinstance(one, Part):
            return frozenset({one})
        if one.type.startswith("list["):
            return frozenset({Items(self.of(element), "list")})
        return frozenset({Map(STR, self.of(element), is_unsorted=True)})

    @functools.cached_property
    def whole(self) -> frozenset[Given]:
        """The records that the interpreter makes field by field: those that hold records."""
        return frozenset(
            Part(name)
            for name, fields in self._schema.records.items()
            if any(_holds_record(self.of(text)) for text in fields.values())
        )


def _holds_record(value: Value) -> bool:
    return any(isinstance(one, Part) or any(map(_holds_record, parts(one))) for one in value)


def of_data(value: Any, depth: int = 0) -> Value:
    """What plain data is, where a struct is an object with `__struct_fields__`."""
    if depth > _MAX_DEPTH:
        raise Untranslatable("a constant that nests too deep")
    plain = {type(None): NONE, bool: BOOL, int: INT, float: FLOAT, str: STR}.get(type(value))
    if plain is not None:
        return plain
    if type(value) is list:
        return frozenset({Items(join(*(of_data(item, depth + 1) for item in value)), "list")})
    if type(value) is tuple:
        return frozenset({Tuple(tuple(of_data(item, depth + 1) for item in value))})
    if type(value) is dict:
        pairs = {key: of_data(item, depth + 1) for key, item in value.items()}
        keys = join(*(of_data(key, depth + 1) for key in value))
        known = None
        if all(type(key) is str for key in value):
            known = tuple(sorted(pairs.items()))
        return frozenset({Map(keys, join(*pairs.values()), known)})
    fields = getattr(type(value), "__struct_fields__", None)
    if fields is None:
        raise Untranslatable("a constant that is no plain data")
    return frozenset({Struct(tuple((f, of_data(getattr(value, f), depth + 1)) for f in fields))})
