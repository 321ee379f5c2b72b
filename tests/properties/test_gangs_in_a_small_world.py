"""Pod groups in a small world with the real cache, queue, policies, loop and permits.

Pods of groups and other pods come and go in any order, bindings succeed and fail, nodes come and
go, policies are switched. Then the world is left alone. No group may hold room without being whole,
nothing that would fit may be left waiting (the flush that would find it is switched off), and the
scheduler has to come to rest by itself.
"""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.core.model.node import Node
from engine.core.model.pod import Pod
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import MOST_TURNS, World, member

pytestmark = pytest.mark.slow("searches for long")


class Gangs(RuleBasedStateMachine):
    """The world, pushed about."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.numbers = itertools.count()
        self.nodes: dict[str, Node] = {}
        # What a group is made of: name -> (wanted, cpu, priority); and pods that may still come.
        self.groups: dict[str, tuple[int, int, int]] = {}
        self.to_come: list[Pod] = []
        # Groups that lost a placed pod or a binding: they cannot be whole by a fault of ours.
        self.maimed: set[str] = set()

    @initialize(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def make_nodes(self, sizes: list[int]) -> None:
        for size in sizes:
            self.node_comes(size)

    @rule(cpu=st.integers(1, 6))
    def node_comes(self, cpu: int) -> None:
        node = make_node(f"n{next(self.numbers)}", cpu=cpu)
        self.nodes[node.name] = node
        self.world.add_node(node)

    @precondition(lambda self: len(self.groups) < 6)
    @rule(
        size=st.integers(1, 5),
        spare=st.integers(0, 2),
        cpu=st.integers(1, 3),
        priority=st.integers(0, 1),
        late=st.integers(0, 3),
    )
    def group_comes(self, size: int, spare: int, cpu: int, priority: int, late: int) -> None:
        name = f"g{next(self.numbers)}"
        self.groups[name] = (max(1, size - spare), cpu, priority)
        pods = [
            member(f"{name}-{i}", name, max(1, size - spare), cpu, priority) for i in range(size)
        ]
        now = max(0, size - late)
        for pod in pods[:now]:
            self.world.add(pod)
        self.to_come += pods[now:]

    @precondition(lambda self: self.to_come)
    @rule(data=st.data())
    def late_pod_comes(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.to_come) - 1))
        self.world.add(self.to_come.pop(index))

    @rule(cpu=st.integers(1, 3), priority=st.integers(0, 2))
    def single_comes(self, cpu: int, priority: int) -> None:
        self.world.add(make_pod(f"s{next(self.numbers)}", cpu=cpu, priority=priority))

    @precondition(lambda self: self.world.known)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.known)))
        pod = self.world.known[name]
        if pod.node_name or any(p.pod.name == name for p in self.world.bindings):
            self.maimed.add(pod.labels.get("group", ""))
        self.world.delete(name)

    @rule(count=st.integers(1, 8))
    def decide(self, count: int) -> None:
        self.world.turns(count)

    @precondition(lambda self: self.world.bindings)
    @rule(data=st.data(), succeeds=st.sampled_from([True, True, True, False]))
    def binding_ends(self, data: st.DataObject, succeeds: bool) -> None:
        index = data.draw(st.integers(0, len(self.world.bindings) - 1))
        if not succeeds:
            self.maimed.add(self.world.bindings[index].pod.labels.get("group", ""))
        self.world.end_binding(index, succeeds=succeeds)

    @rule(seconds=st.sampled_from([0.5, 2.0, 11.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def policies_change(self) -> None:
        self.world.switch()

    @invariant()
    def is_sound(self) -> None:
        self.world.check()

    @invariant()
    def no_group_holds_nodes_for_a_part(self) -> None:
        world = self.world
        for name, (wanted, _, _) in self.groups.items():
            members = [pod for pod in world.known.values() if pod.labels.get("group") == name]
            held = [pod for pod in members if world.cache.get_pod(pod.uid) is not None]
            assert name in self.maimed or not held or len(held) >= wanted, f"half of {name} holds"

    def teardown(self) -> None:
        world = self.world
        world.come_to_rest()
        pods = list(world.known.values())
        note({pod.name: (pod.node_name, world.queue.describe(pod.key)) for pod in pods})
        assert len(world.permits) == 0, "somebody waits at rest"
        assert world.cache.assumed_count == 0, "somebody holds room at rest"
        for name, (wanted, cpu, _) in self.groups.items():
            members = [pod for pod in pods if pod.labels.get("group") == name]
            placed = world.placed(members)
            if name not in self.maimed:
                assert not placed or len(placed) >= wanted, f"half of {name} is placed"
            left = len(members) - len(placed)
            missing = max(1, wanted - len(placed))
            if len(members) >= wanted and left >= missing:
                assert world.slots(cpu) < missing, f"{name} would fit"
        for pod in pods:
            if not pod.labels and not pod.node_name:
                cpu = pod.requests["cpu"] // 1000
                assert world.slots(cpu) == 0, f"{pod.name} would fit"


def test_groups_are_whole_or_hold_nothing_and_none_that_fits_is_left() -> None:
    run_state_machine_as_test(Gangs)


# --- the stories that such worlds are feared for ---------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.check()


def _group(world: World, name: str, count: int, *, cpu: int = 1, priority: int = 0) -> list[Pod]:
    pods = [member(f"{name}-{i}", name, count, cpu, priority) for i in range(count)]
    for pod in pods:
        world.add(pod)
    return pods


def test_two_groups_that_fit_nowhere_do_not_wake_each_other_for_ever(world: World) -> None:
    world.add_node(make_node("n", cpu=3))
    _group(world, "a", 4)
    _group(world, "b", 4)
    assert not world.turns(MOST_TURNS)
    attempts = [world.queue.describe(pod.key)["attempts"] for pod in world.known.values()]
    assert max(attempts) <= 2
    world.wait(60.0)
    assert not world.turns(1), "nothing has changed, and they are tried again"


def test_no_other_pod_is_decided_while_half_of_a_group_holds_capacity(world: World) -> None:
    world.add_node(make_node("n", cpu=3))
    group = _group(world, "a", 4)
    world.add(make_pod("single", cpu=3))  # comes between the pods of the group by its age
    while world.turns(1):
        waiting = len(world.permits)
        assert waiting == 0 or world.known["single"].uid not in world.cache._pods
    world.end_binding(0, succeeds=True)
    assert world.known["single"].node_name == "n"
    assert not world.placed(group)


def test_the_group_that_goes_first_by_priority_is_placed_first(world: World) -> None:
    world.add_node(make_node("n", cpu=4))
    low = _group(world, "low", 4)
    high = _group(world, "high", 4, priority=1)
    world.come_to_rest()
    assert (len(world.placed(high)), len(world.placed(low))) == (4, 0)
    for pod in high:
        world.delete(pod.name)
    world.come_to_rest()
    assert len(world.placed(low)) == 4


def test_a_large_group_takes_one_attempt_per_pod(world: World) -> None:
    for i in range(10):
        world.add_node(make_node(f"n{i}", cpu=20))
    pods = _group(world, "large", 200)
    assert not world.turns(201)
    assert len(world.bindings) == 200
    assert {placement.queued.attempts for placement in world.bindings} == {1}
    world.come_to_rest()
    assert len(world.placed(pods)) == 200
