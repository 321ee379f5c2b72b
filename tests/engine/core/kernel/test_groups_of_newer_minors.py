"""Groups as kube-scheduler 1.38 has them: no permit, other words, `PodGroupError`."""

from typing import Any

import pytest

from engine.core.kernel.events import ObjectChanged, VersionChanged
from engine.core.model.pod_group import POD_GROUPS
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, MOST_TURNS, World
from tests.engine.core.kernel.test_decide import answer, ask
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    conditions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)
from tests.engine.core.kernel.test_groups_that_are_wrong import asking, bound, gate
from tests.profiles import only

REJECTED = 'parent pod group "g" is unschedulable'
ERROR = 'parent pod group "g" encountered an error'
UNFIT = "0/1 nodes are available: 1 Insufficient cpu."
VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"
FAILING = {
    "config.yaml": only("NodeResourcesFit", "GangScheduling", "bad"),
    "bad.star": '"""Fails for some."""\n\ndef filter(pod, node):\n'
    '    return pod.labels["x"] if "bad" in pod.labels else None\n',
}


def newer(cpu: int, files: dict[str, str] | None = None) -> World:
    world = grown(cpu, files)
    world.report(VersionChanged(38))
    return world


def test_gates_name_the_group_and_follow_the_version() -> None:
    world = newer(8)
    world.add(in_group("a"))
    rest(world)
    missing = 'pod group "g" or one of its composite pod group ancestors has not been created yet'
    assert gate(world, "a") == missing
    world.put_object(POD_GROUPS, pod_group(2))
    rest(world)
    assert gate(world, "a") == "waiting for podgroup/default/g to meet its quorum"
    world.report(VersionChanged(37))
    rest(world)
    few = "waiting for minCount pods from a gang to appear in scheduling queue"
    assert gate(world, "a") == few
    world.report(ObjectChanged(POD_GROUPS, pod_group(2), None))
    world.report(VersionChanged(38))
    rest(world)
    assert gate(world, "a") == missing


def test_pods_of_a_group_that_does_not_fit_hear_of_the_group() -> None:
    world = newer(2, PREEMPTING)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c", "d", "e"):
        world.add(in_group(name, cpu=2 if name in "bc" else 1))
    rest(world)
    why = (
        "scheduling policy's minimum threshold (3) cannot be satisfied: "
        "2 scheduled, 3 unschedulable, 0 not-evaluated"
    )
    assert told(world) == {"a": REJECTED, "b": UNFIT, "c": UNFIT, "d": REJECTED, "e": UNFIT}
    assert conditions(world)[0] == (False, "Unschedulable", f"{why}, {VICTIMS}")


def test_pods_that_were_not_tried_hear_of_the_group() -> None:
    world = newer(1)
    world.put_object(POD_GROUPS, pod_group(3))
    for name in ("a", "b", "c"):
        world.add(in_group(name))
    rest(world)
    assert told(world) == {"a": REJECTED, "b": UNFIT, "c": REJECTED}
    why = (
        "scheduling policy's minimum threshold (3) cannot be satisfied: "
        "1 scheduled, 1 unschedulable, 1 not-evaluated"
    )
    assert conditions(world) == [(False, "Unschedulable", why)]


def test_pods_that_come_to_a_whole_group_and_fit_nowhere() -> None:
    world = newer(1)
    world.put_object(POD_GROUPS, pod_group(1))
    world.add(in_group("a"))
    rest(world)
    world.add(in_group("b"))
    rest(world)
    assert told(world) == {"b": UNFIT}
    assert conditions(world) == [
        (True, "Scheduled", ""),
        (False, "Unschedulable", "no pods were schedulable"),
    ]


def test_pods_of_a_group_that_waits_for_victims_hear_of_the_group() -> None:
    world = newer(2, PREEMPTING)
    world.add(make_pod("small", cpu=1, priority=1, node="n"))
    world.put_object(POD_GROUPS, pod_group(2, priority=5))
    for name in ("a", "b"):
        world.add(in_group(name, priority=5))
    assert world.turns(1)
    assert told(world) == {"a": REJECTED, "b": UNFIT}
    text = conditions(world)[0][2]
    assert text.endswith(
        "pod group preemption: found a placement for podgroup, preempting 1 victims"
    )


def test_an_error_of_one_pod_is_the_groups_and_its_own_alone() -> None:
    world = newer(8, FAILING)
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(in_group("a"))
    world.add(in_group("b", labels={"bad": ""}))
    world.add(in_group("c"))
    rest(world)
    said = told(world)
    assert (said["a"], said["c"]) == (ERROR, ERROR)
    assert said["b"].startswith("bad.star:4: filter() failed")
    assert conditions(world)[0] == (
        False,
        "SchedulerError",
        f"failed to schedule other pod from a pod group: {said['b']}",
    )


@pytest.mark.parametrize(
    ("group", "pods", "why"),
    [
        pytest.param(
            {"priority": 5},
            {"a": {"priority": 5}, "b": {"priority": 7}},
            "all pods in a pod group hierarchy should have the same priority as the root pod "
            'group\'s priority, got 7 ("b") and 5 ("podgroup/default/g")',
            id="priorities",
        ),
        pytest.param(
            {},
            {"a": {}, "b": {"spec": {"preemptionPolicy": "Never"}}},
            "all pods in a pod group hierarchy should have the same preemption policy, "
            'got Never ("b") and PreemptLowerPriority',
            id="preemption policies",
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            {"a": {}, "b": {"spec": {"preemptionPolicy": "Never"}}},
            "all pods in a pod group hierarchy should have the same preemption policy, "
            'got PreemptLowerPriority ("a") and Never',
            id="the preemption policy of the group",
        ),
    ],
)
def test_pods_that_differ_are_an_error_that_names_them(
    group: dict[str, Any], pods: dict[str, dict[str, Any]], why: str
) -> None:
    world = newer(8)
    world.put_object(POD_GROUPS, pod_group(2, **group))
    for name, words in pods.items():
        world.add(in_group(name, **words))
    rest(world)
    assert told(world) == {"a": why, "b": why}
    assert conditions(world)[0] == (False, "PodGroupError", why)


def test_a_group_that_is_split_between_two_profiles_names_a_pod_of_each() -> None:
    second = "- schedulerName: second" + CONFIG.split("- schedulerName: default-scheduler", 1)[1]
    world = newer(4, {"config.yaml": CONFIG + "\n" + second})
    world.put_object(POD_GROUPS, pod_group(1))
    world.add(in_group("a"))
    world.add(in_group("b", spec={"schedulerName": "second"}))
    assert not world.turns(MOST_TURNS)
    why = (
        "all pods in a pod group hierarchy should have the same .spec.schedulerName set, "
        'got: "second" ("b") and "default-scheduler" ("a")'
    )
    assert told(world)["a"] == why
    assert conditions(world)[0] == (False, "PodGroupError", why)


@pytest.mark.parametrize(("minor", "placed"), [(37, set()), (38, {"a", "b"})])
@pytest.mark.parametrize("later", [None, 3])
def test_what_becomes_of_a_group_after_it_was_decided_changes_nothing(
    minor: int, placed: set[str], later: int | None
) -> None:
    world = asking()
    world.report(VersionChanged(minor))
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    turn, _ = ask(world)
    if later is None:
        world.report(ObjectChanged(POD_GROUPS, pod_group(2), None))
    else:
        world.put_object(POD_GROUPS, pod_group(later))
    answer(turn)
    assert bound(world) == placed
    world.check()


def test_two_nodes_are_enough_for_what_one_is_not() -> None:
    """The threshold counts pods of earlier attempts."""
    world = newer(1)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    world.add_node(make_node("m", cpu=1))
    world.wait(2.0)
    rest(world)
    assert conditions(world)[-1] == (True, "Scheduled", "")
