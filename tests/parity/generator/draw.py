"""A seeded source of choices."""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Plain = dict[str, Any]


class Draw(random.Random):
    """`random.Random` with the words that generators need. The same seed, the same choices."""

    def chance(self, probability: float) -> bool:
        """True in this share of all calls."""
        return self.random() < probability

    def pick(self, *options: T) -> T:
        """One of *options*."""
        return options[self.randrange(len(options))]

    def some(self, options: Sequence[T], most: int, least: int = 0) -> list[T]:
        """Between *least* and *most* different ones of *options*, in any order."""
        most = min(most, len(options))
        return self.sample(list(options), self.randint(min(least, most), most))

    def several(self, most: int, least: int = 0) -> range:
        """A range of random length."""
        return range(self.randint(least, most))


def pruned(plain: Plain) -> Plain:
    """*plain* without the members that are None."""
    return {key: value for key, value in plain.items() if value is not None}
