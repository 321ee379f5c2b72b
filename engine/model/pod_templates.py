"""What pods of one owner have in common, kept in memory once.

Owns the sharing between records that were decoded from different texts. A workload's pods are made
of one template, so most of what two of them say is equal; as records never change, one may stand
for both. At 30,000 pods of 300 workloads that is half of what they take.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from engine.model.decoding import decode_object
from engine.model.objects import ObjectMeta, PodManifest, PodSpec, PodStatus
from engine.model.pod import Pod

# Owners whose last pod is remembered. It outlives them, so this bounds what is kept for nobody.
_MOST_OWNERS: Final = 4_096

Record = TypeVar("Record", bound=msgspec.Struct)


#: What pods of an owner have in common, what gets all of that, and what each has for itself.
_Fields: TypeAlias = tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[str, ...]]


def _fields(kind: type[msgspec.Struct], *own: str) -> _Fields:
    """The fields of *kind* that pods of one owner have in common; *own* they rarely have."""
    names = tuple(name for name in kind.__struct_fields__ if name not in own)
    return names, operator.attrgetter(*names), own


_OF_METADATA: Final = _fields(
    ObjectMeta,
    "name",
    "uid",
    "resource_version",
    "generation",
    "creation_timestamp",
    "deletion_timestamp",
)
# Volumes: the one with the pod's token is named for each pod.
_OF_SPEC: Final = _fields(PodSpec, "node_name", "scheduling_group", "volumes")
_OF_STATUS: Final = _fields(PodStatus, "start_time")


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
            manifest = PodManifest(
                metadata=_shared(last.metadata, manifest.metadata, _OF_METADATA),
                spec=_shared(last.spec, manifest.spec, _OF_SPEC),
                status=_shared(last.status, manifest.status, _OF_STATUS),
            )
        elif len(self._last) >= _MOST_OWNERS:
            self._last.popitem(last=False)
        self._last[owner] = manifest
        return Pod(manifest, raw)


def _owner(manifest: PodManifest) -> str:
    """Who made the pod; pods that nobody owns are taken together by namespace."""
    controller = manifest.metadata.controller
    return controller.uid if controller else f"namespace {manifest.metadata.namespace}"


def _shared(known: Record, new: Record, fields: _Fields) -> Record:
    """What *new* says, with the parts of *known* in place of those that are equal."""
    names, get, own = fields
    of_its_own = {}
    for name in own:
        before, value = getattr(known, name), getattr(new, name)
        of_its_own[name] = before if value == before else value
    # Nearly always the others are equal: finding that out as a whole costs a tenth.
    other = msgspec.structs.replace(known, **of_its_own)
    if other == new:
        return other
    for name, before, value in zip(names, get(known), get(new), strict=True):
        if value is not before and value == before and type(value) is type(before):
            msgspec.structs.force_setattr(new, name, before)  # nobody else has seen it
    return new
