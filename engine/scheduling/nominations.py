"""The nominated pods that a decision has to leave capacity for: those of no lower priority.

Owns that view of the nominator by slot, kept from one decision to the next, so that a change of one
nomination costs that one. Filtering with the pods is `feasibility`'s.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from engine.caching.snapshot import Snapshot
from engine.model.pod import Pod
from engine.queueing.nominator import Nominator

# Priorities whose view is kept.
_MOST_PRIORITIES: Final = 16

_NONE: Final[Mapping[int, tuple[Pod, ...]]] = {}


class _View:
    """The nominated pods of one priority or a higher one, by name and by slot of their node.

    A tuple stays the same object until a nomination of its node changes.
    """

    __slots__ = ("by_name", "by_slot", "generation", "history", "nodes", "nominator", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.nominator: Nominator | None = None
        self.generation = -1
        self.history: object = None
        self.nodes = -1
        self.by_name: dict[str, tuple[Pod, ...]] = {}
        self.by_slot: dict[int, tuple[Pod, ...]] = {}

    def refresh(self, nominator: Nominator, snapshot: Snapshot) -> None:
        """Follow the nominations, and which node is in which slot."""
        names = nominator.changed_since(self.generation) if nominator is self.nominator else None
        is_known = history_of(snapshot) == (self.history, self.nodes)
        if names is None:
            self.by_name, names, is_known = {}, nominator.nodes(), False
        for name in names:
            pods = tuple(p for p in nominator.pods_on(name) if p.priority >= self.priority)
            slot = snapshot.slot_of.get(name)
            if pods:
                self.by_name[name] = pods
                if slot is not None:
                    self.by_slot[slot] = pods
            else:
                self.by_name.pop(name, None)
                if slot is not None:
                    self.by_slot.pop(slot, None)
        if not is_known:
            slot_of = snapshot.slot_of
            self.by_slot = {slot_of[n]: pods for n, pods in self.by_name.items() if n in slot_of}
            self.history, self.nodes = history_of(snapshot)
        self.nominator, self.generation = nominator, nominator.generation


def history_of(snapshot: Snapshot) -> tuple[object, int]:
    """Equal for two snapshots that have every node in the same slot."""
    return snapshot.history, snapshot.image_generation


class Nominations:
    """Answers for pods of all priorities; one object serves all decisions of a bundle."""

    def __init__(self) -> None:
        self._views: OrderedDict[int, _View] = OrderedDict()

    def others(
        self, pod: Pod, snapshot: Snapshot, nominator: Nominator
    ) -> Mapping[int, tuple[Pod, ...]]:
        """By slot, the pods that must fit as well if *pod* goes there, oldest nomination first.

        The mapping is not to be kept or changed; the next change of a nomination makes another.
        Tuples are equal where they are the same object, so that callers may compare identities.
        """
        if not len(nominator):
            return _NONE
        view = self._views.get(pod.priority)
        if view is None:
            view = self._views[pod.priority] = _View(pod.priority)
            if len(self._views) > _MOST_PRIORITIES:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(pod.priority)
        view.refresh(nominator, snapshot)
        # The pod's own nomination does not stand in its way.
        own = nominator.node_of(pod.uid)
        slot = snapshot.slot_of.get(own) if own is not None else None
        if slot is None or slot not in view.by_slot:
            return view.by_slot
        others = tuple(p for p in view.by_slot[slot] if p.uid != pod.uid)
        by_slot = view.by_slot.copy()
        if others:
            by_slot[slot] = others
        else:
            del by_slot[slot]
        return by_slot
