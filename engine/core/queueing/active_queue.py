"""Pods that can be tried now. Owns the order in which they are tried."""

from collections.abc import Iterator

from engine.core.queueing.queued_pod import QueuedPod
from engine.lib.heap import KeyedHeap


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

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod."""
        self._heap.remove(queued.uid)

    def pop(self) -> QueuedPod | None:
        """The first pod, removed; None if none may be tried."""
        return self._heap.pop()

    @property
    def may_pop(self) -> bool:
        """True if `pop` may give a pod."""
        return bool(self._heap)

    @property
    def goes_by_turns(self) -> bool:
        """True if pods have to wait for their turn, so that none is tried early."""
        return False

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the heap is broken."""
        self._heap.check_invariants()
