"""Attempts at groups: one for all pods, whole or not at all, and preemption for a whole group."""

from typing import Any

import msgspec
import pytest

from engine.core.kernel.events import ObjectChanged
from engine.core.kernel.group_preemption import CLUSTER
from engine.core.kernel.instructions import Evict, ReportDecision, ReportFailure, ReportPodGroup
from engine.core.model import objects as api
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import MOST_TURNS, World, member
from tests.profiles import only

PREEMPTING = {
    "config.yaml": only("NodeResourcesFit", "GangScheduling", "DefaultPreemption")
    + """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
"""
}


def in_group(name: str, group: str = "g", **words: Any) -> Pod:
    spec = {"schedulingGroup": {"podGroupName": group}, **words.pop("spec", {})}
    return make_pod(name, cpu=words.pop("cpu", 1), spec=spec, **words)


def pod_group(min_count: int, name: str = "g", **spec: Any) -> PodGroup:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-uid"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **spec},
    }
    return api.decode(PodGroup, msgspec.json.encode(body))


def grown(cpu: int, files: dict[str, str] | None = None) -> World:
    world = World() if files is None else World(files)
    world.add_node(make_node("n", cpu=cpu))
    return world


def told(world: World) -> dict[str, str]:
    """What each pod was told last."""
    return {
        one.pod.name: one.rejection.message for one in world.done if isinstance(one, ReportFailure)
    }


def conditions(world: World) -> list[tuple[bool, str, str]]:
    return [
        (one.is_scheduled, one.reason, one.message)
        for one in world.done
        if isinstance(one, ReportPodGroup)
    ]


def logged(world: World) -> list[str]:
    reports = [one for one in world.done if isinstance(one, ReportFailure)]
    return [one.rejection.message for one in reports if one.is_logged]


def attempts(world: World, result: str) -> float:
    labels = {"result": result, "profile": "default-scheduler"}
    name = "scheduler_podgroup_schedule_attempts_total"
    return world.registry.get_sample_value(name, labels) or 0.0


def rest(world: World) -> None:
    assert not world.turns(MOST_TURNS)
    world.check()


# --- one attempt for all -------------------------------------------------------------------


def test_one_decision_places_the_whole_group_and_nothing_else() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(3))
    world.add(in_group("a"))
    world.add(make_pod("single", cpu=1))
    world.add(in_group("b"))
    world.add(in_group("c"))
    assert world.turns(1)
    assert [p.pod.name for p in world.bindings] == ["a", "b", "c"]
    assert conditions(world) == [(True, "Scheduled", "")]
    assert attempts(world, "scheduled") == 1


def test_the_pods_of_a_group_are_tried_by_attempts_age_and_name() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("c", "b", "a"):
        world.add(in_group(name))
    world.turns(1)
    tried = [one.pod.name for one in world.done if isinstance(one, ReportDecision)]
    assert tried == ["a", "b", "c"]


def test_what_the_pods_of_a_group_that_does_not_fit_are_told() -> None:
    world = grown(2, PREEMPTING)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c", "d", "e"):
        world.add(in_group(name, cpu=2 if name in "bc" else 1))
    rest(world)
    few = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    victims = "pod group preemption: No preemption victims found for incoming preemptor"
    fitted = f"pod group is unschedulable, {few}, {victims}"
    unfit = "0/1 nodes are available: 1 Insufficient cpu."
    assert told(world) == {"a": fitted, "b": unfit, "c": unfit, "d": fitted, "e": unfit}
    # The log has each of these texts once, not once a pod: a group may have thousands.
    assert logged(world) == [fitted, unfit]
    assert conditions(world)[0] == (False, "Unschedulable", f"{few}, {victims}")
    assert (world.cache.pod_count, attempts(world, "unschedulable")) == (0, 1)


def test_a_pod_that_was_not_tried_is_told_what_ended_the_attempt() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c"):
        world.add(in_group(name))
    rest(world)
    assert told(world)["c"] == "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"


def test_pods_that_do_not_fit_stay_behind_when_enough_do() -> None:
    world = grown(3)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b", "c", "d"):
        world.add(in_group(name))
    rest(world)
    assert {p.pod.name for p in world.bindings} == {"a", "b", "c"}
    assert told(world) == {"d": "0/1 nodes are available: 1 Insufficient cpu."}
    assert conditions(world)[0] == (True, "Scheduled", "")


def test_a_lower_min_count_wakes_the_group() -> None:
    world = grown(2)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c"):
        world.add(in_group(name))
    rest(world)
    assert not world.bindings
    world.put_object(POD_GROUPS, pod_group(2))
    world.wait(11.0)
    rest(world)
    assert len(world.bindings) == 2


def test_a_group_is_gated_while_one_of_its_pods_is() -> None:
    files = only("NodeResourcesFit", "GangScheduling", "SchedulingGates")
    world = grown(8, {"config.yaml": files})
    world.put_object(POD_GROUPS, pod_group(2))
    held = in_group("held", gates=["example.com/wait"], resource_version="1")
    for pod in (in_group("a"), in_group("b"), held):
        world.add(pod)
    rest(world)
    assert not world.bindings
    assert world.queue.describe("default/a")["gated_by"] == "SchedulingGates"
    world.change(in_group("held", uid=held.uid, resource_version="2"))
    rest(world)
    world.turns(1)
    assert {p.pod.name for p in world.bindings} == {"a", "b", "held"}


def test_the_backoff_of_a_group_is_one() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c"):
        world.add(in_group(name))
    rest(world)
    states = [world.queue.describe(f"default/{name}") for name in ("a", "b", "c")]
    assert {state["unschedulable_count"] for state in states} == {1}
    # One of them may fit: all are tried.
    world.add_node(make_node("other", cpu=2))
    world.wait(2.0)
    rest(world)
    assert len(world.bindings) == 3


# --- groups that are wrong -----------------------------------------------------------------


def test_pods_of_two_priorities_are_an_error_of_the_group() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(2, priority=5))
    world.add(in_group("a", priority=5))
    world.add(in_group("b", priority=7))
    rest(world)
    why = (
        "all pods in a single pod group should have the same priority as the pod group's "
        "priority, got 7 and 5"
    )
    assert told(world) == {"a": why, "b": why}
    assert logged(world) == [why]
    assert conditions(world)[0] == (False, "SchedulerError", why)
    assert attempts(world, "error") == 1


def test_pods_of_two_preemption_policies_are_an_error_of_the_group() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(in_group("a"))
    world.add(in_group("b", spec={"preemptionPolicy": "Never"}))
    rest(world)
    assert set(told(world).values()) == {
        "all pods in a single pod group should have the same preemption policy, "
        "got Never and PreemptLowerPriority"
    }


def test_pods_of_another_preemption_policy_than_their_group_are_an_error() -> None:
    """Groups have one only with a gate that is off by default."""
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(1, preemptionPolicy="Never"))
    world.add(in_group("a"))
    rest(world)
    why = (
        "all pods in a single pod group should have the same preemption policy as the pod group's "
        "preemption policy, got PreemptLowerPriority and Never"
    )
    assert told(world) == {"a": why}


@pytest.mark.parametrize(
    ("min_count", "why"),
    [
        pytest.param(0, "gang.minCount: want an int of at least 1, got `0`", id="none"),
        pytest.param(-1, "gang.minCount: want an int of at least 1, got `-1`", id="negative"),
        pytest.param(9, "waiting for minCount pods from a gang to appear", id="too many"),
    ],
)
def test_a_senseless_min_count_is_said_and_harms_no_other_pod(min_count: int, why: str) -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(min_count))
    world.add(in_group("a"))
    world.add(make_pod("single", cpu=1))
    rest(world)
    assert {p.pod.name for p in world.bindings} == {"single"}
    assert why in world.queue.describe("default/a")["gate_reason"]


def test_pods_whose_group_is_deleted_wait_at_the_gate_and_say_so() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    world.report(ObjectChanged(POD_GROUPS, pod_group(2), None))
    rest(world)
    gate = world.queue.describe("default/a")["gate_reason"]
    assert gate == 'waiting for pods\'s pod group "g" to appear in scheduling queue'


# --- preemption ----------------------------------------------------------------------------


def bound(name: str, **words: Any) -> Pod:
    return make_pod(name, node="n", **words)


def evictions(world: World) -> list[Evict]:
    return [one for one in world.done if isinstance(one, Evict)]


def test_a_group_evicts_what_is_in_the_way_of_all_of_it_and_no_more() -> None:
    world = grown(4, PREEMPTING)
    for name, priority in (("small", 1), ("large", 2), ("spared", 3)):
        world.add(bound(name, cpu=1, priority=priority))
    world.put_object(POD_GROUPS, pod_group(3, priority=9))
    for name in ("a", "b", "c"):
        world.add(in_group(name, priority=9))
    rest(world)
    (evict,) = evictions(world)
    assert [pod.name for pod in evict.victims] == ["large", "small"]
    assert (evict.preemption.node, evict.group) == (CLUSTER, "g-uid")
    found = "pod group preemption: found a placement for podgroup, preempting 2 victims"
    assert (
        told(world)["a"] == f"minCount (3) cannot be satisfied: 1 scheduled, 1 remaining, {found}"
    )
    assert {world.queue.nominator.node_of(world.known[name].uid) for name in "abc"} == {"n"}
    assert world.cache.pod_count == 3
    for pod in evict.victims:
        world.delete(pod.name)
    world.come_to_rest()
    assert all(world.known[name].node_name == "n" for name in "abc")
    assert len(evictions(world)) == 1
    assert attempts(world, "waiting_on_preemption") == 1


def test_a_group_that_would_not_fit_anyway_evicts_nothing() -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("small", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(3, priority=9))
    for name in ("a", "b", "c"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert evictions(world) == []
    few = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    why = f"{few}, pod group preemption: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    assert told(world)["a"] == f"pod group is unschedulable, {why}"


def test_a_group_does_not_preempt_pods_of_its_own() -> None:
    """With the priority of its most important pod it replaced the others with each other."""
    text = (
        "def group_of(pod):\n"
        '    return gang("g", min_count = 0, priority = 9) if "own" in pod.labels else None\n'
        "def permit(pod, group):\n    return None\n"
    )
    files = {"g.star": text, "config.yaml": only("NodeResourcesFit", "DefaultPreemption", "g")}
    world = grown(2, files)
    own = {"own": "yes"}
    world.add(make_pod("placed", cpu=1, labels=own, priority=1, node="n"))
    world.add(bound("other", cpu=1, priority=2))
    world.add(make_pod("a", cpu=1, labels=own, priority=1))
    rest(world)
    (evict,) = evictions(world)
    assert [pod.name for pod in evict.victims] == ["other"]


def test_a_group_that_must_not_preempt_does_not() -> None:
    world = grown(2, PREEMPTING)
    world.add(bound("small", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9, spec={"preemptionPolicy": "Never"}))
    rest(world)
    assert evictions(world) == []
    assert told(world)["a"].endswith(
        "pod group preemption: not eligible due to preemptionPolicy=Never."
    )


def test_a_group_that_is_disrupted_as_a_whole_goes_as_a_whole() -> None:
    world = grown(4, PREEMPTING)
    world.add_node(make_node("other", cpu=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=1, disruptionMode={"all": {}}))
    world.add(in_group("g-0", node="n", priority=1, cpu=2))
    world.add(in_group("g-1", node="other", priority=1, cpu=1))
    world.add(bound("single", cpu=2, priority=2))
    for i in range(2):
        world.add(member(f"m-{i}", "m", 2, 1, 5))
    rest(world)
    (evict,) = evictions(world)
    # The single pod is more important; without the group both fit.
    assert [pod.name for pod in evict.victims] == ["g-0", "g-1"]


def test_a_group_waits_at_the_gate_while_its_victims_are_evicted() -> None:
    world = grown(2, PREEMPTING)
    for i in range(2):
        world.add(bound(f"small-{i}", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    kernel = world.kernel
    world.kernel.preemptions.begin(world.known["a"].uid, CLUSTER, [], [world.known["b"].uid])
    world.queue.rekey()
    state = world.queue.describe("default/b")
    assert state["gate_reason"] == "waiting for the preemption for this pod group to be finished"
    assert set(kernel.preemptions.end(world.known["a"].uid)) == {world.known["b"].uid}
    kernel.preemptions.check_invariants()


# --- groups in the way of one pod ----------------------------------------------------------


def two_nodes_with_a_group(mode: str) -> World:
    world = grown(2, PREEMPTING)
    world.add_node(make_node("other", cpu=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=1, disruptionMode={mode: {}}))
    world.add(in_group("g-0", node="n", priority=1))
    world.add(in_group("g-1", node="other", priority=1))
    world.add(bound("single", cpu=1, priority=1))
    return world


@pytest.mark.parametrize(
    ("mode", "victims"),
    [
        pytest.param("single", ["g-0", "single"], id="one by one"),
        pytest.param("all", ["g-0", "g-1", "single"], id="as a whole, on all nodes"),
    ],
)
def test_one_pod_evicts_a_group_by_its_disruption_mode(mode: str, victims: list[str]) -> None:
    world = two_nodes_with_a_group(mode)
    world.add(make_pod("urgent", cpu=2, priority=9))
    rest(world)
    (evict,) = evictions(world)
    assert sorted(pod.name for pod in evict.victims) == victims
    assert evict.group == ""


@pytest.mark.parametrize("going", ["g", "h"])
def test_a_group_on_its_way_out_is_disrupted_no_further(going: str) -> None:
    world = grown(1, PREEMPTING)
    for node in ("n2", "n3", "n4"):
        world.add_node(make_node(node, cpu=1))
    for group, nodes in (("g", ("n", "n2")), ("h", ("n3", "n4"))):
        named = pod_group(2, name=group, priority=1, disruptionMode={"all": {}})
        world.put_object(POD_GROUPS, named)
        for node in nodes:
            world.add(in_group(f"{group}-{node}", group=group, node=node, priority=1))
    evicted = [pod.uid for pod in world.known.values() if pod.name.startswith(going)]
    world.kernel.preemptions.begin("another", CLUSTER, evicted)
    world.add(make_pod("urgent", cpu=1, priority=9))
    rest(world)
    (victim,) = evictions(world)[0].victims
    assert victim.name.startswith(going)


def test_a_group_is_spared_before_a_pod_of_its_priority() -> None:
    world = two_nodes_with_a_group("all")
    world.add(make_pod("urgent", cpu=1, priority=9, spec={"nodeSelector": {"n": "n"}}))
    world.add_node(make_node("n", cpu=2, labels={"n": "n"}))
    rest(world)
    (evict,) = evictions(world)
    assert [pod.name for pod in evict.victims] == ["single"]
