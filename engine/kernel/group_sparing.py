"""Sparing: which pods may stay after all when a group has its nodes without them.

Owns the order in which they come back, and which members of the group each of them may be in the
way of. Works on a trial of the cache.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.caching.cache import Cache
from engine.caching.pod_kinds import KindKey, kind_key
from engine.model.pod import Pod
from engine.queueing.nominator import Nominator
from engine.scheduling.disruption_budgets import Budgets
from engine.scheduling.placement import Placement
from engine.scheduling.scheduling_cycle import Scheduler


@dataclass(slots=True)
class Unit:
    """Pods that go or stay together: one, or a group that is disrupted as a whole.

    `violations`: the budgets of so many of them do not allow it.
    """

    pods: tuple[Pod, ...]
    priority: int
    is_group: bool = False
    violations: int = 0

    @property
    def order(self) -> tuple[int, int, int, float]:
        """The most important first."""
        starts = [pod.start_time for pod in self.pods if pod.start_time is not None]
        return (-self.priority, -self.is_group, -len(self.pods), min(starts, default=float("inf")))


class _Seen(NamedTuple):
    """What members are decided by besides their own nodes; see `Outlook`."""

    outlooks: Sequence[object]
    topologies: Collection[str]


class Sparing:
    """Spares pods that are in the way of no member of a group.

    Args:
        placements: The members on their nodes, in the order in which they were placed.
        cache: Without the members and the units.
        nominator: Knows where pods are nominated.
        scheduler: Asks the filters.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        *,
        cache: Cache,
        nominator: Nominator,
        scheduler: Scheduler,
    ) -> None:
        self._placements = placements
        self._cache = cache
        self._nominator = nominator
        self._scheduler = scheduler
        #: Of the members that filters cannot distinguish, one.
        self._members: Sequence[Pod] = ()
        #: What each of `_members` is decided by besides its own node; None: not known.
        self._outlooks: Sequence[object] | None = None
        #: Any pod may matter to any member.
        self._is_wide = False
        #: By kind, the topologies in whose domains a pod matters to members; None: everywhere.
        self._reach: dict[KindKey, Collection[str] | None] = {}
        #: By topology key and value, the nodes of members.
        self._domains: dict[str, dict[str | None, set[str]]] = {}

    def victims(self, units: Sequence[Unit], budgets: Budgets) -> list[Unit]:
        """Of *units*, those that cannot stay, the most important first.

        They are asked in their order, first those with pods that their budgets do not let go.
        """
        pods = [pod for unit in units for pod in unit.pods]
        violating, _ = budgets.split(pods, range(len(pods)))
        uids = {pods[place].uid for place in violating}
        for unit in units:
            unit.violations = sum(pod.uid in uids for pod in unit.pods)
        victims = []
        for unit in sorted(units, key=lambda unit: not unit.violations):
            nodes = self._bring_back(unit)
            if not self._still_fit(nodes):
                victims.append(unit)
                for pod in unit.pods:
                    self._cache.remove_pod(pod)
            elif nodes is None:
                self._outlooks = None
                self._reach = {kind: None for kind, keys in self._reach.items() if keys is None}
        return sorted(victims, key=lambda unit: unit.order)

    def _bring_back(self, unit: Unit) -> set[str] | None:
        """Put *unit* back. Returns the nodes where it may matter to members; None: on all."""
        kinds = {pod.uid: kind_key(pod) for pod in unit.pods}
        # A term that a pod has may concern members that were alike without it.
        is_wide = self._is_wide or any(
            kind.terms is not None or self._reach.get(kind, ()) is None for kind in kinds.values()
        )
        is_known = is_wide or all(kind in self._reach for kind in kinds.values())
        if not is_known and self._outlooks is None:
            self._look_around()
        for pod in unit.pods:
            self._cache.add_pod(pod)
        if not is_known:
            seen = self._seen_with([(pod.node_name, pod) for pod in unit.pods], self._members)
            is_wide = self._is_wide or seen is None or seen.outlooks != self._outlooks
            # A first pod of its kind may matter everywhere because nothing was counted before it.
            if seen is None or not is_wide:
                reach = None if seen is None else seen.topologies
                self._reach.update(dict.fromkeys(kinds.values(), reach))
        if is_wide:
            return None
        return set().union(
            *(self._near(pod.node_name, self._reach[kinds[pod.uid]] or ()) for pod in unit.pods)
        )

    def _look_around(self) -> None:
        """Note what the members depend on now, if it is not each other."""
        snapshot = self._cache.snapshot()
        placed = [(one.node, one.queued.pod) for one in self._placements]
        members: dict[Hashable, Pod] = {}
        for _, pod in placed:
            members.setdefault(self._scheduler.alike(pod, snapshot, self._nominator), pod)
        self._members = list(members.values())
        self._domains.clear()
        seen = self._seen_with((), self._members)
        self._outlooks = None if seen is None else seen.outlooks
        # What plugins know is not the same for pods that are alike.
        self._is_wide = self._seen_with((), [pod for _, pod in placed]) is None
        if self._is_wide:
            return
        for node, pod in placed:
            self._cache.assume(pod, node)
        seen = self._seen_with(placed, self._members)
        for _, pod in placed:
            self._cache.forget(pod.uid)
        self._is_wide = (
            seen is None
            or seen.outlooks != self._outlooks
            or any(self._near(node, seen.topologies) != {node} for node, _ in placed)
        )

    def _seen_with(self, others: Sequence[tuple[str, Pod]], members: Sequence[Pod]) -> _Seen | None:
        """What *members* are decided by; None if *others* may matter to one anywhere."""
        snapshot = self._cache.snapshot()
        outlooks, topologies = [], set[str]()
        for pod in members:
            outlook = self._scheduler.outlook(pod, others, snapshot, self._nominator)
            if outlook is None:
                return None
            outlooks.append(outlook.decided_by)
            topologies.update(outlook.topologies)
        return _Seen(outlooks, topologies)

    def _near(self, name: str, topologies: Collection[str]) -> set[str]:
        """*name* and the nodes of members that share a domain of *topologies* with it."""
        found = {name}
        for key in topologies:
            if key not in self._domains:
                domains = self._domains[key] = {}
                for placement in self._placements:
                    domains.setdefault(self._label(placement.node, key), set()).add(placement.node)
            found |= self._domains[key].get(self._label(name, key), set())
        return found

    def _label(self, name: str, key: str) -> str | None:
        info = self._cache.node_info(name)
        return None if info is None or info.node is None else info.node.labels.get(key)

    def _still_fit(self, nodes: set[str] | None) -> bool:
        """True if the members pass the filters on their nodes, one after the other.

        Only those on *nodes* are looked at, if given.
        """
        assumed = []
        try:
            for placement in self._placements:
                if nodes is not None and placement.node not in nodes:
                    continue
                pod = placement.queued.pod
                snapshot = self._cache.snapshot()
                if not self._scheduler.fits(pod, placement.node, snapshot, self._nominator):
                    return False
                self._cache.assume(pod, placement.node)
                assumed.append(pod.uid)
            return True
        finally:
            for uid in assumed:
                self._cache.forget(uid)
