"""What is reported of a pod: each outcome once, by the instruction that is about it."""

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.kernel.events import RevisionSwitched
from engine.core.kernel.instructions import (
    RepeatReports,
    ReportBound,
    ReportDecision,
    ReportDeleting,
    ReportFailure,
    ReportHookFailure,
    ReportThrottled,
)
from engine.core.kernel.kernel import Kernel
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import Bundle
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, World, _loaded
from tests.engine.core.kernel.test_group_attempts import PREEMPTING, bound, grown, rest

_FILTER = {"mine.star": "def filter(pod, node):\n    return None\n"}


def of(world: World, kind: type[Any]) -> list[Any]:
    return [one for one in world.done if isinstance(one, kind)]


def test_a_pod_is_reported_bound_once_it_is() -> None:
    world = grown(2)
    world.add(make_pod("a", cpu=1))
    rest(world)
    assert of(world, ReportBound) == []
    placement = world.bindings[0]
    world.end_binding(0, succeeds=True)
    assert of(world, ReportBound) == [ReportBound(placement)]


def test_a_pod_that_fits_nowhere_is_rejected_and_one_whose_policy_fails_is_an_error() -> None:
    fails = 'def filter(pod, node):\n    return fail("x") if "bad" in pod.labels else None\n'
    world = grown(1, {"mine.star": fails})
    world.add(make_pod("large", cpu=2))
    world.add(make_pod("bad", cpu=1, labels={"bad": "yes"}))
    rest(world)
    found = {one.pod.name: one.rejection for one in of(world, ReportFailure)}
    assert {name: one.is_error for name, one in found.items()} == {"large": False, "bad": True}
    assert found["large"].rejectors == {"NodeResourcesFit"}


def test_the_same_reason_again_is_a_repeat_and_of_errors_the_same_message() -> None:
    answers = 'fail(pod.labels["error"]) if "error" in pod.labels else pod.labels["no"]'
    world = grown(1, {"mine.star": f"def filter(pod, node):\n    return {answers}\n"})
    found = []
    world.add(make_pod("a", uid="a", labels={"no": "x"}))
    for text in ("no=x", "no=y", "error=x", "error=x", "error=y", "no=y"):
        word, _, value = text.partition("=")
        world.change(make_pod("a", uid="a", labels={word: value}))
        world.wait(60.0)
        world.turns(9)
        found.append((text, of(world, ReportFailure)[-1].is_repeat))
    assert found == [
        ("no=x", False),
        ("no=y", True),
        ("error=x", False),
        ("error=x", True),
        ("error=y", False),
        ("no=y", False),
    ]


def test_a_pod_that_is_ours_again_while_it_is_bound_is_not_decided_again() -> None:
    """Policies without its profile came into force, and went, before its binding ended."""
    world = grown(4)
    world.add(make_pod("a", cpu=1))
    rest(world)
    others, evaluator = _loaded((("config.yaml", CONFIG.replace("default-scheduler", "other")),))
    world.report(RevisionSwitched(Scheduler(others, evaluator)))
    world.switch()
    rest(world)
    assert len(of(world, ReportDecision)) == len(world.bindings) == 1
    world.end_binding(0, succeeds=True)
    rest(world)
    assert len(of(world, ReportDecision)) == 1


def test_a_pod_that_is_being_deleted_when_it_is_tried_is_reported_as_that() -> None:
    """It counts as no failure of an attempt, and no policy is asked about it."""
    world = grown(2)
    world.add(make_pod("a", cpu=1, terminating=True))
    rest(world)
    assert [one.pod.name for one in of(world, ReportDeleting)] == ["a"]
    assert of(world, ReportFailure) == world.bindings == []


@pytest.mark.parametrize("hook", ["pre_enqueue(pod)", "queue_key(pod)", "group_of(pod)"])
def test_a_hook_that_fails_outside_of_attempts_is_reported_with_its_pod(hook: str) -> None:
    reads_groups = "def permit(pod, group):\n    return None\n"
    world = World({"mine.star": f'def {hook}:\n    return fail("x")\n\n{reads_groups}'})
    world.add(make_pod("a"))
    (report,) = of(world, ReportHookFailure)
    assert report.pod.name == "a"
    assert [one.hook for one in report.failures] == [hook.partition("(")[0]]
    assert not report.lost, "it failed at once"


def test_a_pod_that_changes_while_it_waits_has_its_condition_written_again() -> None:
    world = grown(1)
    world.add(pod := make_pod("a", cpu=2))
    rest(world)
    world.done.clear()
    newer = make_pod("a", cpu=2, uid=pod.uid, resource_version="2")
    world.change(newer)
    assert of(world, RepeatReports) == [RepeatReports(pod, newer)]


def test_victims_of_one_pod_are_counted() -> None:
    world = grown(2, PREEMPTING)
    for name in ("v", "w"):
        world.add(bound(name, cpu=1, priority=1))
    world.add(make_pod("a", cpu=2, priority=9))
    world.turns(1)
    found = [
        world.registry.get_sample_value(f"scheduler_preemption_victims_{part}")
        for part in ("count", "sum")
    ]
    assert found == [1.0, 2.0]


class _Late(InProcessEvaluator):
    """Gives no answer about nodes for two seconds, by the kernel's stopwatch."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.program)
        self.elapsed = 0.0

    def evaluate(self, calls: Sequence[Any]) -> Any:
        if not any(call.hook == "filter" for call in calls):
            return super().evaluate(calls)
        self.elapsed += 2.0
        failure = PolicyFailure("mine", "filter", "mine.star", 2, 1, "did not answer", "deadline")
        return [[failure] for _ in calls]


def test_a_pod_that_is_kept_out_for_the_time_that_others_lost_is_reported_as_that() -> None:
    bundle, _ = _loaded(tuple(_FILTER.items()))
    late = _Late(bundle)
    world = World(_FILTER, functools.partial(Kernel, stopwatch=lambda: late.elapsed))
    world.add_node(make_node("n", cpu=8))
    world.report(RevisionSwitched(Scheduler(bundle, late)))
    world.add(make_pod("a", cpu=1))
    assert of(world, ReportThrottled) == []
    world.turns(1)
    world.add(make_pod("b", cpu=1))
    assert [one.pod.name for one in of(world, ReportThrottled)] == ["a", "b"]
    assert [one.pod.name for one in of(world, ReportFailure)] == ["a"]
