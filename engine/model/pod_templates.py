"""Decodes pods so that those of one owner share what is equal in memory.

Owns the sharing between records that were decoded from different texts. A workload's pods are made
of one template, so most of what two of them say is equal; as records never change, one may stand
for both. At 30,000 pods of 300 workloads that is half of what they take.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from engine.model.decoding import decode_object
from engine.model.objects import PodManifest
from engine.model.pod import Pod

# Owners whose last pod is remembered; it is kept when the owner is gone.
_MOST_OWNERS: Final = 4_096

Record = TypeVar("Record", bound=msgspec.Struct)

# The fields that differ between pods of an owner; the rest is nearly always equal.
_OWN_METADATA: Final = (
    "name",
    "uid",
    "resource_version",
    "generation",
    "creation_timestamp",
    "deletion_timestamp",
)
# Volumes: the one with the pod's token is named for each pod.
_OWN_SPEC: Final = ("node_name", "scheduling_group", "volumes")
_OWN_STATUS: Final = ("start_time",)


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
                metadata=_shared(last.metadata, manifest.metadata, _OWN_METADATA),
                spec=_shared(last.spec, manifest.spec, _OWN_SPEC),
                status=_shared(last.status, manifest.status, _OWN_STATUS),
            )
        elif len(self._last) >= _MOST_OWNERS:
            self._last.popitem(last=False)
        self._last[owner] = manifest
        return Pod(manifest, raw)


def _owner(manifest: PodManifest) -> str:
    """The owner of the pod; pods without one are taken together by namespace."""
    controller = manifest.metadata.controller
    return controller.uid if controller else f"namespace {manifest.metadata.namespace}"


def _shared(known: Record, new: Record, own: Iterable[str]) -> Record:
    """What *new* says, with the parts of *known* in place of those that are equal.

    *own* are the fields that are expected to differ.
    """
    of_its_own = {}
    for name in own:
        before, value = getattr(known, name), getattr(new, name)
        of_its_own[name] = before if value == before else value
    # Nearly always the others are equal: finding that out as a whole costs a tenth.
    other = msgspec.structs.replace(known, **of_its_own)
    if other == new:
        return other
    for name in new.__struct_fields__:
        before, value = getattr(known, name), getattr(new, name)
        if value is not before and value == before and type(value) is type(before):
            msgspec.structs.force_setattr(new, name, before)  # no other code has seen it
    return new
