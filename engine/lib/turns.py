"""How a thread and a process that take turns wait for each other.

Owns the choice between two ways, before each turn:

    asleep  on one core: who waits sleeps, and the core goes on with the other (`shared_core`)
    awake   on two cores: who waits looks again and again, and keeps his core and its caches

To wake somebody costs more than a short answer, and two who share a core come back to caches that
the other one filled: where turns follow each other closely, all of it takes up to a third less
time awake. But it takes a core, and on some machines two busy cores are slower than one: so it is
tried while turns are close, and kept as long as it is clearly faster.
"""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from engine.lib.contest import Contest
from engine.lib.cores import usable_cores
from engine.lib.shared_core import SharedCore

# Turns are close up to this many seconds between two of them, as a mean over about so many.
_CLOSE: Final = 0.0006
_SMOOTHED_OVER: Final = 16
# A gap that is longer counts as this long: a quiet hour is one gap, no reason to sleep through
# the burst that follows.
_LONGEST_GAP: Final = 0.004
# A turn that took longer than this had another question than most.
_LONGEST_ROUND: Final = 0.002
# Who is awake sleeps after all if nothing came for this many seconds.
_AWAKE: Final = 0.001


class Turns:
    """The turns of the main thread with the process *pid*: entered to ask and wait for the answer.

    `awake_for`: how many seconds each of the two is to look for what comes before it sleeps, 0.0
    for none; it says so from entering to leaving. Other threads' turns are no business of these:
    whoever they ask for works beside the main thread. Enter it from one thread at a time.

    Args:
        pid: The process.
        clock: Seconds that never go back.
        cores: How many there are to be used.
    """

    __slots__ = (
        "_clock", "_contest", "_entered_at", "_gap", "_has_cores", "_left_at", "_shared",
        "awake_for",
    )  # fmt: skip

    def __init__(
        self,
        pid: int,
        *,
        clock: Callable[[], float] = time.perf_counter,
        cores: Callable[[], float] = usable_cores,
    ) -> None:
        self.awake_for = 0.0
        self._shared = SharedCore(pid)
        self._clock = clock
        self._contest = Contest()
        self._has_cores = sys.platform == "linux" and cores() >= 2
        self._gap = _LONGEST_GAP
        self._left_at = self._entered_at = clock()

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        now = self._clock()
        took, self._entered_at = now - self._entered_at, now
        self._gap += (min(now - self._left_at, _LONGEST_GAP) - self._gap) / _SMOOTHED_OVER
        if not self._has_cores or self._gap > _CLOSE:
            self._contest.interrupt()
        else:
            self._contest.took(min(took, _LONGEST_ROUND))
            if self._contest.way:
                self._shared.keep_off()
                self.awake_for = _AWAKE
                return
        self._shared.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shared.__exit__(kind, error, traceback)
        self.awake_for = 0.0
        self._left_at = self._clock()

    def part(self) -> None:
        """Let the process run wherever this thread may: it works beside it now."""
        self._shared.part()
