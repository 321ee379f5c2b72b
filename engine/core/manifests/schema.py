"""The types of the API: which fields a kind has, and what may be in them.

Owns the types alone, made from the OpenAPI document that kube-apiserver publishes (`make openapi`
writes it, trimmed, next to this file). Which values make sense together is validation's.

There are two readings of it. `read_types` is the API server's decoder, which drops unknown fields
unless a client wants to know, writes times as it stores them, and stops at the first wrong type.
`type_problems` is for files that people write: it finds every wrong type, unknown field and value
outside an enum, and says what was meant.
"""

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from engine.core.manifests.errors import undecodable
from engine.core.manifests.field_errors import Steps, shown, written
from engine.core.manifests.kinds import Kind
from engine.core.manifests.quantities import QuantityRefused, plain
from engine.core.manifests.times import TIMES, TimeForm, TimeRefused

Json = dict[str, Any]

VERSION: Final = "1.37"
DOCUMENT: Final = Path(__file__).parent / "openapi" / f"v{VERSION}.json.gz"

_AMOUNT: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_JSON_TYPES: Final = {"string": str, "boolean": bool, "number": float, "object": dict}
_BITS: Final = {"int32": 31, "int64": 63}
_EMPTY: Final = {"boolean": False, "number": 0, "integer": 0, "array": [], "object": {}}
_NUMBER_AND_UNIT: Final = re.compile(r"([0-9.]*)\s*(.*)", re.DOTALL)
#: What people write after a number, in lower case, and the suffix of a quantity that means it.
_UNITS: Final = {
    **{f"{one.lower()}b": one for one in ("k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi")},
    **{one.lower(): one for one in ("Ki", "Mi", "Gi", "Ti", "Pi", "k", "G", "T", "P")},
    **dict.fromkeys(("b", "byte", "bytes", "core", "cores", "cpu", "cpus"), ""),
    **dict.fromkeys(("millicore", "millicores", "millicpu"), "m"),
}


class Problem(NamedTuple):
    """One thing wrong with a manifest, at a path of keys and indices."""

    path: Steps
    text: str
    is_unknown: bool = False
    is_outside_enum: bool = False

    def __str__(self) -> str:
        return f"{written(self.path)}: {self.text}" if self.path else self.text


@cache
def read_document() -> Json:
    """The OpenAPI document, read from its file the first time.

    Who may open no file later calls this first.
    """
    found: Json = msgspec.json.decode(gzip.decompress(DOCUMENT.read_bytes()))
    return found


@cache
def _schema(name: str) -> Json:
    """A schema of the document; references in it are not resolved."""
    found: Json = read_document()["schemas"][name]
    return found


def _resolved(schema: Json) -> Json:
    """*schema*, or what it refers to."""
    return _schema(schema["$ref"]) if "$ref" in schema else schema


def _of(kind: Kind) -> Json:
    return _schema(read_document()["kinds"][f"{kind.api_version} {kind.kind}"])


class Shape:
    """How patches merge the values at one place, as the document has it.

    Attributes:
        is_merged: A list keeps what a patch does not name. False for one that is replaced.
        merge_key: By which member elements are the same; None if they are plain values.
        is_replaced: An object is replaced, not merged.
    """

    __slots__ = ("_schema", "is_merged", "is_replaced", "merge_key")

    def __init__(self, schema: Json) -> None:
        strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
        self.is_merged: bool = "merge" in strategies
        self.is_replaced: bool = "replace" in strategies
        self.merge_key: str | None = schema.get("x-kubernetes-patch-merge-key")
        self._schema = _resolved(schema)

    def member(self, name: str) -> "Shape":
        """That of a member; of one that the document does not know, nothing merges."""
        any_member = self._schema.get("additionalProperties") or {}
        return Shape(self._schema.get("properties", {}).get(name, any_member))

    @property
    def element(self) -> "Shape":
        """That of the elements of a list."""
        return Shape(self._schema.get("items") or {})


@cache
def shape_of(kind: Kind) -> Shape:
    """How patches merge objects of *kind*."""
    return Shape(_of(kind))


# --- types -----------------------------------------------------------------------------------


#: The schemas whose types are being made: one that contains itself is not looked into again.
_open: Final[set[str]] = set()


@cache
def _record(name: str, *, with_enums: bool) -> Any:
    """The type of a schema with members. Every member may be absent."""
    _open.add(name)
    try:
        return _new_record(name, with_enums=with_enums)
    finally:
        _open.remove(name)


def _new_record(name: str, *, with_enums: bool) -> Any:
    members = _schema(name)["properties"]
    # Members may be called like keywords (`from`).
    safe = {one: f"{one}_" if iskeyword(one) else one for one in members}
    return msgspec.defstruct(
        name.rpartition(".")[2],
        [(safe[one], _type(it, with_enums=with_enums), None) for one, it in members.items()],
        rename={python: one for one, python in safe.items() if python != one},
        forbid_unknown_fields=True,
        gc=False,
    )


def _type(schema: Json, *, with_enums: bool) -> Any:
    """The Python type of a schema, with null, which is as good as no value."""
    return _plain_type(schema, with_enums=with_enums) | None


def _plain_type(schema: Json, *, with_enums: bool) -> Any:
    name = schema.get("$ref", "")
    if name == _AMOUNT:
        return str | int | float
    if name in TIMES:
        # A time of another form may be right as well: a closer look says so.
        return Annotated[str, msgspec.Meta(pattern=TIMES[name].stored)]
    if name and "properties" in _schema(name):
        return Json if name in _open else _record(name, with_enums=with_enums)
    schema = _resolved(schema)
    if "oneOf" in schema:
        return str | int
    match schema.get("type"):
        case "array":
            # A list has no gaps, though it may be null itself.
            return list[_plain_type(schema["items"], with_enums=with_enums)]  # type: ignore[misc]  # made at run time
        case "object" if "additionalProperties" in schema:
            return dict[str, _type(schema["additionalProperties"], with_enums=with_enums)]  # type: ignore[misc]  # as above
        case "integer":
            most = 2 ** _BITS[schema.get("format", "int64")]
            return Annotated[int, msgspec.Meta(ge=-most, lt=most)] if most < 2**63 else int
        case "string" if with_enums and "enum" in schema:
            # The empty text is no value, too.
            return Literal[("", *schema["enum"])]
        case other:
            return _JSON_TYPES.get(str(other), Any)


@cache
def _type_of(kind: Kind, *, with_enums: bool) -> Any:
    return _record(
        read_document()["kinds"][f"{kind.api_version} {kind.kind}"], with_enums=with_enums
    )


def read_types(kind: Kind, body: Json, *, is_strict: bool = False) -> Json:
    """*body* without the fields that its kind has not, and with times as they are stored.

    As the API server decodes it. Refuses with 400 a field of a type that it cannot have and, if
    *is_strict*, an unknown field (`fieldValidation=Strict`).
    """
    try:
        msgspec.convert(body, _type_of(kind, with_enums=False))
    except msgspec.ValidationError:
        pass
    else:
        return body
    found = [one for one in _problems(body, _of(kind), (), kind) if not one.is_outside_enum]
    unknown = [one.path for one in found if one.is_unknown]
    for problem in found:
        if not problem.is_unknown:
            raise undecodable(kind, f"json: {problem}")
    if is_strict and unknown:
        listed = ", ".join(f'unknown field "{written(path)}"' for path in unknown)
        raise undecodable(kind, f"strict decoding error: {listed}")
    known: Json = _mapped(_without(body, frozenset(unknown), ()), _of(kind), _stored_time)
    return known


def _without(value: Any, unknown: frozenset[Steps], at: Steps) -> Any:
    if isinstance(value, list):
        return [_without(item, unknown, (*at, index)) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {
        key: _without(item, unknown, (*at, key))
        for key, item in value.items()
        if (*at, key) not in unknown
    }


def _mapped(value: Any, schema: Json, change: Callable[[Any, str], Any]) -> Any:
    """*value* with *change* made of all in it that is no list and no object.

    It is given what it changes, and the name of the schema, "" if that has none.
    """
    if not isinstance(value, list | dict):
        return change(value, schema.get("$ref", ""))
    schema = _resolved(schema)
    if isinstance(value, list):
        return [_mapped(item, schema.get("items", {}), change) for item in value]
    members, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
    return {key: _mapped(item, members.get(key, others), change) for key, item in value.items()}


def _stored_time(value: Any, name: str) -> Any:
    form = TIMES.get(name)
    return value if form is None or not isinstance(value, str) else form.read(value)


def type_problems(kind: Kind, body: Json) -> list[Problem]:
    """Every wrong type, unknown field and value outside an enum in *body*, with what was meant."""
    try:
        msgspec.convert(body, _type_of(kind, with_enums=True))
    except msgspec.ValidationError:
        return list(_problems(body, _of(kind), (), kind))
    return []


def without_nulls(kind: Kind, body: Json) -> Json:
    """*body* without null members: an absent field and a null one are the same.

    In a map or a list, null is the empty value of its type: no text, an amount of zero.
    """
    found: Json = _without_nulls(body, _of(kind))
    return found


def _empty(schema: Json) -> Any:
    """What Go has for a value that is not there."""
    if schema.get("$ref") == _AMOUNT:
        return "0"
    return _EMPTY.get(_resolved(schema).get("type", ""), "")


def _without_nulls(value: Any, schema: Json) -> Any:
    schema = _resolved(schema)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_empty(items) if it is None else _without_nulls(it, items) for it in value]
    if not isinstance(value, dict):
        return value
    if "additionalProperties" in schema:
        others = schema["additionalProperties"]
        return {
            k: _empty(others) if v is None else _without_nulls(v, others) for k, v in value.items()
        }
    members = schema.get("properties", {})
    return {
        key: _without_nulls(item, members.get(key, {}))
        for key, item in value.items()
        if item is not None
    }


def without_empties(kind: Kind, body: Json) -> Json:
    """*body* without empty lists and maps, which are as good as absent where objects are compared.

    An object without members stays: an empty selector selects, `{all: {}}` is not `{single: {}}`.
    """
    found: Json = _without_empties(body, _of(kind))
    return found


def _without_empties(value: Any, schema: Json) -> Any:
    schema = _resolved(schema)
    if isinstance(value, list):
        return [_without_empties(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    members, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
    return {
        key: _without_empties(item, members.get(key, others))
        for key, item in value.items()
        if item or not (isinstance(item, list) or _is_map(item, members.get(key, others)))
    }


def _is_map(value: Any, schema: Json) -> bool:
    """True for a map of any keys; an object that has no members is none."""
    return isinstance(value, dict) and "additionalProperties" in _resolved(schema)


def plain_amounts(kind: Kind, body: Json) -> Json:
    """*body* with every quantity in canonical text. Refuses malformed ones with 400."""
    try:
        found: Json = _mapped(body, _of(kind), _plain_amount)
    except QuantityRefused as error:
        raise undecodable(kind, str(error)) from error
    return found


def _plain_amount(value: Any, name: str) -> Any:
    return plain(value) if name == _AMOUNT else value


def amount_problems(kind: Kind, body: Json) -> Iterator[Problem]:
    """Every text in *body* that should be a quantity and is none, with what was meant."""
    return _amount_problems(body, _of(kind), ())


def _amount_problems(value: Any, schema: Json, at: Steps) -> Iterator[Problem]:
    if schema.get("$ref") == _AMOUNT:
        try:
            plain(value)
        except QuantityRefused:
            yield Problem(
                at, f"want a quantity such as `500m` or `2Gi`, got `{value}`{_unit(value)}"
            )
        return
    schema = _resolved(schema)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _amount_problems(item, schema.get("items", {}), (*at, index))
    elif isinstance(value, dict):
        members, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
        for key, item in value.items():
            yield from _amount_problems(item, members.get(key, others), (*at, key))


def _unit(value: Any) -> str:
    """A hint for an amount with the unit that people say: `2 GB`, `512MiB`, `1 core`."""
    number, unit = _NUMBER_AND_UNIT.fullmatch(str(value).strip()).groups()  # type: ignore[union-attr]  # matches any text
    suffix = _UNITS.get(unit.lower())
    return f"; did you mean `{number}{suffix}`?" if number and suffix is not None else ""


# --- problems --------------------------------------------------------------------------------


def _problems(value: Any, schema: Json, at: Steps, kind: Kind) -> Iterator[Problem]:
    """What is wrong with *value*, which is at the path *at* of an object of *kind*."""
    form = TIMES.get(schema.get("$ref", ""))
    schema = _resolved(schema)
    if value is None:
        return
    wanted = _wanted(value, schema)
    if not wanted and form is not None:
        wanted = _wanted_time(value, form)
    if wanted:
        yield Problem(at, f"want {wanted}, got {shown(value)}")
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], (*at, index), kind)
    elif isinstance(value, dict):
        members = schema.get("properties")
        others = schema.get("additionalProperties")
        for key, item in value.items():
            if members is not None and key not in members:
                yield Problem((*at, key), _meant(key, members, at, kind), is_unknown=True)
            elif members is not None:
                yield from _problems(item, members[key], (*at, key), kind)
            elif others:
                yield from _problems(item, others, (*at, key), kind)
    elif "enum" in schema and value not in ("", *schema["enum"]):
        listed = " or ".join(f"`{one}`" for one in schema["enum"])
        text = f"want {listed}, got `{value}`{_hint(str(value), schema['enum'])}"
        yield Problem(at, text, is_outside_enum=True)


def _wanted(value: Any, schema: Json) -> str:
    """The type that *schema* wants if *value* is of another, else empty."""
    if isinstance(value, bool):
        kinds = {"boolean"}
    elif isinstance(value, int):
        kinds = {"integer", "number"}
    else:
        kinds = {{str: "string", float: "number", list: "array", dict: "object"}[type(value)]}
    types = [one["type"] for one in schema.get("oneOf", [schema]) if "type" in one]
    if types and not kinds & {*types}:
        return " or ".join(f"{_ARTICLES[one]} {one}" for one in types)
    bits = _BITS.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        return f"an integer of {bits + 1} bits"
    return ""


def _wanted_time(value: str, form: TimeForm) -> str:
    try:
        form.read(value)
    except TimeRefused:
        return f"a time such as `{form.example}`"
    return ""


_ARTICLES: Final = {
    "string": "a", "boolean": "a", "number": "a", "integer": "an", "array": "an", "object": "an",
}  # fmt: skip


def _hint(name: str, known: Mapping[str, Any] | list[str]) -> str:
    lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), lower, 1)
    return f"; did you mean `{lower[close[0]]}`?" if close else ""


def _meant(key: str, members: Json, at: Steps, kind: Kind) -> str:
    """What is wrong with a field that is not one of *members*: a typing error, or its place."""
    if hint := _hint(key, members):
        return f"no such field{hint}"
    places = list(_places(key, _of(kind), (), frozenset()))
    if not places:
        return "no such field"
    # The nearest place is the one that shares most of the way.
    nearest = max(places, key=lambda path: (_shared(path, at), -len(path)))
    where = written(nearest[_shared(nearest, at) :] or nearest).replace("[0]", "[]")
    return f"no such field here; it belongs in `{where}`"


def _shared(path: Steps, at: Steps) -> int:
    """How many steps two paths have in common; any index is as good as another."""
    count = 0
    for one, other in zip(path, at, strict=False):
        if one != other and not (isinstance(one, int) and isinstance(other, int)):
            break
        count += 1
    return count


def _places(key: str, schema: Json, at: Steps, above: frozenset[str]) -> Iterator[Steps]:
    """The paths in *schema*, which is within those called *above*, that have a member *key*."""
    name = schema.get("$ref", "")
    if name in above:
        return
    schema, above = _resolved(schema), above | {name} if name else above
    if "items" in schema:
        yield from _places(key, schema["items"], (*at, 0), above)
    members = schema.get("properties") or {}
    if key in members:
        yield at
    for member, inner in members.items():
        yield from _places(key, inner, (*at, member), above)
