"""What of the policies a process is at, for another process that watches it.

Owns the memory that both see. One call of the interpreter's own functions cannot be interrupted, so
a process that is in one for too long cannot say so itself. Where nobody watches, as in the
scheduler and in tests of the engine, `current` is None and nothing is told.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: What can be under way, the one inside the other: a call of a hook, a unit test.
CALL: Final = 0
TEST: Final = 1
LEVELS: Final = (CALL, TEST)

# The memory: some numbers, then texts, each after its length.
_NUMBERS: Final = 16
_MILLISECONDS, _MEMORY, _RUNS, _TOLD = 4, 6, 8, 9
_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 2
_MOST_TEXT: Final = 4096


class Whereabouts:
    """What a process is at: at most one thing on each level.

    Written by the process itself, before it begins and when it is done; read by its parent, also
    when the process is no more. To tell costs one number: the texts are there beforehand.
    """

    def __init__(self) -> None:
        # Of this process and of those that it forks.
        self._memory = mmap.mmap(-1, _BYTES)
        self._numbers = memoryview(self._memory).cast("q")
        self._labels: dict[str, int] = {}
        self._free = 8 * _NUMBERS
        self._serial = 0

    # --- told by the process ------------------------------------------------------------------

    def label(self, text: str) -> int:
        """What `begin` takes for something that is called *text*."""
        found = self._labels.get(text)
        if found is not None:
            return found
        raw = text.encode(errors="replace")[:_MOST_TEXT]
        end = self._free + _LENGTH_BYTES + len(raw)
        if end > _BYTES:
            return 0  # so many names are not told any more
        self._memory[self._free : end] = len(raw).to_bytes(_LENGTH_BYTES, "big") + raw
        found = self._labels[text] = self._free
        self._free = end
        return found

    def begin(self, level: int, label: int) -> None:
        """Something begins; two that are called the same are told apart."""
        self._serial = serial = self._serial + _BYTES
        self._numbers[level] = serial + label

    def end(self, level: int) -> None:
        """It is done."""
        self._numbers[level] = 0

    def allow(self, level: int, seconds: float, memory: int = 0) -> None:
        """What begins on this level may take so much time, and bytes of memory, if not more."""
        for field, amount in ((_MILLISECONDS, int(seconds * 1000)), (_MEMORY, memory)):
            self._numbers[field + level] = max(amount, self._numbers[field + level])

    # --- read by its parent -------------------------------------------------------------------

    def number(self, level: int) -> int:
        """Another one for all that begins; 0 if nothing is under way."""
        return self._numbers[level]

    def text(self, level: int) -> str:
        """What is under way; "" if nothing is."""
        at = self._numbers[level] % _BYTES
        if not at:
            return ""
        start = at + _LENGTH_BYTES
        length = int.from_bytes(self._memory[at:start], "big")
        return self._memory[start : start + length].decode(errors="replace")

    def seconds(self, level: int) -> float:
        """How long it may take."""
        return self._numbers[_MILLISECONDS + level] / 1000

    def memory(self, level: int) -> int:
        """By how many bytes its process may grow meanwhile."""
        return self._numbers[_MEMORY + level]

    # --- for who begins again in its place ----------------------------------------------------

    @property
    def runs(self) -> int:
        """How many runs of tests have begun after the first."""
        return self._numbers[_RUNS]

    @runs.setter
    def runs(self, count: int) -> None:
        self._numbers[_RUNS] = count

    @property
    def told(self) -> int:
        """How many results of the first run are told."""
        return self._numbers[_TOLD]

    @told.setter
    def told(self, count: int) -> None:
        self._numbers[_TOLD] = count


#: Where this process tells what it is at; None if nobody watches.
current: Whereabouts | None = None


@contextmanager
def at(level: int, text: str) -> Iterator[None]:
    """Tell that *text* is under way."""
    place = current
    if place is None:
        yield
        return
    place.begin(level, place.label(text))
    try:
        yield
    finally:
        place.end(level)
