"""What an event leaves behind in the parts that know of it: nothing that is no longer true."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.kernel.events import RevisionSwitched
from engine.core.kernel.instructions import ReportFailure, ReportGate
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, MOST_TURNS, World, member
from tests.engine.core.kernel.test_decide import EXTENDER, answer
from tests.engine.core.kernel.test_group_attempts import in_group, pod_group
from tests.engine.core.kernel.test_permits import decided, grown, labelled, patient, waits

# Pods go two by two.
PAIRS = {
    "pairs.star": """
def group_of(pod):
    return gang(pod.labels["group"])

def permit(pod, group):
    return None if group.waiting + group.placed > 1 else wait(60)
"""
}


class Breaking:
    """An evaluator whose connection to the policies breaks when *hook* is asked."""

    def __init__(self, inner: InProcessEvaluator, hook: str) -> None:
        self._inner = inner
        self._hook = hook

    def evaluate(self, calls: Sequence[Any]) -> Any:
        if any(call.hook == self._hook for call in calls):
            raise RuntimeError("broken pipe")
        return self._inner.evaluate(calls)

    def close(self) -> None:
        self._inner.close()


def test_the_end_of_a_wait_is_measured_as_what_it_was() -> None:
    """A wait that ended well was counted among those in vain, or the other way around."""
    world = grown(World(PAIRS))
    decided(world, labelled("a", "g"), labelled("alone", "other"))
    world.wait(10.0)
    decided(world, labelled("b", "g"))
    assert sorted(one.pod.name for one in world.bindings) == ["a", "b"]
    assert (waits(world, "Success"), waits(world, "Unschedulable")) == ((1, 10.0), (0, 0.0))
    world.wait(50.0)
    assert (waits(world, "Success"), waits(world, "Unschedulable")) == ((1, 10.0), (1, 60.0))


def test_a_wait_that_new_policies_end_was_in_vain() -> None:
    world = grown(World(PAIRS))
    decided(world, labelled("a", "g"))
    world.wait(10.0)
    world.switch()
    assert (waits(world, "Success"), waits(world, "Unschedulable")) == ((0, 0.0), (1, 10.0))


def test_a_fault_while_permits_are_asked_leaves_no_pod_waiting() -> None:
    """The pod would have kept its capacity until its time was up, though it is tried again."""
    world = grown(World(patient()))
    inner = world.evaluator
    world.scheduler = Scheduler(world.bundle, Breaking(inner, "permit"))
    world.report(RevisionSwitched(world.scheduler))
    world.add(pod := labelled("a", "g"))
    world.turns(1)
    assert (len(world.permits), world.cache.pod_count) == (0, 0)
    assert pod.uid in world.queue
    world.check()


def test_a_member_that_another_program_binds_meanwhile_is_no_error_of_the_group() -> None:
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    for name in ("a", "b"):
        world.add(member(name, "gang", 2, 1, 0))
    turn = world.begin_decision()
    asked = next(turn).pod.name
    world.change(world.known[asked].with_node("n1"))
    answer(turn)
    failures = [one.rejection for one in world.done if isinstance(one, ReportFailure)]
    assert not [one for one in failures if one.is_error], failures
    world.check()


def test_pods_whose_sort_key_fails_stand_by_their_priority() -> None:
    """Those of a higher priority go first, before and after pods whose key could be evaluated."""
    broken = (
        'def queue_key(pod):\n    return -pod.priority if pod.name in ("b", "d") else fail("x")\n'
    )
    world = grown(World({"mine.star": broken}))
    for name, priority in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        world.add(make_pod(name, cpu=1, priority=priority))
    world.turns(MOST_TURNS)
    assert [one.pod.name for one in world.bindings] == ["d", "c", "b", "a"]


def test_the_time_of_a_group_attempt_is_how_long_it_took() -> None:
    world = grown(World())
    world.clock.advance(1000.0)
    world.put_object("podgroups", pod_group(1))
    world.add(in_group("a"))
    world.turns(1)
    took = [
        sample.value
        for metric in world.registry.collect()
        for sample in metric.samples
        if sample.name == "scheduler_podgroup_scheduling_attempt_duration_seconds_sum"
    ]
    assert took
    assert all(0 <= value < 1 for value in took)


def test_a_gate_that_answers_again_is_asked_no_more() -> None:
    """A pod was asked about again and again after its hook had answered."""
    failing = 'def pre_enqueue(pod):\n    return fail("x") if "bad" in pod.labels else None\n'
    world = grown(World({"mine.star": failing}))
    world.add(pod := make_pod("web", cpu=99, labels={"bad": "yes"}, resource_version="1"))
    world.wait(1.0)
    assert world.kernel.throttle  # it is to be asked again
    world.change(make_pod("web", cpu=99, uid=pod.uid, resource_version="2"))
    world.wait(60.0)
    assert not world.kernel.throttle


def test_gates_are_measured_by_what_they_say() -> None:
    gates = 'def pre_enqueue(pod):\n    return "held" if "held" in pod.labels else None\n'
    world = World({"mine.star": gates})
    for name, labels in (("a", {}), ("b", {"held": "yes"}), ("c", {})):
        world.add(make_pod(name, labels=labels))
    name = "scheduler_framework_extension_point_duration_seconds_count"
    labels = {"extension_point": "PreEnqueue", "profile": "default-scheduler"}
    for status, count in (("Success", 2.0), ("Unschedulable", 1.0)):
        assert world.registry.get_sample_value(name, {**labels, "status": status}) == count


@pytest.mark.parametrize("fails", [False, True])
def test_a_pod_is_kept_out_by_a_policy_that_fails_and_that_is_reported(fails: bool) -> None:
    body = 'fail("held")' if fails else '"held"'
    world = World({"mine.star": f"def pre_enqueue(pod):\n    return {body}\n"})
    world.add(make_pod("a"))
    (report,) = [one for one in world.done if isinstance(one, ReportGate)]
    assert "held" in report.reason
    assert report.has_failed is fails
