"""The operations of scheduler_perf, carried out on a cluster.

Owns what each does to the API server; when pods count as scheduled is `pods`', what is measured is
`collecting`'s. Everything follows Kubernetes' own executor: the names of what is created, what is
waited for, and what goes on beside the next operations.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from devkit.benchmarks.measure import until_idle
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.subjects import Subject
from devkit.benchmarks.upstream.claims import allocations
from devkit.benchmarks.upstream.collecting import Collected, Collector
from devkit.benchmarks.upstream.definitions import Operation, Workload
from devkit.benchmarks.upstream.pods import BoundPods
from devkit.benchmarks.upstream.templates import Templates
from devkit.benchmarks.wire import Wire, WireError
from engine.lib.durations import seconds_of

T = TypeVar("T")

_POLL: Final = 0.2
_CHURN_SECONDS: Final = 0.5
_STEADY_WORKERS: Final = 8
_AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_VOLUMES: Final = "persistentVolumeClaimTemplatePath"
_POD_GROUPS: Final = "scheduling.k8s.io/v1beta1"
#: Of pods without a template.
_POD: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.2",
                "ports": [{"containerPort": 80}],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                },
            }
        ]
    },
}
_CAPACITY: Final = {"pods": "110", "cpu": "4", "memory": "32Gi"}
#: Of nodes without a template.
_NODE: Final[Manifest] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {},
    "status": {
        "capacity": _CAPACITY,
        "allocatable": _CAPACITY,
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class GivenUpError(Exception):
    """Pods were not scheduled in time; the message says how many were."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for pods: *idle* seconds without any binding, and *most* in all."""

    idle: float = 120.0
    most: float = 600.0


@dataclass(slots=True)
class Cluster:
    """A cluster that operations change.

    Attributes:
        wire: For many requests at once; the operation that is under way has it alone.
        side: For what goes on beside it.
        created_at: When each pod was created, by `namespace/name`; `time.monotonic()`.
    """

    workload: Workload
    wire: Wire
    side: Wire
    templates: Templates
    bound: BoundPods
    subject: Subject
    patience: Patience
    progress: Callable[[str, int, int], None]
    created_at: dict[str, float] = field(default_factory=dict)
    collected: list[Collected] = field(default_factory=list)
    _collector: Collector | None = None
    _namespaces: set[str] = field(default_factory=set)
    _expected: Counter[str] = field(default_factory=Counter)  # pods of barriers, by namespace
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _beside: list[asyncio.Task[None]] = field(default_factory=list)
    _waited: float = 0.0  # seconds for pods, so far

    async def run(self) -> list[Collected]:
        """Carry out all operations of the workload; what was measured.

        Raises `GivenUpError`, `WireError`, `SubjectError` and `TemplateError`.
        """
        last = len(self.workload.operations) - 1
        try:
            for place, operation in enumerate(self.workload.operations):
                self.progress(operation["opcode"], place, last + 1)
                await _OPERATIONS[operation["opcode"]](self, operation, place)
                self._check()
                if self._collector is not None and operation.get("collectMetrics"):
                    await self._stop_collecting(place == last)
        finally:
            for task in self._beside:
                task.cancel()
            await asyncio.gather(*self._beside, return_exceptions=True)
        return self.collected

    # --- nodes and other objects -------------------------------------------------------------

    async def create_nodes(self, operation: Operation, place: int) -> None:
        count, labels = operation["count"], operation.get("labelNodePrepareStrategy")
        limits = operation.get("nodeAllocatableStrategy") or {}
        nodes = self._made(operation.get("nodeTemplatePath"), operation, count, _NODE)
        beside = []
        for number, node in enumerate(nodes):
            name = _named(node, f"node-{place}-", next(self._numbers))
            own = {"kubernetes.io/hostname": name}
            if labels is not None:
                values = labels["labelValues"]
                own[labels["labelKey"]] = values[number % len(values)]
            node["metadata"]["labels"] = {**(node["metadata"].get("labels") or {}), **own}
            if limits:
                status = node["status"]
                # The API server takes the one for the other.
                offered = status.get("allocatable", status["capacity"])
                offered = {**offered, **limits.get("nodeAllocatable", {})}
                node["status"] = {**status, "allocatable": offered}
                beside.append(_csi_node(name, limits))
        await self._create(nodes)
        await self._create(beside)

    async def create_namespaces(self, operation: Operation, place: int) -> None:
        names = [f"{operation['prefix']}-{n}" for n in range(operation["count"])]
        path = operation.get("namespaceTemplatePath")
        plain = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
        made = self._made(path, operation, len(names), plain)
        for name, namespace in zip(names, made, strict=True):
            namespace["metadata"]["name"] = name
        await self._create(made)
        self._namespaces.update(names)

    async def create_any(self, operation: Operation, place: int) -> None:
        namespace = operation.get("namespace", "")
        await self._need(namespace)
        made = self._made(operation["templatePath"], operation, operation.get("count", 1))
        for one in made:
            _named(one, "", next(self._numbers))
        await self._create(made, namespace)

    async def update_any(self, operation: Operation, place: int) -> None:
        namespace, rate = operation.get("namespace", ""), operation.get("updatePerSecond", 0)
        made = self._made(operation["templatePath"], operation, operation.get("count", 1))
        below = "".join(f"/{name}" for name in operation.get("subresources", ()))
        async for one in _paced(made, rate):
            path = f"{path_of(one, namespace)}/{one['metadata']['name']}"
            for part in (below, "/status"):
                await self._send(self.side, "PUT", path + part, one)

    async def allocate_claims(self, operation: Operation, place: int) -> None:
        await self._write_status(await allocations(self.side, operation.get("namespace", "")))

    async def churn(self, operation: Operation, place: int) -> None:
        namespace = operation.get("namespace") or f"namespace-{place}"
        await self._need(namespace)
        seconds = operation.get("intervalMilliseconds", 1000 * _CHURN_SECONDS) / 1000
        kinds = [self._made(path, {}, 1)[0] for path in operation["templatePaths"]]
        most = operation.get("number", 0)
        self._beside.append(
            asyncio.create_task(
                self._churn(kinds, namespace, seconds, most, operation["mode"] == "recreate")
            )
        )

    async def _churn(
        self, kinds: Sequence[Manifest], namespace: str, seconds: float, most: int, recreates: bool
    ) -> None:
        live: dict[tuple[int, int], str] = {}
        for turn in itertools.count():
            await asyncio.sleep(seconds)
            if not recreates and most and turn >= most:
                return
            for place, kind in enumerate(kinds):
                one = {**kind, "metadata": dict(kind["metadata"])}
                where = place, turn % most if recreates else turn
                scope = "" if kind["kind"] in _CLUSTER_SCOPED else namespace
                path = path_of(one, scope)
                if recreates and (name := live.pop(where, "")):
                    await self.side.send(self.side.encode("DELETE", f"{path}/{name}", {}))
                    continue
                name = _named(one, "", next(self._numbers))
                answer = await self.side.send(self.side.encode("POST", path, one))
                if answer.status < 300:
                    live[where] = name

    # --- pods --------------------------------------------------------------------------------

    async def create_pods(self, operation: Operation, place: int) -> None:
        namespace = operation.get("namespace") or f"namespace-{place}"
        await self._need(namespace)
        count = operation["count"]
        if _VOLUMES in operation:
            await self._create_volumes(operation, namespace)
        if operation.get("collectMetrics"):
            await self._collect("", [namespace], None)
        if operation.get("steadyState"):
            await self._steadily(operation, namespace)
            return
        await self._create_pods(self._pods(operation, namespace, count), namespace)
        if operation.get("skipWaitToCompletion"):
            self._expected[namespace] += count
        else:
            await self._until_scheduled([namespace], None, count)

    async def create_pod_sets(self, operation: Operation, place: int) -> None:
        for number in range(operation["count"]):
            namespace = f"{operation['namespacePrefix']}-{number}"
            await self.create_pods({**operation["createPodsOp"], "namespace": namespace}, place)

    async def create_pod_groups(self, operation: Operation, place: int) -> None:
        namespace = operation["namespace"]
        await self._need(namespace)
        made = self._made(operation["templatePath"], operation, operation["count"])
        for one in made:
            one["apiVersion"] = _POD_GROUPS  # whatever version they were written in
        await self._create(made, namespace)

    async def delete_pods(self, operation: Operation, place: int) -> None:
        namespace, rate = operation["namespace"], operation.get("deletePodsPerSecond", 0)
        path = f"/api/v1/namespaces/{namespace}/pods"
        found = await self._list_pods(namespace, operation.get("labelSelector"))
        names = [pod["metadata"]["name"] for pod in found]

        async def delete() -> None:
            async for name in _paced(names, rate):
                await self.side.send(self.side.encode("DELETE", f"{path}/{name}", {}))

        if operation.get("skipWaitToCompletion"):
            self._beside.append(asyncio.create_task(delete()))
        else:
            await delete()

    async def barrier(self, operation: Operation, place: int) -> None:
        namespaces = operation.get("namespaces") or list(self._expected)
        is_attempted = operation.get("stageRequirement") == "Attempted"
        labels = operation.get("labelSelector")
        for namespace in namespaces:
            want = self._expected[namespace]
            if is_attempted:
                await self._until_attempted(namespace, labels, want)
            else:
                await self._until_scheduled([namespace], labels, want)
        if not is_attempted:
            for namespace in namespaces:
                del self._expected[namespace]

    def _pods(self, operation: Operation, namespace: str, count: int) -> list[Manifest]:
        path = operation.get("podTemplatePath") or self.workload.pod_template
        pods = self._made(path, operation, count, _POD)
        batch = operation.get("signatureBatchSize") or 1
        for number, pod in enumerate(pods):
            _named(pod, "", next(self._numbers))
            pod["metadata"]["namespace"] = namespace
            if path is not None:
                own = {"signature": f"signature-label-{number // batch}"}
                pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **own}
            if _VOLUMES in operation:
                used = {"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{number}"}}
                pod["spec"] = {**pod["spec"], "volumes": [used]}
        return pods

    async def _create_pods(self, pods: Sequence[Manifest], namespace: str) -> None:
        keys = [f"{namespace}/{pod['metadata']['name']}" for pod in pods]

        def note(place: int) -> None:
            self.created_at[keys[place]] = time.monotonic()

        path = f"/api/v1/namespaces/{namespace}/pods"
        requests = [self.wire.encode("POST", path, pod) for pod in pods]
        await self.wire.send_all(requests, on_sent=note)

    async def _create_volumes(self, operation: Operation, namespace: str) -> None:
        """A claim for each pod, bound to a volume of its own."""
        count = operation["count"]
        volumes = self._made(operation["persistentVolumeTemplatePath"], {}, count)
        claims = self._made(operation[_VOLUMES], {}, count)
        for number, (volume, claim) in enumerate(zip(volumes, claims, strict=True)):
            _bind(volume, claim, namespace, number)
        for made, where in ((claims, namespace), (volumes, "")):
            await self._create(made, where)
            await self._write_status(made, where)

    async def _steadily(self, operation: Operation, namespace: str) -> None:
        bound: asyncio.Queue[str] = asyncio.Queue()

        def note(where: str, name: str, _: Mapping[str, str]) -> None:
            if where == namespace:
                bound.put_nowait(name)

        self.bound.on_bound.append(note)
        path = f"/api/v1/namespaces/{namespace}/pods"

        async def replace() -> None:
            while True:
                name = await bound.get()
                await self.side.send(self.side.encode("DELETE", f"{path}/{name}", _AT_ONCE))
                (pod,) = self._pods(operation, namespace, 1)
                self.created_at[f"{namespace}/{pod['metadata']['name']}"] = time.monotonic()
                await self._send(self.side, "POST", path, pod)

        tasks = [asyncio.create_task(replace()) for _ in range(_STEADY_WORKERS)]
        try:
            await self._create_pods(self._pods(operation, namespace, operation["count"]), namespace)
            seconds = seconds_of(operation["duration"])
            done, _ = await asyncio.wait(
                tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            self.bound.on_bound.remove(note)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._collector is not None and not self._collector.count:
            raise GivenUpError(f"no pod was scheduled in {operation['duration']}")

    async def _until_scheduled(
        self, namespaces: Sequence[str], labels: Mapping[str, str] | None, want: int
    ) -> None:
        await self._until(lambda: self.bound.count(namespaces, labels), want, "scheduled")

    async def _until_attempted(
        self, namespace: str, labels: Mapping[str, str] | None, want: int
    ) -> None:
        async def attempted() -> int:
            return sum(map(_is_attempted, await self._list_pods(namespace, labels)))

        await self._until(attempted, want, "attempted", every=1.0)

    async def _until(
        self,
        count: Callable[[], int] | Callable[[], Awaitable[int]],
        want: int,
        what: str,
        every: float = _POLL,
    ) -> None:
        started = moved_at = time.monotonic()
        most = -1
        while True:
            answer = count()
            have = answer if isinstance(answer, int) else await answer
            self.progress(f"pods {what}", have, want)
            if have >= want:
                self._waited += time.monotonic() - started
                return
            now = time.monotonic()
            if have > most:
                most, moved_at = have, now
            if now - moved_at > self.patience.idle or now - started > self.patience.most:
                raise GivenUpError(f"{have} of {want} pods {what} after {now - started:.0f} s")
            self._check()
            await asyncio.sleep(every)

    # --- what is measured --------------------------------------------------------------------

    async def start_collecting(self, operation: Operation, place: int) -> None:
        name, namespaces = operation.get("name", ""), operation["namespaces"]
        await self._collect(name, namespaces, operation.get("labelSelector"))

    async def stop_collecting(self, operation: Operation, place: int) -> None:
        await self._stop_collecting(place == len(self.workload.operations) - 1)

    async def _collect(
        self, name: str, namespaces: Sequence[str], labels: Mapping[str, str] | None
    ) -> None:
        if not self._beside:
            # What it still writes about earlier pods is not of these.
            await until_idle(self.subject)
        self._collector = Collector(
            name, frozenset(namespaces), labels, self.bound, self._cpu(), self._waited
        )

    async def _stop_collecting(self, is_last: bool) -> None:
        collector, self._collector = self._collector, None
        assert collector is not None
        waited, servers = self._waited, collector.servers(self._cpu())
        if is_last and not self._beside:
            await until_idle(self.subject)  # what it writes later is part of its work
        is_idle = is_last and not self._beside
        self.collected.append(
            collector.stop(self.created_at, self._cpu(), waited, servers=servers, is_idle=is_idle)
        )

    def _cpu(self) -> float:
        return self.subject.usage().cpu_seconds

    # --- requests ----------------------------------------------------------------------------

    def _made(
        self,
        path: str | Path | None,
        operation: Operation,
        count: int,
        plain: Manifest | None = None,
    ) -> list[Manifest]:
        """Manifests of the template at *path*, or like *plain* without one."""
        if path is None:
            assert plain is not None
            return [{**plain, "metadata": dict(plain["metadata"])} for _ in range(count)]
        return self.templates.objects(
            self.workload.folder / path, count, operation.get("templateParams")
        )

    async def _list_pods(
        self, namespace: str, labels: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}%3D{value}" for key, value in (labels or {}).items())
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"
        return await self.side.list_all(path, limit=5000)

    async def _need(self, namespace: str) -> None:
        """Create the namespace, if it is not there and is one."""
        if namespace and namespace not in self._namespaces and namespace != "default":
            one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await self._create([one])
            self._namespaces.add(namespace)

    async def _create(self, manifests: Sequence[Manifest], namespace: str = "") -> None:
        await self.wire.send_all(
            self.wire.encode("POST", path_of(one, namespace), one) for one in manifests
        )

    async def _write_status(self, manifests: Iterable[Manifest], namespace: str = "") -> None:
        """In *namespace*, or in that which each says."""

        def path(one: Manifest) -> str:
            metadata = one["metadata"]
            where = path_of(one, namespace or metadata.get("namespace", ""))
            return f"{where}/{metadata['name']}/status"

        await self.wire.send_all(self.wire.encode("PUT", path(one), one) for one in manifests)

    async def _send(self, wire: Wire, method: str, path: str, body: Any) -> Any:
        answer = await wire.send(wire.encode(method, path, body))
        if answer.status >= 300:
            raise WireError(f"{method} {path}: {answer.status} {answer.body.decode()}")
        return msgspec.json.decode(answer.body)

    def _check(self) -> None:
        self.subject.check_alive()
        self.bound.check()
        for task in self._beside:
            if task.done():
                task.result()


_CLUSTER_SCOPED: Final = frozenset({"Node", "Namespace", "PersistentVolume", "ResourceSlice"})


def path_of(manifest: Manifest, namespace: str) -> str:
    """The collection of *manifest*'s kind, in *namespace* if there is one."""
    version, kind = manifest["apiVersion"], manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _named(manifest: Manifest, prefix: str, number: int) -> str:
    """The name of *manifest*, which gets one if it has none."""
    metadata = manifest["metadata"]
    if "name" not in metadata:
        metadata["name"] = f"{metadata.pop('generateName', prefix)}{number:06d}"
    return str(metadata["name"])


def _csi_node(name: str, limits: Mapping[str, Any]) -> Manifest:
    drivers = limits.get("csiNodeAllocatable") or {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "annotations": {
                "storage.alpha.kubernetes.io/migrated-plugins": ",".join(
                    limits.get("migratedPlugins") or ()
                )
            },
        },
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": name, "allocatable": dict(allocatable)}
                for driver, allocatable in drivers.items()
            ]
        },
    }


def _bind(volume: Manifest, claim: Manifest, namespace: str, number: int) -> None:
    """Give both names, and bind them to each other."""
    name, claim_name = f"{namespace}-vol-{number}", f"pvc-{number}"
    volume["metadata"]["name"], claim["metadata"]["name"] = name, claim_name
    spec = dict(volume["spec"])
    if "csi" in spec:
        spec["csi"] = {**spec["csi"], "volumeHandle": name}
    elif "awsElasticBlockStore" in spec:
        spec["awsElasticBlockStore"] = {**spec["awsElasticBlockStore"], "volumeID": f"vol-{number}"}
    spec["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": claim_name,
    }
    volume["spec"], volume["status"] = spec, {"phase": "Bound"}
    claim["spec"] = {**claim["spec"], "volumeName": name}
    claim["status"] = {"phase": "Bound"}


def _is_attempted(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return bool(pod["spec"].get("nodeName")) or any(c["type"] == "PodScheduled" for c in conditions)


async def _paced(items: Iterable[T], rate: float) -> AsyncIterator[T]:
    """*items*, so many a second; as fast as they are taken if *rate* is 0."""
    started = time.monotonic()
    for number, item in enumerate(items):
        if rate:
            await asyncio.sleep(max(0.0, started + (number + 1) / rate - time.monotonic()))
        yield item


async def _sleep(cluster: Cluster, operation: Operation, place: int) -> None:
    await asyncio.sleep(seconds_of(operation["duration"]))


_OPERATIONS: Final[Mapping[str, Callable[[Cluster, Operation, int], Awaitable[None]]]] = {
    "createNodes": Cluster.create_nodes,
    "createNamespaces": Cluster.create_namespaces,
    "createPods": Cluster.create_pods,
    "createPodSets": Cluster.create_pod_sets,
    "createPodGroups": Cluster.create_pod_groups,
    "createAny": Cluster.create_any,
    "updateAny": Cluster.update_any,
    "allocResourceClaims": Cluster.allocate_claims,
    "deletePods": Cluster.delete_pods,
    "churn": Cluster.churn,
    "barrier": Cluster.barrier,
    "sleep": _sleep,
    "startCollectingMetrics": Cluster.start_collecting,
    "stopCollectingMetrics": Cluster.stop_collecting,
}
