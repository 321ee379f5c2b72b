"""What the queue tries as one, as metrics count it, and the metrics of group preemption."""

from typing import Any

import msgspec

from engine.core.kernel.instructions import Evict
from engine.core.model import objects as api
from engine.core.model.objects import PodDisruptionBudget
from engine.core.model.pod_group import POD_GROUPS
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, World, member
from tests.engine.core.kernel.test_decide import EXTENDER, answer, ask
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    grown,
    in_group,
    pod_group,
    rest,
)


def waiting(world: World) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """The pods and the entities that wait, without those that are none."""
    pods, entities = world.kernel.entities.waiting(world.queue)
    return {k: v for k, v in pods.items() if v}, {k: v for k, v in entities.items() if v}


def metric(world: World, name: str, **labels: str) -> float | None:
    return world.registry.get_sample_value(f"scheduler_{name}", labels)


def test_a_group_is_one_entity_of_the_queue() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    world.add(make_pod("single", cpu=9))
    rest(world)
    pods, entities = waiting(world)
    assert pods == {"unschedulable": 3}
    assert entities == {("unschedulable", "podgroup"): 1, ("unschedulable", "pod"): 1}


def test_a_group_enters_a_queue_with_the_first_of_its_pods() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(in_group("a"))  # too few: gated
    world.add(in_group("b"))
    rest(world)
    counts = world.kernel.entities
    added = "UnscheduledPodAdd"
    groups = {key[:2]: n for key, n in counts.incoming.items() if key[2] == "podgroup"}
    assert groups == {
        ("gated", added): 1,
        ("active", added): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
    }
    assert counts.incoming_pods["unschedulable", "ScheduleAttemptFailure"] == 2
    world.add_node(make_node("other", cpu=1))
    assert counts.incoming["backoff", "NodeAdd", "podgroup"] == 1
    # It wakes the pod that found no room, and that one its group.
    assert waiting(world) == ({"backoff": 2}, {("backoff", "podgroup"): 1})


def test_a_group_that_fails_again_enters_its_queue_again() -> None:
    world = grown(1)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    world.queue.rekey()  # as after a change of policies
    world.wait(11.0)
    rest(world)
    failed = "unschedulable", "ScheduleAttemptFailure", "podgroup"
    assert world.kernel.entities.incoming[failed] == 2


def test_pods_without_their_pod_group_are_incomplete_and_in_no_queue() -> None:
    world = grown(2)
    for name in ("a", "b"):
        world.add(in_group(name))
    world.add(member("l", "by-label", 2, 1, 0))
    rest(world)
    assert waiting(world) == ({"incomplete": 2, "gated": 1}, {("gated", "podgroup"): 1})
    assert world.kernel.entities.incoming_pods == {("gated", "UnscheduledPodAdd"): 1}
    world.put_object(POD_GROUPS, pod_group(2))
    rest(world)
    assert waiting(world) == ({"gated": 1}, {("gated", "podgroup"): 1})
    assert len(world.bindings) == 2


def test_a_pod_that_comes_while_its_group_is_tried_is_pending() -> None:
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    turn, _ = ask(world)
    world.add(in_group("c"))
    assert waiting(world) == ({"pending": 1}, {})
    answer(turn)
    assert waiting(world) == ({"active": 1}, {("active", "podgroup"): 1})


def budget(name: str, allowed: int, **labels: str) -> Any:
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return api.decode(PodDisruptionBudget, msgspec.json.encode(body))


def test_preemption_for_a_group_is_measured() -> None:
    world = grown(4, PREEMPTING)
    world.put_object("poddisruptionbudgets", budget("none", 0, app="web"))
    for name in ("a", "b"):
        world.add(make_pod(name, cpu=1, node="n", priority=1, labels={"app": "web"}))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("c", "d"):
        world.add(in_group(name, cpu=2, priority=9))
    rest(world)
    (evict,) = [one for one in world.done if isinstance(one, Evict)]
    assert evict.preemption.violations == 2
    assert metric(world, "preemption_pdb_violations_total", preemptor="podgroup") == 2
    found = {"preemptor": "podgroup", "result": "Success"}
    assert metric(world, "preemption_evaluation_duration_seconds_count", **found) == 1
    assert metric(world, "workload_preemption_victims_sum") == 2
    # No group was disrupted.
    assert metric(world, "preemption_workload_disruptions_count", preemptor="podgroup") is None
    assert metric(world, "podgroup_scheduling_algorithm_duration_seconds_count") == 1
    point = {"extension_point": "PodGroupPostFilter", "profile": "default-scheduler"}
    name = "framework_extension_point_duration_seconds_count"
    assert metric(world, name, status="Success", **point) == 1


def test_budgets_that_one_pod_violates_are_counted() -> None:
    world = grown(1, PREEMPTING)
    world.put_object("poddisruptionbudgets", budget("none", 0, app="web"))
    world.add(make_pod("a", cpu=1, node="n", priority=1, labels={"app": "web"}))
    world.add(make_pod("urgent", cpu=1, priority=9))
    rest(world)
    assert metric(world, "preemption_pdb_violations_total", preemptor="pod") == 1
