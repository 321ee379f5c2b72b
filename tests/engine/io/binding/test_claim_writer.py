"""Claims are written to a real API server as they were reserved, or not at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.framework.status import Status
from engine.core.model.devices import ResourceClaim
from engine.core.model.objects import decode, from_plain
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.files.world import World, pod_of
from engine.io.binding import claim_writer
from engine.io.binding.claim_writer import DeviceClaimWriter
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.errors import Conflict, ConnectionLost, Forbidden, NotFound
from engine.io.kube.resources import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from engine.lib.clock import SystemClock
from engine.telemetry.metrics import Metrics
from tests.builders import node_manifest
from tests.engine.core.scheduling.devices.builders import (
    claim,
    claiming_pod,
    device_class,
    request,
    resource_slice,
)
from tests.waiting import eventually

Json = dict[str, Any]


class Site:
    """A namespace of a real API server, a world that shows it, and the plugin with its writer."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.node = f"node-{namespace}"
        self.class_name = f"class-{namespace}"
        self.world = World.from_manifests([node_manifest(self.node)])
        self.objects = self.world.cache.objects
        self.metrics = Metrics(CollectorRegistry())
        self.writer = self.make_writer()
        self.plugin = DynamicResources(self.objects, self.writer)

    def created(self, status: str) -> float | None:
        """How many claims were created for pods, with this status."""
        name = "dynamic_resource_allocation_resourceclaim_creates_total"
        labels = {"admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"}
        return self.metrics.registry.get_sample_value(name, {"status": status, **labels})

    def make_writer(self, **words: Any) -> DeviceClaimWriter:
        cache = self.world.cache
        return DeviceClaimWriter(
            self.client, cache, clock=SystemClock(), metrics=self.metrics, **words
        )

    async def make(self, resource: Resource, manifest: Json) -> Json:
        namespace = self.namespace if resource.namespaced else None
        manifest["metadata"].pop("uid", None)
        raw = await self.client.create(resource, msgspec.json.encode(manifest), namespace)
        made: Json = json.loads(raw)
        return made

    async def devices(self, *devices: str | Json, **spec: Any) -> None:
        """A class and a slice with these devices, on the server and in the world."""
        made = device_class(self.class_name, **spec)
        await self.make(DEVICE_CLASSES, made)
        offered = resource_slice(self.node, *devices, name=f"slice-{self.namespace}")
        await self.make(RESOURCE_SLICES, offered)
        world = World.from_manifests((), (), [made, offered])
        for kind in ("deviceclasses", "resourceslices"):
            for obj in world.cache.objects.list(kind):
                self.objects.put(kind, obj)

    async def claim(self, name: str, **words: Any) -> ResourceClaim:
        asked = request(device_class=self.class_name)
        made = claim(name, asked, namespace=self.namespace, **words)
        await self.make(RESOURCE_CLAIMS, made)
        return await self.watch(name)

    async def pod(self, name: str, *claims: str, **words: Any) -> Pod:
        manifest = claiming_pod(name, *claims, namespace=self.namespace, **words)
        for container in manifest["spec"]["containers"]:
            container["image"] = "none"
        return pod_of(await self.make(PODS, manifest))

    async def read(self, name: str) -> ResourceClaim:
        raw = await self.client.get(RESOURCE_CLAIMS, name, self.namespace)
        return decode(ResourceClaim, raw)

    async def watch(self, name: str) -> ResourceClaim:
        """Let the world see the claim as the server has it."""
        found = await self.read(name)
        self.objects.put("resourceclaims", found)
        return found

    async def patch(self, name: str, change: Json, subresource: str | None = None) -> None:
        await self.client.patch(
            RESOURCE_CLAIMS,
            name,
            json.dumps(change).encode(),
            self.namespace,
            subresource=subresource,
            content_type=MERGE_PATCH,
        )

    def place(self, pod: Pod, **arguments: Any) -> Any:
        """Decide, assume and reserve."""
        state = self.plugin.pre_filter(pod, self.world.snapshot, arguments)
        assert not isinstance(state, Status), state
        info = self.world.snapshot.info(self.node)
        assert info is not None
        assert self.plugin.filter(state, info) is None
        self.world.cache.forget(pod.uid)  # from the last time
        self.world.cache.assume(pod, self.node)
        assert self.plugin.reserve(state, pod, self.node) is None
        return state


@pytest.fixture
async def site(admin: ApiClient, namespace: str) -> AsyncIterator[Site]:
    # A server that is just up makes the account after the namespace.
    made = Site(admin, namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await admin.request("POST", path, body=json.dumps(account).encode())
    yield made
    await made.writer.drain()
    for resource, name in (
        (DEVICE_CLASSES, made.class_name),
        (RESOURCE_SLICES, f"slice-{namespace}"),
    ):
        try:
            await admin.delete(resource, name)
        except NotFound:
            continue


async def test_a_reservation_becomes_an_allocation_that_is_reserved_for_the_pod(site: Site) -> None:
    await site.devices("g0", "g1")
    await site.claim("one", config=[_config("g")])
    pod = await site.pod("p", "one")
    state = site.place(pod)
    await site.plugin.pre_bind(state, pod, site.node)
    got = await site.read("one")
    assert got.allocation is not None
    assert [r.device for r in got.allocation.devices.results] == ["g0"]
    assert got.allocation.node_selector is not None
    assert got.allocation.allocation_timestamp is not None
    assert got.allocation.devices.config[0].opaque == _config("g")["opaque"]
    assert [(c.resource, c.name, c.uid) for c in got.status.reserved_for] == [
        ("pods", "p", pod.uid)
    ]
    assert got.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)


async def test_a_second_pod_of_an_allocated_claim_is_added_to_its_users(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    first, second = await site.pod("p", "one"), await site.pod("q", "one")
    await site.plugin.pre_bind(site.place(first), first, site.node)
    state = site.place(second)  # the world has not seen it; the plugin knows what it wrote
    await site.plugin.pre_bind(state, second, site.node)
    got = await site.read("one")
    assert {c.uid for c in got.status.reserved_for} == {first.uid, second.uid}


async def test_a_group_uses_a_claim_once_for_all_of_its_pods(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.objects.behaves = behaviors_of(RELEASED, frozenset({"DRAWorkloadResourceClaims"}))
    await site.devices("g0")
    await site.claim("one")
    named = {"name": "c0", "resourceClaimName": "one"}
    meta = {"name": "g", "namespace": site.namespace, "uid": "uid-g"}
    group = from_plain(PodGroup, {"metadata": meta, "spec": {"resourceClaims": [named]}})
    site.objects.put(POD_GROUPS, group)
    pods = [
        pod_of(claiming_pod(n, "one", namespace=site.namespace, spec={"schedulingGroup": of}))
        for n, of in (("p", {"podGroupName": "g"}), ("q", {"podGroupName": "g"}))
    ]
    await site.plugin.pre_bind(site.place(pods[0]), pods[0], site.node)
    state = site.place(pods[1])
    asked = requests_of(monkeypatch)
    await site.plugin.pre_bind(state, pods[1], site.node)
    assert asked == []  # the group has it
    got = await site.read("one")
    assert [(c.api_group, c.resource, c.name, c.uid) for c in got.status.reserved_for] == [
        ("scheduling.k8s.io", "podgroups", "g", "uid-g")
    ]
    # A pod whose binding failed gives nothing back: the others need it.
    site.plugin.unreserve(state, pods[1], site.node)
    await site.writer.drain()
    assert (await site.read("one")).status.reserved_for == got.status.reserved_for


def requests_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of all requests from now on."""
    asked: list[str] = []
    real = ApiClient.request

    async def request(client: ApiClient, method: str, *words: Any, **named: Any) -> Any:
        asked.append(method)
        return await real(client, method, *words, **named)

    monkeypatch.setattr(ApiClient, "request", request)
    return asked


async def test_pods_that_share_a_claim_do_not_write_over_one_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.devices("g0")
    await site.claim("one")
    first, *pods = [await site.pod(name, "one") for name in ("p", "q", "r", "s")]
    await site.plugin.pre_bind(site.place(first), first, site.node)
    states = [site.place(pod) for pod in pods]
    asked = requests_of(monkeypatch)
    await asyncio.gather(
        *(
            site.plugin.pre_bind(state, pod, site.node)
            for state, pod in zip(states, pods, strict=True)
        )
    )
    assert asked == ["PATCH"] * 3  # no conflict, and nothing was read
    got = await site.read("one")
    assert {c.uid for c in got.status.reserved_for} == {pod.uid for pod in (first, *pods)}


async def test_pods_that_share_a_claim_share_what_is_on_its_way_into_it(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    pods = [await site.pod(name, "one") for name in ("p", "q", "r")]
    states = [site.place(pod) for pod in pods]
    for state, pod in reversed([*zip(states, pods, strict=True)]):
        await site.plugin.pre_bind(state, pod, site.node)
    got = await site.read("one")
    assert got.allocation is not None
    assert {c.uid for c in got.status.reserved_for} == {pod.uid for pod in pods}


async def test_devices_that_a_shared_claim_has_lost_are_not_given_to_it_again(site: Site) -> None:
    """They may be another claim's since."""
    await site.devices("g0")
    await site.claim("one")
    first, second = await site.pod("p", "one"), await site.pod("q", "one")
    states = [site.place(first), site.place(second)]
    await site.plugin.pre_bind(states[0], first, site.node)
    # The first pod failed, and the controller took the allocation back; no watch has shown it yet.
    await site.patch("one", {"status": {"allocation": None, "reservedFor": None}}, "status")
    with pytest.raises(PreBindError, match="got deallocated elsewhere in the meantime"):
        await site.plugin.pre_bind(states[1], second, site.node)
    assert (await site.read("one")).allocation is None


async def test_a_change_that_does_not_matter_is_not_overwritten(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)
    await site.patch("one", {"metadata": {"labels": {"a": "b"}}})
    await site.plugin.pre_bind(state, pod, site.node)
    got = await site.read("one")
    assert got.metadata.labels == {"a": "b"}
    assert got.is_reserved_for(pod.uid)


async def test_a_claim_that_was_allocated_elsewhere_stays_as_it_is(site: Site) -> None:
    await site.devices("g0", "g1")
    await site.claim("one")
    pod, other = await site.pod("p", "one"), await site.pod("q", "one")
    state = site.place(pod)
    elsewhere = {
        "devices": {
            "results": [
                {"request": "r", "driver": "gpu.example.com", "pool": site.node, "device": "g1"}
            ]
        }
    }
    await site.patch("one", {"status": {"allocation": elsewhere}}, "status")
    with pytest.raises(PreBindError, match="got allocated elsewhere in the meantime"):
        await site.plugin.pre_bind(state, pod, site.node)
    site.plugin.unreserve(state, pod, site.node)
    await site.writer.drain()
    got = await site.watch("one")
    assert got.allocation is not None
    assert [r.device for r in got.allocation.devices.results] == ["g1"]
    assert got.status.reserved_for == ()
    again = site.place(other)
    await site.plugin.pre_bind(again, other, site.node)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_claim_that_moved_to_other_devices_does_not_take_the_pod(
    site: Site, is_seen: bool
) -> None:
    """While the pod waited for leave, another one had the devices taken back and chose others.

    The pod was added to its users and bound to the node of the old ones, where it never started.
    """
    await site.devices("g0", "g1")
    await site.claim("one")
    first, pod = await site.pod("q", "one"), await site.pod("p", "one")
    had = site.place(first)
    await site.plugin.pre_bind(had, first, site.node)
    site.plugin.unreserve(had, first, site.node)
    await site.writer.drain()
    await site.watch("one")
    state = site.place(pod)
    await site.patch("one", {"status": {"allocation": None}}, "status")
    elsewhere = {
        "devices": {
            "results": [{"request": "r", "driver": "gpu.example.com", "pool": "x", "device": "y"}]
        }
    }
    await site.patch("one", {"status": {"allocation": elsewhere}}, "status")
    if is_seen:
        await site.watch("one")
    with pytest.raises(PreBindError, match="got allocated elsewhere in the meantime"):
        await site.plugin.pre_bind(state, pod, site.node)
    assert (await site.read("one")).status.reserved_for == ()


async def test_a_claim_that_is_gone_or_another_fails_the_attempt(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)
    await site.client.delete(RESOURCE_CLAIMS, "one", site.namespace)
    with pytest.raises(PreBindError, match="not found"):
        await site.plugin.pre_bind(state, pod, site.node)
    await site.claim("one")
    with pytest.raises(PreBindError, match="replaced in the meantime"):
        await site.plugin.pre_bind(state, pod, site.node)
    assert (await site.read("one")).allocation is None


async def test_a_failed_attempt_gives_its_reservation_back(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    first, second = await site.pod("p", "one"), await site.pod("q", "one")
    one = site.place(first)
    await site.plugin.pre_bind(one, first, site.node)
    two = site.place(second)
    await site.plugin.pre_bind(two, second, site.node)
    site.plugin.unreserve(two, second, site.node)
    await site.writer.drain()
    got = await site.read("one")
    assert [c.uid for c in got.status.reserved_for] == [first.uid]
    assert got.allocation is not None


async def test_devices_are_taken_while_it_is_unknown_whether_they_were_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away longer than the tries last has them given when it is back."""
    monkeypatch.setattr(claim_writer, "MOST_TRIES", 2)
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)
    patch, get = site.client.patch, site.client.get
    away = 0

    async def patched(*args: Any, **words: Any) -> bytes:
        nonlocal away
        answer = await patch(*args, **words)
        if words.get("subresource") != "status":
            return answer
        away = 3
        raise ConnectionLost("cut off", sent=True)

    async def got(*args: Any, **words: Any) -> bytes:
        nonlocal away
        if away:
            away -= 1
            assert state.known.devices.is_owned(("gpu.example.com", site.node, "g0"))
            raise ConnectionLost("refused", sent=False)
        return await get(*args, **words)

    monkeypatch.setattr(site.client, "patch", patched)
    monkeypatch.setattr(site.client, "get", got)
    await site.plugin.pre_bind(state, pod, site.node)
    assert state.written[0].is_reserved_for(pod.uid)
    assert not away


async def test_a_claim_that_goes_while_its_write_is_unknown_fails_the_attempt(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_writer, "MOST_TRIES", 1)
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)

    async def lost(*_: Any, **__: Any) -> bytes:
        await site.client.delete(RESOURCE_CLAIMS, "one", site.namespace)
        raise ConnectionLost("cut off", sent=True)

    monkeypatch.setattr(site.client, "patch", lost)
    with pytest.raises(PreBindError, match="cut off"):
        await site.plugin.pre_bind(state, pod, site.node)


async def test_what_must_not_be_read_is_not_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a conflict nothing is unknown: the pod's event says what is wrong with the rights."""
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)

    async def conflict(*_: Any, **__: Any) -> bytes:
        raise Conflict("the object has been modified", status=409)

    async def forbidden(*_: Any, **__: Any) -> bytes:
        raise Forbidden("cannot get resourceclaims", status=403)

    monkeypatch.setattr(site.client, "patch", conflict)
    monkeypatch.setattr(site.client, "get", forbidden)
    with pytest.raises(PreBindError, match="cannot get resourceclaims"):
        await asyncio.wait_for(site.plugin.pre_bind(state, pod, site.node), 10)


async def test_an_idle_allocation_in_the_way_is_deallocated(site: Site) -> None:
    await site.devices("g0")
    await site.claim("one")
    elsewhere = {
        "devices": {
            "results": [{"request": "r", "driver": "gpu.example.com", "pool": "x", "device": "y"}]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}
            ]
        },
    }
    await site.patch("one", {"status": {"allocation": elsewhere}}, "status")
    await site.watch("one")
    pod = await site.pod("p", "one")
    state = site.plugin.pre_filter(pod, site.world.snapshot, {})
    info = site.world.snapshot.info(site.node)
    assert info is not None
    status = site.plugin.filter(state, info)
    assert status is not None
    assert status.reasons == ("resourceclaim not available on the node",)
    answer = site.plugin.post_filter(state, pod, {site.node: status}, site.world.snapshot)
    assert answer is not None
    assert answer.message == "deallocation of ResourceClaim completed"
    assert answer.action is not None
    await answer.action()
    assert (await site.watch("one")).allocation is None
    await site.plugin.pre_bind(site.place(pod), pod, site.node)
    assert (await site.read("one")).is_reserved_for(pod.uid)


async def test_who_leads_no_more_gives_a_pod_no_devices(site: Site) -> None:
    """A leader that was stopped after its decision, for longer than its lease, gave them twice."""
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    site.writer = site.make_writer(may_act=lambda: False)
    site.plugin = DynamicResources(site.objects, site.writer)
    with pytest.raises(PreBindError, match="the lease may have run out"):
        await site.plugin.pre_bind(site.place(pod), pod, site.node)
    assert (await site.read("one")).allocation is None


async def test_who_leads_no_more_takes_nothing_back_from_a_pod(site: Site) -> None:
    """By then another one may have reserved the claim, for the same pod."""
    await site.devices("g0")
    await site.claim("one")
    pod = await site.pod("p", "one")
    await site.plugin.pre_bind(site.place(pod), pod, site.node)
    reserved = await site.watch("one")
    writer = site.make_writer(may_act=lambda: False)
    writer.start_release(pod, reserved)
    await writer.drain()
    assert (await site.read("one")).is_reserved_for(pod.uid)


async def test_a_pod_is_bound_once_its_devices_are_prepared(site: Site) -> None:
    await site.devices(_prepared("g0"))
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)
    binding = asyncio.ensure_future(site.plugin.pre_bind(state, pod, site.node))

    async def is_allocated() -> bool:
        return (await site.watch("one")).allocation is not None

    await eventually(is_allocated)
    assert not binding.done()
    await site.patch("one", _condition(site, "Attached"), "status")
    await site.watch("one")
    await asyncio.wait_for(binding, 10)


async def test_a_device_that_cannot_be_prepared_fails_the_attempt(site: Site) -> None:
    await site.devices(_prepared("g0"))
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod)
    binding = asyncio.ensure_future(site.plugin.pre_bind(state, pod, site.node))

    async def is_allocated() -> bool:
        return (await site.watch("one")).allocation is not None

    await eventually(is_allocated)
    await site.patch("one", _condition(site, "Broken"), "status")
    await site.watch("one")
    with pytest.raises(PreBindError, match="device binding failed: claim=one, reason=Because"):
        await asyncio.wait_for(binding, 10)


async def test_devices_that_are_never_prepared_time_out(site: Site) -> None:
    await site.devices(_prepared("g0"))
    await site.claim("one")
    pod = await site.pod("p", "one")
    state = site.place(pod, binding_timeout=0.2)
    with pytest.raises(PreBindError, match="device binding timeout"):
        await site.plugin.pre_bind(state, pod, site.node)


async def test_extended_resources_get_a_claim_of_their_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched: list[str] = []
    patch = site.client.patch

    def noted(resource: Resource, *args: Any, **words: Any) -> Any:
        patched.append(resource.plural)
        return patch(resource, *args, **words)

    monkeypatch.setattr(site.client, "patch", noted)
    resource = f"{site.namespace}.example.com/gpu"
    await site.devices("g0", "g1", extendedResourceName=resource)
    pod = await site.pod("p", requests={resource: "2"}, limits={resource: "2"})
    state = site.place(pod)
    await site.plugin.pre_bind(state, pod, site.node)
    raw = await site.client.get(PODS, "p", site.namespace)
    reported = json.loads(raw)["status"]["extendedResourceClaimStatus"]
    assert reported["requestMappings"] == [
        {
            "containerName": "main",
            "resourceName": resource,
            "requestName": "container-0-request-0",
        }
    ]
    name = reported["resourceClaimName"]
    got = await site.read(name)
    assert name.startswith("p-extended-resources-")
    assert got.allocation is not None
    assert [r.device for r in got.allocation.devices.results] == ["g0", "g1"]
    assert got.is_reserved_for(pod.uid)
    assert got.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert [o.uid for o in got.metadata.owner_references] == [pod.uid]
    # As few requests as can be: each is one more that a pod waits for.
    assert sorted(patched) == ["pods", "resourceclaims"]
    assert site.created("success") == 1

    device = ("gpu.example.com", site.node, "g0")
    site.plugin.unreserve(state, pod, site.node)
    assert state.known.devices.is_owned(device), "the claim has it while it is there"
    await site.writer.drain()
    assert not state.known.devices.is_owned(device)
    with pytest.raises(NotFound):
        await site.read(name)


async def test_a_claim_that_cannot_be_created_is_counted(site: Site) -> None:
    wanted = claim("p", request(device_class=site.class_name), namespace="nowhere")
    with pytest.raises(PreBindError, match="create claim for extended resources"):
        await site.writer.create(from_plain(ResourceClaim, wanted))
    assert (site.created("success"), site.created("failure")) == (0, 1)


async def test_a_claim_that_an_earlier_attempt_left_is_deleted(site: Site) -> None:
    resource = f"{site.namespace}.example.com/gpu"
    await site.devices("g0", extendedResourceName=resource)
    pod = await site.pod("p", requests={resource: "1"}, limits={resource: "1"})
    state = site.place(pod)
    await site.plugin.pre_bind(state, pod, site.node)
    # A new process knows only what the watch shows.
    plugin = DynamicResources(site.objects, site.writer)
    (left,) = state.written.values()
    site.objects.put("resourceclaims", left)
    again = plugin.pre_filter(pod, site.world.snapshot, {})
    info = site.world.snapshot.info(site.node)
    assert info is not None
    status = plugin.filter(again, info)
    assert status is not None
    assert status.reasons == ("cannot schedule extended resource claim",)
    answer = plugin.post_filter(again, pod, {site.node: status}, site.world.snapshot)
    assert answer is not None
    assert answer.message == "deletion of ResourceClaim completed"
    assert answer.action is not None
    await answer.action()
    with pytest.raises(NotFound):
        await site.read(left.metadata.name)


def _config(value: str) -> Json:
    return {"opaque": {"driver": "gpu.example.com", "parameters": {"apiVersion": value}}}


def _prepared(name: str) -> Json:
    return {
        "name": name,
        "bindsToNode": True,
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["Broken"],
    }


def _condition(site: Site, kind: str) -> Json:
    condition = {
        "type": kind,
        "status": "True",
        "reason": "Because",
        "message": "it is so",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {
        "driver": "gpu.example.com",
        "pool": site.node,
        "device": "g0",
        "conditions": [condition],
    }
    return {"status": {"devices": [device]}}
