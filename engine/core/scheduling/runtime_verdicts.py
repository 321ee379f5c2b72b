"""What plugins of the runtime said of each node, kept for the next pod of the same kind.

Owns which answers still hold. What a kind is, and what changes an answer, the plugin knows.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.policy.verdicts import UNKNOWN

# Kinds of pods for which answers are kept: four bytes a node each.
_MOST_KINDS: Final = 256
# Looks of nodes that are kept for a kind.
_MOST_EQUIVALENT: Final = 4096


class RuntimeVerdicts:
    """The codes of one plugin for one kind of pods.

    Attributes:
        codes: By slot; UNKNOWN where the plugin is to be asked.
        by_equivalence: By the key that nodes share which are the same to the plugin.
    """

    __slots__ = ("_generation", "_history", "_position", "by_equivalence", "codes")

    def __init__(self) -> None:
        self.codes: NDArray[np.int32] = np.empty(0, np.int32)
        self.by_equivalence: dict[Hashable, int] = {}
        self._history: object = None
        self._generation = -1
        self._position: Any = None

    def refresh(self, plugin: RuntimePlugin, state: Any, snapshot: Snapshot) -> None:
        """Forget what may have changed since the last time, at the cost of that."""
        if len(self.by_equivalence) > _MOST_EQUIVALENT:
            self.by_equivalence.clear()
        size = len(snapshot.infos)
        stale: list[int] | None = None
        if snapshot.continues(self._history, self._generation):
            stale = snapshot.changed_since(self._generation)
        names = plugin.changed_since(state, self._position) if stale is not None else None
        if stale is None or names is None:
            self.codes = np.full(size, UNKNOWN, np.int32)
        else:
            slots = snapshot.slot_of
            stale += [slots[name] for name in names if name in slots]
            if size > len(self.codes):
                new = np.full(size - len(self.codes), UNKNOWN, np.int32)
                self.codes = np.concatenate((self.codes, new))
            self.codes[stale] = UNKNOWN
        self._history, self._generation = snapshot.history, snapshot.generation
        self._position = plugin.position(state)


class RuntimeMemo:
    """The `RuntimeVerdicts` of the kinds of pods that were decided last."""

    def __init__(self, most: int = _MOST_KINDS) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, Hashable], RuntimeVerdicts] = OrderedDict()

    def of(self, plugin: RuntimePlugin, state: Any, snapshot: Snapshot) -> RuntimeVerdicts | None:
        """What *plugin* said of the nodes of *snapshot*; None if it has to be asked."""
        kind = plugin.kind_of(state)
        if kind is None:
            return None
        key = (plugin.name, kind)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = RuntimeVerdicts()
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        found.refresh(plugin, state, snapshot)
        return found
