"""Queue and cache in a small world with a simple scheduler.

Random events and attempts in any order; then the world is left alone until nothing is poppable.
No pod may be lost or in two places, and no pod that would fit somewhere may be left waiting: the
flush that would find it is switched off.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

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

from engine.caching.cache import Cache
from engine.lib.clock import VirtualClock
from engine.model.node import Node
from engine.model.node_info import NodeInfo
from engine.model.pod import Pod
from engine.model.selectors import matches_node_selector
from engine.queueing.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    node_update_events,
    pod_update_events,
)
from engine.queueing.hints.nodes import tolerates
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from tests.builders import make_node, make_pod, taint, toleration

NODE_NAMES = st.sampled_from(["n0", "n1"])
POD_NAMES = st.sampled_from(["p", "q", "r", "s"])
Aspects = dict[str, list[Any]]

# What is in nobody's way.
PLAIN_NODE: dict[str, Any] = {
    "cpu": 9,
    "pods": 9,
    "labels": {"disk": "ssd"},
    "taints": [],
    "unschedulable": False,
    "annotations": {},
}
PLAIN_POD: dict[str, Any] = {
    "cpu": 0,
    "tolerations": [],
    "node_selector": {},
    "ports": [],
    "labels": {},
    "gates": [],
    "priority": 0,
}


@dataclass(frozen=True)
class Theme:
    """What varies in a world: aspects of nodes and pods, and how pods may be changed.

    A few at a time: where everything varies, one obstacle hides another, and an event that is
    missed is made up for by the next one. What is in the way comes up more often than not.
    """

    nodes: Aspects
    pods: Aspects
    changes: Aspects


THEMES = {
    "resources": Theme(
        {"cpu": [1, 2, 3], "pods": [1, 2]},
        {"cpu": [0, 1, 2, 3], "priority": [0, 1]},
        {"cpu": [1]},
    ),
    "ports": Theme({}, {"ports": [[80], [80], [80], []]}, {}),
    "taints": Theme(
        {"taints": [[taint("a")], [taint("a")], []], "unschedulable": [True, False]},
        {"tolerations": [[], [], [toleration("a")]]},
        {"tolerations": [[toleration("a")]]},
    ),
    "labels": Theme(
        {"labels": [{}, {}, {"disk": "ssd"}]}, {"node_selector": [{"disk": "ssd"}, {}]}, {}
    ),
    "users": Theme(
        {"annotations": [{"quota": "full"}, {}]},
        {"labels": [{"app": "lonely"}, {"app": "lonely"}, {}]},
        {"labels": [{}]},
    ),
    "gates": Theme({"pods": [1, 2]}, {"gates": [["g"], []]}, {"gates": [[]]}),
}
THEMES["everything"] = Theme(
    {name: values for theme in THEMES.values() for name, values in theme.nodes.items()},
    {name: values for theme in THEMES.values() for name, values in theme.pods.items()},
    {name: values for theme in THEMES.values() for name, values in theme.changes.items()},
)

Event = tuple[str, str, Any]
"""What may happen in the world: a method of the machine and its arguments."""


def some(aspects: Aspects, plain: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    varied = {name: st.sampled_from(values) for name, values in aspects.items()}
    return st.fixed_dictionaries(varied).map(lambda words: {**plain, **words})


def one_of(aspects: Aspects) -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from([(name, v) for name, values in aspects.items() for v in values])


def events_of(theme: Theme) -> st.SearchStrategy[Event]:
    kinds: list[st.SearchStrategy[Event]] = [
        st.tuples(st.just("put_node"), NODE_NAMES, some(theme.nodes, PLAIN_NODE)),
        st.tuples(st.just("remove_node"), NODE_NAMES, st.none()),
        st.tuples(st.just("create_pod"), POD_NAMES, some(theme.pods, PLAIN_POD)),
        st.tuples(st.just("delete_pod"), POD_NAMES, st.none()),
    ]
    if theme.nodes:
        kinds.append(st.tuples(st.just("change_node"), NODE_NAMES, one_of(theme.nodes)))
    if theme.changes:
        kinds.append(st.tuples(st.just("change_pod"), POD_NAMES, one_of(theme.changes)))
    return st.one_of(kinds)


def first_rejector(pod: Pod, info: NodeInfo) -> str | None:
    """The first policy that keeps *pod* off a node, in kube-scheduler's order."""
    node = info.node
    assert node is not None
    spec = pod.manifest.spec
    if node.unschedulable:
        return "NodeUnschedulable"
    if any(not any(tolerates(t, one) for t in spec.tolerations) for one in node.taints):
        return "TaintToleration"
    if any(node.labels.get(k) != v for k, v in spec.node_selector.items()):
        return "NodeAffinity"
    assert matches_node_selector(None, node.labels, node.name)
    if any(port in info.used_ports for port in pod.host_ports):
        return "NodePorts"
    if info.pod_count >= node.allocatable["pods"] or pod.requests.get("cpu", 0) > node.allocatable[
        "cpu"
    ] - info.requested.get("cpu", 0):
        return "NodeResourcesFit"
    # Two policies of a user: one looks at the node, one at the labels of the pods on it.
    if "quota" in node.annotations:
        return "respect_quota"
    if pod.labels.get("app") == "lonely" and any(
        other.labels.get("app") == "lonely" for other in info.pods.values()
    ):
        return "keep_apart"
    return None


@dataclass
class Attempt:
    """A pod in flight with what was decided when it was popped."""

    queued: QueuedPod
    node: str | None
    rejectors: frozenset[str]
    is_assumed: bool = False


class SmallWorld(RuleBasedStateMachine):
    theme: ClassVar[Theme]

    def __init__(self) -> None:
        super().__init__()
        self.events = events_of(self.theme)
        self.clock = VirtualClock()
        self.cache = Cache()
        self.queue = SchedulingQueue(
            self.clock,
            key_of=lambda pod: ((0, -pod.priority),),
            pre_enqueue=lambda pod: (
                ("SchedulingGates", "gated") if pod.manifest.spec.scheduling_gates else None
            ),
            max_unschedulable=1e9,
        )
        self.nodes: dict[str, Node] = {}
        self.node_words: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}  # what the API server holds, by key
        self.attempts: list[Attempt] = []
        self.versions = 0

    def version(self) -> str:
        self.versions += 1
        return str(self.versions)

    def remake(self, pod: Pod, **changes: Any) -> Pod:
        """A new version of *pod*."""
        spec = pod.manifest.spec
        words: dict[str, Any] = {
            "cpu": pod.requests.get("cpu", 0) // 1000,
            "tolerations": [{"key": t.key, "operator": t.operator} for t in spec.tolerations],
            "node_selector": spec.node_selector,
            "ports": [port for _, _, port in pod.host_ports],
            "labels": pod.labels,
            "gates": [gate.name for gate in spec.scheduling_gates],
            "priority": pod.priority,
            "node": pod.node_name or None,
            **changes,
        }
        return make_pod(pod.name, uid=pod.uid, resource_version=self.version(), **words)

    # --- the world: the cache hears first, then the queue --------------------------------------

    def happen(self, event: Event) -> None:
        kind, name, detail = event
        getattr(self, kind)(name, detail)

    def put_node(self, name: str, words: dict[str, Any]) -> None:
        new, old = make_node(name, **words), self.nodes.get(name)
        self.nodes[name], self.node_words[name] = new, words
        self.cache.update_node(new)
        if old is None:
            self.queue.move(NODE_ADD, None, new)
        else:
            for event in node_update_events(old, new):
                self.queue.move(event, old, new)

    def change_node(self, name: str, change: tuple[str, Any]) -> None:
        if name in self.nodes:
            self.put_node(name, {**self.node_words[name], change[0]: change[1]})

    def remove_node(self, name: str, _: None) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            self.cache.remove_node(name)
            self.queue.move(NODE_DELETE, old, None)

    def create_pod(self, name: str, words: dict[str, Any]) -> None:
        if f"default/{name}" not in self.pods:
            pod = make_pod(name, resource_version=self.version(), **words)
            self.pods[pod.key] = pod
            self.queue.add(pod)

    def delete_pod(self, name: str, _: None) -> None:
        pod = self.pods.pop(f"default/{name}", None)
        if pod is None:
            return
        counted = self.cache.get_pod(pod.uid)
        self.queue.delete(pod)
        if counted is not None:
            self.cache.remove_pod(counted)
            self.queue.move(ASSIGNED_POD_DELETE, counted, None)

    def change_pod(self, name: str, change: tuple[str, Any]) -> None:
        old = self.pods.get(f"default/{name}")
        if old is None:
            return
        new = self.pods[old.key] = self.remake(old, **{change[0]: change[1]})
        if new.node_name:
            self.cache.update_pod(new)
            for event in pod_update_events(old, new):
                self.queue.move(event, old, new)
        else:
            self.queue.update(old, new)

    @initialize(data=st.data())
    def begin_with_nodes_and_pods(self, data: st.DataObject) -> None:
        for name in ("n0", "n1"):
            self.put_node(name, data.draw(some(self.theme.nodes, PLAIN_NODE)))
        for name in "pqrs":
            self.create_pod(name, data.draw(some(self.theme.pods, PLAIN_POD)))

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        self.happen(data.draw(self.events))

    @rule(data=st.data())
    def something_happens_while_all_pods_are_at_rest(self, data: st.DataObject) -> None:
        self.leave_the_world_alone()
        self.happen(data.draw(self.events))
        self.leave_the_world_alone()

    @rule(data=st.data(), split=st.integers(0, 4))
    def something_happens_while_all_pods_are_tried(self, data: st.DataObject, split: int) -> None:
        self.leave_the_world_alone()
        self.queue.activate([pod.key for pod in self.pending()])
        for _ in range(split):
            self.begin_an_attempt()
        self.happen(data.draw(self.events))
        while self.queue.has_poppable:
            self.begin_an_attempt()
        self.happen(data.draw(self.events))
        self.leave_the_world_alone()

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.queue.flush()

    # --- the scheduler -------------------------------------------------------------------------

    def judge(self, pod: Pod) -> tuple[str | None, frozenset[str]]:
        rejectors = set()
        for info in self.cache.snapshot().infos:
            if info is not None:
                rejector = first_rejector(pod, info)
                if rejector is None:
                    return info.name, frozenset()
                rejectors.add(rejector)
        # Without nodes every policy is asked: any new node has to be looked at.
        return None, frozenset(rejectors or {"NodeName"})

    @rule()
    def begin_an_attempt(self) -> None:
        queued = self.queue.pop()
        if queued is None:
            return
        pod = queued.pod
        if self.cache.get_pod(pod.uid) is not None:
            self.queue.done(pod.uid)  # deleted and seen again while its binding runs
            return
        node, rejectors = self.judge(pod)
        attempt = Attempt(queued, node, rejectors)
        if node is not None:
            self.cache.assume(pod, node)
            attempt.is_assumed = True
            self.queue.done(pod.uid)
        self.attempts.append(attempt)

    @precondition(lambda self: self.attempts)
    @rule(index=st.integers(0, 3), goes_well=st.booleans())
    def end_an_attempt(self, index: int, goes_well: bool) -> None:
        attempt = self.attempts.pop(index % len(self.attempts))
        pod = attempt.queued.pod
        if attempt.node is None:
            if goes_well:
                self.queue.requeue_unschedulable(attempt.queued, attempt.rejectors)
            else:
                self.queue.requeue_error(attempt.queued)
            return
        current = self.pods.get(pod.key)
        is_there = current is not None and current.uid == pod.uid
        if goes_well and is_there:
            assert current is not None
            bound = self.pods[pod.key] = self.remake(current, node=attempt.node)
            self.queue.delete(bound)
            self.cache.add_pod(bound)
            self.queue.move(ASSIGNED_POD_ADD, None, bound)
        else:
            assumed = self.cache.get_pod(pod.uid)
            self.cache.forget(pod.uid)
            self.queue.requeue_error(attempt.queued)
            self.queue.move(ASSIGNED_POD_DELETE, assumed or pod.with_node(attempt.node), None)

    @rule()
    def leave_the_world_alone(self) -> None:
        """Everything that is under way ends well; waits run out; then nobody may be overlooked."""
        for _ in range(200):
            while self.attempts:
                self.end_an_attempt(0, True)
            if not self.queue.has_poppable:
                if not self.queue.counts()["backoff"]:
                    break
                self.clock.advance(1.0)
                self.queue.flush()
            self.begin_an_attempt()
        counts = self.queue.counts()
        note(str(counts))
        assert counts["active"] == counts["backoff"] == counts["in_flight"] == 0
        for pod in self.pending():
            if pod.manifest.spec.scheduling_gates:
                assert self.queue.describe(pod.key)["queue"] == "gated"
                continue
            where, _ = self.judge(pod)
            assert where is None, f"`{pod.key}` waits, but would fit on `{where}`"
            assert self.queue.describe(pod.key)["queue"] == "unschedulable"

    # --- what always holds ---------------------------------------------------------------------

    def pending(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if not pod.node_name)

    @invariant()
    def no_pod_is_lost_or_in_two_places(self) -> None:
        self.queue.check_invariants()
        self.cache.check_invariants()
        want = {pod.uid for pod in self.pending()}
        assert {pod.uid for pod in self.pods.values() if pod.uid in self.queue} == want
        assert len(self.queue) == len(want)

    @invariant()
    def the_newest_version_is_tried(self) -> None:
        for pod in self.pending():
            known = self.queue.describe(pod.key)
            assert known["uid"] == pod.uid


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_pod_is_lost_doubled_or_overlooked(theme: str) -> None:
    run_state_machine_as_test(type("World", (SmallWorld,), {"theme": THEMES[theme]}))
