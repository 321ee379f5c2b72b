"""The index of a plan: what it was made of, so that `starsched apply` can see if that has moved.

    REVISION.RESOURCEVERSION.GENERATION.CANDIDATE
    4c1f0a7be2d9.48213.9f3ac21b07d4.a41b22c09e57

Owns its parts and what moves each of them.

- REVISION: the policies in force; moves when others come into force, by a roll-back, too.
- RESOURCEVERSION: of the policies' ConfigMap; moves with every write to it; `0` if there is none.
- GENERATION: the shapes of the nodes, what makes another difference likely. A shape is the labels
  without the host's name, the taints without those that the control plane sets for a while, and
  what is allocatable, to two digits. A node of a known shape that comes or goes, a cordon, a
  heartbeat and pods do not move it: on a busy cluster every plan would be stale at birth.
- CANDIDATE: the planned texts; moves when they are edited after the plan.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.core.model.quantity import QuantityError, nano_value

NONE: Final = "0"

_HOSTNAME: Final = "kubernetes.io/hostname"
_PASSING: Final = "node.kubernetes.io/"
_FORM: Final = re.compile(r"[0-9a-f]{12}\.[0-9A-Za-z]+\.[0-9a-f]{12}\.[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class PlanIndex:
    """See the module."""

    revision: str
    resource_version: str
    generation: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.revision}.{self.resource_version}.{self.generation}.{self.candidate}"

    @classmethod
    def parse(cls, text: str) -> "PlanIndex":
        """The index of *text*. Raises `ValueError`, which says what is wanted."""
        if not _FORM.fullmatch(text):
            wanted = "REVISION.RESOURCEVERSION.GENERATION.CANDIDATE, as `starsched plan` prints it"
            raise ValueError(f"want {wanted}, got `{text}`")
        return cls(*text.split("."))

    def moved(self, now: "PlanIndex") -> list[str]:
        """What has moved until *now*, a sentence for each part."""
        said = []
        if now.revision != self.revision:
            said.append(
                f"other policies are in force: the plan was made against {self.revision}, "
                f"now it is {now.revision}"
            )
        if now.resource_version != self.resource_version:
            said.append(
                f"the ConfigMap was written: its resourceVersion was {self.resource_version}, "
                f"now it is {now.resource_version}"
            )
        if now.generation != self.generation:
            said.append(
                "there are other shapes of nodes (labels, taints, allocatable resources) than when "
                "the plan was made"
            )
        if now.candidate != self.candidate:
            said.append("the policies given here are not the ones that were planned")
        return said


def generation_of(nodes: Iterable[Mapping[str, Any]]) -> str:
    """The generation of the manifests of *nodes*."""
    shapes = {msgspec.json.encode(_shape(node), order="sorted") for node in nodes}
    return hashlib.sha256(b"\n".join(sorted(shapes))).hexdigest()[:12]


def _shape(node: Mapping[str, Any]) -> dict[str, Any]:
    metadata = node.get("metadata") or {}
    name = metadata.get("name")
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if key != _HOSTNAME and value != name
    }
    taints = [
        [taint.get(part) or "" for part in ("key", "value", "effect")]
        for taint in (node.get("spec") or {}).get("taints") or ()
        if not str(taint.get("key", "")).startswith(_PASSING)
    ]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {
        "labels": labels,
        "taints": sorted(taints),
        "allocatable": {key: _rounded(value) for key, value in allocatable.items()},
    }


def _rounded(quantity: Any) -> str:
    """Two digits of *quantity*: machines of one type differ in the last ones of their memory."""
    try:
        return f"{nano_value(quantity):.1e}"
    except (QuantityError, TypeError):
        return str(quantity)
