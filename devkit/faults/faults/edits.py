"""Edits of the policies in the middle of everything: good, bad, undone, and the kill switch."""

from random import Random
from typing import Final

from devkit.faults import policies
from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World


def _edit(world: World, rng: Random) -> None:
    name = rng.choice(sorted(policies.EDITS))
    world.edit(policies.files_of(name, world.next_number(), world.plan.features))
    world.count("policies edited")
    world.outcome.counts[f"edit: {name}"] += 1


def _delete(world: World, rng: Random) -> None:
    world.edit(None)
    world.server.later(rng.expovariate(1 / 20.0), world.restore_policies)
    world.count("policies deleted")


def _mode(world: World, rng: Random) -> None:
    world.set_mode(rng.choice(["staged", "staged", "at-once"]))
    world.count("mode of edits changed")


KINDS: Final = (
    FaultKind("policies edited", _edit, 1.0),
    FaultKind("policies deleted", _delete, 0.1),
    FaultKind("mode of edits changed", _mode, 0.1),
)
