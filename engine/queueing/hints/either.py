"""The hints of two sets of policies that both decide: an event that may help by one of them counts.

Owns nothing but the union.
"""

from collections.abc import Iterable
from typing import Any

from engine.model.pod import Pod
from engine.queueing.events import ClusterEvent
from engine.queueing.hints.hints import Hints


class EitherHints(Hints):
    """The hints of *first* and of *second*.

    A pod is retried a few times too often rather than once too seldom: a plugin may have rejected
    it in the version of either.
    """

    def __init__(self, first: Hints, second: Hints) -> None:
        super().__init__()
        self._both = first, second

    def is_interested(self, plugin: str, event: ClusterEvent, *, is_gate: bool = False) -> bool:
        """As `Hints.is_interested`."""
        return any(one.is_interested(plugin, event, is_gate=is_gate) for one in self._both)

    def looks_at_pod(self, plugin: str) -> bool:
        """As `Hints.looks_at_pod`."""
        return any(one.looks_at_pod(plugin) for one in self._both)

    def is_known(self, plugin: str) -> bool:
        """As `Hints.is_known`."""
        return any(one.is_known(plugin) for one in self._both)

    def is_derived(self, plugin: str, *, is_gate: bool = False) -> bool:
        """As `Hints.is_derived`."""
        return any(one.is_derived(plugin, is_gate=is_gate) for one in self._both)

    def is_of_interest(self, event: ClusterEvent) -> bool:
        """As `Hints.is_of_interest`."""
        return any(one.is_of_interest(event) for one in self._both)

    def helped(
        self,
        event: ClusterEvent,
        pod: Pod,
        rejectors: Iterable[str],
        old: Any,
        new: Any,
        *,
        is_gated: bool = False,
    ) -> str | None:
        """As `Hints.helped`."""
        rejectors = tuple(rejectors)
        for one in self._both:
            plugin = one.helped(event, pod, rejectors, old, new, is_gated=is_gated)
            if plugin is not None:
                return plugin
        return None
