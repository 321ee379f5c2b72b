"""The cache beside a dict: whatever the order of events, every pod counts once, where it is."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.core.caching.cache import AlreadyAssumed, Cache
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from tests.builders import make_node, make_pod

pytestmark = pytest.mark.slow("searches for long")

NODES = st.sampled_from(["n0", "n1", "n2"])
NAMES = st.sampled_from(["p", "q", "r"])
# Two uids per name: a pod may be deleted and made anew.
UIDS = st.sampled_from(["1", "2"])
CPUS = st.integers(0, 3)


@dataclass(frozen=True)
class Counted:
    """A pod as the dict has it."""

    key: str
    node: str
    cpu: int
    is_assumed: bool


class CacheBesideADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, str] = {}  # name -> the image it has
        self.pods: dict[str, Counted] = {}
        # A reader that follows the snapshot by what it says has changed.
        self.mirror: list[NodeInfo | None] = []
        self.seen = 0

    @staticmethod
    def make(name: str, uid: str, cpu: int, node: str | None = None) -> Pod:
        return make_pod(name, uid=f"{name}{uid}", cpu=cpu, node=node, ports=[80] if cpu else [])

    def count(self, pod: Pod, node: str, cpu: int, *, is_assumed: bool) -> None:
        self.pods = {
            uid: other for uid, other in self.pods.items() if other.key != pod.key or uid == pod.uid
        }
        self.pods[pod.uid] = Counted(pod.key, node, cpu, is_assumed)

    @rule(name=NODES, image=st.sampled_from(["x", "y"]))
    def add_or_update_node(self, name: str, image: str) -> None:
        self.cache.add_node(make_node(name, images={image: 1}))
        self.nodes[name] = image

    @rule(name=NODES)
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @rule(name=NAMES, uid=UIDS, cpu=CPUS, node=NODES)
    def assume(self, name: str, uid: str, cpu: int, node: str) -> None:
        pod = self.make(name, uid, cpu)
        known = pod.uid in self.pods
        try:
            self.cache.assume(pod, node)
        except AlreadyAssumed:
            assert known
        else:
            assert not known
            self.count(pod, node, cpu, is_assumed=True)

    @rule(name=NAMES, uid=UIDS)
    def forget(self, name: str, uid: str) -> None:
        known = self.pods.get(name + uid)
        was_assumed = known is not None and known.is_assumed
        assert self.cache.forget(name + uid) is was_assumed
        if was_assumed:
            del self.pods[name + uid]

    @rule(name=NAMES, uid=UIDS, cpu=CPUS, node=NODES)
    def see_placed(self, name: str, uid: str, cpu: int, node: str) -> None:
        pod = self.make(name, uid, cpu, node)
        self.cache.add_pod(pod)
        self.count(pod, node, cpu, is_assumed=False)

    @rule(name=NAMES, uid=UIDS)
    def see_deleted(self, name: str, uid: str) -> None:
        self.cache.remove_pod(self.make(name, uid, 0))
        self.pods.pop(name + uid, None)

    @rule()
    def read_the_snapshot(self) -> None:
        snapshot = self.cache.snapshot()
        self.mirror.extend([None] * (len(snapshot.infos) - len(self.mirror)))
        changed = snapshot.changed_since(self.seen)
        assert changed is not None
        for slot in changed:
            self.mirror[slot] = snapshot.infos[slot]
        self.seen = snapshot.generation
        assert all(a is b for a, b in zip(self.mirror, snapshot.infos, strict=True))
        assert snapshot.slot_of.keys() == self.nodes.keys()
        for name in self.nodes:
            info = snapshot.info(name)
            assert info is not None
            self.agree_on(info)
        images = list(self.nodes.values())
        assert snapshot.image_nodes == {image: images.count(image) for image in set(images)}

    def agree_on(self, info: NodeInfo) -> None:
        here = {uid: pod for uid, pod in self.pods.items() if pod.node == info.name}
        assert info.pods.keys() == here.keys()
        cpu = 1000 * sum(pod.cpu for pod in here.values())
        assert info.requested.get("cpu", 0) == info.nonzero_requested["cpu"] == cpu
        holders = sum(1 for pod in here.values() if pod.cpu)
        assert sum(info.used_ports.values()) == holders

    @invariant()
    def agree(self) -> None:
        self.cache.check_invariants()
        assert self.cache.node_count == len(self.nodes)
        assert self.cache.pod_count == len(self.pods)
        assert self.cache.assumed_count == sum(pod.is_assumed for pod in self.pods.values())
        for name in ("n0", "n1", "n2"):
            info = self.cache.node_info(name)
            if info is None:
                assert name not in self.nodes
                assert all(pod.node != name for pod in self.pods.values())
            else:
                self.agree_on(info)


TestCache = CacheBesideADict.TestCase
