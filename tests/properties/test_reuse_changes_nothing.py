"""Reuse beside none: a scheduler that remembers decides as one that was just made.

The one that remembers follows a cluster that changes at random; the other is new for each pod, over
a cache that is filled anew in another order. Every decision must be the same, to the last letter:
node, message, failures, victims, annotations, and every verdict and score behind them. Policies are
switched in the middle, to others with the same names, and back to those that were in force before
and have missed what happened meanwhile.

`SAMENESS_EXAMPLES` searches longer than the suite does.
"""

import contextlib
import functools
import os
import random
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.caching import snapshot
from engine.core.model.pod_group import PodGroupState
from engine.core.scheduling import (
    node_groups,
    placed_pods,
    pod_class,
    preemption,
    scheduling_cycle,
    scoring,
    tie_keys,
    trial_patterns,
)
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy import verdicts
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.hook_signatures import hook_signatures
from engine.policy.memo_reuse import unchanged_instances
from engine.rollout.trial import frozen_copy
from tests.builders import taint
from tests.profiles import only
from tests.properties.policy_texts import KNOWN, LIBRARY, NAMED, policy_texts
from tests.properties.sameness import assert_same, with_whole_views
from tests.properties.small_cluster import IMAGE, NODES, PODS, PRIORITIES, SmallCluster, random_node
from tests.searching import examples

pytestmark = pytest.mark.slow("searches for long")

EXAMPLES: Final = int(os.environ.get("SAMENESS_EXAMPLES", examples(40)))

FUSSY = '''"""Likes some nodes. Hooks: counters, filter, score, normalize. Reads: labels, counts."""

_ZONE = "topology.kubernetes.io/zone"
ARGS = plugin_args(color = "red", factor = 3)

def counters(pod):
    return [count_pods(_ZONE, labels = {"app": "web"}, namespaces = ["default"])]

def filter(pod, node):
    if pod.annotations.get("fussy") and node.labels.get("color") == ARGS.color:
        return "node(s) were red"
    return None

def score(pod, node, counts):
    if node.labels.get("color") == None:
        return None
    return ARGS.factor * (counts[0].here or 0) - counts[0].total

def normalize(score, over):
    return 50 if over.max == over.min else 100 * (score - over.min) // (over.max - over.min)
'''
PICKY = '''"""Sees all nodes. Hooks: score_all, tie_key. Reads: node.pod_count, node.labels."""

def score_all(pod, nodes):
    most = max([node.pod_count for node in nodes])
    return [min(100, 10 * (most - node.pod_count)) for node in nodes]

def tie_key(pod, node):
    return node.labels.get("color", "")
'''
MOODY = '''"""Looks at facts and groups. Hooks: nearly all."""

def pre_enqueue(pod, group):
    return "waiting for others" if group != None and group.pod_count < group.min_count else None

def permit(pod, group):
    return wait(30) if group != None and group.waiting + group.placed < group.min_count else None

def pre_filter(pod, cluster):
    price = cluster.facts["price"]
    return state(limit = 4 if price == None else price.value)

def filter(pod, node, state):
    heat = node.facts["heat"]
    return "node(s) were hot" if heat != None and heat.value > state.limit else None

def score(pod, node):
    reward = node.pod_facts["reward"].get(pod.type)
    heat = node.facts["heat"]
    return (0 if reward == None else reward.value) + (0 if heat == None else heat.age_seconds or 0)

def annotate(pod, node):
    return {"fussy": str(len(node.pod_annotations["fussy"]))}
'''


def _profile(weight: int, plugins: str, config: str = "") -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n  - schedulerName: default-scheduler\n    plugins:\n      multiPoint:\n"
        f"        enabled: [{plugins}{{name: TaintToleration, weight: {weight}}}]\n{config}"
    )


_ARGUMENTS: Final = (
    "    pluginConfig:\n      - name: fussy\n        args: {color: blue, factor: -2}\n"
    "      - name: NodeResourcesFit\n        args: {scoringStrategy: {type: MostAllocated, "
    "resources: [{name: cpu, weight: 3}, {name: memory, weight: 1}]}}\n"
    "      - name: InterPodAffinity\n        args: {hardPodAffinityWeight: 50}\n"
)


REVISIONS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"fussy.star": FUSSY},
    {"fussy.star": FUSSY, "picky.star": PICKY},
    {"moody.star": MOODY},
    {
        "fussy.star": FUSSY,
        "profile.yaml": _profile(9, "{name: fussy, weight: 4}, ", _ARGUMENTS),
    },
    {"fussy.star": FUSSY.replace("3 *", "5 *").replace('"red"', '"blue"')},
)


@functools.cache
def _revisions() -> list[tuple[Bundle, InProcessEvaluator]]:
    bundles = map(build_bundle, REVISIONS)
    return [(bundle, InProcessEvaluator(bundle.program)) for bundle in bundles]


class Bounds:
    """How much is remembered, and from how many changes on it is done in another way.

    Both are about speed alone. Tight bounds take a cluster of seven nodes down the ways that are
    meant for thousands.
    """

    _CONSTANTS: Final = (
        (pod_class, "_ONE_TRIP", 3),
        (node_groups, "_TABLE_SPAN", 4),
        (scoring, "_TABLE_SPAN", 4),
        (scoring, "MOST_ANSWERS", 4),
        (scoring, "_WHOLE", 3),
        (tie_keys, "_LEAST_UNSORTED", 1),
        (preemption, "_CHUNK", 2),
        (preemption, "MOST_ANSWERS", 1),
        (trial_patterns, "_MOST_PATTERNS", 2),
        (placed_pods, "MOST_ANSWERS", 2),
        (scheduling_cycle, "_HOUSEKEEPING_EVERY", 3),
        (snapshot, "_LOG_SIZE", 4),
        (verdicts, "_CAPACITY_BYTES", 2048),
        (verdicts, "_MOST_SINGLES", 8),
    )

    def __init__(self) -> None:
        self._patches = contextlib.ExitStack()
        self._are_tight = False

    def tighten(self) -> None:
        """From now on, until `close`."""
        self._are_tight = True
        for module, name, value in self._CONSTANTS:
            self._patches.enter_context(mock.patch.object(module, name, value))

    def hold(self, scheduler: Scheduler) -> None:
        """Let *scheduler* remember little, if bounds are tight."""
        if self._are_tight:
            assert hasattr(scheduler._counted, "_capacity")
            scheduler._counted._capacity = 8

    def close(self) -> None:
        """As it is in production again."""
        self._patches.close()


class _Sameness(RuleBasedStateMachine):
    """Changes of a cluster in any order, and pods that are decided in between."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SmallCluster()
        self.revision = 0
        self.seed = 0
        self.steps = 0
        self.kinds: list[str] = []
        self.revisions = list(_revisions())
        # Kept when others are in force: they may come back.
        self.schedulers: dict[int, Scheduler] = {}
        self.bounds = Bounds()

    @property
    def scheduler(self) -> Scheduler:
        found = self.schedulers.get(self.revision)
        if found is None:
            bundle, evaluator = self.revisions[self.revision]
            found = self.schedulers[self.revision] = Scheduler(bundle, evaluator)
            found.hooks.groups = self.cluster.groups
            self.bounds.hold(found)
        return found

    @initialize(
        seed=st.integers(0, 1 << 30),
        count=st.integers(2, len(NODES)),
        kinds=st.lists(st.sampled_from(sorted(PODS)), min_size=2, max_size=4, unique=True),
        tight=st.booleans(),
    )
    def start(self, seed: int, count: int, kinds: list[str], tight: bool) -> None:
        choose = random.Random(seed)
        self.seed, self.kinds = seed, kinds
        if tight:
            self.bounds.tighten()
        for name in NODES[:count]:
            self.cluster.put_node(name, **random_node(choose))

    # --- the cluster changes -------------------------------------------------------------------

    @rule(name=st.sampled_from(NODES), seed=st.integers(0, 1 << 30))
    def a_node_comes_or_is_another(self, name: str, seed: int) -> None:
        self.cluster.put_node(name, **random_node(random.Random(seed)))

    @precondition(lambda self: self.cluster.nodes)
    @rule(
        data=st.data(),
        change=st.sampled_from(
            [
                {"zone": "a"},
                {"zone": "c"},
                {"zone": None},
                {"labels": {"color": "red"}},
                {"labels": {"color": "blue", "other": "x"}},
                {"labels": {}},
                {"taints": []},
                {"taints": [taint("dedicated")]},
                {"taints": [taint("dedicated", effect="PreferNoSchedule")]},
                {"images": {IMAGE: 500 << 20}},
                {"images": None},
                {"unschedulable": True},
                {"unschedulable": False},
                {"cpu": "2"},
                {"cpu": "16"},
                {"allocatable": {"example.com/gpu": 1}},
                {"annotations": {"x": "y"}},
                {"conditions": {"Ready": "False"}},
            ]
        ),
    )
    def a_node_changes_in_one_thing(self, data: st.DataObject, change: dict[str, Any]) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.nodes)))
        self.cluster.put_node(name, **change)

    @rule(seed=st.integers(0, 1 << 30), share=st.sampled_from([0.5, 1.0]))
    def many_nodes_change_at_once(self, seed: int, share: float) -> None:
        choose = random.Random(seed)
        for name in NODES:
            if choose.random() < share:
                self.cluster.put_node(name, **random_node(choose))

    @rule(name=st.sampled_from(NODES))
    def a_node_goes(self, name: str) -> None:
        self.cluster.remove_node(name)

    @rule(name=st.sampled_from(NODES), seed=st.integers(0, 1 << 30))
    def a_node_is_replaced_between_two_looks(self, name: str, seed: int) -> None:
        self.cluster.remove_node(name)
        self.cluster.put_node(name, **random_node(random.Random(seed)))

    @rule(
        name=st.sampled_from(NODES),
        heat=st.none() | st.integers(0, 6),
        reward=st.none() | st.integers(0, 9),
        age=st.none() | st.integers(0, 3),
    )
    def facts_of_a_node(
        self, name: str, heat: int | None, reward: int | None, age: int | None
    ) -> None:
        self.cluster.set_facts(name, heat, reward, age)

    @rule(
        price=st.none() | st.integers(0, 6),
        reward=st.none() | st.integers(0, 3),
        age=st.none() | st.integers(0, 3),
    )
    def facts_of_the_cluster(self, price: int | None, reward: int | None, age: int | None) -> None:
        self.cluster.set_price(price, reward, age)

    @precondition(lambda self: self.cluster.nodes)
    @rule(
        data=st.data(),
        kind=st.sampled_from(sorted(PODS)),
        namespace=st.sampled_from(["default", "other"]),
        priority=st.sampled_from(PRIORITIES),
    )
    def a_pod_comes_to_a_node(
        self, data: st.DataObject, kind: str, namespace: str, priority: int
    ) -> None:
        """Of this kind, wherever it should be: others place pods too."""
        pod = self.cluster.new_pod(kind, namespace, priority=priority)
        node = data.draw(st.sampled_from(sorted(self.cluster.nodes)))
        self.cluster.place(pod, node, confirmed=data.draw(st.booleans()))

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        self.cluster.remove_pod(data.draw(st.sampled_from(sorted(self.cluster.pods))))

    @precondition(lambda self: self.cluster.pods)
    @rule(
        data=st.data(),
        change=st.sampled_from(
            [
                {"cpu": "1500m"},
                {"cpu": "50m", "memory": "2Gi"},
                {"labels": {"app": "web"}},
                {"labels": {"app": "db", "revision": "2"}},
                {"labels": {}},
                {"terminating": True},
                {"annotations": {"fussy": "so"}},
                {"priority": 10},
            ]
        ),
    )
    def a_pod_changes(self, data: st.DataObject, change: dict[str, Any]) -> None:
        uid = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        self.cluster.change_pod(uid, **change)

    @rule(name=st.sampled_from(["default", "other"]), team=st.sampled_from(["a", "b", None]))
    def a_namespace_changes(self, name: str, team: str | None) -> None:
        self.cluster.label_namespace(name, team)

    @rule(app=st.sampled_from(["web", "db", None]))
    def a_service_changes(self, app: str | None) -> None:
        self.cluster.set_service(app)

    @rule(allowed=st.sampled_from([0, 1, 2, None]))
    def a_budget_changes(self, allowed: int | None) -> None:
        self.cluster.set_budget(allowed)

    @rule(group=st.sampled_from([None, PodGroupState("g", min_count=2, pending=1)]))
    def a_group_changes(self, group: PodGroupState | None) -> None:
        self.cluster.group = group

    @precondition(lambda self: self.cluster.nodes)
    @rule(data=st.data(), kind=st.sampled_from(sorted(PODS)), priority=st.sampled_from(PRIORITIES))
    def a_node_is_promised(self, data: st.DataObject, kind: str, priority: int) -> None:
        pod = self.cluster.new_pod(kind, priority=priority)
        self.cluster.nomination(pod, data.draw(st.sampled_from(sorted(self.cluster.nodes))))

    @rule(data=st.data())
    def policies_are_switched(self, data: st.DataObject) -> None:
        """To any revision; those that were in force before have missed the changes since."""
        self.revision = data.draw(st.integers(0, len(self.revisions) - 1))

    @rule()
    def policies_are_loaded_anew(self) -> None:
        self.schedulers.pop(self.revision, None)

    @rule(revision=st.integers(0, len(REVISIONS) - 1))
    def policies_are_tried_on_a_copy(self, revision: int) -> None:
        """As a roll-out does it: they inherit, decide on a frozen copy, and then for real.

        The cluster has changed since the last decision.
        """
        before = self.scheduler
        for name in sorted(self.cluster.nodes)[:2]:
            self.cluster.put_node(name, annotations={"tried": str(self.steps)})
        copy = frozen_copy(self.cluster.cache.snapshot())
        self.revision = revision % len(self.revisions)
        self.schedulers.pop(self.revision, None)
        programs = before.bundle.program, self.scheduler.bundle.program
        self.scheduler.reuse_from(before, unchanged_instances(*programs))
        for kind in self.kinds:
            self.scheduler.schedule(self.cluster.new_pod(kind), copy)

    # --- the same decision ---------------------------------------------------------------------

    @rule(
        namespace=st.sampled_from(["default", "default", "other"]),
        priority=st.sampled_from(PRIORITIES),
        place=st.sampled_from(["none", "assumed", "confirmed"]),
        words=st.sampled_from([{}, {}, {"spec": {"preemptionPolicy": "Never"}}]),
    )
    def each_kind_is_decided(
        self, namespace: str, priority: int, place: str, words: dict[str, Any]
    ) -> None:
        """One pod of each kind that this run is about, so that the same classes come again."""
        for kind in self.kinds:
            words = {**words, "spec": {**PODS[kind].get("spec", {}), **words.get("spec", {})}}
            pod = self.cluster.new_pod(kind, namespace, **words, priority=priority)
            self._decide(pod, place)

    @rule(
        kind=st.sampled_from(sorted(PODS)),
        namespace=st.sampled_from(["default", "other"]),
        priority=st.sampled_from(PRIORITIES),
        place=st.sampled_from(["none", "assumed", "confirmed"]),
    )
    def a_pod_is_decided(self, kind: str, namespace: str, priority: int, place: str) -> None:
        self._decide(self.cluster.new_pod(kind, namespace, priority=priority), place)

    @precondition(lambda self: self.cluster.nominated)
    @rule(data=st.data())
    def a_promised_pod_is_decided(self, data: st.DataObject) -> None:
        self._decide(data.draw(st.sampled_from(self.cluster.nominated)), "none")

    @invariant()
    def the_next_kind_is_decided(self) -> None:
        """After every change, so that little has changed since the last pod of its class."""
        if self.kinds:
            self.steps += 1
            kind = self.kinds[self.steps // 2 % len(self.kinds)]
            self._decide(self.cluster.new_pod(kind), "none")

    def _decide(self, pod: Any, place: str) -> None:
        cluster, (bundle, _) = self.cluster, self.revisions[self.revision]
        assert self.scheduler.bundle is bundle
        (decision,) = assert_same(
            self.scheduler,
            cluster.cache,
            cluster.nominator,
            [pod],
            cluster.rebuilt(),
            self.reference,
            self.whole,
        )
        self.judged(decision.failures)
        if decision.node is not None and place != "none":
            cluster.place(pod, decision.node, confirmed=place == "confirmed")

    @property
    def reference(self) -> InProcessEvaluator:
        """Whom the scheduler without reuse asks."""
        return self.revisions[self.revision][1]

    @property
    def whole(self) -> Bundle:
        """What it decides by."""
        return self.revisions[self.revision][0]

    def judged(self, failures: Any) -> None:
        """The shipped policies do not fail."""
        assert not failures, failures

    def teardown(self) -> None:
        self.bounds.close()
        self.cluster.cache.check_invariants()


class ReuseChangesNothing(_Sameness):
    """With the shipped policies, and some of a user."""


_POINTS: Final = {
    "preFilter": {"pre_filter"},
    "filter": {"filter"},
    "preScore": {"pre_score"},
    "score": {"score", "score_all", "tie_key"},
    "postFilter": {"victim_key"},
    "reserve": {"annotate"},
}


def _alone(text: str, points: set[str] | None) -> str:
    """A profile with the policy *text* beside the default preemption: at those *points* alone.

    None, or points for which it has no hook: at all that it has hooks for.
    """
    hooks = hook_signatures(text).keys()
    enabled = [p for p in sorted(points or ()) if not hooks.isdisjoint(_POINTS[p])]
    if not enabled:
        return only("wild", "DefaultPreemption")
    lines = [f"    {point}: {{enabled: [{{name: wild}}]}}\n" for point in enabled]
    return only("DefaultPreemption") + "".join(lines)


class ReuseOfAnyPolicy(_Sameness):
    """With policies that nobody wrote: reuse holds for what the runtime has never seen.

    Their hooks are given what they read. Whoever decides anew gives them whole views and counters.
    Some of them are those that once decided otherwise.
    """

    @initialize(
        first=policy_texts() | st.sampled_from(KNOWN),
        second=policy_texts() | st.sampled_from(KNOWN),
        alone=st.booleans(),
        points=st.none() | st.sets(st.sampled_from(sorted(_POINTS)), min_size=1),
    )
    def write_policies(self, first: str, second: str, alone: bool, points: set[str] | None) -> None:
        note(first)
        self.revisions = []
        self.interpreted: list[InProcessEvaluator] = []
        for text in (first, second):
            files = {"wild.star": text, "helpers.star": LIBRARY}
            if alone:
                files["profile.yaml"] = _alone(text, points)
            bundle = build_bundle(files)
            self.revisions.append((bundle, InProcessEvaluator(bundle.program)))
            self.interpreted.append(InProcessEvaluator(bundle.program, translates=False))
        self.wholes = [with_whole_views(bundle, ["wild"], NAMED) for bundle, _ in self.revisions]

    @property
    def whole(self) -> Bundle:
        """The same policies, with hooks that are given everything."""
        return self.wholes[self.revision]

    @property
    def reference(self) -> InProcessEvaluator:
        """One that has the interpreter run every hook."""
        return self.interpreted[self.revision]

    def judged(self, failures: Any) -> None:
        """They may fail, in the same way each time."""


TestReuseChangesNothing = ReuseChangesNothing.TestCase
TestReuseChangesNothing.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
TestReuseOfAnyPolicy = ReuseOfAnyPolicy.TestCase
TestReuseOfAnyPolicy.settings = settings(max_examples=EXAMPLES, stateful_step_count=30)
TestReuseOfAnyPolicy.pytestmark = [pytest.mark.long("searches for long")]  # type: ignore[attr-defined]  # pytest reads it
