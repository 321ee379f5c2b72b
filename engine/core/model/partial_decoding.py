"""Decodes an object of which some fields have values that are not understood: the rest is kept.

Owns what of such an object is readable, and the list of what is not: `metadata.unread`. Whatever
depends on the object must not take it for one that is not there or leaves these fields out.
"""

import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from engine.lib.deep_json import UNREADABLE, decoded_deeply
from engine.lib.printable import short

# Of a message, and of the value that it quotes: enough to find the field in the object.
_MOST_FIELDS: Final = 5
_MOST_CHARACTERS: Final = 80

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Unreadable(Exception):
    """A value has no readable part; the message says what was expected and what came."""


class _Part(typing.NamedTuple):
    key: Any
    path: str
    kind: Any
    raw: msgspec.Raw


def decoded_in_part(decode: Callable[[bytes], Any], kind: type[Any], raw: bytes) -> Any:
    """What *decode* makes of *raw*; if it refuses that, the *kind* of what can be read of it.

    Fields that cannot be read are then in its `metadata.unread`, each with what was expected and
    what came, and otherwise as if they were left out. Raises what *decode* raises for what is no
    JSON object.
    """
    try:
        return decode(raw)
    except UNREADABLE:
        unread: list[str] = []
        try:
            found = _read(kind, raw, "", unread)
        except _Unreadable:
            found = None
        if found is None or not unread:
            raise
        more = len(unread) - _MOST_FIELDS
        listed = (*unread[:_MOST_FIELDS], *([f"and {more} more"] if more > 0 else []))
        meta = msgspec.structs.replace(found.metadata, unread=listed)
        return msgspec.structs.replace(found, metadata=meta)


def _read(kind: Any, raw: bytes, path: str, unread: list[str]) -> Any:
    """A value of *kind*; what of it cannot be read is left out, and added to *unread*."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except UNREADABLE as error:
        why = error
    if isinstance(kind, types.UnionType):
        kind, *others = (one for one in typing.get_args(kind) if one is not types.NoneType)
        if others:
            raise _unreadable(why, raw)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {one.encode_name: one for one in msgspec.structs.fields(kind)}
        given = [
            (fields[name], part)
            for name, part in _split(_members, raw, why).items()
            if name in fields
        ]
        parts = [
            _Part(one.name, f"{path}.{one.encode_name}", one.type, part) for one, part in given
        ]
        return kind(**dict(_each(parts, unread)))
    if origin is dict:
        named = _split(_members, raw, why)
        parts = [_Part(name, f"{path}[{name}]", arguments[1], part) for name, part in named.items()]
        return dict(_each(parts, unread))
    if origin in (tuple, list):
        numbered = enumerate(_split(_items, raw, why))
        parts = [_Part(place, f"{path}[{place}]", arguments[0], part) for place, part in numbered]
        return origin(value for _, value in _each(parts, unread))
    raise _unreadable(why, raw)


def _each(parts: Iterable[_Part], unread: list[str]) -> Iterator[tuple[Any, Any]]:
    """The keys of *parts* with their values, without nulls, which stand for what is left out."""
    for part in parts:
        raw = bytes(part.raw)
        if raw == b"null":
            continue
        try:
            yield part.key, _read(part.kind, raw, part.path, unread)
        except _Unreadable as error:
            unread.append(f"{part.path.removeprefix('.')}: {error}")


def _split(decode: Callable[[bytes], Any], raw: bytes, why: Exception) -> Any:
    """The parts of *raw*, each as its JSON text."""
    try:
        return decoded_deeply(decode, raw)
    except UNREADABLE:
        raise _unreadable(why, raw) from None


def _unreadable(why: Exception, raw: bytes) -> _Unreadable:
    if isinstance(why, RecursionError):
        return _Unreadable("it nests too deep")
    # msgspec's own words end with the path within the value, which is the value itself.
    expected, _, got = str(why).partition(" - at ")[0].removeprefix("Expected ").partition(", got ")
    value = short(raw[:_MOST_CHARACTERS].decode(errors="replace"))
    if not got:
        return _Unreadable(f"{expected}, got `{value}`")
    return _Unreadable(f"want {expected}, got `{value}`")
