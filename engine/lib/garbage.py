"""Thresholds of Python's garbage collector."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

#: For a process that decides, as `gc.set_threshold` takes them. Most of its new objects are soon
#: freed, and the cached cluster stays: frequent full collections cost more than they free.
WHILE_DECIDING: Final = (50_000, 20, 100)

#: For a command that reads its input, keeps its results and exits: a full collection finds nothing
#: to free. Earlier garbage is found within a million objects.
UNTIL_THE_END: Final = (50_000, 10, 2)


@contextlib.contextmanager
def thresholds(young: int, middle: int, old: int) -> Iterator[None]:
    """Use other thresholds, see `gc.set_threshold`, until the block ends."""
    before = gc.get_threshold()
    gc.set_threshold(young, middle, old)
    try:
        yield
    finally:
        gc.set_threshold(*before)
