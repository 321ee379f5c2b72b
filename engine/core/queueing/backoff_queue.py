"""Pods that failed lately and wait before they are tried again.

Owns how long their backoff is, and when it is over.
"""

import math
from collections.abc import Iterator
from typing import Final

from engine.core.queueing.queued_pod import QueuedPod
from engine.lib.clock import Clock
from engine.lib.heap import KeyedHeap

_NO_BACKOFF: Final = -math.inf


class BackoffQueue:
    """Two heaps by the end of the backoff: pods that were rejected, and pods whose attempt failed.

    The backoff doubles with each failure up to a ceiling. It ends with whole seconds, so that pods
    that failed in the same second come back together, in the order of the active queue, and not in
    the order in which they happened to be tried. The rejected ones may be popped early when no pod
    is active, unless not *pops_early*; those that failed wait, to give what failed time to recover.
    """

    def __init__(
        self, clock: Clock, initial: float, ceiling: float, *, pops_early: bool = True
    ) -> None:
        self._clock = clock
        self._initial = initial
        self._ceiling = ceiling
        self._pops_early = pops_early
        self._rejected: KeyedHeap[str, QueuedPod] = KeyedHeap()
        self._failed: KeyedHeap[str, QueuedPod] = KeyedHeap()

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __iter__(self) -> Iterator[QueuedPod]:
        yield from self._rejected
        yield from self._failed

    def backoff_for(self, count: int, members: int = 1) -> float:
        """Seconds of backoff after *count* failures: the initial ones, doubled each time.

        For a group of so many *members* the longest backoff is longer, by the root of that number.
        """
        if count <= 0 or self._ceiling == 0:
            return 0.0
        ceiling = self._ceiling if members == 1 else self._ceiling * math.sqrt(members)
        # Compared before it is multiplied: a million failures must not make a float overflow.
        doublings = count - 1
        if doublings > 64 or self._initial > ceiling / (1 << doublings):
            return ceiling
        return self._initial * (1 << doublings)

    def expiry(self, queued: QueuedPod) -> float:
        """The second in which the backoff ends; -inf for a pod that has none."""
        count = queued.error_count or queued.unschedulable_count
        if count == 0 or self._ceiling == 0:
            return _NO_BACKOFF
        return math.floor(queued.timestamp + self.backoff_for(count, queued.members))

    def is_backing_off(self, queued: QueuedPod) -> bool:
        """True while the second in which its backoff ends is not over."""
        return self.expiry(queued) >= math.floor(self._clock.monotonic())

    def seconds_left(self, queued: QueuedPod) -> float:
        """Seconds until its backoff ends; 0 if it is over."""
        return max(self.expiry(queued) + 1 - self._clock.monotonic(), 0.0)

    def add(self, queued: QueuedPod) -> None:
        """Add a pod, or re-order it after its key changed."""
        if queued.failed_with_error:
            order = (self.expiry(queued), queued.sequence)
            self._failed.push(queued.uid, queued, order)
        else:
            self._rejected.push(queued.uid, queued, (self.expiry(queued), queued.order))

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod."""
        if self._rejected.remove(queued.uid) is None:
            self._failed.remove(queued.uid)

    def pop_early(self) -> QueuedPod | None:
        """The rejected pod whose backoff ends first, removed before that; or None."""
        return self._rejected.pop() if self._pops_early else None

    @property
    def early_count(self) -> int:
        """How many pods `pop_early` can give."""
        return len(self._rejected) if self._pops_early else 0

    def pop_expired(self) -> list[QueuedPod]:
        """All pods whose backoff is over, removed; the rejected ones first."""
        expired = []
        for heap in (self._rejected, self._failed):
            while (queued := heap.peek()) is not None and not self.is_backing_off(queued):
                heap.pop()
                expired.append(queued)
        return expired

    def next_expiry_in(self) -> float | None:
        """Seconds until `pop_expired` has something; None when empty."""
        heads = [head for heap in (self._rejected, self._failed) if (head := heap.peek())]
        return min(map(self.seconds_left, heads), default=None)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod is in the wrong heap or a heap is broken."""
        self._rejected.check_invariants()
        self._failed.check_invariants()
        for queued in self._rejected:
            assert not queued.failed_with_error, f"`{queued.pod.key}` was not rejected"
        for queued in self._failed:
            assert queued.failed_with_error, f"`{queued.pod.key}` was rejected, not failed"
