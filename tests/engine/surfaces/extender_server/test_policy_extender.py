"""What filtering candidates for preemption costs; the answers are tested in `test_watching`."""

import sys
from types import FrameType
from typing import Any

import pytest

from engine.core.model.objects import ObjectMeta, PodDisruptionBudget
from engine.core.scheduling.disruption_budgets import KIND
from engine.core.scheduling.extender_messages import MetaVictims
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World
from engine.policy.evaluator import InProcessEvaluator
from engine.surfaces.extender_server.assembly import as_extender
from engine.surfaces.extender_server.policy_extender import PoliciesFailed, PolicyExtender
from tests import builders

ALONE = """
def filter(pod, node):
    if node.labels.get("state") == "broken":
        fail("broken")
    return "taken" if node.pod_count > 0 else None
"""


def _full(count: int) -> World:
    """That many nodes, with a pod on each."""
    nodes = [builders.node_manifest(f"n{i}") for i in range(count)]
    pods = [builders.pod_manifest(f"p{i}", node=f"n{i}", uid=f"u{i}") for i in range(count)]
    return World.from_manifests(nodes, pods)


def _extender() -> PolicyExtender:
    bundle = as_extender({"alone.star": ALONE})
    return PolicyExtender(Scheduler(bundle, InProcessEvaluator(bundle.program)))


def _candidates(count: int) -> dict[str, MetaVictims]:
    return {f"n{i}": MetaVictims((f"u{i}",), 0) for i in range(count)}


def _calls(extender: PolicyExtender, world: World, victims: dict[str, MetaVictims]) -> int:
    """The number of function calls for *victims* once the cluster is cached."""
    pod = builders.make_pod("new")
    assert extender.process_preemption(pod, world.snapshot, victims) == list(victims)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        extender.process_preemption(pod, world.snapshot, victims)
    finally:
        sys.setprofile(None)
    return calls


def test_a_candidate_costs_the_same_however_many_nodes_there_are() -> None:
    """For each candidate, the reasons of every other node were computed.

    With 500 of 5,000 nodes, as kube-scheduler asks about, that took longer than it waits, so that
    no pod was preempted for another.
    """
    extender, victims = _extender(), _candidates(10)
    few, many = _calls(extender, _full(20), victims), _calls(extender, _full(400), victims)
    assert many < 2 * few


def test_a_policy_that_fails_on_any_node_fails_the_request() -> None:
    world = _full(2)
    world.cache.add_node(builders.make_node("n1", labels={"state": "broken"}))
    with pytest.raises(PoliciesFailed, match=r"alone\.star"):
        _extender().process_preemption(
            builders.make_pod("new"), world.cache.snapshot(), _candidates(1)
        )


def test_no_victims_go_while_budgets_cannot_be_read() -> None:
    world, extender, victims = _full(2), _extender(), _candidates(2)
    pod, objects = builders.make_pod("new"), world.cache.objects
    objects.unknown = {KIND: "poddisruptionbudgets cannot be read: no right"}
    assert extender.process_preemption(pod, world.snapshot, victims) == []
    objects.unknown = {}
    meta = ObjectMeta(name="b", namespace="default", unread=("spec.selector: want `object`",))
    objects.put(KIND, PodDisruptionBudget(metadata=meta))
    assert extender.process_preemption(pod, world.snapshot, victims) == []
    objects.delete(KIND, "default/b")
    assert extender.process_preemption(pod, world.snapshot, victims) == list(victims)
