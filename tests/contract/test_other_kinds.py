"""The other kinds that placement depends on: what the server fills in when they are created."""

from typing import Any

import pytest

from tests.contract.harness import MERGE, Api

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "i"}]},
}
SELECTOR = {"matchLabels": {"app": "web"}}


async def test_a_service_keeps_its_selector(api: Api) -> None:
    sent = {
        "metadata": {"name": "a"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    made = await api.make(api.path("services"), sent)
    assert made["spec"]["selector"] == {"app": "web"}
    assert made["spec"]["type"] == "ClusterIP"
    assert made["spec"]["clusterIP"]


@pytest.mark.parametrize("plural", ["replicasets", "statefulsets"])
async def test_controllers_have_one_replica_by_default(api: Api, plural: str) -> None:
    spec: dict[str, Any] = {"selector": SELECTOR, "template": TEMPLATE}
    if plural == "statefulsets":
        spec["serviceName"] = "web"
    sent = {"metadata": {"name": "a"}, "spec": spec}
    made = await api.make(api.path(plural, group="apps/v1"), sent)
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["selector"] == SELECTOR
    assert made["metadata"]["generation"] == 1


async def test_a_replication_controller_keeps_its_selector(api: Api) -> None:
    sent = {"metadata": {"name": "a"}, "spec": {"selector": {"app": "web"}, "template": TEMPLATE}}
    made = await api.make(api.path("replicationcontrollers"), sent)
    assert made["spec"]["selector"] == {"app": "web"}


async def test_a_disruption_budget_starts_without_disruptions_allowed(api: Api) -> None:
    path = api.path("poddisruptionbudgets", group="policy/v1")
    sent = {"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": SELECTOR}}
    made = await api.make(path, sent)
    assert made["status"]["disruptionsAllowed"] == 0
    status = {"disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3}
    answer = await api.patch(f"{path}/a/status", {"status": status}, MERGE)
    assert answer.body["status"]["disruptionsAllowed"] == 2


async def test_a_storage_class_binds_immediately_by_default(api: Api) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses"
    made = await api.make(path, {"metadata": {"name": api.unique("fast")}, "provisioner": "p.io"})
    assert (made["volumeBindingMode"], made["reclaimPolicy"]) == ("Immediate", "Delete")


async def test_a_claim_is_pending_and_protected(api: Api) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1024Mi"}},
        "storageClassName": "fast",
    }
    path = api.path("persistentvolumeclaims")
    made = await api.make(path, {"metadata": {"name": "a"}, "spec": spec})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await api.patch(f"{path}/a", {"metadata": {"finalizers": None}}, MERGE)


async def test_a_volume_is_pending_until_another_client_says_otherwise(api: Api) -> None:
    name = api.unique("volume")
    path = "/api/v1/persistentvolumes"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        },
    }
    made = await api.make(path, {"metadata": {"name": name}, "spec": spec})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["spec"]["nodeAffinity"] == spec["nodeAffinity"]
    status = {"status": {"phase": "Available"}}
    answer = await api.patch(f"{path}/{name}/status", status, MERGE)
    assert answer.body["status"]["phase"] == "Available"
    await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)


async def test_a_csi_node_tells_its_volume_limits(api: Api) -> None:
    driver = {
        "name": "disk.example.com",
        "nodeID": "n",
        "topologyKeys": ["zone"],
        "allocatable": {"count": 3},
    }
    sent = {"metadata": {"name": api.unique("node")}, "spec": {"drivers": [driver]}}
    made = await api.make("/apis/storage.k8s.io/v1/csinodes", sent)
    assert made["spec"]["drivers"] == [driver]


async def test_a_csi_driver_has_no_storage_capacity_by_default(api: Api) -> None:
    sent = {"metadata": {"name": api.unique("driver")}, "spec": {}}
    made = await api.make("/apis/storage.k8s.io/v1/csidrivers", sent)
    assert made["spec"]["storageCapacity"] is False
    assert made["spec"]["attachRequired"] is True


async def test_a_storage_capacity_is_a_quantity(api: Api) -> None:
    sent = {"metadata": {"name": "a"}, "storageClassName": "fast", "capacity": "1024Mi"}
    made = await api.make(api.path("csistoragecapacities", group="storage.k8s.io/v1"), sent)
    assert made["capacity"] == "1Gi"


async def test_a_priority_class_preempts_by_default(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = await api.make(path, {"metadata": {"name": api.unique("high")}, "value": 5})
    assert made["preemptionPolicy"] == "PreemptLowerPriority"


async def test_a_priority_value_has_a_ceiling(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    sent = {"metadata": {"name": api.unique("high")}, "value": 1_000_000_001}
    answer = await api.post(path, sent)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "maximum allowed value of a user defined priority is 1000000000" in answer.message


async def test_a_priority_value_cannot_change(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = await api.make(path, {"metadata": {"name": api.unique("high")}, "value": 5})
    made["value"] = 6
    answer = await api.put(f"{path}/{made['metadata']['name']}", made)
    assert (answer.status, answer.reason) == (422, "Invalid")


@pytest.mark.kubernetes("1.37")
async def test_there_is_one_default_of_priority_classes(served: Api) -> None:
    """On a server that the tests use one by one: pods get the class that is the default."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"

    def a_class(name: str, **fields: Any) -> dict[str, Any]:
        return {"metadata": {"name": served.unique(name)}, "value": 5, **fields}

    first = await served.make(path, a_class("first", globalDefault=True))
    plain = await served.make(path, a_class("plain"))
    is_default = {"globalDefault": True}
    answer = await served.eventually(
        lambda: served.post(path, a_class("second", **is_default), dryRun="All"),
        lambda answer: answer.status == 403,
    )
    assert answer.reason == "Forbidden"
    want = f"PriorityClass {first['metadata']['name']} is already marked as default"
    assert want in answer.message
    answer = await served.patch(f"{path}/{plain['metadata']['name']}", is_default, MERGE)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert want in answer.message
    # A class that makes no sense is refused for that; the default may be changed.
    answer = await served.post(path, a_class("second", preemptionPolicy="Maybe", **is_default))
    assert (answer.status, answer.reason) == (422, "Invalid")
    answer = await served.post(path, {**first, "metadata": {"name": first["metadata"]["name"]}})
    assert (answer.status, answer.reason) == (403, "Forbidden")
    at = f"{path}/{first['metadata']['name']}"
    assert (await served.patch(at, {"description": "d"}, MERGE)).status == 200
    assert (await served.patch(at, {"globalDefault": False}, MERGE)).status == 200
    await served.eventually(
        lambda: served.post(path, a_class("second", **is_default), dryRun="All"),
        lambda answer: answer.status == 201,
    )


async def test_a_device_claim_asks_for_one_device_by_default(api: Api) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    sent = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [request]}}}
    made = await api.make(api.path("resourceclaims", group="resource.k8s.io/v1"), sent)
    (got,) = made["spec"]["devices"]["requests"]
    assert got["exactly"]["allocationMode"] == "ExactCount"
    assert got["exactly"]["count"] == 1


async def test_a_resource_slice_is_selected_by_node(api: Api) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    name, node = api.unique("slice"), api.unique("node")
    spec = {
        "driver": "gpu.example.com",
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    await api.make(path, {"metadata": {"name": name}, "spec": spec})
    answer = await api.get(path, fieldSelector=f"spec.nodeName={node}")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == [name]


@pytest.mark.kubernetes("1.37")
async def test_a_device_taint_rule_needs_a_whole_taint(api: Api) -> None:
    path, name = "/apis/resource.k8s.io/v1/devicetaintrules", api.unique("rule")
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}
    made = await api.make(path, {"metadata": {"name": name}, "spec": spec})
    assert made["spec"]["deviceSelector"] == {"driver": "gpu.example.com"}
    assert made["metadata"]["generation"] == 1
    for wrong, want in (
        ({"key": "a"}, "spec.taint.effect: Required value"),
        ({"key": "a", "effect": "Never"}, 'spec.taint.effect: Unsupported value: "Never"'),
        ({"effect": "None"}, "spec.taint.key"),
    ):
        sent = {"metadata": {"name": api.unique("rule")}, "spec": {"taint": wrong}}
        answer = await api.post(path, sent)
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert want in answer.message


@pytest.mark.kubernetes("1.37")
async def test_a_csi_driver_says_whether_pods_wait_for_it(api: Api) -> None:
    path, name = "/apis/storage.k8s.io/v1/csidrivers", f"{api.unique('driver')}.example.com"
    made = await api.make(path, {"metadata": {"name": name}, "spec": {}})
    assert made["spec"]["preventPodSchedulingIfMissing"] is False
    made["spec"]["preventPodSchedulingIfMissing"] = True
    answer = await api.put(f"{path}/{name}", made)
    assert (answer.status, answer.body["spec"]["preventPodSchedulingIfMissing"]) == (200, True)
