"""Hosts in virtual time: clocks, turns, pauses and deaths."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from devkit.faults.hosts import EPOCH, Host, Simulator, Stuck
from devkit.faults.network import Network


class Two:
    """Two hosts, and what happened on them."""

    def __init__(self) -> None:
        self.simulator = Simulator(random.Random(1))
        network = Network(self.simulator, random.Random(2))
        self.one, self.other = (Host(self.simulator, network, name) for name in ("one", "other"))
        self.seen: list[tuple[str, int]] = []

    async def tick(self, host: Host) -> None:
        """Take note of every second of *host*, by the world's."""
        while True:
            passed = asyncio.Event()
            host.loop.call_later(1.0, passed.set)
            await passed.wait()
            self.seen.append((host.name, round(self.simulator.now)))

    def start(self) -> None:
        for host in (self.one, self.other):
            host.start(self.tick(host))


@pytest.fixture
def two() -> Iterator[Two]:
    two = Two()
    yield two
    two.simulator.close()


def test_hosts_run_in_the_order_of_virtual_time(two: Two) -> None:
    two.start()
    two.simulator.run(3.5)
    assert sorted(two.seen) == [(name, n) for name in ("one", "other") for n in (1, 2, 3)]
    assert [moment for _, moment in two.seen] == [1, 1, 2, 2, 3, 3]


def test_a_paused_host_stands_still_and_catches_up(two: Two) -> None:
    two.start()
    two.simulator.after(1.5, two.one.pause)
    two.simulator.after(5.5, two.one.resume)
    two.simulator.run(7.5)
    assert [moment for name, moment in two.seen if name == "one"] == [1, 6, 7]


def test_a_killed_host_does_nothing_more(two: Two) -> None:
    two.start()
    two.simulator.after(2.5, two.one.kill)
    two.simulator.run(5.5)
    assert [moment for name, moment in two.seen if name == "one"] == [1, 2]
    assert ("other", 5) in two.seen


def test_what_does_not_give_way_keeps_only_its_own_host(two: Two) -> None:
    two.start()
    two.simulator.after(0.5, lambda: two.one.clock.spend(3.0))
    two.simulator.run(4.7)
    assert next(moment for name, moment in two.seen if name == "one") in (3, 4)
    assert [moment for name, moment in two.seen if name == "other"] == [1, 2, 3, 4]


def test_a_clock_that_runs_fast_has_its_timers_early(two: Two) -> None:
    two.one.clock.drift(2.0)
    two.start()
    two.simulator.run(10.4)
    assert sum(name == "one" for name, _ in two.seen) == 20
    assert two.one.clock.monotonic() == pytest.approx(20.8, abs=0.01)


def test_a_date_that_jumps_moves_no_timer(two: Two) -> None:
    two.start()
    two.one.clock.error = 3600.0
    two.simulator.run(2.5)
    assert two.one.clock.now() == pytest.approx(EPOCH + 3602.5, abs=0.01)
    assert [moment for name, moment in two.seen if name == "one"] == [1, 2]


def test_a_host_that_goes_in_circles_is_told(two: Two) -> None:

    def spin() -> None:
        two.one.call(spin)

    two.one.call(spin)
    with pytest.raises(Stuck, match="iterations within a second"):
        two.simulator.run(10.0)
