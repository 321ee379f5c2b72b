"""Events derived from two versions of an object."""

import json
from typing import Any

import pytest

from engine.core.model.node import Node
from engine.core.queueing.events import (
    FORCE_ACTIVATE,
    TARGET_POD_UPDATE,
    UNSCHEDULED_POD_ADD,
    ClusterEvent,
    is_meaningful_pod_change,
    node_update_events,
    pod_update_events,
)
from tests.builders import make_node, make_pod, node_manifest, taint, toleration


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {"resource_version": "2"}, [], id="a heartbeat"),
        pytest.param({"unschedulable": True}, {}, ["UpdateNodeTaint"], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, ["Update"], id="cordoned"),
        pytest.param({}, {"cpu": "8"}, ["UpdateNodeAllocatable"], id="allocatable"),
        pytest.param({}, {"labels": {"a": "b"}}, ["UpdateNodeLabel"], id="labels"),
        pytest.param({}, {"taints": [taint("a")]}, ["UpdateNodeTaint"], id="taints"),
        pytest.param(
            {"unschedulable": True, "taints": [taint("a")]},
            {},
            ["UpdateNodeTaint"],
            id="uncordoned and untainted is one event",
        ),
        pytest.param(
            {"conditions": {"Ready": "False"}},
            {"conditions": {"Ready": "True"}},
            ["UpdateNodeCondition"],
            id="a condition's status",
        ),
        pytest.param({}, {"annotations": {"a": "b"}}, ["UpdateNodeAnnotation"], id="annotations"),
        pytest.param(
            {}, {"declared_features": ["X"]}, ["UpdateNodeDeclaredFeature"], id="features"
        ),
        pytest.param({}, {"images": {"a": 1}}, ["Update"], id="images"),
        pytest.param(
            {},
            {"cpu": "8", "labels": {"a": "b"}},
            ["UpdateNodeAllocatable", "UpdateNodeLabel"],
            id="several",
        ),
    ],
)
def test_a_node_update_is_named_after_what_changed(
    before: dict[str, Any], after: dict[str, Any], want: list[str]
) -> None:
    old = make_node("n", **{"resource_version": "1", **before})
    new = make_node("n", **{"resource_version": "2", **after})
    assert node_update_events(old, new) == [ClusterEvent("Node", action) for action in want]


def test_a_change_of_who_may_be_preempted_for_resizes_has_a_name() -> None:
    def node(is_off: bool) -> Node:
        manifest = node_manifest("n")
        manifest["spec"]["podPreemptionPolicy"] = {"disableResizePreemption": is_off}
        return Node.from_raw(json.dumps(manifest).encode())

    want = [ClusterEvent("Node", "UpdateNodePreemptionPolicy")]
    assert node_update_events(node(False), node(True)) == want


def test_what_only_the_whole_text_of_a_node_shows_is_a_change() -> None:
    """A policy may read the manifest."""

    def node(kernel: str) -> Node:
        manifest = node_manifest("n")
        manifest["status"]["nodeInfo"] = {"kernelVersion": kernel}
        return Node.from_raw(json.dumps(manifest).encode())

    assert node_update_events(node("5"), node("6")) == [ClusterEvent("Node", "Update")]
    assert node_update_events(node("5"), node("5")) == []


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {"labels": {"a": "b"}}, ["UpdatePodLabel"], id="labels"),
        pytest.param({"cpu": "2"}, {"cpu": "1"}, ["UpdatePodScaleDown"], id="scaled down"),
        pytest.param({"cpu": "2"}, {}, ["UpdatePodScaleDown"], id="a request removed"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, ["UpdatePodScaleUp"], id="scaled up"),
        pytest.param({}, {"cpu": "1"}, ["UpdatePodScaleUp"], id="a request added"),
        pytest.param(
            {"cpu": "1", "memory": "2Gi", "gates": ["a"]},
            {"cpu": "2", "memory": "1Gi", "labels": {"a": "b"}, "tolerations": [toleration("a")]},
            [
                "UpdatePodLabel",
                "UpdatePodScaleDown",
                "UpdatePodScaleUp",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
            ],
            id="several, in kube-scheduler's order",
        ),
        pytest.param({"gates": ["a", "b"]}, {"gates": ["a"]}, ["Update"], id="one gate of two"),
        pytest.param(
            {"gates": ["a"]}, {}, ["UpdatePodSchedulingGatesEliminated"], id="the last gate"
        ),
        pytest.param(
            {}, {"tolerations": [toleration("a")]}, ["UpdatePodToleration"], id="tolerations"
        ),
        pytest.param(
            {},
            {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}},
            ["UpdatePodGeneratedResourceClaim"],
            id="a claim made for it",
        ),
        pytest.param(
            {},
            {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended"}}},
            ["UpdatePodGeneratedResourceClaim"],
            id="a claim made for its extended resources",
        ),
        pytest.param({}, {"terminating": True}, ["UpdatePodTerminating"], id="terminating"),
        pytest.param({}, {"phase": "Running"}, ["Update"], id="status"),
    ],
)
@pytest.mark.parametrize("node", [None, "n"])
def test_a_pod_update_is_named_after_what_changed(
    before: dict[str, Any], after: dict[str, Any], want: list[str], node: str | None
) -> None:
    old = make_pod(uid="u", node=node, **before)
    new = make_pod(uid="u", node=node, **after)
    resource = "AssignedPod" if node else "TargetPod"
    assert pod_update_events(old, new) == [ClusterEvent(resource, action) for action in want]


def test_labels_of_events_are_kube_scheduler_s() -> None:
    assert ClusterEvent("Node", "Add").label == "NodeAdd"
    assert ClusterEvent("AssignedPod", "Delete").label == "AssignedPodDelete"
    assert UNSCHEDULED_POD_ADD.label == "UnscheduledPodAdd"
    assert TARGET_POD_UPDATE.label == "TargetPodUpdate"
    assert ClusterEvent("TargetPod", "UpdatePodScaleUp").label == "TargetPodUpdatePodScaleUp"
    assert FORCE_ACTIVATE.label == "ForceActivate"
    assert ClusterEvent("PersistentVolumeClaim", "Add").label == "PersistentVolumeClaimAdd"
    assert ClusterEvent("StorageClass", "Add").label == "storage.k8s.io/StorageClassAdd"
    assert ClusterEvent("ResourceClaim", "Update").label == "resource.k8s.io/ResourceClaimUpdate"
    assert ClusterEvent("PodGroup", "Add").label == "scheduling.k8s.io/PodGroupAdd"


def test_a_change_of_status_or_bookkeeping_is_not_meaningful() -> None:
    old = make_pod(uid="u", resource_version="1")
    status = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert not is_meaningful_pod_change(old, make_pod(uid="u", resource_version="2", status=status))
    assert is_meaningful_pod_change(old, make_pod(uid="u", annotations={"a": "b"}))
    assert is_meaningful_pod_change(old, make_pod(uid="u", cpu="1"))
