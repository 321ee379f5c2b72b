"""Which hook or unit test a process is running, for a watchdog in another process.

Owns the memory that both processes see. A call of one of the interpreter's own functions cannot be
interrupted, so a process that is stuck in one cannot report it. Without a watchdog, as in the
scheduler and in tests of the engine, `current` is None and nothing is reported.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: What can be running, one inside the other: a call of a hook, a unit test.
CALL: Final = 0
TEST: Final = 1
LEVELS: Final = (CALL, TEST)

# The memory: some numbers, then texts, each after its length.
_NUMBERS: Final = 16
_MILLISECONDS, _MEMORY, _RUNS, _REPORTED = 4, 6, 8, 9
_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 2
_MOST_TEXT: Final = 4096


class CurrentHook:
    """What a process is running: at most one thing on each level.

    Written by the process itself, before it begins something and when that is done; read by its
    parent, also after the process has ended. A report costs one number: the texts are written in
    advance.
    """

    def __init__(self) -> None:
        # Of this process and of those that it forks.
        self._memory = mmap.mmap(-1, _BYTES)
        self._numbers = memoryview(self._memory).cast("q")
        self._labels: dict[str, int] = {}
        self._free = 8 * _NUMBERS
        self._serial = 0

    # --- written by the process ---------------------------------------------------------------

    def label(self, text: str) -> int:
        """The label for `begin` of something that is called *text*; 0 if there are too many."""
        found = self._labels.get(text)
        if found is not None:
            return found
        raw = text.encode(errors="replace")[:_MOST_TEXT]
        end = self._free + _LENGTH_BYTES + len(raw)
        if end > _BYTES:
            return 0
        self._memory[self._free : end] = len(raw).to_bytes(_LENGTH_BYTES, "big") + raw
        found = self._labels[text] = self._free
        self._free = end
        return found

    def begin(self, level: int, label: int) -> None:
        """Report a start; two things with the same label get different numbers."""
        self._serial = serial = self._serial + _BYTES
        self._numbers[level] = serial + label

    def end(self, level: int) -> None:
        """Report that it is done."""
        self._numbers[level] = 0

    def allow(self, level: int, seconds: float, memory: int = 0) -> None:
        """Raise the limits of what begins on this level: seconds, and bytes of memory."""
        for field, amount in ((_MILLISECONDS, int(seconds * 1000)), (_MEMORY, memory)):
            self._numbers[field + level] = max(amount, self._numbers[field + level])

    # --- read by its parent -------------------------------------------------------------------

    def number(self, level: int) -> int:
        """A number that differs for each start; 0 if nothing is running."""
        return self._numbers[level]

    def text(self, level: int) -> str:
        """What is running; "" if nothing is."""
        at = self._numbers[level] % _BYTES
        if not at:
            return ""
        start = at + _LENGTH_BYTES
        length = int.from_bytes(self._memory[at:start], "big")
        return self._memory[start : start + length].decode(errors="replace")

    def seconds(self, level: int) -> float:
        """How long it may run."""
        return self._numbers[_MILLISECONDS + level] / 1000

    def memory(self, level: int) -> int:
        """By how many bytes its process may grow in that time."""
        return self._numbers[_MEMORY + level]

    # --- for the process that is started in its place -----------------------------------------

    @property
    def runs(self) -> int:
        """How many runs of tests have begun after the first."""
        return self._numbers[_RUNS]

    @runs.setter
    def runs(self, count: int) -> None:
        self._numbers[_RUNS] = count

    @property
    def reported(self) -> int:
        """How many results of the first run are reported."""
        return self._numbers[_REPORTED]

    @reported.setter
    def reported(self, count: int) -> None:
        self._numbers[_REPORTED] = count


#: Where this process reports what it is running; None without a watchdog.
current: CurrentHook | None = None


@contextmanager
def at(level: int, text: str) -> Iterator[None]:
    """Report that *text* is running, until the block ends."""
    place = current
    if place is None:
        yield
        return
    place.begin(level, place.label(text))
    try:
        yield
    finally:
        place.end(level)
