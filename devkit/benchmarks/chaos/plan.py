"""Which faults happen when, by seed.

Owns the kinds of faults, how often each is drawn and how long it lasts. Pure.
"""

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from devkit.benchmarks.chaos.proxy import BLACK_HOLE, CUT, DOWN, LATENCY, REFUSE, STALL, TRICKLE, UP

#: What a fault can be of: the processes, and the ways between them.
REPLICAS: Final = ("a", "b")
APISERVER, ETCD = "apiserver", "etcd"
KILL, PAUSE = "kill", "pause"

#: A network that delivers a request this late, or later, can deliver it when its sender's lease is
#: over. No scheduler can prevent that, and it is not what is looked for: requests are held back
#: for less than the lease duration and the renew deadline are apart, or lost.
MOST_HELD_SECONDS: Final = 1.5

_BOTH: Final = frozenset({UP, DOWN})
_ONE_WAY: Final = (frozenset({UP}), frozenset({DOWN}))


@dataclass(frozen=True, slots=True)
class Step:
    """One fault.

    Attributes:
        at: Seconds after the start of the run.
        kind: Such as `stall`, or `kill`.
        target: The replica or server; for faults of the network, whose way to the API server, or
            `etcd` for the way from there to etcd.
        seconds: How long; 0 for what takes no time.
        directions: Of faults of the network.
    """

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    directions: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """For tables: kinds of faults by what they are of."""
        place = "replica" if self.target in REPLICAS else self.target
        return f"{self.kind}, {place}"

    @property
    def is_of_process(self) -> bool:
        """True for what happens to a process, False for what happens on a way."""
        return self.kind in (KILL, PAUSE)

    @property
    def lane(self) -> str:
        """Faults of one lane do not overlap: a way, a replica, or both servers."""
        if not self.is_of_process:
            return f"way of {self.target}"
        return replica_lane(self.target) if self.target in REPLICAS else "servers"


def replica_lane(name: str) -> str:
    """The lane of what happens to the process of a replica."""
    return f"replica {name}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Weights by target, and the range of seconds."""

    replica: int
    apiserver: int
    etcd: int
    seconds: tuple[float, float]


#: Pauses of replicas go beyond the lease duration of the run, which is 5 s.
_KINDS: Final[Mapping[str, _Kind]] = {
    LATENCY: _Kind(4, 0, 2, (2.0, 8.0)),
    STALL: _Kind(6, 0, 2, (0.5, MOST_HELD_SECONDS)),
    CUT: _Kind(6, 0, 2, (0.0, 0.0)),
    REFUSE: _Kind(4, 0, 1, (0.5, 6.0)),
    BLACK_HOLE: _Kind(6, 0, 2, (1.0, 8.0)),
    TRICKLE: _Kind(3, 0, 1, (0.5, MOST_HELD_SECONDS)),
    KILL: _Kind(6, 2, 1, (0.2, 3.0)),
    PAUSE: _Kind(8, 2, 1, (1.0, 9.0)),
}
FAULTS: Final = tuple(_KINDS)


def plan_of(
    seed: int, seconds: float, *, every: float, faults: Collection[str] = FAULTS
) -> Iterator[Step]:
    """Faults of the given kinds for *seconds*, one every so many seconds on average."""
    rng = random.Random(seed)
    choices = [
        (kind, target, weight)
        for kind, weights in _KINDS.items()
        if kind in faults
        for target, weight in (
            *((name, weights.replica) for name in REPLICAS),
            (APISERVER, 2 * weights.apiserver),
            (ETCD, 2 * weights.etcd),
        )
        if weight
    ]
    weights = [weight for _, _, weight in choices]
    at = 0.0
    while True:
        at += rng.expovariate(1 / every)
        if at > seconds:
            return
        ((kind, target, _),) = rng.choices(choices, weights)
        length = rng.uniform(*_KINDS[kind].seconds)
        directions: frozenset[str] = frozenset()
        if kind in (STALL, BLACK_HOLE):
            directions = rng.choice((*_ONE_WAY, _BOTH))
        elif kind in (LATENCY, TRICKLE):
            directions = _BOTH
        yield Step(at, kind, target, length, directions)
