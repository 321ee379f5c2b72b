"""Pauses between decisions: how long pods that could be decided have waited for their turn.

Owns what counts as a pause: time in which something was to be decided and nothing was. Waiting for
pods, for a lease or for bindings to make room is none.
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
        """Something can be decided from *now* on."""
        if self._since is None:
            self._since = now

    def decided(self, now: float) -> None:
        """A decision ended *now*."""
        if self._since is not None and now - self._since > _SHORTEST_SECONDS:
            self._seconds.observe(now - self._since)
        self._since = now

    def rest(self) -> None:
        """Nothing can be decided for the time being."""
        self._since = None
