"""Who is evicted for whom, and what a promise of a node is worth."""

from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from engine.core.model.pod import Pod
from engine.core.queueing.events import ASSIGNED_POD_DELETE
from engine.core.queueing.hints import Hints
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import ExtenderPreempt, NodeVictims, PreemptAnswer, unopposed
from engine.core.scheduling.placement import Preemption as Eviction
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import HOSTNAME, ZONE, make_node, make_pod

VICTIM_STATUS = {
    "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
}


def make_scheduler(files: dict[str, str] | None = None) -> Scheduler:
    bundle = build_bundle(files or {})
    return Scheduler(bundle, InProcessEvaluator(bundle.program))


def full_cluster(*nodes: str, cpu: str = "2", priority: int = 0) -> Cache:
    """Nodes of two cpus with two pods of one cpu each."""
    cache = Cache()
    for name in nodes:
        cache.add_node(make_node(name, cpu=cpu))
        for i in range(int(cpu)):
            labels = {"app": "web", "copy": str(i)}
            pod = make_pod(f"{name}-{i}", node=name, cpu="1", priority=priority, labels=labels)
            cache.add_pod(pod)
    return cache


def urgent(name: str = "urgent", **words: Any) -> Pod:
    return make_pod(name, **{"cpu": "1", "priority": 100, **words})


def victims(decision: Decision) -> list[str]:
    assert decision.eviction is not None, decision.message()
    return [pod.name for pod in decision.eviction.victims]


def set_budget(cache: Cache, allowed: int, labels: dict[str, str]) -> None:
    budget = PodDisruptionBudget(
        ObjectMeta(name="web", namespace="default"),
        PodDisruptionBudgetSpec(LabelSelector(labels)),
        PodDisruptionBudgetStatus(allowed),
    )
    cache.objects.put("poddisruptionbudgets", budget)


def test_an_evicted_pod_is_not_evicted_for_the_next_one_of_the_class() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    first = scheduler.schedule(urgent("one"), cache.snapshot())
    assert victims(first) == ["a-1"]
    assert first.eviction is not None
    cache.remove_pod(first.eviction.victims[0])
    cache.add_pod(urgent("one", node="a"))
    assert victims(scheduler.schedule(urgent("two"), cache.snapshot())) == ["a-0"]


def test_a_budget_that_changes_is_seen_by_the_next_pod_of_the_class() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    assert victims(scheduler.schedule(urgent("one"), cache.snapshot())) == ["a-1"]
    set_budget(cache, 0, {"copy": "1"})
    assert victims(scheduler.schedule(urgent("two"), cache.snapshot())) == ["a-0"]


def test_a_preemption_says_where_and_how_many_pods_it_evicts() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    decision = scheduler.schedule(urgent(cpu="2"), cache.snapshot())
    assert decision.message() == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for "
        "pod on node a, preempting 2 victims"
    )


def test_of_equal_pods_the_last_on_the_node_goes_whatever_its_name() -> None:
    scheduler, cache = make_scheduler(), Cache()
    cache.add_node(make_node("n", cpu="3"))
    pods = [make_pod(name, node="n", cpu="1", priority=0) for name in ("c", "a", "b")]
    for pod in pods:
        cache.add_pod(pod)
    assert victims(scheduler.schedule(urgent(), cache.snapshot())) == ["b"]
    cache.remove_pod(pods[-1])
    cache.add_pod(make_pod("d", node="n", cpu="1", priority=0))
    assert victims(scheduler.schedule(urgent(cpu="2"), cache.snapshot())) == ["a", "d"]


def test_charging_a_pod_stops_at_the_first_overdrawn_budget() -> None:
    """kube-scheduler takes budgets in any order: then either split of these pods is right."""
    scheduler, cache = make_scheduler(), full_cluster("a", cpu="3")
    for name, allowed, copies in (("none", 0, "0"), ("one", 1, "02")):
        selector = LabelSelector({}, (LabelSelectorRequirement("copy", "In", tuple(copies)),))
        meta = ObjectMeta(name=name, namespace="default")
        spec, status = PodDisruptionBudgetSpec(selector), PodDisruptionBudgetStatus(allowed)
        cache.objects.put("poddisruptionbudgets", PodDisruptionBudget(meta, spec, status))
    # `a-0` overdraws `none`, so that `one` still allows `a-2` to be evicted.
    assert victims(scheduler.schedule(urgent(), cache.snapshot())) == ["a-2"]


def test_a_pod_of_higher_priority_and_the_same_class_may_evict_more() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a", priority=50)
    low = scheduler.schedule(urgent("one", priority=50), cache.snapshot())
    assert low.eviction is None
    assert "No preemption victims found" in low.message()
    assert victims(scheduler.schedule(urgent("two"), cache.snapshot())) == ["a-1"]


def test_nodes_are_not_alike_if_other_pods_hold_a_port() -> None:
    """The sums are the same, and the place in the order at which the port gets free is not."""
    scheduler, cache = make_scheduler(), Cache()
    for node, holder in (("a", 0), ("b", 1)):
        cache.add_node(make_node(node, cpu="2"))
        for i in range(2):
            ports = [8080] if i == holder else []
            cache.add_pod(make_pod(f"{node}-{i}", node=node, cpu="1", priority=0, ports=ports))
    evicted = set()
    for name in ("one", "two"):
        pod = urgent(name, ports=[8080])
        decision = scheduler.schedule(pod, cache.snapshot())
        assert decision.eviction is not None
        (victim,) = decision.eviction.victims
        evicted.add(victim.name)
        cache.remove_pod(victim)
        cache.assume(pod, decision.eviction.node)
    assert evicted == {"a-0", "b-1"}


def test_nodes_that_are_alike_lose_their_own_pods() -> None:
    scheduler = make_scheduler()
    names = [f"n{i}" for i in range(5)]
    cache = full_cluster(*names)
    for i in range(5):
        pod = urgent(f"u{i}", cpu="2")
        decision = scheduler.schedule(pod, cache.snapshot())
        assert decision.eviction is not None
        node = decision.eviction.node
        assert victims(decision) == [f"{node}-0", f"{node}-1"]
        for victim in decision.eviction.victims:
            cache.remove_pod(victim)
        cache.assume(pod, node)
        names.remove(node)
    assert names == []


# --- promises ------------------------------------------------------------------------------


def promised(cache: Cache, node: str, **words: Any) -> tuple[Nominator, Pod]:
    """One pod of *node* is gone, and its room is promised to another one."""
    gone = next(p for p in cache.snapshot().info(node).pods.values())  # type: ignore[union-attr]
    cache.remove_pod(gone)
    nominator, pod = Nominator(), urgent("promised", **words)
    nominator.nominate(pod, node)
    return nominator, pod


@pytest.mark.parametrize(("priority", "is_kept_free"), [(99, True), (100, True), (101, False)])
def test_nominated_capacity_is_kept_from_pods_that_matter_no_more(
    priority: int, is_kept_free: bool
) -> None:
    scheduler, cache = make_scheduler(), full_cluster("a", priority=200)
    nominator, _ = promised(cache, "a")
    rival = urgent("rival", priority=priority)
    assert (scheduler.schedule(rival, cache.snapshot(), nominator).node is None) is is_kept_free


def test_the_pod_itself_gets_what_it_is_nominated_for() -> None:
    """Also where another node scores higher: that one was not made free for it."""
    scheduler, cache = make_scheduler(), full_cluster("a")
    nominator, pod = promised(cache, "a")
    cache.add_node(make_node("empty", cpu="32"))
    assert scheduler.schedule(pod, cache.snapshot(), nominator).node == "a"
    nominator.remove(pod.uid)
    assert scheduler.schedule(pod, cache.snapshot(), nominator).node == "empty"


def test_a_nomination_that_cannot_be_kept_is_not_waited_for() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a", "b")
    nominator = Nominator()
    pod = urgent()
    nominator.nominate(pod, "a")
    cache.remove_pod(next(p for p in cache.snapshot().info("b").pods.values()))  # type: ignore[union-attr]
    assert scheduler.schedule(pod, cache.snapshot(), nominator).node == "b"


def test_nominated_pods_count_for_anti_affinity() -> None:
    """A filter over counters must see the promised pods in their domain."""
    scheduler, cache = make_scheduler(), Cache()
    cache.add_node(make_node("a", zone="z"))
    cache.add_node(make_node("b", zone="z"))
    alone = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    nominator = Nominator()
    nominator.nominate(urgent("promised", labels={"app": "db"}), "a")
    pod = urgent("new", labels={"app": "db"}, affinity=alone)
    explanation = scheduler.explain(pod, cache.snapshot(), nominator)
    assert explanation.feasible == ("b",)
    assert explanation.rejected["a"].reasons == ("node(s) didn't match pod anti-affinity rules",)


def test_nominated_pods_spare_the_capacity_that_a_preemption_makes() -> None:
    """The victims of one preemptor make room for it, not for the next one."""
    scheduler, cache = make_scheduler(), full_cluster("a")
    nominator, _ = promised(cache, "a")
    decision = scheduler.schedule(urgent("second"), cache.snapshot(), nominator)
    assert victims(decision) == ["a-1"]


# --- who may preempt -----------------------------------------------------------------------


def test_nobody_is_evicted_while_a_victim_is_still_going() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    going = make_pod(
        "a-1", node="a", cpu="1", priority=0, terminating=True, status=VICTIM_STATUS, uid="g"
    )
    cache.add_pod(going)
    decision = scheduler.schedule(urgent(nominated="a"), cache.snapshot())
    assert decision.eviction is None
    assert decision.message().endswith(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert decision.nominated_node is None, "the promise holds"


def test_a_nomination_that_the_status_does_not_show_yet_is_waited_for() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a", "b")
    cache.add_pod(
        make_pod("a-1", node="a", cpu="1", priority=0, terminating=True, status=VICTIM_STATUS)
    )
    nominator, pod = Nominator(), urgent()
    nominator.nominate(pod, "a")
    decision = scheduler.schedule(pod, cache.snapshot(), nominator)
    assert decision.eviction is None
    assert decision.nominated_node is None, "the promise holds"


def test_a_pod_that_goes_for_another_reason_does_not_stop_a_preemption() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    cache.add_pod(make_pod("a-1", node="a", cpu="1", priority=0, terminating=True, uid="g"))
    assert scheduler.schedule(urgent(nominated="a"), cache.snapshot()).eviction is not None


def test_a_nomination_that_nothing_can_keep_is_taken_back() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a", priority=1000)
    decision = scheduler.schedule(urgent(nominated="a"), cache.snapshot())
    assert decision.nominated_node == ""


def test_without_nodes_there_is_no_nomination() -> None:
    decision = make_scheduler().schedule(urgent(nominated="a"), Cache().snapshot())
    assert decision.message() == "no nodes available to schedule pods"
    assert decision.nominated_node == ""


def test_nodes_that_no_eviction_can_help_are_not_tried() -> None:
    scheduler, cache = make_scheduler(), full_cluster("a")
    decision = scheduler.schedule(urgent(cpu="3"), cache.snapshot())
    assert decision.message() == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


# --- the policy's say ----------------------------------------------------------------------

YOUNGEST = '''"""Spares by name. Hooks: victim_key. Reads: labels."""

def victim_key(pod):
    return -int(pod.labels["copy"])
'''


def test_a_users_order_of_victims_beats_the_default() -> None:
    scheduler, cache = make_scheduler({"youngest.star": YOUNGEST}), full_cluster("a", cpu="3")
    assert victims(scheduler.schedule(urgent(), cache.snapshot())) == ["a-0"]


KEEPS = '''"""Keeps pods that say so. Hooks: victim_key. Reads: labels, priority."""

def victim_key(pod):
    if pod.labels.get("keep") == "yes":
        return None
    return -pod.priority
'''
KEPT = {"keep": "yes"}
ONLY_KEPT = "node(s) would fit only without pods that are never evicted"


def keeping(*placed: Pod) -> tuple[Scheduler, Cache]:
    """A node of two cpus with these pods, and a policy that keeps some."""
    cache = Cache()
    cache.add_node(make_node("a", cpu="2"))
    for pod in placed:
        cache.add_pod(pod)
    return make_scheduler({"keeps.star": KEEPS}), cache


def weak(name: str, cpu: str = "1", **words: Any) -> Pod:
    return make_pod(name, **{"node": "a", "cpu": cpu, "priority": 0, **words})


def test_a_pod_without_a_key_is_not_evicted_though_others_matter_more() -> None:
    scheduler, cache = keeping(weak("kept", labels=KEPT), weak("other", priority=50))
    assert victims(scheduler.schedule(urgent(), cache.snapshot())) == ["other"]


@pytest.mark.parametrize(
    ("placed", "cpu", "why"),
    [
        pytest.param([weak("kept", "2", labels=KEPT)], "1", ONLY_KEPT, id="nobody else"),
        pytest.param(
            [weak("kept", labels=KEPT), weak("other")], "2", ONLY_KEPT, id="the others do not do"
        ),
        pytest.param(
            [weak("kept", labels=KEPT), weak("peer", priority=100)],
            "2",
            "Insufficient cpu",
            id="no room even without them",
        ),
        pytest.param(
            [weak("peer", "2", priority=100)],
            "1",
            "No preemption victims found for incoming pod",
            id="nobody is less urgent",
        ),
    ],
)
def test_a_pod_hears_that_those_in_its_way_are_never_evicted(
    placed: list[Pod], cpu: str, why: str
) -> None:
    scheduler, cache = keeping(*placed)
    decision = scheduler.schedule(urgent(cpu=cpu), cache.snapshot())
    assert decision.eviction is None
    assert decision.nominated_node == ""
    assert decision.message().endswith(f"preemption: 0/1 nodes are available: 1 {why}.")
    assert decision.diagnosis.kept_by == ({"keeps": 1} if why == ONLY_KEPT else {})
    assert ("keeps" in decision.diagnosis.rejectors) == (why == ONLY_KEPT)


def test_a_pod_that_is_kept_counts_in_the_dry_run() -> None:
    """With everybody gone the affinity would have nobody to be near."""
    term = {"labelSelector": {"matchLabels": KEPT}, "topologyKey": HOSTNAME}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scheduler, cache = keeping(weak("kept", labels=KEPT), weak("other"))
    pod = urgent(affinity=near)
    assert victims(scheduler.schedule(pod, cache.snapshot())) == ["other"]
    assert make_scheduler().schedule(pod, cache.snapshot()).eviction is None


def test_a_pod_that_is_kept_no_more_is_evicted_for_the_next_one_of_the_class() -> None:
    scheduler, cache = keeping(weak("a1", uid="a1", labels=KEPT), weak("a2", labels=KEPT))
    assert scheduler.schedule(urgent("one"), cache.snapshot()).eviction is None
    cache.add_pod(weak("a1", uid="a1"))
    assert victims(scheduler.schedule(urgent("two"), cache.snapshot())) == ["a1"]
    cache.add_pod(weak("a1", uid="a1", labels=KEPT))
    assert scheduler.schedule(urgent("three"), cache.snapshot()).eviction is None


@pytest.mark.parametrize(
    ("first", "last", "want"),
    [
        pytest.param("keeps", "orders", ["a-1"], id="the last one gives a key"),
        pytest.param("orders", "keeps", None, id="the last one keeps"),
    ],
)
def test_of_several_policies_the_last_ones_none_counts(
    first: str, last: str, want: list[str] | None
) -> None:
    texts = {
        "keeps.star": "def victim_key(pod):\n    return None\n",
        "orders.star": "def victim_key(pod):\n    return pod.name\n",
        "config.yaml": f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {{postFilter: {{enabled: [{{name: {first}}}, {{name: {last}}}]}}}}
""",
    }
    scheduler, cache = make_scheduler(texts), full_cluster("a")
    decision = scheduler.schedule(urgent(), cache.snapshot())
    assert (victims(decision) if want is not None else decision.eviction) == want


def test_an_extender_cannot_name_a_pod_that_is_kept() -> None:
    scheduler, cache = keeping(weak("kept", labels=KEPT), weak("other"))
    cache.add_node(make_node("b", cpu="2"))
    cache.add_pod(weak("b1", "2", node="b"))
    snapshot = cache.snapshot()
    by_name = {pod.name: pod for info in snapshot.infos if info for pod in info.pods.values()}
    kept, other, b1 = by_name["kept"], by_name["other"], by_name["b1"]

    def answered(victims: dict[str, NodeVictims]) -> Decision:
        steps = scheduler.steps(urgent(), snapshot)
        question = next(steps)
        try:
            while True:
                is_last = isinstance(question, ExtenderPreempt)
                question = steps.send(PreemptAnswer(victims) if is_last else unopposed(question))
        except StopIteration as end:
            decision: Decision = end.value.decision
            return decision

    scheduler.has_extenders = True
    both = {"a": NodeVictims((kept, other)), "b": NodeVictims((b1,))}
    assert answered(both).eviction == Eviction("b", (b1,))
    refused = answered({"a": NodeVictims((kept,))})
    assert refused.eviction is None
    assert refused.message().endswith("preemption: no candidate node for preemption")


LAST = '''"""The last node by label. Hooks: candidate_key. Reads: node.labels."""

def candidate_key(node, victims):
    return -int(node.labels["rank"])
'''


def test_a_users_order_of_candidates_beats_the_default() -> None:
    scheduler, cache = make_scheduler({"last.star": LAST}), full_cluster("a", "b", "c")
    for rank, name in enumerate("abc"):
        cache.add_node(make_node(name, cpu="2", labels={"rank": str(rank)}))
    decision = scheduler.schedule(urgent(), cache.snapshot())
    assert decision.eviction is not None
    assert decision.eviction.node == "c"


BROKEN = '''"""Fails. Hooks: victim_key. Reads: labels."""

def victim_key(pod):
    return pod.labels["no such"]
'''


def test_a_policy_that_fails_evicts_no_pod() -> None:
    scheduler, cache = make_scheduler({"broken.star": BROKEN}), full_cluster("a")
    decision = scheduler.schedule(urgent(), cache.snapshot())
    assert decision.eviction is None
    assert not decision.is_error, "the pod is unschedulable whatever preemption says"
    assert "broken.star" in decision.message()
    assert [failure.hook for failure in decision.ignored] == ["victim_key"]


def configured(percentage: int, absolute: int) -> Scheduler:
    return make_scheduler(
        {
            "config.yaml": f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args: {{minCandidateNodesPercentage: {percentage}, minCandidateNodesAbsolute: {absolute}}}
"""
        }
    )


def test_arguments_limit_how_many_candidates_are_tried() -> None:
    """With one candidate the node is the pod's first one; with many it is the best one."""
    nodes = [f"n{i:02}" for i in range(20)]
    cache = full_cluster(*nodes)
    cache.remove_pod(next(p for p in cache.snapshot().info("n07").pods.values()))  # type: ignore[union-attr]
    cache.add_pod(make_pod("unimportant", node="n07", cpu="1", priority=-10))
    pods = [urgent(f"u{i}") for i in range(20)]

    def chosen(scheduler: Scheduler) -> set[str]:
        decisions = [scheduler.schedule(pod, cache.snapshot()) for pod in pods]
        return {d.eviction.node for d in decisions if d.eviction is not None}

    assert chosen(configured(100, 100)) == {"n07"}
    assert len(chosen(configured(0, 1))) > 5


def test_disabled_preemption_says_nothing() -> None:
    scheduler = make_scheduler(
        {
            "config.yaml": """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {postFilter: {disabled: [{name: "*"}]}}
"""
        }
    )
    decision = scheduler.schedule(urgent(), full_cluster("a").snapshot())
    assert decision.eviction is None
    assert decision.message() == "0/1 nodes are available: 1 Insufficient cpu."
    assert decision.nominated_node is None


def test_what_keeps_evictions_from_helping_is_among_the_rejectors() -> None:
    """The room of `a` was in the way, and beside it a pod of its zone that does not go.

    When that pod went, nobody thought of the one that waits for room: it was far from fitting where
    the pod had been.
    """
    term = {"labelSelector": {"matchLabels": {"app": "loud"}}, "topologyKey": ZONE}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scheduler, cache = make_scheduler(), Cache()
    cache.add_node(make_node("a", cpu="2", zone="z"))
    cache.add_node(make_node("b", cpu="1", zone="z"))
    cache.add_pod(weak("small", "2", node="a"))
    loud = make_pod("loud", node="b", priority=100, labels={"app": "loud"})
    cache.add_pod(loud)
    pod = urgent(cpu="2", affinity=apart)
    decision = scheduler.schedule(pod, cache.snapshot())
    assert decision.eviction is None
    rejectors = decision.diagnosis.rejectors
    assert rejectors == {"NodeResourcesFit", "InterPodAffinity"}
    cache.remove_pod(loud)
    hints = Hints.of(scheduler.bundle, cache)
    assert hints.helped(ASSIGNED_POD_DELETE, pod, rejectors, loud, None)
    assert victims(scheduler.schedule(pod, cache.snapshot())) == ["small"]
