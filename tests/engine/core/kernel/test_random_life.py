"""Whatever happened: no fault, no wait ends late, a process that starts now sees the same."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.kernel.events import TimePassed, TurnBegan
from engine.core.kernel.instructions import Bind, Evict, Instruction, ReportFailure, ReportFault
from engine.core.kernel.kernel import Kernel
from engine.core.model.pod_group import POD_GROUPS
from engine.core.queueing.scheduling_queue import RetryTimes
from tests.builders import make_node
from tests.engine.core.kernel.random_life import AskingLife, RandomLife, follow
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_group_attempts import bound, grown, in_group, pod_group, rest
from tests.profiles import only

LIVES = 8


def seen(world: World) -> tuple[dict[str, Any], ...]:
    """What does not depend on when a process started: nodes, groups, gates and sort keys."""
    groups, queue = world.groups, world.queue
    of_pods: dict[str, Any] = {}
    for pod in world.known.values():
        of_pods[pod.name] = (
            sorted(groups.keys_of(pod.uid)),
            groups.tried_in(pod.uid),
            groups.is_incomplete(pod.uid),
        )
        state = queue.describe(pod.key)
        if state and not pod.is_terminating:  # what is being deleted is not looked at again
            of_pods[pod.name] += (state["queue"] == "gated", state["sort_key"])
    keys = {key for pod in world.known.values() for key in groups.keys_of(pod.uid)}
    of_groups = {
        str(key): (groups.state(key), {pod.uid for pod in groups.members_of(key)}) for key in keys
    }
    of_nodes = {info.name: (info.pods.keys(), info.requested) for info in world.cache.infos()}
    return of_pods, of_groups, of_nodes


@pytest.mark.parametrize("first", range(0, 5 * LIVES, LIVES))
@pytest.mark.parametrize("kind", [RandomLife, AskingLife])
def test_a_process_that_starts_now_sees_what_one_sees_that_was_there(
    kind: Callable[[int], RandomLife], first: int
) -> None:
    for seed in range(first, first + LIVES):
        life = kind(seed)
        life.live(60)
        life.end_what_is_under_way()
        assert seen(life) == seen(life.started_again()), seed
        assert [one for one in life.done if isinstance(one, ReportFault)] == [], seed


# --- what such lives have shown --------------------------------------------------------------


def test_a_group_does_not_wait_for_the_gate_of_a_pod_that_is_being_deleted() -> None:
    """It is not counted as one of its pods; its gate kept the others out all the same."""
    config = only("NodeResourcesFit", "GangScheduling", "SchedulingGates")
    world = grown(8, {"config.yaml": config})
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    world.add(held := in_group("held", gates=["example.com/wait"]))
    follow(world)
    assert world.queue.describe("default/a")["queue"] == "gated"
    world.change(in_group("held", uid=held.uid, gates=["example.com/wait"], terminating=True))
    follow(world)
    rest(world)
    assert {one.pod.name for one in world.bindings} == {"a", "b"}


def test_a_binding_that_fails_on_a_node_that_is_gone_is_no_longer_counted_to_its_group() -> None:
    """A group was counted again only if a node that is there had changed."""
    world = grown(8)
    node = make_node("other", cpu=8)
    world.add_node(node)
    world.put_object(POD_GROUPS, pod_group(2))
    for name in ("a", "b"):
        world.add(in_group(name))
    rest(world)
    [key] = world.groups.keys_of(world.known["a"].uid)
    nodes = [placement.node for placement in world.bindings]
    world.delete_node(make_node("n", cpu=8) if nodes[0] == "n" else node)
    assert world.groups.state(key).placed == 2
    world.end_binding(0, succeeds=False)
    assert (world.groups.state(key).placed, world.groups.state(key).pending) == (1, 1)


def test_new_policies_see_the_groups_of_pods_on_a_node_that_is_gone() -> None:
    world = grown(8)
    world.put_object(POD_GROUPS, pod_group(2))
    world.add(bound("a", spec={"schedulingGroup": {"podGroupName": "g"}}))
    keys = world.groups.keys_of(world.known["a"].uid)
    assert keys
    world.delete_node(make_node("n", cpu=8))
    world.switch()
    assert world.groups.keys_of(world.known["a"].uid) == keys


# --- time ------------------------------------------------------------------------------------


class _Punctual(RandomLife):
    """Looks at what time has ended when the kernel asks for that, and no more often."""

    def look(self, until: float) -> None:
        while (at := self.kernel.wakes_at()) is not None and at <= until:
            self.clock.advance(at - self.clock.monotonic())
            self.report(TimePassed())

    def wait(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        self.look(until)
        self.clock.advance(until - self.clock.monotonic())
        self.report(TimePassed())
        self.report(TurnBegan())


class _Impatient(_Punctual):
    """Looks all the time."""

    def look(self, until: float) -> None:
        while self.clock.monotonic() < until:
            self.clock.advance(1 / 8)
            self.report(TimePassed())


def _impatient_kernel(*arguments: Any, **words: Any) -> Kernel:
    """One that tries rejected pods again after 17 seconds."""
    return Kernel(*arguments, **{**words, "retries": RetryTimes(max_unschedulable=17.0)})


def _outcomes(instructions: list[Instruction]) -> list[Any]:
    found: list[Any] = []
    for one in instructions:
        match one:
            case Bind():
                found.append((one.placement.pod.name, one.placement.node))
            case ReportFailure():
                found.append((one.pod.name, one.attempts, one.rejection.message))
            case Evict():
                found.append((one.preemptor.name, [pod.name for pod in one.victims]))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_to_look_when_asked_to_is_as_good_as_to_look_all_the_time(seed: int) -> None:
    punctual, impatient = (
        make(seed, make_kernel=_impatient_kernel) for make in (_Punctual, _Impatient)
    )
    for _ in range(4):
        for life in (punctual, impatient):
            life.live(15)
            life.wait(20.0)
        assert _outcomes(punctual.done) == _outcomes(impatient.done)
        assert punctual.queue.waiting() == impatient.queue.waiting()
