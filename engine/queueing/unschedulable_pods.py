"""Pods that were rejected and wait for an event that could help, and gated pods.

Owns the index by plugin that keeps an event from being shown to pods it cannot concern. Not a
queue: nothing here has an order.
"""

from collections.abc import Callable, Iterator

from engine.queueing.queued_pod import QueuedPod


class UnschedulablePods:
    """Pods by uid, and by each plugin that stands in their way.

    What stands in the way of a gated pod is the gate alone: nothing else can let it in.
    """

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._by_plugin: dict[str, dict[str, QueuedPod]] = {}
        self._gated_count = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    @property
    def gated_count(self) -> int:
        """How many of them are gated."""
        return self._gated_count

    @staticmethod
    def obstacles(queued: QueuedPod) -> frozenset[str]:
        """The plugins that have to change their mind."""
        if queued.gated_by is not None:
            return frozenset((queued.gated_by,))
        return queued.rejectors | queued.pending

    def add(self, queued: QueuedPod, now: float) -> None:
        """Set a pod aside from *now* on. Its obstacles must not change while it is here."""
        queued.waiting_since = now
        self._pods[queued.uid] = queued
        self._gated_count += queued.gated_by is not None
        for plugin in self.obstacles(queued):
            self._by_plugin.setdefault(plugin, {})[queued.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Take a pod out."""
        del self._pods[queued.uid]
        self._gated_count -= queued.gated_by is not None
        for plugin in self.obstacles(queued):
            peers = self._by_plugin[plugin]
            del peers[queued.uid]
            if not peers:
                del self._by_plugin[plugin]

    def held_by(self, concerns: Callable[[str], bool]) -> list[QueuedPod]:
        """The pods with an obstacle that *concerns* says yes to, each once, longest held first."""
        found: dict[str, QueuedPod] = {}
        for plugin, pods in self._by_plugin.items():
            if concerns(plugin):
                found.update(pods)
        # The order of plugins must not leak into the order of retries: runs have to repeat.
        return sorted(found.values(), key=lambda queued: queued.sequence)

    def held_since(self, moment: float) -> list[QueuedPod]:
        """The pods that have been set aside at or before *moment*."""
        return [queued for queued in self._pods.values() if queued.waiting_since <= moment]

    def oldest(self) -> float | None:
        """When the pod that waits longest was set aside; None when empty."""
        return min((queued.waiting_since for queued in self._pods.values()), default=None)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the index or the count of gated pods is wrong."""
        by_plugin: dict[str, set[str]] = {}
        for uid, queued in self._pods.items():
            assert queued.uid == uid, f"`{queued.pod.key}` is filed under another uid"
            assert self.obstacles(queued), f"`{queued.pod.key}` waits for nothing"
            for plugin in self.obstacles(queued):
                by_plugin.setdefault(plugin, set()).add(uid)
        assert {p: set(pods) for p, pods in self._by_plugin.items()} == by_plugin, "index is wrong"
        gated = sum(queued.gated_by is not None for queued in self._pods.values())
        assert gated == self._gated_count, "the count of gated pods is wrong"
