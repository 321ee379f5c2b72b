"""The topology domain of every node, for one label key.

Owns the numbering of domains. Which pods are counted in them is `counters`'.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot


class TopologyColumn:
    """The domain of every node for one label key, as small integers by slot; -1 without the label.

    With key None every node is a domain of its own. `version` grows with each change.
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.ids: NDArray[np.int32] = np.empty(0, np.int32)
        self.size = 0
        self.version = 0
        self._index: dict[str, int] = {}
        self._history: object = None
        self._generation = -1

    def copy(self) -> "TopologyColumn":
        """A column of its own that knows the same."""
        made = TopologyColumn(self.key)
        made.ids, made.size, made.version = self.ids.copy(), self.size, self.version
        made._index = self._index.copy()
        made._history, made._generation = self._history, self._generation
        return made

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring the column up to *snapshot*."""
        continues = snapshot.continues(self._history, self._generation)
        if continues and snapshot.generation == self._generation:
            return
        changed: Sequence[int] | None = None
        if continues:
            changed = snapshot.changed_since(self._generation)
        slots = len(snapshot.infos)
        if len(self.ids) < slots or changed is None:
            self.ids = np.full(slots, -1, np.int32)
            self.version += 1
            changed = range(slots)
        if len(self._index) > 2 * slots + 1024:
            self._index.clear()  # labels came and went: number what is there now
            self.ids[:] = -1
            changed = range(slots)
            self.version += 1
        for slot in changed:
            domain = self._domain(slot, snapshot)
            if self.ids.item(slot) != domain:
                self.ids[slot] = domain
                self.version += 1
        self.size = slots if self.key is None else len(self._index)
        self._history, self._generation = snapshot.history, snapshot.generation

    def _domain(self, slot: int, snapshot: Snapshot) -> int:
        info = snapshot.infos[slot]
        if info is None or info.node is None:
            return -1
        if self.key is None:
            return slot
        value = info.node.labels.get(self.key)
        return -1 if value is None else self._index.setdefault(value, len(self._index))
