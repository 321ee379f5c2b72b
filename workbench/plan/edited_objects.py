"""Objects that a tree of queues reads, as they would be: those of files in place of a cluster's.

Owns which object a given one stands for. An edited object is looked at as an edited file is, by a
name such as `ClusterQueue team-a`, so that a difference may be caused by either.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from engine.files.given_objects import GivenError, GivenObject, name_of
from engine.io.kube.resources import Resource

Manifest: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EditedObjects:
    """Objects of a cluster, some of them edited.

    Attributes:
        kept: Those that are as they were.
        before, after: The edited ones as texts, by name; new ones are not in *before*.
        places: Where they are written, by the same names.
    """

    kept: Sequence[Manifest]
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def among(self, texts: Mapping[str, str]) -> list[Manifest]:
        """All objects, the edited ones as *texts* has them, where they may be missing."""
        edited = [json.loads(texts[name]) for name in self.after if name in texts]
        return [*self.kept, *edited]

    def without(self, texts: Mapping[str, str]) -> dict[str, str]:
        """*texts* without those of objects."""
        return {name: text for name, text in texts.items() if name not in self.after}

    def shown(self, name: str) -> str | None:
        """`file:line` of the object *name*; None if it is none of the edited ones."""
        return self.places.get(name)


def edited_objects(
    there: Iterable[Manifest],
    given: Iterable[GivenObject],
    read: Collection[Resource],
    namespace: str,
) -> EditedObjects:
    """*given* in place of the objects of *there* with the same kind and name, or in addition.

    One without a namespace stands for that of its name in *namespace* if there is one. A status is
    kept where none is given. Raises `GivenError` for what is of no kind that a tree has *read*.
    """
    kept = {(*_kind(one), name_of(one)): one for one in there}
    kinds = {(one.api_version, one.kind) for one in read}
    before, after, places = dict[str, str](), dict[str, str](), dict[str, str]()
    for one in given:
        kind = _kind(one.manifest)
        if kind not in kinds:
            raise GivenError(one.problem(_unread(kind, kinds)))
        if not (name := name_of(one.manifest)):
            raise GivenError(one.problem("metadata.name: required value"))
        key = (*kind, name)
        if key not in kept and (*kind, f"{namespace}/{name}") in kept:
            key = (*kind, f"{namespace}/{name}")
        _, shown_kind, shown_name = key
        called = f"{shown_kind} {shown_name}"
        if called in after:
            raise GivenError(one.problem(f"is given before, at {places[called]}"))
        manifest = dict(one.manifest)
        if (old := kept.pop(key, None)) is not None:
            before[called] = json.dumps(old, sort_keys=True)
            manifest["metadata"] = {**old["metadata"], **manifest["metadata"]}
            manifest.setdefault("status", old.get("status", {}))
        after[called] = json.dumps(manifest, sort_keys=True)
        places[called] = f"{one.file}:{one.line_of(one.path) or 1}"
    return EditedObjects(list(kept.values()), before, after, places)


def _kind(manifest: Manifest) -> tuple[str, str]:
    return str(manifest.get("apiVersion")), str(manifest.get("kind"))


def _unread(kind: tuple[str, str], kinds: Collection[tuple[str, str]]) -> str:
    got = f"`{kind[1]}` of `{kind[0]}`"
    if not kinds:
        return f"want an object that the tree of queues reads, got {got}: it reads none"
    listed = ", ".join(f"`{name}` of `{version}`" for version, name in sorted(kinds))
    return f"want an object that the tree of queues reads ({listed}), got {got}"
