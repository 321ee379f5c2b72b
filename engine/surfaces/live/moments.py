"""Moments as the answers write them: RFC 3339, in UTC."""

from datetime import UTC, datetime

from engine.lib.clock import Clock


def at_text(seconds: float) -> str:
    """The moment *seconds* after the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class Moments:
    """Converts readings of the monotonic side of *clock* into moments, as of now."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now()
        self._monotonic = clock.monotonic()

    def text(self, monotonic: float | None) -> str | None:
        """The moment at which the clock read *monotonic*, or will."""
        if monotonic is None:
            return None
        return at_text(self.now + monotonic - self._monotonic)
