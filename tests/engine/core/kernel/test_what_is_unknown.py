"""What a kernel says, and what is recorded, while kinds of objects cannot be read."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.framework.reasons import CLUSTER_READS
from engine.core.kernel.events import ObjectChanged, ReadabilityChanged
from engine.core.kernel.instructions import ReportFailure, ReportGate
from engine.core.model.objects import PodDisruptionBudget, from_plain
from engine.core.model.pod_group import POD_GROUPS
from engine.lib.clock import VirtualClock
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_group_attempts import (
    PREEMPTING,
    bound,
    evictions,
    grown,
    in_group,
    pod_group,
    rest,
    told,
)
from tests.recorded import RecordedKernel
from workbench.replay.decision_log import read_log
from workbench.replay.replay import Replayer

BUDGETS = "poddisruptionbudgets"


def unknown(*plurals: str) -> ReadabilityChanged:
    return ReadabilityChanged({one: f"{one} cannot be read: no right" for one in plurals})


def gate_of(world: World) -> Any:
    (gate,) = [one for one in world.done if isinstance(one, ReportGate)][-1:]
    return gate


@pytest.mark.parametrize("is_first", [True, False])
def test_a_group_that_is_not_known_is_not_said_to_be_missing(is_first: bool) -> None:
    world = grown(2, PREEMPTING)
    if is_first:
        world.report(unknown(POD_GROUPS))
    world.add(in_group("a"))
    rest(world)
    if not is_first:
        assert gate_of(world).token == "GroupIncomplete"
        world.report(unknown(POD_GROUPS))
    gate = gate_of(world)
    assert gate.token == "ClusterNotReadable"
    assert "podgroups cannot be read: no right" in gate.reason
    world.report(unknown())
    assert gate_of(world).token == "GroupIncomplete"
    world.put_object(POD_GROUPS, pod_group(1))
    rest(world)
    assert [placement.pod.name for placement in world.bindings] == ["a"]


def test_a_claim_that_is_not_known_is_not_said_to_be_missing(tmp_path: Path) -> None:
    world = RecordedKernel(tmp_path, VirtualClock(1.0))
    world.node(make_node("a", cpu=4))
    world.report(unknown("resourceclaims"))
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    world.pod(None, make_pod("p", cpu=1, spec={"resourceClaims": claims}))
    gate = world.kernel.queue.describe("default/p")["gate_reason"]
    assert "resourceclaims cannot be read: no right" in str(gate)
    world.report(unknown())
    gate = world.kernel.queue.describe("default/p")["gate_reason"]
    assert gate == 'could not find ResourceClaim "default/gpu"'
    world.close()


def test_a_group_for_which_budgets_are_not_known_says_so_and_evicts_nothing() -> None:
    world = grown(2, PREEMPTING)
    world.report(unknown(BUDGETS))
    world.add(bound("small", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    rest(world)
    assert evictions(world) == []
    failures = [one.rejection for one in world.done if isinstance(one, ReportFailure)]
    assert {one.reason.token for one in failures} == {"ClusterNotReadable"}
    assert all(CLUSTER_READS in one.rejectors for one in failures)
    assert all(
        "poddisruptionbudgets cannot be read: no right" in one for one in told(world).values()
    )
    world.report(unknown())
    rest(world)
    assert [pod.name for evict in evictions(world) for pod in evict.victims] == ["small"]


def test_a_group_that_no_eviction_helps_has_its_own_reason() -> None:
    world = grown(2, PREEMPTING)
    world.report(unknown(BUDGETS))
    world.add(bound("small", cpu=1, priority=1))
    world.put_object(POD_GROUPS, pod_group(3, priority=9))
    for name in ("a", "b", "c"):
        world.add(in_group(name, priority=9))
    rest(world)
    failures = [one.rejection for one in world.done if isinstance(one, ReportFailure)]
    assert "ClusterNotReadable" not in {one.reason.token for one in failures}


def test_a_replay_knows_what_could_not_be_read(tmp_path: Path) -> None:
    """It knew all, and evicted what was held."""
    recorded = RecordedKernel(tmp_path, VirtualClock(1.0))
    recorded.node(make_node("n", cpu=1))
    recorded.report(unknown(BUDGETS))
    recorded.pod(None, make_pod("small", cpu=1, node="n", priority=0))
    held = recorded.decide(make_pod("urgent", cpu=1, priority=9))
    assert held.reason.token == "ClusterNotReadable"
    recorded.report(unknown())
    assert recorded.try_next().decision.eviction is not None
    recorded.close()
    replayer = Replayer()
    outcomes = list(replayer.outcomes(read_log(tmp_path)))
    replayer.close()
    assert [(one.is_same, one.notes) for one in outcomes] == [(True, ()), (True, ())]


def test_a_replay_knows_which_objects_could_not_be_read(tmp_path: Path) -> None:
    recorded = RecordedKernel(tmp_path, VirtualClock(1.0), kinds=[BUDGETS])
    unread = {"unread": ["spec.selector: want `object`, got `7`"]}
    plain = {"metadata": {"name": "b", "namespace": "default", **unread}}
    budget = from_plain(PodDisruptionBudget, plain)
    recorded.report(ObjectChanged(BUDGETS, None, budget))
    recorded.node(make_node("n", cpu=1))
    recorded.pod(None, make_pod("small", cpu=1, node="n", priority=0))
    assert recorded.decide(make_pod("urgent", cpu=1, priority=9)).eviction is None
    recorded.report(ObjectChanged(BUDGETS, budget, None))
    assert recorded.try_next().decision.eviction is not None  # it is tried again at once
    recorded.close()
    replayer = Replayer()
    outcomes = list(replayer.outcomes(read_log(tmp_path)))
    replayer.close()
    assert [(one.is_same, one.notes) for one in outcomes] == [(True, ()), (True, ())]
