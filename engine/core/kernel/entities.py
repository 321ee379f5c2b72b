"""What the queue tries as one, counted as kube-scheduler's metrics count it.

A pod that is in no group is an entity, and so is a group with all of its pods that wait. Pods
whose PodGroup was never seen are none: they are `incomplete`. So are those that came while the rest
of their group is being tried, and are `pending` until it is back.
"""

from collections import Counter
from typing import Final

from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.queueing.places import WAITING
from engine.core.queueing.scheduling_queue import SchedulingQueue

POD: Final = "pod"
GROUP: Final = "podgroup"
#: Of which there are none here.
COMPOSITE_GROUP: Final = "compositepodgroup"
INCOMPLETE: Final = "incomplete"
PENDING: Final = "pending"


class QueuedEntityCounts:
    """Counts pods and groups by the queue that they wait in, and those that enter one.

    `incoming_pods` and `incoming` count the latter by queue and event, and by type of entity.
    """

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        self._tried: GroupKey | None = None
        self.incoming_pods: Counter[tuple[str, str]] = Counter()
        self.incoming: Counter[tuple[str, str, str]] = Counter()

    def entered(self, uid: str, queue: str, event: str) -> None:
        """Count a pod that enters a queue; its group enters it with the first of them."""
        groups = self._groups
        key = groups.tried_in(uid)
        if key is None:
            self.incoming[queue, event, POD] += 1
        elif groups.is_incomplete(uid):
            return
        elif groups.queue_of.get(key) != queue:
            groups.queue_of[key] = queue
            self.incoming[queue, event, GROUP] += 1
        self.incoming_pods[queue, event] += 1

    def tried(self, key: GroupKey | None) -> None:
        """Note the group that is being tried, which has left its queue; None: that is over."""
        self._tried = key
        if key is not None:
            self._groups.queue_of.pop(key, None)

    def waiting(self, queue: SchedulingQueue) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """How many pods wait, by queue, and how many entities, by queue and type.

        A group is, with all its pods, where the one is that goes first. Costs a
        look at every pod that waits: for metrics, not for decisions.
        """
        pods = {place.label: 0 for place in WAITING} | {INCOMPLETE: 0, PENDING: 0}
        found = {(place.label, kind): 0 for place in WAITING for kind in (POD, GROUP)}
        where: dict[GroupKey, str] = {}
        for uid, label in queue.waiting():
            key = self._groups.tried_in(uid)
            if key is None:
                found[label, POD] += 1
            elif self._groups.is_incomplete(uid):
                label = INCOMPLETE
            elif key == self._tried:
                label = PENDING
            elif key in where:
                label = where[key]
            else:
                where[key] = label
                found[label, GROUP] += 1
            pods[label] += 1
        return pods, found
