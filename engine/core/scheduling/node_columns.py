"""The nodes as columns: one projection column per distinct set of read fields.

Owns sharing columns between hooks that read the same fields, and the columns that the cycle itself
needs (which slots hold a node, the hash of each node's name).
"""

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.model.node_info import NodeInfo
from engine.core.scheduling.select_host import name_hash
from engine.policy.projections import NodeColumn, OptionalEntries, Projector, WantedColumn

# What a column may depend on in addition to the node itself; an unknown one depends on all.
_PARTS: Final = tuple(
    name
    for name in NodeInfo.__slots__
    if name not in ("generation", "name") and not name.startswith("_")
)
_BITS: Final = {part: 1 << place for place, part in enumerate(_PARTS)}
_ANY: Final = (1 << len(_PARTS)) - 1
_parts: Final = operator.attrgetter(*_PARTS)


class NodeColumns:
    """Columns over the slots of a snapshot; `refresh` before each decision."""

    def __init__(self) -> None:
        # By the fields that are read, and if they are cut to what the pods of a class want.
        self._columns: dict[tuple[frozenset[str], bool], NodeColumn] = {}
        # Those of names that some pods want, for as long as a class of such pods is kept.
        self._wanted: WeakValueDictionary[tuple[frozenset[str], frozenset[str]], WantedColumn]
        self._wanted = WeakValueDictionary()
        self._optional: dict[frozenset[str], OptionalEntries] = {}  # by the fields
        self._behind: list[NodeColumn] = []  # made since the last refresh
        self._affected: dict[int, tuple[NodeColumn, ...]] = {}
        self._history: object = None
        self._generation = -1
        self._image_generation = -1
        self._infos: list[NodeInfo | None] = []  # by slot, as of the last refresh
        self.present: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.membership = 0  # grows when another node is in some slot, or none
        self.name_hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._hash_of: dict[str, int] = {}
        self._name_order: NDArray[np.int64] | None = None
        self._hashes_differ: bool | None = None

    @property
    def hashes_differ(self) -> bool:
        """True unless two nodes' names have one hash."""
        if self._hashes_differ is None:
            hashes = self.name_hashes[self.present]
            self._hashes_differ = len(np.unique(hashes)) == len(hashes)
        return self._hashes_differ

    @property
    def name_order(self) -> NDArray[np.int64]:
        """The slots that hold a node, by the hash of the name: the same in every process."""
        if self._name_order is None:
            present = np.flatnonzero(self.present)
            self._name_order = present[np.argsort(self.name_hashes[present], kind="stable")]
        return self._name_order

    def column(self, paths: Iterable[str], names: frozenset[str] | None = None) -> NodeColumn:
        """The column for hooks that read exactly *paths* of a node; a new one is empty.

        With *names*, of the entries that some pods want it has those alone; the pods' class has to
        let it `follow`.
        """
        fields = frozenset(paths)
        key = fields, names is not None
        column = self._columns.get(key)
        if column is None:
            projector = Projector("node", fields)
            column = NodeColumn(projector, None if names is None else self._optional_of(projector))
            self._columns[key] = column
            self._behind.append(column)
            self._affected.clear()
        if not names:
            return column
        own = self._wanted.get((fields, names))
        if own is None:
            optional = self._optional_of(column.projector)
            own = self._wanted[fields, names] = WantedColumn(column, optional, names)
        return own

    def _optional_of(self, projector: Projector) -> OptionalEntries:
        key = frozenset(projector.wanted)
        known = self._optional.get(key)
        if known is None:
            known = self._optional[key] = OptionalEntries(projector.wanted)
        return known

    def reuse_from(
        self, other: "NodeColumns", keys: Collection[frozenset[str]]
    ) -> dict[int, NodeColumn]:
        """Begin with what *other* knows: its columns for the read fields among *keys*.

        Only for columns that were never refreshed. Returns the column here by the identity of the
        one there, which gives the same nodes the same ids for now.
        """
        inherited = {}
        for key, known in other._columns.items():
            fields, is_cut = key
            if fields in keys and known not in other._behind:
                column = self.column(fields, frozenset() if is_cut else None)
                column.reuse_from(known)
                self._behind.remove(column)
                inherited[id(known)] = column
        for wanted, optional in other._optional.items():
            if wanted in self._optional:  # columns that were made before have it too
                self._optional[wanted].reuse_from(optional)
        self.present, self.name_hashes = other.present.copy(), other.name_hashes.copy()
        self._infos, self._hash_of = other._infos.copy(), other._hash_of.copy()
        self._history, self._generation = other._history, other._generation
        self._image_generation = other._image_generation
        return inherited

    def all(self) -> list[NodeColumn]:
        """Every column that a hook asked for."""
        return list(self._columns.values())

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring every column up to *snapshot*.

        NodeInfos share what a change left as it was, so that a look at what is not shared shows
        which columns are about the change: a placement changes what is requested, not the labels.
        """
        changed: Sequence[int] | None = None
        if snapshot.continues(self._history, self._generation):
            if (
                snapshot.generation == self._generation
                and snapshot.image_generation == self._image_generation
                and not self._behind
            ):
                return
            changed = snapshot.changed_since(self._generation)
        size = len(snapshot.infos)
        if changed is None or len(self.present) < size:
            whole: Iterable[NodeColumn] = self._columns.values()
            self._restart(snapshot)
        else:
            whole = ()
            if snapshot.image_generation != self._image_generation:
                shared = [c for c in self._columns.values() if c.projector.is_shared]
                whole = [column for column in shared if column not in self._behind]
            # Before single slots: a new column has no entries yet.
            for column in self._behind:
                column.update_all(snapshot)
            for slot in changed:
                difference = self._note(slot, snapshot)
                for column in self._affected_by(difference):
                    column.update(snapshot, slot)
        for column in whole:
            column.update_all(snapshot)
        self._behind.clear()
        self._history, self._generation = snapshot.history, snapshot.generation
        self._image_generation = snapshot.image_generation

    def _restart(self, snapshot: Snapshot) -> None:
        """Note every slot, with nothing known of it."""
        size = len(snapshot.infos)
        self.present = np.zeros(size, np.bool_)
        self.name_hashes = np.zeros(size, np.uint64)
        self._infos = [None] * size
        self._name_order = self._hashes_differ = None
        self.membership += 1
        if len(self._hash_of) > 2 * size + 1024:
            self._hash_of.clear()  # nodes came and went; what is needed is found again
        for slot in range(size):
            self._note(slot, snapshot)

    def _note(self, slot: int, snapshot: Snapshot) -> int:
        """Take the NodeInfo of *slot*; what is not as it was before, in `_BITS`."""
        old, new = self._infos[slot], snapshot.infos[slot]
        self._infos[slot] = new
        if new is None or old is None or old.node is not new.node:
            is_present = new is not None and new.node is not None
            if is_present != self.present[slot] or (new and old and new.name != old.name):
                self._name_order = self._hashes_differ = None
                self.membership += 1
            self.present[slot] = is_present
            if new is not None:
                self.name_hashes[slot] = self._hash(new.name)
            return _ANY
        difference = 0
        for bit, before, after in zip(_BITS.values(), _parts(old), _parts(new), strict=True):
            if before is not after:
                difference |= bit
        return difference

    def _affected_by(self, difference: int) -> tuple[NodeColumn, ...]:
        """The columns that depend on some part of *difference*."""
        known = self._affected.get(difference)
        if known is None:
            known = self._affected[difference] = tuple(
                column
                for column in self._columns.values()
                if difference & _dependencies(column.projector)
            )
        return known

    def _hash(self, name: str) -> int:
        known = self._hash_of.get(name)
        if known is None:
            known = self._hash_of[name] = name_hash(name)
        return known


def _dependencies(projector: Projector) -> int:
    """The parts of a NodeInfo that a projection depends on, in `_BITS`."""
    return _BITS["node"] | sum(_BITS[part] for part in projector.parts)
