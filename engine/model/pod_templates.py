"""What pods of one owner have in common, kept in memory once.

Owns the sharing between records that were decoded from different texts. A workload's pods are made
of one template, so most of what two of them say is equal; as records never change, one may stand
for both. At 30,000 pods of 300 workloads that is half of what they take.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from engine.model.decoding import decode_object
from engine.model.objects import PodManifest, PodSpec, PodStatus
from engine.model.pod import Pod

# Owners whose last pod is remembered. It outlives them, so this bounds what is kept for nobody.
_MOST_OWNERS: Final = 4_096


def _fields(names: Iterable[str]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields of these names, and what gets all of them at once."""
    names = tuple(names)
    return names, operator.attrgetter(*names)


_OF_METADATA: Final = _fields(("namespace", "labels", "annotations", "owner_references"))
_OF_SPEC: Final = _fields(
    name for name in PodSpec.__struct_fields__ if name not in ("node_name", "scheduling_group")
)
_OF_STATUS: Final = _fields(PodStatus.__struct_fields__)


class PodTemplates:
    """Decodes pods and lets those of one owner share the parts that are equal."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, PodManifest] = OrderedDict()

    def decode(self, raw: bytes) -> Pod:
        """The pod of a JSON text. Raises like `Pod.from_raw`."""
        manifest = decode_object(PodManifest, raw)
        owner = _owner(manifest)
        last = self._last.get(owner)
        if last is not None:
            self._last.move_to_end(owner)
            _share(last.metadata, manifest.metadata, _OF_METADATA)
            _share(last.spec, manifest.spec, _OF_SPEC)
            _share(last.status, manifest.status, _OF_STATUS)
        elif len(self._last) >= _MOST_OWNERS:
            self._last.popitem(last=False)
        self._last[owner] = manifest
        return Pod(manifest, raw)


def _owner(manifest: PodManifest) -> str:
    """Who made the pod; pods that nobody owns are taken together by namespace."""
    controller = manifest.metadata.controller
    return controller.uid if controller else f"namespace {manifest.metadata.namespace}"


def _share(
    known: msgspec.Struct,
    new: msgspec.Struct,
    fields: tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]],
) -> None:
    """Put what *known* has in place of what is equal in *new*, which nobody else has seen."""
    names, get = fields
    for name, before, value in zip(names, get(known), get(new), strict=True):
        if value is not before and value == before and type(value) is type(before):
            msgspec.structs.force_setattr(new, name, before)
