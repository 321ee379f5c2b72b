"""Pods of every kind that come and go, and what kubelets and controllers do about them.

Owns the cluster, its pods and their ends. Talks to the API server itself, past all proxies, and
tries again whatever fails: it is what the faults are for that is tested.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from devkit.benchmarks import objects
from devkit.benchmarks.objects import NAMESPACE, Manifest
from devkit.faults.invariants import Group
from engine.io.kube.client import ApiClient
from engine.io.kube.errors import AlreadyExists, ApiError, NotFound
from engine.io.kube.resources import NODES, PODS, RESOURCE_CLAIMS
from tests.waiting import eventually

NODE_COUNT: Final = 10
DEVICES_PER_NODE: Final = 2
VOLUMES: Final = 3
DRIVER: Final = "devices.example.com"
GROUP_LABEL, SIZE_LABEL = "job", "job-size"
FILLER: Final = "filler"
#: With so many pods that are not deleted yet, none is created.
MOST_PODS: Final = 130
_GIANTS: Final = 2
_POLL_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.3
_PATIENCE_SECONDS: Final = 120.0
#: What the server says of a request that is wrong.
_FINAL: Final = (400, 405, 415, 422)
_AT_ONCE: Final = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
_PRIORITIES: Final = {"low": 0, "middle": 100, "high": 1000}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Share of all owners, sizes of an owner, and what each pod requests and how long it lives."""

    share: int
    sizes: tuple[int, ...]
    cpu_millis: tuple[int, ...]
    seconds: float
    priority: str = "middle"


_KINDS: Final = {
    FILLER: _Kind(20, (1, 2), (1000,), 25.0, "low"),
    "web": _Kind(25, (1, 2, 3), (200, 400), 8.0),
    "batch": _Kind(15, (1,), (500,), 8.0),
    "urgent": _Kind(6, (1,), (2500, 3500), 6.0, "high"),
    "train": _Kind(6, (3,), (400, 800), 8.0),
    "device": _Kind(8, (1,), (200,), 8.0),
    "volume": _Kind(5, (1, 2), (100,), 3.0),
}


def pods_of_owners(seed: int) -> Iterator[list[Manifest]]:
    """The pods of one owner after the other, without end."""
    rng = random.Random(seed)
    shares = [kind.share for kind in _KINDS.values()]
    for owner in itertools.count(1):
        (name,) = rng.choices(list(_KINDS), shares)
        kind = _KINDS[name]
        size = rng.choice(kind.sizes)
        cpu = rng.choice(kind.cpu_millis)
        yield [_pod(f"{name}-{owner:05d}-{n}", name, owner, size, cpu, rng) for n in range(size)]


def _pod(pod_name: str, name: str, owner: int, size: int, cpu: int, rng: random.Random) -> Manifest:
    labels = {"kind": name, "app": f"{name}-{owner % 7}"}
    if name == "train":
        labels |= {GROUP_LABEL: f"{name}-{owner:05d}", SIZE_LABEL: str(size)}
    spec: Manifest = {"priorityClassName": _KINDS[name].priority}
    if name == "device":
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": pod_name}]
    if name == "volume":
        claim = {"claimName": f"volume-{rng.randrange(VOLUMES)}"}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    requests = {"cpu": f"{cpu}m", "memory": "64Mi"}
    manifest = objects.pod(pod_name, labels=labels, requests=requests, spec=spec)
    if name == "web":
        manifest["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{name}-{owner:05d}",
                "uid": f"00000000-0000-4000-8000-{owner:012d}",
                "controller": True,
            }
        ]
    return manifest


def giant(number: int) -> Manifest:
    """A pod that no node can take."""
    return objects.pod(f"giant-{number}", labels={"kind": "giant"}, requests={"cpu": "100"})


@dataclass(slots=True)
class Load:
    """The load of one run.

    Args:
        client: As an administrator.
        seed: Of the pods.
        rate: Owners created per second.

    Attributes:
        groups: All that were created completely, by name.
        counts: Pods created, by kind.
    """

    client: ApiClient
    seed: int
    rate: float
    groups: dict[str, Group] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    is_churning: bool = True
    _seen: dict[str, float] = field(default_factory=dict)
    _live: int = 0

    # --- the cluster --------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Make nodes, priorities, budgets, devices and volumes."""
        await self._create("/api/v1/namespaces", "Namespace", "v1", NAMESPACE)
        for number in range(NODE_COUNT):
            node = objects.node(number, zones=3)
            await self.insist("POST", "/api/v1/nodes", node)
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            await self.insist("PATCH", path, {"status": node["status"]})
            await self._create(
                "/apis/resource.k8s.io/v1/resourceslices",
                "ResourceSlice",
                "resource.k8s.io/v1",
                f"slice-{number}",
                spec={
                    "driver": DRIVER,
                    "nodeName": node["metadata"]["name"],
                    "pool": {
                        "name": node["metadata"]["name"],
                        "generation": 1,
                        "resourceSliceCount": 1,
                    },
                    "devices": [{"name": f"device-{n}"} for n in range(DEVICES_PER_NODE)],
                },
            )
        for name, value in _PRIORITIES.items():
            await self._create(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                "PriorityClass",
                "scheduling.k8s.io/v1",
                name,
                value=value,
            )
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        await self._create(
            "/apis/resource.k8s.io/v1/deviceclasses",
            "DeviceClass",
            "resource.k8s.io/v1",
            "device",
            spec={"selectors": [selector]},
        )
        budgets = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
        match = {"matchLabels": {"app": f"{FILLER}-0"}}
        spec = {"selector": match, "maxUnavailable": 0}
        await self._create(budgets, "PodDisruptionBudget", "policy/v1", "strict", spec=spec)
        for number in range(VOLUMES):
            await self._make_volume(f"volume-{number}")
        for number in range(_GIANTS):
            await self.insist("POST", PODS.path(NAMESPACE), giant(number))

    async def _make_volume(self, name: str) -> None:
        shape = {
            "accessModes": ["ReadWriteOncePod"],
            "storageClassName": "",
        }
        await self._create(
            "/api/v1/persistentvolumes",
            "PersistentVolume",
            "v1",
            name,
            spec={
                **shape,
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "volumes.example.com", "volumeHandle": name},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": NAMESPACE,
                    "name": name,
                },
            },
        )
        claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
        await self._create(
            claims,
            "PersistentVolumeClaim",
            "v1",
            name,
            annotations={"pv.kubernetes.io/bind-completed": "yes"},
            spec={**shape, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        )
        for path in (f"/api/v1/persistentvolumes/{name}", f"{claims}/{name}"):
            await self.insist("PATCH", f"{path}/status", {"status": {"phase": "Bound"}})

    async def _create(
        self,
        path: str,
        kind: str,
        version: str,
        name: str,
        *,
        annotations: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        metadata = {"name": name, "annotations": annotations or {}}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
        await self.insist("POST", path, body)

    async def write_map(self, name: str, data: dict[str, str]) -> None:
        """Create a ConfigMap, or replace what it holds."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        if await self.insist("POST", path, body) is None:
            await self.insist("PUT", f"{path}/{name}", body)

    # --- pods ---------------------------------------------------------------------------------

    async def feed(self) -> None:
        """Create pods until `is_churning` is false; owners are created completely."""
        started = time.monotonic()
        for number, pods in enumerate(pods_of_owners(self.seed)):
            while self._live > MOST_PODS and self.is_churning:
                await asyncio.sleep(_POLL_SECONDS / 4)
                started += _POLL_SECONDS / 4
            if not self.is_churning:
                return
            await asyncio.sleep(max(0.0, started + number / self.rate - time.monotonic()))
            uids = [await self._create_pod(pod) for pod in pods]
            labels = pods[0]["metadata"]["labels"]
            if (name := labels.get(GROUP_LABEL)) is not None:
                self.groups[name] = Group(name, len(pods), frozenset(uids))

    async def _create_pod(self, pod: Manifest) -> str:
        name = pod["metadata"]["name"]
        if "resourceClaims" in pod["spec"]:
            request = {"name": "device", "exactly": {"deviceClassName": "device"}}
            await self._create(
                RESOURCE_CLAIMS.path(NAMESPACE),
                "ResourceClaim",
                "resource.k8s.io/v1",
                name,
                spec={"devices": {"requests": [request]}},
            )
        self.counts[pod["metadata"]["labels"]["kind"]] += 1
        self._live += 1
        made = await self.insist("POST", PODS.path(NAMESPACE), pod)
        if made is None:  # an earlier try that was said to have failed
            made = await self.insist("GET", PODS.path(NAMESPACE, name))
        return str(made["metadata"]["uid"]) if made is not None else ""

    async def keep_house(self) -> None:
        """Do what kubelets and controllers do, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            pods = await self.pods()
            self._live = len(pods)
            done = list(self._to_delete(pods, time.monotonic()))
            await asyncio.gather(*(self._delete_pod(name) for name in done))
            await self._release_claims({pod["metadata"]["name"] for pod in pods} - {*done})

    def _to_delete(self, pods: list[Manifest], now: float) -> Iterator[str]:
        """Names of pods that kubelets or controllers delete now."""
        by_group: dict[str, list[Manifest]] = defaultdict(list)
        for pod in pods:
            if (group := pod["metadata"]["labels"].get(GROUP_LABEL)) is not None:
                by_group[group].append(pod)
        for pod in pods:
            metadata, labels = pod["metadata"], pod["metadata"]["labels"]
            name = metadata["name"]
            if "deletionTimestamp" in metadata:
                yield name  # preempted: the kubelet has ended it
                continue
            group = labels.get(GROUP_LABEL)
            if group is not None and group in self.groups:
                members = by_group[group]
                if len(members) < self.groups[group].min_count and not self._seen.get(group):
                    yield name  # one was preempted: the controller gives the job up
                    continue
                if not all(member["spec"].get("nodeName") for member in members):
                    continue
                self._seen.setdefault(group, now)
            kind = _KINDS.get(labels["kind"])
            if kind is None or not pod["spec"].get("nodeName"):
                continue
            age = now - self._seen.setdefault(metadata["uid"], now)
            if self.is_churning and age > kind.seconds:
                yield name

    async def _delete_pod(self, name: str) -> None:
        await self.insist("DELETE", PODS.path(NAMESPACE, name), _AT_ONCE)

    async def _release_claims(self, users: set[str]) -> None:
        """Give back and delete the claims of pods that are gone, as their controller does."""
        found = await self.insist("GET", RESOURCE_CLAIMS.path(NAMESPACE))
        for claim in (found or {}).get("items", ()):
            name = claim["metadata"]["name"]
            # Claims are created before their pods: an old one has none any more.
            if name in users or not self._is_old(claim):
                continue
            path = RESOURCE_CLAIMS.path(NAMESPACE, name)
            status = {"status": {"reservedFor": None, "allocation": None}}
            await self.insist("PATCH", f"{path}/status", status)
            await self.insist("DELETE", path, None)
            await self.insist("PATCH", path, {"metadata": {"finalizers": None}})

    def _is_old(self, claim: Manifest) -> bool:
        uid = claim["metadata"]["uid"]
        since = self._seen.setdefault(uid, time.monotonic())
        return time.monotonic() - since > 4 * _POLL_SECONDS

    async def remove_fillers(self) -> None:
        """Make room: afterwards all pods fit that any node can take."""
        names = [
            pod["metadata"]["name"]
            for pod in await self.pods()
            if pod["metadata"]["labels"]["kind"] == FILLER
        ]
        await asyncio.gather(*(self._delete_pod(name) for name in names))

    async def pods(self) -> list[Manifest]:
        """All pods of the load as they are now."""
        found = await self.insist("GET", PODS.path(NAMESPACE))
        return list((found or {}).get("items", ()))

    async def nodes(self) -> list[Manifest]:
        """All nodes as they are now."""
        found = await self.insist("GET", NODES.path())
        return list((found or {}).get("items", ()))

    # --- requests -----------------------------------------------------------------------------

    async def insist(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, as soon as the server gives one; None if it is there, or gone, already."""
        return await insist(self.client, method, path, body)


async def insist(client: ApiClient, method: str, path: str, body: Any = None) -> Any:
    """The answer to a request that is sent until the server answers it.

    None if what is to be created is there already, or what is asked for is gone. Raises the
    `ApiError` of a request that is wrong, and the last one after two minutes.
    """
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    encoded = None if body is None else json.dumps(body).encode()
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            raw = await client.request(method, path, body=encoded, content_type=kind, timeout=10.0)
        except (AlreadyExists, NotFound):
            return None
        except ApiError as error:
            # 403, too: of admission plugins that are not ready yet after a start.
            if error.status in _FINAL or time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return json.loads(raw)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> float | None:
    """Seconds until *condition* was true; None if it was not within *seconds*."""
    started = time.monotonic()
    try:
        await eventually(condition, seconds=seconds, longest_pause=_RETRY_SECONDS)
    except AssertionError:
        return None
    return time.monotonic() - started
