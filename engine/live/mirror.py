"""A copy of the live snapshot for another thread, brought up to date by what has changed.

Owns the copy. `collect` runs where the cluster changes, and costs what has changed; `apply` runs in
the thread. They take turns: `collect` is called while nothing in the thread uses the copy.
"""

import contextlib
from collections.abc import Iterator

from engine.caching.objects import ObjectStore
from engine.caching.snapshot import Snapshot
from engine.model.node_info import NodeInfo
from engine.queueing.nominator import Nominator
from engine.rollout.trial import frozen_copy


class Mirror:
    """A copy of *live*, which is up to date; it has the same history up to now."""

    def __init__(self, live: Snapshot, nominator: Nominator) -> None:
        self.snapshot = frozen_copy(live)
        self.nominator = nominator.copy()
        self._generation = live.generation
        self._nominated = nominator.generation
        # By slot of the live snapshot, the node that was there.
        self._names = [None if info is None else info.name for info in live.infos]
        self._pending: list[tuple[str, NodeInfo | None]] = []
        self._objects: ObjectStore = self.snapshot.objects

    def collect(self, live: Snapshot, nominator: Nominator) -> None:
        """Note what has changed in *live* since the last call."""
        changed = live.changed_since(self._generation)
        slots = range(len(live.infos)) if changed is None else changed
        self._names += [None] * (len(live.infos) - len(self._names))
        gone: list[tuple[str, NodeInfo | None]] = []
        there: list[tuple[str, NodeInfo | None]] = []
        for slot in slots:
            info, before = live.infos[slot], self._names[slot]
            name = self._names[slot] = None if info is None else info.name
            if before is not None and before != name:
                gone.append((before, None))
            if info is not None:
                there.append((info.name, info))
        # A node that came back in another slot must not go by its end in the one before.
        self._pending += [*gone, *there]
        self._generation = live.generation
        snapshot = self.snapshot
        snapshot.objects = live.objects.frozen(snapshot.objects)
        snapshot.cluster_facts, snapshot.type_facts = live.cluster_facts.copy(), live.type_facts
        snapshot.pod_facts, snapshot.pod_type_labels = live.pod_facts.copy(), live.pod_type_labels
        if nominator.generation != self._nominated:
            self.nominator, self._nominated = nominator.copy(), nominator.generation

    def apply(self) -> None:
        """Show what was noted."""
        for name, info in self._pending:
            self.snapshot.put(name, info)
        self._pending.clear()

    @contextlib.contextmanager
    def without(self, uid: str, node: str) -> Iterator[Snapshot]:
        """The copy without the pod of *uid* on *node*, if it counts there; as it was afterwards."""
        info = self.snapshot.info(node)
        if info is None or uid not in info.pods:
            yield self.snapshot
            return
        self.snapshot.put(node, info.without_pod(uid))
        try:
            yield self.snapshot
        finally:
            self.snapshot.put(node, info)
