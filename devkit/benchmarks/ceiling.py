"""The ceiling: binds pods round robin without deciding anything, as fast as it can.

The costs without any deciding: a watch of pending pods and of volumes, a binding and an event per
pod, and what is written of its claims, those for extended resources included. Where the CPU of the
next node is used up, pods of lower priority are evicted from it, one by one whatever their groups
want, with the requests of a preemption. Not what is written for volumes.
No scheduler can be faster on the same machine with the same API server, give or take how cheap its
client is. Runs as a process of its own: `python -m devkit.benchmarks.ceiling URL CA_FILE TOKEN`.
"""

import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
import uvloop

from devkit.benchmarks.load import follow, version_now
from devkit.benchmarks.objects import Manifest
from devkit.benchmarks.wire import Wire, WireError
from engine.core.model.devices import (
    CLAIM_FINALIZER,
    EXTENDED_CLAIM_ANNOTATION,
    IMPLICIT_RESOURCE_PREFIX,
    DeviceClass,
    ResourceClaim,
)
from engine.core.model.objects import ObjectMeta
from engine.core.model.quantity import milli_value
from engine.io.kube.config import Endpoint

READY: Final = "ready"
_IN_FLIGHT: Final = 48
_POLL_SECONDS: Final = 0.5
_PENDING: Final = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D&allowWatchBookmarks=true"
_DEVICES: Final = "/apis/resource.k8s.io/v1"
_CLAIMS: Final = f"{_DEVICES}/resourceclaims"
_GROUPS: Final = "/apis/scheduling.k8s.io/v1beta1"
_VOLUMES: Final = ("/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims")
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


class _Named(msgspec.Struct, rename="camel", frozen=True):
    name: str
    resource_claim_name: str | None = None


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}


class _Container(msgspec.Struct, frozen=True):
    name: str
    resources: _Resources = _Resources()


class _Group(msgspec.Struct, rename="camel", frozen=True):
    pod_group_name: str = ""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    priority: int = 0
    containers: list[_Container] = []
    scheduling_gates: list[_Named] = []
    resource_claims: list[_Named] = []
    scheduling_group: _Group = _Group()


class _Status(msgspec.Struct, rename="camel", frozen=True):
    resource_claim_statuses: list[_Named] = []


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def claims(self) -> Iterator[str | None]:
        """The names of its claims; None for one that is not made yet."""
        made = {one.name: one.resource_claim_name for one in self.status.resource_claim_statuses}
        for one in self.spec.resource_claims:
            yield one.resource_claim_name or made.get(one.name)

    def milli_cpu(self) -> int:
        """What its containers request."""
        requests = (one.resources.requests for one in self.spec.containers)
        return sum(milli_value(one.get("cpu", "0")) for one in requests)


@dataclass(slots=True)
class _Node:
    """A node and the pods that were bound to it.

    Attributes:
        name: Its name.
        free: What is left of its CPU, in thousandths; negative if pods took more.
        pods: Those that were bound to it and not evicted, by their priority.
    """

    name: str
    free: int
    pods: dict[int, list[_Pod]] = field(default_factory=dict)

    def take(self, pod: _Pod) -> list[_Pod]:
        """Put *pod* here. Returns the pods of lower priority that make room for it, if they can."""
        self.free -= pod.milli_cpu()
        victims = self._evict(pod.spec.priority) if self.free < 0 else []
        self.pods.setdefault(pod.spec.priority, []).append(pod)
        return victims

    def _evict(self, priority: int) -> list[_Pod]:
        """Take pods below *priority* from here until the rest fit; none if that is not enough."""
        lower = [pods for one, pods in sorted(self.pods.items()) if one < priority]
        if self.free + sum(pod.milli_cpu() for pods in lower for pod in pods) < 0:
            return []
        victims: list[_Pod] = []
        for pods in lower:
            while pods and self.free < 0:
                victims.append(pods.pop())
                self.free += victims[-1].milli_cpu()
        return victims


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_claim = msgspec.json.Decoder(ResourceClaim).decode


class _Work(NamedTuple):
    """A pod to bind (rank 0) or to write an event about (rank 1), in this order.

    Attributes:
        number: Of the pods to bind or of the events.
        claims: Those of a pod to bind.
        reason, note: Those of an event.
    """

    rank: int
    number: int
    pod: _Pod
    claims: Sequence[ResourceClaim] = ()
    reason: str = ""
    note: str = ""


class _Ceiling:
    """The pods that are to be bound, and their claims as they were last seen."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._nodes: list[_Node] = []
        self._classes: dict[str, str] = {}  # of devices, by extended resource
        self._listing = asyncio.Lock()
        self._taken: set[str] = set()
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        #: By claim; one that has been held has allocated it, and the others only reserve.
        self._allocating: dict[str, asyncio.Lock] = {}
        #: Those that use a claim for all of their pods, by namespace and name; None: no claim.
        self._groups: dict[tuple[str, str], Manifest | None] = {}
        self._using: set[tuple[str, str]] = set()  # claims and such groups
        self._waiting: dict[tuple[str, str], list[_Pod]] = {}
        self._devices = itertools.count()
        self._events = itertools.count()
        self._work: asyncio.PriorityQueue[_Work] = asyncio.PriorityQueue()

    def see_pod(self, pod: _Pod) -> None:
        """Bind *pod*, once it has no gates and its claims are there."""
        meta = pod.metadata
        if meta.uid in self._taken or pod.spec.scheduling_gates:
            return
        claims = []
        for name in pod.claims():
            if name is None:
                return  # its status will change
            key = (meta.namespace, name)
            claim = self._claims.get(key)
            if claim is None:
                self._waiting.setdefault(key, []).append(pod)
                return
            claims.append(claim)
        self._taken.add(meta.uid)
        self._work.put_nowait(_Work(0, len(self._taken), pod, claims))

    def see_claim(self, claim: ResourceClaim) -> None:
        """Take *claim* for the pods that wait for it."""
        key = (claim.metadata.namespace, claim.metadata.name)
        self._claims[key] = claim
        for pod in self._waiting.pop(key, ()):
            self.see_pod(pod)

    async def send(self) -> None:
        """Do what is to be done, forever."""
        while True:
            item = await self._work.get()
            if item.rank == 0:
                await self._bind(item)
            else:
                await self._send("POST", *_event(item))

    async def _bind(self, item: _Work) -> None:
        pod = item.pod
        node = await self._node(item.number)
        if victims := node.take(pod):
            await self._preempt(pod, node.name, victims)
        for claim in item.claims:
            await self._reserve(pod, claim, node.name)
        await self._serve_extended_resources(pod, node.name)
        await self._send("POST", *_binding(pod, node.name))
        meta = pod.metadata
        self._tell(
            pod, "Scheduled", f"Successfully assigned {meta.namespace}/{meta.name} to {node.name}"
        )

    async def _preempt(self, pod: _Pod, node: str, victims: Sequence[_Pod]) -> None:
        """The requests with which a scheduler nominates *node* for *pod* and evicts *victims*."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        await self._write_pod_status(pod, condition, {"nominatedNodeName": node})
        self._tell(pod, "FailedScheduling", f"Insufficient cpu on {node}")
        for victim in victims:
            condition = {
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"
            }  # fmt: skip
            await self._write_pod_status(victim, condition, {})
            await self._send("DELETE", _path_of_pod(victim), {})
            self._tell(victim, "Preempted", f"Preempted by {pod.metadata.name} on node {node}")

    async def _write_pod_status(self, pod: _Pod, condition: Manifest, status: Manifest) -> None:
        written = {"conditions": [condition | {"lastTransitionTime": _now()}]} | status
        await self._send(
            "PATCH", f"{_path_of_pod(pod)}/status", {"status": written}, _STRATEGIC_PATCH
        )

    def _tell(self, pod: _Pod, reason: str, note: str) -> None:
        self._work.put_nowait(_Work(1, next(self._events), pod, reason=reason, note=note))

    async def _node(self, number: int) -> _Node:
        """The one that is next in its turn, of those that there are when the first pod comes."""
        async with self._listing:
            while not self._nodes:
                self._classes = await _classes_by_resource(self._wire)
                found = await self._wire.list_all("/api/v1/nodes")
                self._nodes = [
                    _Node(
                        node["metadata"]["name"], milli_value(node["status"]["allocatable"]["cpu"])
                    )
                    for node in found
                ]
                if not found:
                    await asyncio.sleep(_POLL_SECONDS)
        return self._nodes[number % len(self._nodes)]

    async def _reserve(self, pod: _Pod, claim: ResourceClaim, node: str) -> None:
        """The requests with which a scheduler gives a claim devices."""
        group = await self._group_of(pod)
        user = group or {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        uid = claim.metadata.uid
        is_known = (uid, user["uid"]) in self._using
        if group is not None:
            self._using.add((uid, user["uid"]))
        if claim.allocation is None and uid not in self._allocating:
            self._allocating[uid] = asyncio.Lock()
            async with self._allocating[uid]:
                await self._allocate(claim, user, node)
            return
        if uid in self._allocating:
            async with self._allocating[uid]:
                pass  # allocated by now
        if not is_known:
            await self._write_status(claim, {"reservedFor": [user]})

    async def _group_of(self, pod: _Pod) -> Manifest | None:
        """The PodGroup of *pod* as the user of its claims, if it uses claims for all its pods."""
        namespace, name = pod.metadata.namespace, pod.spec.scheduling_group.pod_group_name
        if not name or not pod.spec.resource_claims:
            return None
        async with self._listing:
            if (namespace, name) not in self._groups:
                for one in await self._wire.list_all(f"{_GROUPS}/namespaces/{namespace}/podgroups"):
                    meta, uses = one["metadata"], one["spec"].get("resourceClaims")
                    of = {"resource": "podgroups", "name": meta["name"], "uid": meta["uid"]}
                    found = {"apiGroup": "scheduling.k8s.io", **of} if uses else None
                    self._groups[namespace, meta["name"]] = found
            return self._groups.get((namespace, name))

    async def _allocate(self, claim: ResourceClaim, user: Manifest, node: str) -> None:
        if CLAIM_FINALIZER not in claim.metadata.finalizers:
            finalizers = {"metadata": {"finalizers": [CLAIM_FINALIZER]}}
            await self._send("PATCH", _path_of(claim), finalizers, _MERGE_PATCH)
        allocation = {"devices": {"results": self._results(claim, node)}}
        await self._write_status(claim, {"allocation": allocation, "reservedFor": [user]})

    async def _write_status(self, claim: ResourceClaim, status: Manifest) -> None:
        path = f"{_path_of(claim)}/status"
        await self._send("PATCH", path, {"status": status}, _STRATEGIC_PATCH)

    async def _serve_extended_resources(self, pod: _Pod, node: str) -> None:
        """The requests for the claim of what device classes offer as extended resources."""
        requests, mappings = [], []
        for place, container in enumerate(pod.spec.containers):
            for number, (resource, count) in enumerate(container.resources.requests.items()):
                if resource not in self._classes:
                    continue
                name = f"container-{place}-request-{number}"
                exactly = {"deviceClassName": self._classes[resource], "count": int(count)}
                requests.append({"name": name, "exactly": exactly})
                mappings.append(
                    {"containerName": container.name, "resourceName": resource, "requestName": name}
                )
        if not requests:
            return
        meta = pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{meta.name}-extended-resources-",
                "annotations": {EXTENDED_CLAIM_ANNOTATION: "true"},
                "finalizers": [CLAIM_FINALIZER],
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"devices": {"requests": requests}},
        }
        path = f"{_DEVICES}/namespaces/{meta.namespace}/resourceclaims"
        claim = _decode_claim(await self._send("POST", path, body))
        await self._reserve(pod, claim, node)
        served = {"resourceClaimName": claim.metadata.name, "requestMappings": mappings}
        status = {"status": {"extendedResourceClaimStatus": served}}
        await self._send("PATCH", f"{_path_of_pod(pod)}/status", status, _STRATEGIC_PATCH)

    def _results(self, claim: ResourceClaim, node: str) -> list[Manifest]:
        found = []
        for request in claim.spec.devices.requests:
            name = request.name
            if request.first_available:
                name += f"/{request.first_available[0].name}"
            device = f"device-{next(self._devices)}"
            found.append(
                {"request": name, "driver": "ceiling.example.com", "pool": node, "device": device}
            )
        return found

    async def _send(
        self, method: str, path: str, body: Manifest, content_type: str = "application/json"
    ) -> bytes:
        request = self._wire.encode(method, path, body, content_type=content_type)
        answer = await self._wire.send(request)
        if answer.status >= 300 and answer.status not in (404, 409):
            raise WireError(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer.body


async def bind_everything(endpoint: Endpoint) -> None:
    """Bind every pod that comes, forever."""
    async with Wire(endpoint, in_flight=_IN_FLIGHT) as wire:
        version = await version_now(wire)
        print(READY, flush=True)
        ceiling = _Ceiling(wire)
        async with asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(ceiling.send())
            for path in _VOLUMES:
                group.create_task(_only_watch(wire, path, version))
            if await _has_claims(wire):
                group.create_task(_watch_claims(wire, version, ceiling))
            async for line in follow(wire, _PENDING, version):
                event = _decode_event(line)
                if event.type in ("ADDED", "MODIFIED"):
                    ceiling.see_pod(_decode_pod(event.object))


async def _has_claims(wire: Wire) -> bool:
    try:
        await wire.get(f"{_CLAIMS}?limit=1")
    except WireError:
        return False
    return True


def _path_of(claim: ResourceClaim) -> str:
    meta = claim.metadata
    return f"{_DEVICES}/namespaces/{meta.namespace}/resourceclaims/{meta.name}"


async def _classes_by_resource(wire: Wire) -> dict[str, str]:
    """The device classes, by the extended resource that they stand for; none if not served."""
    if not await _has_claims(wire):
        return {}
    found = {}
    for manifest in await wire.list_all(f"{_DEVICES}/deviceclasses"):
        name = manifest["metadata"]["name"]
        found[IMPLICIT_RESOURCE_PREFIX + name] = name
        if explicit := msgspec.convert(manifest, DeviceClass).spec.extended_resource_name:
            found[explicit] = name
    return found


async def _only_watch(wire: Wire, path: str, version: str) -> None:
    async for _ in follow(wire, f"{path}?watch=1&allowWatchBookmarks=true", version):
        pass


async def _watch_claims(wire: Wire, version: str, ceiling: _Ceiling) -> None:
    async for line in follow(wire, f"{_CLAIMS}?watch=1&allowWatchBookmarks=true", version):
        event = _decode_event(line)
        if event.type in ("ADDED", "MODIFIED"):
            ceiling.see_claim(_decode_claim(event.object))


def _path_of_pod(pod: _Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def _binding(pod: _Pod, node: str) -> tuple[str, Manifest]:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return f"{_path_of_pod(pod)}/binding", body


def _event(item: _Work) -> tuple[str, Manifest]:
    meta = item.pod.metadata
    about = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "namespace": meta.namespace}
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name}.{item.number}", "namespace": meta.namespace},
        "eventTime": _now(),
        "type": "Normal",
        "reason": item.reason,
        "action": "Binding",
        "note": item.note,
        "regarding": about,
        "reportingController": "ceiling",
        "reportingInstance": "ceiling",
    }
    return f"/apis/events.k8s.io/v1/namespaces/{meta.namespace}/events", body


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    server, ca_file, token = sys.argv[1:]
    uvloop.run(bind_everything(Endpoint(server=server, ca_file=ca_file, token=token)))
