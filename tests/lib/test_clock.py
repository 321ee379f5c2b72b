"""The machine's clock goes on while the machine sleeps."""

import time

import pytest

from engine.lib.clock import SystemClock


def test_a_sleep_of_the_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that woke up after an hour took its lease for a second old, and bound by it."""
    slept = 3600.0

    def read(clock: int) -> float:
        # As the kernel has it: two clocks that are apart by how long the machine has slept.
        return 100.0 + (slept if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", read)
    assert SystemClock().monotonic() == 100.0 + slept


def test_time_passes() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    while clock.monotonic() == before:
        pass
    assert clock.monotonic() > before
