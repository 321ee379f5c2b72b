"""The frozen view of the cluster that one scheduling cycle reads.

Owns slots, the log of which slots changed, and the counts of images over nodes. It is brought up
to date by `Cache.snapshot`, at a cost that depends on what changed and not on the cluster's size.
"""

import heapq
from typing import Final

from engine.core.caching.attachments import VolumeUsers
from engine.core.caching.objects import ObjectStore
from engine.core.model.fact import DEFAULT_TYPE_LABELS, Fact, Facts
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.lib.change_log import ChangeLog

# Of how many changes the slots are known at least.
_LOG_SIZE: Final = 16_384


class Snapshot:
    """NodeInfos by slot, as of the last `Cache.snapshot`.

    A node keeps its slot while it exists, so that arrays over slots stay aligned; a freed slot is
    given to the next new node. The object is updated in place between cycles; the NodeInfos in it
    are persistent and may be kept.

    Attributes:
        infos: The NodeInfo of each slot; None where there is no node.
        slot_of: Node name -> slot.
        image_nodes: Image name -> number of nodes that have it.
        image_generation: Grows when `image_nodes` or `node_count` changes.
        objects: The other objects (live, not frozen: they change between cycles only).
        volume_users: On which nodes claims and disks are used.
        cluster_facts, type_facts, pod_facts: Facts of the cluster, of pods by type and by key;
            those of nodes are in the NodeInfos.
        pod_type_labels: The labels that say of which type a pod is, the first that it has.
        facts_generation: Grows when one of these four changes.
    """

    def __init__(self, objects: ObjectStore | None = None) -> None:
        #: Shared by the copies of one snapshot: as long as they say the same, see `continues`.
        self.history: Final = object()
        self.infos: list[NodeInfo | None] = []
        self.slot_of: dict[str, int] = {}
        self.image_nodes: dict[str, int] = {}
        self.image_generation = 0
        self.objects = objects if objects is not None else ObjectStore()
        self.volume_users = VolumeUsers()
        self.cluster_facts: dict[str, Fact] = {}
        self.type_facts: dict[str, Facts] = {}
        self.pod_facts: dict[str, Facts] = {}
        self.pod_type_labels: tuple[str, ...] = DEFAULT_TYPE_LABELS
        self.facts_generation = 0
        self._free_slots: list[int] = []  # a heap: the lowest slot first, so that runs repeat
        self._changes: ChangeLog[int] = ChangeLog(_LOG_SIZE)  # the slot of each

    @property
    def generation(self) -> int:
        """How many slot changes there have been; see `changed_since`."""
        return self._changes.end

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.slot_of)

    def info(self, name: str) -> NodeInfo | None:
        """The NodeInfo of node *name*, or None if there is no such node."""
        slot = self.slot_of.get(name)
        return None if slot is None else self.infos[slot]

    def continues(self, history: object, generation: int) -> bool:
        """True if what was known of a snapshot of *history* at *generation* holds but for changes.

        Those are `changed_since`. A copy that stays as it was when it was made continues as the
        original does; the original continues the copy, but not the copy what came after it.
        """
        return history is self.history and 0 <= generation <= self.generation

    def changed_since(self, generation: int) -> list[int] | None:
        """The slots that changed after *generation*, each once, in the order of first change.

        None when the log does not reach back that far: look at every slot.
        """
        slots = self._changes.since(generation)
        return None if slots is None else list(dict.fromkeys(slots))

    def put(self, name: str, info: NodeInfo | None) -> None:
        """Show *info* for node *name*; None, or an info without its node, shows no node."""
        if info is not None and info.node is None:
            info = None
        slot = self.slot_of.get(name)
        if slot is None:
            if info is None:
                return
            slot = self._take_slot(name)
        old = self.infos[slot]
        if old is info:
            return
        self.infos[slot] = info
        if info is None:
            del self.slot_of[name]
            heapq.heappush(self._free_slots, slot)
        if old is None or info is None:
            self.image_generation += 1  # another number of nodes
        self.volume_users.move(old, info)
        self._count_images(old.node if old else None, info.node if info else None)
        self._changes.note(slot)

    def _take_slot(self, name: str) -> int:
        if self._free_slots:
            slot = heapq.heappop(self._free_slots)
        else:
            slot = len(self.infos)
            self.infos.append(None)
        self.slot_of[name] = slot
        return slot

    def _count_images(self, old: Node | None, new: Node | None) -> None:
        if old is new:
            return
        # Most node updates are heartbeats: comparing the records is cheaper than the name maps.
        if old and new and old.manifest.status.images == new.manifest.status.images:
            return
        before = old.images if old else {}
        after = new.images if new else {}
        changed = False
        for name in before.keys() - after.keys():
            changed = True
            left = self.image_nodes[name] - 1
            if left:
                self.image_nodes[name] = left
            else:
                del self.image_nodes[name]
        for name in after.keys() - before.keys():
            changed = True
            self.image_nodes[name] = self.image_nodes.get(name, 0) + 1
        if changed:
            self.image_generation += 1

    def check_invariants(self) -> None:
        """Raise `AssertionError` if slots, counts or the log contradict each other."""
        used = set(self.slot_of.values())
        assert len(used) == len(self.slot_of), "two nodes share a slot"
        for slot, info in enumerate(self.infos):
            if info is None:
                assert slot not in used, f"slot {slot} is taken and empty"
                assert slot in self._free_slots, f"slot {slot} is lost"
            else:
                assert info.node is not None, f"slot {slot} shows `{info.name}` without its node"
                assert self.slot_of.get(info.name) == slot, f"`{info.name}` is not in its slot"
        assert len(self._free_slots) + len(used) == len(self.infos), "a slot is free and taken"
        shown = [info for info in self.infos if info is not None]
        for use in {use for info in shown for use in info.volumes}:
            nodes = sorted(info.name for info in shown if use in info.volumes)
            assert self.volume_users.nodes_of(use) == nodes, f"the users of {use} differ"
        counts: dict[str, int] = {}
        for info in self.infos:
            if info is not None and info.node is not None:
                for name in info.node.images:
                    counts[name] = counts.get(name, 0) + 1
        assert counts == self.image_nodes, "image counts differ from the nodes' images"
        self._changes.check_invariants()
