"""What is done about a group that fits nowhere: claims given up, pods evicted, what it hears."""

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.status import Status
from engine.core.kernel.events import RevisionSwitched
from engine.core.kernel.group_preemption import GroupPostFilters, Outcome
from engine.core.kernel.instructions import Evict, Instruction, RunAction
from engine.core.kernel.pod_groups import GroupKey
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.core.scheduling.runtime_plugin import PostFilterResult
from engine.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_attempts import Reserving
from tests.engine.core.kernel.test_decide import EXTENDER, answer, ask
from tests.engine.core.kernel.test_group_attempts import PREEMPTING, in_group, pod_group
from tests.profiles import only

KEY = GroupKey(0, "default-scheduler", "default", "g")
RELEASED = "deallocation and deletion of ResourceClaims completed"
BOTH = {"config.yaml": only("NodeResourcesFit", "DynamicResources", "DefaultPreemption")}


async def _nothing() -> None:
    """An action."""


class Devices(DynamicResources):
    """Gives up the claim of a pod whose state says so: at once, or by an action."""

    def post_filter(
        self, state: Any, pod: Pod, rejected: Mapping[str, Status], snapshot: Snapshot
    ) -> PostFilterResult | None:
        if not state:
            return None
        said = "deallocation of ResourceClaim completed"
        return PostFilterResult(said, None if state == "at once" else _nothing)


class Volumes(Devices):
    """A plugin that the profile does not ask about groups."""

    name = "Volumes"


class Preemption:
    """Has one outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def run(self, *_: Any) -> Outcome:
        return self.outcome


def ask_all(
    outcome: Outcome,
    states: Mapping[str, bool | str],
    files: dict[str, str] = BOTH,
    *,
    plugin_type: type[Devices] = Devices,
    registry: CollectorRegistry | None = None,
) -> tuple[Outcome, list[Instruction]]:
    world = World(files)
    shared = Shared(world.cache, Metrics(registry or CollectorRegistry()))
    filters = GroupPostFilters(
        shared,
        Preemption(outcome),  # type: ignore[arg-type]  # all that is asked
    )
    plugin = plugin_type(world.cache.objects)
    members = [QueuedPod(in_group(name), (), timestamp=0.0, sequence=0) for name in states]
    known = {one.uid: [(plugin, states[one.pod.name])] for one in members}
    return filters.run(KEY, members, known, world.scheduler, lambda: ([], "")), shared.out


def test_each_pod_gives_up_what_it_would_give_up_alone() -> None:
    outcome, out = ask_all(Outcome("no"), {"a": True, "b": False, "c": True})
    assert [one.pod.name for one in out if isinstance(one, RunAction)] == ["a", "c"]
    assert (outcome.message, outcome.nodes) == (f"{RELEASED}, no", None)


def test_what_a_plugin_does_at_once_is_no_action_and_said_all_the_same() -> None:
    outcome, out = ask_all(Outcome("no"), {"a": "at once", "b": False})
    assert (outcome.message, out) == (f"{RELEASED}, no", [])


def test_a_plugin_that_the_profile_does_not_ask_does_nothing() -> None:
    outcome, out = ask_all(Outcome("no"), {"a": True}, plugin_type=Volumes)
    assert (outcome.message, out) == ("no", [])


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("found", {"a": "n"}, is_final=True), "Success"),
        (Outcome("none", is_final=True), "UnschedulableAndUnresolvable"),
        (Outcome("none"), "Unschedulable"),
    ],
    ids=["victims", "none for sure", "none"],
)
def test_it_is_measured_as_what_it_was(outcome: Outcome, status: str) -> None:
    registry = CollectorRegistry()
    ask_all(outcome, {"a": False}, registry=registry)
    counted = {
        sample.labels["status"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "scheduler_framework_extension_point_duration_seconds_count"
        and sample.labels["extension_point"] == "PodGroupPostFilter"
    }
    assert counted == {status: 1.0}


def test_a_group_without_claims_hears_nothing_of_them() -> None:
    outcome, out = ask_all(Outcome("no"), {"a": False, "b": False})
    assert (outcome.message, out) == ("no", [])


@pytest.mark.parametrize("nodes", [{"a": "n"}, None], ids=["victims were found", "there are none"])
def test_what_preemption_says_for_sure_is_all_that_is_said(nodes: dict[str, str] | None) -> None:
    outcome, out = ask_all(Outcome("for sure", nodes, is_final=True), {"a": True})
    assert (outcome.message, outcome.nodes) == ("for sure", nodes)
    assert len(out) == 1


def test_a_profile_can_be_without_either() -> None:
    none = {"config.yaml": only("NodeResourcesFit")}
    outcome, out = ask_all(Outcome("no"), {"a": True}, none)
    assert (outcome, out) == (Outcome(""), [])


def test_plugins_are_asked_with_what_they_found_of_each_pod_that_was_tried() -> None:
    world = World({"config.yaml": only("NodeResourcesFit", "DynamicResources", "GangScheduling")})
    world.add_node(make_node("n", cpu=1))
    plugin = Devices(world.cache.objects)
    world.report(RevisionSwitched(Reserving(world, plugin, "found")))
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name, cpu=2))
    world.turns(1)
    # The second was not tried: the first was one too few already.
    assert [one.pod.name for one in world.done if isinstance(one, RunAction)] == ["a"]


def test_extenders_are_not_asked_about_victims_of_a_group() -> None:
    world = World({"config.yaml": PREEMPTING["config.yaml"] + EXTENDER})
    world.add_node(make_node("n1", cpu=2))
    world.add(make_pod("small", cpu=2, node="n1", priority=1))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    turn = world.begin_decision()
    with pytest.raises(StopIteration):
        next(turn)  # no node is left to ask about
    (evict,) = [one for one in world.done if isinstance(one, Evict)]
    assert [pod.name for pod in evict.victims] == ["small"]
    world.delete("small")
    turn, tried = ask(world)
    assert tried == "a"
    answer(turn)
    assert {placement.pod.name for placement in world.bindings} == {"a", "b"}


def test_less_important_pods_keep_their_nominations_when_a_group_evicts() -> None:
    """As in kube-scheduler, which clears those on the preemptor's node: a group has none."""
    world = World(PREEMPTING)
    world.add_node(make_node("n", cpu=2))
    world.add(make_pod("small", cpu=2, node="n", priority=1))
    world.add(make_pod("nominated", cpu=1, priority=5, nominated="n"))
    world.put_object(POD_GROUPS, pod_group(2, priority=9))
    for name in ("a", "b"):
        world.add(in_group(name, priority=9))
    world.turns(1)
    assert [one for one in world.done if isinstance(one, Evict)]
    assert world.queue.nominator.node_of(world.known["nominated"].uid) == "n"
