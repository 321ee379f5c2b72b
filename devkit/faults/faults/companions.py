"""Faults of extenders and fact sources: see `companions.FAULTS`, and those of a facts document."""

from collections.abc import Callable
from random import Random
from typing import Final

from devkit.faults.companions import EXTENDER, FAULTS, PROMETHEUS
from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World

#: What people write into a facts document, and what becomes of one.
_DOCUMENTS: Final = (
    "",
    "{",
    "null",
    "[]",
    '{"nodes": []}',
    '{"nodes": {"node-1": {"heat": "high"}, "node-2": 7, "node-3": null}}',
    '{"nodes": {"node-1": {"heat": 1, "heat": 2}}}',
    '{"nodes": {"node-1": {"heat": {"value": 60, "time": 1e300}}}}',
    '{"nodes": {"node-1": {"heat": 60}}, "time": "yesterday", "surprise": {"a": [1]}}',
    '{"nodes": {"node-1": {"heat": 1e999}, "node-2": {"heat": -1}}, "time": 5}',
)


def _of(name: str, fault: str) -> Callable[[World, Random], None]:
    def arrange(world: World, rng: Random) -> None:
        if (companion := world.companions.get(name)) is not None:
            companion.due += [fault] * rng.choice([1, 1, 2, 10])

    return arrange


def _gone(name: str) -> Callable[[World, Random], None]:
    def arrange(world: World, rng: Random) -> None:
        if (companion := world.companions.get(name)) is not None:
            companion.be_gone(rng.expovariate(1 / 30.0))
            world.count(f"{name} gone")

    return arrange


def _document(world: World, rng: Random) -> None:
    if world.has("facts"):
        world.write_facts({"nodes.json": rng.choice(_DOCUMENTS)} if rng.random() < 0.8 else None)
        world.server.later(rng.expovariate(1 / 30.0), world.restore_facts)
        world.count("facts document spoiled")


def _annotation(world: World, rng: Random) -> None:
    if world.has("facts"):
        world.life.annotate_node(rng.choice(["3", "", "-1e400", "{", '{"value": []}', "x" * 9000]))
        world.count("annotation with a fact changed")


KINDS: Final = (
    *(
        FaultKind(f"{name} {fault}", _of(name, fault), 0.2)
        for name in (EXTENDER, PROMETHEUS)
        for fault in FAULTS
    ),
    FaultKind(f"{EXTENDER} gone", _gone(EXTENDER), 0.2),
    FaultKind(f"{PROMETHEUS} gone", _gone(PROMETHEUS), 0.2),
    FaultKind("facts document spoiled", _document, 0.3),
    FaultKind("annotation with a fact changed", _annotation, 0.3),
)
