"""Ends a process together with the one that started it."""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its *parent* (a process id) ends, whatever ends it.

    The kernel goes by the thread that started this process. No effect on other
    systems than Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # It may have exited before. Then the parent is another one, not always 1: in a container
        # the starting process may be 1.
        if os.getppid() != parent:
            os._exit(1)
