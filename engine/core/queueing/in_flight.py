"""Pods that are being tried, and the events since they were popped.

Owns these events, so that one between a pod's pop and its rejection is not lost.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.queued_pod import QueuedPod


class RecordedEvent(NamedTuple):
    """An event with the objects before and after it, and the priority up to which it counts."""

    event: ClusterEvent
    old: Any
    new: Any
    max_priority: int | None = None


class InFlight:
    """Pods between pop and done, and the events since the oldest of those pops.

    A pod is decided on the cluster as it was at its pop. An event that comes later finds it neither
    rejected nor waiting, so nothing can be retried; but the rejection that follows may be out of
    date. Therefore events are held as long as a pod is in flight that has not seen them, and are
    looked through when it is rejected.

    One list of events serves all: each pod remembers how many there were when it was popped. Each
    `finish` drops the events that came before the oldest pop that is left, so a pod that stays in
    flight (while its extenders answer) holds all events since.
    """

    def __init__(self) -> None:
        # uid -> (pod, number of events before its pop, those not held); in the order of the pops.
        self._pods: dict[str, tuple[QueuedPod, int, int]] = {}
        self._events: deque[RecordedEvent] = deque()
        self._dropped = 0  # events that came before the first one still held
        self._missed = 0  # events that were not worth holding

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for queued, _, _ in self._pods.values())

    def event_counts(self) -> Counter[str]:
        """How many events are held, by label."""
        return Counter(recorded.event.label for recorded in self._events)

    def start(self, queued: QueuedPod) -> None:
        """An attempt begins: hold events from now on."""
        self._pods[queued.uid] = (queued, self._dropped + len(self._events), self._missed)

    def get(self, uid: str) -> QueuedPod | None:
        """The pod that is being tried, or None."""
        found = self._pods.get(uid)
        return None if found is None else found[0]

    def record(
        self, event: ClusterEvent, old: Any, new: Any, max_priority: int | None = None
    ) -> None:
        """Hold an event for the pods in flight; nothing happens if there are none."""
        if self._pods:
            self._events.append(RecordedEvent(event, old, new, max_priority))

    def miss(self) -> None:
        """Count an event without holding it: no known plugin is interested in it."""
        self._missed += 1

    def has_missed(self, uid: str) -> bool:
        """True if an event since the pod's pop is not held."""
        found = self._pods.get(uid)
        return found is not None and found[2] != self._missed

    def events_since_pop(self, uid: str) -> list[RecordedEvent]:
        """The events since the pod was popped, oldest first. Raises `KeyError` if not in flight."""
        start = self._pods[uid][1] - self._dropped
        return [self._events[i] for i in range(start, len(self._events))]

    def finish(self, queued: QueuedPod) -> None:
        """The attempt is over; events that no other pod in flight has to see are dropped."""
        if self.get(queued.uid) is not queued:
            return  # over already, and maybe another attempt at a pod of this uid has begun
        del self._pods[queued.uid]
        if not self._pods:
            keep_from = self._dropped + len(self._events)
        else:
            keep_from = next(iter(self._pods.values()))[1]
        while self._dropped < keep_from:
            self._events.popleft()
            self._dropped += 1

    def check_invariants(self) -> None:
        """Raise `AssertionError` if events are held too long or not long enough."""
        starts = [start for _, start, _ in self._pods.values()]
        assert starts == sorted(starts), "pods in flight are not in the order of their pops"
        assert not starts or starts[0] == self._dropped, "events are held that no pod has to see"
        assert starts or not self._events, "events are held while no pod is in flight"
