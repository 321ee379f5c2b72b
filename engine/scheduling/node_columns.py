"""The nodes as columns: one projection column per distinct set of read fields.

Owns sharing columns between hooks that read the same fields, and the columns that the cycle itself
needs (which slots hold a node, the hash of each node's name).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from engine.caching.snapshot import Snapshot
from engine.policy.projections import NodeColumn, Projector
from engine.scheduling.select_host import name_hash


class NodeColumns:
    """Columns over the slots of a snapshot; `refresh` before each decision."""

    def __init__(self) -> None:
        self._columns: dict[frozenset[str], NodeColumn] = {}
        self._snapshot: Snapshot | None = None
        self._generation = -1
        self.present: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.name_hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._hash_of: dict[str, int] = {}

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
        """Bring every column up to *snapshot*."""
        for column in self._columns.values():
            column.refresh(snapshot)
        if snapshot is self._snapshot and snapshot.generation == self._generation:
            return
        changed: Iterable[int] | None = None
        if snapshot is self._snapshot:
            changed = snapshot.changed_since(self._generation)
        size = len(snapshot.infos)
        if changed is None or len(self.present) < size:
            changed = range(size)
            self.present = np.zeros(size, np.bool_)
            self.name_hashes = np.zeros(size, np.uint64)
        for slot in changed:
            info = snapshot.infos[slot]
            self.present[slot] = info is not None and info.node is not None
            if info is not None:
                known = self._hash_of.get(info.name)
                if known is None:
                    known = self._hash_of[info.name] = name_hash(info.name)
                self.name_hashes[slot] = known
        self._snapshot = snapshot
        self._generation = snapshot.generation
        if len(self._hash_of) > 2 * size + 1024:
            self._hash_of.clear()  # nodes came and went; what is needed is found again
