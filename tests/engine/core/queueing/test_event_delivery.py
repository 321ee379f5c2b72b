"""Which pods an event reaches: those that are alike, those in flight, up to a priority."""

import random
from typing import Any

import pytest

from engine.core.model.event_kinds import ASSIGNED_POD
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    NODE_ADD,
    ClusterEvent,
)
from engine.core.queueing.hints import Hints, labels_looked_at
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.unschedulable_pods import UnschedulablePods, traits
from tests.builders import make_node, make_pod
from tests.engine.core.queueing.test_scheduling_queue import FIT, Bench
from tests.searching import part_of

# --- pods that are alike -----------------------------------------------------------------------


class CountingHints(Hints):
    """Hints that count how often they are asked about a pod."""

    asked = 0

    def helped(self, *args: Any, **words: Any) -> str | None:
        self.asked += 1
        return super().helped(*args, **words)


def test_an_event_is_judged_once_for_pods_that_are_alike() -> None:
    hints = CountingHints()
    bench = Bench(hints=hints)
    for i in range(20):
        bench.reject(make_pod(f"p{i}", cpu="1" if i % 2 else "2", labels={"app": "a"}))
    hints.asked = 0
    assert bench.queue.move(NODE_ADD, None, make_node("n", cpu="1")) == 10
    assert hints.asked == 2
    assert sum(bench.place(make_pod(f"p{i}")) == "unschedulable" for i in range(20)) == 10


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"cpu": "2"}, id="requests"),
        pytest.param({"namespace": "other"}, id="namespace"),
        pytest.param({"priority": 1}, id="priority"),
        pytest.param({"ports": [80]}, id="ports"),
        pytest.param({"node_selector": {"a": "b"}}, id="node selector"),
        pytest.param({"owner": {"kind": "ReplicaSet", "name": "r", "uid": "r"}}, id="owner"),
        pytest.param({"scheduler_name": "other"}, id="profile"),
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, id="claims"
        ),
        pytest.param({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, id="group"),
        pytest.param(
            {"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "x"}]}},
            id="made claims",
        ),
    ],
)
def test_pods_that_events_may_affect_differently_are_not_alike(words: dict[str, Any]) -> None:
    assert traits(make_pod("p", **{"cpu": "1", **words})) != traits(make_pod("p", cpu="1"))


def test_pods_of_one_workload_are_alike() -> None:
    def pod(name: str) -> Pod:
        token = {"name": f"kube-api-access-{name}", "projected": {}}
        created = "2026-01-01T00:00:00Z"
        return make_pod(name, cpu="1", labels={"pod": name}, volumes=[token], created=created)

    assert traits(pod("a")) == traits(pod("b"))


def near(**labels: str) -> dict[str, Any]:
    term = {"topologyKey": "z", "labelSelector": {"matchLabels": labels}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


AFFINITY, SPREADING = frozenset({"InterPodAffinity"}), frozenset({"PodTopologySpread"})
WITH_REVISION = {
    "maxSkew": 1,
    "topologyKey": "z",
    "whenUnsatisfiable": "DoNotSchedule",
    "matchLabelKeys": ["revision"],
}


@pytest.mark.parametrize(
    ("rejectors", "words", "looked_at"),
    [
        pytest.param(FIT, {}, set(), id="capacity"),
        pytest.param(AFFINITY, {}, set(), id="affinity of others"),
        pytest.param(AFFINITY, {"affinity": {"podAffinity": near(app="a")}}, {"app"}, id="own"),
        pytest.param(SPREADING, {}, {"app", "pod", "revision"}, id="default constraints"),
        pytest.param(
            SPREADING,
            {"topology_spread": [WITH_REVISION]},
            {"revision"},
            id="label keys",
        ),
        pytest.param(
            AFFINITY | SPREADING | FIT,
            {"affinity": {"podAffinity": near(app="a")}, "topology_spread": [WITH_REVISION]},
            {"app", "revision"},
            id="several",
        ),
    ],
)
def test_labels_that_no_hint_looks_at_make_no_difference(
    rejectors: frozenset[str], words: dict[str, Any], looked_at: set[str]
) -> None:
    pod = make_pod("p", labels={"app": "a", "pod": "p", "revision": "1"}, **words)
    assert {key for key, _ in labels_looked_at(pod, rejectors)} == looked_at


def test_pods_that_wait_for_capacity_are_judged_once_whatever_their_labels() -> None:
    hints = CountingHints()
    bench = Bench(hints=hints)
    for i in range(20):
        bench.reject(make_pod(f"p{i}", cpu="1", labels={"pod": f"p{i}"}))
    hints.asked = 0
    assert bench.queue.move(NODE_ADD, None, make_node("n", cpu="1")) == 20
    assert hints.asked == 1


def test_a_pod_that_kept_away_from_a_label_frees_those_that_have_it() -> None:
    bench = Bench()
    for i in range(4):
        bench.reject(make_pod(f"p{i}", labels={"pod": f"p{i}"}), AFFINITY)
    gone = make_pod("gone", node="n", affinity={"podAntiAffinity": near(pod="p2")})
    assert bench.queue.move(ASSIGNED_POD_DELETE, gone, None) == 1
    assert [bench.place(make_pod(f"p{i}")) == "backoff" for i in range(4)] == [
        False,
        False,
        True,
        False,
    ]


def test_a_placed_pod_is_judged_by_the_pods_that_wait_for_its_labels_alone() -> None:
    hints = CountingHints()
    bench = Bench(hints=hints)
    for i in range(50):
        affinity = {"podAffinity": near(app=f"a{i}")}
        bench.reject(make_pod(f"p{i}", affinity=affinity), AFFINITY)
    hints.asked = 0
    placed = make_pod("x", node="n", labels={"app": "a7", "tier": "web"})
    assert bench.queue.move(ASSIGNED_POD_ADD, None, placed) == 1
    assert bench.place(make_pod("p7")) == "backoff"
    assert hints.asked == 1


@pytest.mark.parametrize("seed", part_of(range(5)))
def test_an_event_helps_the_pods_that_it_helps_when_each_is_asked(seed: int) -> None:
    rng = random.Random(seed)

    def some(**more: Any) -> dict[str, Any]:
        # One in four selectors is malformed, and what it selects unknown.
        operator = rng.choice(["In", "Exists", "NotIn", "Odd"])
        values = ["a"] if operator in ("In", "NotIn") else []
        expression = {"key": "app", "operator": operator, "values": values}
        selector = rng.choice(
            [{"matchLabels": {"app": rng.choice("abc")}}, {"matchExpressions": [expression]}]
        )
        return {"topologyKey": "z", "labelSelector": selector, **more}

    def affinity() -> dict[str, Any]:
        sides = rng.sample(["podAffinity", "podAntiAffinity"], rng.randint(0, 2))
        return {
            side: {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    some() for _ in range(rng.randint(1, 2))
                ]
            }
            for side in sides
        }

    def labels() -> dict[str, str]:
        return {key: rng.choice("abc") for key in rng.sample(["app", "tier"], rng.randint(0, 2))}

    hints = Hints()
    for turn in range(40):
        bench = Bench(hints=hints)
        waiting = {
            f"p{i}": make_pod(f"p{i}", labels=labels(), affinity=affinity()) for i in range(30)
        }
        rejectors = {
            name: rng.choice([AFFINITY, AFFINITY, AFFINITY | SPREADING, FIT]) for name in waiting
        }
        for name, pod in waiting.items():
            bench.reject(pod, rejectors[name])
        old, new = (
            make_pod("x", uid="x", node="n", labels=labels(), affinity=affinity()) for _ in "on"
        )
        event, before, after = rng.choice(
            [
                (ASSIGNED_POD_ADD, None, new),
                (ASSIGNED_POD_DELETE, old, None),
                (ClusterEvent(ASSIGNED_POD, "UpdatePodLabel"), old, new),
            ]
        )
        wanted = {
            name
            for name, pod in waiting.items()
            if hints.helped(event, pod, rejectors[name], before, after) is not None
        }
        bench.queue.move(event, before, after)
        bench.queue.check_invariants()
        moved = {name for name, pod in waiting.items() if bench.place(pod) == "backoff"}
        assert moved == wanted, turn


def test_a_claim_that_is_named_after_its_pod_makes_a_difference() -> None:
    volume = {"name": "scratch", "ephemeral": {}}
    one, other = (make_pod(name, volumes=[volume]) for name in ("a", "b"))
    assert traits(one) != traits(other)


def test_an_update_of_a_waiting_pod_is_judged_from_then_on() -> None:
    bench = Bench()
    pod = make_pod("p", uid="u", resource_version="1", node_selector={"a": "b"})
    bench.reject(pod, frozenset({"InterPodAffinity"}))
    bench.reject(make_pod("q", node_selector={"a": "b"}), frozenset({"InterPodAffinity"}))
    wants = {"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "a"}}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [wants]}
    bench.queue.update(
        pod,
        make_pod("p", uid="u", resource_version="2", affinity={"podAffinity": terms}),
    )
    assert bench.place(pod) == "unschedulable"
    placed = make_pod("x", node="n", labels={"app": "a"})
    assert bench.queue.move(ASSIGNED_POD_ADD, None, placed) == 1
    assert bench.place(pod) == "backoff"


def test_waits_are_found_in_the_order_in_which_they_began() -> None:
    pods = UnschedulablePods()
    queued = [QueuedPod(make_pod(f"p{i}"), (), 0.0, i, rejectors=FIT) for i in range(3)]
    for at, one in enumerate(queued):
        one.moved_at = float(at)
        pods.add(one)
    pods.remove(queued[0])
    queued[0].moved_at = 5.0
    pods.add(queued[0])
    pods.check_invariants()
    assert pods.oldest() == 1.0
    assert pods.held_since(2.0) == [queued[1], queued[2]]
    for one in queued:
        pods.remove(one)
    pods.check_invariants()
    assert pods.oldest() is None


# --- pods in flight ----------------------------------------------------------------------------


def test_events_that_no_plugin_is_interested_in_are_not_held() -> None:
    """A pod may wait for leave for minutes while kubelets report the status of every other."""
    bench = Bench()
    bench.queue.add(make_pod("p"))
    queued = bench.pop()
    running = make_pod("x", node="n", phase="Running")
    bench.queue.move(ASSIGNED_POD_UPDATE, make_pod("x", node="n"), running)
    assert bench.queue.in_flight_events().total() == 0
    bench.queue.move(ASSIGNED_POD_DELETE, running, None)
    assert bench.queue.in_flight_events().total() == 1
    bench.queue.done(queued.uid)
    bench.queue.check_invariants()


@pytest.mark.parametrize(
    ("rejector", "want"),
    [
        pytest.param("NodeName", "unschedulable", id="known not to care"),
        pytest.param("SomethingElse", "backoff", id="nothing is known of it"),
    ],
)
def test_what_was_not_held_may_have_helped_where_nothing_is_known(rejector: str, want: str) -> None:
    bench = Bench()
    bench.queue.add(make_pod("p"))
    queued = bench.pop()
    bench.queue.move(ASSIGNED_POD_UPDATE, make_pod("x", node="n"), make_pod("x", node="n"))
    bench.queue.requeue(queued, frozenset({rejector}))
    assert bench.place(queued.pod) == want


def test_an_event_up_to_a_priority_is_held_with_it() -> None:
    for priority, want in ((5, "backoff"), (6, "unschedulable")):
        bench = Bench()
        bench.queue.add(make_pod("p", priority=priority))
        queued = bench.pop()
        gone = make_pod("x", node="n")
        bench.queue.move(ASSIGNED_POD_DELETE, gone, None, max_priority=5)
        bench.queue.requeue(queued, FIT)
        assert bench.place(queued.pod) == want


def test_capacity_is_checked_when_the_attempt_ends() -> None:
    """What came free during the attempt may be taken again: then there is nothing to retry for."""
    infos = {"n": NodeInfo("n", make_node("n", cpu="1"))}
    for taken, want in ((False, "backoff"), (True, "unschedulable")):
        bench = Bench(hints=Hints(node_info=infos.get))
        infos["n"] = NodeInfo("n", make_node("n", cpu="1"))
        bench.queue.add(make_pod("p", cpu="1"))
        queued = bench.pop()
        bench.queue.move(ASSIGNED_POD_DELETE, make_pod("x", node="n", cpu="1"), None)
        if taken:
            infos["n"] = infos["n"].with_pod(make_pod("y", node="n", cpu="1"))
        bench.queue.requeue(queued, FIT)
        assert bench.place(queued.pod) == want


# --- one pod alone, and the pod itself ---------------------------------------------------------


def test_a_pod_does_not_help_itself() -> None:
    bench = Bench()
    first, second = make_pod("first"), make_pod("second")
    bench.reject(first)
    bench.reject(second)
    assert bench.queue.move(ASSIGNED_POD_DELETE, second.with_node("n"), None) == 1
    assert bench.place(first) == "backoff"
    assert bench.place(second) == "unschedulable"


# --- gates -------------------------------------------------------------------------------------


def test_a_plugin_s_gate_is_asked_again_on_the_events_that_it_registered_alone() -> None:
    gate: dict[str, tuple[str, str]] = {"p": ("DynamicResources", "no claim yet")}
    bench = Bench(pre_enqueue=lambda pod: gate.get(pod.name))
    pod = make_pod("p", uid="u", resource_version="1")
    bench.queue.add(pod)
    gate.clear()
    assert bench.queue.move(ASSIGNED_POD_ADD, None, make_pod("x", node="n")) == 0
    assert bench.place(pod) == "gated"
    made = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "x"}]}
    # Only the status has changed, which is news to this gate.
    bench.queue.update(pod, make_pod("p", uid="u", resource_version="2", status=made))
    assert bench.place(pod) == "active"


def test_no_event_opens_the_gate_of_a_preemption() -> None:
    gate: dict[str, tuple[str, str]] = {"p": ("DefaultPreemption", "under way")}
    bench = Bench(pre_enqueue=lambda pod: gate.get(pod.name))
    pod = make_pod("p")
    bench.queue.add(pod)
    gate.clear()
    for event, old, new in (
        (ASSIGNED_POD_DELETE, make_pod("x", node="n"), None),
        (NODE_ADD, None, make_node("n")),
    ):
        assert bench.queue.move(event, old, new) == 0
    assert bench.queue.activate([pod.uid]) == 1
    assert bench.place(pod) == "active"


# --- nominations that are lost -----------------------------------------------------------------


def lost_to(bench: Bench, priority: int = 0) -> Pod:
    """A pod that was rejected because room was kept for another."""
    pod = make_pod("low", priority=priority)
    bench.reject(pod)
    return pod


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param("", "backoff", id="taken back"),
        pytest.param("m", "backoff", id="of another node"),
        pytest.param("n", "unschedulable", id="of the same node again"),
    ],
)
def test_a_nomination_that_is_replaced_wakes_pods_that_left_capacity_to_it(
    node: str, want: str
) -> None:
    bench = Bench()
    low, high = lost_to(bench), make_pod("high", priority=5)
    bench.queue.nominator.nominate(high, "n")
    bench.queue.nominator.nominate(high, node)
    assert bench.place(low) == want


@pytest.mark.parametrize(("priority", "want"), [(5, "backoff"), (6, "unschedulable")])
def test_a_nomination_does_not_matter_to_pods_of_higher_priority(priority: int, want: str) -> None:
    bench = Bench()
    low, high = lost_to(bench, priority), make_pod("high", priority=5)
    bench.queue.nominator.nominate(high, "n")
    bench.queue.nominator.nominate(high, "")
    assert bench.place(low) == want


@pytest.mark.parametrize(
    ("placed_on", "want"), [("n", "unschedulable"), ("m", "backoff"), ("", "backoff")]
)
def test_a_nomination_that_comes_true_frees_nothing(placed_on: str, want: str) -> None:
    bench = Bench()
    low, high = lost_to(bench), make_pod("high", priority=5)
    bench.queue.nominator.nominate(high, "n")
    bench.queue.nominator.remove(high.uid, placed_on=placed_on)
    assert bench.place(low) == want


def test_a_lost_nomination_is_recorded_for_pods_in_flight() -> None:
    bench = Bench()
    bench.queue.add(make_pod("low"))
    queued, high = bench.pop(), make_pod("high", priority=5)
    bench.queue.nominator.nominate(high, "n")
    bench.queue.nominator.nominate(high, "")
    bench.queue.requeue(queued, FIT)
    assert bench.place(queued.pod) == "backoff"
