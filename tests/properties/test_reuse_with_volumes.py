"""Reuse beside none, over storage: volumes come, claims are bound, drivers change their minds.

As `test_reuse_changes_nothing`, for what policies see of volumes. Nothing tells the scheduler that
remembers which nodes a change is about: it has to find out.
"""

import random
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.core.caching.cache import Cache
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Explanation
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import OBJECT_KINDS
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod
from tests.profiles import only
from tests.searching import examples
from tests.storage_builders import DRIVER, Json, claim, csi_node, storage_class, uses, volume

pytestmark = pytest.mark.slow("searches for long")

NODES: Final = {"n0": "x", "n1": "y", "n2": None}
EBS: Final = "ebs.csi.aws.com"

PROFILE: Final = only(
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "DefaultPreemption",
)

SOURCES: Final[dict[str, list[Json]]] = {
    "nothing": [],
    "one": uses("c0"),
    "two": uses("c0", "c1"),
    "its own": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}],
    "a disk": [{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}],
    "a disk that is read": [{"name": "d", "gcePersistentDisk": {"pdName": "g", "readOnly": True}}],
    "a disk that is written": [{"name": "d", "gcePersistentDisk": {"pdName": "g"}}],
    "the third": uses("c2"),
}

VOLUMES: Final = ["v0", "v1", "v2"]
CLAIMS: Final = ["c0", "c1", "c2", "p0-scratch"]

_claims = st.builds(
    claim,
    st.sampled_from(CLAIMS),
    volume=st.sampled_from(["", *VOLUMES]),
    storage_class=st.sampled_from([None, "made", "local"]),
    modes=st.sampled_from([["ReadWriteOnce"], ["ReadWriteOncePod"]]),
    ownerReferences=st.sampled_from(
        [[], [{"kind": "Pod", "name": "p0", "uid": "u0", "controller": True}]]
    ),
)
_volumes = st.builds(
    volume,
    st.sampled_from(VOLUMES),
    zone=st.sampled_from([None, "x"]),
    labels=st.sampled_from(
        [{}, {"topology.kubernetes.io/zone": "x"}, {"topology.kubernetes.io/zone": "x__y"}]
    ),
    phase=st.sampled_from(["Available", "Bound"]),
    source=st.sampled_from(
        [
            {"csi": {"driver": DRIVER, "volumeHandle": "h0"}},
            {"csi": {"driver": DRIVER, "volumeHandle": "h1"}},
            {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}},
            {"nfs": {"server": "s"}},
        ]
    ),
)
_csi_nodes = st.builds(
    csi_node,
    st.sampled_from(sorted(NODES)),
    limits=st.sampled_from([{}, {DRIVER: 1}, {DRIVER: 2, EBS: 1}, {EBS: 0, DRIVER: 1}]),
    migrated=st.sampled_from(["", "kubernetes.io/aws-ebs"]),
)
_classes = st.builds(
    storage_class,
    st.sampled_from(["made", "local"]),
    provisioner=st.sampled_from([DRIVER, "kubernetes.io/aws-ebs", "kubernetes.io/no-provisioner"]),
    mode=st.sampled_from(["WaitForFirstConsumer", "Immediate", None]),
)


def _attachment(name: str, node: str, volume_name: str) -> Json:
    return {
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": DRIVER,
            "nodeName": node,
            "source": {"persistentVolumeName": volume_name},
        },
    }


_attachments = st.builds(
    _attachment,
    st.sampled_from(["a0", "a1"]),
    st.sampled_from(sorted(NODES)),
    st.sampled_from(VOLUMES),
)

# Where a change shows: claims that are bound, and nodes that take few volumes.
START: Final[list[Json]] = [
    *(claim(f"c{i}", volume=f"v{i}", storage_class="made") for i in range(3)),
    *(
        volume(f"v{i}", source={"csi": {"driver": DRIVER, "volumeHandle": f"h{i}"}})
        for i in range(3)
    ),
    *(csi_node(name, limits={DRIVER: 2, EBS: 1}) for name in NODES),
    storage_class("made", provisioner=DRIVER),
]

# Reading and checking the shipped policies takes longer than everything else here.
BUNDLE: Final = build_bundle({"profile.yaml": PROFILE})


def _scheduler() -> Scheduler:
    return Scheduler(BUNDLE, InProcessEvaluator(BUNDLE.program))


class ReuseWithVolumes(RuleBasedStateMachine):
    """A cluster whose storage changes at random, and pods that are placed in it."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.remembering = _scheduler()
        self.nodes = {name: make_node(name, zone=zone) for name, zone in NODES.items()}
        self.objects: dict[tuple[str, str], tuple[str, Any]] = {}
        self.placed: dict[str, Pod] = {}
        self.steps = 0
        for node in self.nodes.values():
            self.cache.add_node(node)
        for plain in START:
            self._put(plain)
        self.a_pod_is_placed(1, "one", "n0")
        self.a_pod_is_placed(2, "the third", "n1")

    # --- the cluster changes -----------------------------------------------------------------

    @rule(plain=_claims)
    def a_claim_comes_or_changes(self, plain: Json) -> None:
        self._put(plain)

    @rule(plain=_volumes)
    def a_volume_comes_or_changes(self, plain: Json) -> None:
        self._put(plain)

    @rule(plain=_csi_nodes)
    def a_node_takes_more_or_less(self, plain: Json) -> None:
        self._put(plain)

    @rule(plain=st.one_of(_classes, _attachments))
    def a_class_or_an_attachment_comes_or_changes(self, plain: Json) -> None:
        self._put(plain)

    def _put(self, plain: Json) -> None:
        plural, record = OBJECT_KINDS[plain["kind"]]
        obj: Any = from_plain(record, plain)
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        self.objects[plural, key] = (plural, obj)
        self.cache.objects.put(plural, obj)

    @rule(data=st.data())
    def an_object_goes(self, data: st.DataObject) -> None:
        if self.objects:
            plural, key = data.draw(st.sampled_from(sorted(self.objects)))
            del self.objects[plural, key]
            self.cache.objects.delete(plural, key)

    @rule(
        number=st.integers(1, 4),
        source=st.sampled_from(sorted(SOURCES)),
        node=st.sampled_from(sorted(NODES)),
        cpu=st.sampled_from(["0", "1", "3"]),
    )
    def a_pod_is_placed(self, number: int, source: str, node: str, cpu: str = "0") -> None:
        self.a_pod_goes(number)
        # Of equally important pods those are reprieved that came first, which is not told again.
        pod = make_pod(
            f"p{number}",
            uid=f"u{number}",
            volumes=SOURCES[source],
            node=node,
            cpu=cpu,
            priority=number,
        )
        self.placed[pod.uid] = pod
        self.cache.add_pod(pod)

    @rule(number=st.integers(1, 4))
    def a_pod_goes(self, number: int) -> None:
        pod = self.placed.pop(f"u{number}", None)
        if pod is not None:
            self.cache.remove_pod(pod)

    @rule(name=st.sampled_from(sorted(NODES)))
    def a_node_goes_and_comes(self, name: str) -> None:
        self.cache.remove_node(name)
        self.cache.snapshot()
        self.cache.add_node(self.nodes[name])

    # --- decisions -----------------------------------------------------------------------------

    @invariant()
    def every_pod_is_decided_alike(self) -> None:
        self.steps += 1
        snapshot = self.cache.snapshot()
        again, other = _scheduler(), self._anew(self.steps).snapshot()
        for source in SOURCES:
            for cpu in ("0", "2"):  # the second may preempt
                pod = make_pod("p0", uid="u0", volumes=SOURCES[source], cpu=cpu, priority=9)
                got = self.remembering.explain(pod, snapshot)
                assert _shown(got) == _shown(again.explain(pod, other)), source
                assert not got.decision.failures, got.decision.failures
        self.cache.check_invariants()

    def _anew(self, seed: int) -> Cache:
        """The same cluster, filled in another order."""
        steps: list[Any] = [
            *(("node", node) for node in self.nodes.values()),
            *(("pod", pod) for pod in self.placed.values()),
            *(("object", found) for found in self.objects.values()),
        ]
        random.Random(seed).shuffle(steps)
        cache = Cache()
        for kind, what in steps:
            if kind == "node":
                cache.add_node(what)
            elif kind == "pod":
                cache.add_pod(what)
            else:
                cache.objects.put(*what)
        return cache


def _shown(explanation: Explanation) -> Any:
    rejected = {name: (s.code, s.reasons) for name, s in sorted(explanation.rejected.items())}
    decision = explanation.decision
    eviction = decision.eviction
    evicted = None if eviction is None else [victim.uid for victim in eviction.victims]
    return rejected, sorted(explanation.feasible), decision.node, decision.message(), evicted


TestReuseWithVolumes = ReuseWithVolumes.TestCase
TestReuseWithVolumes.settings = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None
)
