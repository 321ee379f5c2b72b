"""Which pods a group reprieves, beside a plain search that tries every member after every pod.

The plain one builds a new cluster for each pod that might stay and asks a new scheduler about all
members, wherever they are. Both must name the same victims.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.kernel.group_reprieve import Reprieve, Unit
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.disruption_budgets import Budgets
from engine.core.scheduling.placement import Placement
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from tests.builders import HOSTNAME, ZONE, make_node, make_pod
from tests.profiles import default_bundle, default_evaluator
from tests.properties.test_dry_run_beside_reality import (
    AMOUNTED,
    AMOUNTS,
    SHAPES,
    SUMS,
    WHOLE,
    WHOLES,
    pod_terms,
)
from tests.searching import examples

MEMBERS: list[dict[str, Any]] = [
    *SHAPES,
    {"cpu": "1", "affinity": pod_terms(HOSTNAME, "podAffinity")},
    {"cpu": "1", "affinity": pod_terms(HOSTNAME, "podAntiAffinity")},
    {"cpu": "1", "affinity": pod_terms(ZONE, "podAntiAffinity")},
    {"cpu": "2", "affinity": pod_terms(ZONE, "podAffinity")},
]
#: Is never in anyone's way for its size, and is selected by the terms of members.
ANCHOR: dict[str, Any] = {"labels": {"app": "web"}}
NODES = [make_node(f"n{i}", cpu="3", zone="ab"[i % 2]) for i in range(4)]


@dataclass
class Case:
    """A cluster with pods that stay, pods that may go, and the members that want in."""

    anchors: Sequence[Pod]
    units: Sequence[Unit]
    members: Sequence[Pod]
    nodes: Sequence[Node] = tuple(NODES)
    policies: tuple[Bundle, Evaluator] | None = None

    def scheduler(self) -> Scheduler:
        return Scheduler(*(self.policies or (default_bundle(), default_evaluator())))

    def cluster(self, units: Sequence[Unit] = ()) -> Cache:
        cache = Cache()
        for node in self.nodes:
            cache.add_node(node)
        for pod in (*self.anchors, *(pod for unit in units for pod in unit.pods)):
            cache.add_pod(pod)
        return cache

    def placements(self) -> list[Placement]:
        """The members where they go without the units; empty if one of them fits nowhere."""
        cache, scheduler = self.cluster(), self.scheduler()
        found = []
        for pod in self.members:
            node = scheduler.schedule(pod, cache.snapshot()).node
            if node is None:
                return []
            cache.assume(pod, node)
            found.append(Placement(QueuedPod(pod, (), 0.0, 0), pod, node, "", "", 0.0))
        return found

    def fits(self, units: Sequence[Unit], placements: Sequence[Placement]) -> bool:
        cache, scheduler = self.cluster(units), self.scheduler()
        for placement in placements:
            if placement.node not in scheduler.explain(placement.pod, cache.snapshot()).feasible:
                return False
            cache.assume(placement.pod, placement.node)
        return True


def names(units: Sequence[Unit]) -> list[str]:
    return [pod.name for unit in units for pod in unit.pods]


@st.composite
def cases(
    draw: st.DrawFn,
    among: Sequence[dict[str, Any]] = tuple(SHAPES),
    wanted: Sequence[dict[str, Any]] = tuple(MEMBERS),
) -> Case:
    node = st.sampled_from([one.name for one in NODES])
    anchors = [
        make_pod(f"anchor{i}", node=draw(node), priority=9, **ANCHOR)
        for i in range(draw(st.integers(0, 2)))
    ]
    units = []
    for i in range(draw(st.integers(1, 6))):
        shape, priority = draw(st.sampled_from(among)), draw(st.integers(0, 2))
        pods = tuple(
            make_pod(f"unit{i}-{k}", node=draw(node), priority=priority, **shape)
            for k in range(draw(st.sampled_from([1, 1, 1, 2])))
        )
        units.append(Unit(pods, priority, is_group=len(pods) > 1))
    shape = draw(st.sampled_from(wanted))
    shapes = [shape, shape, draw(st.sampled_from(wanted))][: draw(st.integers(1, 3))]
    members = [make_pod(f"member{i}", priority=9, **one) for i, one in enumerate(shapes)]
    return Case(anchors, sorted(units, key=lambda unit: unit.order), members)


def _member_that_needs_another() -> Case:
    """One zone is full; in the other, a member is where it is because of another one."""
    anchors = [make_pod(f"anchor{i}", node=f"n{i}", cpu="3", priority=9, **ANCHOR) for i in (0, 2)]
    units = [Unit((make_pod(f"unit{i}", node=f"n{i}", cpu="1"),), 0) for i in (1, 3)]
    members = [
        make_pod("member0", cpu="2", priority=9, **ANCHOR),
        make_pod("member1", cpu="2", priority=9, affinity=pod_terms(ZONE, "podAffinity")),
    ]
    return Case(anchors, units, members)


def _another_node_of_the_zone() -> Case:
    """What a member must not be near to comes back on another node of its zone."""
    anchors = [make_pod("anchor", node="n0", cpu="3", priority=9, **ANCHOR)]
    unit = Unit((make_pod("unit", node="n1", cpu="1", **ANCHOR),), 0)
    apart = pod_terms(ZONE, "podAntiAffinity")
    full = [make_pod("full", node="n1", cpu="1500m", priority=9)]
    return Case([*anchors, *full], [unit], [make_pod("m", cpu="2", priority=9, affinity=apart)])


def _no_longer_the_first() -> Case:
    """A member that wants to be with its like is the first one, until one comes back elsewhere."""
    full = [make_pod(f"full{i}", node=f"n{i}", cpu="2", priority=9) for i in (0, 2)]
    unit = Unit((make_pod("unit", node="n0", cpu="1", **ANCHOR),), 0)
    near = pod_terms(ZONE, "podAffinity")
    return Case(full, [unit], [make_pod("m", cpu="2", priority=9, affinity=near, **ANCHOR)])


@given(cases())
@example(_member_that_needs_another())
@example(_another_node_of_the_zone())
@example(_no_longer_the_first())
@settings(max_examples=examples(200), deadline=None)
def test_the_same_pods_are_spared(case: Case) -> None:
    _check(case)


@given(cases(AMOUNTED, AMOUNTED), st.sampled_from([(AMOUNTS, SUMS), (WHOLE, WHOLES)]))
@settings(max_examples=examples(100), deadline=None)
def test_the_same_pods_are_spared_by_amounts(
    case: Case, policies: tuple[Bundle, Evaluator]
) -> None:
    _check(replace(case, policies=policies))


def _check(case: Case) -> None:
    placements = case.placements()
    assume(placements)
    stay: list[Unit] = []
    for unit in case.units:
        if case.fits([*stay, unit], placements):
            stay.append(unit)
    cache, scheduler = case.cluster(), case.scheduler()
    reprieve = Reprieve(placements, cache=cache, nominator=Nominator(), scheduler=scheduler)
    victims = reprieve.victims(case.units, Budgets(cache.snapshot()))
    event("some have to go" if victims else "all stay")
    assert names(victims) == [name for name in names(case.units) if name not in names(stay)]
