"""What a counter answers: the count of every node's domain, and figures over all domains.

Owns the form of an answer and the way from a node to its count; `counters` does the counting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.lib.change_log import ChangeLog

# The count of a node outside every domain.
OUTSIDE: Final = -(2**63)

# Of so few counts plain Python finds the least faster than numpy.
_SHORT: Final = 64

# How many changes of sums are remembered; a reader that missed more looks at all domains.
_LOG_SIZE: Final = 512


class SumsLog:
    """The domains whose sums changed, in order, and by how much; cleared when any may have."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: ChangeLog[tuple[int, int]] = ChangeLog(_LOG_SIZE)

    @property
    def position(self) -> tuple[object, int]:
        """The end of the log; see `since`."""
        return self._changes, self._changes.end

    def note(self, domain: int, amount: int) -> None:
        """The sum of *domain* grew by *amount*."""
        self._changes.note((domain, amount))

    def restart(self) -> None:
        """Every sum may have changed."""
        self._changes.restart()

    def since(self, position: tuple[object, int]) -> Mapping[int, int] | None:
        """By how much each domain grew after *position*; None: any may have, by any amount."""
        log, end = position
        changes = self._changes.since(end) if log is self._changes else None
        if changes is None:
            return None
        grown: dict[int, int] = {}
        for domain, amount in changes:
            grown[domain] = grown.get(domain, 0) + amount
        return grown


class Members:
    """The places that hold each number of a vector of small numbers."""

    __slots__ = ("_firsts", "_order", "_starts")

    def __init__(self, numbers: NDArray[np.int32] | NDArray[np.int64]) -> None:
        self._order = np.argsort(numbers, kind="stable")
        most = int(numbers.max()) + 2 if len(numbers) else 1
        self._starts: list[int] = np.searchsorted(numbers[self._order], np.arange(most)).tolist()
        self._firsts: list[int] = []

    def only(self, number: int) -> int:
        """The place that holds *number* if it is just one, else -1."""
        if not self._firsts:
            # By number, if it is held at all; a hostname is held by one node.
            ends = self._starts[1:]
            pairs = zip(self._starts, ends, strict=False)
            self._firsts = [
                self._order.item(start) if end - start == 1 else -1 for start, end in pairs
            ]
        return self._firsts[number] if number < len(self._firsts) else -1

    def of(self, number: int) -> NDArray[np.int64]:
        """The places that hold *number*, ascending."""
        if number + 1 >= len(self._starts):
            return self._order[:0]
        return self._order[self._starts[number] : self._starts[number + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Which node is in which domain, for one counter; the same object as long as that holds.

    Attributes:
        indexes: For each topology, the domain by slot; the number after the last one is "none".
        inside: By slot, the node has every label that makes it count; None: every node.
        domain_ids: For a counter over one topology, the domain by slot, -1 without.
        registered: For a counter over one topology, by domain: it has a node that counts; None:
            every domain has.
        counts_in: By slot, the pods of the node count; None: of every node.
    """

    indexes: tuple[NDArray[np.int32], ...]
    inside: NDArray[np.bool_] | None
    domain_ids: NDArray[np.int32] | None = None
    registered: NDArray[np.bool_] | None = None
    counts_in: NDArray[np.bool_] | None = None
    _members: dict[int, Members] = field(default_factory=dict)

    def members(self, topology: int) -> Members:
        """The slots of each domain of the topology at place *topology*."""
        known = self._members.get(topology)
        if known is None:
            known = self._members[topology] = Members(self.indexes[topology])
        return known

    def places(self, slots: NDArray[np.int64]) -> "SlotIndex":
        """Where the counts of *slots* are found."""
        outside = (
            None if self.inside is None or self.domain_ids is not None else ~self.inside[slots]
        )
        return SlotIndex(len(slots), tuple(index[slots] for index in self.indexes), outside)


@dataclass(frozen=True, slots=True)
class SlotIndex:
    """Where the counts of some slots are found, as long as the layout holds."""

    size: int
    indexes: tuple[NDArray[np.int32], ...]
    outside: NDArray[np.bool_] | None


class CounterColumn:
    """A counter's answer for every node, and over all domains; valid for one snapshot.

    `min`, `max` and `domains` are over the domains that have a node that counts; `min` is None
    without any. `total` is over all domains. Counts above a part's `up_to` are given as that.
    """

    __slots__ = ("_known", "_logs", "_sums", "_up_to", "is_empty", "layout", "present")

    def __init__(
        self,
        layout: Layout,
        sums: Sequence[NDArray[np.int64]],
        present: NDArray[np.bool_],
        *,
        up_to: int | None,
        is_empty: bool,
        logs: Sequence[SumsLog] = (),
    ) -> None:
        self.layout = layout
        self.is_empty = is_empty
        self.present = present
        self._up_to = up_to
        self._sums = sums
        self._logs = logs
        self._known: NDArray[np.int64] | None = None

    @property
    def positions(self) -> tuple[tuple[object, int], ...]:
        """How far the logs of its topologies' sums have come; see `moved_since`."""
        return tuple([log.position for log in self._logs])

    def moved_since(
        self, positions: Sequence[tuple[object, int]]
    ) -> list[tuple[int, int, int]] | None:
        """Whose `counts_by_slot` changed since *positions*: topology, domain, and by how much.

        None if any may have.
        """
        if len(positions) != len(self._logs):
            return None
        found: list[tuple[int, int, int]] = []
        for topology, (log, position) in enumerate(zip(self._logs, positions, strict=True)):
            if position == log.position:
                continue
            grown = log.since(position)
            if grown is None:
                return None
            for domain, amount in grown.items():
                if self._up_to is not None and len(self._sums) == 1:
                    now = self._sums[topology].item(domain)
                    amount = min(now, self._up_to) - min(now - amount, self._up_to)
                if amount:
                    found.append((topology, domain, amount))
        return found

    def shown(self, count: int) -> int:
        """What a hook is shown of one of `counts_by_slot`."""
        return count if self._up_to is None else min(count, self._up_to)

    @property
    def counts_by_slot(self) -> NDArray[np.int64]:
        """By slot, the count of the node's domain; OUTSIDE without a domain.

        That of a counter over several topologies is not yet cut to the part's `up_to`: so it moves
        by as much as the sums do.
        """
        places = self.layout.places(np.arange(len(self.present)))
        return self._counts_at(places, self._up_to if len(self._sums) == 1 else None)

    @property
    def is_single(self) -> bool:
        """True for a counter over one topology, whose domains it speaks of."""
        return self.layout.domain_ids is not None

    @property
    def inside(self) -> NDArray[np.bool_]:
        """By slot: the node has the labels that make it count, and a domain."""
        layout = self.layout
        inside = self.present if layout.inside is None else layout.inside & self.present
        if layout.domain_ids is not None:
            inside = inside & (layout.domain_ids >= 0)
        return inside

    @property
    def here(self) -> NDArray[np.int64]:
        """By slot, the count of the node's domain; OUTSIDE without a domain, or without a node."""
        here = self.here_at(self.layout.places(np.arange(len(self.present))))
        here[~self.present] = OUTSIDE
        return here

    def here_at(self, places: SlotIndex) -> NDArray[np.int64]:
        """The count of each domain of *places*; OUTSIDE without a domain."""
        return self._counts_at(places, self._up_to)

    def _counts_at(self, places: SlotIndex, up_to: int | None) -> NDArray[np.int64]:
        here: NDArray[np.int64]
        if self.layout.domain_ids is not None:
            here = self._sums[0][places.indexes[0]]
        else:
            here = np.zeros(places.size, np.int64)
            for sums, index in zip(self._sums, places.indexes, strict=True):
                here += sums[index]
        if up_to is not None:
            np.minimum(here, up_to, out=here)
        if places.outside is not None:
            here[places.outside] = OUTSIDE
        return here

    @property
    def _counts(self) -> NDArray[np.int64]:
        """The counts that `min`, `max` and so on are over: by domain, or by node for a sum."""
        if self._known is None:
            if self.is_single:
                counts = self._sums[0][:-1]
                if self.layout.registered is not None:
                    counts = counts[self.layout.registered]
                if self._up_to is not None:
                    counts = np.minimum(counts, self._up_to)
                self._known = counts
            else:
                self._known = self.here_at(self.layout.places(np.flatnonzero(self.inside)))
        return self._known

    @property
    def min(self) -> int | None:
        """The smallest count."""
        counts = self._counts
        if len(counts) > _SHORT:
            return int(counts.min())
        return min(counts.tolist(), default=None)

    @property
    def max(self) -> int | None:
        """The largest count."""
        counts = self._counts
        if len(counts) > _SHORT:
            return int(counts.max())
        return max(counts.tolist(), default=None)

    @property
    def total(self) -> int:
        """The sum over the domains; for a counter over several topologies over all of them."""
        if self.is_single:
            return int(self._counts.sum())
        return sum(int(sums[:-1].sum()) for sums in self._sums)

    @property
    def domains(self) -> int:
        """How many domains have a node that counts; 0 for a counter over several topologies."""
        return len(self._counts) if self.is_single else 0

    def shifted(self, slot: int, more: Mapping[int, int], *, is_empty: bool) -> "CounterRow":
        """The entry of *slot* with more pods (or fewer) in its domains.

        *more* is by place in `layout.indexes`; the pods of the node must count.
        """
        if not more:
            return CounterRow(self, slot, is_empty)
        sums = list(self._sums)
        for place, amount in more.items():
            domain = int(self.layout.indexes[place][slot])
            changed = sums[place].copy()
            changed[domain] += amount
            sums[place] = changed
        column = CounterColumn(
            self.layout, sums, self.present, up_to=self._up_to, is_empty=is_empty
        )
        return CounterRow(column, slot, is_empty)


class CounterRow:
    """A counter's answer for one node; the fields are those of `CounterColumn`."""

    __slots__ = ("_column", "here", "is_empty")

    def __init__(self, column: CounterColumn, slot: int, is_empty: bool) -> None:
        self._column = column
        self.here = int(column.here_at(column.layout.places(np.array([slot])))[0])
        self.is_empty = is_empty

    @property
    def min(self) -> int | None:
        """As of the column."""
        return self._column.min

    @property
    def max(self) -> int | None:
        """As of the column."""
        return self._column.max

    @property
    def total(self) -> int:
        """As of the column."""
        return self._column.total

    @property
    def domains(self) -> int:
        """As of the column."""
        return self._column.domains
