"""Delays between tries: exponential, jittered, with a ceiling.

Owns the arithmetic only; sleeping is the caller's. The generator of random numbers is
passed in, so tests and replays see the same delays.
"""

import random


class Backoff:
    """Delays that double from *initial* to *ceiling*, each shortened by up to half at random.

    Shortened rather than lengthened, so *ceiling* is what it says; at random, so that the
    watchers of one server do not all come back in the same instant after it restarts.

    Args:
        rng: Source of the jitter.
        initial: Seconds before the first retry, at most.
        ceiling: Seconds between later ones, at most.
    """

    def __init__(self, rng: random.Random, *, initial: float = 0.5, ceiling: float = 15.0) -> None:
        self._rng = rng
        self._initial = initial
        self._ceiling = ceiling
        self.attempts = 0

    def next(self) -> float:
        """Seconds to wait now; counts the attempt."""
        # The exponent is bounded: an outage of days must not overflow a float.
        full = min(self._ceiling, self._initial * 2.0 ** min(self.attempts, 30))
        self.attempts += 1
        return full * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from *initial*: things work."""
        self.attempts = 0
