"""Faults of the lease: another program takes it, or it is deleted."""

from random import Random
from typing import Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.faults.requests import LATE
from devkit.faults.world import World


def _steal(world: World, rng: Random) -> None:
    if world.take_lease_away("an intruder"):
        world.count("lease stolen")


def _delete(world: World, rng: Random) -> None:
    # Among several replicas a standby would take the lease while the leader still has its own: no
    # lease protects from that, nor from a request of a process that is gone.
    if len(world.replicas) > 1 or LATE in world.plan.faults:
        return
    if world.take_lease_away(""):
        world.count("lease deleted")


KINDS: Final = (FaultKind("lease stolen", _steal, 0.2), FaultKind("lease deleted", _delete, 0.2))
