"""What a policy sees of terms about nodes: those of pods, of arguments and of volumes.

Owns the plain form of requirements, selectors and node affinity.
"""

from typing import Any, TypeVar

import msgspec

from engine.core.model import objects as api
from engine.core.model.storage import VolumeNodeAffinity


# Pods may have thousands of terms, so records become views without a Python call for each: by the
# names of their attributes. Names in the order of the alphabet, as those of dicts are written.
class Requirement(msgspec.Struct):
    """A requirement on a label or a field."""

    key: str
    operator: str
    values: list[str]


class Selector(
    msgspec.Struct, rename={"match_expressions": "expressions", "match_labels": "labels"}
):
    """A selector of pods by their labels."""

    match_expressions: list[Requirement]
    match_labels: dict[str, str]


class _NodeTerm(
    msgspec.Struct, rename={"match_expressions": "expressions", "match_fields": "fields"}
):
    match_expressions: list[Requirement]
    match_fields: list[Requirement]


class _Preference(msgspec.Struct, rename={"preference": "term"}):
    preference: _NodeTerm
    weight: int


T = TypeVar("T")


def shown(record: Any, form: type[T]) -> T:
    """*record* in the form in which policies see it."""
    return msgspec.convert(record, form, from_attributes=True)


def node_affinity_view(affinity: api.NodeAffinity | None) -> dict[str, Any] | None:
    """The plain form of a `NodeAffinity` record, for the `addedAffinity` argument."""
    plain: dict[str, Any] | None = msgspec.to_builtins(node_affinity(affinity))
    return plain


def node_affinity(
    affinity: api.NodeAffinity | VolumeNodeAffinity | None,
) -> dict[str, Any] | None:
    """The `NodeAffinity` record; that of a volume has no preferences."""
    if affinity is None:
        return None
    required = affinity.required
    return {
        "required": None
        if required is None
        else shown(required.node_selector_terms, list[_NodeTerm]),
        "preferred": shown(getattr(affinity, "preferred", ()), list[_Preference]),
    }
