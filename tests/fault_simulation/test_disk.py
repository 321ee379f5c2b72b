"""The simulated disk: what its faults do to the store of the last good policies."""

import random
from pathlib import Path

import pytest

from engine.fault_simulation.disk import Disk
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
