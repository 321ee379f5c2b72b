"""What a kind of fault is."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from devkit.faults.world import World


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    Attributes:
        name: What a plan, the figures and `--faults` call it.
        arrange: Arranges one fault in a world, with the chance that it is given. What happens must
            end by itself; `World.heal` ends what would go on.
        weight: How often it happens compared with the others.
    """

    name: str
    arrange: Callable[[World, Random], None]
    weight: float = 1.0
