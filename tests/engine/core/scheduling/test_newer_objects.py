"""Objects that a newer API server made, or that nobody checked: none fails the shipped policies."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine.core.framework.owner import Owner
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import HOSTNAME, node_manifest, pod_manifest
from tests.engine.core.scheduling.devices.builders import (
    claim,
    claiming_pod,
    device_class,
    resource_slice,
    taint_rule,
)
from tests.storage_builders import DRIVER as DISKS
from tests.storage_builders import claim as volume_claim
from tests.storage_builders import volume

Json = dict[str, Any]

_ODD: Json = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
_ODD_NODES: Json = {"nodeSelectorTerms": [_ODD]}
_TERM: Json = {"labelSelector": _ODD, "topologyKey": HOSTNAME}
_SPREAD: Json = {
    "maxSkew": 1,
    "topologyKey": HOSTNAME,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}},
}


def _wants_nodes(term: Json) -> Json:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def _wants_pods(kind: str, term: Json) -> Json:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _tolerates(**toleration: str) -> Json:
    return {"tolerations": [{"key": "k", **toleration}]}


PODS: dict[str, Json] = {
    "operator of a toleration": _tolerates(operator="Near", value="v", effect="NoSchedule"),
    "number of a toleration": _tolerates(operator="Gt", value="word", effect="NoSchedule"),
    "effect of a toleration": _tolerates(operator="Exists", effect="Maybe"),
    "operator of node affinity": _wants_nodes(_ODD),
    "field of node affinity": _wants_nodes(
        {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["b"]}]}
    ),
    "kind of term of node affinity": _wants_nodes({"matchCel": "x"}),
    "operator of pod affinity": _wants_pods("podAffinity", _TERM),
    "operator of pod anti-affinity": _wants_pods("podAntiAffinity", _TERM),
    "namespaces of pod affinity": _wants_pods(
        "podAffinity",
        {"labelSelector": {}, "namespaceSelector": _ODD, "topologyKey": HOSTNAME},
    ),
    "what to do about spreading": {
        "topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "Perhaps"}]
    },
    "selector of spreading": {"topologySpreadConstraints": [{**_SPREAD, "labelSelector": _ODD}]},
    "policies of spreading": {
        "topologySpreadConstraints": [
            {**_SPREAD, "nodeAffinityPolicy": "Some", "nodeTaintsPolicy": "Some"}
        ]
    },
    "numbers of spreading": {
        "topologySpreadConstraints": [{**_SPREAD, "maxSkew": 0, "minDomains": -1}]
    },
    "preemption": {"preemptionPolicy": "Sometimes"},
    "protocol": {
        "containers": [{"name": "c", "image": "x", "ports": [{"hostPort": 80, "protocol": "QUIC"}]}]
    },
    "kind of volume": {"volumes": [{"name": "v", "quantumDisk": {"id": "q"}}]},
    "overhead": {"overhead": {"cpu": "-1"}},
    "restarts of a first container": {
        "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Sometimes"}]
    },
}


def _object(api_version: str, kind: str, name: str = "x", **rest: Any) -> Json:
    metadata = {"name": name, "namespace": "default", "uid": f"{kind}-{name}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _class(**fields: Any) -> Json:
    fields = {"volumeBindingMode": "WaitForFirstConsumer", **fields}
    return _object("storage.k8s.io/v1", "StorageClass", "late", provisioner=DISKS, **fields)


def _disk(**spec: Any) -> Json:
    made = volume("disk", storage_class="late")
    return {**made, "spec": {**made["spec"], **spec}}


def _capacity(**fields: Any) -> tuple[Json, ...]:
    driver = _object("storage.k8s.io/v1", "CSIDriver", DISKS, spec={"storageCapacity": True})
    made = _object("storage.k8s.io/v1", "CSIStorageCapacity", storageClassName="late", **fields)
    return driver, made


def _budget(**fields: Any) -> Json:
    return _object("policy/v1", "PodDisruptionBudget", **fields)


OBJECTS: dict[str, tuple[Json, ...]] = {
    "selector of a budget": (_budget(spec={"selector": _ODD}, status={"disruptionsAllowed": 0}),),
    "budget without a spec": (_budget(),),
    "amounts of a budget": (
        _budget(spec={"selector": {}, "minAvailable": "many"}, status={"disruptionsAllowed": -5}),
    ),
    "selector of a service": (_object("v1", "Service", spec={"selector": {"a/b/c": "?"}}),),
    "selector of a workload": (_object("apps/v1", "ReplicaSet", spec={"selector": _ODD}),),
    "count of a driver's volumes": (
        _object(
            "storage.k8s.io/v1",
            "CSINode",
            "a",
            spec={"drivers": [{"name": DISKS, "nodeID": "a", "allocatable": {"count": -3}}]},
        ),
    ),
    "topology of a capacity": _capacity(nodeTopology=_ODD, capacity="1Ti"),
    "amount of a capacity": _capacity(capacity="lots", maximumVolumeSize="x"),
    "affinity of a volume": (_disk(nodeAffinity={"required": _ODD_NODES}),),
    "amount of a volume": (_disk(capacity={"storage": "lots"}),),
    "modes of a volume": (_disk(accessModes=["ReadAnyhow"], volumeMode="Tape"),),
    "topology of a class": (
        _class(allowedTopologies=[{"matchLabelExpressions": [{"key": "??", "values": []}]}]),
    ),
    "mode of a class": (_class(volumeBindingMode="Someday"),),
    "no mode of a class": (_class(volumeBindingMode=None),),
    "attachment of nothing": (
        _object(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            spec={"attacher": DISKS, "nodeName": "a", "source": {}},
        ),
    ),
    "policy of a group": (
        _object(
            "scheduling.k8s.io/v1beta1", "PodGroup", "g", spec={"schedulingPolicy": {"odd": {}}}
        ),
    ),
    "amount of a device": (
        resource_slice("a", {"name": "d", "capacity": {"m": {"value": "lots"}}}),
    ),
    "taint of a device": (
        resource_slice("a", {"name": "d", "taints": [{"key": "k", "effect": "Odd"}]}),
    ),
    "rule for devices": (resource_slice("a", "d"), taint_rule("r", {"odd": "x"}, effect="Odd")),
    "selector of a device class": (
        {**device_class(), "spec": {"selectors": [{"lua": "x"}]}},
        resource_slice("a", "d"),
    ),
    "resource of a device class": (device_class("gpu", extendedResourceName="???"),),
    "devices of another claim": (
        resource_slice("a", "d"),
        {
            **claim("other"),
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {
                                "request": "r",
                                "driver": "x",
                                "pool": "y",
                                "device": "z",
                                "shareID": "s",
                                "consumedCapacity": {"m": "lots"},
                            }
                        ]
                    },
                    "nodeSelector": _ODD_NODES,
                }
            },
        },
    ),
}


def _decisions(objects: tuple[Json, ...], odd: Json | None = None) -> Iterator[Decision]:
    """Those on pods that need all kinds of objects, and on one of the spec *odd*, if there is."""
    given = {(one["kind"], one["metadata"]["name"]) for one in objects}
    needed = (_class(), volume_claim(storage_class="late"), device_class(), claim("c"))
    others = [one for one in needed if (one["kind"], one["metadata"]["name"]) not in given]
    placed = []
    for node in "ab":
        running = pod_manifest(f"on-{node}", cpu=3, node=node, labels={"a": "b"})
        running["spec"] |= {k: v for k, v in (odd or {}).items() if k != "containers"}
        placed.append(running)
    nodes = [node_manifest(name, cpu=4) for name in "ab"]
    nodes[0].setdefault("spec", {})["taints"] = [
        {"key": "k", "value": "5", "effect": "NoSchedule"},
        {"key": "q", "effect": "Never"},
    ]
    world = World.from_manifests(nodes, placed, [*others, *objects])
    bundle = build_bundle({})
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    disks = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = [
        pod_manifest("plain"),
        pod_manifest("urgent", cpu=3, priority=1000),
        pod_manifest("stored", spec={"volumes": disks}),
        claiming_pod("accelerated", "c"),
        pod_manifest("grouped", spec={"schedulingGroup": {"podGroupName": "g"}}),
    ]
    if odd is not None:
        pods.append(pod_manifest("odd", labels={"a": "b"}, spec=odd))
    for pod in pods:
        yield scheduler.explain(pod_of(pod), world.snapshot).decision


@pytest.mark.parametrize("spec", list(PODS.values()), ids=list(PODS))
def test_a_pod_of_a_newer_kind_fails_no_policy(spec: Json) -> None:
    for decision in _decisions((), spec):
        assert (decision.failures, decision.ignored) == ((), ())


@pytest.mark.parametrize("objects", list(OBJECTS.values()), ids=list(OBJECTS))
def test_an_object_of_a_newer_kind_fails_no_policy(objects: tuple[Json, ...]) -> None:
    for decision in _decisions(objects):
        for failure in (*decision.failures, *decision.ignored):
            assert failure.owner is Owner.OBJECT
            assert failure.subject
