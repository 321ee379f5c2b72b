"""Faults of clocks: they run fast or slow, and their date jumps."""

from random import Random
from typing import Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World


def _drift(world: World, rng: Random) -> None:
    clock = rng.choice(world.replicas).host.clock
    clock.drift(rng.choice([1.0, 0.95, 0.99, 1.01, 1.05]))
    world.count("clock drifts")


def _jump(world: World, rng: Random) -> None:
    clock = rng.choice([*(replica.host for replica in world.replicas), world.server]).clock
    clock.error = rng.choice([0.0, -3600.0, -5.0, 5.0, 3600.0, 86_400.0 * 400])
    world.count("date jumps")


KINDS: Final = (FaultKind("clock drifts", _drift, 0.3), FaultKind("date jumps", _jump, 0.3))
