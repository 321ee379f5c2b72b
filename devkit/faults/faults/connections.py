"""Faults of the network: connections that break, fall silent, or are not made."""

import ssl
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from devkit.faults.faults.kind import FaultKind
from devkit.faults.network import KEEPALIVE_SECONDS, Connection
from devkit.faults.world import World


def _any(world: World, rng: Random) -> Connection | None:
    connections = world.network.connections
    return rng.choice(connections) if connections else None


def _reset(world: World, rng: Random) -> None:
    if (connection := _any(world, rng)) is not None:
        connection.reset()
        world.count("connection reset")


def _cut(world: World, rng: Random) -> None:
    if (connection := _any(world, rng)) is not None:
        connection.near.cut_after = rng.choice([0, 1, rng.randint(0, 400), rng.randint(0, 20_000)])
        world.count("connection cut in the middle of an answer")


def _cut_request(world: World, rng: Random) -> None:
    if (connection := _any(world, rng)) is not None:
        connection.far.cut_after = rng.choice([0, 1, rng.randint(0, 400)])
        world.count("connection cut in the middle of a request")


def _silence(world: World, rng: Random) -> None:
    if (connection := _any(world, rng)) is not None:
        connection.fall_silent(KEEPALIVE_SECONDS)
        world.count("connection silent")


def _refuse(kind: str, error: Callable[[], OSError]) -> Callable[[World, Random], None]:
    def arrange(world: World, rng: Random) -> None:
        replica = rng.choice(world.replicas)
        due = world.network.connect_errors.setdefault(replica.host.name, deque())
        due.extend(error() for _ in range(rng.choice([1, 1, 3])))
        world.count(kind)

    return arrange


def _partition(world: World, rng: Random) -> None:
    replica = rng.choice(world.replicas)
    name, seconds = replica.host.name, rng.expovariate(1 / 30.0)
    servers = world.servers if rng.random() < 0.6 else [rng.choice(world.servers)]
    others = [server.host.name for server in servers]
    directions = [pair for other in others for pair in ((name, other), (other, name))]
    cut = directions if rng.random() < 0.6 else [rng.choice(directions)]
    world.network.cut_off.update(cut)
    world.server.later(seconds, lambda: world.network.join(cut, KEEPALIVE_SECONDS))
    world.count("partition")


def _slow(world: World, rng: Random) -> None:
    weather = world.network.weather
    weather.latency = rng.choice([0.01, 0.1, 0.5])
    world.server.later(rng.expovariate(1 / 20.0), world.calm_weather)
    world.count("slow network")


KINDS: Final = (
    FaultKind("connection reset", _reset),
    FaultKind("connection cut in the middle of an answer", _cut),
    FaultKind("connection cut in the middle of a request", _cut_request),
    FaultKind("connection silent", _silence, 0.5),
    FaultKind(
        "connection refused",
        _refuse("connection refused", lambda: ConnectionRefusedError("connection refused")),
    ),
    FaultKind(
        "TLS error",
        _refuse("TLS error", lambda: ssl.SSLError(1, "[SSL] record layer failure")),
        0.5,
    ),
    FaultKind("partition", _partition, 0.4),
    FaultKind("slow network", _slow, 0.3),
)
