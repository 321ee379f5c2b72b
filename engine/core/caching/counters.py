"""Counters: how many pods of a kind are in each topology domain, kept as the cluster changes.

Owns the counts. Each index is brought up to a snapshot at a cost of what changed: the domain of
every node for a label key (`topology_column`), the kinds of pods on every node (`pod_kinds`), and
for each counter in use the count of every domain. What is counted is a policy's choice
(`counter_parts`).

    snapshot --changed slots--> kinds (pods alike in namespace, labels, ...) --log--> counters
    snapshot --changed slots--> counters of nodes

An answer is given by domain as far as possible: five thousand nodes in ten zones are ten counts.
The way from a node to its domain changes rarely and is kept (`Layout`).

What is kept from one decision to the next, and what makes it invalid:

- By counter and node, how much is counted there (`_Topology.by_slot`, and `entries` without
  weights). Brought up to date from the log of kinds; counted again from nothing if the log does not
  reach back far enough, if a namespace changed (a selector may now match others), or if the number
  of slots did. A kind of pods is matched against a counter once, not once a pod. Where nodes are
  counted, those whose slot changed are looked at again (`_NodeCount.counted`).
- By counter and domain, the sum over the nodes of the domain (`_Topology.sums`). A placed pod adds
  to it in place, and to its log, from which `counted` hooks learn which domains changed. It is
  summed again if a node changed its domain or the set of eligible nodes is another one: both are
  versions, and a sum holds while they are the ones that it was made with.
- By counter, which nodes count and the index of each node's domain (`Layout`), until a node changes
  its domain, gets a label key that the counter asks for, or the eligible nodes change.

So a decision that follows a placement costs one addition a counter, and a label edit of one node
costs one pass over all nodes, by numpy, for the counters of that label.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.core.caching.counter_answers import OUTSIDE, CounterColumn, CounterRow, Layout, SumsLog
from engine.core.caching.counter_parts import NodeTest, candidates_of, matcher_of
from engine.core.caching.objects import ObjectStore
from engine.core.caching.own_terms import Contribution
from engine.core.caching.pod_kinds import PodKind, PodKinds
from engine.core.caching.snapshot import Snapshot
from engine.core.caching.topology_column import TopologyColumn
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.model.selectors import MOST_LABELS

ColumnOf = Callable[[str | None], TopologyColumn]
InsideOf = Callable[[tuple[str, ...]], NDArray[np.bool_] | None]
"""The slots of the nodes that have all of these label keys; None if there are no keys."""


# Topologies of all counters together, each counted once for each counter. Pods name label keys
# freely, and each topology takes memory for every node, and time at every change.
_MOST_HELD: Final = 4096
# A counter that holds more terms of an incoming pod is large, and how many terms large counters
# may hold together from one decision to the next.
_MANY_TERMS: Final = 64
_MOST_TERMS: Final = 4096


@dataclass(slots=True)
class _Topology:
    """One counter's counts in one topology: by slot, and summed by domain.

    `sums` and `matched` hold while `version` is the topology's and the eligible nodes'.
    """

    column: TopologyColumn
    by_slot: NDArray[np.int64]  # weighted
    entries: NDArray[np.int64]  # how many were counted, weights aside
    sums: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    version: tuple[int, int] = (-1, -1)
    matched: int = 0  # entries in some domain
    matched_version: int = -1
    log: SumsLog = field(default_factory=SumsLog)


@dataclass(frozen=True, slots=True)
class PodChanges:
    """Pods that are assumed to come to a node or leave it, in a dry run."""

    slot: int
    added: Sequence[Pod] = ()
    removed: Sequence[Pod] = ()


@dataclass(slots=True)
class _NodeCount:
    """A part that counts nodes: by slot, whether it is counted."""

    test: NodeTest
    counted: NDArray[np.bool_]


_Now = tuple[int, int, int, int]
"""What was counted: the ends of the logs of kinds and of slots, the generation of namespaces, the
number of slots."""


class _Counter:
    """One counter: the sum of its parts over every node that counts."""

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        nowhere = np.empty(0, np.bool_)
        self._nodes = [_NodeCount(NodeTest(p), nowhere) for p in parts if p["kind"] == "nodes"]
        of_pods = [part for part in parts if part["kind"] != "nodes"]
        self._matchers = [matcher_of(part) for part in of_pods]
        # Which kinds it may count, part by part, and those found since `refresh`.
        self._candidates = [candidates_of(part) for part in of_pods]
        self._found: list[AbstractSet[int]] | None = None
        # It counts terms of placed pods only. What it counts of them, by the namespace of the pods:
        # those may be many, each with a label of its own.
        self._is_of_terms = all(part["kind"] == "terms" for part in of_pods)
        self._of_terms: dict[tuple[str, bytes], Sequence[Contribution]] = {}
        keys = parts[0]["keys"] if len(parts) == 1 else (k for p in parts for k in p["keys"])
        self.keys: tuple[str, ...] = tuple(keys)
        terms = sum(part["own"].count() for part in parts if "own" in part)
        #: How many terms of an incoming pod it holds, if that is what makes it large.
        self.many_terms = terms if terms > _MANY_TERMS else 0
        first = parts[0] if parts else None
        # The topology whose domains `here`, `min` and `domains` speak of; None for a sum over
        # several, where a node outside one topology simply gets nothing from it.
        self._is_single = len(parts) == 1 and _has_one_topology(parts[0])
        self._up_to: int | None = None if first is None else first.get("up_to")
        self._topology: str | None = first["topology"] if self._is_single and first else None
        self._matched: dict[int, Sequence[Contribution]] = {}
        self._left_out: set[int] = set()  # the last candidates that it does not count
        self._topologies: dict[str | None, _Topology] = {}
        self.seen: _Now = (-1, -1, -1, 0)
        self._slots = 0
        self._eligible: NDArray[np.bool_] | None = None
        self._eligible_version = 0
        self._mask: NDArray[np.bool_] | None = None
        self._layout: Layout | None = None
        self._layout_of: tuple[int, ...] = ()
        self._shown: Sequence[_Topology] = ()  # those of the layout

    def copy(self, columns: Mapping[str | None, TopologyColumn]) -> "_Counter":
        """A counter of its own that has counted the same; *columns* are the copy's topologies."""
        made = copy.copy(self)
        made._matched, made._left_out = self._matched.copy(), self._left_out.copy()
        made._of_terms = self._of_terms.copy()
        made._nodes = [_NodeCount(one.test, one.counted.copy()) for one in self._nodes]
        made._topologies = {
            key: replace(
                topology,
                column=columns[key],
                by_slot=topology.by_slot.copy(),
                entries=topology.entries.copy(),
                sums=topology.sums.copy(),
                log=SumsLog(),
            )
            for key, topology in self._topologies.items()
        }
        made._layout, made._layout_of, made._mask, made._shown = None, (), None, ()
        return made

    @property
    def counted_in(self) -> int:
        """In how many topologies it counts."""
        return len(self._topologies)

    @property
    def labels(self) -> set[str | None]:
        """The label keys of its topologies, and those that it asks nodes for."""
        return {self._topology, *self._topologies, *self.keys}

    # --- following the cluster --------------------------------------------------------------

    def refresh(self, now: _Now, kinds: PodKinds, snapshot: Snapshot, column_of: ColumnOf) -> None:
        """Count what changed since the last time; *now* is what `seen` will be."""
        (position, generation, *others), objects = self.seen, snapshot.objects
        continues = position >= 0 and others == [*now[2:]]
        changes = kinds.changes_since(position) if continues else None
        slots: Iterable[int] | None = ()
        if self._nodes:
            slots = snapshot.changed_since(generation) if continues else None
        self._found = None
        self.seen, self._slots = now, now[3]
        if changes is None or slots is None:
            self._matched.clear()
            self._left_out.clear()
            self._of_terms.clear()
            self._topologies.clear()
            self._layout = None
            changes = [
                (kind, slot, count)
                for kind in sorted(set().union(*self._may_count(kinds)))
                for slot, count in kinds.slots_of[kind].items()
            ]
            slots = range(self._slots)
            for one in self._nodes:
                one.counted = np.zeros(self._slots, np.bool_)
        for one in self._nodes:
            self._look_again(one, slots, snapshot, column_of)
        self._count_pods(changes, kinds, objects, column_of)

    def _look_again(
        self, one: _NodeCount, slots: Iterable[int], snapshot: Snapshot, column_of: ColumnOf
    ) -> None:
        """Count the nodes of *slots* if they are to be counted now."""
        key, weight = one.test.contribution
        for slot in slots:
            holds = one.test.holds(snapshot.infos[slot])
            if holds != one.counted.item(slot):
                one.counted[slot] = holds
                difference = 1 if holds else -1
                self._count(self._topology_of(key, column_of), slot, weight, difference)

    def _count_pods(
        self,
        changes: Iterable[tuple[int, int, int]],
        kinds: PodKinds,
        objects: ObjectStore,
        column_of: ColumnOf,
    ) -> None:
        """Count pods that came or went, by the log of kinds."""
        may_count: list[AbstractSet[int]] | None = None
        for kind, slot, difference in changes:
            contributions = self._matched.get(kind)
            if contributions is None:
                if kind in self._left_out:
                    continue
                if may_count is None:
                    may_count = [found for found in self._may_count(kinds) if found]
                    if not may_count and not self._matched:
                        return  # most counters, where each pod waits for one other pod
                if not any(kind in found for found in may_count):
                    continue  # or its pods came and went, and it is forgotten
                contributions = self._match(kinds.kinds[kind], objects)
                if not contributions:
                    self._leave_out(kind)
                    continue
                self._matched[kind] = contributions
            for key, weight in contributions:
                self._count(self._topology_of(key, column_of), slot, weight, difference)

    def _may_count(self, kinds: PodKinds) -> Sequence[AbstractSet[int]]:
        """By part, the kinds that it may count; finding them costs less than matching them."""
        if self._found is None:
            self._found = [candidates(kinds) for candidates in self._candidates]
        return self._found

    def _leave_out(self, kind: int) -> None:
        # Most kinds do not concern most counters. Remembering all of them took gigabytes where each
        # pod has a label of its own; matching a kind again is cheaper.
        if len(self._left_out) >= MOST_LABELS:
            self._left_out.clear()
        self._left_out.add(kind)

    def _topology_of(self, key: str | None, column_of: ColumnOf) -> _Topology:
        topology = self._topologies.get(key)
        if topology is None:
            blank = np.zeros(self._slots, np.int64)
            topology = self._topologies[key] = _Topology(column_of(key), blank, blank.copy())
        return topology

    def _count(self, topology: _Topology, slot: int, weight: int, difference: int) -> None:
        column, amount = topology.column, weight * difference
        # `item` gives Python's numbers, which cost half of what numpy's scalars do.
        topology.by_slot[slot] = topology.by_slot.item(slot) + amount
        topology.entries[slot] = topology.entries.item(slot) + difference
        domain = column.ids.item(slot)
        if domain < 0:
            return
        if topology.matched_version == column.version:
            topology.matched += difference
        if topology.version == (column.version, self._eligible_version) and (
            self._eligible is None or self._eligible[slot]
        ):
            topology.sums[domain] = topology.sums.item(domain) + amount
            topology.log.note(domain, amount)

    def _match(self, kind: PodKind, objects: ObjectStore) -> Sequence[Contribution]:
        key = kind.namespace, kind.terms
        if self._is_of_terms and key in self._of_terms:
            return self._of_terms[key]
        found = [c for match in self._matchers for c in match(kind, objects)]
        if self._is_of_terms:
            self._of_terms[key] = found
        return found

    # --- answering --------------------------------------------------------------------------

    @property
    def matched(self) -> int:
        """How many (pod, term) pairs are counted in some domain, whichever nodes count."""
        total = 0
        for topology in self._topologies.values():
            if topology.matched_version != topology.column.version:
                ids = topology.column.ids[: self._slots]
                topology.matched = int(topology.entries[ids >= 0].sum())
                topology.matched_version = topology.column.version
            total += topology.matched
        return total

    def answer(
        self,
        present: NDArray[np.bool_],
        eligible: NDArray[np.bool_] | None,
        column_of: ColumnOf,
        inside_of: InsideOf,
        version: int,
    ) -> CounterColumn:
        """The column for nodes of which *eligible* ones count (None: all).

        *version* is another number whenever a node is in another domain of any topology.
        """
        # The layout is made again if a node changed its domain, or whether it counts.
        made_of = (version, len(present), len(self._topologies))
        if self._layout is None or made_of != self._layout_of or eligible is not self._mask:
            self._layout = self._lay_out(eligible, column_of, inside_of)
            self._layout_of = (version, len(present), len(self._topologies))
            self._mask = eligible
        return CounterColumn(
            self._layout,
            [self._sums(topology) for topology in self._shown],
            present[: self._slots],
            up_to=self._up_to,
            is_empty=self.matched == 0,
            logs=[topology.log for topology in self._shown],
        )

    def _lay_out(
        self,
        eligible: NDArray[np.bool_] | None,
        column_of: ColumnOf,
        inside_of: InsideOf,
    ) -> Layout:
        """The layout, and the topologies that `here` is a sum over."""
        if self._is_single:
            self._shown = (self._topology_of(self._topology, column_of),)
        else:
            self._shown = tuple(self._topologies.values())
        columns = [t.column for t in self._shown]
        slots = self._slots
        inside = inside_of(self.keys)
        counts_in = inside
        if eligible is not None:
            counts_in = eligible[:slots] if inside is None else eligible[:slots] & inside
        if not _same(counts_in, self._eligible):
            self._eligible = None if counts_in is None else counts_in.copy()
            self._eligible_version += 1
        indexes = []
        domains = [column.ids[:slots] for column in columns]
        if self._is_single and columns[0].key is None and inside is not None:
            # Each node is a domain of its own, but not if it lacks a key.
            domains = [np.where(inside, domains[0], -1)]
        for column, ids in zip(columns, domains, strict=True):
            indexes.append(np.where(ids >= 0, ids, max(column.size, 1)).astype(np.int32))
        domain_ids = registered = None
        if self._is_single:
            domain_ids = domains[0].copy()
            counting = domain_ids >= 0 if counts_in is None else (domain_ids >= 0) & counts_in
            registered = np.zeros(max(columns[0].size, 1), np.bool_)
            registered[domain_ids[counting]] = True
            if registered.all():
                registered = None
        return Layout(tuple(indexes), inside, domain_ids, registered, self._eligible)

    def _sums(self, topology: _Topology) -> NDArray[np.int64]:
        """The counts by domain, and behind them what a node without a domain gets."""
        column = topology.column
        version = (column.version, self._eligible_version)
        if topology.version != version:
            ids = column.ids[: self._slots]
            counting = ids >= 0 if self._eligible is None else (ids >= 0) & self._eligible
            topology.sums = np.zeros(max(column.size, 1) + 1, np.int64)
            np.add.at(topology.sums, ids[counting], topology.by_slot[counting])
            topology.sums[-1] = OUTSIDE if self._is_single else 0
            topology.version = version
            topology.log.restart()
        return topology.sums

    def topologies(
        self, slot: int, pod: Pod, kinds: PodKinds, objects: ObjectStore
    ) -> set[str | None]:
        """The topologies in which *pod* is counted on the node of *slot*, or would be.

        Those, too, in which the node may count or not because of the pod.
        """
        found = {key for key, _ in self._contributions(slot, pod, kinds, objects)}
        found.update(n.test.contribution[0] for n in self._nodes if n.test.depends_on(pod))
        return found

    def _contributions(
        self, slot: int, pod: Pod, kinds: PodKinds, objects: ObjectStore
    ) -> Sequence[Contribution]:
        number, kind = kinds.kind_of(slot, pod)
        if number is not None:
            if number in self._left_out or all(
                number not in found for found in self._may_count(kinds)
            ):
                return ()
            if (known := self._matched.get(number)) is not None:
                return known
        return self._match(kind, objects)

    def row(
        self,
        column: CounterColumn,
        changes: PodChanges,
        info: NodeInfo,
        kinds: PodKinds,
        objects: ObjectStore,
        column_of: ColumnOf,
        inside_of: InsideOf,
        version: int,
    ) -> CounterRow:
        """The node's entry of *column* after *changes*, as *info* shows it."""
        slot = changes.slot
        more: dict[str | None, tuple[int, int]] = {}
        for pods, sign in ((changes.added, 1), (changes.removed, -1)):
            for pod in pods:
                for key, weight in self._contributions(slot, pod, kinds, objects):
                    amount, entries = more.get(key, (0, 0))
                    more[key] = amount + sign * weight, entries + sign
        for one in self._nodes:
            difference = one.test.holds(info) - one.counted.item(slot)
            if difference:
                key, weight = one.test.contribution
                amount, entries = more.get(key, (0, 0))
                more[key] = amount + difference * weight, entries + difference
        if not more:
            return CounterRow(column, slot, column.is_empty)
        more = {k: v for k, v in more.items() if column_of(k).ids[slot] >= 0}
        is_empty = self.matched + sum(entries for _, entries in more.values()) == 0
        layout = column.layout
        if layout.counts_in is not None and not layout.counts_in[slot]:
            return CounterRow(column, slot, is_empty)
        known = [self._topology] if self._is_single else list(self._topologies)
        places = {key: place for place, key in enumerate(known)}
        if any(key not in places for key in more) or len(places) > len(layout.indexes):
            # A topology in which nothing was counted before, or not yet when *column* was made:
            # count it, and answer again.
            for key in more:
                self._topology_of(key, column_of)
            column = self.answer(column.present, self._mask, column_of, inside_of, version)
            places = {key: place for place, key in enumerate(self._topologies)}
        amounts = {places[key]: amount for key, (amount, _) in more.items() if amount}
        return column.shifted(slot, amounts, is_empty=is_empty)


def _has_one_topology(part: Mapping[str, Any]) -> bool:
    """False for a part that counts in the topology of each term."""
    return part.get("topology") is not None or part["kind"] in ("pods", "nodes")


def _same(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


class Counters:
    """The counters in use over one snapshot, made on first use and bounded in number.

    A counter is a list of parts (plain data, as `count_pods` and its like make them) that are
    summed; counters are distinguished by the JSON text that the caller gives for them.
    """

    def __init__(self, capacity: int = 1024, *, most_held: int = _MOST_HELD) -> None:
        self._capacity = capacity
        self._most_held = most_held
        self._kinds = PodKinds()
        self._columns: dict[str | None, TopologyColumn] = {}
        self._counters: OrderedDict[bytes, _Counter] = OrderedDict()
        self._terms = 0  # of large counters
        self._snapshot: Snapshot | None = None
        # Up to where counters are to count, see `_Counter`; and the topologies' versions, summed.
        self._now: _Now = (-1, -1, -1, 0)
        self._version = 0
        # Times that a topology was asked for since `_let_go`, and the versions of those that went.
        self._asked = 0
        self._gone = 0
        self._inside: tuple[tuple[str, ...], NDArray[np.bool_] | None] = ((), None)
        self._term_keys: AbstractSet[str] = frozenset()

    def refresh(self, snapshot: Snapshot, term_keys: AbstractSet[str] = frozenset()) -> None:
        """Bring the indexes up to *snapshot*; needed before `column`.

        *term_keys* are those of the pods that `PodChanges` may add.
        """
        self._kinds.refresh(snapshot)
        named = self._kinds.with_terms.keys.named
        self._term_keys = named | term_keys if term_keys else named
        self._inside = ((), None)
        if self._terms > _MOST_TERMS:
            self._forget_large()
        if self._asked > self._most_held:
            self._let_go()
        version = self._gone
        for column in self._columns.values():
            column.refresh(snapshot)
            version += column.version
        namespaces = snapshot.objects.generation("namespaces")
        now = (self._kinds.position, snapshot.generation, namespaces, len(snapshot.infos))
        if now != self._now:  # the same object as long as it is the same: counters look at that
            self._now = now
        self._version = version
        self._snapshot = snapshot

    def reuse_from(self, other: "Counters", most: int = 64) -> None:
        """Begin with what *other* has counted: of its counters the *most* used last.

        Counters count pods by namespace, labels and terms, whatever the policies make of it. Only
        for counters that were never refreshed.
        """
        self._kinds = other._kinds.copy()
        self._columns = {key: column.copy() for key, column in other._columns.items()}
        for key in list(other._counters)[-most:]:
            self._counters[key] = other._counters[key].copy(self._columns)
            self._terms += self._counters[key].many_terms

    def term_labels(self, pod: Pod) -> dict[str, str]:
        """The labels of *pod* that the terms of other pods name, which is all that they look at."""
        if not self._term_keys:
            return {}
        return {key: pod.labels[key] for key in sorted(self._term_keys & pod.labels.keys())}

    def is_empty(self, key: bytes, parts: Sequence[Mapping[str, Any]]) -> bool:
        """True if the counter of *parts* counts nothing anywhere. Cheaper than `column`."""
        return self._counter(key, parts).matched == 0

    def column(
        self,
        key: bytes,
        parts: Sequence[Mapping[str, Any]],
        present: NDArray[np.bool_],
        eligible: NDArray[np.bool_] | None = None,
    ) -> CounterColumn:
        """The counter of *parts* for every slot.

        *key* identifies the parts and whatever else they depend on. *present* marks the slots with
        a node, *eligible* the nodes whose pods count (None: every node); it must not be changed.
        """
        counter = self._counter(key, parts)
        return counter.answer(present, eligible, self._topology, self._inside_of, self._version)

    def row(
        self,
        key: bytes,
        parts: Sequence[Mapping[str, Any]],
        column: CounterColumn,
        changes: PodChanges,
        info: NodeInfo,
    ) -> CounterRow:
        """One node's entry of *column*, had the pods of *changes* come and gone.

        *column* is what `column` answered for the same arguments on the same snapshot, *info* the
        node after the changes.
        """
        counter = self._counter(key, parts)
        assert self._snapshot is not None
        objects = self._snapshot.objects
        return counter.row(
            column,
            changes,
            info,
            self._kinds,
            objects,
            self._topology,
            self._inside_of,
            self._version,
        )

    def kind(self, slot: int, pod: Pod) -> int | None:
        """A number that pods share which every counter counts alike; None: no pod counted is so.

        *pod* is on the node of *slot*, or might be.
        """
        return self._kinds.kind_of(slot, pod)[0]

    def topologies(
        self, key: bytes, parts: Sequence[Mapping[str, Any]], slot: int, pod: Pod
    ) -> set[str | None]:
        """Where the counter of *parts* counts *pod*, were it on the node of *slot*.

        By topology key, None for each node by itself; empty if it does not count it, and counts
        the node with it if and only if it does without.
        """
        counter = self._counter(key, parts)
        assert self._snapshot is not None
        return counter.topologies(slot, pod, self._kinds, self._snapshot.objects)

    def _counter(self, key: bytes, parts: Sequence[Mapping[str, Any]]) -> _Counter:
        """The counter of *parts*, counted up to the snapshot."""
        snapshot = self._snapshot
        if snapshot is None:
            raise RuntimeError("counters were read before their first refresh")
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = _Counter(parts)
            self._terms += counter.many_terms
            if len(self._counters) > self._capacity:
                self._forget(next(iter(self._counters)))
        else:
            self._counters.move_to_end(key)
        if counter.seen is not self._now:
            counter.refresh(self._now, self._kinds, snapshot, self._topology)
        return counter

    def _forget(self, key: bytes) -> None:
        self._terms -= self._counters.pop(key).many_terms

    def _forget_large(self) -> None:
        """Forget large counters, those used longest ago first, and no others."""
        for key in [key for key, counter in self._counters.items() if counter.many_terms]:
            if self._terms > _MOST_TERMS:
                self._forget(key)

    def _let_go(self) -> None:
        """Forget counters not used lately, if all hold too much, and topologies that none holds."""
        held = 0
        needed: set[str | None] = set()
        for key in reversed(list(self._counters)):
            counter = self._counters[key]
            held += counter.counted_in
            both = needed | counter.labels
            if needed and max(held, len(both)) > self._most_held:
                self._forget(key)
            else:
                needed = both
        for label in self._columns.keys() - needed:
            self._gone += self._columns.pop(label).version
        self._asked = 0

    def _inside_of(self, keys: tuple[str, ...]) -> NDArray[np.bool_] | None:
        # Those that are asked for in turn, by one pod's counters, are mostly the same.
        known, inside = self._inside
        if keys != known:
            inside = None
            slots = self._now[3]
            for key in keys:
                has_key = self._topology(key).ids[:slots] >= 0
                inside = has_key if inside is None else inside & has_key
            self._inside = (keys, inside)
        return inside

    def _topology(self, key: str | None) -> TopologyColumn:
        self._asked += 1
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = TopologyColumn(key)
            assert self._snapshot is not None
            column.refresh(self._snapshot)
        return column
