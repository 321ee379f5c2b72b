"""Volumes are bound before their pod is, on the embedded and on a real API server.

The volume controller and the provisioner are played by the tests: no server brings them along.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from devkit.cluster import DevCluster
from engine.core.caching.cache import Cache
from engine.core.caching.objects import object_key
from engine.core.model.objects import decode
from engine.core.model.pod import Pod
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.io.binding.volume_binder import VolumeBinder
from engine.io.kube.client import MERGE_PATCH, ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.errors import NotFound
from engine.io.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from engine.io.watching.informer import Decoding, Handlers, Informer
from engine.lib.clock import SystemClock
from tests.builders import make_node, make_pod
from tests.controlplane import ControlPlane
from tests.storage_builders import (
    BOUND,
    DRIVER,
    SELECTED_NODE,
    Json,
    claim,
    storage_class,
    uses,
    volume,
)
from tests.waiting import eventually

SLOW = pytest.mark.slow("starts the real control plane")

NODE = "node-a"
CLAIMS, VOLUMES = PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
CLAIMED_BY = "pv.kubernetes.io/bound-by-controller"


class Bench:
    """A cache that mirrors the storage objects of a server, the plugin, and a pod's decision."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.prefix = f"v-{secrets.token_hex(4)}"
        self.cache = Cache()
        self.cache.add_node(make_node(NODE))
        self.binder = VolumeBinder(client, self.cache, clock=SystemClock())
        self.plugin = VolumeBinding(self.cache.objects, self.binder)
        self.informers: list[Informer[Any]] = []
        for resource, record in (
            (CLAIMS, PersistentVolumeClaim),
            (VOLUMES, PersistentVolume),
        ):
            self.informers.append(self._informer(resource, record))
        self.put_class("local")
        self.put_class("made", provisioner=DRIVER)
        self.made: list[tuple[Resource, str, str | None]] = []

    def _informer(self, resource: Resource, record: Any) -> Informer[Any]:
        kind, objects = resource.plural, self.cache.objects
        handlers: Handlers[Any] = Handlers(
            on_add=lambda obj: objects.put(kind, obj),
            on_update=lambda _, new: objects.put(kind, new),
            on_delete=lambda obj: objects.delete(kind, object_key(obj)),
        )
        return Informer(self.client, resource, Decoding(lambda raw: decode(record, raw)), handlers)

    def put_class(self, name: str, **words: Any) -> None:
        """A class; the scheduler only reads it, so the server need not have it."""
        raw = msgspec.json.encode(storage_class(name, **words))
        self.cache.objects.put("storageclasses", decode(StorageClass, raw))

    # --- the server ------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """The name of a volume that is this test's."""
        return f"{self.prefix}-{stem}"

    async def create(self, resource: Resource, plain: Json) -> Json:
        """Create an object, and wait until the cache has it."""
        namespace = self.namespace if resource.namespaced else None
        meta = {k: v for k, v in plain["metadata"].items() if k not in ("uid", "resourceVersion")}
        status = plain.pop("status")
        if namespace:
            meta["namespace"] = namespace
        body = json.dumps({**plain, "metadata": meta}).encode()
        await self.client.create(resource, body, namespace)
        self.made.append((resource, meta["name"], namespace))
        await self.patch(resource, meta["name"], {"status": status}, subresource="status")
        made = await self.get(resource, meta["name"])
        version = made["metadata"]["resourceVersion"]

        def is_cached() -> bool:
            found = self.cached(resource, meta["name"])
            return found is not None and found.metadata.resource_version == version

        await eventually(is_cached)
        return made

    async def get(self, resource: Resource, name: str) -> Json:
        namespace = self.namespace if resource.namespaced else None
        found: Json = json.loads(await self.client.get(resource, name, namespace))
        return found

    async def patch(self, resource: Resource, name: str, change: Json, **words: Any) -> None:
        namespace = self.namespace if resource.namespaced else None
        body = json.dumps(change).encode()
        await self.client.patch(resource, name, body, namespace, content_type=MERGE_PATCH, **words)

    def cached(self, resource: Resource, name: str) -> Any:
        key = f"{self.namespace}/{name}" if resource.namespaced else name
        return self.cache.objects.get(resource.plural, key)

    async def clean(self) -> None:
        for resource, name, namespace in self.made:
            with contextlib.suppress(NotFound):
                await self.patch(resource, name, {"metadata": {"finalizers": None}})
            with contextlib.suppress(NotFound):
                await self.client.delete(resource, name, namespace)

    # --- the controllers -------------------------------------------------------------------

    async def bind_claim(self, claim_name: str, volume_name: str) -> None:
        """What the volume controller does once a volume names its claim."""
        change = {"spec": {"volumeName": volume_name}, "metadata": {"annotations": BOUND}}
        await self.patch(CLAIMS, claim_name, change)

    async def is_selected(self, claim_name: str) -> bool:
        found = await self.get(CLAIMS, claim_name)
        return SELECTED_NODE in found["metadata"].get("annotations", {})

    async def waits_for(self, claim_name: str) -> bool:
        """Whether the claim names the node, and the binder has got that answer and waits."""
        return self.binder.is_waiting and await self.is_selected(claim_name)

    async def is_claimed(self, volume_name: str) -> bool:
        return "claimRef" in (await self.get(VOLUMES, volume_name))["spec"]

    # --- the scheduler ---------------------------------------------------------------------

    def decide(self, *claims: str, seconds: int = 60, name: str = "p") -> tuple[Pod, Any]:
        """A pod that uses *claims*, assumed on the node with its volumes reserved."""
        pod = make_pod(name, namespace=self.namespace, volumes=uses(*claims))
        arguments = {"bindTimeoutSeconds": seconds}
        state = self.plugin.pre_filter(pod, self.cache.snapshot(), arguments)
        info = self.cache.snapshot().info(NODE)
        assert info is not None
        assert self.plugin.filter(state, info) is None
        placed = self.cache.assume(pod, NODE)
        assert self.plugin.reserve(state, placed, NODE) is None
        return placed, state

    async def pre_bind(self, pod: Pod, state: Any) -> None:
        """Write what was reserved, taking it back if that fails, as the binding cycle does."""
        try:
            await self.plugin.pre_bind(state, pod, NODE)
        except BaseException:
            self.plugin.unreserve(state, pod, NODE)
            self.cache.forget(pod.uid)
            raise

    async def reason(self, pod: Pod, state: Any) -> str:
        """Why the reservation could not be written."""
        with pytest.raises(PreBindError) as caught:
            await self.pre_bind(pod, state)
        return str(caught.value)


@contextlib.asynccontextmanager
async def _mirroring(client: ApiClient, namespace: str) -> AsyncIterator[Bench]:
    bench = Bench(client, namespace)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(informer.run()) for informer in bench.informers]
        for informer in bench.informers:
            await informer.wait_synced()
        yield bench
        await bench.clean()
        for task in running:
            task.cancel()


@pytest.fixture(
    params=[
        pytest.param("embedded"),
        pytest.param("real", marks=SLOW),
    ]
)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "real":
            plane: ControlPlane = request.getfixturevalue("control_plane")
            client = await stack.enter_async_context(plane.client())
            namespace = request.getfixturevalue("namespace")
        else:
            server = await stack.enter_async_context(DevCluster())
            client = await stack.enter_async_context(ApiClient(Endpoint(server=server.url)))
            namespace = "default"
        yield await stack.enter_async_context(_mirroring(client, namespace))


async def test_a_volume_that_exists_is_claimed_and_waited_for(bench: Bench) -> None:
    name = bench.name("disk")
    await bench.create(VOLUMES, volume(name))
    made = await bench.create(CLAIMS, claim())
    pod, state = bench.decide("data")
    binding = asyncio.create_task(bench.pre_bind(pod, state))
    await eventually(lambda: bench.is_claimed(name))
    found = await bench.get(VOLUMES, name)
    ref = found["spec"]["claimRef"]
    assert (ref["namespace"], ref["name"]) == (bench.namespace, "data")
    assert ref["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["annotations"][CLAIMED_BY] == "yes"
    assert found["spec"]["csi"]["volumeHandle"] == name, "the rest is as it was"
    assert not binding.done()
    await bench.bind_claim("data", name)
    await binding


async def test_a_volume_is_made_for_the_chosen_node(bench: Bench) -> None:
    name = bench.name("made")
    made = await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    binding = asyncio.create_task(bench.pre_bind(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    found = await bench.get(CLAIMS, "data")
    assert found["metadata"]["annotations"][SELECTED_NODE] == NODE
    assert found["spec"] == made["spec"]
    assert not binding.done()
    await bench.create(VOLUMES, volume(name, storage_class="made", node=None))
    await bench.bind_claim("data", name)
    await binding


async def test_a_pod_of_several_claims_waits_for_all(bench: Bench) -> None:
    name, new = bench.name("disk"), bench.name("new")
    await bench.create(VOLUMES, volume(name))
    await bench.create(CLAIMS, claim("old"))
    await bench.create(CLAIMS, claim("new", storage_class="made"))
    pod, state = bench.decide("old", "new")
    binding = asyncio.create_task(bench.pre_bind(pod, state))
    await eventually(lambda: bench.is_selected("new"))
    await bench.bind_claim("old", name)
    await eventually(lambda: bench.cached(CLAIMS, "old").is_bound)
    assert not binding.done()
    await bench.create(VOLUMES, volume(new, storage_class="made"))
    await bench.bind_claim("new", new)
    await binding


async def test_a_provisioner_that_fails_says_so_on_the_claim(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made", annotations={"keep": "me"}))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    await eventually(lambda: SELECTED_NODE in bench.cached(CLAIMS, "data").metadata.annotations)
    await bench.patch(CLAIMS, "data", {"metadata": {"annotations": {SELECTED_NODE: None}}})
    assert await failing == 'binding volumes: provisioning failed for PVC "data"'
    # Nothing is left of the reservation: the pod may be tried again, on any node.
    again, _ = bench.decide("data")
    assert bench.cache.is_assumed(again.uid)


async def test_a_volume_made_elsewhere_is_noticed(bench: Bench) -> None:
    name = bench.name("far")
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    await bench.create(VOLUMES, volume(name, storage_class="made", node="elsewhere"))
    await bench.bind_claim("data", name)
    assert await failing == (
        f'binding volumes: pv "{name}" node affinity doesn\'t match node "{NODE}": '
        "no matching NodeSelectorTerms"
    )


async def test_waiting_ends_with_the_time(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data", seconds=0)
    assert await bench.reason(pod, state) == "binding volumes: context deadline exceeded"
    assert await bench.is_selected("data"), "a provisioner may be at work: this is not taken back"


async def test_waiting_ends_with_the_pod(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    bench.cache.remove_pod(pod)
    assert await failing == 'binding volumes: pod does not exist any more: pod "p" not found'


async def test_waiting_ends_when_another_client_binds_the_pod(bench: Bench) -> None:
    """It went on for ten minutes, and kept its volumes from others."""
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    bench.cache.add_pod(pod.with_node("other"))
    why = 'binding volumes: pod "p" is on node "other", bound by another component'
    assert await asyncio.wait_for(failing, 20) == why


async def test_waiting_ends_with_the_node(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    bench.cache.remove_node(NODE)
    want = f'binding volumes: failed to get node "{NODE}": node "{NODE}" not found'
    assert await failing == want


async def test_waiting_ends_with_the_claim(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    failing = asyncio.create_task(bench.reason(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    await bench.clean()
    assert await failing == (
        "binding volumes: failed to check provisioning pvc: "
        f'persistentvolumeclaims "{bench.namespace}/data" not found'
    )


async def test_a_volume_that_another_client_took_meanwhile_is_not_taken_from_them(
    bench: Bench,
) -> None:
    name = bench.name("disk")
    await bench.create(VOLUMES, volume(name))
    await bench.create(CLAIMS, claim())
    pod, state = bench.decide("data")
    other = {"kind": "PersistentVolumeClaim", "namespace": "x", "name": "y", "uid": "z"}
    await bench.patch(VOLUMES, name, {"spec": {"claimRef": other}})
    assert "the object has been modified" in await bench.reason(pod, state)
    assert (await bench.get(VOLUMES, name))["spec"]["claimRef"]["uid"] == "z"


async def test_two_pods_of_one_claim_are_bound_together(bench: Bench) -> None:
    name = bench.name("made")
    await bench.create(CLAIMS, claim(storage_class="made"))
    pods = [bench.decide("data", name=name) for name in ("p", "q")]
    bindings = [asyncio.create_task(bench.pre_bind(pod, state)) for pod, state in pods]
    await eventually(lambda: bench.waits_for("data"))
    await bench.create(VOLUMES, volume(name, storage_class="made"))
    await bench.bind_claim("data", name)
    await asyncio.gather(*bindings)


async def test_a_wait_that_is_given_up_leaves_nothing_behind(bench: Bench) -> None:
    await bench.create(CLAIMS, claim(storage_class="made"))
    pod, state = bench.decide("data")
    binding = asyncio.create_task(bench.pre_bind(pod, state))
    await eventually(lambda: bench.waits_for("data"))
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert not bench.binder.is_waiting
    assert not bench.cache.is_assumed(pod.uid)


# --- a server that fails ----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _failing() -> AsyncIterator[tuple[DevCluster, Bench]]:
    async with (
        DevCluster() as cluster,
        ApiClient(Endpoint(server=cluster.url)) as client,
        _mirroring(client, "default") as bench,
    ):
        yield cluster, bench


FAILURES: dict[str, Callable[[DevCluster], Any]] = {
    "answer lost after it took effect": lambda c: c.faults.drop(applied=True, verb="patch"),
    "answer lost before it took effect": lambda c: c.faults.drop(verb="patch"),
    "500 after it took effect": lambda c: c.faults.fail(500, applied=True, verb="patch"),
    "503": lambda c: c.faults.fail(503, verb="patch"),
    "429": lambda c: c.faults.fail(429, retry_after=0, verb="patch"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_write_is_made_whatever_happens_on_the_way(
    failure: Callable[[DevCluster], Any],
) -> None:
    async with _failing() as (cluster, bench):
        name = bench.name("disk")
        await bench.create(VOLUMES, volume(name))
        await bench.create(CLAIMS, claim())
        await bench.create(CLAIMS, claim("new", storage_class="made"))
        for _ in range(2):
            failure(cluster)
        pod, state = bench.decide("data", "new")
        binding = asyncio.create_task(bench.pre_bind(pod, state))
        await eventually(lambda: bench.is_claimed(name))
        await eventually(lambda: bench.is_selected("new"))
        await bench.create(VOLUMES, volume(bench.name("new"), storage_class="made"))
        await bench.bind_claim("data", name)
        await bench.bind_claim("new", bench.name("new"))
        await binding


async def test_a_server_that_keeps_failing_is_not_asked_for_ever() -> None:
    async with _failing() as (cluster, bench):
        await bench.create(CLAIMS, claim(storage_class="made"))
        fault = cluster.faults.fail(500, verb="patch", times=None)
        pod, state = bench.decide("data")
        assert "Internal error" in await bench.reason(pod, state)
        assert fault.hits == 5
        fault.release()


async def test_a_refusal_is_final() -> None:
    async with _failing() as (cluster, bench):
        await bench.create(CLAIMS, claim(storage_class="made"))
        fault = cluster.faults.fail(403, message="no", verb="patch", times=None)
        pod, state = bench.decide("data")
        assert await bench.reason(pod, state) == "no"
        assert fault.hits == 1
        fault.release()


async def test_a_claim_that_was_replaced_is_not_written_to() -> None:
    async with _failing() as (_, bench):
        await bench.create(CLAIMS, claim(storage_class="made"))
        pod, state = bench.decide("data")
        await bench.clean()
        await bench.create(CLAIMS, claim(storage_class="made"))
        await bench.reason(pod, state)
        assert not await bench.is_selected("data")
