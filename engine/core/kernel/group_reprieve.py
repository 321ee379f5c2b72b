"""Reprieve: which pods may stay after all when a group has its nodes without them.

Owns the order in which they come back, and which members of the group each of them may be in the
way of. Works on a trial of the cache.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.cross_node import CrossNodeDependencies
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.scheduling_cycle import Scheduler


@dataclass(slots=True)
class Unit:
    """Pods that go or stay together: one, or a group that is disrupted as a whole.

    `violations`: the budgets of so many of them do not allow it. `tie`: of equally important ones,
    those with the smaller one are reprieved first.
    """

    pods: tuple[Pod, ...]
    priority: int
    is_group: bool = False
    violations: int = 0
    tie: str = ""

    @property
    def has_terms(self) -> bool:
        """True if a pod has affinities to pods, which may concern members anywhere."""
        affinities = (pod.manifest.spec.affinity for pod in self.pods)
        return any(one and (one.pod_affinity or one.pod_anti_affinity) for one in affinities)

    @property
    def order(self) -> tuple[int, int, int, float, str]:
        """The most important first."""
        starts = [pod.start_time for pod in self.pods if pod.start_time is not None]
        start = min(starts, default=float("inf"))
        return (-self.priority, -self.is_group, -len(self.pods), start, self.tie)


class Reprieve:
    """Reprieves pods that are in the way of no member of a group.

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
        #: The members'; None: not known, or no longer.
        self._cross_node: CrossNodeDependencies | None = None
        #: Any pod may matter to any member.
        self._is_wide = False
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
            nodes = self._nodes_of(unit)
            for pod in unit.pods:
                self._cache.add_pod(pod)
            if not self._still_fit(nodes):
                victims.append(unit)
                for pod in unit.pods:
                    self._cache.remove_pod(pod)
            elif nodes is None and self._changes_cross_node(unit):
                self._cross_node = None
        return sorted(victims, key=lambda unit: unit.order)

    def _nodes_of(self, unit: Unit) -> set[str] | None:
        """The nodes where the pods of *unit*, once back, may matter to members; None: on all."""
        if unit.has_terms:
            return None
        if self._cross_node is None and not self._is_wide:
            self._look_around()
        if self._is_wide or self._cross_node is None:
            return None
        return self._reached([(pod.node_name, pod) for pod in unit.pods], self._cross_node)

    def _changes_cross_node(self, unit: Unit) -> bool:
        slots, cross_node = self._cache.snapshot().slot_of, self._cross_node
        return unit.has_terms or (
            cross_node is not None
            and any(
                cross_node.is_first_counted(slots[pod.node_name], pod)
                for pod in unit.pods
                if pod.node_name in slots
            )
        )

    def _look_around(self) -> None:
        """Note what the members depend on now, unless that is each other."""
        placed = [(one.node, one.pod) for one in self._placements]
        alone = self._seen()
        for node, pod in placed:
            self._cache.assume(pod, node)
        together = self._seen()
        self._cross_node = alone
        self._is_wide = (
            alone is None
            or together is None
            or alone.decided_by != together.decided_by
            or any(self._reached([one], together) != {one[0]} for one in placed)
        )
        for _, pod in placed:
            self._cache.forget(pod.uid)

    def _seen(self) -> CrossNodeDependencies | None:
        """What the members depend on beyond their nodes, as things are."""
        pods = [placement.pod for placement in self._placements]
        return self._scheduler.cross_node_dependencies(
            pods, self._cache.snapshot(), self._nominator
        )

    def _reached(
        self, pods: Sequence[tuple[str, Pod]], cross_node: CrossNodeDependencies
    ) -> set[str] | None:
        """The nodes of *pods*, and those of members that they may matter to; None: of all."""
        slots = self._cache.snapshot().slot_of
        found = {node for node, _ in pods}
        for node, pod in pods:
            slot = slots.get(node)
            if slot is None:
                return None
            topologies = cross_node.affected_topologies(slot, pod)
            if topologies is None:
                return None
            found |= self._near(node, topologies)
        return found

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
        assert info is not None, "a node of the snapshot is gone"
        assert info.node is not None, "a node of the snapshot is gone"
        return info.node.labels.get(key)

    def _still_fit(self, nodes: set[str] | None) -> bool:
        """True if the members pass the filters on their nodes, one after the other.

        Only those on *nodes* are looked at, if given.
        """
        assumed = []
        try:
            for placement in self._placements:
                if nodes is not None and placement.node not in nodes:
                    continue
                pod = placement.pod
                snapshot = self._cache.snapshot()
                if not self._scheduler.fits(pod, placement.node, snapshot, self._nominator):
                    return False
                self._cache.assume(pod, placement.node)
                assumed.append(pod.uid)
            return True
        finally:
            for uid in assumed:
                self._cache.forget(uid)
