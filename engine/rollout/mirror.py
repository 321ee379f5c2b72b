"""A copy of the live snapshot for another thread, brought up to date by what has changed.

Owns the copy and the changes of it. `collect` runs where the cluster changes, and costs what has
changed; `apply` runs in the thread, once for each change and in their order. They share nothing.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.fact import Fact, Facts
from engine.core.model.node_info import NodeInfo
from engine.core.queueing.nominator import Nominator
from engine.rollout.trial import frozen_copy


@dataclass(frozen=True, slots=True)
class OtherFacts:
    """The facts that are not about one node."""

    cluster: dict[str, Fact]
    types: Mapping[str, Facts]
    pods: dict[str, Facts]
    type_labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since the last one; what is None has not.

    Attributes:
        infos: By node, in the order in which they are to be shown; None: the node is gone.
        objects: All other objects, those that have not changed included.
        facts: See there.
        nominator: All nominations.
    """

    infos: list[tuple[str, NodeInfo | None]]
    objects: ObjectStore
    facts: OtherFacts | None
    nominator: Nominator | None


class Mirror:
    """A copy of *live*, which is up to date; it has the same history up to now."""

    def __init__(self, live: Snapshot, nominator: Nominator) -> None:
        # 1. The thread's.
        self.snapshot = frozen_copy(live)
        self.nominator = nominator.copy()
        # 2. What `collect` knows of them.
        self._generation = live.generation
        self._nominated = nominator.generation
        self._facts = live.facts_generation
        self._objects = self.snapshot.objects
        # By slot of the live snapshot, the node that was there.
        self._names = [None if info is None else info.name for info in live.infos]

    def collect(self, live: Snapshot, nominator: Nominator) -> Changes:
        """What has changed in *live* since the last call."""
        changed = live.changed_since(self._generation)
        slots = range(len(live.infos)) if changed is None else changed
        names = self._names
        names += [None] * (len(live.infos) - len(names))
        gone: list[tuple[str, NodeInfo | None]] = []
        there: list[tuple[str, NodeInfo | None]] = []
        for slot in slots:
            info, before = live.infos[slot], names[slot]
            name = names[slot] = None if info is None else info.name
            if before is not None and before != name:
                gone.append((before, None))
            if info is not None:
                there.append((info.name, info))
        self._generation = live.generation
        facts = None
        if live.facts_generation != self._facts:
            self._facts = live.facts_generation
            facts = OtherFacts(
                live.cluster_facts.copy(),
                live.type_facts,
                live.pod_facts.copy(),
                live.pod_type_labels,
            )
        nominations = None
        if nominator.generation != self._nominated:
            nominations, self._nominated = nominator.copy(), nominator.generation
        self._objects = live.objects.frozen(self._objects)
        # A node that came back in another slot must not go by its end in the one before.
        return Changes([*gone, *there], self._objects, facts, nominations)

    def apply(self, changes: Changes) -> None:
        """Show *changes*."""
        snapshot = self.snapshot
        for name, info in changes.infos:
            snapshot.put(name, info)
        snapshot.objects = changes.objects
        if changes.facts is not None:
            facts = changes.facts
            snapshot.cluster_facts, snapshot.type_facts = facts.cluster, dict(facts.types)
            snapshot.pod_facts, snapshot.pod_type_labels = facts.pods, facts.type_labels
        if changes.nominator is not None:
            self.nominator = changes.nominator

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
