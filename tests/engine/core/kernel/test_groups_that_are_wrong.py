"""Groups that make no sense, or stop making sense: their pods say so, and no other pod suffers."""

import contextlib
from typing import Any

import msgspec
import pytest

from engine.core.kernel.events import ObjectChanged
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS
from engine.core.scheduling.extenders import FilterAnswer
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, MOST_TURNS, World, member
from tests.engine.core.kernel.test_decide import EXTENDER, answer, ask
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    attempts,
    conditions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)

GONE = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


def asking() -> World:
    """A world whose attempts last as long as an extender takes."""
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    return world


def gate(world: World, name: str) -> str:
    return str(world.queue.describe(f"default/{name}")["gate_reason"])


def bound(world: World) -> set[str]:
    return {placement.pod.name for placement in world.bindings}


# --- in the middle of an attempt ---------------------------------------------------------------


def test_a_group_that_is_deleted_while_it_is_tried_is_not_placed() -> None:
    world = asking()
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    turn, _ = ask(world)
    world.report(ObjectChanged(POD_GROUPS, pod_group(2), None))
    answer(turn)
    world.wait(11.0)
    assert (world.bindings, world.cache.pod_count) == ([], 0)
    assert {gate(world, name) for name in ("a", "b")} == {GONE}
    world.check()
    world.put_object(POD_GROUPS, pod_group(2))  # it is back
    turn, _ = ask(world)
    answer(turn)
    assert bound(world) == {"a", "b"}


def test_a_group_that_needs_more_pods_while_it_is_tried_is_not_placed() -> None:
    world = asking()
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    turn, _ = ask(world)
    world.put_object(POD_GROUPS, pod_group(3))
    answer(turn)
    world.wait(11.0)
    assert (world.bindings, world.cache.pod_count) == ([], 0)
    assert {gate(world, name) for name in ("a", "b")} == {TOO_FEW}
    world.check()


def test_a_pod_that_leaves_its_group_while_it_is_tried_is_not_placed_with_it() -> None:
    """The API server refuses such a change; a restored one may show it."""
    world = asking()
    world.put_object(POD_GROUPS, pod_group(2))
    pods = {name: in_group(name) for name in ("a", "b")}
    for pod in pods.values():
        world.add(pod)
    turn, tried = ask(world)
    other = next(name for name in pods if name != tried)
    world.change(in_group(other, "elsewhere", uid=pods[other].uid, resource_version="2"))
    answer(turn)
    world.wait(11.0)
    assert (world.bindings, world.cache.pod_count) == ([], 0)
    assert gate(world, tried) == TOO_FEW
    assert gate(world, other) == GONE.replace('"g"', '"elsewhere"')
    world.check()


@pytest.mark.parametrize("is_node", [True, False], ids=["the node", "the pod"])
@pytest.mark.parametrize(
    ("min_count", "want"),
    [
        pytest.param(1, {"b"}, id="the others are enough"),
        pytest.param(2, set(), id="the others are too few"),
    ],
)
def test_a_pod_that_loses_its_node_or_goes_while_others_of_its_group_are_tried(
    min_count: int, want: set[str], is_node: bool
) -> None:
    world = asking()
    world.add_node(make_node("n2", cpu=4))
    world.put_object(POD_GROUPS, pod_group(min_count))
    for name in ("a", "b"):
        world.add(in_group(name))
    turn, tried = ask(world)
    assert tried == "a"
    assert turn.send(FilterAnswer(("n1",))).pod.name == "b"
    if is_node:
        world.delete_node(make_node("n1", cpu=4))
    else:
        world.delete("a")
    with contextlib.suppress(StopIteration):
        turn.send(FilterAnswer(("n2",)))
    world.check()
    assert bound(world) == want
    assert world.cache.pod_count == len(want)
    if is_node:
        # No event has to come: it waits for its backoff alone.
        assert told(world)["a"] == "node `n1` is gone"
        assert world.queue.describe("default/a")["queue"] == "backoff"
    else:
        assert "a" not in told(world)
    if not want:
        assert told(world)["b"] == (
            "pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        )


def test_pods_that_say_that_fewer_belong_together_are_tried() -> None:
    world = grown(4)
    for name in ("a", "b"):
        world.add(member(name, "red", 3, 1, 0))
    rest(world)
    assert {gate(world, name) for name in ("a", "b")} == {TOO_FEW}
    for name in ("a", "b"):
        labels = {"group": "red", "min": "2"}
        world.change(make_pod(name, uid=world.known[name].uid, cpu=1, labels=labels))
    rest(world)
    assert bound(world) == {"a", "b"}


def test_a_group_on_its_way_out_is_placed_all_the_same() -> None:
    """A real API server keeps it as long as it has pods, and kube-scheduler places them."""
    world = grown(4)
    going = pod_group(2)
    world.put_object(POD_GROUPS, going)
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    world.put_object(POD_GROUPS, msgspec.structs.replace(going, metadata=meta))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    assert bound(world) == {"a", "b"}


# --- while it waits --------------------------------------------------------------------------


def test_a_group_that_needs_more_pods_than_it_has_waits_for_them_again() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    world.put_object(POD_GROUPS, pod_group(3))
    world.wait(11.0)
    rest(world)
    assert {gate(world, name) for name in ("a", "b")} == {TOO_FEW}
    world.put_object(POD_GROUPS, pod_group(1))
    world.wait(11.0)
    rest(world)
    assert len(world.bindings) == 1


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"schedulingPolicy": {"elastic": {"minCount": 2}}},
            "spec.schedulingPolicy: want one of `basic`, `gang`, got `elastic`",
            id="policy",
        ),
        pytest.param(
            {"disruptionMode": {"slowly": {}}},
            "spec.disruptionMode: want one of `single`, `all`, got `slowly`",
            id="disruption mode",
        ),
        pytest.param(
            {"preemptionPolicy": "Ask"},
            "spec.preemptionPolicy: want one of `PreemptLowerPriority`, `Never`, got `Ask`",
            id="preemption policy",
        ),
    ],
)
def test_words_of_a_later_version_are_named_and_harm_no_other_pod(
    spec: dict[str, Any], why: str
) -> None:
    world = grown(4, PREEMPTING)
    world.add_node(make_node("small", cpu=1))
    world.put_object(POD_GROUPS, pod_group(2, **spec))
    world.add(in_group("placed", node="n", priority=1))
    for name in ("a", "b"):
        world.add(in_group(name))
    world.add(make_pod("single", cpu=1))
    world.add(make_pod("urgent", cpu=4, priority=9))
    rest(world)
    assert {gate(world, name) for name in ("a", "b")} == {f"PodGroup `default/g`: {why}"}
    assert bound(world) == {"single"}
    assert told(world)["urgent"].endswith("preempting 1 victims")


def other(name: str, **words: Any) -> Pod:
    return in_group(name, spec={"schedulerName": "another"}, **words)


def test_a_group_of_another_scheduler_is_left_alone() -> None:
    world = grown(4)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(other(name))
    rest(world)
    assert (bound(world), told(world), conditions(world)) == (set(), {}, [])


def test_a_pod_of_another_scheduler_does_not_make_a_group_whole() -> None:
    world = grown(4)
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(in_group("a"))
    world.add(other("b"))
    world.add(make_pod("single", cpu=1))
    rest(world)
    assert bound(world) == {"single"}
    assert gate(world, "a") == TOO_FEW


def test_a_group_that_is_split_between_two_profiles_says_so() -> None:
    config = CONFIG.replace("profiles:", "profiles:", 1)
    second = "- schedulerName: second" + config.split("- schedulerName: default-scheduler", 1)[1]
    world = World({"config.yaml": config + "\n" + second})
    world.add_node(make_node("n", cpu=4))
    world.put_object(POD_GROUPS, pod_group(1))
    world.add(in_group("a"))
    world.add(in_group("b", spec={"schedulerName": "second"}))
    assert not world.turns(MOST_TURNS)
    why = (
        "all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "second" and "default-scheduler"'
    )
    assert told(world)["a"] == why
    assert attempts(world, "error") == 1
    assert conditions(world)[0] == (False, "SchedulerError", why)


def test_pods_of_a_group_without_a_priority_keep_theirs() -> None:
    """As kube-scheduler 1.36, whose groups have none by default, does."""
    world = grown(2, PREEMPTING)
    world.add(make_pod("small", cpu=1, priority=1, node="n"))
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(in_group("a", priority=5))
    world.add(in_group("b", priority=7))
    rest(world)
    assert conditions(world)[0][:2] == (False, "Unschedulable")
    assert told(world)["b"].endswith("found a placement for podgroup, preempting 1 victims")
