"""The preemptions under way, and the pods that must not be tried until they have ended.

Owns that state. Who the victims are is decided by `engine.core.scheduling.preemption`; evicting
them is
`engine.io.binding`'s.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from engine.core.queueing.places import Gate

#: kube-scheduler's name of the plugin, and what its gate says.
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
WAITING: Final = "waiting for the preemption for this pod to be finished"
WAITING_AS_GROUP: Final = "waiting for the preemption for this pod group to be finished"
WAITING_FOR_OTHERS: Final = "waiting for another preemption on the nominated node to be finished"


class Preemptions:
    """Preemptors by uid: `free --begin--> preempting --end--> free`.

    While a pod is preempting, the queue's gate keeps it out: otherwise the deletion of the first of
    several victims would have it tried, and maybe more victims chosen, too early. When it is free
    again the queue checks the gate again, so that an event that came too early is not lost.

    The gate also keeps out a pod that is nominated for a node on which another one preempts: the
    node has to hold both, so it does not fit before those victims have gone, too. As long as the
    watch does not show them going, an attempt would evict pods elsewhere for nothing.

    Victims are on their way out before the watch shows it: `is_evicted`.
    """

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._by_node: Counter[str] = Counter()
        self._held: dict[str, str] = {}  # by uid, the nominated node for which the gate was closed
        self._group_of: dict[str, str] = {}  # by uid, the preemptor that stands for its group
        self._victims: dict[str, tuple[str, ...]] = {}  # by preemptor
        self._evicted: Counter[str] = Counter()  # by victim, for how many preemptors

    def __contains__(self, uid: str) -> bool:
        return uid in self._node_of

    def begin(self, uid: str, node: str, victims: Iterable[str], group: Iterable[str] = ()) -> None:
        """The pods *victims* are evicted on *node* for the pod of *uid* from now on.

        If it stands for a group, *group* are the uids of the group's pods.
        """
        assert uid not in self._node_of, "it is preempting already"
        self._victims[uid] = tuple(victims)
        self._evicted.update(self._victims[uid])
        self._node_of[uid] = node
        self._by_node[node] += 1
        for member in group:
            self._group_of[member] = uid

    def end(self, uid: str) -> list[str]:
        """The pod of *uid* is free; returns the uids of other pods whose gate may be open now."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return []
        for victim in self._victims.pop(uid):
            self._evicted[victim] -= 1
            if not self._evicted[victim]:
                del self._evicted[victim]
        members = [member for member, preemptor in self._group_of.items() if preemptor == uid]
        for member in members:
            del self._group_of[member]
        self._by_node[node] -= 1
        if self._by_node[node]:
            return members
        del self._by_node[node]
        released = members + [held for held, nominated in self._held.items() if nominated == node]
        for held in released:
            self._held.pop(held, None)
        return released

    def is_evicted(self, uid: str) -> bool:
        """True if the pod of *uid* is evicted for a preemptor that is not free yet."""
        return uid in self._evicted

    @property
    def evicted(self) -> Collection[str]:
        """The uids of which `is_evicted` is true."""
        return self._evicted.keys()

    def gate(self, uid: str, nominated_node: str | None) -> Gate | None:
        """What keeps the pod of *uid* from being tried, or None."""
        if uid in self._group_of:
            return _gate(WAITING_AS_GROUP)
        if uid in self._node_of:
            return _gate(WAITING)
        if nominated_node is None or nominated_node not in self._by_node:
            return None
        self._held[uid] = nominated_node
        return _gate(WAITING_FOR_OTHERS)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if pods and nodes contradict each other."""
        assert Counter(self._node_of.values()) == self._by_node, "preemptions by node are wrong"
        assert self._victims.keys() == self._node_of.keys(), "victims have no preemptor"
        assert Counter(itertools.chain(*self._victims.values())) == self._evicted, (
            "victims are counted wrong"
        )
        assert all(node in self._by_node for node in self._held.values()), (
            "a pod is held for nothing"
        )


def _gate(reason: str) -> Gate:
    return Gate(DEFAULT_PREEMPTION, reason, "WaitingForPreemption")
