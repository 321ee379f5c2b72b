"""What happens to pods and nodes while an extender thinks, a pod is bound, or waits in permit.

The real kernel and policies in a small world. Pods are decided and bound, and in the middle of that
they go, come again under their names, are placed by another scheduler, change their group or lose
their node. Then the world is left alone: no pod may be lost, hold room that is not its own, or be
left waiting where it would fit.
"""

import itertools
from collections.abc import Callable

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

from engine.core.kernel.events import TurnBegan
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.scheduling.extenders import unopposed
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import CONFIG, World

pytestmark = pytest.mark.slow("searches for long")

EXTENDER = """
extenders:
- urlPrefix: http://extender
  filterVerb: filter
  nodeCacheCapable: true
"""
NAMES = ("a", "b", "c", "d")
GROUPS = ("", "", "", "g")  # most are in none


class Meanwhile(RuleBasedStateMachine):
    """The world, and what happens in it at the wrong moment."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World({"config.yaml": CONFIG + EXTENDER})
        self.numbers = itertools.count()
        self.nodes: dict[str, Node] = {}
        self.events: dict[str, Callable[[str], None]] = {
            "it goes": self.go,
            "it goes and comes again": self.come_again,
            "it goes and is somewhere again": self.be_somewhere_again,
            "it is on its way out": self.end_gracefully,
            "somebody else places it": self.be_placed,
            "it is another scheduler's for a while": self.be_anothers,
            "it comes into another group": self.change_group,
            "a node goes": self.lose_a_node,
            "a node goes and comes again": self.renew_a_node,
            "policies are switched": lambda _: self.world.switch(),
        }

    @initialize(count=st.integers(1, 2))
    def begin_with_nodes(self, count: int) -> None:
        for _ in range(count):
            self.node_comes()

    # --- what happens to a pod -----------------------------------------------------------------

    def happen(self, data: st.DataObject, name: str) -> None:
        for _ in range(data.draw(st.integers(1, 2))):
            event = data.draw(st.sampled_from(sorted(self.events)))
            if name in self.world.known:
                self.events[event](name)
                self.world.check()

    def make(self, name: str, group: str, *, node: str = "", cpu: int = 1) -> Pod:
        labels = {"group": group, "min": "2"} if group else {}
        uid = f"{name}-{next(self.numbers)}"  # ties go by it: what is tried again has to repeat
        return make_pod(name, uid=uid, cpu=cpu, labels=labels, node=node or None)

    def change(self, name: str, *, group: str | None = None, ends: bool = False) -> None:
        pod = self.world.known[name]
        labels = pod.labels if group is None else {"group": group, "min": "2"}
        self.world.change(
            make_pod(
                name,
                uid=pod.uid,
                cpu=pod.requests["cpu"] // 1000,
                labels=labels,
                node=pod.node_name or None,
                terminating=ends or pod.is_terminating,
            )
        )

    def go(self, name: str) -> None:
        self.world.delete(name)

    def come_again(self, name: str) -> None:
        group = self.world.known[name].labels.get("group", "")
        self.world.delete(name)
        self.world.add(self.make(name, group))

    def be_somewhere_again(self, name: str) -> None:
        self.world.delete(name)
        if self.nodes:
            self.world.add(self.make(name, "", node=min(self.nodes)))

    def end_gracefully(self, name: str) -> None:
        self.change(name, ends=True)

    def be_placed(self, name: str) -> None:
        pod = self.world.known[name]
        if self.nodes and not pod.node_name and not pod.is_terminating:
            self.world.change(pod.with_node(max(self.nodes)))

    def be_anothers(self, name: str) -> None:
        pod = self.world.known[name]
        if not pod.node_name:
            self.world.queue.delete(pod)
            self.world.queue.add(pod)
            self.world.report(TurnBegan())

    def change_group(self, name: str) -> None:
        self.change(name, group="other")

    def lose_a_node(self, _: str = "") -> None:
        if self.nodes:
            self.world.delete_node(self.nodes.pop(min(self.nodes)))

    def renew_a_node(self, _: str) -> None:
        if self.nodes:
            node = self.nodes[min(self.nodes)]
            self.world.delete_node(node)
            self.world.add_node(node)

    # --- what the scheduler does ---------------------------------------------------------------

    @precondition(lambda self: len(self.nodes) < 3)
    @rule()
    def node_comes(self) -> None:
        node = make_node(f"n{next(self.numbers)}", cpu=3)
        self.nodes[node.name] = node
        self.world.add_node(node)

    @rule(name=st.sampled_from(NAMES), group=st.sampled_from(GROUPS), cpu=st.integers(1, 2))
    def pod_comes(self, name: str, group: str, cpu: int) -> None:
        if name not in self.world.known:
            self.world.add(self.make(name, group, cpu=cpu))

    @rule(count=st.integers(1, 4))
    def decide(self, count: int) -> None:
        self.world.turns(count)

    @rule(data=st.data())
    def decide_while_something_happens(self, data: st.DataObject) -> None:
        self.world.report(TurnBegan())
        before = len(self.world.bindings)
        turn = self.world.begin_decision()
        try:
            question = next(turn)
            self.happen(data, question.pod.name)
            while True:
                question = turn.send(unopposed(question))
        except StopIteration:
            started = self.world.bindings[before:]
            assert all(one.node in self.nodes for one in started), "a pod goes nowhere"

    @precondition(lambda self: self.world.bindings)
    @rule(goes_well=st.booleans())
    def binding_ends(self, goes_well: bool) -> None:
        self.end_first_binding(goes_well=goes_well)

    @precondition(lambda self: self.world.bindings)
    @rule(data=st.data(), goes_well=st.booleans())
    def something_happens_before_a_binding_ends(self, data: st.DataObject, goes_well: bool) -> None:
        self.happen(data, self.world.bindings[0].pod.name)
        self.world.turns(3)
        self.end_first_binding(goes_well=goes_well)

    def end_first_binding(self, *, goes_well: bool) -> None:
        pod = self.world.bindings[0].pod
        known = self.world.known.get(pod.name)
        may_be_bound = known is not None and not known.node_name and not known.is_terminating
        self.world.end_binding(0, succeeds=goes_well and may_be_bound)

    @precondition(lambda self: self.world.known)
    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        self.happen(data, data.draw(st.sampled_from(sorted(self.world.known))))

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @invariant()
    def is_sound(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        world = self.world
        while world.bindings:
            self.end_first_binding(goes_well=True)
        if not self.nodes:
            self.node_comes()  # without any, pods are tried again and again
        world.come_to_rest()
        pods = list(world.known.values())
        note({pod.name: (pod.node_name, world.queue.describe(pod.key)) for pod in pods})
        assert len(world.permits) == 0, "somebody waits at rest"
        for pod in pods:
            counted = world.cache.get_pod(pod.uid)
            assert (counted.node_name if counted else "") == pod.node_name, f"{pod.name} is lost"
            place = world.queue.describe(pod.key).get("queue")
            ended = ("terminating",) if pod.is_terminating else ()
            waits = ("gated", "unschedulable", *ended)
            assert place in ((None,) if pod.node_name else waits), f"{pod.name} is lost"
        placed = [pod for pod in pods if pod.node_name]
        assert world.cache.pod_count == len(placed), "room is held by nobody"
        for pod in pods:
            if not pod.node_name and not pod.is_terminating and not pod.labels:
                cpu = pod.requests["cpu"] // 1000
                assert world.slots(cpu) == 0, f"{pod.name} would fit"


def test_no_pod_is_lost_by_what_happens_meanwhile() -> None:
    run_state_machine_as_test(Meanwhile)
