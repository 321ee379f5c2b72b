"""Faults of what is kept between processes: full and broken disks, old and damaged files."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from devkit.faults.disk import State
from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World


def _in(state: State) -> Callable[[World, Random], None]:
    def arrange(world: World, rng: Random) -> None:
        disk = rng.choice(world.replicas).disk
        disk.state = state
        world.server.later(rng.expovariate(1 / 60.0), partial(setattr, disk, "state", "works"))

    return arrange


def _go_back(world: World, rng: Random) -> None:
    replica = rng.choice(world.replicas)
    if replica.is_running:
        replica.kill()
        replica.disk.go_back(rng)
        world.restart_later(replica, rng.expovariate(1 / 10.0))
        world.count("restarted with an old state directory")


def _spoil(world: World, rng: Random) -> None:
    if rng.choice(world.replicas).disk.spoil(rng):
        world.count("state file damaged")


def _delete(world: World, _: Random) -> None:
    if world.delete_last_good():
        world.count("last good policies deleted")


KINDS: Final = (
    FaultKind("disk full", _in("full"), 0.2),
    FaultKind("disk broken", _in("broken"), 0.2),
    FaultKind("restarted with an old state directory", _go_back, 0.3),
    FaultKind("state file damaged", _spoil, 0.2),
    FaultKind("last good policies deleted", _delete, 0.2),
)
