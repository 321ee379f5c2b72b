"""The informers of a cluster: what is watched, decoded into which records, in which order.

Owns the list, and which of it runs only while policies read it; what a change means is the
handlers'.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from engine.core.caching.objects import ApiObject
from engine.core.model import devices, storage
from engine.core.model import objects as api
from engine.core.model.claim_decoding import decode_claim
from engine.core.model.decoding import decode_object
from engine.core.model.node import Node
from engine.core.model.partial_decoding import decoded_in_part
from engine.core.model.pod import Pod
from engine.core.model.pod_group import PodGroup
from engine.core.model.shared_parts import SharedParts, shared_claims, shared_pods, shared_volumes
from engine.io.kube import resources
from engine.io.kube.client import ApiClient
from engine.io.kube.resources import Resource, resource_of
from engine.io.watching.informer import Decoding, Handler, Informer
from engine.io.watching.readable import why_unread
from engine.io.watching.reflector import WatchOptions
from engine.lib.background import cancelled
from engine.lib.deep_json import decoded_deeply
from engine.policy.bundle import Bundle
from engine.policy.view_events import ANYTHING

NOT_TERMINAL: Final = "status.phase!=Succeeded,status.phase!=Failed"

#: Most seconds between looks for a resource that the API server has in none of its versions.
VERSIONS_RETRY_SECONDS: Final = 20.0
# All are looked for as often: one may come with an upgrade, or with a feature gate.
_OPTIONAL: Final = WatchOptions(optional=True, absent_retry=VERSIONS_RETRY_SECONDS)

#: Most seconds to wait until what policies read is known, and seconds between two looks.
KNOWN_SECONDS: Final = 10.0
_TICK: Final = 0.05

# What decisions read in addition to pods and nodes, each with its record. What a cluster does not
# serve is empty; what it does not allow to list is not in sync, as pods and nodes are not.
OTHER_OBJECTS: Final[tuple[tuple[Resource, type[msgspec.Struct]], ...]] = (
    (resources.NAMESPACES, api.Namespace),
    (resources.SERVICES, api.Service),
    (resources.REPLICATION_CONTROLLERS, api.ReplicationController),
    (resources.REPLICA_SETS, api.Workload),
    (resources.STATEFUL_SETS, api.Workload),
    (resources.DEPLOYMENTS, api.Workload),
    (resources.JOBS, api.Job),
    (resources.POD_DISRUPTION_BUDGETS, api.PodDisruptionBudget),
    (resources.PERSISTENT_VOLUMES, storage.PersistentVolume),
    (resources.PERSISTENT_VOLUME_CLAIMS, storage.PersistentVolumeClaim),
    (resources.STORAGE_CLASSES, storage.StorageClass),
    (resources.CSI_NODES, storage.CSINode),
    (resources.CSI_DRIVERS, storage.CSIDriver),
    (resources.CSI_STORAGE_CAPACITIES, storage.CSIStorageCapacity),
    (resources.VOLUME_ATTACHMENTS, storage.VolumeAttachment),
    (resources.POD_GROUPS, PodGroup),
    (resources.DEVICE_CLASSES, devices.DeviceClass),
    (resources.RESOURCE_SLICES, devices.ResourceSlice),
    (resources.DEVICE_TAINT_RULES, devices.DeviceTaintRule),
    (resources.RESOURCE_CLAIMS, devices.ResourceClaim),
)

#: Those of them that only some policies read: watched as long as such policies matter.
READ_BY_POLICIES: Final = (resources.DEPLOYMENTS, resources.JOBS)

# There may be as many as pods, and most of them are alike.
_SHARING: Final[Mapping[type[msgspec.Struct], Callable[[], SharedParts[Any]]]] = {
    storage.PersistentVolume: shared_volumes,
    storage.PersistentVolumeClaim: shared_claims,
}


def make_informers(
    client: ApiClient,
    *,
    nodes: Sequence[Handler[Node]],
    pods: Sequence[Handler[Pod]],
    others: Callable[[Resource], Handler[Any]],
    on_served: Callable[[Resource, Resource | None], None] = lambda *_: None,
) -> list[Informer[Any]]:
    """An informer of nodes, those of `OTHER_OBJECTS`, and one of pods, in this order.

    Those of `READ_BY_POLICIES` are left to `PolicyInformers`.

    Pods come last: the order costs nothing, and spares a cache the placeholders for nodes that it
    does not know yet.

    Args:
        client: The API server.
        nodes: Handlers of nodes, called in this order.
        pods: Handlers of pods that have not ended.
        others: The handlers of another resource.
        on_served: Called with a resource that has `OLDER_VERSIONS`, and the version that the API
            server has; None if it has none. Before the informer is in sync, and at each change.
    """

    def made() -> Iterator[Informer[Any]]:
        decoding = Decoding(decode_node, _unread_of_manifest)
        yield Informer(client, resources.NODES, decoding, nodes)
        for resource, record in OTHER_OBJECTS:
            if resource in READ_BY_POLICIES:
                continue
            older = resources.OLDER_VERSIONS.get(resource, ())
            yield Informer(
                client,
                resource,
                Decoding(decoder_of(record), _unread),
                [others(resource)],
                on_served=partial(on_served, resource) if older else lambda _: None,
                options=replace(_OPTIONAL, older=older),
            )
        options = WatchOptions(field_selector=NOT_TERMINAL)
        yield Informer(
            client,
            resources.PODS,
            Decoding(pod_decoder(), _unread_of_manifest),
            pods,
            options=options,
        )

    return list(made())


def resources_read(bundle: Bundle) -> list[Resource]:
    """What only the policies of *bundle* read: some of `READ_BY_POLICIES`, and queues."""
    kinds = bundle.kinds_read
    read = [one for one in READ_BY_POLICIES if one.kind in kinds or ANYTHING in kinds]
    return [*read, *queue_sources(bundle)]


def queue_sources(bundle: Bundle) -> list[Resource]:
    """The resources of which objects are queues of *bundle*'s tree."""
    if bundle.queue_tree is None:
        return []
    return [resource_of(one.api_version, one.kind) for one in bundle.queue_tree.objects]


class PolicyInformers:
    """The informers of what only some policies read: each runs while one that matters reads it.

    `stopped --follow, read--> running --follow, not read any more--> stopped`. What is stopped
    reports all its objects as deleted.

    Args:
        client: The API server.
        informers: All that run; these are added, and taken away, before the last one.
        others: The handlers of a resource.
        bundles: The policies that matter: those in force, and those that may be soon.
        on_synced: Called when a resource is known for the first time since it is read.
    """

    def __init__(
        self,
        client: ApiClient,
        informers: list[Informer[Any]],
        *,
        others: Callable[[Resource], Handler[Any]],
        bundles: Callable[[], Iterable[Bundle]],
        on_synced: Callable[[], None],
    ) -> None:
        self._client = client
        self._informers = informers
        self._others = others
        self._bundles = bundles
        self._on_synced = on_synced
        self._running: dict[Resource, tuple[Informer[Any], asyncio.Task[None]]] = {}

    def follow(self) -> None:
        """Run what is read now, and nothing else. Raises what ended an informer."""
        read = {r: None for bundle in self._bundles() for r in resources_read(bundle)}
        for resource in [*self._running, *(r for r in read if r not in self._running)]:
            is_running = resource in self._running
            if is_running and self._running[resource][1].done():
                self._running[resource][1].result()
            if resource in read and not is_running:
                self._start(resource)
            elif resource not in read and is_running:
                self._stop(resource)

    async def known(self, bundle: Bundle) -> list[str]:
        """Run what *bundle*, which matters, reads, and wait until it is known, or some seconds.

        Returns why the rest cannot be read.
        """
        self.follow()
        informers = [self._running[resource][0] for resource in resources_read(bundle)]
        ends_at = self._client.clock.monotonic() + KNOWN_SECONDS
        while True:
            left = [one for one in informers if not one.has_synced]
            is_over = self._client.clock.monotonic() >= ends_at
            if is_over or all(one.currency.is_forbidden for one in left):
                return [why_unread(one) for one in left]
            await asyncio.sleep(_TICK)

    async def close(self) -> None:
        """End all of them."""
        await cancelled([task for _, task in self._running.values()])

    def _start(self, resource: Resource) -> None:
        informer = Informer(
            self._client,
            resource,
            _decoding_of(resource),
            [self._others(resource)],
            on_synced=self._on_synced,
            options=_OPTIONAL,
        )
        self._informers.insert(-1, informer)
        self._running[resource] = informer, asyncio.ensure_future(informer.run())

    def _stop(self, resource: Resource) -> None:
        informer, task = self._running.pop(resource)
        task.cancel()
        self._informers.remove(informer)
        handler = self._others(resource)
        for obj in list(informer.values()):
            handler.on_delete(obj)


def _decoding_of(resource: Resource) -> Decoding[Any]:
    record = dict(OTHER_OBJECTS).get(resource)
    if record is None:
        return Decoding(partial(decode_queue_object, resource))
    decode = decoder_of(record)
    return Decoding(lambda raw: _without_texts(decode(raw)), _unread)


def decode_queue_object(resource: Resource, raw: bytes) -> Any:
    """An object that is a queue for some policy, as the plain data that the policy is given.

    Without `status`, and without what changes whenever it is written: that makes no other queue.
    With its type, which the items of some lists lack.
    """
    found = decoded_deeply(msgspec.json.decode, raw)
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
    kept = {name: part for name, part in typed.items() if name != "status"}
    meta = found["metadata"]
    kept["metadata"] = {name: part for name, part in meta.items() if name not in _WRITTEN}
    return kept


_WRITTEN: Final = frozenset({"generation", "managedFields", "resourceVersion"})


def _without_texts(obj: Any) -> Any:
    """*obj* without labels and annotations, which hold its whole manifest again after an apply."""
    meta = msgspec.structs.replace(obj.metadata, labels={}, annotations={})
    return msgspec.structs.replace(obj, metadata=meta)


def _unread(obj: ApiObject) -> Sequence[str]:
    return obj.metadata.unread


def _unread_of_manifest(obj: Node | Pod) -> Sequence[str]:
    return obj.manifest.metadata.unread


def pod_decoder() -> Callable[[bytes], Pod]:
    """Makes the pod of a JSON text, which shares what it has in common with others."""
    of_controller = shared_pods()

    def decode(raw: bytes) -> Pod:
        found = decoded_in_part(partial(decode_object, api.PodManifest), api.PodManifest, raw)
        # What is recorded of it is what was read: its text would fail again.
        return Pod(of_controller.of(found), None if found.metadata.unread else raw)

    return decode


def decode_node(raw: bytes) -> Node:
    """The node of a JSON text; what of it cannot be read is in its `metadata.unread`."""
    found = decoded_in_part(partial(decode_object, api.NodeManifest), api.NodeManifest, raw)
    return Node(found, None if found.metadata.unread else raw)


def decoder_of(record: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    """Makes a *record* of a JSON text; what of it cannot be read is in its `metadata.unread`."""
    whole = decode_claim if record is devices.ResourceClaim else partial(api.decode, record)
    decode = partial(decoded_in_part, whole, record)
    sharing = _SHARING.get(record)
    if sharing is None:
        return decode
    alike = sharing()
    return lambda raw: alike.of(decode(raw))
