"""The machine's clock goes on while the machine sleeps."""

import ast
import time
from pathlib import Path
from typing import Final

import pytest

import engine
from engine.lib.clock import SystemClock

_READINGS: Final = {"time.monotonic", "time.time", "time.perf_counter", "datetime.datetime.now"}


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


def test_time_is_an_argument_where_decisions_are_made_and_explained() -> None:
    """Slices of answers, the limit of explanations and the share of a shadow read it themselves."""
    found = []
    for folder in ("core", "rollout/shadow", "surfaces/live", "surfaces/page"):
        for path in sorted((Path(engine.__file__).parent / folder).rglob("*.py")):
            found += [
                f"{folder}/{path.name}:{node.lineno}"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Call) and ast.unparse(node.func) in _READINGS
            ]
    assert not found
