"""Informers on the real API server, which is killed, frozen and made to forget."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from engine.core.model.claim_decoding import decode_claim
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.resources import CONFIG_MAPS, NODES, PODS, RESOURCE_CLAIMS
from engine.io.watching.reflector import WatchOptions
from tests.controlplane import ControlPlane
from tests.engine.io.watching.recorder import Recorder, Sleeper, name_of, running
from tests.waiting import eventually


def config_map(name: str, **data: str) -> bytes:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return json.dumps(body).encode()


def pod(name: str) -> bytes:
    containers = [{"name": "main", "image": "registry.example/main:1"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }
    return json.dumps(body).encode()


async def create(client: ApiClient, namespace: str, *names: str) -> None:
    for name in names:
        await client.create(CONFIG_MAPS, config_map(name), namespace)


async def server_truth(client: ApiClient, namespace: str) -> dict[str, dict[str, Any]]:
    pages = client.list_pages(CONFIG_MAPS, namespace=namespace)
    objects = [json.loads(bytes(raw)) async for page in pages for raw in page.items]
    return {obj["metadata"]["name"]: obj for obj in objects}


def only(namespace: str, **more: Any) -> WatchOptions:
    return WatchOptions(namespace=namespace, **more)


async def test_what_existed_and_what_changes_is_reported(admin: ApiClient, namespace: str) -> None:
    await create(admin, namespace, *[f"m{i}" for i in range(5)])
    recorder = Recorder()
    options = only(namespace, page_size=2)
    async with running(admin, recorder, CONFIG_MAPS, options) as informer:
        await informer.wait_synced()
        assert recorder.words == [f"add m{i}" for i in range(5)]
        await admin.patch(CONFIG_MAPS, "m1", b'{"data":{"x":"y"}}', namespace)
        await admin.delete(CONFIG_MAPS, "m2", namespace)
        await create(admin, namespace, "m2")
        await recorder.until_reported(
            *[f"add m{i}" for i in range(5)], "update m1", "delete m2", "add m2"
        )


async def test_a_pod_that_ends_is_deleted_by_the_selector(admin: ApiClient, namespace: str) -> None:
    for name in ("running", "done"):
        await admin.create(PODS, pod(name), namespace)
    recorder = Recorder()
    options = only(namespace, field_selector="status.phase!=Succeeded,status.phase!=Failed")
    async with running(admin, recorder, PODS, options) as informer:
        await informer.wait_synced()
        patch = b'{"status":{"phase":"Succeeded"}}'
        await admin.patch(PODS, "done", patch, namespace, subresource="status")
        await recorder.until_reported("add done", "add running", "delete done")
    again = Recorder()
    async with running(admin, again, PODS, options) as informer:
        await informer.wait_synced()
        assert again.words == ["add running"]


async def test_a_watch_goes_on_when_the_server_closes_it(admin: ApiClient, namespace: str) -> None:
    recorder, sleeper = Recorder(), Sleeper()
    options = only(namespace, watch_seconds=(1, 1))
    async with running(admin, recorder, CONFIG_MAPS, options, sleep=sleeper) as informer:
        await informer.wait_synced()
        await eventually(lambda: informer.counts.watches >= 3)
        await create(admin, namespace, "a")
        await recorder.until_reported("add a")
        assert informer.counts.lists == 1
    assert sleeper.delays == []


async def test_killing_the_server_loses_and_repeats_nothing(
    own_control_plane: ControlPlane,
) -> None:
    """Changes go on while the server is killed again and again; the recorder refuses a repeat."""
    recorder = Recorder()
    async with own_control_plane.client() as client, own_control_plane.client() as writer:
        await create(writer, "default", *[f"m{i}" for i in range(20)])
        async with running(client, recorder, CONFIG_MAPS, only("default")) as informer:
            await informer.wait_synced()
            for round_ in range(2):
                await asyncio.to_thread(own_control_plane.restart_apiserver)
                for i in range(0, 20, 3):
                    body = json.dumps({"data": {"round": str(round_)}}).encode()
                    await writer.patch(CONFIG_MAPS, f"m{i}", body, "default")
                await writer.delete(CONFIG_MAPS, f"m{round_ + 1}", "default")
                await create(writer, "default", f"new{round_}")
            await create(writer, "default", "last")
            await recorder.until(lambda: "add last" in recorder.words)
            truth = await server_truth(writer, "default")
            got = {name_of(obj): obj for obj in recorder.mirror.values()}
            assert got.keys() == truth.keys()
            for name, obj in got.items():
                assert obj["metadata"] == truth[name]["metadata"]
            assert informer.counts.failures > 0


async def test_compaction_leads_to_a_list_that_reports_the_difference(
    own_control_plane: ControlPlane,
) -> None:
    """While the informer is kept from reconnecting, its place in history is compacted away."""
    recorder, sleeper = Recorder(), Sleeper()
    async with own_control_plane.client() as client, own_control_plane.client() as writer:
        await create(writer, "default", "same", "changed", "gone", "again")
        options = only("default")
        async with running(client, recorder, CONFIG_MAPS, options, sleep=sleeper) as informer:
            await informer.wait_synced()
            reported = len(recorder.reported)
            sleeper.gate.clear()
            sleeper.asleep.clear()
            own_control_plane.kill_apiserver()
            await sleeper.asleep.wait()

            await asyncio.to_thread(own_control_plane.restart_apiserver)
            await writer.patch(CONFIG_MAPS, "changed", b'{"data":{"x":"1"}}', "default")
            await writer.patch(CONFIG_MAPS, "changed", b'{"data":{"x":"2"}}', "default")
            await writer.delete(CONFIG_MAPS, "gone", "default")
            await writer.delete(CONFIG_MAPS, "again", "default")
            await create(writer, "default", "again", "new", "short-lived")
            await writer.delete(CONFIG_MAPS, "short-lived", "default")
            own_control_plane.compact_etcd()
            await asyncio.to_thread(
                own_control_plane.restart_apiserver
            )  # it would still know from memory
            sleeper.gate.set()

            await recorder.until(lambda: "delete gone" in recorder.words)
            assert sorted(recorder.words[reported:]) == [
                "add again",
                "add new",
                "delete again",
                "delete gone",
                "update changed",
            ]
            assert informer.counts.expirations == 1
            assert informer.counts.lists == 2
            assert informer.counts.unchanged >= 1
            await create(writer, "default", "after")
            await recorder.until(lambda: "add after" in recorder.words)


async def test_a_frozen_server_is_noticed_and_nothing_is_lost(
    own_control_plane: ControlPlane,
) -> None:
    """The kernel keeps the connection open all the while, so only the time tells."""
    recorder, sleeper = Recorder(), Sleeper()
    options = only("default", watch_seconds=(1, 1), grace=0.5, list_timeout=1.0)
    async with (
        own_control_plane.client() as client,
        own_control_plane.client() as writer,
        running(client, recorder, CONFIG_MAPS, options, sleep=sleeper) as informer,
    ):
        await informer.wait_synced()
        own_control_plane.pause_apiserver()
        await sleeper.asleep.wait()
        own_control_plane.resume_apiserver()
        await create(writer, "default", "a")
        await recorder.until(lambda: "add a" in recorder.words)


async def test_a_forbidden_resource_waits_for_its_role(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> None:
    """Whether a cluster may lack it makes no difference: refused is not absent."""
    token = control_plane.service_account_token(namespace, "reader")
    required, optional, sleeper = Recorder(), Recorder(), Sleeper()
    sleeper.gate.clear()
    other = Sleeper()
    other.gate.clear()
    await create(admin, namespace, "a")
    maybe = only(namespace, optional=True)
    async with (
        control_plane.client(token) as client,
        running(client, required, CONFIG_MAPS, only(namespace), sleep=sleeper) as first,
        running(client, optional, CONFIG_MAPS, maybe, sleep=other) as second,
    ):
        await asyncio.gather(sleeper.asleep.wait(), other.asleep.wait())
        assert (first.has_synced, second.has_synced) == (False, False)
        assert first.currency.is_forbidden
        assert second.currency.is_forbidden
        for path, body in _reader_role(namespace):
            control_plane.create_if_missing(path, body)
        sleeper.gate.set()
        other.gate.set()
        await asyncio.gather(required.until_reported("add a"), optional.until_reported("add a"))
        await eventually(lambda: not first.currency.is_forbidden)


def _reader_role(namespace: str) -> list[tuple[str, dict[str, Any]]]:
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    meta = {"apiVersion": f"{group}/v1", "metadata": {"name": "reader"}}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    reference = {"apiGroup": group, "kind": "Role", "name": "reader"}
    return [
        (f"{base}/roles", {**meta, "kind": "Role", "rules": [rule]}),
        (
            f"{base}/rolebindings",
            {**meta, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference},
        ),
    ]


@pytest.mark.slow("starts the real control plane")
async def test_an_api_that_the_cluster_lacks_is_empty() -> None:
    """A cluster without dynamic resource allocation has no `resource.k8s.io`."""
    with ControlPlane(apiserver_args=["--runtime-config=resource.k8s.io/v1=false"]) as plane:
        async with plane.client() as client:
            options = WatchOptions(optional=True)
            async with running(client, Recorder(), RESOURCE_CLAIMS, options) as informer:
                await informer.wait_synced()
                assert (len(informer), informer.state) == (0, "absent")


@pytest.mark.parametrize("levels", [900, 1000, 5000])
async def test_an_object_that_is_nested_deep_costs_no_other_object(
    admin: ApiClient, namespace: str, levels: int
) -> None:
    """Parameters of a claim may nest thousands of levels; that ended the scheduler, for ever."""
    path = RESOURCE_CLAIMS.path(namespace)
    recorder = Recorder()
    async with running(admin, recorder, RESOURCE_CLAIMS, only(namespace)) as informer:
        await informer.wait_synced()
        for name, parameters in (("a", "{}"), ("deep", deep(levels)), ("z", "{}")):
            await admin.request("POST", path, body=claim(name, parameters))
        await recorder.until(lambda: "add z" in recorder.words)
        assert "add a" in recorder.words
        await admin.delete(RESOURCE_CLAIMS, "deep", namespace)
        await admin.delete(RESOURCE_CLAIMS, "z", namespace)
        await recorder.until(lambda: "delete z" in recorder.words)
        assert informer.counts.lists == 1
        await admin.request("POST", path, body=claim("deep", deep(levels)))
    again = Recorder()
    async with running(admin, again, RESOURCE_CLAIMS, only(namespace)) as informer:
        await informer.wait_synced()
        assert "add a" in again.words


async def test_the_devices_of_a_claim_with_deep_parameters_are_known(
    admin: ApiClient, namespace: str
) -> None:
    """The API server stores both, and who does not see the claim gives its devices away."""
    await admin.request("POST", RESOURCE_CLAIMS.path(namespace), body=claim("deep", deep(4000)))
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "g0"}
    opaque = {"driver": "gpu.example.com", "parameters": "HERE"}
    allocation = {"results": [result], "config": [{"source": "FromClaim", "opaque": opaque}]}
    status = json.dumps({"status": {"allocation": {"devices": allocation}}})
    await admin.patch(
        RESOURCE_CLAIMS,
        "deep",
        status.replace('"HERE"', deep(4000)).encode(),
        namespace,
        subresource="status",
        content_type=MERGE_PATCH,
    )
    recorder = Recorder()
    async with running(
        admin,
        recorder,
        RESOURCE_CLAIMS,
        only(namespace),
        decode=held,
    ) as informer:
        await informer.wait_synced()
        (found,) = recorder.mirror.values()
        assert found["results"] == (result,)


def held(raw: bytes) -> Any:
    """A claim's metadata and what it got."""
    claim = decode_claim(raw)
    assert claim.allocation is not None
    plain = msgspec.to_builtins({"results": claim.allocation.devices.results})
    return plain | {"metadata": msgspec.to_builtins(claim.metadata)}


def deep(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


def claim(name: str, parameters: str) -> bytes:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    config = {"opaque": {"driver": "gpu.example.com", "parameters": "HERE"}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "config": [config]}},
    }
    return json.dumps(body).replace('"HERE"', parameters).encode()


@pytest.mark.parametrize("count", [1200])
async def test_a_list_of_many_pages_is_complete(
    own_control_plane: ControlPlane, count: int
) -> None:
    async with own_control_plane.client() as client:

        async def node(i: int) -> None:
            metadata = {"name": f"node-{i:04}"}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            await client.create(NODES, json.dumps(body).encode())

        for start in range(0, count, 100):
            await asyncio.gather(*(node(i) for i in range(start, start + 100)))
        recorder = Recorder()
        async with running(client, recorder, NODES) as informer:
            await informer.wait_synced()
            assert len(informer) == count
        assert [name for _, name, _ in recorder.reported] == [f"node-{i:04}" for i in range(count)]
