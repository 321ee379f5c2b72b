"""The client against the real API server: TLS, refusals, binding, lists and watches."""

import asyncio
import contextlib
import json
import os
import select
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.io.kube import resources
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TimedOut,
    Unauthorized,
)
from engine.io.kube.resources import (
    CONFIG_MAPS,
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    Resource,
)
from tests.controlplane import ControlPlane, as_numbers, kubernetes_minor

#: The minor version that serves a resource first, of those that not every one serves.
SINCE = {DEVICE_TAINT_RULES: "1.37"}
#: Served only if the API server is configured to.
OFF_BY_DEFAULT = {POD_GROUPS}


def pod(name: str, **spec: Any) -> bytes:
    containers = [{"name": "main", "image": "registry.example/main:1"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }
    return json.dumps(body).encode()


def config_map(name: str, **data: str) -> bytes:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return json.dumps(body).encode()


async def make_pod(client: ApiClient, namespace: str, name: str) -> dict[str, Any]:
    created: dict[str, Any] = json.loads(await client.create(PODS, pod(name), namespace))
    return created


async def test_every_resource_constant_is_served(admin: ApiClient) -> None:
    newer = {r for r, since in SINCE.items() if as_numbers(since) > as_numbers(kubernetes_minor())}
    constants = {value for value in vars(resources).values() if isinstance(value, Resource)}
    for resource in constants - newer - OFF_BY_DEFAULT:
        pages = [page async for page in admin.list_pages(resource)]
        assert pages[0].resource_version
        group = f"/apis/{resource.group}" if resource.group else "/api"
        listing = json.loads(await admin.request("GET", f"{group}/{resource.version}"))
        served = {entry["name"]: entry for entry in listing["resources"]}
        got = served[resource.plural]
        assert (got["kind"], got["namespaced"]) == (resource.kind, resource.namespaced)


async def test_a_server_with_another_authority_is_not_talked_to(
    control_plane: ControlPlane,
) -> None:
    async with ApiClient(Endpoint(server=control_plane.url, token="secret")) as client:
        with pytest.raises(ConnectionLost, match="certificate is not trusted") as caught:
            await client.request("GET", "/version")
    assert caught.value.sent is False


async def test_another_authority_in_the_file_is_trusted_from_then_on(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """An authority is replaced under a running pod; a standby was out of reach until it ended."""
    plane, trusted = own_control_plane, tmp_path / "ca.crt"
    shutil.copy(plane.ca_file, trusted)
    endpoint = Endpoint(server=plane.url, token=plane.token, ca_file=str(trusted))
    async with ApiClient(endpoint) as client:
        assert await client.request("GET", "/version")
        shutil.rmtree(plane.ca_file.parent)
        await asyncio.to_thread(plane.restart_apiserver)
        with pytest.raises(ConnectionLost, match="certificate is not trusted"):
            await client.request("GET", "/version")
        trusted.write_text("half", encoding="utf-8")
        with pytest.raises(ConnectionLost, match="certificate is not trusted"):
            await client.request("GET", "/version")
        shutil.copy(plane.ca_file, trusted)
        assert await client.request("GET", "/version")


async def test_the_certificates_name_is_checked(control_plane: ControlPlane) -> None:
    async def ask(name: str) -> bytes:
        endpoint = Endpoint(
            server=control_plane.url, ca_file=str(control_plane.ca_file), tls_server_name=name
        )
        async with ApiClient(endpoint) as client:
            return await client.request("GET", "/version")

    assert await ask("kubernetes.default.svc")
    with pytest.raises(ConnectionLost, match="certificate is not trusted"):
        await ask("other.example")


async def test_wrong_token_and_missing_rights_differ(control_plane: ControlPlane) -> None:
    async with control_plane.client("wrong") as client:
        with pytest.raises(Unauthorized):
            await client.get(NODES, "a")
    token = control_plane.service_account_token("default", "nobody")
    async with control_plane.client(token) as client:
        with pytest.raises(Forbidden, match="system:serviceaccount:default:nobody"):
            await client.get(NODES, "a")


async def test_objects_are_created_read_changed_and_deleted(
    admin: ApiClient, namespace: str
) -> None:
    await admin.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    with pytest.raises(AlreadyExists):
        await admin.create(CONFIG_MAPS, config_map("a"), namespace)

    read = json.loads(await admin.get(CONFIG_MAPS, "a", namespace))
    read["data"]["x"] = "2"
    await admin.update(CONFIG_MAPS, "a", json.dumps(read).encode(), namespace)
    with pytest.raises(Conflict):  # its resourceVersion is old now
        await admin.update(CONFIG_MAPS, "a", json.dumps(read).encode(), namespace)

    await admin.patch(CONFIG_MAPS, "a", b'{"data":{"y":"3"}}', namespace)
    await admin.patch(CONFIG_MAPS, "a", b'{"data":{"x":null}}', namespace, content_type=MERGE_PATCH)
    assert json.loads(await admin.get(CONFIG_MAPS, "a", namespace))["data"] == {"y": "3"}

    body = b'{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"other"}}'
    with pytest.raises(Conflict):
        await admin.delete(CONFIG_MAPS, "a", namespace, body=body)
    await admin.delete(CONFIG_MAPS, "a", namespace)
    with pytest.raises(NotFound):
        await admin.get(CONFIG_MAPS, "a", namespace)


async def test_an_invalid_object_is_refused(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await admin.create(CONFIG_MAPS, config_map("Not A Name"), namespace)


async def test_binding_needs_the_uid_and_happens_once(admin: ApiClient, namespace: str) -> None:
    created = await make_pod(admin, namespace, "a")
    uid = created["metadata"]["uid"]
    with pytest.raises(Conflict):
        await admin.bind(namespace, "a", "another-uid", "node-1")
    await admin.bind(namespace, "a", uid, "node-1")
    for node in ("node-1", "node-2"):
        with pytest.raises(Conflict, match="already assigned to node"):
            await admin.bind(namespace, "a", uid, node)
    with pytest.raises(NotFound):
        await admin.bind(namespace, "missing", uid, "node-1")
    assert json.loads(await admin.get(PODS, "a", namespace))["spec"]["nodeName"] == "node-1"


async def test_pages_show_one_moment(admin: ApiClient, namespace: str) -> None:
    for i in range(7):
        await admin.create(CONFIG_MAPS, config_map(f"m{i}"), namespace)
    pages = admin.list_pages(CONFIG_MAPS, namespace=namespace, limit=3)
    first = await anext(pages)
    await admin.delete(CONFIG_MAPS, "m5", namespace)
    await admin.create(CONFIG_MAPS, config_map("m9"), namespace)
    rest = [page async for page in pages]
    names = [
        json.loads(bytes(raw))["metadata"]["name"] for page in [first, *rest] for raw in page.items
    ]
    assert names == [f"m{i}" for i in range(7)]
    assert {page.resource_version for page in rest} == {first.resource_version}
    assert [len(page.items) for page in [first, *rest]] == [3, 3, 1]


async def test_a_compacted_continue_token_is_gone(own_control_plane: ControlPlane) -> None:
    async with own_control_plane.client() as client:
        for i in range(4):
            await client.create(CONFIG_MAPS, config_map(f"m{i}"), "default")
        pages = client.list_pages(CONFIG_MAPS, namespace="default", limit=2)
        async with contextlib.aclosing(pages):
            await anext(pages)
            await client.create(CONFIG_MAPS, config_map("m9"), "default")
            own_control_plane.compact_etcd()
            own_control_plane.restart_apiserver()  # it keeps recent lists in memory
            with pytest.raises(Gone) as caught:
                await anext(pages)
    assert caught.value.reason == "Expired"
    assert caught.value.continue_token


async def test_a_watch_reports_changes_and_ends_when_asked(
    admin: ApiClient, namespace: str
) -> None:
    created = json.loads(await admin.create(CONFIG_MAPS, config_map("a"), namespace))
    version = created["metadata"]["resourceVersion"]
    await admin.patch(CONFIG_MAPS, "a", b'{"data":{"x":"y"}}', namespace)
    await admin.delete(CONFIG_MAPS, "a", namespace)
    stream = admin.stream(CONFIG_MAPS, version, namespace=namespace, timeout_seconds=1)
    types = [json.loads(line)["type"] async for line in stream]
    assert [kind for kind in types if kind != "BOOKMARK"] == ["MODIFIED", "DELETED"]


async def test_a_line_longer_than_a_megabyte_arrives(admin: ApiClient, namespace: str) -> None:
    pages = admin.list_pages(CONFIG_MAPS, namespace=namespace)
    version = (await anext(pages)).resource_version
    await pages.aclose()
    big = "x" * 1_000_000
    await admin.create(CONFIG_MAPS, config_map("big", blob=big), namespace)
    stream = admin.stream(CONFIG_MAPS, version, namespace=namespace, timeout_seconds=20)
    async with contextlib.aclosing(stream):
        got = json.loads(await anext(stream))
    assert got["object"]["data"]["blob"] == big


async def test_leaving_the_field_selector_is_a_deletion(admin: ApiClient, namespace: str) -> None:
    created = await make_pod(admin, namespace, "a")
    stream = admin.stream(
        PODS,
        created["metadata"]["resourceVersion"],
        namespace=namespace,
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
        timeout_seconds=20,
    )
    await admin.patch(
        PODS, "a", b'{"status":{"phase":"Succeeded"}}', namespace, subresource="status"
    )
    async with contextlib.aclosing(stream):
        got = json.loads(await anext(stream))
    assert got["type"] == "DELETED"


async def test_a_frozen_server_times_out_requests_and_watches(
    own_control_plane: ControlPlane,
) -> None:
    async with own_control_plane.client() as client:
        page = await anext(pages := client.list_pages(PODS))
        await pages.aclose()
        stream = client.stream(
            PODS, page.resource_version, timeout_seconds=1, grace=0.5, bookmarks=False
        )
        watching = asyncio.create_task(anext(stream))
        await client.request("GET", "/version")  # the watch is open by now or soon
        own_control_plane.pause_apiserver()
        with pytest.raises(TimedOut):
            await client.request("GET", "/version", timeout=0.2)
        with pytest.raises(TimedOut):
            await watching
        own_control_plane.resume_apiserver()
        assert await client.request("GET", "/version")


@pytest.mark.slow("starts the real control plane")
async def test_servers_die_with_their_process(tmp_path: Path) -> None:
    """Killed without a chance to clean up, the parent leaves no server behind."""
    code = (
        "import sys; from tests.controlplane import ControlPlane; from pathlib import Path;"
        f"plane = ControlPlane(directory=Path({str(tmp_path)!r})).start();"
        "print(plane.etcd_pid, plane.apiserver_pid, flush=True); sys.stdin.read()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=Path(__file__).parents[4],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    # The kernel tells each end by its handle, so nothing is polled and no recycled id confused.
    handles = [os.pidfd_open(int(pid)) for pid in line.split()]
    assert len(handles) == 2
    process.kill()
    await process.wait()
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 20)
        assert ended
        os.close(handle)
