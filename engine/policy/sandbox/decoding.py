"""Typed decoders for what translated hooks are given.

Owns the classes of views and records. A decoder accepts exactly the declared types, so every value
that reaches a translated hook is as its translation assumes; for anything else it raises, and the
interpreter answers. Fields that the hook reads are required, others optional.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from engine.language.values import Items, Map, Opaque, Plain, Struct, Value, View
from engine.policy.sandbox.translation.kinds import Given, SchemaTypes, Untranslatable

_INT: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_PLAIN: Final[dict[str, Any]] = {
    "none": None,
    "bool": bool,
    "int": _INT,
    "float": float,
    "str": str,
}

_NOTHING: Final = msgspec.Raw(b"null")

# A decoder imports modules when it is made; inside the sandbox no file can be opened any more.
msgspec.json.Decoder(
    msgspec.defstruct(
        "Sample", [("a", dict[str, list[Annotated[int, msgspec.Meta(ge=0)] | float | None]])]
    )
)


class Decoders:
    """The decoders of one hook.

    *reads* are the fields that it reads of the views and records of *schema*; with *names*, the
    name of a node is decoded if there is one. Fields that are not read are not decoded, and
    required only where the interpreter makes a record field by field.
    """

    def __init__(
        self, schema: SchemaTypes, reads: Mapping[Given, set[str]], *, names: bool
    ) -> None:
        self._schema = schema
        self._reads = reads
        self._names = names
        self._classes: dict[Given | Struct, Any] = {}

    def decoder(self, value: Value) -> msgspec.json.Decoder[Any]:
        """A decoder of JSON texts that are a *value*."""
        return msgspec.json.Decoder(self._annotation(value))

    def _annotation(self, value: Value) -> Any:
        found: Any = None
        if Opaque() in value:
            return Any
        for index, one in enumerate(sorted(value, key=repr)):
            if isinstance(one, Plain):
                annotation = _PLAIN[one.type]
            elif isinstance(one, Items):
                annotation = list[self._annotation(one.items)]  # type: ignore[misc]  # made here
            elif isinstance(one, Map):
                annotation = dict[str, self._annotation(one.values)]  # type: ignore[misc]  # the same
            elif isinstance(one, Given | Struct):
                annotation = self._classes.get(one)
                if annotation is None:
                    annotation = self._classes[one] = self._class(one)
            else:
                raise Untranslatable("a type that JSON does not have")
            found = annotation if not index else (found | annotation)
        return found

    def _class(self, one: Given | Struct) -> Any:
        if isinstance(one, Struct):
            held = [(name, self._annotation(value)) for name, value in one.fields]
            return _view(held, is_closed=False)
        required: list[Any] = []
        optional: list[Any] = []
        read = self._reads.get(one, set())
        for name, text in self._schema.fields(one).items():
            if name in read:
                required.append((name, self._annotation(self._schema.of(text))))
            elif one in self._schema.whole:
                required.append((name, msgspec.Raw))
            elif name == "name" and self._names and one == View("node"):
                optional.append((name, str | msgspec.UnsetType, msgspec.UNSET))
            else:
                optional.append((name, msgspec.Raw, _NOTHING))
        return _view([*required, *optional], is_closed=True)


def _view(fields: list[Any], *, is_closed: bool) -> Any:
    return msgspec.defstruct(
        "view", fields, forbid_unknown_fields=is_closed, frozen=True, eq=False, gc=False
    )
