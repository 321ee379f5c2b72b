"""Which queues lack what others under the same parent have beyond their shares.

Owns the choice of pairs. A parent's share is divided among the queues right below it, so what one
of them lacks is with its siblings, or it is the parent that lacks it.
"""

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from engine.surfaces.live.share_answers import SharePair, ShareRow

# Amounts of different resources are compared by the part that they are of all there is.
_PARTS: Final = 1_000_000

_Found: TypeAlias = tuple[int, str, str, str, SharePair]


class SharePairs:
    """Collects the largest pairs of queues.

    Args:
        total: What the nodes offer, by resource.
        most: How many pairs are kept.
        about: The path of a queue: pairs of others are none.
    """

    def __init__(self, total: Mapping[str, int], most: int, about: str = "") -> None:
        self._total = total
        self._most = most
        self._about = about
        self._kept: list[_Found] = []
        self._count = 0

    def add(self, siblings: Iterable[ShareRow]) -> None:
        """Pair queues under one parent, the largest amounts with each other."""
        rows = [row for row in siblings if row.is_starved or row.is_borrowing]
        for resource in sorted({name for row in rows for name in row.resources}):
            self._pair(resource, rows)
        self._kept = heapq.nsmallest(self._most, self._kept, key=lambda one: one[:-1])

    @property
    def largest(self) -> tuple[SharePair, ...]:
        """The pairs, the largest first."""
        return tuple(pair for *_, pair in self._kept)

    @property
    def left_out(self) -> int:
        """How many pairs there are in addition."""
        return self._count - len(self._kept)

    def _pair(self, resource: str, rows: Iterable[ShareRow]) -> None:
        lacking, having = [], []
        for row in rows:
            one = row.resources.get(resource)
            if one is not None and one.lacks:
                lacking.append((-one.lacks, row.path))
            elif one is not None and one.borrowed:
                having.append((-one.borrowed, row.path))
        lacking.sort()
        having.sort()
        # Both from the largest on; what one pair has used of either is not in another.
        at_lacking = at_having = used_lacking = used_having = 0
        while at_lacking < len(lacking) and at_having < len(having):
            (lacks, starved), (over, borrowing) = lacking[at_lacking], having[at_having]
            amount = min(-lacks - used_lacking, -over - used_having)
            pair = SharePair(
                resource=resource,
                starved=starved,
                borrowing=borrowing,
                amount=amount,
                lacks=-lacks,
                borrowed=-over,
            )
            self._keep(pair)
            used_lacking, used_having = used_lacking + amount, used_having + amount
            if used_lacking == -lacks:
                at_lacking, used_lacking = at_lacking + 1, 0
            if used_having == -over:
                at_having, used_having = at_having + 1, 0

    def _keep(self, pair: SharePair) -> None:
        if self._about not in ("", pair.starved, pair.borrowing):
            return
        part = _PARTS * pair.amount // max(1, self._total.get(pair.resource, 0))
        self._kept.append((-part, pair.resource, pair.starved, pair.borrowing, pair))
        self._count += 1
