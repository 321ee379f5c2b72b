"""A workload that changes helps the pods whose policies are given something else after it."""

from typing import Any, Final

import pytest

from engine.core.caching.objects import ObjectStore
from engine.core.model.objects import from_plain
from engine.core.queueing.events import ADD, DELETE, UPDATE, ClusterEvent
from engine.core.queueing.hints import Hints
from engine.files.world import OBJECT_KINDS
from engine.policy.bundle import build_bundle
from tests.builders import make_pod
from tests.engine.core.queueing.hinting import worth
from tests.workloads import SPOT_SHARE, owned_by, replica_set, workload

Json = dict[str, Any]

_OWNED: Final = {
    name: make_pod(f"{name}-1-a", owner=owned_by("ReplicaSet", f"{name}-1"))
    for name in ("web", "api")
}
_SETS: Final = tuple(
    replica_set(f"{name}-1", owner=owned_by("Deployment", name)) for name in ("web", "api")
)


def _helps(pod: Any, kind: str, old: Json | None, new: Json | None, text: str = SPOT_SHARE) -> bool:
    """Whether *pod*, which the policy of *text* rejected, is tried after the change."""
    store = ObjectStore()
    there = [new] if new is not None else []
    for manifest in (*_SETS, *there):
        plural, record = OBJECT_KINDS[manifest["kind"]]
        made: Any = from_plain(record, manifest)
        store.put(plural, made)
    policies = build_bundle({"share.star": text}).policies
    hints = Hints(policies={"share": dict(policies["share"].hooks)}, objects=store)
    action = ADD if old is None else DELETE if new is None else UPDATE
    before, after = (
        None if one is None else from_plain(OBJECT_KINDS[kind][1], one) for one in (old, new)
    )
    return worth("share", ClusterEvent(kind, action), pod, before, after, hints)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(3, 10, id="scaled"),
        pytest.param(None, 10, id="seen for the first time"),
        pytest.param(3, None, id="gone"),
    ],
)
def test_a_workload_that_is_scaled_helps_its_own_pods_and_no_others(
    old: int | None, new: int | None
) -> None:
    before, after = (
        None if replicas is None else workload("Deployment", replicas=replicas)
        for replicas in (old, new)
    )
    assert _helps(_OWNED["web"], "Deployment", before, after)
    assert not _helps(_OWNED["api"], "Deployment", before, after)
    assert not _helps(make_pod("alone"), "Deployment", before, after)


def test_a_change_that_no_policy_is_given_helps_no_pod() -> None:
    """As each report of the controller of a Deployment in its status."""
    old = workload("Deployment", replicas=3)
    new = {**old, "metadata": {**old["metadata"], "resourceVersion": "2"}}
    assert not _helps(_OWNED["web"], "Deployment", old, new)
    of_other_namespace = workload("Deployment", replicas=10)
    of_other_namespace["metadata"]["namespace"] = "other"
    assert not _helps(_OWNED["web"], "Deployment", None, of_other_namespace)


def test_a_replica_set_that_is_adopted_helps_its_pods() -> None:
    old = replica_set("web-1")
    assert _helps(_OWNED["web"], "ReplicaSet", old, _SETS[0])
    assert not _helps(_OWNED["api"], "ReplicaSet", old, _SETS[0])


def test_policies_that_read_no_workload_are_not_asked() -> None:
    text = 'def filter(pod, node):\n    return None if node.labels.get("a") else "no"\n'
    old, new = workload("Deployment", replicas=3), workload("Deployment", replicas=10)
    assert not _helps(_OWNED["web"], "Deployment", old, new, text)
