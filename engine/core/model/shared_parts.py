"""Lets records that are alike share what is equal in memory.

Owns the sharing between records that were decoded from different texts. Objects are made of a
template or by one controller, so most of what two of them say is equal; as records never change,
one may stand for both. At 30,000 pods of 300 workloads that is half of what they take.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from engine.core.model.objects import PodManifest
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim

# Of how many kinds the last record is remembered; it is kept when it is gone.
_MOST_KINDS: Final = 4_096

Record = TypeVar("Record", bound=msgspec.Struct)

# What differs between records of one kind; the rest is nearly always equal.
_OWN_METADATA: Final = (
    "name",
    "uid",
    "resource_version",
    "generation",
    "creation_timestamp",
    "deletion_timestamp",
)


class SharedParts(Generic[Record]):
    """Remembers a record of each kind, for those that come later.

    Args:
        kind: Equal for records that are likely to have most in common.
        own: By part of a record (`spec`), its fields that are expected to differ.
    """

    def __init__(
        self, kind: Callable[[Record], Hashable], own: Mapping[str, Iterable[str]]
    ) -> None:
        self._kind = kind
        self._own = own
        self._last: OrderedDict[Hashable, Record] = OrderedDict()

    def of(self, new: Record) -> Record:
        """*new*, with parts of the last record of its kind in place of those that are equal."""
        kind = self._kind(new)
        last = self._last.get(kind)
        if last is not None:
            self._last.move_to_end(kind)
            parts = {
                part: _shared(getattr(last, part), getattr(new, part), own)
                for part, own in self._own.items()
            }
            new = msgspec.structs.replace(new, **parts)
        elif len(self._last) >= _MOST_KINDS:
            self._last.popitem(last=False)
        self._last[kind] = new
        return new


def shared_pods() -> SharedParts[PodManifest]:
    """For the pods of one controller; those without one are taken together by namespace."""
    # Volumes: the one with the pod's token is named for each pod.
    own_spec = ("node_name", "scheduling_group", "volumes")
    own = {"metadata": _OWN_METADATA, "spec": own_spec, "status": ("start_time",)}
    return SharedParts(_owner, own)


def shared_volumes() -> SharedParts[PersistentVolume]:
    """For the volumes of one class that the same nodes can reach."""
    own = {"metadata": _OWN_METADATA, "spec": ("claim_ref", "csi"), "status": ()}
    return SharedParts(lambda v: (v.spec.storage_class_name, v.spec.node_affinity), own)


def shared_claims() -> SharedParts[PersistentVolumeClaim]:
    """For the claims of one class in a namespace."""
    own = {"metadata": _OWN_METADATA, "spec": ("volume_name",), "status": ()}
    return SharedParts(lambda c: (c.metadata.namespace, c.spec.storage_class_name), own)


def _owner(manifest: PodManifest) -> str:
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
    other = msgspec.structs.replace(known, **of_its_own) if of_its_own else known
    if other == new:
        return other
    for name in new.__struct_fields__:
        before, value = getattr(known, name), getattr(new, name)
        if value is not before and value == before and type(value) is type(before):
            msgspec.structs.force_setattr(new, name, before)  # no other code has seen it
    return new
