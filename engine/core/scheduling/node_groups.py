"""Groups of nodes for which a hook over counters gets the same input, and its answers.

Owns the grouping, how it follows the counts, and what is kept by group; arithmetic only. Five
thousand nodes in ten zones are ten groups; with a hostname among the topologies too, nodes with
equal counts are one. So there are a few dozen groups, rarely hundreds, and what is done by group is
done in plain Python. Only the way from a slot to its group is an array.

A hook's input has two parts: the counts of the node's own domains, which are the group's key, and
figures over all domains (`min`, `total`, ...), which all groups share. Each changes on its own:

    a pod is placed --log of sums--> the nodes of its domains move to the groups of their new counts
    shared figures change --> every group may have another answer, looked up by key again

State from one decision to the next, and what it depends on:

    of_slot, keys, sizes   `made_of` and the counters' positions; another `made_of` makes all again
    codes, unknown         those, and `shared`
    _answers               the meaning of projection ids, and `shared`: never wrong, only incomplete
    _by_slot, _rejects     `codes` through `of_slot`, as of the last `reject`; `_stale_slots`,
                           `_stale_domains` and `_new_groups` say where they are not up to date
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.counter_answers import OUTSIDE, CounterColumn
from engine.core.scheduling.read_ahead import MOST_NUMBERS, ReadAhead
from engine.policy.verdicts import FITS

# Equal numbers are found by a table where it is this short (8 MiB), else by sorting.
_TABLE_SPAN: Final = 1 << 20
# With more changed domains than this, all nodes are grouped again. Measured for 5,000 nodes: 5 us
# to move the nodes of a domain that are one group (130 us if they are fifty), 54 to 70 us to group
# all, after which every answer is looked up and written by slot again.
_MOST_DOMAINS: Final = 32
# How many answers are kept by group, and for how many figures over all domains.
_MOST_ANSWERS: Final = 4096
_MOST_CONTEXTS: Final = 128
# Figures over all domains that do not grow as the least count does.
_OTHERWISE: Final = frozenset({"max", "total"})

Key: TypeAlias = tuple[int, ...]
"""The key of a group: the id of the node's projection, and by counter the node's count."""

Context: TypeAlias = tuple[Any, ...]
"""A key for the figures that all groups share; see `context_of`."""

_Moves: TypeAlias = tuple[tuple[int, int], ...]
"""At which places counts grew, and by how much."""


@dataclass(slots=True)
class Groups:
    """The groups of one hook of one pod class, and its answers.

    A group is a number. Numbers of groups without nodes are given to the next new ones.

    Attributes:
        made_of: What the groups depend on in addition to counts; a change makes all of them again.
        of_slot: The group of each slot.
        keys: By group, its projection and counts; see `Key`.
        sizes: By group, how many slots it has.
        codes: By group, the answer; 0 where it is not known.
        unknown: The groups whose answer is not known.
        shared: By counter, the figures over all domains, which all groups get.
        feasible: What was said of the feasible nodes, and which they were; see `CountedHooks`.
    """

    made_of: tuple[object, ...] = ()
    of_slot: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    keys: list[Key] = field(default_factory=list)
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    unknown: set[int] = field(default_factory=set)
    shared: list[dict[str, Any]] = field(default_factory=list)
    feasible: tuple[bytes, list[dict[str, int]]] = (b"", [])
    # The unknown groups that were closed, and the open slots of that time.
    _closed: set[int] = field(default_factory=set)
    _closed_mask: bytes = b""
    _index: dict[Key, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    # By counter, up to where its changes were followed.
    _positions: list[tuple[tuple[object, int], ...]] = field(default_factory=list)
    # Answers by key: for the figures over all domains as of now, and for those seen lately.
    _answers: dict[Key, int] = field(default_factory=dict)
    _contexts: dict[Context, dict[Key, int]] = field(default_factory=dict)
    # What `reject` needs by slot; the slots, and the groups, that are new to it.
    _by_slot: NDArray[np.int32] | None = None
    _rejects: NDArray[np.bool_] | None = None
    _stale_slots: list[int] = field(default_factory=list)
    # Slots of domains, and if all of a domain were in one group, and still are.
    _stale_domains: list[tuple[NDArray[np.int64], bool]] = field(default_factory=list)
    _new_groups: set[int] = field(default_factory=set)
    _ahead: ReadAhead = field(default_factory=ReadAhead)
    # The least count that was asked about last, and by how much it will probably grow.
    _minimum: int | None = None
    _growth: Sequence[int] = ()
    _minimum_ahead: ReadAhead = field(default_factory=ReadAhead)

    @property
    def count(self) -> int:
        """How many numbers of groups there are; some may have no nodes."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory of what is kept, about."""
        by_slot = 0 if self._by_slot is None else 5 * len(self._by_slot)
        answers = sum(map(len, self._contexts.values()))
        return self.of_slot.nbytes + by_slot + 200 * (len(self.keys) + answers)

    def living(self) -> Iterator[int]:
        """The groups that have nodes."""
        return (group for group, size in enumerate(self.sizes.tolist()) if size)

    # --- following ---------------------------------------------------------------------------

    def follow(
        self,
        made_of: tuple[object, ...],
        size: int,
        nodes: NDArray[np.intp] | None,
        columns: Sequence[CounterColumn],
    ) -> None:
        """Bring the groups up to the present counts of *size* slots.

        *made_of* begins with what the ids of projections depend on. *nodes* are those ids by slot
        (None: all the same), *columns* the counters whose counts by node matter. Cost: a few
        operations for each domain whose count changed.
        """
        if made_of != self.made_of or not self._move(columns):
            ids = np.zeros(size, np.int64) if nodes is None else nodes[:size].astype(np.int64)
            self._make(made_of, ids, columns)
        self._positions = [column.positions for column in columns]

    def _make(
        self,
        made_of: tuple[object, ...],
        nodes: NDArray[np.int64],
        columns: Sequence[CounterColumn],
    ) -> None:
        """Group all slots from scratch."""
        if made_of[:1] != self.made_of[:1]:
            self._contexts.clear()  # ids of projections have another meaning
            self._answers = {}
        self.made_of = made_of
        vectors = [nodes, *(column.counts_by_slot for column in columns)]
        self.of_slot, example = distinct_inputs(vectors)
        self.keys = list(zip(*(vector[example].tolist() for vector in vectors), strict=True))
        self._index = {key: group for group, key in enumerate(self.keys)}
        self.sizes = np.bincount(self.of_slot, minlength=len(self.keys))
        self.codes = np.zeros(len(self.keys), np.int64)
        self.feasible = b"", []
        self._by_slot = self._rejects = None
        self._free.clear()
        self._catch_up()
        for kept in (self._closed, self.unknown):
            kept.clear()
        self._recall(range(len(self.keys)))

    def _move(self, columns: Sequence[CounterColumn]) -> bool:
        """Move nodes whose counts changed; False if that is not known, or too many are."""
        if len(columns) != len(self._positions):
            return False
        changes = []
        for column, positions in zip(columns, self._positions, strict=True):
            found = column.moved_since(positions)
            if found is None:
                return False
            changes.append(found)
        if sum(map(len, changes)) > _MOST_DOMAINS:
            return False
        alone: dict[int, _Moves] = {}  # by slot that is a domain
        for place, (column, found) in enumerate(zip(columns, changes, strict=True), 1):
            for topology, domain, amount in found:
                members = column.layout.members(topology)
                slot = members.only(domain)
                if slot >= 0:
                    alone[slot] = (*alone.get(slot, ()), (place, amount))
                else:
                    self._shift(members.of(domain), place, amount)
        alike: dict[tuple[int, _Moves], list[int]] = {}
        for slot, moves in alone.items():
            alike.setdefault((self.of_slot.item(slot), moves), []).append(slot)
        for (group, moves), slots in alike.items():
            if (to := self._grown(group, len(slots), moves)) != group:
                for slot in slots:
                    self.of_slot[slot] = to
            if self._by_slot is not None:
                self._stale_slots += slots
        return True

    def _shift(self, slots: NDArray[np.int64], place: int, amount: int) -> None:
        """The counts at *place* of all *slots* of a domain grew by *amount*; there may be none."""
        if not len(slots):
            return
        moves = ((place, amount),)
        groups = self.of_slot[slots]
        is_one = bool((groups == groups.item(0)).all())
        if is_one:
            group = groups.item(0)
            if (to := self._grown(group, len(slots), moves)) != group:
                self.of_slot[slots] = to
        else:
            counts = np.bincount(groups)
            towards = np.arange(len(counts))
            for group in counts.nonzero()[0].tolist():
                towards[group] = self._grown(group, counts.item(group), moves)
            self.of_slot[slots] = towards[groups]
        if self._by_slot is not None:
            self._stale_domains.append((slots, is_one))

    def _grown(self, group: int, size: int, moves: _Moves) -> int:
        """Where *size* slots of *group* go when their counts grow by *moves*."""
        before = self.keys[group]
        key = list(before)
        for place, amount in moves:
            if key[place] != OUTSIDE:
                key[place] += amount
        after = tuple(key)
        return group if after == before else self._next(group, size, after)

    def _next(self, group: int, size: int, key: Key) -> int:
        """The group of *key*, to which *size* slots of *group* go."""
        left = self.sizes.item(group) - size
        self.sizes[group] = left
        if not left:
            del self._index[self.keys[group]]
            self.unknown.discard(group)
            self._free.append(group)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = self._new(key)
        self.sizes[found] += size
        self._closed.discard(found)  # one of those that came may be open
        return found

    def _new(self, key: Key) -> int:
        """A number for the group of *key*, with its answer if that is known."""
        if self._free:
            group = self._free.pop()
            self.keys[group] = key
        else:
            group = len(self.keys)
            self.keys.append(key)
            if group >= len(self.sizes):
                self.sizes = _longer(self.sizes)
                self.codes = _longer(self.codes)
        self.sizes[group] = 0
        self._new_groups.add(group)
        self._recall((group,))
        return group

    # --- answers -----------------------------------------------------------------------------

    def share(self, shared: list[dict[str, Any]]) -> None:
        """Set the figures that all groups share next to their counts, and update the answers."""
        if shared != self.shared or not self._contexts:
            context = context_of(shared)
            known = self._contexts.pop(context, None)
            self._contexts[context] = self._answers = {} if known is None else known
            while len(self._contexts) > _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
            self.shared = shared
            codes = self.codes.copy()
            self.unknown.clear()
            self._recall(self.living())
            if self._by_slot is not None and not np.array_equal(codes, self.codes):
                self._by_slot = self._rejects = None

    def _recall(self, groups: Iterable[int]) -> None:
        """Answer for *groups* what was answered for their keys."""
        known, keys = self._answers, self.keys
        for group in groups:
            answer = known.get(keys[group])
            if answer is None:
                answer = FITS
                if keys[group][0] >= 0:  # else these are slots without a node
                    self.unknown.add(group)
            self.codes[group] = answer

    def learn(self, group: int, code: int) -> None:
        """The answer for *group* is *code*."""
        self._show(group, code)
        self.unknown.discard(group)
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[self.keys[group]] = code

    def fail(self, group: int, code: int) -> None:
        """Show *code* for *group* until it is asked again, which is next time."""
        self._show(group, code)
        self.unknown.add(group)

    def _show(self, group: int, code: int) -> None:
        if (
            self._by_slot is not None
            and group not in self._new_groups
            and self.codes[group] != code
        ):
            self._by_slot = self._rejects = None
        self.codes[group] = code

    def wanted(self, is_open: NDArray[np.bool_]) -> list[int]:
        """The unknown groups with an open slot; the others need no answer."""
        text = is_open.tobytes()
        if text != self._closed_mask:
            self._closed_mask = text
            self._closed.clear()
        candidates = self.unknown - self._closed
        if not candidates:
            return []
        open_slots = self.nodes_in(is_open)
        wanted = [group for group in sorted(candidates) if open_slots[group]]
        self._closed.update(candidates.difference(wanted))
        return wanted

    def nodes_in(self, is_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """By group, how many of its slots are wanted."""
        wanted = int(np.count_nonzero(is_wanted))
        if 2 * wanted < len(is_wanted):
            return np.bincount(self.of_slot[is_wanted], minlength=self.count)
        sizes = self.sizes[: self.count]
        if wanted == len(is_wanted):
            return sizes
        return sizes - np.bincount(self.of_slot[~is_wanted], minlength=self.count)

    def likely_after(self, keys: Sequence[Key]) -> Iterator[Key]:
        """The keys that will probably be asked next, now that the answers for *keys* are."""
        size = len(keys[0])
        numbers = tuple([number for key in sorted(keys) for number in key])
        for later in self._ahead.after(numbers, self.shared):
            for place in range(0, len(later), size):
                yield later[place : place + size]

    def growth_after(self, keys: Sequence[Key]) -> Sequence[int]:
        """By how much the least count over all domains will probably grow, and those of *keys*.

        Nothing for a hook that is given more than one counter, or figures that grow otherwise.
        """
        shared = self.shared[0] if len(self.shared) == 1 else {}
        minimum = shared.get("min")
        if minimum is None or not shared.keys().isdisjoint(_OTHERWISE) or len(keys) > MOST_NUMBERS:
            return ()
        if any(len(key) != 2 or key[1] < 0 for key in keys):  # by node alone, or OUTSIDE
            return ()
        if minimum != self._minimum:
            self._minimum = minimum
            self._growth = [later - minimum for (later,) in self._minimum_ahead.after((minimum,))]
        return self._growth

    def reject(self, codes: NDArray[np.int32], is_open: NDArray[np.bool_]) -> None:
        """Write the answers that are no FITS into *codes*, where *is_open*.

        What is needed by slot is kept; where nodes moved, those are looked at again.
        """
        if self._by_slot is None or self._rejects is None:
            self._by_slot = self.codes.astype(np.int32)[self.of_slot]
            self._rejects = self._by_slot != FITS
        else:
            together = self._stale_domains
            if self._stale_slots:
                together.append((np.array(self._stale_slots, np.int64), False))
            if len(together) == 1 and together[0][1]:
                # They had one answer before, and have one now.
                slots = together[0][0]
                code = self.codes.item(self.of_slot.item(slots.item(0)))
                if self._by_slot.item(slots.item(0)) != code:
                    self._by_slot[slots] = code
                    self._rejects[slots] = code != FITS
            else:
                for slots, _ in together:
                    found = self.codes[self.of_slot[slots]]
                    self._by_slot[slots] = found
                    self._rejects[slots] = found != FITS
        self._catch_up()
        rejected = self._rejects & is_open
        if np.count_nonzero(rejected):
            np.putmask(codes, rejected, self._by_slot)

    def _catch_up(self) -> None:
        """Nothing by slot is behind any more."""
        self._stale_slots.clear()
        self._stale_domains.clear()
        self._new_groups.clear()


def context_of(shared: Sequence[Mapping[str, Any]]) -> Context:
    """A key for the figures that all groups share."""
    return tuple([tuple(values.values()) for values in shared])


def _longer(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """*numbers* with as many zeros behind them."""
    return np.concatenate((numbers, np.zeros(len(numbers) + 8, np.int64)))


def distinct_inputs(
    vectors: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Equal columns of *vectors* found.

    Returns:
        For each place the number of its input, from 0 on, and for each input a place that has it.
    """
    combined, span = _from_zero(vectors[0])
    for vector in vectors[1:]:
        numbers, width = _from_zero(vector)
        if span * width > _TABLE_SPAN:
            combined, span = _from_zero(_dense(combined))
            if span * width > _TABLE_SPAN:
                numbers, width = _from_zero(_dense(numbers))
        combined = combined * width + numbers
        span *= width
    of_place = _dense(combined)
    example = np.empty(int(of_place.max()) + 1 if len(of_place) else 0, np.int64)
    example[of_place] = np.arange(len(of_place))
    return of_place, example


def _from_zero(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Numbers from 0 on that are equal where *numbers* are, and one more than the largest."""
    if not len(numbers):
        return numbers, 1
    low, high = int(numbers.min()), int(numbers.max())
    if low == OUTSIDE and high != OUTSIDE:
        is_outside = numbers == OUTSIDE
        low = int(numbers[~is_outside].min()) - 1
        numbers = np.where(is_outside, low, numbers)
    if high - low >= _TABLE_SPAN:
        numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
        return numbers, int(numbers.max()) + 1
    return numbers - low, high - low + 1


def _dense(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """*numbers*, none negative, as 0, 1, 2, ... in the same order."""
    if not len(numbers):
        return numbers
    span = int(numbers.max()) + 1
    if span > _TABLE_SPAN:
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    seen = np.zeros(span, np.bool_)
    seen[numbers] = True
    index = np.cumsum(seen, dtype=np.int64)
    index -= 1
    return index[numbers]
