"""The hints of two sets of policies that both decide: an event that may help by one of them counts.

Owns nothing but the union.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from engine.core.model.pod import Pod
from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.hints.hints import Hints
from engine.core.queueing.hints.own_labels import Label


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
        asked = self._asked(plugin, is_gate=is_gate)
        return any(one.is_interested(plugin, event, is_gate=is_gate) for one in asked)

    def looks_at_pod(self, plugin: str) -> bool:
        """As `Hints.looks_at_pod`."""
        return any(one.looks_at_pod(plugin) for one in self._asked(plugin))

    def can_reject(self, plugin: str, *, is_gate: bool = False) -> bool:
        """As `Hints.can_reject`."""
        return any(one.can_reject(plugin, is_gate=is_gate) for one in self._both)

    def is_known(self, plugin: str) -> bool:
        """As `Hints.is_known`."""
        return any(one.is_known(plugin) for one in self._both)

    def labels_offered(self, event: ClusterEvent, old: Any, new: Any) -> frozenset[Label] | None:
        """As `Hints.labels_offered`."""
        first, second = (one.labels_offered(event, old, new) for one in self._both)
        return None if second is None else first

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
        for plugin in sorted(rejectors):
            for one in self._asked(plugin, is_gate=is_gated):
                found = one.helped(event, pod, (plugin,), old, new, is_gated=is_gated)
                if found is not None:
                    return found
        return None

    def _asked(self, plugin: str, *, is_gate: bool = False) -> Sequence[Hints]:
        """Those that may have rejected by *plugin*; what is in one version alone is not unknown."""
        found = [one for one in self._both if one.can_reject(plugin, is_gate=is_gate)]
        return found or self._both
