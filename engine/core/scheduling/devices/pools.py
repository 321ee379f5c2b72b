"""Pools of devices as a node reaches them, made of the slices that drivers publish.

Owns which slices count (newest generation, reachable from the node), whether a pool is whole and
sound, and the order in which devices are tried. What is taken is `allocated.py`.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from engine.core.framework.behaviors import Behaviors
from engine.core.model.devices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaintRule,
    ResourceSlice,
)
from engine.core.model.node import Node
from engine.core.model.objects import NodeSelector
from engine.core.model.quantity import QuantityError
from engine.core.model.selectors import matches_node_selector, node_selector_problem
from engine.core.scheduling.devices.capacity import Capacity, Nanos, capacities, counters
from engine.core.scheduling.devices.names import by_full_name
from engine.core.scheduling.devices.selectors import SelectorError
from engine.core.scheduling.devices.taint_rules import rules_for, tainted
from engine.lib.change_log import ChangeLog

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
PoolId = tuple[str, str]
"""Driver, pool."""

K = TypeVar("K")

# Changed nodes that are remembered: a driver that is updated publishes the slices of all again.
_LOG_SIZE: Final = 4096


class PoolDevice:
    """A device of a slice, with its amounts as numbers and what selectors have said of it.

    `behaves` is what differs between minor versions, as it was when the device was made ready.
    """

    __slots__ = (
        "allows_many",
        "amounts",
        "answers",
        "attributes",
        "behaves",
        "capacity",
        "consumes",
        "driver",
        "groups",
        "id",
        "record",
        "slice",
        "variables",
    )

    def __init__(self, record: Device, of: "PoolSlice") -> None:
        self.record = record
        self.slice = of
        self.behaves: Behaviors = of.behaves
        self.driver: str = of.record.spec.driver
        self.id: DeviceId = (self.driver, of.record.spec.pool.name, record.name)
        self.attributes: Mapping[str, DeviceAttribute] = record.attributes
        self.capacity: Mapping[str, DeviceCapacity] = record.capacity
        self.allows_many = record.allow_multiple_allocations
        self.amounts: dict[str, Capacity] = capacities(
            record.capacity, are_fractional=self.behaves.fractional_capacity_ranges
        )
        if self.behaves.names_in_full:
            self.amounts = by_full_name(self.amounts, self.driver)
        self.consumes: list[tuple[str, Nanos]] = [
            (consumed.counter_set, counters(consumed.counters))
            for consumed in record.consumes_counters
        ]
        #: As `consumes`, the compatibility groups; empty if groups do not count.
        self.groups: list[frozenset[str]] = []
        if self.behaves.compares_groups:
            self.groups = [frozenset(c.compatibility_groups) for c in record.consumes_counters]
        self.answers: dict[str, bool | SelectorError] = {}
        self.variables: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """`driver/pool/device`."""
        return "/".join(self.id)

    def published_name(self, name: str) -> str:
        """How the driver writes the name of a capacity of `amounts`, which may leave it out."""
        return name if name in self.capacity else name.partition("/")[2]


class PoolSlice:
    """A slice with its devices made ready. `problem` says why it cannot be used, if so.

    One that `is_ignored` has devices with compatibility groups, while the feature gate is off:
    which of them may be in use at the same time is not known then, so its pool counts as
    incomplete. One that `is_for_unknown_nodes` has a node selector that makes no sense; so may one
    of a newer Kubernetes.
    """

    __slots__ = (
        "_look",
        "_published",
        "_rules",
        "behaves",
        "counter_sets",
        "devices",
        "is_for_unknown_nodes",
        "is_ignored",
        "name",
        "problem",
        "record",
    )

    def __init__(
        self,
        published: ResourceSlice,
        rules: tuple[DeviceTaintRule, ...] = (),
        *,
        behaves: Behaviors,
    ) -> None:
        self._published, self._rules, self.behaves = published, rules, behaves
        self._look: bytes | None = None
        self.record = record = tainted(published, rules)
        self.name = record.metadata.name
        self.problem: str | None = None
        self.is_for_unknown_nodes = False
        self.devices: list[PoolDevice] = []
        self.counter_sets: list[tuple[str, Nanos]] = []
        unread = [(f"slice {self.name}", record.metadata.unread)] if record.metadata.unread else []
        unread += [
            (f"taint rule {rule.metadata.name}", rule.metadata.unread)
            for rule in rules
            if rule.metadata.unread
        ]
        self.is_ignored = not behaves.compares_groups and any(
            consumed.compatibility_groups
            for device in record.spec.devices
            for consumed in device.consumes_counters
        )
        if unread:
            said = [f"{subject} cannot be read: {'; '.join(fields)}" for subject, fields in unread]
            self.problem = "; ".join(said)
            self.is_for_unknown_nodes = any("nodeSelector" in one for one in record.metadata.unread)
            return
        for selector in _node_selectors(record):
            if (problem := node_selector_problem(selector)) is not None:
                self.problem = f"slice {self.name}: nodeSelector: {problem}"
                self.is_for_unknown_nodes = True
                return
        try:
            self.devices = [PoolDevice(device, self) for device in record.spec.devices]
            self.counter_sets = [
                (s.name, counters(s.counters)) for s in record.spec.shared_counters
            ]
        except QuantityError as error:
            self.devices = []
            self.problem = f"slice {self.name}: {error}"

    @property
    def pool_id(self) -> PoolId:
        """The pool that it is of."""
        return self.record.spec.driver, self.record.spec.pool.name

    @property
    def look(self) -> bytes:
        """Equal for slices whose devices are the same but for the names of the devices and pool."""
        if self._look is None:
            spec = self.record.spec
            devices = [msgspec.structs.replace(device, name="") for device in spec.devices]
            said = msgspec.json.encode((spec.driver, devices, spec.shared_counters))
            self._look = hashlib.blake2b(said, digest_size=16).digest()
        return self._look

    def is_made_of(
        self, published: ResourceSlice, rules: tuple[DeviceTaintRule, ...], behaves: Behaviors
    ) -> bool:
        """Whether it is what was *published*, with the taints of *rules*, as *behaves* says."""
        return self._published is published and self._rules == rules and self.behaves is behaves


def _name(of: PoolSlice) -> str:
    return of.name


def _node_selectors(record: ResourceSlice) -> Iterator[NodeSelector]:
    if record.spec.node_selector is not None:
        yield record.spec.node_selector
    if record.spec.per_device_node_selection:
        for device in record.spec.devices:
            if device.node_selector is not None:
                yield device.node_selector


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as one node reaches it.

    Attributes:
        id: Driver and name.
        is_incomplete: Some slices are missing: the driver is publishing it right now.
        problem: Why it is invalid; None if it is not.
        slices: Slices with devices for the node, by name.
        others: Slices of the pool for other nodes; their devices consume counters too.
        counter_sets: Shared counters by set, of all slices of the pool.
        has_choosy_devices: Devices say themselves for which nodes they are.
    """

    id: PoolId
    is_incomplete: bool = False
    problem: str | None = None
    slices: tuple[PoolSlice, ...] = ()
    others: tuple[PoolSlice, ...] = ()
    counter_sets: Mapping[str, Nanos] | None = None
    has_choosy_devices: bool = False

    @property
    def text(self) -> str:
        """`driver/pool`."""
        return f"{self.id[0]}/{self.id[1]}"


class SliceIndex:
    """All slices of a cluster, by node and by pool; pools by node are made when asked for.

    It stays as it is: a decision may go on with it while slices change. One made of an *earlier*
    one costs what has changed, besides a look at each slice.

    Args:
        records: The slices as drivers publish them.
        rules: What adds taints to their devices.
        earlier: The last index that was made.
        behaves: What differs between minor versions of Kubernetes.

    Attributes:
        changes: The nodes whose pools differed from one index to the next; of all of them.
        position: Where `changes` ended when this one was made.
    """

    def __init__(
        self,
        records: Iterable[ResourceSlice],
        rules: Sequence[DeviceTaintRule] = (),
        earlier: "SliceIndex | None" = None,
        *,
        behaves: Behaviors,
    ) -> None:
        self.changes: ChangeLog[str] = ChangeLog(_LOG_SIZE)
        self._slices: dict[str, PoolSlice] = {}
        self._by_node: dict[str, list[PoolSlice]] = {}
        self._shared: list[PoolSlice] = []
        self._by_pool: dict[PoolId, list[PoolSlice]] = {}
        if earlier is not None:
            self.changes, self._shared = earlier.changes, earlier._shared
            self._slices, self._by_node = earlier._slices.copy(), earlier._by_node.copy()
            self._by_pool = earlier._by_pool.copy()
        gone = self._slices.copy()
        changed: set[PoolId] = set()
        for record in records:
            known = gone.pop(record.metadata.name, None)
            of_slice = rules_for(record, rules) if rules else ()
            if known is None or not known.is_made_of(record, of_slice, behaves):
                changed |= self._replace(known, PoolSlice(record, of_slice, behaves=behaves))
        for known in gone.values():
            changed |= self._replace(known, None)
        self._pools: dict[str, tuple[dict[str, str], tuple[Pool, ...]]] = {}
        # One answer for all nodes of the same pools: most nodes have no devices of their own.
        self._canonical: dict[tuple[int, ...], tuple[Pool, ...]] = {}
        if earlier is not None:
            self._take_over(earlier, changed)
        self.position: Final = self.changes.end

    def _replace(self, old: PoolSlice | None, new: PoolSlice | None) -> set[PoolId]:
        """Have *new* in the place of *old*; returns the pools that have changed."""
        if old is not None:
            del self._slices[old.name]
            node_name = old.record.spec.node_name
            if not node_name:
                self._shared = [one for one in self._shared if one is not old]
            else:
                _take_out(self._by_node, node_name, old)
            _take_out(self._by_pool, old.pool_id, old)
        if new is not None:
            self._slices[new.name] = new
            node_name = new.record.spec.node_name
            if not node_name:
                self._shared = [*self._shared, new]
            else:
                self._by_node[node_name] = [*self._by_node.get(node_name, ()), new]
            self._by_pool[new.pool_id] = [*self._by_pool.get(new.pool_id, ()), new]
        return {one.pool_id for one in (old, new) if one is not None}

    def _take_over(self, earlier: "SliceIndex", changed: Collection[PoolId]) -> None:
        """Go on with the pools of nodes that none of the *changed* ones can be for."""
        names: set[str] = set()
        for pool in changed:
            before, after = earlier.nodes_of(pool), self.nodes_of(pool)
            if before is None or after is None:
                self.changes.restart()
                return
            names.update(before, after)
        self.changes.extend(names)
        self._pools = earlier._pools.copy()
        for name in names:
            self._pools.pop(name, None)
        stale = {id(one) for pool in changed for one in earlier._by_pool.get(pool, ())}
        self._canonical = {
            key: pools for key, pools in earlier._canonical.items() if stale.isdisjoint(key)
        }

    def pools(self, node: Node) -> tuple[Pool, ...]:
        """The pools that *node* reaches, in the order in which they are tried.

        Nodes that reach the same slices get the same tuple.
        """
        known = self._pools.get(node.name)
        if known is not None and known[0] == node.labels:
            return known[1]
        relevant = [s for s in self._by_node.get(node.name, ()) if _is_reachable(s, node)]
        relevant += [s for s in self._shared if _is_reachable(s, node)]
        relevant.sort(key=_name)  # not by which was published last
        key = tuple(id(s) for s in relevant)
        pools = self._canonical.get(key)
        if pools is None:
            pools = self._canonical[key] = tuple(self._gather(relevant))
        self._pools[node.name] = (node.labels, pools)
        return pools

    def nodes_of(self, pool: PoolId) -> list[str] | None:
        """The names of the nodes that *pool* is for; None if it is not for single nodes."""
        names = [made.record.spec.node_name for made in self._by_pool.get(pool, ())]
        return [name for name in names if name] if all(names) else None

    def _gather(self, relevant: list[PoolSlice]) -> list[Pool]:
        newest: dict[PoolId, list[PoolSlice]] = {}
        for each in relevant:
            spec = each.record.spec
            pool_id = each.pool_id
            slices = newest.get(pool_id)
            generation = slices[0].record.spec.pool.generation if slices else -1
            if slices is None or spec.pool.generation > generation:
                newest[pool_id] = [each]
            elif spec.pool.generation == generation:
                slices.append(each)
        plain: list[Pool] = []
        conditional: list[Pool] = []
        for pool_id, slices in newest.items():
            pool = self._pool(pool_id, slices)
            if pool is None:
                continue
            waits = any(d.record.binding_conditions for s in pool.slices for d in s.devices)
            (conditional if waits else plain).append(pool)
        # Devices that are ready at once go before those that must be prepared first.
        plain.sort(key=lambda pool: pool.id)
        conditional.sort(key=lambda pool: pool.id)
        return plain + conditional

    def _pool(self, pool_id: PoolId, slices: list[PoolSlice]) -> Pool | None:
        """The pool of *slices*; None if a newer generation is being published elsewhere."""
        wanted = slices[0].record.spec.pool.resource_slice_count
        generation = slices[0].record.spec.pool.generation
        whole: list[PoolSlice] = []
        if len(slices) != wanted:
            for each in sorted(self._by_pool[pool_id], key=_name):
                other = each.record.spec.pool.generation
                if other > generation:
                    return None
                if other == generation and not each.is_ignored:
                    whole.append(each)
            if len(whole) != wanted:
                return Pool(pool_id, is_incomplete=True)
        return _sound_pool(pool_id, slices, whole)


def _take_out(index: dict[K, list[PoolSlice]], key: K, old: PoolSlice) -> None:
    """Leave *old* out of the slices of *key*; the list itself may be another index's, too."""
    others = [one for one in index[key] if one is not old]
    if others:
        index[key] = others
    else:
        del index[key]


def reaches(
    node: Node, node_name: str | None, all_nodes: bool, selector: NodeSelector | None
) -> bool:
    """Whether what names these nodes is for *node*. Naming none is for no node."""
    if node_name:
        return node.name == node_name
    if all_nodes:
        return True
    return selector is not None and matches_node_selector(selector, node.labels, node.name)


def device_reaches(node: Node, device: PoolDevice) -> bool:
    """Whether *device* itself is for *node*, where its slice lets devices choose."""
    if not device.slice.record.spec.per_device_node_selection:
        return True
    record = device.record
    return reaches(node, record.node_name, record.all_nodes, record.node_selector)


def _is_reachable(made: PoolSlice, node: Node) -> bool:
    if made.is_ignored:
        return False
    spec = made.record.spec
    if made.is_for_unknown_nodes:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return reaches(node, spec.node_name, spec.all_nodes, spec.node_selector)
    if spec.per_device_node_selection:
        return any(reaches(node, d.node_name, d.all_nodes, d.node_selector) for d in spec.devices)
    return False


def _sound_pool(pool_id: PoolId, slices: list[PoolSlice], whole: list[PoolSlice]) -> Pool:
    """The pool, checked: an unsound one has no devices but a problem.

    *slices* are those for the node, *whole* all of the pool, or none if those for the node are all.
    """
    here = {each.name for each in slices}
    everything = [*slices, *(each for each in whole if each.name not in here)]
    names: set[str] = set()
    counter_sets: dict[str, Nanos] = {}
    for each in everything:
        if each.problem is not None:
            return Pool(pool_id, problem=each.problem)
    with_devices = [each for each in slices if not each.record.spec.shared_counters]
    for each in with_devices:
        for device in each.devices:
            if device.record.name in names:
                return Pool(pool_id, problem=f"duplicate device name {device.record.name}")
            names.add(device.record.name)
    for each in everything:
        for name, amounts in each.counter_sets:
            if name in counter_sets:
                return Pool(pool_id, problem=f"duplicate counter set name {name}")
            counter_sets[name] = amounts
    others = [
        each
        for each in everything
        if each.name not in here and not each.record.spec.shared_counters
    ]
    for each in (*with_devices, *others):
        problem = _counter_problem(each, counter_sets)
        if problem is not None:
            return Pool(pool_id, problem=problem)
    return Pool(
        pool_id,
        slices=tuple(with_devices),
        others=tuple(others),
        counter_sets=counter_sets,
        has_choosy_devices=any(s.record.spec.per_device_node_selection for s in with_devices),
    )


def _counter_problem(of: PoolSlice, counter_sets: Mapping[str, Nanos]) -> str | None:
    for device in of.devices:
        for name, consumed in device.consumes:
            if name not in counter_sets:
                return f"counter set {name} not found"
            for counter in consumed:
                if counter not in counter_sets[name]:
                    return f"counter {counter} not found in counter set {name}"
    return None
