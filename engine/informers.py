"""The informers of a cluster: what is watched, decoded into which records, in which order.

Owns the list; what a change means is the handlers'.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from engine.caching.objects import ApiObject
from engine.kube import resources
from engine.kube.client import ApiClient
from engine.kube.resources import Resource
from engine.model import devices, storage
from engine.model import objects as api
from engine.model.claim_decoding import decode_claim
from engine.model.decoding import decode_object
from engine.model.node import Node
from engine.model.partial_decoding import decoded_in_part
from engine.model.pod import Pod
from engine.model.pod_group import PodGroup
from engine.model.shared_parts import SharedParts, shared_claims, shared_pods, shared_volumes
from engine.watching.informer import Handler, Informer
from engine.watching.reflector import WatchOptions

NOT_TERMINAL: Final = "status.phase!=Succeeded,status.phase!=Failed"

#: Most seconds between looks for a resource that the API server has in none of its versions.
VERSIONS_RETRY_SECONDS: Final = 20.0

# What decisions read in addition to pods and nodes, each with its record. What a cluster does not
# serve is empty; what it does not allow to list is not in sync, as pods and nodes are not.
OTHER_OBJECTS: Final[tuple[tuple[Resource, type[msgspec.Struct]], ...]] = (
    (resources.NAMESPACES, api.Namespace),
    (resources.SERVICES, api.Service),
    (resources.REPLICATION_CONTROLLERS, api.ReplicationController),
    (resources.REPLICA_SETS, api.Workload),
    (resources.STATEFUL_SETS, api.Workload),
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
        yield Informer(client, resources.NODES, decode_node, nodes, unread=_unread_of_manifest)
        # All are looked for as often: one may come with an upgrade, or with a feature gate.
        optional = WatchOptions(optional=True, absent_retry=VERSIONS_RETRY_SECONDS)
        for resource, record in OTHER_OBJECTS:
            decode, handlers = decoder_of(record), [others(resource)]
            older = resources.OLDER_VERSIONS.get(resource, ())
            yield Informer(
                client,
                resource,
                decode,
                handlers,
                unread=_unread,
                on_served=partial(on_served, resource) if older else lambda _: None,
                options=replace(optional, older=older),
            )
        options = WatchOptions(field_selector=NOT_TERMINAL)
        yield Informer(
            client,
            resources.PODS,
            pod_decoder(),
            pods,
            unread=_unread_of_manifest,
            options=options,
        )

    return list(made())


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
