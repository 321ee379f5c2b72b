"""Pods with device claims, by a whole scheduler on an embedded API server."""

import asyncio
import contextlib
import functools
from collections import Counter
from typing import Any

import pytest
from prometheus_client import generate_latest

from devkit.cluster import DevCluster, make_pod
from tests.builders import node_manifest
from tests.controlplane import ControlPlane
from tests.engine.app.harness import condition, metric, placements, scheduler, scheduler_at
from tests.engine.core.scheduling.devices.builders import (
    DRIVER,
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
    taint_rule,
)
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_sandboxes")

Json = dict[str, Any]


def manifest(name: str, *claims: str, **words: Any) -> Json:
    words = {"image": "app", **words}
    made = {"apiVersion": "v1", "kind": "Pod", **claiming_pod(name, *claims, **words)}
    made["metadata"].pop("uid", None)
    return made


def node(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Node", **node_manifest(name)}


def devices_of(cluster: DevCluster) -> Counter[tuple[str, str]]:
    """How many claims have each device."""
    return Counter(
        (result["pool"], result["device"])
        for found in cluster.list("resourceclaims")
        for result in found.get("status", {})
        .get("allocation", {})
        .get("devices", {})
        .get("results", [])
    )


def make_claim(cluster: DevCluster, name: str) -> None:
    made = claim(name)
    made["metadata"].pop("uid")
    cluster.create(made)


@pytest.mark.slow("runs a whole scheduler")
async def test_no_device_is_given_twice_however_many_want_it() -> None:
    async with DevCluster() as cluster:
        cluster.create(device_class())
        for name in ("a", "b"):
            cluster.create(node(name))
            cluster.create(resource_slice(name, *(f"g{i}" for i in range(5))))
        for i in range(25):
            make_claim(cluster, f"c{i}")
        async with scheduler(cluster):
            for i in range(25):
                cluster.create(manifest(f"p{i}", f"c{i}"))
            await eventually(lambda: len(placements(cluster)) == 10)
            await eventually(
                lambda: (
                    sum(
                        "cannot allocate all claims"
                        in condition(cluster, f"p{i}").get("message", "")
                        for i in range(25)
                    )
                    == 15
                )
            )
            devices = devices_of(cluster)
            assert len(devices) == 10
            assert set(devices.values()) == {1}
            where = placements(cluster)
            for i in range(25):
                found = cluster.get("resourceclaims", f"c{i}")
                assert found is not None
                allocation = found.get("status", {}).get("allocation")
                assert (allocation is not None) == (f"p{i}" in where)
                if allocation is not None:
                    (result,) = allocation["devices"]["results"]
                    assert result["pool"] == where[f"p{i}"], "the device is the node's"

            # Somebody gives a device back: one more pod gets it.
            going = next(iter(where))
            cluster.delete("pods", going, "default")
            freed = cluster.get("resourceclaims", going.replace("p", "c"))
            assert freed is not None
            cluster.update("resourceclaims", {**freed, "status": {}}, subresource="status")
            await eventually(lambda: len(placements(cluster).keys() - where.keys()) == 1)
            assert set(devices_of(cluster).values()) == {1}


@pytest.mark.slow("runs a whole scheduler")
async def test_a_rule_keeps_claims_away_until_it_goes() -> None:
    async with DevCluster() as cluster:
        cluster.create(device_class(), node("a"), resource_slice("a", "g0"))
        cluster.create(taint_rule("drain", {"pool": "a"}, key="drained", effect="NoSchedule"))
        cluster.create(taint_rule("of-none", None, key="other", effect="NoExecute"))
        make_claim(cluster, "one")
        async with scheduler(cluster):
            cluster.create(manifest("p", "one"))
            await eventually(
                lambda: "cannot allocate all claims" in condition(cluster, "p").get("message", "")
            )
            cluster.delete("devicetaintrules", "drain")
            await eventually(lambda: placements(cluster) == {"p": "a"})


@pytest.mark.slow("runs a whole scheduler")
async def test_pods_share_a_claim_once_it_is_allocated() -> None:
    async with DevCluster() as cluster:
        cluster.create(device_class())
        cluster.create(node("a"))
        cluster.create(resource_slice("a", "g0"))
        make_claim(cluster, "shared")
        async with scheduler(cluster):
            for i in range(5):
                cluster.create(manifest(f"p{i}", "shared"))
            await eventually(lambda: len(placements(cluster)) == 5)
        found = cluster.get("resourceclaims", "shared")
        assert found is not None
        assert len(found["status"]["reservedFor"]) == 5


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_whose_node_goes_while_its_device_is_prepared_looks_for_another() -> None:
    """It waited on for ten minutes, or was bound to a node that was no more."""

    def status() -> Json:
        found = cluster.get("resourceclaims", "c", "default")
        assert found is not None
        return dict(found.get("status", {}))

    def where() -> str:
        allocation = status().get("allocation")
        return allocation["devices"]["results"][0]["pool"] if allocation else ""

    async with DevCluster() as cluster:
        cluster.create(device_class())
        for name in ("a", "b"):
            cluster.create(node(name))
            answer = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
            cluster.create(resource_slice(name, {"name": "g0", **answer}))
        make_claim(cluster, "c")
        async with scheduler(cluster) as app:
            cluster.create(manifest("p", "c"))
            await eventually(lambda: status().get("reservedFor"))
            await eventually(
                lambda: app.carrying.bindings.in_flight > app.carrying.bindings.at_work
            )
            first = where()
            cluster.delete("nodes", first)
            other = {"a": "b", "b": "a"}[first]
            await eventually(lambda: where() == other and status().get("reservedFor"))
            assert placements(cluster) == {}
            found = cluster.get("resourceclaims", "c", "default")
            assert found is not None
            attached = {"type": "Attached", "status": "True", "reason": "Done", "message": ""}
            attached["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            device = {"driver": DRIVER, "pool": other, "device": "g0", "conditions": [attached]}
            prepared = {**found, "status": {**found["status"], "devices": [device]}}
            cluster.update("resourceclaims", prepared, subresource="status")
            await eventually(lambda: placements(cluster) == {"p": other})


@pytest.mark.slow("runs a whole scheduler")
@pytest.mark.parametrize("goes", ["deleted", "bound by another hand"])
async def test_nobody_waits_for_the_devices_of_a_pod_that_wants_no_node_any_more(goes: str) -> None:
    """What was waited for, ten minutes at most, was for nobody, and kept the device from others."""
    async with DevCluster() as cluster:
        cluster.create(device_class(), node("a"))
        conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
        cluster.create(resource_slice("a", {"name": "g0", **conditions}))
        make_claim(cluster, "c")
        async with scheduler(cluster) as app:
            cluster.create(manifest("p", "c"))
            await eventually(
                lambda: app.carrying.bindings.in_flight > app.carrying.bindings.at_work
            )
            if goes == "deleted":
                cluster.delete("pods", "p", grace=0)
            else:
                cluster.bind("p", "a")
            await eventually(lambda: app.carrying.bindings.in_flight == 0)
            await eventually(lambda: len(app.kernel.queue) == 0)
            # A pod that is on a node uses its claim, whoever has bound it.
            await eventually(lambda: users(cluster, "c") == ([] if goes == "deleted" else ["p"]))


def users(cluster: DevCluster, name: str) -> list[str]:
    """The names of those that a claim is reserved for."""
    found = cluster.get("resourceclaims", name, "default")
    assert found is not None
    return [consumer["name"] for consumer in found["status"].get("reservedFor") or []]


@pytest.mark.parametrize("slow", ["watch", "API server"])
async def test_a_pod_that_is_tried_again_has_its_claim_when_it_is_bound(slow: str) -> None:
    """What a failed attempt took back went late, or was seen late; the next one relied on it.

    The pod ran, and its devices could be given to others.
    """
    async with DevCluster() as cluster:
        cluster.create(device_class(), node("a"))
        cluster.create(resource_slice("a", "g0"))
        make_claim(cluster, "c")
        async with scheduler(cluster, initial_backoff=0.1) as app:
            if slow == "watch":
                cluster.stall_watches("resourceclaims.resource.k8s.io")
            refused = cluster.faults.fail(403, verb="create", resource="pods/binding")
            cluster.create(manifest("p", "c"))
            await refused.wait_hit()
            if slow != "watch":
                hung = cluster.faults.hang(verb="patch", resource="resourceclaims*/status")
                await hung.wait_hit()
                await eventually(
                    lambda: app.kernel.queue.describe("default/p").get("attempts") != 1
                )
                hung.release()
            await eventually(lambda: placements(cluster) == {"p": "a"})
        assert users(cluster, "c") == ["p"]


@pytest.mark.slow("runs a whole scheduler")
async def test_a_claim_is_not_taken_from_a_pod_that_has_been_bound_with_it_since() -> None:
    """The pod did not fit beside its devices; when it did, it was bound, and then they were taken.

    The claim is of an attempt that ended suddenly, so it is reserved for the pod already.
    """
    async with DevCluster() as cluster:
        cluster.create(device_class(), node("a"), node("b"), make_pod("big", cpu="4"))
        cluster.bind("big", "a")
        cluster.create(resource_slice("a", "g0"))
        make_claim(cluster, "c")
        (pod,) = cluster.create(manifest("p", "c", cpu="4"))
        got = {"request": "r", "driver": DRIVER, "pool": "a", "device": "g0"}
        consumer = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
        here = {"key": "metadata.name", "operator": "In", "values": ["a"]}
        selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        allocation = {"devices": {"results": [got]}, "nodeSelector": selector}
        found = cluster.get("resourceclaims", "c", "default")
        assert found is not None
        left = {**found, "status": {"allocation": allocation, "reservedFor": [consumer]}}
        cluster.update("resourceclaims", left, subresource="status")
        hung = cluster.faults.hang(verb="patch", resource="resourceclaims*/status")
        async with scheduler(cluster, initial_backoff=0.1):
            await asyncio.wait_for(hung.wait_hit(), 30)
            await eventually(lambda: condition(cluster, "p").get("reason") == "Unschedulable")
            cluster.delete("pods", "big", grace=0)
            with contextlib.suppress(AssertionError):  # it waits, and nothing shows for what
                await eventually(lambda: placements(cluster), seconds=0.5)
            hung.release()
            await eventually(lambda: placements(cluster) == {"p": "a"})
        assert users(cluster, "c") == ["p"]
        assert len(devices_of(cluster)) == 1


@pytest.mark.slow("runs a whole scheduler")
async def test_a_pod_waits_for_its_claim_and_its_class() -> None:
    async with DevCluster() as cluster:
        cluster.create(node("a"))
        cluster.create(resource_slice("a", "g0"))
        async with scheduler(cluster):
            cluster.create(manifest("p", "late"))
            await eventually(
                lambda: (
                    'could not find ResourceClaim "default/late"'
                    in condition(cluster, "p").get("message", "")
                )
            )
            make_claim(cluster, "late")
            await eventually(
                lambda: (
                    "device class gpu does not exist" in condition(cluster, "p").get("message", "")
                )
            )
            cluster.create(device_class())
            await eventually(lambda: placements(cluster) == {"p": "a"})


@pytest.mark.slow("runs a whole scheduler")
async def test_devices_stand_for_an_extended_resource() -> None:
    gpu = "example.com/gpu"
    async with DevCluster() as cluster:
        cluster.create(device_class(extendedResourceName=gpu))
        cluster.create(node("a"))
        cluster.create(resource_slice("a", "g0", "g1"))
        async with scheduler(cluster):
            for i in range(3):
                cluster.create(manifest(f"p{i}", requests={gpu: "1"}, limits={gpu: "1"}))
            await eventually(lambda: len(placements(cluster)) == 2)
            left = ({"p0", "p1", "p2"} - placements(cluster).keys()).pop()
            await eventually(lambda: condition(cluster, left).get("reason") == "Unschedulable")
        assert devices_of(cluster) == {("a", "g0"): 1, ("a", "g1"): 1}
        for name in placements(cluster):
            found = cluster.get("pods", name)
            assert found is not None
            reported = found["status"]["extendedResourceClaimStatus"]
            assert cluster.get("resourceclaims", reported["resourceClaimName"]) is not None


@pytest.mark.slow("runs a whole scheduler")
async def test_a_group_gives_up_the_devices_that_keep_it_from_fitting() -> None:
    """Its first pod has a claim on a node that is cordoned since, and was never tried alone."""
    async with DevCluster() as cluster:
        cluster.create(device_class(), node("a"), resource_slice("a", "g0"))
        make_claim(cluster, "c")
        async with scheduler(cluster):
            cluster.create(manifest("before", "c"))
            await eventually(lambda: placements(cluster) == {"before": "a"})
            cluster.delete("pods", "before", grace=0)
            found = cluster.get("resourceclaims", "c", "default")
            assert found is not None
            idle = {"allocation": found["status"]["allocation"]}
            cluster.update("resourceclaims", {**found, "status": idle}, subresource="status")
            cordoned = cluster.get("nodes", "a")
            assert cordoned is not None
            cluster.update("nodes", {**cordoned, "spec": {"unschedulable": True}})
            cluster.create(node("b"), resource_slice("b", "g0"))
            cluster.create(
                {
                    "apiVersion": "scheduling.k8s.io/v1beta1",
                    "kind": "PodGroup",
                    "metadata": {"name": "g", "namespace": "default"},
                    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
                }
            )
            member = {"schedulingGroup": {"podGroupName": "g"}}
            cluster.create(manifest("p", "c", spec=member), manifest("q", spec=member))
            await eventually(lambda: placements(cluster) == {"p": "b", "q": "b"})


@pytest.mark.slow("runs a whole scheduler")
async def test_a_group_with_claims_evicts_for_all_of_its_pods() -> None:
    """What was reserved while it was tried without its victims is free again, and taken once."""
    async with DevCluster() as cluster:
        cluster.create(device_class())
        for name in ("a", "b"):
            cluster.create(node(name), resource_slice(name, "g0"))
            low = make_pod(f"low-{name}", cpu="3", terminationGracePeriodSeconds=0)
            cluster.create(low)
            make_claim(cluster, f"c-{name}")
        cluster.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 100,
            },
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "g", "namespace": "default"},
                "spec": {
                    "schedulingPolicy": {"gang": {"minCount": 2}},
                    "priorityClassName": "high",
                },
            },
        )
        async with scheduler(cluster):
            await eventually(lambda: len(placements(cluster)) == 2)
            member = {"schedulingGroup": {"podGroupName": "g"}, "priorityClassName": "high"}
            cluster.create(
                *(manifest(f"p-{name}", f"c-{name}", cpu=3, spec=member) for name in ("a", "b"))
            )
            await eventually(lambda: set(placements(cluster)) == {"p-a", "p-b"})
            assert devices_of(cluster) == {("a", "g0"): 1, ("b", "g0"): 1}


_LARGE = 'device.attributes["gpu.example.com"].model == "large"'


@pytest.mark.slow("runs a whole scheduler")
async def test_pods_with_selectors_that_fail_wait_for_their_objects_alone() -> None:
    """The claim of one tenant counted as a failure of policies, and was tried again for ever."""
    async with DevCluster() as cluster:
        cluster.create(device_class(), device_class("bad", _LARGE), node("a"))
        cluster.create(resource_slice("a", "g0", "g1"))
        for name, wanted in (
            ("own", request(selectors=[{"cel": {"expression": _LARGE}}])),
            ("of-class", request(device_class="bad")),
        ):
            made = claim(name, wanted)
            made["metadata"].pop("uid")
            cluster.create(made)
        async with scheduler(cluster) as app:
            cluster.create(manifest("p-own", "own"), manifest("p-of-class", "of-class"))

            def says(pod: str, of: str) -> bool:
                message = f"{of}: selector #0 on device {DRIVER}/a/g0: CEL runtime error"
                return message in condition(cluster, pod).get("message", "")

            await eventually(lambda: says("p-own", "claim default/own"))
            await eventually(lambda: says("p-of-class", "class bad"))
            await eventually(
                lambda: any(
                    "claim default/own: selector #0" in event["message"]
                    for event in cluster.list("events")
                )
            )
            # Nothing else is at fault, or held back.
            cluster.create(manifest("plain"))
            await eventually(lambda: "plain" in placements(cluster))
            failed = functools.partial(metric, app, "starsched_failures_total", owner="object")
            assert failed(reason="ClaimSelectorFailed") == 1
            assert failed(reason="ClassSelectorFailed") == 1
            assert app.policies.rollout.counts.failed == 0
            metrics = generate_latest(app.env.registry).decode()
            assert "starsched_policy_failures_total{" not in metrics
            # The objects are other ones.
            cluster.update("deviceclasses", device_class("bad"))
            await eventually(lambda: "p-of-class" in placements(cluster))
            large = {"attributes": {"model": {"string": "large"}}}
            slice_ = resource_slice("a", {"name": "g0", **large}, {"name": "g1", **large})
            cluster.update("resourceslices", slice_)
            await eventually(lambda: "p-own" in placements(cluster))


@pytest.mark.slow("runs a whole scheduler")
async def test_a_claim_that_was_allocated_without_a_time_is_shared(
    own_control_plane: ControlPlane,
) -> None:
    """kube-scheduler adds the time, which the API server refuses, and tries again for ever."""
    devices, core = "/apis/resource.k8s.io/v1", "/api/v1/namespaces/default"
    claims = f"{devices}/namespaces/default/resourceclaims"

    def create(path: str, made: Json) -> Json:
        made["metadata"].pop("uid", None)
        stored: Json = own_control_plane.request("POST", path, made)
        return stored

    def node_of(pod: str) -> str | None:
        spec: Json = own_control_plane.request("GET", f"{core}/pods/{pod}")["spec"]
        return spec.get("nodeName")

    status = node("a")["status"]
    made = create("/api/v1/nodes", node("a"))
    own_control_plane.request("PUT", "/api/v1/nodes/a/status", {**made, "status": status})
    create(f"{devices}/deviceclasses", device_class())
    create(f"{devices}/resourceslices", resource_slice("a", "g0"))
    shared = create(claims, claim("shared"))
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": "g0"}
    allocation = {"devices": {"results": [result]}}
    shared["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    shared = own_control_plane.request("PUT", f"{claims}/shared", shared)
    shared["status"] = {"allocation": allocation}
    own_control_plane.request("PUT", f"{claims}/shared/status", shared)
    async with scheduler_at(own_control_plane.endpoint()):
        create(f"{core}/pods", manifest("p", "shared"))
        await eventually(lambda: node_of("p") == "a")
    stored = own_control_plane.request("GET", f"{claims}/shared")["status"]
    assert "allocationTimestamp" not in stored["allocation"]
    assert [one["name"] for one in stored["reservedFor"]] == ["p"]
