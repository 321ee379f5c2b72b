"""The simulated disk: what its faults do to the last good policies and to a decision log."""

import random
from pathlib import Path
from typing import Any

import pytest

from devkit.faults.disk import Disk, HostLogWriter
from devkit.faults.hosts import Host, Simulator
from devkit.faults.network import Network
from engine.recording.log_writer import RETRY_SECONDS, Checkpoint, log_files
from engine.rollout.last_good import DirectoryStore, LastGood, StoreError

STATE = Path("/state")
ONE, TWO = LastGood("1", {"a.star": "A"}), LastGood("2", {"a.star": "B"})


@pytest.fixture
def faults() -> list[str]:
    return []


@pytest.fixture
def disk(faults: list[str]) -> Disk:
    return Disk(faults.append)


async def test_a_full_disk_keeps_what_it_has(disk: Disk, faults: list[str]) -> None:
    store = DirectoryStore(STATE, disk)
    assert await store.load() is None
    await store.save(ONE)
    disk.state = "full"
    with pytest.raises(StoreError, match="No space left"):
        await store.save(TWO)
    assert await store.load() == ONE
    assert faults == ["disk full"]


async def test_a_broken_disk_gives_nothing(disk: Disk, faults: list[str]) -> None:
    store = DirectoryStore(STATE, disk)
    await store.save(ONE)
    disk.state = "broken"
    with pytest.raises(StoreError, match=r"Errno 5|Input/output"):
        await store.load()
    assert faults == ["disk broken"]


async def test_an_old_state_directory_has_what_was_saved_once(disk: Disk) -> None:
    store = DirectoryStore(STATE, disk)
    for saved in (ONE, TWO):
        await store.save(saved)
    found = []
    for seed in range(20):
        disk.go_back(random.Random(seed))
        found.append(await store.load())
    assert all(one in found for one in (None, ONE, TWO))


async def test_a_damaged_file_cannot_be_read(disk: Disk) -> None:
    assert not disk.spoil(random.Random(1))
    store = DirectoryStore(STATE, disk)
    await store.save(ONE)
    assert disk.spoil(random.Random(1))
    with pytest.raises(StoreError):
        await store.load()
    for seed in range(50):  # until nothing is left of it, and on
        assert disk.spoil(random.Random(seed))


def test_a_decision_log_begins_again_after_a_full_disk(
    disk: Disk, faults: list[str], tmp_path: Path
) -> None:
    simulator = Simulator(random.Random(1))
    host = Host(simulator, Network(simulator, random.Random(2)), "replica")
    writer = HostLogWriter(host, disk, tmp_path / "log")
    writer.start()
    start = Checkpoint("start", [("checkpoint", {"held": []})])
    entry = (1.0, "lost", {"pod": "default/p", "uid": "u", "error": "none"})

    def put(*entries: tuple[float, str, Any]) -> None:
        for one in entries:
            writer.put(*one)
        simulator.run(simulator.now + 1.0)

    put((0.0, "", start), entry)
    assert writer.counts.written == 3
    disk.state = "full"
    put(entry)
    assert (writer.counts.failures, faults) == (1, ["disk full"])
    disk.state = "works"
    put(entry)
    assert (writer.counts.dropped, writer.wants_checkpoint) == (1, "start")
    simulator.run(simulator.now + RETRY_SECONDS)
    put(entry)
    assert writer.wants_checkpoint == "failure"
    put((2.0, "", start), entry)
    assert len(log_files(tmp_path / "log")) == 2
    disk.close()
    simulator.close()
