"""Projections: the part of a pod, node or cluster that a hook reads, as canonical JSON.

Owns turning objects into the text that a hook is given. Two objects with the same projection are
the same to the hook, so its answer for one is its answer for the other: that is what every reuse
in `verdicts` rests on. A hook gets nothing beyond its projection; a field that the analysis missed
is therefore a loud error in the hook, never a stale answer.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.model.fact import Facts
from engine.policy.views import AGES, VIEWS, ClusterFacts, ViewField

_encode: Callable[[Any], bytes] = msgspec.json.Encoder(order="deterministic").encode
_PATH = re.compile(r"^(?P<field>\w+)\[(?P<key>.*)\]$", re.DOTALL)

EVERYTHING = "*"


class Projector:
    """Turns objects of one view into the JSON of a fixed set of their fields.

    *paths* are those of `analysis.Reads`: `labels` is the whole field, `labels[disk]` one key of
    it, `*` everything but the manifest. Facts come without their age unless `AGES` is among the
    paths: a hook that does not look at ages is not asked again as time passes. Cost: one
    extraction per field and one encoding.

    `parts` are the attributes of a NodeInfo that the projection depends on, beside the node; None
    if that is not known.
    """

    def __init__(self, view: str, paths: Iterable[str]) -> None:
        fields = VIEWS[view]
        self.paths = frozenset(paths)
        keys: dict[str, set[str] | None] = {}
        named: dict[str, set[str]] = {}
        for path in self.paths - {AGES}:
            if path == EVERYTHING:
                keys.update({name: None for name in fields if name != "manifest"})
                continue
            match = _PATH.match(path)
            if match is None:
                keys[path] = None
                continue
            named.setdefault(match["field"], set()).add(match["key"])
            if (narrowed := keys.setdefault(match["field"], set())) is not None:
                narrowed.add(match["key"])
        self.is_shared = any(fields[name].is_shared for name in keys)
        placed = [fields[name] for name in keys if fields[name].is_placed]
        self.is_placed = bool(placed)
        self.parts: tuple[str, ...] | None = None
        if all(field.parts for field in placed):
            self.parts = tuple(sorted({part for field in placed for part in field.parts}))
        self._parts: list[tuple[str, ViewField, tuple[str, ...] | None]] = [
            (name, fields[name], None if wanted is None else tuple(sorted(wanted)))
            for name, wanted in sorted(keys.items())
        ]
        self._has_ages = AGES in self.paths
        self._facts: list[tuple[str, bool, dict[str, Any]]] = []
        for name in sorted(keys):
            if fields[name].fills:
                is_nested = fields[name].type.startswith("dict[str, dict[")
                empty: Any = {} if is_nested else None
                missing = dict.fromkeys(sorted(named.get(name, ())), empty)
                self._facts.append((name, is_nested, missing))

    def project(self, item: Any, facts: ClusterFacts) -> bytes:
        """The JSON object of this projector's fields of *item*, keys sorted."""
        values = {}
        for name, field, wanted in self._parts:
            value = field.extract(item, facts)
            if wanted is not None:
                value = {key: value[key] for key in wanted if key in value}
            values[name] = value
        for name, is_nested, missing in self._facts:
            found = values[name]
            plain = (
                {key: self._plain(facts) for key, facts in found.items()}
                if is_nested
                else self._plain(found)
            )
            values[name] = missing | plain
        return _encode(values)

    def _plain(self, facts: Facts) -> dict[str, Any]:
        return {name: fact.plain(with_age=self._has_ages) for name, fact in facts.items()}


class NodeColumn:
    """The projection of every node for one set of fields, as small integers by slot.

    `ids[slot]` indexes `values`; -1 where the slot has no node. Ids stay valid until `compact`
    renumbers them, which happens when dead projections outnumber the living ones by far. Who owns
    the column says which slots to look at (`scheduling.node_columns`).
    """

    __slots__ = ("_index", "epoch", "ids", "projector", "values", "version")

    def __init__(self, projector: Projector) -> None:
        self.projector = projector
        self.ids: NDArray[np.int32] = np.empty(0, np.int32)
        self.values: list[bytes] = []
        self._index: dict[bytes, int] = {}
        self.epoch = 0  # grows when ids are renumbered: whatever is indexed by them must follow
        self.version = 0  # grows when a node gets another id

    def update(self, snapshot: Snapshot, slots: Iterable[int]) -> None:
        """Project the nodes of *slots* anew; the others are as they were."""
        infos = snapshot.infos
        if len(self.ids) < len(infos):
            grown = np.full(max(len(infos), 2 * len(self.ids)), -1, np.int32)
            grown[: len(self.ids)] = self.ids
            self.ids = grown
        project, index, values, ids = self.projector.project, self._index, self.values, self.ids
        for slot in slots:
            info = infos[slot] if slot < len(infos) else None
            if info is None or info.node is None:
                known = -1
            else:
                value = project(info, snapshot)
                found = index.get(value)
                if found is None:
                    found = index[value] = len(values)
                    values.append(value)
                known = found
            if ids[slot] != known:
                ids[slot] = known
                self.version += 1

    def intern(self, value: bytes) -> int:
        """The id of a projection, one that no node has included. Valid until the next `compact`."""
        known = self._index.get(value)
        if known is None:
            known = self._index[value] = len(self.values)
            self.values.append(value)
        return known

    def compact(self) -> NDArray[np.int64] | None:
        """Drop projections that no node has, if that is worth it.

        Returns the old ids in their new order, for tables to follow, or None if nothing changed.
        Dead projections are kept for a while on purpose: a node that loses a pod returns to a
        projection that it had before.
        """
        living = np.unique(self.ids[self.ids >= 0]).astype(np.int64)
        if len(self.values) <= max(4096, 4 * len(living)):
            return None
        renumbered = np.full(len(self.values) + 1, -1, np.int32)
        renumbered[living] = np.arange(len(living), dtype=np.int32)
        self.ids = renumbered[self.ids]  # -1 picks the extra last entry, which is -1
        self.values = [self.values[i] for i in living]
        self._index = {value: i for i, value in enumerate(self.values)}
        self.epoch += 1
        return living
