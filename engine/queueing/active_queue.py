"""Pods that can be tried now, and the pods that are being tried.

Owns the order of attempts and the record of what happened during each of them, so that an event
between a pod's pop and its rejection is not lost.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.lib.heap import KeyedHeap
from engine.queueing.events import ClusterEvent
from engine.queueing.queued_pod import QueuedPod


class ActiveQueue:
    """A heap of pods by `QueuedPod.order`."""

    def __init__(self) -> None:
        self._heap: KeyedHeap[str, QueuedPod] = KeyedHeap()

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._heap)

    def add(self, queued: QueuedPod) -> None:
        """Add a pod, or re-order it after its key changed."""
        self._heap.push(queued.uid, queued, queued.order)

    def pull(self, queued: QueuedPod) -> None:
        """Let a pod that is here go before all that were not pulled."""
        # The smallest key there is; a key of the policy is longer, or decides by the time.
        self._heap.push(queued.uid, queued, ((), -math.inf, queued.sequence))

    def remove(self, queued: QueuedPod) -> None:
        """Take a pod out."""
        self._heap.remove(queued.uid)

    def pop(self) -> QueuedPod | None:
        """The pod that goes first, taken out; None when empty."""
        return self._heap.pop()

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the heap is broken."""
        self._heap.check_invariants()


class RecordedEvent(NamedTuple):
    """An event with the objects before and after it, and for whom it is (None: for all)."""

    event: ClusterEvent
    old: Any
    new: Any
    max_priority: int | None = None


class InFlight:
    """Pods between pop and done, and the events since the oldest of those pops.

    One list of events serves all: each pod remembers how many there were when it was popped.
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

    @property
    def event_count(self) -> int:
        """How many events are held."""
        return len(self._events)

    def start(self, queued: QueuedPod) -> None:
        """An attempt begins: hold the events from now on."""
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
        """Note an event without holding it: nothing that is known cares for it."""
        self._missed += 1

    def has_missed(self, uid: str) -> bool:
        """True if an event since the pod's pop is not held."""
        found = self._pods.get(uid)
        return found is not None and found[2] != self._missed

    def events_since_pop(self, uid: str) -> list[RecordedEvent]:
        """The events since the pod was popped, oldest first. Raises `KeyError` if not in flight."""
        start = self._pods[uid][1] - self._dropped
        return [self._events[i] for i in range(start, len(self._events))]

    def finish(self, uid: str) -> None:
        """The attempt is over; events that no other pod in flight has to see are let go."""
        if self._pods.pop(uid, None) is None:
            return
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
        assert not starts or starts[0] == self._dropped, "events are held that nobody has to see"
        assert starts or not self._events, "events are held while no pod is in flight"
