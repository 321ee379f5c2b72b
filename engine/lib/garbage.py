"""How often Python looks for garbage."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

#: For a process that decides, as `gc.set_threshold` takes them. Its young objects die young, and
#: the cluster that it remembers never dies: frequent looks at all of it cost more than they free.
WHILE_DECIDING: Final = (50_000, 20, 100)

#: For what reads its input, remembers what becomes of it and ends: looking for garbage in all of it
#: finds none. What was there before is found within a million objects.
UNTIL_THE_END: Final = (50_000, 10, 2)


@contextlib.contextmanager
def thresholds(young: int, middle: int, old: int) -> Iterator[None]:
    """Have other thresholds than before, see `gc.set_threshold`, until the block ends."""
    before = gc.get_threshold()
    gc.set_threshold(young, middle, old)
    try:
        yield
    finally:
        gc.set_threshold(*before)
