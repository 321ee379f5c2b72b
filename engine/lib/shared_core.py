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
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Final


def _finder() -> Callable[[], int] | None:
    """What tells the core that a thread is on; None where there is no such call."""
    if sys.platform != "linux":
        return None
    find: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return find


_current_core: Final = _finder()


# Asked for all, the kernel gives what the container has, and what it has later. Asked for what it
# has now, a thread would not follow when the container is given other cores.
_ALL_CORES: Final = range(os.sysconf("SC_NPROCESSORS_CONF") if sys.platform == "linux" else 0)


class SharedCore:
    """Keeps the thread that enters it on its core, and the process *pid* on the same one.

    The thread is free again when it leaves; the process stays until the next turn, or until it is
    let go. Only the main thread is kept: what others ask for is work beside its own, and two pairs
    that met on one core could not get out of each other's way. Where the platform cannot do that,
    or does not allow it, nothing happens: it is about speed alone. Enter it from one thread at a
    time.
    """

    __slots__ = ("_avoided", "_core", "_is_bound", "_pid", "_seen", "_wide")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._core: int | None = None  # the one that the process was bound to
        self._avoided: int | None = None  # the one that it was told not to run on
        self._is_bound = False  # the thread
        self._seen: set[int] = set()  # where it ran when it was not bound
        self._wide: Collection[int] = ()  # what to ask for that it runs there again

    def __enter__(self) -> None:
        if _current_core is None or threading.get_ident() != threading.main_thread().ident:
            return
        core = _current_core()
        if core < 0:  # the call is refused
            return
        with contextlib.suppress(OSError):
            self._look_around()
            os.sched_setaffinity(0, (core,))
            self._is_bound = True
            if core != self._core:
                os.sched_setaffinity(self._pid, (core,))
                self._core, self._avoided = core, None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_bound:
            self._is_bound = False
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._wide)

    def part(self) -> None:
        """Let the process run wherever this thread may: it works beside it now."""
        if self._core is not None or self._avoided is not None:
            self._core = self._avoided = None
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._pid, self._wide)

    def keep_off(self) -> None:
        """Let the process run on any core but this thread's: both are busy now.

        The kernel may let two that never sleep queue for one core beside another that is idle.
        """
        core = -1 if _current_core is None else _current_core()
        if core == self._avoided or core < 0:
            return
        with contextlib.suppress(OSError):
            self._look_around()
            os.sched_setaffinity(self._pid, set(self._wide) - {core})
            self._core, self._avoided = None, core

    def _look_around(self) -> None:
        """Find out where this thread may run, when it is not bound."""
        before = os.sched_getaffinity(0)
        if before != self._seen:
            self._wide = _wide(before)
            self._seen = before


def _wide(here: set[int]) -> Collection[int]:
    """What this thread has to ask for to run *here*, where it is: all cores, if these are all."""
    os.sched_setaffinity(0, _ALL_CORES)
    if os.sched_getaffinity(0) == here:
        return _ALL_CORES
    os.sched_setaffinity(0, here)  # somebody chose these
    return here
