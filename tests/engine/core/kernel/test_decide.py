"""What a decision does about a pod that something happened to."""

import contextlib
from collections.abc import Generator

import pytest

from engine.core.kernel.events import Reply
from engine.core.kernel.instructions import (
    Instruction,
    PodAssumed,
    PodForgotten,
    ReportDecision,
    ReportFault,
)
from engine.core.scheduling.extenders import Answer, FilterAnswer, Question
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, World, member

EXTENDER = """
extenders:
- urlPrefix: http://extender
  filterVerb: filter
  nodeCacheCapable: true
"""

Turn = Generator[Question, Answer, list[Instruction]]


@pytest.fixture
def world() -> World:
    """A world with a node, whose policies ask an extender about every pod."""
    world = World({"config.yaml": CONFIG + EXTENDER})
    world.add_node(make_node("n1", cpu=4))
    return world


def ask(world: World) -> tuple[Turn, str]:
    """A turn that waits for its extender, and the name of the pod that it is about."""
    turn = world.begin_decision()
    return turn, next(turn).pod.name


def answer(turn: Turn) -> None:
    """The extender lets the pod, and those that are tried with it, go to the node."""
    with contextlib.suppress(StopIteration):
        while True:
            turn.send(FilterAnswer(("n1",)))


def test_a_pod_that_is_gone_takes_no_capacity_from_one_of_its_name(world: World) -> None:
    """The pod there of the same name was counted no more, as if the one that is gone took over."""
    world.add(make_pod("web-0", uid="old", cpu=1))
    turn, _ = ask(world)
    world.delete("web-0")
    world.add(make_pod("web-0", uid="new", cpu=1, node="n1"))
    answer(turn)
    assert world.cache.get_pod("new")
    assert not world.bindings
    world.check()


def test_a_pod_that_is_gone_waits_in_no_permit(world: World) -> None:
    """It held its room until its time was up: nobody says twice that a pod is gone."""
    for name in ("a", "b"):
        world.add(member(name, "gang", 2, 1, 0))
    turn, tried = ask(world)
    world.delete(tried)
    answer(turn)
    assert not len(world.permits)
    assert not world.cache.pod_count
    world.check()


def test_a_pod_on_its_way_out_takes_no_capacity(world: World) -> None:
    world.add(make_pod("web", uid="web", cpu=1))
    turn, _ = ask(world)
    world.change(make_pod("web", uid="web", cpu=1, terminating=True))
    answer(turn)
    assert not world.bindings
    assert not world.cache.pod_count
    world.check()


def test_no_pod_goes_to_a_node_that_is_gone(world: World) -> None:
    """The API server binds to any name, and such a pod is deleted with what is left of the node."""
    world.add(make_pod("web", cpu=1))
    turn, _ = ask(world)
    world.delete_node(make_node("n1"))
    answer(turn)
    assert not world.bindings
    assert not world.cache.pod_count
    world.add_node(make_node("n1", cpu=4))
    world.wait(5.0)
    turn, _ = ask(world)
    answer(turn)
    assert [placement.node for placement in world.bindings] == ["n1"]
    world.check()


def test_a_pod_that_was_not_ours_while_it_was_bound_is_tried_again_if_that_fails() -> None:
    """An edit that left out its profile and was taken back made it wait for ever, unbound."""
    world = World()
    world.add_node(make_node("n1", cpu=4))
    pod = make_pod("web", cpu=1)
    world.add(pod)
    world.turns(1)
    world.queue.delete(pod)  # not ours
    world.queue.add(pod)  # ours again
    assert not world.turns(2)
    assert len(world.bindings) == 1
    world.end_binding(0, succeeds=False)
    world.wait(5.0)
    world.turns(1)
    assert [placement.pod.uid for placement in world.bindings] == [pod.uid]
    world.check()


@pytest.mark.parametrize("fails_at", [1, 2])
def test_what_was_done_before_asking_an_extender_fails_is_still_carried_out(
    world: World, fails_at: int
) -> None:
    """Asking about the second pod of a gang failed, and what was known of the first was lost.

    It was reported as forgotten and never as assumed.
    """
    for name in ("a", "b"):
        world.add(member(name, "gang", 2, 1, 0))
    decision = world.kernel.decide(world.clock.monotonic())
    asked = 1
    next(decision)
    try:
        while True:
            if asked == fails_at:
                decision.throw(RuntimeError("no such host"))
            else:
                answered = Reply(FilterAnswer(("n1",)), world.clock.monotonic())
                decision.send(answered)
            asked += 1
    except StopIteration as end:
        got = end.value
    assumed = [one.uid for one in got if isinstance(one, PodAssumed)]
    forgotten = [one.uid for one in got if isinstance(one, PodForgotten)]
    assert len(assumed) == fails_at - 1
    assert forgotten == assumed
    assert sum(isinstance(one, ReportDecision) for one in got) == fails_at - 1
    assert sum(isinstance(one, ReportFault) for one in got) == 1
    assert not world.cache.assumed_count
    world.check()
