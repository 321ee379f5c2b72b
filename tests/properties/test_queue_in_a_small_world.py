"""Queue and cache in a small world with a simple scheduler.

Random events and attempts in any order; then the world is left alone until nothing is poppable.
No pod may be lost or in two places, and no pod that would fit somewhere may be left waiting: the
flush that would find it is switched off.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
from engine.queueing.hints import tolerates
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from tests.builders import make_node, make_pod, taint, toleration

NODE_NAMES = st.sampled_from(["n0", "n1"])
POD_NAMES = st.sampled_from(["p", "q", "r", "s"])
NODES = st.fixed_dictionaries(
    {
        "cpu": st.integers(1, 3),
        "pods": st.integers(1, 2),
        "labels": st.sampled_from([{}, {"disk": "ssd"}]),
        "taints": st.sampled_from([[], [taint("a")]]),
        "unschedulable": st.booleans(),
        "annotations": st.sampled_from([{}, {"quota": "full"}]),
    }
)
PODS = st.fixed_dictionaries(
    {
        "cpu": st.integers(0, 3),
        "tolerations": st.sampled_from([[], [toleration("a")]]),
        "node_selector": st.sampled_from([{}, {"disk": "ssd"}]),
        "ports": st.sampled_from([[], [80]]),
        "labels": st.sampled_from([{}, {"app": "lonely"}]),
        "gates": st.sampled_from([[], [], ["g"]]),
        "priority": st.integers(0, 1),
    }
)


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
    def __init__(self) -> None:
        super().__init__()
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

    @rule(name=NODE_NAMES, words=NODES)
    def put_node(self, name: str, words: dict[str, Any]) -> None:
        new, old = make_node(name, **words), self.nodes.get(name)
        self.nodes[name] = new
        self.cache.update_node(new)
        if old is None:
            self.queue.move(NODE_ADD, None, new)
        else:
            for event in node_update_events(old, new):
                self.queue.move(event, old, new)

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            self.cache.remove_node(name)
            self.queue.move(NODE_DELETE, old, None)

    @rule(name=POD_NAMES, words=PODS)
    def create_pod(self, name: str, words: dict[str, Any]) -> None:
        assume(f"default/{name}" not in self.pods)
        pod = make_pod(name, resource_version=self.version(), **words)
        self.pods[pod.key] = pod
        self.queue.add(pod)

    @rule(name=POD_NAMES)
    def delete_pod(self, name: str) -> None:
        pod = self.pods.pop(f"default/{name}", None)
        if pod is None:
            return
        counted = self.cache.get_pod(pod.uid)
        self.queue.delete(pod)
        if counted is not None:
            self.cache.remove_pod(counted)
            self.queue.move(ASSIGNED_POD_DELETE, counted, None)

    @rule(
        name=POD_NAMES,
        changes=st.sampled_from(
            [{"gates": []}, {"tolerations": [toleration("a")]}, {"labels": {}}, {"cpu": 1}]
        ),
    )
    def update_pod(self, name: str, changes: dict[str, Any]) -> None:
        old = self.pods.get(f"default/{name}")
        if old is None:
            return
        new = self.pods[old.key] = self.remake(old, **changes)
        if new.node_name:
            self.cache.update_pod(new)
            for event in pod_update_events(old, new):
                self.queue.move(event, old, new)
        else:
            self.queue.update(old, new)

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


TestSmallWorld = SmallWorld.TestCase
