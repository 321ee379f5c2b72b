"""A thread and a process that take turns, on one core.

Owns where the two run while the one waits for the other. The kernel wakes who is asked on a core
that sleeps, if there is one, and so it does with who asked when the answer comes. A core that slept
is slow to come back, on a virtual machine most of all: there, two processes on two cores took
longer over short questions than on one, and no time of theirs ever overlapped.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final


def _finder() -> Callable[[], int] | None:
    """What tells the core that a thread is on; None where there is no such call."""
    if sys.platform != "linux":
        return None
    find: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return find


_current_core: Final = _finder()


class SharedCore:
    """Keeps the thread that enters it on its core, and the process *pid* on the same one.

    The thread is free again when it leaves; the process stays until the next turn, or until it is
    let go. Where the platform cannot do that, or does not allow it, nothing happens: it is about
    speed alone. Enter it from one thread at a time.
    """

    __slots__ = ("_before", "_core", "_pid")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._core: int | None = None  # the one that the process was bound to
        self._before: set[int] | None = None  # where the thread may run otherwise

    def __enter__(self) -> None:
        if _current_core is None:
            return
        core = _current_core()
        with contextlib.suppress(OSError):
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, (core,))
            self._before = before
            if core != self._core:
                os.sched_setaffinity(self._pid, (core,))
                self._core = core

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        before, self._before = self._before, None
        if before is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)

    def part(self) -> None:
        """Let the process run wherever this thread may: it works beside it now."""
        if self._core is not None:
            self._core = None
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._pid, os.sched_getaffinity(0))
