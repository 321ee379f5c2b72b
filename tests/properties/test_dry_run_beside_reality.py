"""Preemption's dry run beside a plain one, which builds every cluster that it thinks about.

The plain one follows kube-scheduler's rules with sets of pods, asks a new scheduler over a new
cache for each of them, and knows nothing of overlays, memos or counters. Both must evict the same
pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.model.node import Node
from engine.core.model.objects import (
    LabelSelector,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Explanation
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from tests.builders import HOSTNAME, ZONE, make_node, make_pod
from tests.profiles import default_bundle, default_evaluator
from tests.searching import examples

pytestmark = pytest.mark.slow("searches for long")

# The same order, and some pods are never evicted.
KEEPING = build_bundle(
    {
        "keeping.star": """
load("@kubernetes/default_preemption.star", "started")

def victim_key(pod):
    return None if pod.annotations.get("keep") else (-pod.priority, started(pod))
"""
    }
)
KEEPS = InProcessEvaluator(KEEPING.program)
# No more than so much of a zone, and of the cluster, for pods of one app.
AMOUNTS = build_bundle(
    {
        "amounts.star": """
_ZONE = "topology.kubernetes.io/zone"

def counters(pod):
    web = [pods_in(["default"], {"app": "web"})]
    return [sum_requests(_ZONE, web, "cpu"), sum_requests(None, web, "cpu")]

def filter(pod, node, counts):
    more = pod.requests.get("cpu", 0)
    if (counts[0].here or 0) + more > 3000:
        return "too much in the zone"
    return "too much" if counts[1].total + more > 5000 else None
"""
    }
)
SUMS = InProcessEvaluator(AMOUNTS.program)
# One node keeps two cores; pods of one app go where there is such a node in the zone.
WHOLE = build_bundle(
    {
        "whole.star": """
_TWO = {"cpu": 2000}

def counters(pod):
    return [count_nodes(None, free = _TWO), count_nodes("topology.kubernetes.io/zone", free = _TWO)]

def filter(pod, node, counts):
    if counts[0].here and counts[0].total <= 1:
        return "the last one"
    if pod.labels.get("app") == "web" and counts[1].here == 0:
        return "none in the zone"
    return None
"""
    }
)
WHOLES = InProcessEvaluator(WHOLE.program)
WEB = {"matchLabels": {"app": "web"}}


def pod_terms(key: str, rule: str) -> dict[str, Any]:
    term = {"labelSelector": WEB, "topologyKey": key}
    return {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(key: str, min_domains: int | None = None) -> dict[str, Any]:
    more = {} if min_domains is None else {"minDomains": min_domains}
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        **more,
    }


SHAPES: list[dict[str, Any]] = [
    {"cpu": "1"},
    {"cpu": "2"},
    {"cpu": "1", "labels": {"app": "web"}},
    {"cpu": "1", "ports": [8080]},
    {"labels": {"app": "web"}, "affinity": pod_terms(ZONE, "podAntiAffinity")},
    {"labels": {"app": "web"}, "affinity": pod_terms(HOSTNAME, "podAntiAffinity")},
    {"labels": {"app": "web"}, "affinity": pod_terms(ZONE, "podAffinity")},
    {"labels": {"app": "web"}, "topology_spread": [_spread(ZONE)]},
    {"labels": {"app": "web"}, "topology_spread": [_spread(ZONE, 2), _spread(HOSTNAME)]},
]

AMOUNTED: list[dict[str, Any]] = [
    {"cpu": "1"},
    {"cpu": "1", "labels": {"app": "web"}},
    {"cpu": "2", "labels": {"app": "web"}},
]
ALIKE = [SHAPES[0], SHAPES[0], SHAPES[1], SHAPES[2], SHAPES[3]]


@dataclass
class Case:
    """A cluster and a pod that wants in."""

    nodes: Sequence[Node]
    placed: Sequence[Pod]
    incoming: Pod
    budget: int | None = None
    bundle: Bundle = field(default_factory=default_bundle)
    evaluator: Evaluator = field(default_factory=default_evaluator)
    fits_cache: dict[frozenset[str], Explanation] = field(default_factory=dict)

    def explain(self, gone: frozenset[str] = frozenset()) -> Explanation:
        """What a new scheduler says of the cluster without the pods *gone*."""
        known = self.fits_cache.get(gone)
        if known is None:
            cache = Cache()
            if self.budget is not None:
                cache.objects.put("poddisruptionbudgets", _budget(self.budget))
            for node in self.nodes:
                cache.add_node(node)
            for pod in self.placed:
                if pod.uid not in gone:
                    cache.add_pod(pod)
            scheduler = Scheduler(self.bundle, self.evaluator)
            known = scheduler.explain(self.incoming, cache.snapshot())
            self.fits_cache[gone] = known
        return known

    def fits(self, node: str, gone: frozenset[str]) -> bool:
        return node in self.explain(gone).feasible


def _budget(allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        ObjectMeta(name="web", namespace="default"),
        PodDisruptionBudgetSpec(LabelSelector({"app": "web"})),
        PodDisruptionBudgetStatus(allowed),
    )


def _victims(case: Case, node: str) -> tuple[list[Pod], int] | None:
    """The victims on *node* and the violations, by kube-scheduler's rules; None: no help."""
    lower = [p for p in case.placed if p.node_name == node and p.priority < case.incoming.priority]
    lower = [p for p in lower if not p.annotations.get("keep")]
    gone = frozenset(p.uid for p in lower)
    if not lower or not case.fits(node, gone):
        return None
    lower.sort(key=lambda p: (-p.priority, p.start_time or 0, p.key))
    violating, others, left = [], [], case.budget
    for pod in lower:
        if left is not None and pod.labels.get("app") == "web":
            left -= 1
            if left < 0:
                violating.append(pod)
                continue
        others.append(pod)
    victims, violations = [], 0
    for pod in (*violating, *others):
        if case.fits(node, gone - {pod.uid}):
            gone -= {pod.uid}
        else:
            victims.append(pod)
            violations += pod in violating
    if violating and others:
        victims.sort(key=lambda p: (-p.priority, p.start_time or 0, p.key))
    return victims, violations


def _expected(case: Case) -> list[tuple[str, list[str]]]:
    """The best candidates: one, or several that are equally good."""
    found = []
    for name, status in case.explain().rejected.items():
        tried = _victims(case, name) if status.code.value == "Unschedulable" else None
        if tried is None:
            continue
        victims, violations = tried
        highest = max(p.priority for p in victims)
        first = min(p.start_time or 0 for p in victims if p.priority == highest)
        weight = sum(p.priority + 2**31 for p in victims)
        key = (violations, victims[0].priority, weight, len(victims), -first)
        found.append((key, name, [p.key for p in victims]))
    best = min((key for key, _, _ in found), default=None)
    return [(name, victims) for key, name, victims in found if key == best]


@st.composite
def cases(
    draw: st.DrawFn,
    among: Sequence[dict[str, Any]] = tuple(SHAPES),
    most_nodes: int = 4,
    *,
    keeps: bool = False,
    policies: tuple[Bundle, Evaluator] | None = None,
) -> Case:
    zones = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=most_nodes))
    nodes = [make_node(f"n{i}", cpu="3", zone=zone) for i, zone in enumerate(zones)]
    placed = []
    for i, node in enumerate(nodes):
        for j in range(draw(st.integers(0, 3))):
            shape = draw(st.sampled_from(among))
            start = f"2026-01-01T00:{draw(st.integers(10, 13))}:00Z"
            priority = draw(st.sampled_from([0, 5, 5, 50]))
            name = f"p{i}{j}"
            kept = {"keep": "yes"} if keeps and draw(st.booleans()) else None
            words = {"priority": priority, "start_time": start, "annotations": kept, **shape}
            placed.append(make_pod(name, uid=name, node=node.name, **words))
    shape = draw(st.sampled_from(SHAPES))
    wanted = draw(st.sampled_from(["1", "2", "3"]))
    incoming = make_pod("new", uid="new", priority=10, **{**shape, "cpu": wanted})
    case = Case(nodes, placed, incoming, draw(st.sampled_from([None, 0, 1])))
    if keeps:
        case.bundle, case.evaluator = KEEPING, KEEPS
    if policies:
        case.bundle, case.evaluator = policies
    return case


def _check(case: Case) -> None:
    decision = case.explain().decision
    got = decision.eviction
    if decision.node is not None:
        assert got is None
        return
    want = _expected(case)
    if got is None:
        assert want == []
    else:
        assert (got.node, [p.key for p in got.victims]) in want
    assert decision.nominated_node == ("" if got is None else got.node)


@given(case=cases())
@settings(max_examples=examples(150))
def test_the_dry_run_evicts_whom_a_plain_one_would(case: Case) -> None:
    _check(case)


@given(case=cases(among=ALIKE, most_nodes=7))
@settings(max_examples=examples(60))
def test_one_trial_stands_for_nodes_that_are_alike(case: Case) -> None:
    """Few shapes of pods on many nodes, some of them counted by what the incoming pod asks for."""
    _check(case)


@given(case=cases(among=AMOUNTED, most_nodes=5, policies=(AMOUNTS, SUMS)))
@settings(max_examples=examples(100))
def test_sums_are_those_of_the_cluster_after_the_eviction(case: Case) -> None:
    _check(case)


@given(case=cases(among=AMOUNTED, most_nodes=5, policies=(WHOLE, WHOLES)))
@settings(max_examples=examples(100))
def test_nodes_are_counted_as_they_are_after_the_eviction(case: Case) -> None:
    _check(case)


@given(case=cases(keeps=True) | cases(among=ALIKE, most_nodes=5, keeps=True))
@settings(max_examples=examples(100))
def test_pods_that_are_kept_are_there_in_every_trial(case: Case) -> None:
    """Whoever has no key stays, and counts for affinity, spreading and budgets as others do."""
    _check(case)
