"""A node as the scheduler sees it: the manifest and what is derived from it.

Owns what a node offers and says about itself. What is placed on it is `node_info.py`.
"""

from collections.abc import Mapping
from typing import Any

from engine.core.model.decoding import decode_object, object_from_plain
from engine.core.model.objects import NodeManifest, Taint
from engine.core.model.quantity import milli_from_nano, whole_from_nano
from engine.core.model.resources import (
    Amounts,
    Quantities,
    exact_amounts,
    is_counted_resource,
    quantity_problems,
)
from engine.core.model.times import epoch_seconds


def _offered(quantities: Quantities) -> Amounts:
    return {
        name: milli_from_nano(nanos) if name == "cpu" else whole_from_nano(nanos)
        for name, nanos in exact_amounts(quantities).items()
        if name == "pods" or is_counted_resource(name)
    }


class Node:
    """A node. Never changed after it is made; derived values are computed when first asked for.

    Attributes:
        manifest: The typed record.
        raw: The JSON text the node was decoded from, if it was.
        name: Its name, which identifies it.
    """

    __slots__ = (
        "_allocatable",
        "_capacity",
        "_conditions",
        "_created_at",
        "_images",
        "_problems",
        "manifest",
        "name",
        "raw",
    )

    manifest: NodeManifest
    raw: bytes | None
    name: str
    _allocatable: Amounts | None
    _capacity: Amounts | None
    _conditions: dict[str, str] | None
    _created_at: float | None
    _images: dict[str, int] | None
    _problems: tuple[str, ...] | None

    def __init__(self, manifest: NodeManifest, raw: bytes | None = None) -> None:
        self.manifest = manifest
        self.raw = raw
        self.name = manifest.metadata.name
        self._allocatable = None
        self._capacity = None
        self._conditions = None
        self._created_at = None
        self._images = None
        self._problems = None

    @classmethod
    def from_raw(cls, raw: bytes) -> "Node":
        """The node of a JSON text.

        Quantities never fail (see `problems`). Raises `msgspec.DecodeError` when *raw* is not JSON
        and its subclass `ValidationError` when another field has a type that the API forbids.
        """
        return cls(decode_object(NodeManifest, raw), raw)

    @classmethod
    def from_manifest(cls, manifest: NodeManifest) -> "Node":
        """The node of a typed record."""
        return cls(manifest)

    @classmethod
    def from_plain(cls, manifest: Mapping[str, Any]) -> "Node":
        """The node of a decoded YAML or JSON manifest. Raises like `from_raw`."""
        return cls(object_from_plain(NodeManifest, manifest))

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    @property
    def resource_version(self) -> str:
        """The opaque version of the object."""
        return self.manifest.metadata.resource_version

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.manifest.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        return self.manifest.metadata.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Its taints, in the order of the spec."""
        return self.manifest.spec.taints

    @property
    def unschedulable(self) -> bool:
        """True if it is cordoned."""
        return self.manifest.spec.unschedulable

    @property
    def declared_features(self) -> tuple[str, ...]:
        """The features that its kubelet declares."""
        return self.manifest.status.declared_features

    @property
    def allocatable(self) -> Amounts:
        """What pods may use: millicores for cpu, whole units for the rest, `pods` included."""
        if self._allocatable is None:
            self._allocatable = _offered(self.manifest.status.allocatable)
        return self._allocatable

    @property
    def capacity(self) -> Amounts:
        """What the machine has, in the units of `allocatable`."""
        if self._capacity is None:
            self._capacity = _offered(self.manifest.status.capacity)
        return self._capacity

    @property
    def images(self) -> dict[str, int]:
        """Size in bytes of each image on it, under each of the image's names."""
        if self._images is None:
            self._images = {
                name: max(image.size_bytes, 0)
                for image in self.manifest.status.images
                for name in image.names
            }
        return self._images

    @property
    def conditions(self) -> dict[str, str]:
        """Condition type -> status (`True`, `False`, `Unknown`)."""
        if self._conditions is None:
            self._conditions = {c.type: c.status for c in self.manifest.status.conditions}
        return self._conditions

    @property
    def created_at(self) -> float:
        """Creation time in seconds since the epoch; 0 if not given."""
        if self._created_at is None:
            self._created_at = epoch_seconds(self.manifest.metadata.creation_timestamp) or 0.0
        return self._created_at

    @property
    def problems(self) -> tuple[str, ...]:
        """What in the manifest does not count as written, each with its path; usually empty.

        Malformed and negative quantities count as 0, those from 2^63 on as the largest int64.
        """
        if self._problems is None:
            status = self.manifest.status
            self._problems = (
                *quantity_problems("status.allocatable", status.allocatable),
                *quantity_problems("status.capacity", status.capacity),
            )
        return self._problems
