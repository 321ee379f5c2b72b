"""The kernel's clock: the time of the last event, plus what policies have taken since."""

from collections.abc import Callable


def standing_still() -> float:
    """A stopwatch for which nothing takes time: the same events then give the same instructions."""
    return 0.0


class KernelTime:
    """A clock for the parts of the kernel.

    Policies are asked while an event is handled, and take time. It is measured by *stopwatch* and
    added to the time of the event, so that waits begin when an answer has come.

    Args:
        stopwatch: Seconds since any moment.
    """

    def __init__(self, stopwatch: Callable[[], float] = standing_still) -> None:
        self._stopwatch = stopwatch
        self._offset = 0.0
        #: The time of the last event, without what policies have taken since: the same in a replay.
        self.entered_at = 0.0

    def enter(self, now: float) -> None:
        """Set the clock to *now* (monotonic seconds)."""
        self.entered_at = now
        self._offset = now - self._stopwatch()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._stopwatch() + self._offset

    def now(self) -> float:
        """As `monotonic`: no part of the kernel knows the date."""
        return self.monotonic()
