"""Gives memory that the process has freed back to the machine.

The C library keeps what was freed between other allocations until it is asked for it.
"""

import contextlib
import ctypes


def give_back() -> None:
    """Return what is free, in some milliseconds; nothing where there is no `malloc_trim`."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
