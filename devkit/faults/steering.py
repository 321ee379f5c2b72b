"""Chooses the next worlds of a long run by what was seldom reached so far.

Owns what is known of the worlds of this run. Every second world is chosen by its number alone, as
in a short run; the others are variations of one that reached what few have: another seed, and some
faults and features more or less.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Final

from devkit.faults.faults import all_kinds
from devkit.faults.life import FEATURES
from devkit.faults.plans import plan_of
from devkit.faults.world import Outcome, Plan

_MOST_EXAMPLES: Final = 4
_MOST_CHANGES: Final = 3


class Steering:
    """Plans of worlds, the next one by what came of those before.

    Attributes:
        worlds: By transition, how many worlds have reached it.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.worlds: Counter[str] = Counter()
        self._seconds = seconds
        self._examples: dict[str, list[Plan]] = {}

    def plan(self, number: int) -> Plan:
        """The plan of the world *number*."""
        fresh = plan_of(number, self._seconds)
        rng = random.Random(f"{number}/steering")
        if not self._examples or rng.random() < 0.5:
            return fresh
        names = sorted(self._examples)
        (rare,) = rng.choices(names, [1.0 / self.worlds[name] for name in names])
        example = rng.choice(self._examples[rare])
        return replace(
            example,
            seed=number,
            features=_varied(example.features, FEATURES, rng),
            faults=_varied(example.faults, sorted(all_kinds()), rng),
            replicas=rng.choice((example.replicas, fresh.replicas)),
            lease=rng.choice((example.lease, fresh.lease)),
            pieces=fresh.pieces,
        )

    def learn(self, outcome: Outcome) -> None:
        """Take in what a world has reached."""
        for name in outcome.reached:
            self.worlds[name] += 1
            examples = self._examples.setdefault(name, [])
            examples.append(outcome.plan)
            del examples[:-_MOST_EXAMPLES]


def _varied(
    has: frozenset[str], known: "tuple[str, ...] | list[str]", rng: random.Random
) -> frozenset[str]:
    """*has*, with up to three of the *known* more or less."""
    return has ^ frozenset(rng.sample(list(known), rng.randint(0, _MOST_CHANGES)))
