"""The nodes as columns: one projection column per distinct set of read fields.

Owns sharing columns between hooks that read the same fields, and the columns that the cycle itself
needs (which slots hold a node, the hash of each node's name).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.model.node_info import NodeInfo
from engine.policy.projections import NodeColumn, Projector
from engine.scheduling.select_host import name_hash

# What a column may depend on beside the node itself, of which an unknown one depends on all.
_PARTS: Final = tuple(name for name in NodeInfo.__slots__ if name not in ("generation", "name"))


class NodeColumns:
    """Columns over the slots of a snapshot; `refresh` before each decision."""

    def __init__(self) -> None:
        self._columns: dict[frozenset[str], NodeColumn] = {}
        self._snapshot: Snapshot | None = None
        self._generation = -1
        self._infos: list[NodeInfo | None] = []  # by slot, as of the last refresh
        self.present: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.name_hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._hash_of: dict[str, int] = {}
        self._name_order: NDArray[np.int64] | None = None

    @property
    def name_order(self) -> NDArray[np.int64]:
        """The slots that hold a node, by the hash of the name: the same in every process."""
        if self._name_order is None:
            present = np.flatnonzero(self.present)
            self._name_order = present[np.argsort(self.name_hashes[present], kind="stable")]
        return self._name_order

    def column(self, paths: Iterable[str]) -> NodeColumn:
        """The column for hooks that read exactly *paths* of a node."""
        key = frozenset(paths)
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = NodeColumn(Projector("node", key))
        return column

    def all(self) -> list[NodeColumn]:
        """Every column that a hook asked for."""
        return list(self._columns.values())

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring every column up to *snapshot*.

        NodeInfos share what a change left as it was, so that a look at what is not shared tells
        which columns are about the change: a placement changes what is requested, not the labels.
        """
        changed: Sequence[int] | None = None
        before = self._generation if snapshot is self._snapshot else -1
        if before == snapshot.generation:
            changed = ()
        elif before >= 0:
            changed = snapshot.changed_since(before)
        size = len(snapshot.infos)
        if changed is None or len(self.present) < size:
            changed = self._restart(snapshot)
        by_part = self._note(changed, snapshot)
        touched = {part for part, slots in by_part.items() if slots}
        for column in self._columns.values():
            if not column.is_current(snapshot, before):
                column.refresh(snapshot)  # new, or what all nodes share has changed
                continue
            parts = touched
            if column.projector.parts is not None:
                parts = touched & {"node", *column.projector.parts}
            slots = {slot for part in parts for slot in by_part[part]}
            column.update(snapshot, sorted(slots))
        self._snapshot, self._generation = snapshot, snapshot.generation

    def _restart(self, snapshot: Snapshot) -> Sequence[int]:
        """Every slot, with nothing known of it."""
        size = len(snapshot.infos)
        self.present = np.zeros(size, np.bool_)
        self.name_hashes = np.zeros(size, np.uint64)
        self._infos = [None] * size
        self._name_order = None
        if len(self._hash_of) > 2 * size + 1024:
            self._hash_of.clear()  # nodes came and went; what is needed is found again
        return range(size)

    def _note(self, slots: Sequence[int], snapshot: Snapshot) -> dict[str, list[int]]:
        """The changed slots by the part of the NodeInfo that changed."""
        by_part: dict[str, list[int]] = {part: [] for part in _PARTS}
        for slot in slots:
            old, new = self._infos[slot], snapshot.infos[slot]
            self._infos[slot] = new
            if new is None or old is None or old.node is not new.node:
                by_part["node"].append(slot)
                if (new is None) is not (old is None) or (new and old and new.name != old.name):
                    self._name_order = None
                self.present[slot] = new is not None and new.node is not None
                if new is not None:
                    self.name_hashes[slot] = self._hash(new.name)
                continue
            for part in _PARTS:
                if getattr(old, part) is not getattr(new, part):
                    by_part[part].append(slot)
        return by_part

    def _hash(self, name: str) -> int:
        known = self._hash_of.get(name)
        if known is None:
            known = self._hash_of[name] = name_hash(name)
        return known
