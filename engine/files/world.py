"""Builds a cluster from manifests instead of a watch: nodes, placed pods, other objects.

Owns turning plain manifests into the cache that the scheduling cycle reads. The cache, and what it
derives (requests, ports, image counts), are those of a running scheduler.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from engine.core.caching.cache import Cache
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import NO_GATES, RELEASED, behaviors_of
from engine.core.manifests.field_errors import describe_error
from engine.core.model import devices, storage
from engine.core.model import objects as api
from engine.core.model.clock_facts import beside_sources, clock_facts
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, PodGroup
from engine.io.facts.readings import read_plain, time_of
from engine.io.facts.store import FactStore, nodes_of
from engine.lib.time_zones import UTC, zone_of

Manifest = Mapping[str, Any]

# Kind of a manifest: where the cache keeps it, and its record.
OBJECT_KINDS: Final[Mapping[str, tuple[str, type[msgspec.Struct]]]] = {
    "Namespace": ("namespaces", api.Namespace),
    "Service": ("services", api.Service),
    "ReplicaSet": ("replicasets", api.Workload),
    "StatefulSet": ("statefulsets", api.Workload),
    "Deployment": ("deployments", api.Workload),
    "Job": ("jobs", api.Job),
    "ReplicationController": ("replicationcontrollers", api.ReplicationController),
    "PodDisruptionBudget": ("poddisruptionbudgets", api.PodDisruptionBudget),
    "PersistentVolume": ("persistentvolumes", storage.PersistentVolume),
    "PersistentVolumeClaim": ("persistentvolumeclaims", storage.PersistentVolumeClaim),
    "StorageClass": ("storageclasses", storage.StorageClass),
    "CSINode": ("csinodes", storage.CSINode),
    "CSIDriver": ("csidrivers", storage.CSIDriver),
    "VolumeAttachment": ("volumeattachments", storage.VolumeAttachment),
    "CSIStorageCapacity": ("csistoragecapacities", storage.CSIStorageCapacity),
    "ResourceClaim": ("resourceclaims", devices.ResourceClaim),
    "ResourceSlice": ("resourceslices", devices.ResourceSlice),
    "DeviceClass": ("deviceclasses", devices.DeviceClass),
    "DeviceTaintRule": ("devicetaintrules", devices.DeviceTaintRule),
    "PodGroup": (POD_GROUPS, PodGroup),
}
_FINISHED: Final = ("Succeeded", "Failed")


class ManifestError(ValueError):
    """An invalid manifest; the message names the object and the problem."""


class World:
    """A cluster at rest, on which pods can be decided.

    `snapshot` is what the scheduling cycle reads; it stays the same object.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.snapshot: Snapshot = cache.snapshot()

    @classmethod
    def from_manifests(
        cls,
        nodes: Iterable[Manifest],
        pods: Iterable[Manifest] = (),
        objects: Iterable[Manifest] = (),
        facts: Mapping[str, Any] | None = None,
        time_zone: str = UTC,
        minor: int = RELEASED,
        gates: frozenset[str] = NO_GATES,
    ) -> "World":
        """Build the world of these manifests, and of a facts document (see `docs/facts.md`).

        The clock is at the time of the document, else at the beginning of 1970. What is decided
        on it is answered as Kubernetes 1.*minor* does with the feature gates *gates* on.

        Pods are those that have a node; finished ones take no capacity and are left out, as the API
        server leaves them out of the scheduler's watch. Raises `ManifestError` for a manifest of
        the wrong shape, a kind that the scheduler does not read, or a pod without a node.
        """
        cache = Cache()
        cache.objects.behaves = behaviors_of(minor, gates)
        for manifest in nodes:
            cache.add_node(node_of(manifest))
        for manifest in pods:
            pod = pod_of(manifest)
            if not pod.node_name:
                raise ManifestError(f"pod `{pod.key}`: want `spec.nodeName`, it is placed nowhere")
            if pod.manifest.status.phase not in _FINISHED:
                cache.add_pod(pod)
        for manifest in objects:
            plural, record = _object_of(manifest)
            cache.objects.put(plural, record)
        _show_facts(cache, facts or {}, time_zone)
        return cls(cache)


def _show_facts(cache: Cache, given: Mapping[str, Any], time_zone: str) -> None:
    """Put the facts of a document into *cache*. Raises `ManifestError` for its first problem."""
    now = time_of(given.get("time")) or 0.0
    document = read_plain(given, now=now)
    if document.problems:
        raise ManifestError(f"facts: {document.problems[0]}")
    store = FactStore(step_seconds=1.0)
    for name in nodes_of(store.replace(0, document.readings)):
        cache.set_node_facts(name, store.node(name, now))
    others = store.others(now)
    cluster = beside_sources(others.cluster, clock_facts(now, zone_of(time_zone)))
    cache.set_other_facts(cluster=cluster, types=others.types, pods=others.pods)


def pod_of(manifest: Manifest) -> Pod:
    """The pod of a manifest. Raises `ManifestError`."""
    try:
        return Pod.from_raw(msgspec.json.encode(manifest))
    except msgspec.DecodeError as error:
        raise ManifestError(
            f"pod `{_name(manifest)}`: {describe_error(manifest, str(error))}"
        ) from error


def node_of(manifest: Manifest) -> Node:
    """The node of a manifest. Raises `ManifestError`."""
    try:
        return Node.from_raw(msgspec.json.encode(manifest))
    except msgspec.DecodeError as error:
        raise ManifestError(
            f"node `{_name(manifest)}`: {describe_error(manifest, str(error))}"
        ) from error


def _object_of(manifest: Manifest) -> tuple[str, Any]:
    kind = manifest.get("kind")
    known = OBJECT_KINDS.get(str(kind))
    if known is None:
        raise ManifestError(f"object `{_name(manifest)}`: want one of {_kinds()}, got `{kind}`")
    plural, record = known
    try:
        return plural, api.from_plain(record, manifest)
    except msgspec.ValidationError as error:
        raise ManifestError(
            f"{kind} `{_name(manifest)}`: {describe_error(manifest, str(error))}"
        ) from error


def _kinds() -> str:
    return ", ".join(f"`{kind}`" for kind in sorted(OBJECT_KINDS))


def _name(manifest: Manifest) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    if not isinstance(metadata, Mapping):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name", "")
    return f"{namespace}/{name}" if namespace else str(name)
