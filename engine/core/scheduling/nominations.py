"""The nominated pods that a decision has to leave capacity for: those of no lower priority.

Owns that view of the nominator by slot, kept from one decision to the next, so that a change of one
nomination costs that one; and of what filters said of nodes with those pods, which still holds.
Filtering with the pods is `feasibility`'s.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.lib.change_log import ChangeLog
from engine.policy.verdicts import FITS

# Priorities whose view is kept.
_MOST_PRIORITIES: Final = 16

# Slots of which the changes are known, at least.
_LOG_SIZE: Final = 4_096


class NominatedPods(dict[int, tuple[Pod, ...]]):
    """Nominated pods by slot.

    Attributes:
        changes: The slots whose pods changed, for the next decisions at the same priority.
        own: The slot whose pods are others for this pod alone, which is nominated there itself;
            None if there is none.
    """

    __slots__ = ("changes", "own")

    def __init__(self) -> None:
        super().__init__()
        self.changes: ChangeLog[int] = ChangeLog(_LOG_SIZE)
        self.own: int | None = None

    def without(self, uid: str, slot: int) -> "NominatedPods":
        """The same but for the pod *uid*, which is among those of *slot*."""
        made = NominatedPods()
        made.update(self)
        made.changes, made.own = self.changes, slot
        others = tuple(p for p in self[slot] if p.uid != uid)
        if others:
            made[slot] = others
        else:
            del made[slot]
        return made


_NONE: Final = NominatedPods()


class NominatedVerdicts:
    """What the filters of a pod class said of nodes with the pods that are nominated to them.

    Attributes:
        codes: By slot, the code of the rejection; FITS also where no pods are nominated.
    """

    def __init__(self) -> None:
        self.codes: NDArray[np.int32] = np.empty(0, np.int32)
        self._again: set[int] = set()  # what is known of these does not hold
        self._late_positions: tuple[int, ...] | None = None
        self._changes: ChangeLog[int] | None = None
        self._position = 0
        self._history: object = None
        self._generation = -1

    def follow(self, late_positions: tuple[int, ...] | None) -> None:
        """Ask about every node now if what is known is of pods with other per-pod filters.

        Which filter is the first to reject depends on where they come. None: nothing holds.
        """
        if late_positions is None or late_positions != self._late_positions:
            self._changes = None
        self._late_positions = late_positions

    def stale(self, pods: NominatedPods, snapshot: Snapshot) -> Collection[int]:
        """The slots to ask about now, ascending; of the others the codes hold."""
        found: set[int] | None = None
        if (
            pods.changes is self._changes
            and len(self.codes) == len(snapshot.infos)
            and snapshot.continues(self._history, self._generation)
        ):
            nominated = pods.changes.since(self._position)
            changed = snapshot.changed_since(self._generation)
            if nominated is not None and changed is not None:
                found = {*nominated, *(slot for slot in changed if slot in pods), *self._again}
        if found is None:
            self.codes = np.full(len(snapshot.infos), FITS, np.int32)
            found = set(pods)
        self._again.clear()
        if pods.own is not None:
            found.add(pods.own)
            self._again.add(pods.own)
        self._changes, self._position = pods.changes, pods.changes.end
        self._history, self._generation = snapshot.history, snapshot.generation
        return sorted(found)

    def ask_again(self, slot: int) -> None:
        """Ask about *slot* next time, whatever changes."""
        self._again.add(slot)


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
        self.by_slot = NominatedPods()

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
            if slot is not None:
                self.by_slot.changes.note(slot)
        if not is_known:
            slot_of = snapshot.slot_of
            self.by_slot.clear()
            self.by_slot.update(
                {slot_of[n]: pods for n, pods in self.by_name.items() if n in slot_of}
            )
            self.by_slot.changes.restart()
            self.history, self.nodes = history_of(snapshot)
        self.nominator, self.generation = nominator, nominator.generation


def history_of(snapshot: Snapshot) -> tuple[object, int]:
    """Equal for two snapshots that have every node in the same slot."""
    return snapshot.history, snapshot.image_generation


class Nominations:
    """Answers for pods of all priorities; one object serves all decisions of a bundle."""

    def __init__(self) -> None:
        self._views: dict[int, _View] = {}

    def others(self, pod: Pod, snapshot: Snapshot, nominator: Nominator) -> NominatedPods:
        """By slot, the pods that must fit as well if *pod* goes there, oldest nomination first.

        The mapping is not to be kept or changed; the next change of a nomination makes another.
        Tuples are equal where they are the same object, so that callers may compare identities.
        """
        if not len(nominator):
            return _NONE
        view = self._views.get(pod.priority)
        if view is None:
            if len(self._views) >= _MOST_PRIORITIES:
                self._views.clear()
            view = self._views[pod.priority] = _View(pod.priority)
        view.refresh(nominator, snapshot)
        # The pod's own nomination does not stand in its way.
        own = nominator.node_of(pod.uid)
        slot = snapshot.slot_of.get(own) if own is not None else None
        if slot is None or slot not in view.by_slot:
            return view.by_slot
        return view.by_slot.without(pod.uid, slot)
