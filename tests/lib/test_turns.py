"""Turns that follow each other closely are taken awake, where that is faster; others asleep."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from engine.lib.turns import Turns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cores are Linux's to give")


class _World:
    """Turns with a process, in a time of their own: asleep one takes longer than awake."""

    def __init__(self, pid: int, cores: float = 2.0) -> None:
        self.now = 0.0
        self.asleep, self.awake = 300e-6, 100e-6
        self.turns = Turns(pid, clock=lambda: self.now, cores=lambda: cores)

    def take(self, count: int, gap: float) -> list[bool]:
        """Of so many turns, which were awake."""
        found = []
        for _ in range(count):
            self.now += gap
            with self.turns:
                found.append(self.turns.awake_for > 0)
                self.now += self.awake if found[-1] else self.asleep
            assert self.turns.awake_for == 0.0
        return found


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started.pid
        started.kill()


def test_turns_one_after_the_other_are_taken_awake(pid: int) -> None:
    taken = _World(pid).take(5_000, 200e-6)
    assert not any(taken[:64]), "it is tried first what the other way takes"
    assert sum(taken[2_500:]) > 2_300


def test_turns_far_from_each_other_are_taken_asleep(pid: int) -> None:
    world = _World(pid)
    assert not any(world.take(2_000, 1.5e-3))
    world.take(5_000, 200e-6)
    assert not any(world.take(2_000, 1.5e-3)[32:]), "whatever was before"
    # A pause is no reason to begin anew.
    world.now += 3_600
    assert sum(world.take(500, 200e-6)) > 300


def test_turns_are_taken_asleep_where_that_is_as_fast(pid: int) -> None:
    """As on a machine whose two cores are one, in truth."""
    world = _World(pid)
    world.awake = 290e-6
    taken = world.take(10_000, 200e-6)
    assert 0 < sum(taken) < 1_000


def test_one_core_is_not_kept_busy_by_two(pid: int) -> None:
    assert not any(_World(pid, cores=1.5).take(2_000, 200e-6))


def test_turns_of_other_threads_are_not_counted(pid: int) -> None:
    world = _World(pid)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.extend(world.take(1_000, 200e-6)))
    thread.start()
    thread.join()
    assert found == [False] * 1_000
