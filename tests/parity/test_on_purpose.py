"""Where ours differs from kube-scheduler on purpose; docs/parity.md names these tests."""

from typing import Any

import msgspec
import pytest

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World, pod_of
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.testing.full_decision import FullDecision, decide
from tests.parity.oracle import Oracle
from workbench.conformance.deliberate_differences import is_deliberate

Plain = dict[str, Any]


def _node(name: str) -> Plain:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}


def _pod(name: str, **spec: Any) -> Plain:
    containers = [{"name": "c", "image": "x"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers, **spec},
        "status": {},
    }


def _theirs(oracle: Oracle, scenario: Plain) -> Plain:
    (answered,) = oracle.ask([{"id": "x", **scenario}])
    answer: Plain = answered["answers"][0]
    return answer


def _ours(scenario: Plain) -> FullDecision:
    config = scenario.get("config")
    files = {} if config is None else {"config.yaml": msgspec.json.encode(config).decode()}
    bundle = build_bundle(files, None)
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    world = World.from_manifests(
        scenario["nodes"], scenario.get("pods", ()), scenario.get("objects", ())
    )
    return decide(world, scheduler, pod_of(scenario["incoming"][0]))


def _config(**profile: Any) -> Plain:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def test_every_feasible_node_is_scored_whatever_share_is_asked_for() -> None:
    nodes = [_node(f"n{i:03}") for i in range(300)]
    config = {**_config(), "percentageOfNodesToScore": 1}
    decision = _ours({"config": config, "nodes": nodes, "incoming": [_pod("p")]})
    assert len(decision.total) == 300


def test_a_plugin_that_is_enabled_for_score_alone_scores(oracle: Oracle) -> None:
    """Without its preScore, kube-scheduler's plugin finds no state, and the attempt is lost."""
    plugins = {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}],
        },
        "score": {"enabled": [{"name": "PodTopologySpread", "weight": 1}]},
    }
    scenario = {
        "config": _config(plugins=plugins),
        "nodes": [_node("n0")],
        "incoming": [_pod("p")],
    }
    assert "PreScorePodTopologySpread" in _theirs(oracle, scenario)["error"]
    assert _ours(scenario).best == ("n0",)


@pytest.mark.parametrize(
    ("plugin", "is_answered"),
    [
        ("VolumeZone", True),
        ("NodeVolumeLimits", True),
        ("VolumeRestrictions", False),
        ("NodeDeclaredFeatures", False),
        ("NodePorts", False),
        ("NodeResourcesFit", False),
        ("PodTopologySpread", False),
        ("InterPodAffinity", False),
    ],
)
def test_a_plugin_without_its_pre_filter_filters(
    oracle: Oracle, plugin: str, is_answered: bool
) -> None:
    """Most of kube-scheduler's find no state then. Some of ours failed for every pod."""
    zone, bound = "topology.kubernetes.io/zone", {"pv.kubernetes.io/bind-completed": "yes"}
    driver = {"name": "d", "nodeID": "n0", "allocatable": {"count": 0}}
    objects = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n0"},
            "spec": {"drivers": [driver]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv", "labels": {zone: "b"}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "default", "name": "c"},
                "csi": {"driver": "d", "volumeHandle": "pv"},
            },
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default", "annotations": bound},
            "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
        },
    ]
    nodes = [_node("n0"), _node("n1"), _node("n2")]
    for node, name in zip(nodes, "bab", strict=True):
        node["metadata"]["labels"] = {zone: name}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    scenario = {
        "config": _config(plugins={"preFilter": {"disabled": [{"name": plugin}]}}),
        "nodes": nodes,
        "objects": objects,
        "incoming": [_pod("p", volumes=[volume])],
    }
    theirs, ours = _theirs(oracle, scenario), _ours(scenario)
    assert ("error" not in theirs) is is_answered
    rejected = {name: rejection.plugin for name, rejection in ours.rejected.items()}
    assert rejected == {"n0": "NodeVolumeLimits", "n1": "VolumeZone"}
    if is_answered:
        assert {name: one["plugin"] for name, one in theirs["rejected"].items()} == rejected
    assert (ours.failures, ours.best) == ((), ("n2",))


def test_a_disk_whose_name_makes_no_sense_fails_no_attempt(oracle: Oracle) -> None:
    """kube-scheduler tries again and again; ours names the disk, or lets its owner find out."""
    csi_node = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n0"},
        "spec": {"drivers": [{"name": "d", "nodeID": "n0", "allocatable": {"count": 1}}]},
    }
    volume = {"name": "v", "awsElasticBlockStore": {"volumeID": "aws://z1/odd"}}
    scenario = {
        "nodes": [_node("n0")],
        "objects": [csi_node],
        "incoming": [_pod("p", volumes=[volume])],
    }
    assert 'running "NodeVolumeLimits" filter plugin' in _theirs(oracle, scenario)["error"]
    decision = _ours(scenario)
    assert decision.failures == ()
    assert decision.rejected["n0"].plugin == "NodeVolumeLimits"


def test_a_preference_that_makes_no_sense_fails_no_attempt(oracle: Oracle) -> None:
    """The API server takes it, and kube-scheduler tries again and again to read it."""

    def prefer(operator: str, value: str) -> Plain:
        expression = {"key": "rank", "operator": operator, "values": [value]}
        return {"weight": 1, "preference": {"matchExpressions": [expression]}}

    nodes = [_node("n0"), _node("n1")]
    nodes[1]["metadata"]["labels"] = {"rank": "5"}
    preferred = [prefer("Gt", "many"), prefer("Gt", "3")]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    scenario = {"nodes": nodes, "incoming": [_pod("p", affinity=affinity)]}
    assert 'running PreScore plugin "NodeAffinity"' in _theirs(oracle, scenario)["error"]
    assert _ours(scenario).best == ("n1",)


def test_an_image_is_as_large_as_its_node_says(oracle: Oracle) -> None:
    """kube-scheduler takes the size that the first node told, for as long as any node has it."""
    nodes = [_node("n0"), _node("n1")]
    for node, mebibytes in zip(nodes, (100, 800), strict=True):
        image = {"names": ["x:latest"], "sizeBytes": mebibytes << 20}
        node["status"]["images"] = [image]
    scenario = {"nodes": nodes, "incoming": [_pod("p")]}

    def images(scores: Any) -> list[int]:
        return [scores[name]["ImageLocality"] for name in ("n0", "n1")]

    assert images(_theirs(oracle, scenario)["scores"]) == [7, 7]
    assert images(_ours(scenario).scores) == [7, 79]


def test_a_claim_that_belongs_to_another_fails_no_attempt(oracle: Oracle) -> None:
    """A placed pod's claim was made by somebody else: that must not keep others off its node."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    objects = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n0"},
            "spec": {"drivers": [{"name": "d", "nodeID": "n0", "allocatable": {"count": 1}}]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "placed-v", "namespace": "default"},
            "spec": spec,
        },
    ]
    disk = {"name": "v", "azureDisk": {"diskName": "a", "diskURI": "a"}}
    scenario = {
        "nodes": [_node("n0")],
        "pods": [_pod("placed", nodeName="n0", volumes=[volume])],
        "objects": objects,
        "incoming": [_pod("p", volumes=[disk])],
    }
    assert "pod is not owner" in _theirs(oracle, scenario)["error"]
    assert _ours(scenario).best == ("n0",)


def test_a_pod_that_a_pre_filter_gave_up_learns_what_preemption_says(oracle: Oracle) -> None:
    """kube-scheduler says `not found`: a plugin that was not asked before finds nothing after."""
    names = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n0", "n1")]
    required = {"nodeSelectorTerms": [{"matchFields": names}]}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    scenario = {
        "runs": 1,
        "nodes": [_node("n0"), _node("n1")],
        "incoming": [_pod("p", affinity={"nodeAffinity": rules})],
    }
    theirs = _theirs(oracle, scenario)
    assert theirs["preFilter"]["reasons"] == ["pod affinity terms conflict"]
    assert theirs["postFilter"] == "not found"
    assert "Preemption is not helpful for scheduling" in _ours(scenario).post_filter


def test_a_port_that_two_placed_pods_hold_is_free_when_both_are_gone(oracle: Oracle) -> None:
    """kube-scheduler takes it for free when one is; two can hold it only past the scheduler."""
    container = {"name": "c", "image": "x", "ports": [{"containerPort": 443, "hostPort": 443}]}
    wants = {"containers": [container], "priority": 10}
    low, equal = _pod("low", nodeName="n0"), _pod("equal", nodeName="n0")
    low["spec"] |= {**wants, "priority": 0}
    equal["spec"] |= wants
    incoming = _pod("p")
    incoming["spec"] |= wants
    scenario = {
        "runs": 1,
        "nodes": [_node("n0")],
        "pods": [low, equal],
        "incoming": [incoming],
    }
    assert _theirs(oracle, scenario)["preemption"] == {"n0": ["default/low"]}
    assert _ours(scenario).preemption == {}


def test_a_plugin_that_fails_over_victims_costs_the_attempt(oracle: Oracle) -> None:
    """kube-scheduler takes the failure for a reason, and the pod waits for an event."""
    selector = {"cel": {"expression": 'device.attributes["d"].gone == 1'}}
    request = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [selector],
    }
    objects = [
        _device_object("DeviceClass", "any", {}),
        _device_object("ResourceSlice", "s0", _pool(0, 1, devices=[{"name": "d0"}])),
        _device_object("ResourceClaim", "c", _asking(request)),
    ]
    node = _node("n0")
    node["status"]["allocatable"]["pods"] = "1"
    incoming = _claiming("c")
    incoming["spec"]["priority"] = 10
    scenario = {
        "runs": 1,
        "nodes": [node],
        "pods": [_pod("low", nodeName="n0", priority=0)],
        "objects": objects,
        "incoming": [incoming],
    }
    said = (
        'running "DynamicResources" filter plugin: claim default/c: selector #0 on device d/p/d0: '
    )
    assert _theirs(oracle, scenario)["postFilter"].startswith(f"preemption: {said}")
    (failure,) = _ours(scenario).failures
    assert failure.startswith(said)


def test_of_many_equal_victims_the_first_ones_stay(oracle: Oracle) -> None:
    """kube-scheduler's sort does not keep the order of more than a dozen equals."""
    node = _node("n0")
    node["status"]["allocatable"]["pods"] = "20"
    pods = [_pod(f"e{i:02}", nodeName="n0", priority=0) for i in range(20)]
    for pod in pods:
        pod["status"]["startTime"] = "2026-01-01T00:00:00Z"
    scenario = {"runs": 1, "nodes": [node], "pods": pods, "incoming": [_pod("p", priority=10)]}
    assert len(_theirs(oracle, scenario)["preemption"]["n0"]) == 1
    assert _ours(scenario).preemption == {"n0": ("default/e19",)}


def test_a_class_that_another_replaces_keeps_the_name_of_its_own(oracle: Oracle) -> None:
    """kube-scheduler forgets it, unless it heard of that class before its successor."""
    gone = _device_object("DeviceClass", "a-old", {"extendedResourceName": "example.com/gpu"})
    gone["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    there = _device_object("DeviceClass", "a-new", {"extendedResourceName": "example.com/gpu"})
    there["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    pool = _device_object("ResourceSlice", "s0", _pool(0, 1, devices=[{"name": "d0"}]))
    incoming = _pod("p")
    amounts = {"deviceclass.resource.kubernetes.io/a-old": "1"}
    incoming["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    scenario = {
        "nodes": [_node("n0")],
        "objects": [there, gone, pool],
        "incoming": [incoming],
    }
    said = "Insufficient deviceclass.resource.kubernetes.io/a-old"
    assert _theirs(oracle, scenario)["rejected"]["n0"]["reasons"] == [said]
    assert _ours(scenario).best == ("n0",)
    heard_before = {**scenario, "objects": [gone, there, pool]}
    assert _theirs(oracle, heard_before)["best"] == ["n0"]


def test_scores_of_resources_do_not_count_devices(oracle: Oracle) -> None:
    """kube-scheduler counts those of the class, and of them those in use."""
    strategy = {"type": "MostAllocated", "resources": [{"name": "example.com/gpu", "weight": 1}]}
    args = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    used = _device_object("ResourceClaim", "c", _asking({"deviceClassName": "gpu"}))
    device = {"driver": "d", "pool": "p", "device": "d0", "request": "r0"}
    used["status"] = {"allocation": {"devices": {"results": [device]}}}
    devices = [{"name": f"d{i}"} for i in range(4)]
    incoming = _pod("p")
    amounts = {"example.com/gpu": "1"}
    incoming["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    scenario = {
        "config": _config(pluginConfig=[args]),
        "nodes": [_node("n0")],
        "objects": [
            _device_object("DeviceClass", "gpu", {"extendedResourceName": "example.com/gpu"}),
            _device_object("ResourceSlice", "s0", _pool(0, 1, devices=devices)),
            used,
        ],
        "incoming": [incoming],
    }
    assert _theirs(oracle, scenario)["scores"]["n0"]["NodeResourcesFit"] == 50
    assert _ours(scenario).scores["n0"]["NodeResourcesFit"] == 0


def _device_object(kind: str, name: str, spec: Plain) -> Plain:
    meta = {"name": name, "namespace": "default"} if kind == "ResourceClaim" else {"name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def _pool(number: int, count: int, **more: Any) -> Plain:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": count}
    return {"driver": "d", "pool": pool, "nodeName": "n0", **more}


def _asking(wish: Plain) -> Plain:
    return {"devices": {"requests": [{"name": "r0", "exactly": wish}]}}


def _claiming(claim: str) -> Plain:
    return _pod("p", resourceClaims=[{"name": "c", "resourceClaimName": claim}])


def test_a_claim_with_the_annotation_of_its_class_is_placed_by_capacity(oracle: Oracle) -> None:
    scenario = {
        "nodes": [_node("n1")],
        "objects": [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "fast"},
                "provisioner": "d",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": "d"},
                "spec": {"storageCapacity": True},
            },
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIStorageCapacity",
                "metadata": {"name": "all", "namespace": "default"},
                "storageClassName": "fast",
                "nodeTopology": {},
                "capacity": "10Gi",
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "c",
                    "namespace": "default",
                    "annotations": {"volume.beta.kubernetes.io/storage-class": "fast"},
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
        ],
        "incoming": [
            _pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
        ],
    }
    (answered,) = oracle.ask([{"id": "x", **scenario}])
    assert answered["error"] == "a plugin panicked"
    assert _ours(scenario).best == ("n1",)


_DEVICES: Plain = {"apiVersion": "resource.k8s.io/v1"}


def _device_class() -> Plain:
    return {**_DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def _slice(name: str, node: str, *, slices: int = 1, **spec: Any) -> Plain:
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    return {
        **_DEVICES,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": node, **spec},
    }


def _claim(name: str, allocated: Plain | None = None, **exactly: Any) -> Plain:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **exactly}
    requests = [{"name": "r", "exactly": exactly}]
    made: Plain = {
        **_DEVICES,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": requests}},
    }
    if allocated is not None:
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n0", **allocated}
        made["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "user", "uid": "user"}],
        }
    return made


_COUNTED = (
    _slice(
        "n0-c", "n0", slices=2, sharedCounters=[{"name": "c", "counters": {"m": {"value": "9"}}}]
    ),
    _slice(
        "n0-d",
        "n0",
        slices=2,
        devices=[
            {
                "name": "d0",
                "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "9"}}}],
            }
        ],
    ),
)
_SHARED = (
    _slice(
        "n0-d",
        "n0",
        devices=[
            {
                "name": "d0",
                "allowMultipleAllocations": True,
                "capacity": {"m": {"value": "4Gi"}},
            }
        ],
    ),
)


@pytest.mark.parametrize(
    ("slices", "share"),
    [
        pytest.param(_COUNTED, {}, id="counters"),
        pytest.param(
            _SHARED,
            {
                "shareID": "0b2c9a6e-4f5a-4d5a-9d76-1f0f4f1f0a01",
                "consumedCapacity": {"m": "4Gi"},
            },
            id="capacity",
        ),
    ],
)
def test_admin_access_needs_no_counters_and_no_capacity(
    oracle: Oracle, slices: tuple[Plain, ...], share: Plain
) -> None:
    """A monitor was refused the devices that it was to watch, because they were in use."""
    scenario = {
        "nodes": [_node("n0")],
        "objects": [
            _device_class(),
            *slices,
            _claim("used", {"device": "d0", **share}),
            _claim("watch", adminAccess=True),
        ],
        "incoming": [_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "watch"}])],
    }
    answer = _theirs(oracle, scenario)
    assert answer["rejected"]["n0"]["reasons"] == ["cannot allocate all claims"]
    decision = _ours(scenario)
    assert decision.best == ("n0",)
    assert is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])
    # Another claim of the pod may still keep it from the node, which only one of us comes to say.
    elsewhere = _claim("elsewhere", {"device": "d9"})
    elsewhere["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": []}
    scenario["objects"].append(elsewhere)
    claims = [
        {"name": "c", "resourceClaimName": "watch"},
        {"name": "e", "resourceClaimName": "elsewhere"},
    ]
    scenario["incoming"] = [_pod("p", resourceClaims=claims)]
    answer, decision = _theirs(oracle, scenario), _ours(scenario)
    assert answer["rejected"]["n0"]["reasons"] == ["cannot allocate all claims"]
    assert decision.rejected["n0"].reasons == ("resourceclaim not available on the node",)
    assert is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])


def test_a_monitor_may_preempt_where_the_devices_are_in_use(oracle: Oracle) -> None:
    """Found by seed 5 of the random clusters, index 28 of the theme `lists`."""
    share = {
        "shareID": "0b2c9a6e-4f5a-4d5a-9d76-1f0f4f1f0a01",
        "consumedCapacity": {"m": "4Gi"},
    }
    full = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}]
    claims = [{"name": "c", "resourceClaimName": "watch"}]
    scenario: Plain = {
        "runs": 1,
        "nodes": [_node("n0")],
        "objects": [
            _device_class(),
            *_SHARED,
            _claim("used", {"device": "d0", **share}),
            _claim("watch", adminAccess=True),
        ],
        "pods": [_pod("old", nodeName="n0", containers=full)],
        "incoming": [_pod("p", containers=full, priority=10, resourceClaims=claims)],
    }
    answer, decision = _theirs(oracle, scenario), _ours(scenario)
    assert answer["postFilter"].endswith("1 cannot allocate all claims.")
    assert decision.preemption == {"n0": ("default/old",)}
    assert is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])
    # Of a pod without admin access, the same is a difference like others.
    scenario["objects"][-1] = _claim("watch")
    assert not is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])


def test_admin_access_is_not_refused_for_a_device_that_is_not_needed(oracle: Oracle) -> None:
    """The device in use was refused, and the selector failed on the next one, which lacks `model`.

    Found by seed 462 of the random clusters, index 14 of the theme `devices`.
    """
    (shared,) = _SHARED
    used = {**shared["spec"]["devices"][0], "attributes": {"model": {"string": "a"}}}
    selector = {"cel": {"expression": 'device.attributes["gpu.example.com"].model == "a"'}}
    share = {
        "shareID": "0b2c9a6e-4f5a-4d5a-9d76-1f0f4f1f0a01",
        "consumedCapacity": {"m": "4Gi"},
    }
    scenario = {
        "nodes": [_node("n0")],
        "objects": [
            _device_class(),
            _slice("n0-d", "n0", devices=[used, {"name": "d1"}]),
            _claim("used", {"device": "d0", **share}),
            _claim("watch", adminAccess=True, selectors=[selector]),
        ],
        "incoming": [_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "watch"}])],
    }
    answer = _theirs(oracle, scenario)
    assert "d1: CEL runtime error: no such key: model" in answer["error"]
    decision = _ours(scenario)
    assert decision.best == ("n0",)
    assert is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])
    # Of a pod without admin access, the same error is a difference like others.
    scenario["objects"][-1] = _claim("watch", selectors=[selector])
    assert not is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])


_TWICE = [{"name": "d0"}, {"name": "d0"}]


@pytest.mark.parametrize(
    ("unusable", "said"),
    [
        pytest.param({"slices": 2}, "it is being updated", id="incomplete"),
        pytest.param({"devices": _TWICE}, "it is invalid", id="invalid"),
    ],
)
def test_a_pool_that_is_not_usable_rejects_its_own_nodes(
    oracle: Oracle, unusable: Plain, said: str
) -> None:
    """A driver that was restarted on one node kept pods from the devices of every node."""
    scenario = {
        "nodes": [_node("n0"), _node("n1")],
        "objects": [
            _device_class(),
            _slice("n0-d", "n0", **{"devices": [{"name": "d0"}], **unusable}),
            _slice("n1-d", "n1", devices=[{"name": "d0"}]),
            _claim("all", allocationMode="All", count=0),
        ],
        "incoming": [_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "all"}])],
    }
    answer = _theirs(oracle, scenario)
    assert "asks for all devices, but resource pool gpu.example.com/n0 is" in answer["error"]
    decision = _ours(scenario)
    assert decision.best == ("n1",)
    assert decision.rejected["n0"].reasons == (
        f"all devices of a resource pool are asked for, and {said}",
    )
    assert is_deliberate(answer, decision, scenario["incoming"][0], scenario["objects"])
