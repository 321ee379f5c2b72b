"""Pauses between decisions: times in which a pod was ready to be decided and none was.

Owns what counts as a pause. Waiting for pods, for the lease or for the capacity of bindings does
not.
"""

from typing import Final

from prometheus_client import Histogram

#: Shorter ones are decisions that follow each other; noting each would cost as much as some.
_SHORTEST_SECONDS: Final = 0.002


class DecisionPauses:
    """Observes pauses in *seconds*.

    resting --begin (there is something to decide)--> waiting --decided--> waiting --rest--> resting
    """

    __slots__ = ("_seconds", "_since")

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """Note that a pod can be decided from *now* on."""
        if self._since is None:
            self._since = now

    def decided(self, now: float) -> None:
        """Note that a decision ended *now*."""
        if self._since is not None and now - self._since > _SHORTEST_SECONDS:
            self._seconds.observe(now - self._since)
        self._since = now

    def rest(self) -> None:
        """Note that nothing can be decided for the time being."""
        self._since = None
