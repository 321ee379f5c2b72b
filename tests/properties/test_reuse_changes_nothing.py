"""Reuse beside none: a scheduler that remembers decides as one that was just made.

The one that remembers follows a cluster that changes at random; the other is new for each pod, over
a cache that is filled anew in another order, so that it has no slot, no table, no counter and no
total in common with the first. Every decision must be the same, to the last letter.
"""

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.caching.cache import Cache
from engine.model.node import Node
from engine.model.objects import (
    LabelSelector,
    Namespace,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    Service,
    ServiceSpec,
)
from engine.model.pod import Pod
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.queueing.nominator import Nominator
from engine.scheduling.decision import Decision, Explanation
from engine.scheduling.scheduling_cycle import Scheduler
from tests.builders import HOSTNAME, ZONE, make_node, make_pod, taint, toleration

NODES = [f"n{i}" for i in range(6)]
WEB = {"matchLabels": {"app": "web"}}


def _anti(key: str) -> dict[str, Any]:
    term = {"labelSelector": WEB, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _near(key: str, *, required: bool) -> dict[str, Any]:
    term = {"labelSelector": WEB, "topologyKey": key, "namespaceSelector": {}}
    if required:
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wish = {"weight": 7, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _on(*values: str) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _spread(key: str, action: str, **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": WEB,
        **more,
    }


PODS: dict[str, dict[str, Any]] = {
    "plain": {"cpu": "500m", "memory": "1Gi"},
    "best effort": {},
    "large": {"cpu": "3", "memory": "5Gi"},
    "web": {"labels": {"app": "web"}, "cpu": "100m"},
    "tolerant": {"tolerations": [toleration("dedicated")], "cpu": "100m"},
    "in zone a": {"affinity": _on("a"), "cpu": "100m"},
    "on one node": {"node_selector": {HOSTNAME: "n1"}},
    "with a port": {"ports": [8080]},
    "with an image": {"image": "registry.example/web:1", "cpu": "100m"},
    "alone on its host": {"labels": {"app": "web"}, "affinity": _anti(HOSTNAME)},
    "alone in its zone": {"labels": {"app": "web"}, "affinity": _anti(ZONE)},
    "near web": {"affinity": _near(ZONE, required=True)},
    "rather near web": {"affinity": _near(ZONE, required=False), "cpu": "100m"},
    "spread": {"labels": {"app": "web"}, "topology_spread": [_spread(ZONE, "DoNotSchedule")]},
    "spread where it may run": {
        "labels": {"app": "web"},
        "affinity": _on("a", "b"),
        "topology_spread": [
            _spread(ZONE, "DoNotSchedule", nodeTaintsPolicy="Honor"),
            _spread(HOSTNAME, "ScheduleAnyway"),
        ],
    },
    "rather spread": {
        "labels": {"app": "web"},
        "topology_spread": [_spread(ZONE, "ScheduleAnyway")],
    },
    "judged alone": {"annotations": {"fussy": "yes"}, "cpu": "100m"},
}

PRIORITIES = [0, 0, 10, 100]

# A user's policies: reuse must hold for what the runtime does not know, too.
FUSSY = '''"""Likes some nodes. Hooks: counters, filter, score, normalize. Reads: labels, counts."""

_ZONE = "topology.kubernetes.io/zone"

def counters(pod):
    return [count_pods(_ZONE, labels = {"app": "web"}, namespaces = ["default"])]

def filter(pod, node):
    if pod.annotations.get("fussy") and node.labels.get("color") == "red":
        return "node(s) were red"
    return None

def score(pod, node, counts):
    if node.labels.get("color") == None:
        return None
    return 3 * (counts[0].here or 0) - counts[0].total

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


def _bundles() -> list[Bundle]:
    files = [{}, {"fussy.star": FUSSY}, {"fussy.star": FUSSY, "picky.star": PICKY}]
    return [build_bundle(f) for f in files]


BUNDLES = _bundles()
EVALUATORS = [InProcessEvaluator(bundle.program) for bundle in BUNDLES]


class ReuseChangesNothing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.namespaces = {"default": {"team": "a"}, "other": {"team": "b"}}
        self.services: list[Service] = []
        self.budgets: dict[str, int] = {}
        self.nominator = Nominator()
        self.next_uid = 0
        self.revision = 0
        self.scheduler = Scheduler(BUNDLES[0], EVALUATORS[0])
        self.shuffle = random.Random(7)
        self._fill_objects(self.cache)

    def _fill_objects(self, cache: Cache) -> None:
        for name, labels in self.namespaces.items():
            cache.objects.put("namespaces", Namespace(ObjectMeta(name=name, labels=labels)))
        for service in self.services:
            cache.objects.put("services", service)
        for app, allowed in self.budgets.items():
            budget = PodDisruptionBudget(
                ObjectMeta(name=app, namespace="default"),
                PodDisruptionBudgetSpec(LabelSelector({"app": app})),
                PodDisruptionBudgetStatus(allowed),
            )
            cache.objects.put("poddisruptionbudgets", budget)

    # --- the cluster changes -------------------------------------------------------------------

    @initialize(zones=st.lists(st.sampled_from(["a", "b"]), min_size=3, max_size=3))
    def start_with_nodes(self, zones: list[str]) -> None:
        for i, zone in enumerate(zones):
            self._put_node(make_node(NODES[i], zone=zone))

    def _put_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.cache.add_node(node)

    @rule(
        name=st.sampled_from(NODES),
        zone=st.sampled_from(["a", "b", "c", None]),
        color=st.sampled_from(["red", "blue", None]),
        cpu=st.sampled_from(["1", "4", "8"]),
        tainted=st.sampled_from([None, "NoSchedule", "PreferNoSchedule"]),
        cordoned=st.booleans(),
        has_image=st.booleans(),
    )
    def put_node(
        self,
        name: str,
        zone: str | None,
        color: str | None,
        cpu: str,
        tainted: str | None,
        cordoned: bool,
        has_image: bool,
    ) -> None:
        self._put_node(
            make_node(
                name,
                cpu=cpu,
                zone=zone,
                labels={"color": color} if color else {},
                taints=[taint("dedicated", effect=tainted)] if tainted else [],
                unschedulable=cordoned,
                images={"registry.example/web:1": 300 << 20} if has_image else None,
            )
        )

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.cache.remove_node(name)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        pod = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        self.cache.remove_pod(pod)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), kind=st.sampled_from(sorted(PODS)), terminating=st.booleans())
    def change_pod(self, data: st.DataObject, kind: str, terminating: bool) -> None:
        """Also a resize, a relabelling, and the beginning of its end."""
        old = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        words = {**PODS[kind], "node": old.node_name, "terminating": terminating}
        words["priority"] = old.priority
        pod = make_pod(old.name, old.namespace, uid=old.uid, **words)
        self.pods[old.uid] = pod
        self.cache.update_pod(pod)

    @rule(namespace=st.sampled_from(["default", "other"]), team=st.sampled_from(["a", "b"]))
    def relabel_namespace(self, namespace: str, team: str) -> None:
        self.namespaces[namespace] = {"team": team}
        self._fill_objects(self.cache)

    @precondition(lambda self: not self.services)
    @rule()
    def add_service(self) -> None:
        meta = ObjectMeta(name="web", namespace="default")
        self.services.append(Service(meta, ServiceSpec({"app": "web"})))
        self._fill_objects(self.cache)

    @rule(allowed=st.integers(0, 2))
    def set_budget(self, allowed: int) -> None:
        self.budgets["web"] = allowed
        self._fill_objects(self.cache)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), kind=st.sampled_from(sorted(PODS)), priority=st.sampled_from(PRIORITIES))
    def promise(self, data: st.DataObject, kind: str, priority: int) -> None:
        """Another pod was promised a node, or what was promised before is taken back."""
        if len(self.nominator) > 2:
            self.nominator.remove(next(iter(self.nominator)).uid)
        uid = f"u{self.next_uid}"
        self.next_uid += 1
        pod = make_pod(uid, uid=uid, **PODS[kind], priority=priority)
        self.nominator.nominate(pod, data.draw(st.sampled_from(sorted(self.nodes))))

    @rule(revision=st.integers(0, len(BUNDLES) - 1))
    def reload(self, revision: int) -> None:
        self.revision = revision
        self.scheduler = Scheduler(BUNDLES[revision], EVALUATORS[revision])

    # --- the same decision ---------------------------------------------------------------------

    def _fresh(self) -> tuple[Scheduler, Cache]:
        cache = Cache()
        self._fill_objects(cache)
        nodes, pods = list(self.nodes.values()), list(self.pods.values())
        self.shuffle.shuffle(nodes)
        self.shuffle.shuffle(pods)
        for node in nodes:
            cache.add_node(node)
        for pod in pods:
            cache.add_pod(pod)
        return Scheduler(BUNDLES[self.revision], EVALUATORS[self.revision]), cache

    @rule(
        kind=st.sampled_from(sorted(PODS)),
        namespace=st.sampled_from(["default", "other"]),
        priority=st.sampled_from(PRIORITIES),
        place=st.booleans(),
    )
    def schedule(self, kind: str, namespace: str, priority: int, place: bool) -> None:
        uid = f"u{self.next_uid}"
        self.next_uid += 1
        pod = make_pod(uid, namespace, uid=uid, **PODS[kind], priority=priority)
        fresh, cache = self._fresh()
        want = fresh.explain(pod, cache.snapshot(), self.nominator)
        got = self.scheduler.schedule(pod, self.cache.snapshot(), self.nominator)
        # How often the scheduler explains must not matter either.
        again = self.scheduler.explain(pod, self.cache.snapshot(), self.nominator)
        assert _plain(again) == _plain(want)
        assert _outcome(got) == _outcome(want.decision)
        assert not got.failures, got.failures
        if got.node is not None and place:
            assumed = self.cache.assume(pod, got.node)
            self.pods[uid] = assumed
            self.cache.add_pod(assumed)


def _plain(explanation: Explanation) -> Any:
    decision = explanation.decision
    rows = {
        row.policy: dict(
            zip(explanation.feasible, zip(row.raw, row.normalized, strict=True), strict=True)
        )
        for row in explanation.scores
    }
    totals = dict(zip(explanation.feasible, explanation.totals, strict=True))
    return _outcome(decision), dict(explanation.rejected), rows, totals


def _outcome(decision: Decision) -> Any:
    eviction = decision.eviction
    victims = None if eviction is None else (eviction.node, [p.key for p in eviction.victims])
    return decision.node, decision.message(), decision.failures, victims, decision.nominated_node


TestReuseChangesNothing = ReuseChangesNothing.TestCase
TestReuseChangesNothing.settings = settings(max_examples=60, stateful_step_count=40)
