"""Time as an argument: the clock that every timed part is given.

Owns nothing but the reading of time; no part of the core reads the wall clock itself.
"""

import time
from typing import Final, Protocol

#: Goes on while the machine sleeps, unlike the clock of `time.monotonic`: a lease runs out then,
#: too. Where there is no such clock, the other has to do.
_UNSLEEPING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Seconds that never go back; for intervals, backoff and deadlines."""
        ...

    def now(self) -> float:
        """Seconds since the epoch; for timestamps that people or the API read."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds since the system started, those that it slept included."""
        return time.clock_gettime(_UNSLEEPING)

    def now(self) -> float:
        """Seconds since the epoch by the system's clock."""
        return time.time()


class VirtualClock:
    """A clock that moves only when it is advanced: for tests, simulation and replay."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._epoch = start
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Seconds advanced since the clock was made."""
        return self._elapsed

    def now(self) -> float:
        """The start plus the seconds advanced."""
        return self._epoch + self._elapsed

    def advance(self, seconds: float) -> None:
        """Move time forward by *seconds* (not negative)."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: advance({seconds})")
        self._elapsed += seconds
