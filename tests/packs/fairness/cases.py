"""Random set-ups of queues, as plain data that any original can be given.

Small integers, because ties and exhaustion live there. The paths of a case name each queue after
those above it; leaves alone have pods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Case:
    """A tree with pods.

    Attributes:
        total: What there is to divide.
        queues: The attributes of each queue, by path, a parent before its children.
        uses: What the pods of each leaf use.
        waits: What its waiting pods want.
    """

    total: Mapping[str, int]
    queues: Mapping[str, Mapping[str, Any]]
    uses: Mapping[str, Mapping[str, int]]
    waits: Mapping[str, Mapping[str, int]]

    def children(self, path: str) -> list[str]:
        """The queues right under that of *path*; under the root for ""."""
        return [one for one in self.queues if one.rpartition("/")[0] == path]

    @property
    def leaves(self) -> list[str]:
        """The queues without others under them."""
        return [path for path in self.queues if not self.children(path)]


def amounts(random: Random, most: int = 20, often: float = 0.8) -> dict[str, int]:
    """Amounts of some of the resources; each is there *often*."""
    return {r: random.randint(0, most) for r in RESOURCES if random.random() < often}


def paths(random: Random, levels: int, fan: int = 3) -> list[str]:
    """The paths of a random tree of at most so many levels, parents first."""
    found: list[str] = []
    above: Sequence[str] = ("",)
    for level in range(levels):
        of_level = []
        for parent in above:
            if parent and random.random() < 0.4:
                continue
            count = random.randint(1, fan)
            of_level += [f"{parent}/q{level}{number}".lstrip("/") for number in range(count)]
        found += of_level
        above = of_level
    return found


def case(random: Random, names: Sequence[str], attributes: Callable[[Random], Any]) -> Case:
    """A case with these queues, each with random *attributes*."""
    queues = {path: attributes(random) for path in names}
    made = Case({r: random.randint(1, 60) for r in RESOURCES}, queues, {}, {})
    uses = {path: amounts(random) for path in made.leaves}
    waits = {path: amounts(random) for path in made.leaves}
    return Case(made.total, queues, uses, waits)


def elastic_quotas(random: Random) -> Case:
    """A tree of Koordinator's quotas."""

    def attributes(random: Random) -> dict[str, Any]:
        most = {r: random.randint(1, 30) for r in RESOURCES}
        return {
            # Koordinator's webhook refuses a min above max.
            "min": {r: random.randint(0, most[r]) for r in RESOURCES if random.random() < 0.7},
            "max": most,
            "shared_weight": amounts(random, 5) if random.random() < 0.6 else {},
            "lends": random.random() < 0.8,
        }

    return case(random, paths(random, random.randint(1, 4)), attributes)


def cohorts(random: Random) -> Case:
    """Trees of Kueue's cohorts and ClusterQueues, two trees or more."""

    def attributes(random: Random) -> dict[str, Any]:
        return {
            "nominal": amounts(random, 12),
            "borrowing_limit": amounts(random, 6, 0.3),
            "lending_limit": amounts(random, 6, 0.3),
            "weight": random.choice([0, 500, 1000, 1000, 1000, 2000, 3000]),
        }

    return case(random, paths(random, random.randint(2, 4)), attributes)
