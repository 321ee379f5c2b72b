"""Checked CEL expressions as trees: what the CEL library makes of a text, in plain nodes.

Owns compiling (syntax, macros and types are the library's) and reading the tree that the library
gives out, which is a protocol buffer of the public schema `cel.expr.CheckedExpr`. Evaluating a
tree is `evaluation.py`.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional

from engine.core.scheduling.devices.values import Uint

LONGEST_EXPRESSION: Final = 10 * 1024
"""In bytes; the API server accepts no longer ones."""


class CompileError(ValueError):
    """A text that is not an expression over a device; the message is the compiler's."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable, a type, or a variable of a comprehension."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or if there is such a field (`has`)."""

    operand: "Node"
    field: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator; a method has a target."""

    function: str
    target: "Node | None"
    args: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list literal; *optionals* are the places that may be absent."""

    elements: "tuple[Node, ...]"
    optionals: frozenset[int]


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map literal: key, value, if the value may be absent."""

    entries: "tuple[tuple[Node, Node, bool], ...]"


@dataclass(frozen=True, slots=True)
class Comprehension:
    """What `all`, `exists`, `map`, `filter` and `cel.bind` are made of."""

    variable: str
    range: "Node"
    accumulator: str
    start: "Node"
    condition: "Node"
    step: "Node"
    result: "Node"


Node = Constant | Ident | Select | Call | ListNode | MapNode | Comprehension


def compile_expression(text: str) -> Node:
    """The tree of an expression over `device` that gives a bool. Raises `CompileError`."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise CompileError(f"compilation failed: {error}") from error
    if length > LONGEST_EXPRESSION:
        raise CompileError(f"too long: may not be more than {LONGEST_EXPRESSION} bytes")
    try:
        return _compile(_ENVIRONMENT, text)
    except CompileError as problem:
        # Two things that Kubernetes allows and the library's checker does not know.
        if _TESTED_FIELD.search(text):
            return _compile(_ENVIRONMENT_OF_FIELDS, text)
        if _is_mixed_comparison(str(problem)):
            return _compile(_ENVIRONMENT, text, disable_check=True)
        raise


def _compile(environment: Any, text: str, *, disable_check: bool = False) -> Node:
    try:
        compiled = environment.compile(text, disable_check)
        kind = "DYN" if disable_check else compiled.return_type().name()
        tree = compiled.serialize()
    except (RuntimeError, ValueError) as error:
        raise CompileError(f"compilation failed: {_plain(str(error))}") from error
    if kind not in ("BOOL", "DYN"):
        raise CompileError(f"must evaluate to bool or the unknown type, not {kind.lower()}")
    return _read_tree(tree)


# A field of `device` itself that is tested for, which is always there.
_TESTED_FIELD: Final = re.compile(
    r"\bhas\(\s*device\.(driver|attributes|capacity|allowMultipleAllocations)\s*\)"
)
# Numbers of two types compared; at run time that is no problem.
_MIXED_COMPARISON: Final = re.compile(
    r"ERROR: <input>:[0-9]+:[0-9]+: found no matching overload for '_(<|<=|>|>=)_' "
    r"applied to '\((int|uint|double), (int|uint|double)\)'"
)


def _is_mixed_comparison(message: str) -> bool:
    return message.count("ERROR: ") == len(_MIXED_COMPARISON.findall(message)) > 0


def _plain(message: str) -> str:
    """*message* without the library's status codes around it."""
    message = message.removeprefix("INVALID_ARGUMENT: ")
    for code in ("INVALID_ARGUMENT", "CANCELLED", "INTERNAL"):
        message = message.removesuffix(f" [{code}]")
    return message


# --- what expressions may use ----------------------------------------------------------------

_T = cel.Type
_QUANTITY = _T.AbstractType("kubernetes.Quantity")
_SEMVER = _T.AbstractType("kubernetes.Semver")
_LIST = _T.List(_T.DYN)


def _function(name: str, *overloads: tuple[str, Any, list[Any]], member: bool = True) -> Any:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(overload, result, parameters, is_member=member)
            for overload, result, parameters in overloads
        ],
    )


def _environment(fields: dict[str, Any]) -> Any:
    compared = [("is_greater_than", _T.BOOL), ("is_less_than", _T.BOOL), ("compare_to", _T.INT)]
    functions = [
        _function("quantity", ("string_to_quantity", _QUANTITY, [_T.STRING]), member=False),
        _function("isQuantity", ("is_quantity_string", _T.BOOL, [_T.STRING]), member=False),
        _function(
            "semver",
            ("string_to_semver", _SEMVER, [_T.STRING]),
            ("string_bool_to_semver", _SEMVER, [_T.STRING, _T.BOOL]),
            member=False,
        ),
        _function(
            "isSemver",
            ("is_semver_string", _T.BOOL, [_T.STRING]),
            ("is_semver_string_bool", _T.BOOL, [_T.STRING, _T.BOOL]),
            member=False,
        ),
        *(
            _function(
                _camel(name),
                (f"quantity_{name}", result, [_QUANTITY, _QUANTITY]),
                (f"semver_{name}", result, [_SEMVER, _SEMVER]),
            )
            for name, result in compared
        ),
        _function("sign", ("quantity_sign", _T.INT, [_QUANTITY]), member=False),
        _function("isInteger", ("quantity_is_integer", _T.BOOL, [_QUANTITY])),
        _function("asInteger", ("quantity_get_int", _T.INT, [_QUANTITY])),
        _function("asApproximateFloat", ("quantity_get_float", _T.DOUBLE, [_QUANTITY])),
        *(
            _function(
                name,
                (f"quantity_{name}", _QUANTITY, [_QUANTITY, _QUANTITY]),
                (f"quantity_{name}_int", _QUANTITY, [_QUANTITY, _T.INT]),
            )
            for name in ("add", "sub")
        ),
        *(_function(name, (f"semver_{name}", _T.INT, [_SEMVER])) for name in _VERSION_PARTS),
        *(
            _function(f"sets.{name}", (f"list_sets_{name}", _T.BOOL, [_LIST, _LIST]), member=False)
            for name in ("contains", "intersects", "equivalent")
        ),
        _function("isSorted", ("list_is_sorted_bool", _T.BOOL, [_LIST])),
        _function("includes", ("list_includes_dyn_dyn", _T.BOOL, [_T.DYN, _T.DYN])),
        *(_function(name, (f"list_{name}", _T.DYN, [_LIST])) for name in ("sum", "min", "max")),
        *(
            _function(
                name,
                (f"list_a_{name}_int", _T.INT, [_LIST, _T.DYN]),
                (f"string_{name}_string", _T.INT, [_T.STRING, _T.STRING]),
                (f"string_{name}_string_int", _T.INT, [_T.STRING, _T.STRING, _T.INT]),
            )
            for name in ("indexOf", "lastIndexOf")
        ),
        _function("charAt", ("string_char_at_int", _T.STRING, [_T.STRING, _T.INT])),
        _function(
            "join",
            ("list_join", _T.STRING, [_T.List(_T.STRING)]),
            ("list_join_string", _T.STRING, [_T.List(_T.STRING), _T.STRING]),
        ),
        *(
            _function(name, (f"string_{name}", _T.STRING, [_T.STRING]))
            for name in ("lowerAscii", "upperAscii", "trim")
        ),
        _function(
            "replace",
            ("string_replace", _T.STRING, [_T.STRING] * 3),
            ("string_replace_int", _T.STRING, [_T.STRING, _T.STRING, _T.STRING, _T.INT]),
        ),
        _function(
            "split",
            ("string_split", _T.List(_T.STRING), [_T.STRING, _T.STRING]),
            ("string_split_int", _T.List(_T.STRING), [_T.STRING, _T.STRING, _T.INT]),
        ),
        _function(
            "substring",
            ("string_substring_int", _T.STRING, [_T.STRING, _T.INT]),
            ("string_substring_int_int", _T.STRING, [_T.STRING, _T.INT, _T.INT]),
        ),
        _function("slice", ("list_slice", _LIST, [_LIST, _T.INT, _T.INT])),
        *(
            _function(name, (f"list_{name}", _LIST, [_LIST]))
            for name in ("flatten", "distinct", "reverse", "sort")
        ),
        _function("lists.range", ("lists_range", _T.List(_T.INT), [_T.INT]), member=False),
    ]
    return cel.NewEnv(
        variables={"device": _T.Map(_T.STRING, _T.DYN), **fields},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional()],
        functions=functions,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_VERSION_PARTS = ("major", "minor", "patch")
_ENVIRONMENT_OF_FIELDS = _environment({})
_ENVIRONMENT = _environment(
    {
        "device.driver": _T.STRING,
        "device.allowMultipleAllocations": _T.BOOL,
        "device.attributes": _T.Map(_T.STRING, _T.Map(_T.STRING, _T.DYN)),
        "device.capacity": _T.Map(_T.STRING, _T.Map(_T.STRING, _QUANTITY)),
    }
)


# --- reading the tree ------------------------------------------------------------------------

_DEVICE_FIELDS: Final = frozenset({"driver", "allowMultipleAllocations", "attributes", "capacity"})
_NAMESPACES: Final = frozenset({"sets", "lists", "optional"})

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: number, and a number or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        value: Any
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            width = 8 if kind == _FIXED64 else 4
            value, at = data[at : at + width], at + width
        yield number, value


def _read_tree(data: bytes) -> Node:
    # google.protobuf.Any{type_url: 1, value: 2}; CheckedExpr{expr: 4}, ParsedExpr{expr: 2}.
    message = dict(_fields(data))
    place = 4 if message[1].endswith(b".CheckedExpr") else 2
    return _read(next(value for number, value in _fields(message[2]) if number == place))


def _int64(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _read_constant(data: bytes) -> Constant:
    for number, value in _fields(data):
        match number:
            case 1:
                return Constant(None)
            case 2:
                return Constant(bool(value))
            case 3:
                return Constant(_int64(value))
            case 4:
                return Constant(Uint(value))
            case 5:
                return Constant(struct.unpack("<d", value)[0])
            case 6:
                return Constant(value.decode())
            case 7:
                return Constant(value)
    raise CompileError("a literal of an unknown kind")


def _read(data: bytes) -> Node:
    """One `Expr`: its kind is the number of the one field that is set next to the id."""
    for number, value in _fields(data):
        match number:
            case 3:
                return _read_constant(value)
            case 4:
                return Ident(next(v.decode() for n, v in _fields(value) if n == 1))
            case 5:
                return _read_select(value)
            case 6:
                return _read_call(value)
            case 7:
                elements = tuple(_read(v) for n, v in _fields(value) if n == 1)
                return ListNode(elements, _optional_places(value))
            case 8:
                return MapNode(tuple(_read_entry(v) for n, v in _fields(value) if n == 2))
            case 9:
                return _read_comprehension(value)
    raise CompileError("an expression of an unknown kind")


def _read_select(data: bytes) -> Select:
    values = dict(_fields(data))
    operand, field = _read(values[1]), values[2].decode()
    if operand == Ident("device") and field not in _DEVICE_FIELDS:
        raise CompileError(f"compilation failed: undefined field '{field}'")
    return Select(operand, field, bool(values.get(3, 0)))


def _read_call(data: bytes) -> Call:
    target: Node | None = None
    function = ""
    args: list[Node] = []
    for number, value in _fields(data):
        if number == 1:
            target = _read(value)
        elif number == 2:
            function = value.decode()
        elif number == 3:
            args.append(_read(value))
    if isinstance(target, Ident) and target.name in _NAMESPACES:
        return Call(f"{target.name}.{function}", None, tuple(args))  # a tree that was not checked
    return Call(function, target, tuple(args))


def _optional_places(data: bytes) -> frozenset[int]:
    places: set[int] = set()
    for number, value in _fields(data):
        if number == 2:
            if isinstance(value, int):
                places.add(value)
            else:  # packed
                at = 0
                while at < len(value):
                    place, at = _varint(value, at)
                    places.add(place)
    return frozenset(places)


def _read_entry(data: bytes) -> tuple[Node, Node, bool]:
    values = dict(_fields(data))
    if 3 not in values:
        raise CompileError("messages cannot be made here")
    return _read(values[3]), _read(values[4]), bool(values.get(5, 0))


def _read_comprehension(data: bytes) -> Comprehension:
    values = dict(_fields(data))
    if values.get(8):
        raise CompileError("comprehensions over two variables are not supported")
    return Comprehension(
        variable=values[1].decode(),
        range=_read(values[2]),
        accumulator=values[3].decode(),
        start=_read(values[4]),
        condition=_read(values[5]),
        step=_read(values[6]),
        result=_read(values[7]),
    )
