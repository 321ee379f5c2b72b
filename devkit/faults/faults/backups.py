"""Faults of the store: it is restored from a backup, and what came after that is forgotten.

As etcd recommends, with the API servers down, revisions that go on above all that were ever seen,
and a compacted history. They are down for longer than a lease lasts: a leader that still may act
and one that a restored lease lets in would otherwise decide at the same time.
"""

from random import Random
from typing import Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World


def _restore(world: World, rng: Random) -> None:
    if world.is_restoring:
        return
    backup = world.take_backup()
    age, down = rng.expovariate(1 / 30.0), world.plan.lease[0] * rng.uniform(1.1, 1.5)

    def go_down() -> None:
        for server in world.servers:
            server.crash(down)
        # Just before they are back.
        world.server.later(0.999 * down, restore)

    def restore() -> None:
        world.restore(backup)
        world.count("restored from a backup")

    world.server.later(age, go_down)


KINDS: Final = (FaultKind("restored from a backup", _restore, 0.1),)
