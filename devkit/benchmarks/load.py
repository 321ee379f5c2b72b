"""Puts load on an API server and measures when each pod is bound.

Owns creation and timing. Both run in this process on one loop: requests are encoded before the
clock starts, and the watch that sees bindings carries metadata only, so the generator takes little
of the CPU that it shares with the scheduler (`LoadResult.generator_cpu_seconds` says how much).
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.wire import METADATA_ONLY, WatchedName, Wire, WireError

_COLLECTIONS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues",
    "PodGroup": "/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups",
}
_BOUND_PODS: Final = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName!%3D&allowWatchBookmarks=true"

_decode_event = msgspec.json.Decoder(WatchedName).decode


def collection_path(manifest: Manifest) -> str:
    """Where an object is created."""
    namespace = manifest["metadata"].get("namespace", "default")
    return _COLLECTIONS[manifest["kind"]].format(namespace=namespace)


def key_of(manifest: Manifest) -> str:
    """`namespace/name`."""
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


async def create_all(
    wire: Wire, manifests: Iterable[Manifest], on_done: Callable[[int], None] | None = None
) -> None:
    """Create the objects, many at once, in no particular order.

    Raises `WireError` if one is refused.
    """
    await wire.send_all(
        (wire.encode("POST", collection_path(m), m) for m in manifests), on_done=on_done
    )


async def warm_list_cache(wire: Wire) -> None:
    """List nodes and pods from the API server's cache, as a scheduler's start does."""
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        await wire.get(f"{path}?resourceVersion=0")


async def version_now(wire: Wire) -> str:
    """A resource version of pods from which a watch can start."""
    page = msgspec.json.decode(await wire.get("/api/v1/pods?limit=1"))
    return str(page["metadata"]["resourceVersion"])


async def follow(
    wire: Wire, path: str, version: str, *, accept: str = "application/json"
) -> AsyncIterator[bytes]:
    """The lines of a watch from *version* on, forever.

    The server drops watchers that lag behind, and on a busy machine every watcher lags: the watch
    goes on from the last version seen, as every client of the API does. Raises `WireError` when
    the server does not know that version any more.
    """
    while True:
        since = f"{path}&resourceVersion={version}&timeoutSeconds=86400"
        async for line in wire.watch(since, accept=accept):
            event = _decode_event(line)
            if event.type == "ERROR":
                raise WireError(f"watch {path}: {line.decode('utf-8', 'replace')}")
            version = event.object.metadata.resource_version
            yield line


class BindingWatch:
    """Notes when each pod was first seen on a node. Use as an async context manager.

    Times are `time.monotonic()`.
    """

    def __init__(self, wire: Wire) -> None:
        self.bound_at: dict[str, float] = {}
        self._wire = wire
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "BindingWatch":
        version = await version_now(self._wire)
        self._task = asyncio.create_task(self._watch(version))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, WireError):
                await self._task

    async def _watch(self, version: str) -> None:
        async for line in follow(self._wire, _BOUND_PODS, version, accept=METADATA_ONLY):
            event = _decode_event(line)
            if event.type == "ADDED":
                self.bound_at.setdefault(event.key, time.monotonic())
                self._changed.set()

    async def wait_for(
        self,
        keys: Sequence[str],
        patience: float,
        *,
        tick: Callable[[int], None] | None = None,
        every: float = 0.5,
    ) -> int:
        """How many of *keys* are bound, when all are or none has been for *patience* seconds.

        `tick` is called with the count from time to time; what it raises ends the wait.
        """
        missing = set(keys) - self.bound_at.keys()
        moved_at = time.monotonic()
        while missing and time.monotonic() - moved_at < patience:
            if self._task is not None and self._task.done():
                self._task.result()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), every)
            await asyncio.sleep(min(every, 0.05))  # look at many bindings at once
            before = len(missing)
            missing -= self.bound_at.keys()
            if len(missing) < before:
                moved_at = time.monotonic()
            if tick is not None:
                tick(len(keys) - len(missing))
        return len(keys) - len(missing)


@dataclass(slots=True)
class LoadResult:
    """When each pod of a load was created (its request written) and seen bound."""

    created_at: dict[str, float] = field(default_factory=dict)
    bound_at: dict[str, float] = field(default_factory=dict)
    created_seconds: float = 0.0
    generator_cpu_seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if every pod was bound."""
        return len(self.bound_at) == len(self.created_at)

    @property
    def seconds(self) -> float:
        """First creation to last binding; 0 if nothing was bound."""
        if not self.bound_at:
            return 0.0
        return max(self.bound_at.values()) - min(self.created_at.values())

    @property
    def pods_per_second(self) -> float:
        """Pods bound per second of `seconds`."""
        return len(self.bound_at) / self.seconds if self.bound_at else 0.0

    def latencies(self) -> list[float]:
        """Seconds from creation to binding, ascending."""
        return sorted(at - self.created_at[key] for key, at in self.bound_at.items())


async def run_load(
    wire: Wire,
    watch: BindingWatch,
    pods: Sequence[Manifest],
    *,
    rate: float = 0.0,
    patience: float = 60.0,
    tick: Callable[[int], None] | None = None,
) -> LoadResult:
    """Create *pods* and wait until they are bound.

    Args:
        wire: Its `in_flight` creations run at once.
        watch: Open since before the call.
        pods: Manifests with namespace and name.
        rate: Pods created per second; 0 for as fast as the server takes them.
        patience: Seconds without any binding after which to give up.
        tick: Called with the number of bound pods from time to time.
    """
    keys = [key_of(p) for p in pods]
    requests = [wire.encode("POST", collection_path(p), p) for p in pods]
    result = LoadResult()
    cpu = _own_cpu_seconds()
    started = time.monotonic()

    def note(place: int) -> None:
        result.created_at[keys[place]] = time.monotonic()

    def pause(place: int) -> float:
        return started + place / rate - time.monotonic()

    await wire.send_all(requests, on_sent=note, pause=pause if rate > 0 else None)
    result.created_seconds = time.monotonic() - started
    await watch.wait_for(keys, patience, tick=tick)
    result.generator_cpu_seconds = _own_cpu_seconds() - cpu
    result.bound_at = {key: watch.bound_at[key] for key in keys if key in watch.bound_at}
    return result


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value below which *share* (0..1) of the values lie; 0 if there are none."""
    if not ascending:
        return 0.0
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def _own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
