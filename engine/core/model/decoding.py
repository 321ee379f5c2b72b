"""Decodes pods and nodes; a malformed quantity never makes the whole object fail.

Owns the repair of values that the typed records refuse: nulls, and quantities that are not even
text or numbers. A repaired quantity keeps its JSON text, so that it is reported where it stands.
"""

import json
from typing import Any, Final, TypeVar

import msgspec

from engine.core.model.objects import from_plain

T = TypeVar("T")

_QUANTITY_MAPS: Final = frozenset(
    {"requests", "limits", "overhead", "allocatedResources", "allocatable", "capacity"}
)
_TEXT_MAPS: Final = frozenset({"labels", "annotations", "matchLabels", "nodeSelector"})
_MAX_DIGITS: Final = 300

_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _repaired_quantities(value: Any) -> Any:
    if value is None:
        return None  # `from_plain` takes it out
    if not isinstance(value, dict):
        # Not a map at all: kept under no name, where it is reported and counts for nothing.
        return {"": f"{json.dumps(value)} in place of a map"}
    return {
        name: amount
        if isinstance(amount, str | int | float) and not isinstance(amount, bool)
        else json.dumps(amount)
        for name, amount in value.items()
    }


def _repaired(value: Any) -> Any:
    if isinstance(value, dict):
        repaired = {}
        for key, member in value.items():
            if key in _QUANTITY_MAPS:
                repaired[key] = _repaired_quantities(member)
            elif key in _TEXT_MAPS or member is None:
                repaired[key] = member  # `from_plain` takes the nulls out
            else:
                repaired[key] = _repaired(member)
        return repaired
    if isinstance(value, list):
        return [_repaired(member) for member in value]
    return value


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS else text


def decode_object(kind: type[T], raw: bytes | str) -> T:
    """Decode one object of *kind* from its JSON text, whatever its quantities are.

    Raises `msgspec.ValidationError` when another field has a type that the API forbids, and
    `msgspec.DecodeError` (its base) when *raw* is not JSON.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    try:
        value: T = decoder.decode(raw)
    except msgspec.ValidationError:
        # Numbers beyond a float's range stay text: they are quantities, and huge.
        plain = json.loads(raw, parse_float=str, parse_int=_integer)
        value = from_plain(kind, _repaired(plain))
    return value


def object_from_plain(kind: type[T], value: Any) -> T:
    """Build one object of *kind* from plain data, whatever its quantities are.

    Raises `msgspec.ValidationError` like `decode_object`.
    """
    return from_plain(kind, _repaired(value))
