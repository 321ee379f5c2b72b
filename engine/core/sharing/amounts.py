"""Vectors of resources: amounts by resource name, in whole numbers.

Owns their arithmetic. The units are those of the language: millicores, bytes, pieces. A resource
that a vector does not name is 0 in it where it is what is used, and unlimited where it is a limit.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""An amount of each resource that is named."""

#: No sum is larger, and none is smaller than its negative: what is beyond is taken for this.
#: Amounts of two queues can be added and multiplied by a weight of 2^62 without care.
LARGEST: Final = 1 << 62


class Shortage(NamedTuple):
    """A resource of which more is used than a limit allows, and by how much."""

    resource: str
    by: int


def bounded(amount: int) -> int:
    """*amount*, or the largest that counts."""
    return max(-LARGEST, min(amount, LARGEST))


def plus(first: Amounts, second: Amounts) -> dict[str, int]:
    """The sum, of every resource that either names."""
    found = dict(first)
    for resource, amount in second.items():
        found[resource] = bounded(found.get(resource, 0) + amount)
    return found


def minus(first: Amounts, second: Amounts) -> dict[str, int]:
    """The difference, of every resource that either names; it may be below 0."""
    found = dict(first)
    for resource, amount in second.items():
        found[resource] = bounded(found.get(resource, 0) - amount)
    return found


def at_most(amounts: Amounts, limit: Amounts) -> dict[str, int]:
    """*amounts*, none above the *limit* that names it."""
    return {r: min(amount, limit[r]) if r in limit else amount for r, amount in amounts.items()}


def at_least(amounts: Amounts, least: Amounts) -> dict[str, int]:
    """*amounts*, none below what *least* names; what it alone names is added."""
    found = dict(amounts)
    for resource, amount in least.items():
        found[resource] = max(found.get(resource, amount), amount)
    return found


def over(used: Amounts, limit: Amounts, of: Iterable[str] | None = None) -> Shortage | None:
    """The first resource, by name, of which more is *used* than *limit* names; None: of none.

    Only resources in *of* are looked at, or all: a pod that asks for no GPUs is not held up by a
    queue that has too many. Of a vector, those of which it has more than 0.
    """
    if isinstance(of, Mapping):
        of = [resource for resource, amount in of.items() if amount > 0]
    looked_at = used.keys() & limit.keys()
    for resource in sorted(looked_at if of is None else looked_at & set(of)):
        if used[resource] > limit[resource]:
            return Shortage(resource, used[resource] - limit[resource])
    return None
