"""Faults of watches: they stall, end, say that their history is gone."""

from random import Random
from typing import TYPE_CHECKING, Final

from engine.devcluster.errors import expired, internal_error
from engine.devcluster.watches import Watch
from engine.fault_simulation.faults.kind import FaultKind

if TYPE_CHECKING:
    from engine.fault_simulation.world import World


def _some(world: "World", rng: Random) -> list[Watch]:
    watches = world.cluster.watches()
    if not watches:
        return []
    return [rng.choice(watches)] if rng.random() < 0.8 else watches


def _stall(world: "World", rng: Random) -> None:
    for watch in _some(world, rng):
        watch.stalled = True
        world.server.later(rng.expovariate(1 / 15.0), watch.resume)
        world.count("watch stalled")


def _close(world: "World", rng: Random) -> None:
    for watch in _some(world, rng):
        watch.close()
        world.count("watch ended")


def _abort(world: "World", rng: Random) -> None:
    for watch in _some(world, rng):
        watch.abort()
        world.count("watch broken off")


def _gone(world: "World", rng: Random) -> None:
    for watch in _some(world, rng):
        watch.fail(expired("too old resource version"))
        world.count("watch says 410")


def _error(world: "World", rng: Random) -> None:
    for watch in _some(world, rng):
        watch.fail(internal_error("etcd has no leader"))
        world.count("watch says 500")


def _compact(world: "World", _: Random) -> None:
    world.cluster.store.compact()
    world.count("history compacted")


KINDS: Final = (
    FaultKind("watch stalled", _stall),
    FaultKind("watch ended", _close),
    FaultKind("watch broken off", _abort),
    FaultKind("watch says 410", _gone),
    FaultKind("watch says 500", _error),
    FaultKind("history compacted", _compact, 0.5),
)
