"""The cache: every node and every placed pod, known or assumed, summed up by node.

Owns the NodeInfos: nothing else makes new ones from old. Single-threaded, no I/O; events may
come in any order that the API server's separate watches can produce, and any number of times.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.core.caching.attachments import StorageChanges
from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.fact import NO_FACTS, Facts, NodeFacts
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod

# The kinds of `ObjectStore.unread` that are kept here.
_PODS, _NODES = "pods", "nodes"
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class AlreadyAssumed(Exception):
    """The pod counts against a node already, so it cannot be assumed."""


class Cache:
    """Nodes and placed pods.

    A pod, by uid::

        unknown --assume--> assumed --add, update (seen bound)--> added --remove--> unknown
        assumed --forget--> unknown          unknown --add, update--> added
        assumed --remove (deleted before it was bound)--> unknown

    An assumed pod stays assumed until one of those happens: there is no expiry, because a pod that
    was bound and is not yet seen must not lose its capacity. Where the informer says that a pod is
    on another node than assumed, the informer is right and the pod moves.

    A node, by name::

        unknown --add--> known --remove--> known through its pods only --last pod gone--> unknown
        unknown --a pod names it--> known through its pods only --add--> known

    A name belongs to one pod at a time: when a pod comes under the name of another uid, the other
    one is gone, even if its deletion was never seen.
    """

    def __init__(self, objects: ObjectStore | None = None) -> None:
        self.objects = ObjectStore() if objects is None else objects
        self._infos: dict[str, NodeInfo] = {}
        self._pods: dict[str, Pod] = {}
        self._uid_of: dict[str, str] = {}  # pod key -> uid
        self._assumed: set[str] = set()
        self._node_count = 0
        self._facts: dict[str, NodeFacts] = {}
        # Names of nodes that the snapshot does not show as they are; a dict keeps their order.
        self._stale: dict[str, None] = {}
        self._snapshot = Snapshot(self.objects)
        self._frozen = 0  # how many `frozen` are open
        #: Grows whenever a pod comes to count, or does not any more.
        self.pods_generation = 0
        self._storage = StorageChanges(self.objects, self._snapshot.volume_users)

    @classmethod
    def of(cls, infos: Iterable[NodeInfo], objects: ObjectStore) -> "Cache":
        """A cache that begins with these; *objects* are its own from then on."""
        cache = cls(objects)
        for info in infos:
            cache._put(info)
            cache._node_count += info.node is not None
            cache._pods.update(info.pods)
            cache._uid_of.update((pod.key, uid) for uid, pod in info.pods.items())
        return cache

    # --- nodes -------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Add *node*, or replace it by this version; pods that came before it are on it."""
        info = self._infos.get(node.name)
        # A node that is known through its pods only has an entry and does not count: `0/5 nodes` in
        # messages is about nodes that the API server has.
        if info is None or info.node is None:
            self._node_count += 1
        self.objects.note(_NODES, node.name, node.manifest)
        self._put((self._new_info(node.name) if info is None else info).with_node(node))

    def remove_node(self, name: str) -> None:
        """Forget the node; its pods stay until their own deletions come."""
        info = self._infos.get(name)
        if info is None or info.node is None:
            return
        self._node_count -= 1
        self.objects.note(_NODES, name, None)
        # The pods keep their capacity: the node may come back under its name before they are gone,
        # and the order of watches of nodes and of pods is not given.
        self._put(info.with_node(None))

    # --- facts -------------------------------------------------------------------------------

    def set_node_facts(self, name: str, facts: NodeFacts) -> None:
        """Show *facts* for the node *name*, also if it comes later."""
        if self._facts.get(name, NO_FACTS) == facts:
            return
        if facts == NO_FACTS:
            del self._facts[name]
        else:
            self._facts[name] = facts
        info = self._infos.get(name)
        if info is not None:
            # A new NodeInfo, as for any other change: columns notice it by its identity.
            self._put(info.with_facts(facts))

    def set_other_facts(
        self, *, cluster: Facts, types: Mapping[str, Facts], pods: Mapping[str, Facts]
    ) -> None:
        """Show these facts of the cluster, of pods by type, and of pods by key."""
        snapshot = self._snapshot
        snapshot.cluster_facts = dict(cluster)
        snapshot.type_facts = dict(types)
        snapshot.pod_facts = dict(pods)
        # Of no single node, so that no NodeInfo shows the change: this number does.
        snapshot.facts_generation += 1

    def set_pod_facts(self, key: str, facts: Facts) -> None:
        """Show *facts* for the pod of *key*; those of other pods stay."""
        if facts:
            self._snapshot.pod_facts[key] = facts
        else:
            self._snapshot.pod_facts.pop(key, None)
        self._snapshot.facts_generation += 1

    def set_pod_type_labels(self, labels: Sequence[str]) -> None:
        """The labels that say of which type a pod is: the first that it has counts."""
        self._snapshot.pod_type_labels = tuple(labels)
        self._snapshot.facts_generation += 1

    def facts_of_node(self, name: str) -> NodeFacts:
        """The facts of the node *name* as they are shown."""
        return self._facts.get(name, NO_FACTS)

    def node_facts(self) -> Mapping[str, NodeFacts]:
        """All facts of nodes that are shown, by name, including those of unknown nodes."""
        return self._facts

    # --- pods --------------------------------------------------------------------------------

    def add_pod(self, pod: Pod) -> None:
        """Count a pod that is on a node according to the API server; confirms it if it was assumed.

        A pod that has finished holds nothing and is removed. Raises `ValueError` for a pod
        that names no node.
        """
        if not pod.node_name:
            raise ValueError(f"pod `{pod.key}` names no node: only placed pods are cached")
        # Confirmed before anything else: from here on `forget` must not take the pod away, whatever
        # the binding cycle believes of its request.
        self._assumed.discard(pod.uid)
        if pod.manifest.status.phase in _TERMINAL_PHASES:
            self._drop(pod.uid)
            return
        self._place(pod)

    def remove_pod(self, pod: Pod) -> None:
        """Stop counting the pod of *pod*'s uid, assumed or not; unknown ones are ignored."""
        self._assumed.discard(pod.uid)
        self._drop(pod.uid)

    def assume(self, pod: Pod, node_name: str) -> Pod:
        """Count *pod* against *node_name* before the API server confirms it.

        Returns the copy that is counted, which names the node. Raises `AlreadyAssumed` if the
        pod is counted somewhere.
        """
        # Counting a pod twice would give its capacity away twice when it goes. Another program, or
        # a lost answer to our own binding, can have placed it while it was decided about.
        known = self._pods.get(pod.uid)
        if known is not None:
            state = "assumed" if pod.uid in self._assumed else "known to be"
            raise AlreadyAssumed(
                f"pod `{pod.key}` is {state} on node `{known.node_name}`, "
                f"so it cannot be assumed on `{node_name}`"
            )
        placed = pod.with_node(node_name)
        before = self._infos.get(node_name)
        self._place(placed)
        self._assumed.add(pod.uid)
        # The snapshot is held for a decision in its middle, and the members of a group are decided
        # one after the other on it: the next one has to see this pod, and nothing else that
        # happened. So it is put on the node as that is shown, which may be older than the node as
        # it is.
        if self._frozen and (shown := self._snapshot.info(node_name)) is not None:
            is_current = shown is before
            with_pod = self._infos[node_name] if is_current else shown.with_pod(placed)
            self._snapshot.put(node_name, with_pod)
        return placed

    def forget(self, uid: str) -> bool:
        """Undo `assume`. Returns True if the pod was still only assumed.

        A pod that was confirmed meanwhile is on its node, whatever the binding cycle believes,
        and stays.
        """
        if uid not in self._assumed:
            return False
        self._assumed.discard(uid)
        name = self._pods[uid].node_name
        self._drop(uid)
        # The same the other way round.
        if self._frozen and (shown := self._snapshot.info(name)) is not None and uid in shown.pods:
            self._snapshot.put(name, shown.without_pod(uid))
        return True

    def is_assumed(self, uid: str) -> bool:
        """True while the pod is assumed and not confirmed."""
        return uid in self._assumed

    def get_pod(self, uid: str) -> Pod | None:
        """The pod as it is counted, or None."""
        return self._pods.get(uid)

    def uid_of(self, key: str) -> str | None:
        """The uid of the counted pod `namespace/name`, or None."""
        return self._uid_of.get(key)

    # --- reading -----------------------------------------------------------------------------

    @property
    def node_count(self) -> int:
        """How many nodes there are, those known through their pods only left out."""
        return self._node_count

    @property
    def pod_count(self) -> int:
        """How many pods are counted, assumed ones included."""
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        """How many pods are assumed and not confirmed."""
        return len(self._assumed)

    def node_info(self, name: str) -> NodeInfo | None:
        """The NodeInfo of *name* as it is now (not as of the snapshot), or None."""
        return self._infos.get(name)

    def infos(self) -> Iterator[NodeInfo]:
        """Every NodeInfo as it is now, those known through their pods only as well."""
        return iter(self._infos.values())

    def snapshot(self) -> Snapshot:
        """The view for one cycle, brought up to date. Cost: the nodes changed since the last."""
        # Changes go on being noted in `_stale`, for the first snapshot after the end.
        if self._frozen:
            return self._snapshot
        # Volumes and claims are objects of their own, but what a node can take depends on them.
        for name in self._storage.take():
            if (info := self._infos.get(name)) is not None:
                self._put(info.with_new_storage())
        if self._stale:
            # In the order of the changes: slots of new nodes are given in it, and runs have to
            # repeat.
            for name in self._stale:
                self._snapshot.put(name, self._infos.get(name))
            self._stale.clear()
        return self._snapshot

    @contextlib.contextmanager
    def frozen(self) -> Iterator[Snapshot]:
        """The view for a cycle that waits in its middle: nothing brings it up to date meanwhile.

        A snapshot taken before the end is as it was at the beginning, except for pods that were
        assumed or forgotten since. May be nested: the outermost one counts.
        """
        snapshot = self.snapshot()
        self._frozen += 1
        try:
            yield snapshot
        finally:
            self._frozen -= 1

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Inside, pods can be removed, added and assumed; in the end all are as they were."""
        # Copies of the dicts are enough, as NodeInfos and pods never change.
        infos, pods, unread = self._infos.copy(), self._pods.copy(), self.objects.unread
        uids, assumed = self._uid_of.copy(), self._assumed.copy()
        try:
            yield
        finally:
            # By identity: what was removed and added again is another NodeInfo, and counts as
            # changed.
            changed = [name for name, info in self._infos.items() if infos.get(name) is not info]
            changed += [name for name in infos if name not in self._infos]
            self._infos, self._pods, self._uid_of, self._assumed = infos, pods, uids, assumed
            self.objects.unread = unread
            self._stale.update(dict.fromkeys(changed))
            self.pods_generation += 1

    # --- the only writers of NodeInfos -------------------------------------------------------

    def _new_info(self, name: str) -> NodeInfo:
        info, facts = NodeInfo(name), self._facts.get(name)
        return info if facts is None else info.with_facts(facts)

    def _put(self, info: NodeInfo) -> None:
        # Else names of nodes that are gone would stay for ever.
        if info.node is None and not info.pods:
            self._infos.pop(info.name, None)
        else:
            self._infos[info.name] = info
        self._stale[info.name] = None

    def _place(self, pod: Pod) -> None:
        # Two pods never have one name at a time: the old one is gone, if the watch has not said so
        # yet.
        namesake = self._uid_of.get(pod.key)
        if namesake is not None and namesake != pod.uid:
            self._assumed.discard(namesake)
            self._drop(namesake)
        known = self._pods.get(pod.uid)
        if known is pod:
            return
        # It is on another node than it was assumed on, say: another program has bound it.
        if known is not None and (known.node_name, known.key) != (pod.node_name, pod.key):
            self._drop(pod.uid)
        info = self._infos.get(pod.node_name) or self._new_info(pod.node_name)
        self._put(info.with_pod(pod))
        self.objects.note(_PODS, pod.uid, pod.manifest)
        self._pods[pod.uid] = pod
        self._uid_of[pod.key] = pod.uid
        # Who derives something of all placed pods (groups do) counts again when this has moved.
        self.pods_generation += 1

    def _drop(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self.objects.note(_PODS, uid, None)
        if self._uid_of.get(pod.key) == uid:
            del self._uid_of[pod.key]
        self._put(self._infos[pod.node_name].without_pod(uid))
        self.pods_generation += 1

    def check_invariants(self) -> None:
        """Raise `AssertionError` if pods, NodeInfos, sums and snapshot contradict each other."""
        counted: dict[str, str] = {}
        for name, info in self._infos.items():
            assert info.name == name, f"`{info.name}` is filed under `{name}`"
            assert info.node is not None or info.pods, f"`{name}` has neither node nor pods"
            assert info.node is None or info.node.name == name, f"`{name}` holds another node"
            again = NodeInfo(name, info.node, info.pods.values())
            assert again.requested == info.requested, f"`{name}`: requested is not the pods' sum"
            assert again.nonzero_requested == info.nonzero_requested, f"`{name}`: nonzero sum"
            assert again.used_ports == info.used_ports, f"`{name}`: ports are not the pods'"
            assert again.volumes == info.volumes, f"`{name}`: volumes are not the pods'"
            for uid, pod in info.pods.items():
                assert uid not in counted, f"`{pod.key}` counts on `{counted[uid]}` and `{name}`"
                assert pod.uid == uid, f"`{pod.key}` is filed under another uid"
                assert pod.node_name == name, f"`{pod.key}` is on `{pod.node_name}`, not `{name}`"
                assert self._pods.get(uid) is pod, f"`{name}` counts an old version of `{pod.key}`"
                counted[uid] = name
        assert counted.keys() == self._pods.keys(), "a known pod counts nowhere"
        assert self._assumed <= self._pods.keys(), "an assumed pod is not known"
        assert self._uid_of == {p.key: uid for uid, p in self._pods.items()}, "pod names differ"
        with_node = sum(1 for info in self._infos.values() if info.node is not None)
        assert with_node == self._node_count, "the node count is wrong"
        self._snapshot.check_invariants()
        for name, info in self._infos.items():
            if name not in self._stale:
                want = info if info.node is not None else None
                assert self._snapshot.info(name) is want, f"the snapshot of `{name}` is old"
        for name in self._snapshot.slot_of:
            assert name in self._infos or name in self._stale, f"the snapshot shows `{name}`"
