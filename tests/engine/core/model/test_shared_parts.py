"""Pods that share what they have in common are the pods that they would be alone."""

import random
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.model.objects import decode
from engine.core.model.pod import Pod
from engine.core.model.shared_parts import shared_claims, shared_volumes
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim
from engine.io.informers import pod_decoder
from tests.builders import pod_manifest

owners = st.sampled_from(["web", "db", ""])
words = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2"])),
        "requests": st.fixed_dictionaries({"cpu": st.sampled_from(["1", "1000m", "2"])}),
        "node": st.sampled_from(["n1", "n2"]),
        "priority": st.integers(0, 2),
        "scheduler_name": st.sampled_from(["default-scheduler", "other"]),
    },
)


def text(owner: str, number: int, **answer: Any) -> bytes:
    manifest = pod_manifest(f"{owner}-{number}", uid=f"u-{number}", **answer)
    if owner:
        reference = {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        manifest["metadata"]["ownerReferences"] = [reference]
    return msgspec.json.encode(manifest)


@pytest.mark.slow("compares much")
@given(st.lists(st.tuples(owners, words), max_size=12))
def test_a_pod_is_what_its_text_says(pods: list[tuple[str, dict[str, Any]]]) -> None:
    decode = pod_decoder()
    texts = [text(owner, number, **answer) for number, (owner, answer) in enumerate(pods)]
    shared = [decode(raw) for raw in texts]
    for raw, pod in zip(texts, shared, strict=True):  # after all of them: none changed another
        alone = Pod.from_raw(raw)
        assert pod.manifest == alone.manifest
        assert (pod.key, pod.uid, pod.raw) == (alone.key, alone.uid, alone.raw)


def test_pods_of_one_owner_share_what_is_equal_and_nothing_else() -> None:
    decode = pod_decoder()
    one = decode(text("web", 1, labels={"a": "1"}, requests={"cpu": "1"})).manifest
    other = decode(text("web", 2, labels={"a": "2"}, requests={"cpu": "1"})).manifest
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels == {"a": "1"}
    assert other.metadata.labels == {"a": "2"}


@pytest.mark.slow("computes for long")
def test_what_is_remembered_of_owners_is_bounded() -> None:
    decode = pod_decoder()
    for number in range(5_000):
        decode(text(f"owner-{number}", number))
    first = decode(text("owner-0", 1)).manifest
    again = decode(text("owner-0", 2)).manifest
    assert first.spec.containers is again.spec.containers
    order = list(range(40_000))
    random.Random(1).shuffle(order)
    tracemalloc.start()
    try:
        for number in order[:5_000]:
            decode(text(f"many-{number}", number))
        full = tracemalloc.get_traced_memory()[0]
        for number in order[5_000:15_000]:
            decode(text(f"many-{number}", number))
        assert tracemalloc.get_traced_memory()[0] < 1.1 * full
    finally:
        tracemalloc.stop()


def _volume(number: int, zone: str, size: str = "1Gi") -> bytes:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {
        "storageClassName": "fast",
        "capacity": {"storage": size},
        "csi": {"driver": "d", "volumeHandle": f"h{number}"},
        "claimRef": {"namespace": "default", "name": f"c{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return msgspec.json.encode({"metadata": {"name": f"v{number}"}, "spec": spec})


def test_volumes_that_the_same_nodes_reach_share_what_is_equal() -> None:
    shared = shared_volumes()
    texts = [_volume(1, "a"), _volume(2, "b"), _volume(3, "a"), _volume(4, "a", "2Gi")]
    one, other, third, larger = [shared.of(decode(PersistentVolume, raw)) for raw in texts]
    assert [one, other, third, larger] == [decode(PersistentVolume, raw) for raw in texts]
    assert third.spec.capacity is one.spec.capacity
    assert third.spec.node_affinity is one.spec.node_affinity
    assert larger.spec.node_affinity is one.spec.node_affinity


def test_claims_of_a_class_share_what_is_equal() -> None:
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    note = {"pv.kubernetes.io/bind-completed": "yes"}
    texts = [
        msgspec.json.encode(
            {
                "metadata": {"name": f"c{n}", "namespace": "x", "annotations": note},
                "spec": {**spec, "volumeName": f"v{n}"},
                "status": {"phase": phase},
            }
        )
        for n, phase in enumerate(["Bound", "Bound", "Lost"])
    ]
    shared = shared_claims()
    one, other, lost = [shared.of(decode(PersistentVolumeClaim, raw)) for raw in texts]
    assert [one, other, lost] == [decode(PersistentVolumeClaim, raw) for raw in texts]
    assert other.metadata.annotations is one.metadata.annotations
    assert other.spec.resources is one.spec.resources
    assert other.status is one.status
