"""A small world in which things happen at random: the same of the same seed."""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.core.kernel.events import (
    BindingGivenUp,
    ObjectChanged,
    PodGroupsServed,
    PreemptionEnd,
    PreemptionEnded,
    TurnBegan,
    WaitingPodPreempted,
)
from engine.core.kernel.instructions import Bind, Evict, Instruction
from engine.core.kernel.kernel import Kernel
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.core.scheduling.extenders import unopposed
from tests.builders import make_node, make_pod
from tests.engine.core.kernel.small_world import World
from tests.engine.core.kernel.test_decide import EXTENDER
from tests.engine.core.kernel.test_group_attempts import pod_group
from tests.profiles import only

# Groups of three kinds (a PodGroup, labels, a policy of the user), order and gates that depend on
# them, waits in permit, and preemption.
MINE: Final = """
def group_of(pod):
    return gang(pod.labels["team"]) if "team" in pod.labels else None

def queue_key(pod, group):
    return -pod.priority if group == None else group.pending + group.waiting + group.placed

def pre_enqueue(pod):
    return "held" if pod.labels.get("mood") == "held" else None

def permit(pod, group):
    if pod.labels.get("mood") == "refused":
        return "refused"
    if group == None or pod.labels.get("mood") != "waits":
        return None
    return wait(7, "%d of %d" % (group.waiting, group.pending))
"""
_CONFIG: Final = (
    only("NodeResourcesFit", "GangScheduling", "DefaultPreemption", "SchedulingGates", "mine")
    .replace("{name: PrioritySort}, ", "")
    .replace(
        "    multiPoint:",
        '    queueSort: {enabled: [{name: mine}], disabled: [{name: "*"}]}\n    multiPoint:',
    )
)
FILES: Final = {
    "config.yaml": _CONFIG
    + """
  pluginConfig:
    - name: GangScheduling
      args: {groupLabel: group, minCountLabel: min}
""",
    "mine.star": MINE,
}
_MOODS: Final = ("", "", "", "held", "waits", "waits", "refused")


class RandomLife(World):
    """Pods, nodes and groups come, change and go; attempts, bindings and evictions end somehow.

    Args:
        seed: Of what happens.
        files: Policies and their configuration.
        make_kernel: As of `World`.
    """

    def __init__(
        self,
        seed: int,
        files: Mapping[str, str] = FILES,
        make_kernel: Callable[..., Kernel] = Kernel,
    ) -> None:
        self.rng = random.Random(seed)
        self.numbers = itertools.count()
        self.evictions: list[Evict] = []
        self.nodes: dict[str, Node] = {}
        self.pod_groups: dict[str, PodGroup] = {}
        self.served = "v1beta1"
        self.files = files
        self.shapes: dict[str, dict[str, Any]] = {}  # by uid
        super().__init__(files, make_kernel)
        self.happenings: list[Callable[[], None]] = [
            *[self.pod_comes] * 6,
            *[self.pod_changes] * 2,
            self.pod_goes,
            self.pod_terminates,
            self.pod_is_placed_by_others,
            self.pod_is_replaced,
            *[self.node_comes_or_goes] * 2,
            *[self.group_comes_or_goes] * 2,
            *[self.try_some] * 5,
            *[self.binding_ends] * 3,
            self.eviction_ends,
            self.waiting_is_preempted,
            self.time_passes,
            self.groups_are_served_or_not,
            self.switch,
        ]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice(self.happenings)()
            self.check()

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        self._follow(instructions)
        for one in instructions:
            if isinstance(one, Bind):
                self.bindings.append(one.placement)
            elif isinstance(one, Evict):
                self.evictions.append(one)
        return instructions

    # --- pods ------------------------------------------------------------------------------

    def _shape(self) -> dict[str, Any]:
        rng = self.rng
        labels = {"mood": rng.choice(_MOODS)}
        spec: dict[str, Any] = {}
        match rng.randrange(6):
            case 0 | 1:
                spec["schedulingGroup"] = {"podGroupName": rng.choice("gh")}
            case 2:
                labels |= {"group": rng.choice("gh"), "min": str(rng.randint(1, 3))}
            case 3:
                labels["team"] = rng.choice("xy")
        return {
            "cpu": rng.randint(1, 3),
            "priority": rng.choice((0, 0, 0, 1, 5)),
            "labels": {key: value for key, value in labels.items() if value},
            "spec": spec,
            "gates": ["example.com/wait"] if rng.random() < 0.05 else [],
        }

    def _pod(self, name: str, uid: str, shape: dict[str, Any], **more: Any) -> Pod:
        pod = make_pod(name, uid=uid, resource_version=str(next(self.numbers)), **{**shape, **more})
        self.shapes[uid] = shape
        return pod

    def _any(self, wanted: Callable[[Pod], bool] = lambda _: True) -> Pod | None:
        found = [pod for pod in self.known.values() if wanted(pod)]
        return self.rng.choice(found) if found else None

    def pod_comes(self) -> None:
        number = next(self.numbers)
        self.add(self._pod(f"p{number}", f"u{number}", self._shape()))

    def pod_changes(self) -> None:
        pod = self._any()
        if pod is not None:
            shape = {**self.shapes[pod.uid], "gates": []}
            new = self._shape()
            for name in ("labels", "spec") if not pod.node_name else ("labels",):
                shape[name] = new[name]
            self.change(
                self._pod(
                    pod.name,
                    pod.uid,
                    shape,
                    node=pod.node_name or None,
                    terminating=pod.is_terminating,
                )
            )

    def pod_goes(self) -> None:
        pod = self._any()
        if pod is not None:
            self.delete(pod.name)

    def pod_terminates(self) -> None:
        pod = self._any(lambda one: not one.is_terminating)
        if pod is not None:
            shape, node = self.shapes[pod.uid], pod.node_name or None
            self.change(self._pod(pod.name, pod.uid, shape, node=node, terminating=True))

    def pod_is_placed_by_others(self) -> None:
        pod = self._any(lambda one: not one.node_name and not one.is_terminating)
        if pod is not None and self.nodes:
            self.change(pod.with_node(self.rng.choice(sorted(self.nodes))))

    def pod_is_replaced(self) -> None:
        """Another one has its name; that it went was not seen."""
        pod = self._any()
        if pod is not None:
            self.change(self._pod(pod.name, f"u{next(self.numbers)}", self._shape()))

    # --- nodes and groups ------------------------------------------------------------------

    def node_comes_or_goes(self) -> None:
        name = self.rng.choice(("n1", "n2", "n3"))
        old = self.nodes.pop(name, None)
        if old is not None and self.rng.random() < 0.5:
            self.delete_node(old)
            return
        self.nodes[name] = node = make_node(name, cpu=self.rng.randint(2, 6))
        if old is None:
            self.add_node(node)
        else:
            self.update_node(old, node)

    def group_comes_or_goes(self) -> None:
        name = self.rng.choice("gh")
        old, new = self.pod_groups.pop(name, None), None
        if old is None or self.rng.random() < 0.5:
            mode: dict[str, Any] = (
                {"disruptionMode": {"all": {}}} if self.rng.random() < 0.3 else {}
            )
            new = self.pod_groups[name] = pod_group(self.rng.randint(1, 3), name=name, **mode)
        self.report(ObjectChanged(POD_GROUPS, old, new))

    def groups_are_served_or_not(self) -> None:
        self.served = self.rng.choice(("", "v1beta1"))
        self.report(PodGroupsServed(self.served))

    # --- what the scheduler does, and how it ends ------------------------------------------

    def try_some(self) -> None:
        self.turns(self.rng.randint(1, 4))

    def binding_ends(self) -> None:
        if not self.bindings:
            return
        if self.rng.random() < 0.1:
            self.report(BindingGivenUp(self.bindings.pop(0)))
        else:
            self.end_binding(0, succeeds=self.can_be_bound() and self.rng.random() < 0.8)

    def can_be_bound(self) -> bool:
        placement = self.bindings[0]
        pod = self.known.get(placement.pod.name)
        return (
            pod is not None
            and pod.uid == placement.pod.uid
            and not pod.is_terminating
            and not pod.node_name
            and placement.node in self.nodes
        )

    def eviction_ends(self) -> None:
        if self.evictions:
            evict = self.evictions.pop(self.rng.randrange(len(self.evictions)))
            end = self.rng.choice(list(PreemptionEnd))
            if end in (PreemptionEnd.DONE, PreemptionEnd.IN_MEMORY):
                for victim in evict.victims:
                    known = self.known.get(victim.name)
                    if victim.uid in self.permits:
                        self.report(WaitingPodPreempted(victim.uid))
                    elif known is not None and known.uid == victim.uid:
                        self.delete(victim.name)
            self.report(PreemptionEnded(evict.preemptor, evict.preemption.node, end))

    def waiting_is_preempted(self) -> None:
        waiting = self._any(lambda one: one.uid in self.permits)
        if waiting is not None:
            self.report(WaitingPodPreempted(waiting.uid))

    def time_passes(self) -> None:
        self.wait(self.rng.choice((0.5, 3.0, 12.0)))

    # --- the end ---------------------------------------------------------------------------

    def end_what_is_under_way(self) -> None:
        """No pod holds what the API server does not show, and no eviction is under way."""
        for pod in list(self.known.values()):
            if pod.uid in self.permits:
                self.report(WaitingPodPreempted(pod.uid))
        while self.bindings:
            self.end_binding(0, succeeds=self.can_be_bound())
        while self.evictions:
            evict = self.evictions.pop()
            self.report(PreemptionEnded(evict.preemptor, evict.preemption.node))
        for pod in list(self.known.values()):
            if self.queue.describe(pod.key).get("queue") == "binding":  # given up: it arrived
                self.change(pod.with_node(pod.node_name or "n1"))
        follow(self)
        self.check()

    def started_again(self) -> World:
        """A process that starts now, and sees the same cluster."""
        fresh = World(self.files)
        fresh.report(PodGroupsServed(self.served))
        for node in self.nodes.values():
            fresh.add_node(node)
        for group in self.pod_groups.values():
            fresh.put_object(POD_GROUPS, group)
        for pod in self.known.values():
            fresh.add(pod)
        follow(fresh)
        return fresh


class AskingLife(RandomLife):
    """One whose attempts take as long as an extender does, while other things happen."""

    def __init__(self, seed: int) -> None:
        files = {**FILES, "config.yaml": FILES["config.yaml"] + EXTENDER}
        super().__init__(seed, files)
        self.meanwhile = [
            self.pod_comes,
            self.pod_changes,
            self.pod_goes,
            self.pod_terminates,
            self.pod_is_placed_by_others,
            self.pod_is_replaced,
            self.node_comes_or_goes,
            self.group_comes_or_goes,
            self.binding_ends,
            self.eviction_ends,
            *[self.held_pod_goes, self.held_pod_is_placed_by_others] * 3,
        ]

    def _held(self) -> Pod | None:
        """One that has a node in the attempt under way."""
        bound = {placement.pod.uid for placement in self.bindings}
        return self._any(
            lambda one: (
                self.cache.is_assumed(one.uid)
                and one.uid not in self.permits
                and one.uid not in bound
            )
        )

    def held_pod_goes(self) -> None:
        held = self._held()
        if held is not None:
            self.delete(held.name)

    def held_pod_is_placed_by_others(self) -> None:
        held = self._held()
        if held is not None and not held.is_terminating and self.nodes:
            self.change(held.with_node(self.rng.choice(sorted(self.nodes))))

    def decide(self) -> list[Instruction]:
        turn = self.begin_decision()
        try:
            question = next(turn)
            while True:
                if self.rng.random() < 0.6:
                    self.rng.choice(self.meanwhile)()
                question = turn.send(unopposed(question))
        except StopIteration as end:
            instructions: list[Instruction] = end.value
            return instructions


def follow(world: World) -> None:
    """Have *world* follow its groups until nothing about them changes any more."""
    world.report(TurnBegan())
    while world.groups.has_changes:
        world.report(TurnBegan())
