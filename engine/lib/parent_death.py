"""A process that dies with the one that started it."""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its *parent* (a process id) ends, whatever ends it.

    The kernel means the thread that started this process. Nothing happens where it cannot do that.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # It may have died before. Another parent says so, not 1: a container's first process is 1.
        if os.getppid() != parent:
            os._exit(1)
