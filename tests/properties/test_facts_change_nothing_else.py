"""Facts that come, change, grow old and go: a scheduler that remembers decides like a new one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.caching.cache import Cache
from engine.core.model.fact import Fact, NodeFacts
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.searching import examples

pytestmark = pytest.mark.slow("searches for long")

COOL = '''"""Hooks: filter, score, annotate. Reads: facts of all kinds; ages in score alone."""

def filter(pod, node):
    heat = node.facts["heat"]
    if heat != None and heat.value != None and heat.value > 2:
        return "node(s) were hot"
    known = pod.facts["fussy"]
    if known != None and heat == None:
        return "node(s) had no known heat"
    return None

def pre_score(pod, cluster):
    price = cluster.facts["price"]
    return state(price = 0 if price == None else price.value)

def score(pod, node, state):
    reward = node.pod_facts["reward"].get(pod.type)
    heat = node.facts["heat"]
    age = 0 if heat == None or heat.age_seconds == None else heat.age_seconds
    return min(100, state.price + (50 if reward == None else int(10 * reward.value)) + age)

def annotate(pod, node):
    return {"others": str(len(node.pod_annotations["others"]))}
'''
BUNDLE = build_bundle({"cool.star": COOL})
EVALUATOR = InProcessEvaluator(BUNDLE.program)
NAMES = ("a", "b", "c")

VALUES = st.none() | st.integers(0, 4)
FACT = st.builds(lambda v, age: Fact(v, str(v), age), VALUES, st.none() | st.integers(0, 3))
NODE = st.builds(
    lambda own, pairs: NodeFacts(
        {} if own is None else {"heat": own}, {"reward": pairs} if pairs else {}
    ),
    st.none() | FACT,
    st.dictionaries(st.sampled_from(["web", "db"]), FACT.filter(lambda f: f.value is not None)),
)
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NAMES), NODE),
    st.tuples(st.just("price"), st.integers(0, 9)),
    st.tuples(st.just("fussy"), st.sampled_from(["web", "db"]), st.booleans()),
    st.tuples(st.just("pod"), st.sampled_from(["web", "db"])),
)


class _World:
    """A cache, and what it was last told of facts that are not about nodes."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.price: dict[str, Fact] = {}
        self.types: dict[str, dict[str, Fact]] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.placed: list[tuple[Any, str]] = []

    def others(self, cache: Cache) -> None:
        cache.set_other_facts(cluster=self.price, types=self.types, pods={})

    def again(self) -> Cache:
        """A cache that was told the same, the other way round."""
        cache = Cache()
        self.others(cache)
        for pod, node in self.placed:
            cache.assume(pod, node)
        for name in reversed(NAMES):
            cache.add_node(make_node(name))
        for name, facts in self.nodes.items():
            cache.set_node_facts(name, facts)
        return cache


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(CHANGES, max_size=25))
def test_reuse_changes_no_decision(changes: list[Any]) -> None:
    world = _World()
    for name in NAMES:
        world.cache.add_node(make_node(name))
    remembers = Scheduler(BUNDLE, EVALUATOR)
    for number, change in enumerate(changes):
        kind, *what = change
        if kind == "node":
            world.nodes[what[0]] = what[1]
            world.cache.set_node_facts(what[0], what[1])
        elif kind == "price":
            world.price = {"price": Fact(what[0], str(what[0]))}
            world.others(world.cache)
        elif kind == "fussy":
            world.types[what[0]] = {"fussy": Fact(1, "1")} if what[1] else {}
            world.others(world.cache)
        else:
            pod = make_pod(f"p{number}", labels={"app": what[0]}, cpu="1")
            got = remembers.explain(pod, world.cache.snapshot())
            want = Scheduler(BUNDLE, EVALUATOR).explain(pod, world.again().snapshot())
            decision = want.decision
            assert (got.decision.node, got.decision.message()) == (
                decision.node,
                decision.message(),
            )
            assert got.decision.annotations == decision.annotations
            assert dict(zip(got.feasible, got.totals, strict=True)) == dict(
                zip(want.feasible, want.totals, strict=True)
            )
            if decision.node is not None:
                placed = pod.with_annotations(decision.annotations)
                world.placed.append((placed, decision.node))
                world.cache.assume(placed, decision.node)
    world.cache.check_invariants()
