"""Nominated pods: preemption freed capacity for them on a node, and others must not take it.

Owns the nominations. Filtering with nominated pods is the scheduling cycle's.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from engine.core.caching.kind_index import TermKeys, term_keys
from engine.core.model.pod import Pod
from engine.lib.change_log import ChangeLog

# Of at least so many changes the nodes are known.
_LOG_SIZE: Final = 4_096


def _ignored(pod: Pod, node_name: str) -> None:
    """The default of `on_lost`."""


class Nominator:
    """At most one node for each pod that is not placed yet.

    A nomination exists in memory before the API knows of it, so an update of a pod whose status
    names no node, neither before nor after, does not clear it.

    Args:
        on_lost: Called with a pod and the node that it was nominated to and will not take, so that
            others may use its capacity.
    """

    def __init__(self, on_lost: Callable[[Pod, str], None] = _ignored) -> None:
        self._on_lost = on_lost
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._term_keys = TermKeys[str]()
        self._changes: ChangeLog[str] = ChangeLog(_LOG_SIZE)  # the node of each

    @property
    def generation(self) -> int:
        """Grows by one with each change of a nomination."""
        return self._changes.end

    def __len__(self) -> int:
        return len(self._node_of)

    def __iter__(self) -> Iterator[Pod]:
        return (pod for pods in self._on_node.values() for pod in pods.values())

    @property
    def term_keys(self) -> AbstractSet[str]:
        """The label keys that the affinity terms of nominated pods name."""
        return self._term_keys.named

    def copy(self) -> "Nominator":
        """An independent copy of the nominations, which reports no lost one."""
        copy = Nominator()
        copy._node_of = self._node_of.copy()
        copy._on_node = {node: pods.copy() for node, pods in self._on_node.items()}
        copy._term_keys = self._term_keys.copy()
        return copy

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Nominate *pod* to *node_name* instead of the node that it had.

        None stands for the node that the pod's status names, and "" clears the nomination. A pod
        that has a node needs none.
        """
        node = pod.nominated_node_name if node_name is None else node_name
        self.remove(pod.uid, placed_on=pod.node_name or node)
        if not node or pod.node_name:
            return
        self._node_of[pod.uid] = node
        self._on_node.setdefault(node, {})[pod.uid] = pod
        self._add_terms(pod)
        self._changes.note(node)

    def update(self, old: Pod, new: Pod) -> None:
        """Follow the pod to its new version, and its status where that names a node."""
        if not old.nominated_node_name and not new.nominated_node_name:
            self.refresh(new)
        else:
            self.nominate(new)

    def refresh(self, pod: Pod) -> None:
        """Keep the nomination of *pod*, if there is one, for this version of it."""
        node = self._node_of.get(pod.uid)
        if node is not None:
            self._on_node[node][pod.uid] = pod
            self._term_keys.remove(pod.uid)
            self._add_terms(pod)
            self._changes.note(node)

    def _add_terms(self, pod: Pod) -> None:
        if pod.manifest.spec.affinity is not None:
            self._term_keys.add(pod.uid, pod.manifest.spec.affinity)

    def remove(self, uid: str, *, placed_on: str = "") -> None:
        """Clear the nomination of a pod; nothing happens if there is none.

        *placed_on* is the node that it takes, or is nominated to instead: there, nothing is freed.
        """
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        peers = self._on_node[node]
        pod = peers.pop(uid)
        if not peers:
            del self._on_node[node]
        self._term_keys.remove(uid)
        self._changes.note(node)
        if node != placed_on:
            self._on_lost(pod, node)

    def node_of(self, uid: str) -> str | None:
        """The node that a pod is nominated to, or None."""
        return self._node_of.get(uid)

    def pods_on(self, node_name: str) -> list[Pod]:
        """The pods nominated to *node_name*, in the order of their nominations."""
        return list(self._on_node.get(node_name, {}).values())

    def nodes(self) -> list[str]:
        """The nodes that pods are nominated to."""
        return list(self._on_node)

    def changed_since(self, generation: int) -> list[str] | None:
        """The nodes whose nominations changed after *generation*, each once; None: too long ago."""
        nodes = self._changes.since(generation)
        return None if nodes is None else list(dict.fromkeys(nodes))

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the two directions contradict each other."""
        seen = {uid: node for node, pods in self._on_node.items() for uid in pods}
        assert seen == self._node_of, "nominations by node and by pod differ"
        assert all(self._on_node.values()), "a node without nominations is kept"
        named = [p.manifest.spec.affinity for p in self if p.manifest.spec.affinity is not None]
        keys = set().union(*map(term_keys, named))
        assert self.term_keys == keys, "the label keys of the nominated pods' terms differ"
        self._changes.check_invariants()
