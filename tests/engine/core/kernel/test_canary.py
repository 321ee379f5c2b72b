"""A candidate that decides for some pods of a kernel."""

from collections.abc import Callable

import pytest

from engine.core.kernel.events import CanaryChanged
from engine.core.kernel.instructions import ReportDecision
from engine.core.kernel.scheduler_selector import Canary
from engine.core.model.pod import Pod
from engine.core.queueing.throttle import Work
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.evaluator import PolicyFailure
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import GANGS, World, _loaded, member


def with_policy(text: str) -> dict[str, str]:
    """The policies of the small world, and one more."""
    config = GANGS["config.yaml"].replace(
        "{name: NodeResourcesFit}", "{name: NodeResourcesFit}, {name: picky}"
    )
    return {"config.yaml": config, "picky.star": text}


NOWHERE = with_policy('def filter(pod, node):\n    return "not by me"\n')
NEVER = with_policy('def permit(pod, group):\n    return wait(3600, "never")\n')
FAST_ALONE = with_policy(
    'def filter(pod, node):\n    if node.labels.get("fast") != "yes":\n        return "not fast"\n'
)


def begin(world: World, files: dict[str, str], has: Callable[[Pod, str], bool]) -> Scheduler:
    bundle, evaluator = _loaded(tuple(sorted(files.items())))
    scheduler = Scheduler(bundle, evaluator)
    world.report(CanaryChanged(Canary(scheduler, has)))
    return scheduler


def named(*names: str) -> Callable[[Pod, str], bool]:
    return lambda pod, _: pod.name in names


def revisions(world: World) -> dict[str, str]:
    """By pod, whose decision was the last one."""
    return {
        one.pod.name: one.decision.revision for one in world.done if isinstance(one, ReportDecision)
    }


@pytest.fixture
def world() -> World:
    world = World()
    world.add_node(make_node("n1", cpu=8))
    return world


def test_the_candidate_decides_its_pods_and_no_others(world: World) -> None:
    candidate = begin(world, NOWHERE, named("b"))
    for name in ("a", "b", "c"):
        world.add(make_pod(name, cpu=1))
    world.turns(9)
    in_force = world.bundle.revision
    assert revisions(world) == {"a": in_force, "b": candidate.bundle.revision, "c": in_force}
    assert {placement.pod.name for placement in world.bindings} == {"a", "c"}
    world.check()


def test_the_control_sample_is_decided_by_a_scheduler_of_its_own(world: World) -> None:
    """The one in force decides most pods, so it knows all but the last changes of nodes."""
    made = []
    for files in (NOWHERE, GANGS):
        bundle, evaluator = _loaded(tuple(sorted(files.items())))
        made.append(Scheduler(bundle, evaluator))
    candidate, control = made
    world.report(CanaryChanged(Canary(candidate, named("b"), control, named("c", "g1", "g2"))))
    world.add(member("g1", "red", 2, 1, 0))
    world.add(member("g2", "red", 2, 1, 0))
    for name in ("a", "b", "c"):
        world.add(make_pod(name, cpu=1))
    schedulers = world.kernel.schedulers
    deciding = {pod.name: schedulers.of(pod) for pod in world.known.values()}
    assert deciding["a"] is schedulers.in_force
    assert deciding["b"] is candidate
    assert deciding["c"] is deciding["g1"] is control
    world.turns(9)
    assert {placement.pod.name for placement in world.bindings} == {"a", "c", "g1", "g2"}
    assert revisions(world)["c"] == world.bundle.revision
    assert [pod.name for pod in control.recent_pods(9)]
    world.report(CanaryChanged(None))
    assert schedulers.of(world.known["c"]) is schedulers.in_force
    world.check()


def test_pods_that_the_candidate_rejected_are_tried_again_when_it_is_given_up(
    world: World,
) -> None:
    begin(world, NOWHERE, named("b"))
    world.add(make_pod("a", cpu=1))
    world.add(make_pod("b", cpu=1))
    world.turns(9)
    decided = len([one for one in world.done if isinstance(one, ReportDecision)])
    world.report(CanaryChanged(None))
    world.turns(9)
    assert {placement.pod.name for placement in world.bindings} == {"a", "b"}
    later = [one for one in world.done if isinstance(one, ReportDecision)][decided:]
    assert [one.pod.name for one in later] == ["b"]
    world.check()


def test_pods_that_wait_in_permit_by_the_candidate_do_not_wait_on(world: World) -> None:
    begin(world, NEVER, named("b"))
    world.add(make_pod("b", cpu=1))
    world.turns(3)
    assert len(world.permits) == 1
    world.report(CanaryChanged(None))
    world.turns(3)
    assert [placement.pod.name for placement in world.bindings] == ["b"]
    assert not len(world.permits)
    world.check()


def test_no_group_is_split(world: World) -> None:
    groups: list[str] = []

    def has(pod: Pod, group: str) -> bool:
        groups.append(group)
        return group == "red"

    candidate = begin(world, NOWHERE, has)
    for name in ("r1", "r2"):
        world.add(member(name, "red", 2, 1, 0))
    for name in ("b1", "b2"):
        world.add(member(name, "blue", 2, 1, 0))
    world.turns(9)
    by = revisions(world)
    assert {by.get("r1", by.get("r2")), by["b1"], by["b2"]} == {
        candidate.bundle.revision,
        world.bundle.revision,
    }
    assert by["b1"] == by["b2"] == world.bundle.revision
    assert {placement.pod.name for placement in world.bindings} == {"b1", "b2"}
    assert set(groups) == {"red", "blue"}
    world.check()


def test_a_switch_ends_the_canary(world: World) -> None:
    begin(world, NOWHERE, named("b"))
    world.add(make_pod("b", cpu=1))
    world.turns(3)
    world.switch()
    world.turns(3)
    assert [placement.pod.name for placement in world.bindings] == ["b"]
    assert world.kernel.schedulers.canary is None
    world.check()


def test_an_event_that_helps_by_the_candidate_wakes_its_pods(world: World) -> None:
    """What the policies in force never look at: a label of the node."""
    begin(world, FAST_ALONE, named("b"))
    world.add(make_pod("b", cpu=1))
    world.turns(3)
    assert not world.bindings
    before = world.cache.node_info("n1")
    assert before is not None
    assert before.node is not None
    world.update_node(before.node, make_node("n1", cpu=8, labels={"fast": "yes"}))
    world.wait(11)
    world.turns(3)
    assert [placement.pod.name for placement in world.bindings] == ["b"]


@pytest.mark.parametrize("is_begun", [True, False], ids=["begins", "ends"])
def test_pods_that_were_throttled_are_tried_again_whoever_decides_them(
    world: World, is_begun: bool
) -> None:
    """They were forgotten when a canary began or was given up: nothing came back to them."""
    if not is_begun:
        begin(world, NOWHERE, named("b"))
    # Of the policies in force: a pod that no canary has.
    slow = PolicyFailure("picky", "filter", "picky.star", 1, 1, "did not answer", "deadline")
    world.kernel.throttle.charge(Work.ATTEMPT, make_pod("d"), [slow] * 2, 5.0)
    world.kernel.throttle.charge(Work.ATTEMPT, make_pod("e"), [slow] * 2, 5.0)
    world.add(make_pod("a", cpu=1))
    world.turns(3)
    assert not world.bindings
    if is_begun:
        begin(world, NOWHERE, named("b"))
    else:
        world.report(CanaryChanged(None))
    world.wait(1)
    world.turns(3)
    assert [placement.pod.name for placement in world.bindings] == ["a"]
    world.check()
