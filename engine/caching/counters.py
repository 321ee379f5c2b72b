"""Counters: how many pods of a kind are in each topology domain, kept as the cluster changes.

Owns three indexes over a snapshot, each brought up to date at a cost of what changed: the domain of
every node for a label key, the groups of like pods on every node, and for each counter in use the
count of every domain. What is counted is a policy's choice; see `count_pods` and `count_terms`.

    snapshot --changed slots--> groups (pods alike in namespace, labels, terms) --deltas--> counters
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.caching.objects import ObjectStore
from engine.caching.snapshot import Snapshot
from engine.model.objects import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
)
from engine.model.pod import Pod
from engine.model.selectors import SelectorError, matches_label_selector

# The value of `CounterColumn.here` for a node outside every domain.
OUTSIDE: Final = -(2**63)

_NO_TERMS: Final[tuple[PodAffinityTerm, ...]] = ()


class TopologyColumn:
    """The domain of every node for one label key, as small integers by slot; -1 without the label.

    With key None every node is a domain of its own. `version` grows with each change.
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.ids: NDArray[np.int32] = np.empty(0, np.int32)
        self.size = 0
        self.version = 0
        self._index: dict[str, int] = {}
        self._snapshot: Snapshot | None = None
        self._generation = -1

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring the column up to *snapshot*."""
        if snapshot is self._snapshot and snapshot.generation == self._generation:
            return
        changed: Sequence[int] | None = None
        if snapshot is self._snapshot:
            changed = snapshot.changed_since(self._generation)
        slots = len(snapshot.infos)
        if len(self.ids) < slots or changed is None:
            self.ids = np.full(slots, -1, np.int32)
            self.version += 1
            changed = range(slots)
        if len(self._index) > 2 * slots + 1024:
            self._index.clear()  # labels came and went: number what is there now
            self.ids[:] = -1
            changed = range(slots)
            self.version += 1
        for slot in changed:
            domain = self._domain(slot, snapshot)
            if self.ids[slot] != domain:
                self.ids[slot] = domain
                self.version += 1
        self.size = slots if self.key is None else len(self._index)
        self._snapshot, self._generation = snapshot, snapshot.generation

    def _domain(self, slot: int, snapshot: Snapshot) -> int:
        info = snapshot.infos[slot]
        if info is None or info.node is None:
            return -1
        if self.key is None:
            return slot
        value = info.node.labels.get(self.key)
        return -1 if value is None else self._index.setdefault(value, len(self._index))


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What counters may look at of a pod; pods with equal groups are counted alike."""

    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    affinity: Affinity | None


def _group_key(pod: Pod) -> tuple[Any, ...]:
    affinity = pod.manifest.spec.affinity
    if affinity is not None and not (affinity.pod_affinity or affinity.pod_anti_affinity):
        affinity = None
    labels = tuple(sorted(pod.labels.items()))
    terms = None if affinity is None else repr((affinity.pod_affinity, affinity.pod_anti_affinity))
    return pod.namespace, labels, pod.is_terminating, terms


def _pod_group(pod: Pod, key: tuple[Any, ...]) -> PodGroup:
    affinity = pod.manifest.spec.affinity if key[3] is not None else None
    return PodGroup(pod.namespace, pod.labels, key[2], affinity)


class PodGroups:
    """How many pods of each group are on each node, with a log of the changes.

    Groups without pods are forgotten once they outnumber the rest.
    """

    _LOG_SIZE: Final = 65_536

    def __init__(self) -> None:
        self.groups: dict[int, PodGroup] = {}
        self.slots_of: dict[int, dict[int, int]] = {}  # group -> slot -> pods
        self.log: list[tuple[int, int, int]] = []  # (group, slot, pods more or less)
        self.log_start = 0
        self._ids: dict[tuple[Any, ...], int] = {}
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._next_id = 0
        self._pods: list[dict[str, tuple[Pod, int]]] = []  # by slot: uid -> (pod, group)
        self._snapshot: Snapshot | None = None
        self._generation = -1

    @property
    def position(self) -> int:
        """The end of the log; see `changes_since`."""
        return self.log_start + len(self.log)

    def changes_since(self, position: int) -> list[tuple[int, int, int]] | None:
        """The (group, slot, difference) after *position*; None if the log is too short."""
        if position < self.log_start:
            return None
        return self.log[position - self.log_start :]

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring the groups up to *snapshot*."""
        if snapshot is self._snapshot and snapshot.generation == self._generation:
            return
        changed: Sequence[int] | None = None
        if snapshot is self._snapshot:
            changed = snapshot.changed_since(self._generation)
        elif self._snapshot is not None:
            self._restart()
        while len(self._pods) < len(snapshot.infos):
            self._pods.append({})
        for slot in range(len(snapshot.infos)) if changed is None else changed:
            self._refresh_slot(slot, snapshot)
        self._snapshot, self._generation = snapshot, snapshot.generation
        self._trim()

    def _refresh_slot(self, slot: int, snapshot: Snapshot) -> None:
        info = snapshot.infos[slot]
        before = self._pods[slot]
        pods = info.pods if info is not None and info.node is not None else {}
        after: dict[str, tuple[Pod, int]] = {}
        for uid, pod in pods.items():
            known = before.get(uid)
            if known is not None and known[0] is pod:
                after[uid] = known
                continue
            group = self._group_of(pod)
            after[uid] = (pod, group)
            if known is None or known[1] != group:
                self._add(group, slot, 1)
                if known is not None:
                    self._add(known[1], slot, -1)
        for uid in before.keys() - after.keys():
            self._add(before[uid][1], slot, -1)
        self._pods[slot] = after

    def group_of(self, slot: int, pod: Pod) -> tuple[int | None, PodGroup]:
        """The group of a pod that is on the node of *slot*, or might be; None: a new group."""
        known = self._pods[slot].get(pod.uid) if slot < len(self._pods) else None
        if known is not None and known[0] is pod:
            return known[1], self.groups[known[1]]
        key = _group_key(pod)
        group = self._ids.get(key)
        return group, _pod_group(pod, key) if group is None else self.groups[group]

    def _group_of(self, pod: Pod) -> int:
        key = _group_key(pod)
        group = self._ids.get(key)
        if group is None:
            group = self._ids[key] = self._next_id
            self._next_id += 1
            self._keys[group] = key
            self.groups[group] = _pod_group(pod, key)
            self.slots_of[group] = {}
        return group

    def _add(self, group: int, slot: int, difference: int) -> None:
        slots = self.slots_of[group]
        count = slots.get(slot, 0) + difference
        if count:
            slots[slot] = count
        else:
            del slots[slot]
        self.log.append((group, slot, difference))

    def _restart(self) -> None:
        """Another snapshot: nothing that was counted holds, and every reader must start over."""
        self._pods.clear()
        for slots in self.slots_of.values():
            slots.clear()
        self.log_start = self.position + 1
        self.log.clear()

    def _trim(self) -> None:
        if len(self.log) > 2 * self._LOG_SIZE:
            dropped = len(self.log) - self._LOG_SIZE
            del self.log[:dropped]
            self.log_start += dropped
        empty = len(self.groups)
        if empty > 4096 and self._next_id % 1024 == 0:
            gone = [group for group, slots in self.slots_of.items() if not slots]
            if 2 * len(gone) > empty:
                # A reader may still meet a forgotten group in the log: start the log over.
                for group in gone:
                    del self.slots_of[group], self.groups[group]
                    del self._ids[self._keys.pop(group)]
                self.log_start = self.position + 1
                self.log.clear()


# --- what is counted -----------------------------------------------------------------------


def _selector(plain: Mapping[str, Any] | None) -> LabelSelector | None:
    if plain is None:
        return None
    return LabelSelector(
        dict(plain.get("labels") or {}),
        [
            LabelSelectorRequirement(r["key"], r["operator"], list(r.get("values") or []))
            for r in plain.get("expressions") or []
        ],
    )


def _selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    try:
        return matches_label_selector(selector, labels)
    except SelectorError:
        return False  # what cannot be read selects nothing; the pod's own are checked by its policy


def _namespace_labels(objects: ObjectStore, name: str) -> Mapping[str, str]:
    namespace = objects.get("namespaces", name)
    return {} if namespace is None else namespace.metadata.labels


@dataclass(frozen=True, slots=True)
class _PodTerm:
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(self, group: PodGroup, objects: ObjectStore) -> bool:
        if group.namespace not in self.namespaces and not (
            self.namespace_selector is not None
            and _selects(self.namespace_selector, _namespace_labels(objects, group.namespace))
        ):
            return False
        return _selects(self.selector, group.labels)


Contribution = tuple[str | None, int]  # topology key, weight
Matcher = Callable[[PodGroup, ObjectStore], Sequence[Contribution]]


def _pods_matcher(part: Mapping[str, Any]) -> Matcher:
    """Pods that match all terms, each counting *weight* in one topology."""
    terms = [
        _PodTerm(
            _selector(term["selector"]),
            frozenset(term["namespaces"]),
            _selector(term["namespace_selector"]),
        )
        for term in part["terms"]
    ]
    contribution = [(part["topology"], int(part["weight"]))]
    counts_terminating = bool(part["terminating"])

    def match(group: PodGroup, objects: ObjectStore) -> Sequence[Contribution]:
        if group.is_terminating and not counts_terminating:
            return ()
        if not terms or not all(term.matches(group, objects) for term in terms):
            return ()
        return contribution

    return match


def _existing_terms(kind: str, affinity: Affinity) -> Sequence[tuple[PodAffinityTerm, int]]:
    rules = affinity.pod_anti_affinity if "anti" in kind else affinity.pod_affinity
    if rules is None:
        return ()
    if kind.startswith("required"):
        return [(term, 1) for term in rules.required]
    return [(p.pod_affinity_term, p.weight) for p in rules.preferred]


def _terms_matcher(part: Mapping[str, Any]) -> Matcher:
    """Terms of placed pods that match the incoming pod, each in the topology of the term."""
    kind, weight = part["of"], int(part["weight"])
    namespace, labels = part["pod"]["namespace"], part["pod"]["labels"]

    def match(group: PodGroup, objects: ObjectStore) -> Sequence[Contribution]:
        if group.affinity is None:
            return ()
        result: list[Contribution] = []
        for term, own_weight in _existing_terms(kind, group.affinity):
            namespaces = frozenset(term.namespaces)
            if not term.namespaces and term.namespace_selector is None:
                namespaces = frozenset((group.namespace,))
            is_there = namespace in namespaces or (
                term.namespace_selector is not None
                and _selects(term.namespace_selector, _namespace_labels(objects, namespace))
            )
            if is_there and _selects(term.label_selector, labels):
                result.append((term.topology_key, weight * own_weight))
        return result

    return match


# --- counting ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Topology:
    """One counter's counts in one topology: by slot, and summed by domain."""

    column: TopologyColumn
    by_slot: NDArray[np.int64]  # weighted
    entries: NDArray[np.int64]  # how many were counted, weights aside
    sums: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    version: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, slots=True)
class CounterColumn:
    """A counter's answer for every node, and over all domains.

    `here[slot]` is the count of the node's domain, OUTSIDE without a domain; `inside[slot]` says if
    the node has the labels that make it count. `min`, `max` and
    `domains` are over the domains that have a node that counts; `min` is None without any.
    `total` is over all domains. Counts above a part's `up_to` are given as that.
    """

    here: NDArray[np.int64]
    min: int | None
    max: int | None
    total: int
    domains: int
    is_empty: bool
    domain_ids: NDArray[np.int32] | None
    inside: NDArray[np.bool_]
    #: By domain, for a counter over one topology: the counts, and which domains are counted.
    sums: NDArray[np.int64] | None = None
    registered: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class CounterRow:
    """A counter's answer for one node; the fields are those of `CounterColumn`."""

    here: int
    min: int | None
    max: int | None
    total: int
    domains: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class PodChanges:
    """Pods that come to a node or leave it, without really doing so."""

    slot: int
    added: Sequence[Pod] = ()
    removed: Sequence[Pod] = ()


class _Counter:
    """One counter: the sum of its parts over every node that counts."""

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        self._matchers = [
            _pods_matcher(part) if part["kind"] == "pods" else _terms_matcher(part)
            for part in parts
        ]
        self.keys: tuple[str, ...] = tuple(dict.fromkeys(k for p in parts for k in p["keys"]))
        first = parts[0] if parts else None
        # The topology whose domains `here`, `min` and `domains` speak of; None for a sum over
        # several, where a node outside one topology simply gets nothing from it.
        self.is_single = len(parts) == 1 and first is not None and first["kind"] == "pods"
        self._up_to: int | None = None if first is None else first.get("up_to")
        self.topology: str | None = first["topology"] if self.is_single and first else None
        self._matched: dict[int, Sequence[Contribution]] = {}
        self._topologies: dict[str | None, _Topology] = {}
        self._position = -1
        self._namespaces = -1
        self.slots = 0
        self._empty: tuple[int, bool] = (-1, True)  # position of the groups, answer
        self._eligible: NDArray[np.bool_] | None = None
        self._eligible_version = 0
        self._column_of: Callable[[str | None], TopologyColumn] = TopologyColumn

    def refresh(
        self,
        groups: PodGroups,
        objects: ObjectStore,
        slots: int,
        column_of: Callable[[str | None], TopologyColumn],
    ) -> None:
        """Count what changed since the last time."""
        self._column_of = column_of
        generation = objects.generation("namespaces")
        changes = None
        if slots == self.slots and generation == self._namespaces and self._position >= 0:
            changes = groups.changes_since(self._position)
        if changes is None:
            self._matched.clear()
            self._topologies.clear()
            changes = [
                (group, slot, count)
                for group, by_slot in groups.slots_of.items()
                for slot, count in by_slot.items()
            ]
        self.slots, self._namespaces, self._position = slots, generation, groups.position
        for group, slot, difference in changes:
            contributions = self._matched.get(group)
            if contributions is None:
                known = groups.groups[group]
                contributions = self._matched[group] = self._match(known, objects)
            for key, weight in contributions:
                topology = self._topologies.get(key)
                if topology is None:
                    topology = self._topologies[key] = _Topology(
                        column_of(key), np.zeros(slots, np.int64), np.zeros(slots, np.int64)
                    )
                amount = weight * difference
                topology.by_slot[slot] += amount
                topology.entries[slot] += difference
                if topology.version == (topology.column.version, self._eligible_version) and (
                    self._eligible is None or self._eligible[slot]
                ):
                    domain = topology.column.ids[slot]
                    if domain >= 0:
                        topology.sums[domain] += amount

    @property
    def is_empty(self) -> bool:
        """True if nothing is counted in any domain, whichever nodes count."""
        if not self._topologies:
            return True
        versions = sum(t.column.version for t in self._topologies.values())
        known = (self._position + versions, self._empty[1])
        if self._empty[0] != known[0]:
            self._empty = (known[0], self._matches() == 0)
        return self._empty[1]

    def answer(
        self,
        present: NDArray[np.bool_],
        eligible: NDArray[np.bool_] | None,
        inside: NDArray[np.bool_],
        column_of: Callable[[str | None], TopologyColumn],
    ) -> CounterColumn:
        """The column for nodes of which *eligible* ones count (None: all)."""
        if eligible is not None or self._eligible is not None:
            same = (
                eligible is not None
                and self._eligible is not None
                and np.array_equal(eligible, self._eligible)
            )
            if not same:
                self._eligible = None if eligible is None else eligible.copy()
                self._eligible_version += 1
        if self.is_single:
            column = column_of(self.topology)
            topology = self._topologies.get(self.topology)
            ids = column.ids[: self.slots]
            counting = ids >= 0 if eligible is None else (ids >= 0) & eligible
            registered = np.zeros(max(column.size, 1), np.bool_)
            registered[ids[counting]] = True
            sums = (
                np.zeros(max(column.size, 1), np.int64)
                if topology is None
                else self._sums(topology, eligible)
            )
            here = np.full(self.slots, OUTSIDE, np.int64)
            labelled = inside & (ids >= 0)
            if self._up_to is not None:
                sums = np.minimum(sums, self._up_to)
            # A node that lacks another of the keys does not count, but it is in its domain.
            in_domain = labelled if self.topology is None else present & (ids >= 0)
            here[in_domain] = sums[ids[in_domain]]
            known = sums[: len(registered)][registered[: len(sums)]]
            return CounterColumn(
                here,
                int(known.min()) if len(known) else None,
                int(known.max()) if len(known) else None,
                int(known.sum()),
                len(known),
                self.is_empty,
                ids,
                labelled,
                sums,
                registered,
            )
        here = np.zeros(self.slots, np.int64)
        for topology in self._topologies.values():
            sums = self._sums(topology, eligible)
            ids = topology.column.ids[: self.slots]
            labelled = ids >= 0
            here[labelled] += sums[ids[labelled]]
        if self._up_to is not None:
            np.minimum(here, self._up_to, out=here)
        here[~inside] = OUTSIDE
        shown = here[present & inside]
        return CounterColumn(
            here,
            int(shown.min()) if len(shown) else None,
            int(shown.max()) if len(shown) else None,
            sum(int(self._sums(t, eligible).sum()) for t in self._topologies.values()),
            0,
            self.is_empty,
            None,
            inside,
        )

    def _match(self, group: PodGroup, objects: ObjectStore) -> Sequence[Contribution]:
        return [c for match in self._matchers for c in match(group, objects)]

    def row(
        self,
        column: CounterColumn,
        changes: PodChanges,
        groups: PodGroups,
        objects: ObjectStore,
        counts_here: bool,
    ) -> CounterRow:
        """The node's entry of *column*, had the pods of *changes* come and gone.

        *counts_here*: the pods of that node count.
        """
        slot = changes.slot
        more: dict[str | None, tuple[int, int]] = {}
        for pods, sign in ((changes.added, 1), (changes.removed, -1)):
            for pod in pods:
                number, group = groups.group_of(slot, pod)
                contributions = None if number is None else self._matched.get(number)
                if contributions is None:
                    contributions = self._match(group, objects)
                    if number is not None:
                        self._matched[number] = contributions
                for key, weight in contributions:
                    amount, entries = more.get(key, (0, 0))
                    more[key] = amount + sign * weight, entries + sign
        unchanged = CounterRow(
            int(column.here[slot]),
            column.min,
            column.max,
            column.total,
            column.domains,
            column.is_empty,
        )
        if not any(amount or entries for amount, entries in more.values()):
            return unchanged
        if self.is_single:
            return self._row_of_one(column, unchanged, slot, more, counts_here)
        return self._row_of_sum(unchanged, slot, more, counts_here)

    def _row_of_one(
        self,
        column: CounterColumn,
        unchanged: CounterRow,
        slot: int,
        more: Mapping[str | None, tuple[int, int]],
        counts_here: bool,
    ) -> CounterRow:
        assert column.sums is not None
        assert column.registered is not None
        assert column.domain_ids is not None
        domain = int(column.domain_ids[slot])
        amount, entries = more.get(self.topology, (0, 0))
        if domain < 0:
            return unchanged
        is_empty = self._matches() + entries == 0
        here, known = unchanged.here, None
        if counts_here and amount:
            topology = self._topologies.get(self.topology)
            count = (0 if topology is None else int(topology.sums[domain])) + amount
            if self._up_to is not None:
                count = min(count, self._up_to)
            sums = column.sums.copy()
            sums[domain] = count
            known = sums[: len(column.registered)][column.registered[: len(sums)]]
            here = OUTSIDE if here == OUTSIDE else count
        if known is None or not len(known):
            return CounterRow(
                here,
                unchanged.min,
                unchanged.max,
                unchanged.total,
                unchanged.domains,
                is_empty,
            )
        return CounterRow(
            here, int(known.min()), int(known.max()), int(known.sum()), len(known), is_empty
        )

    def _row_of_sum(
        self,
        unchanged: CounterRow,
        slot: int,
        more: Mapping[str | None, tuple[int, int]],
        counts_here: bool,
    ) -> CounterRow:
        """The same for a counter over several topologies; `min` and `max` stay as they were."""
        entries_more = 0
        here_more = 0
        for key, (amount, entries) in more.items():
            topology = self._topologies.get(key)
            column = self._column_of(key) if topology is None else topology.column
            if column.ids[slot] >= 0:
                entries_more += entries
                here_more += amount if counts_here else 0
        here = unchanged.here
        if here != OUTSIDE and here_more:
            if self._up_to is not None:  # the column shows the count cut off
                here = sum(
                    int(t.sums[t.column.ids[slot]])
                    for t in self._topologies.values()
                    if t.column.ids[slot] >= 0
                )
            here += here_more
            if self._up_to is not None:
                here = min(here, self._up_to)
        return CounterRow(
            here,
            unchanged.min,
            unchanged.max,
            unchanged.total + here_more,
            unchanged.domains,
            self._matches() + entries_more == 0,
        )

    def _matches(self) -> int:
        """How many (pod, term) pairs are counted in some domain."""
        return sum(
            int(t.entries[t.column.ids[: self.slots] >= 0].sum()) for t in self._topologies.values()
        )

    def _sums(self, topology: _Topology, eligible: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        version = (topology.column.version, self._eligible_version)
        if topology.version != version or len(topology.sums) < topology.column.size:
            ids = topology.column.ids[: self.slots]
            counting = ids >= 0 if eligible is None else (ids >= 0) & eligible
            topology.sums = np.zeros(max(topology.column.size, 1), np.int64)
            np.add.at(topology.sums, ids[counting], topology.by_slot[counting])
            topology.version = version
        return topology.sums


class Counters:
    """The counters in use over one snapshot, made on first use and bounded in number.

    A counter is a list of parts (plain data, as `count_pods` and `count_terms` make them) that are
    summed; counters are told apart by the JSON text that the caller gives for them.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._groups = PodGroups()
        self._columns: dict[str | None, TopologyColumn] = {}
        self._counters: OrderedDict[bytes, _Counter] = OrderedDict()
        self._snapshot: Snapshot | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Bring the indexes up to *snapshot*; needed before `column`."""
        self._groups.refresh(snapshot)
        for column in self._columns.values():
            column.refresh(snapshot)
        self._snapshot = snapshot

    def is_empty(self, key: bytes, parts: Sequence[Mapping[str, Any]]) -> bool:
        """True if the counter of *parts* counts nothing anywhere. Cheaper than `column`."""
        return self._counter(key, parts).is_empty

    def column(
        self,
        key: bytes,
        parts: Sequence[Mapping[str, Any]],
        present: NDArray[np.bool_],
        eligible: NDArray[np.bool_] | None = None,
    ) -> CounterColumn:
        """The counter of *parts* for every slot.

        *key* identifies the parts and whatever else they depend on. *present* marks the slots with
        a node, *eligible* the nodes whose pods count (None: every node).
        """
        counter = self._counter(key, parts)
        slots = counter.slots
        inside = present[:slots]
        for label in counter.keys:
            inside = inside & (self._topology(label).ids[:slots] >= 0)
        if eligible is not None:
            eligible = eligible[:slots]
        if counter.keys:
            eligible = inside if eligible is None else eligible & inside
        return counter.answer(present[:slots], eligible, inside, self._topology)

    def row(
        self,
        key: bytes,
        parts: Sequence[Mapping[str, Any]],
        column: CounterColumn,
        changes: PodChanges,
        eligible: NDArray[np.bool_] | None = None,
    ) -> CounterRow:
        """One node's entry of *column*, had the pods of *changes* come and gone.

        *column* is what `column` answered for the same arguments on the same snapshot.
        """
        counter = self._counter(key, parts)
        assert self._snapshot is not None
        slot = changes.slot
        counts_here = eligible is None or bool(eligible[slot])
        if counter.keys:
            counts_here = counts_here and bool(column.inside[slot])
        return counter.row(column, changes, self._groups, self._snapshot.objects, counts_here)

    def _counter(self, key: bytes, parts: Sequence[Mapping[str, Any]]) -> _Counter:
        """The counter of *parts*, counted up to the snapshot."""
        snapshot = self._snapshot
        if snapshot is None:
            raise RuntimeError("counters were asked before their first refresh")
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = _Counter(parts)
            if len(self._counters) > self._capacity:
                self._counters.popitem(last=False)
        else:
            self._counters.move_to_end(key)
        counter.refresh(self._groups, snapshot.objects, len(snapshot.infos), self._topology)
        return counter

    def _topology(self, key: str | None) -> TopologyColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = TopologyColumn(key)
            assert self._snapshot is not None
            column.refresh(self._snapshot)
        return column
