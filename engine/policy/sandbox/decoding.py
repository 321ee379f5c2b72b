"""Typed decoders for what translated hooks are given.

Owns the classes of views and records. A decoder accepts exactly the declared types, so every value
that reaches a translated hook is as its translation assumes; for anything else it raises, and the
interpreter answers. Fields that the hook reads are required, others optional.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from engine.policy.sandbox.translation.kinds import Dict, List, Plain, Struct, Type, Untranslatable

_INT: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_PLAIN: Final[dict[str, Any]] = {
    "none": None,
    "bool": bool,
    "int": _INT,
    "float": float,
    "str": str,
    "any": Any,
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

    *reads* are the fields that it reads, by record; *whole* are the records that the interpreter
    makes field by field, so that every field is required; with *names*, the name of a node is
    decoded if there is one. Fields that are not read are not decoded.
    """

    def __init__(
        self, reads: Mapping[str, set[str]], whole: frozenset[str], *, names: bool
    ) -> None:
        self._reads = reads
        self._whole = whole
        self._names = names
        self._classes: dict[str, Any] = {}

    def decoder(self, type_: Type) -> msgspec.json.Decoder[Any]:
        """A decoder of JSON texts that are a *type_*."""
        return msgspec.json.Decoder(self._annotation(type_))

    def _annotation(self, type_: Type) -> Any:
        found: Any = None
        for index, one in enumerate(sorted(type_, key=repr)):
            if isinstance(one, Plain):
                annotation = _PLAIN[one.name]
            elif isinstance(one, List):
                annotation = list[self._annotation(one.item)]  # type: ignore[misc]  # made here
            elif isinstance(one, Dict):
                annotation = dict[str, self._annotation(one.value)]  # type: ignore[misc]  # the same
            elif isinstance(one, Struct):
                annotation = self._class(one)
            else:
                raise Untranslatable("a type that JSON does not have")
            if one == Plain("any"):
                return Any
            found = annotation if not index else (found | annotation)
        return found

    def _class(self, struct: Struct) -> Any:
        made = self._classes.get(struct.record)
        if made is None:
            read = self._reads.get(struct.record, set())
            required: list[Any] = []
            optional: list[Any] = []
            for name, type_ in struct.fields:
                if name in read:
                    required.append((name, self._annotation(type_)))
                elif struct.record in self._whole:
                    required.append((name, msgspec.Raw))
                elif name == "name" and self._names and struct.record == "view:node":
                    optional.append((name, str | msgspec.UnsetType, msgspec.UNSET))
                else:
                    optional.append((name, msgspec.Raw, _NOTHING))
            made = self._classes[struct.record] = msgspec.defstruct(
                "view",
                [*required, *optional],
                forbid_unknown_fields=struct.record != "extra",
                frozen=True,
                eq=False,
                gc=False,
            )
        return made
