"""Faults of processes: replicas and API servers that are killed, paused, restarted, or behind."""

from random import Random
from typing import Final

from devkit.cluster.watch_cache import STOPPED
from devkit.faults.faults.kind import FaultKind
from devkit.faults.world import World


def _kill(world: World, rng: Random) -> None:
    replica = rng.choice(world.replicas)
    if replica.is_running:
        replica.kill()
        world.restart_later(replica, rng.expovariate(1 / 10.0))
        world.count("replica killed")


def _stop(world: World, rng: Random) -> None:
    replica = rng.choice(world.replicas)
    if replica.is_running:
        replica.host.call(replica.app.request_stop)
        world.count("replica stopped")


def _pause(world: World, rng: Random) -> None:
    # Half of the time the leader, for as long as its lease lasts, or a little longer.
    lease = world.plan.lease[0]
    is_leader = rng.random() < 0.5
    replica = rng.choice((is_leader and world.leaders) or world.replicas)
    seconds = rng.choice([0.5, 5.0, 12.0, 30.0, 300.0, lease, lease + 1.0, lease + 5.0])
    if replica.is_running and not replica.host.is_paused:
        replica.host.pause()
        world.simulator.after(seconds, replica.host.resume)
        world.count("replica paused")


def _crash(world: World, rng: Random) -> None:
    server = rng.choice(world.servers)
    if server.is_serving:
        server.crash(rng.expovariate(1 / 8.0))
        world.count("API server crashed")


def _fall_behind(world: World, rng: Random) -> None:
    server = rng.choice(world.servers)
    cache = server.front_end.cache
    if cache.is_behind:
        return
    late_before = cache.late
    cache.fall_behind(rng.choice([1, 3, 30, STOPPED, STOPPED]))

    def end() -> None:
        if cache.late > late_before:
            world.count("API server behind")
        cache.catch_up()

    server.host.later(rng.expovariate(1 / 20.0), end)


KINDS: Final = (
    FaultKind("replica killed", _kill, 0.5),
    FaultKind("replica stopped", _stop, 0.3),
    FaultKind("replica paused", _pause, 0.5),
    FaultKind("API server crashed", _crash, 0.3),
    FaultKind("API server behind", _fall_behind, 0.5),
)
