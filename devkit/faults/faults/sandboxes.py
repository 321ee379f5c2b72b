"""Faults of sandbox processes: see `sandbox.FAULTS`."""

from collections.abc import Callable
from random import Random
from typing import Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.sandbox import FAULTS
from devkit.faults.world import World


def _of(fault: str) -> Callable[[World, Random], None]:
    def arrange(world: World, rng: Random) -> None:
        rng.choice(world.replicas).trouble.due += [fault] * rng.choice([1, 1, 1, 2])

    return arrange


KINDS: Final = tuple(FaultKind(f"sandbox {fault}", _of(fault), 0.3) for fault in FAULTS)
