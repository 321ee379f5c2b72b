"""A cluster as everybody sees it: through its API, whichever server that is.

Owns making objects from a few words, putting them in, taking them away, and standing in for the
kubelets. Nothing here is about a scheduler.
"""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.io.kube.client import ApiClient
from engine.io.kube.errors import AlreadyExists, Conflict, NotFound

Json = dict[str, Any]

NAMESPACE: Final = "default"
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"

#: Priority classes that `LiveCluster.prepare` makes; pods of the last never preempt.
CLASSES: Final[Mapping[str, int]] = {"low": 10, "middle": 100, "high": 1000, "highest": 10_000}
POLITE: Final = "high-but-polite"

MOST_SECONDS: Final = 60.0

# What a cluster may hold, in the order of creation, and the paths of it. Pods come last.
_PATHS: Final[Mapping[str, str]] = {
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Workload": "/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/workloads",
    "PodGroup": "/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups",
    "Node": "/api/v1/nodes",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Event": "/apis/events.k8s.io/v1/namespaces/{namespace}/events",
}
# Kinds that an API server serves on request alone.
_ON_REQUEST: Final = frozenset({"Workload", "PodGroup"})
_STAYS: Final = frozenset({"Namespace", "PriorityClass"})
# Kinds whose status is taken when they are created, or that have none of their own.
_STATUS_AT_CREATION: Final = frozenset({"Node"})


# --- objects -----------------------------------------------------------------------------------


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    cordoned: bool = False,
    extended: Mapping[str, str] | None = None,
) -> Json:
    """A ready node; a taint is `key=value:Effect`."""
    spec: Json = {}
    if taints:
        spec["taints"] = [_taint(text) for text in taints]
    if cordoned:
        spec["unschedulable"] = True
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(extended or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME: name, **({ZONE: zone} if zone else {}), **(labels or {})},
        },
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _taint(text: str) -> Json:
    key, _, effect = text.partition(":")
    key, _, value = key.partition("=")
    return {"key": key, "value": value, "effect": effect}


def pod(
    name: str,
    *,
    cpu: str | None = None,
    memory: str | None = None,
    extended: Mapping[str, str] | None = None,
    on: str = "",
    priority: str = "",
    labels: Mapping[str, str] | None = None,
    port: int = 0,
    start: str = "2026-01-01T00:00:00Z",
    grace: int = 30,
    **spec: Any,
) -> Json:
    """A pod; `on` places it on a node, where it has run since `start`."""
    asked = {"cpu": cpu, "memory": memory, **(extended or {})}
    amounts = {k: v for k, v in asked.items() if v is not None}
    resources: Json = {"requests": amounts, "limits": dict(extended or {})}
    container: Json = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    if amounts:
        container["resources"] = {k: v for k, v in resources.items() if v}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels or {})},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": grace, **spec},
    }
    if priority:
        manifest["spec"]["priorityClassName"] = priority
    if on:
        manifest["spec"]["nodeName"] = on
        manifest["status"] = {"phase": "Running", "startTime": start}
    return manifest


def pod_group(name: str, min_count: int = 0, *, priority: str = "", mode: str = "") -> Json:
    """A PodGroup; without a `min_count` its pods go one by one."""
    policy: Json = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    spec: Json = {"schedulingPolicy": policy}
    if priority:
        spec["priorityClassName"] = priority
    if mode:
        spec["disruptionMode"] = {mode: {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def budget(name: str, selector: Mapping[str, str], allowed: int) -> Json:
    """A PodDisruptionBudget as its controller has left it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": dict(selector)}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
        },
    }


def _priority_class(name: str, value: int, **words: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **words,
    }


def condition(pod: Json, kind: str) -> Json | None:
    """A condition of a pod, without its times; None if it has none of that type."""
    for found in pod.get("status", {}).get("conditions") or ():
        if found["type"] == kind:
            times = ("lastProbeTime", "lastTransitionTime")
            return {k: v for k, v in found.items() if k not in times}
    return None


# --- the cluster -------------------------------------------------------------------------------


class LiveCluster:
    """What an API server holds, filled and emptied through *client*."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """One request; a PATCH is a merge patch."""
        raw = await self.client.request(
            method,
            path,
            body=None if body is None else json.dumps(body).encode(),
            content_type="application/merge-patch+json"
            if method == "PATCH"
            else "application/json",
        )
        answer: Json = json.loads(raw)
        return answer

    async def items(self, kind: str) -> list[Json]:
        """Every object of *kind*, in the namespace if it has one."""
        try:
            found: list[Json] = (await self.request("GET", _folder(kind)))["items"]
        except NotFound:
            if kind not in _ON_REQUEST:
                raise
            return []
        return found

    async def pod(self, name: str) -> Json:
        """A pod. Raises `NotFound` if there is none."""
        return await self.request("GET", f"{_folder('Pod')}/{name}")

    async def events(self, reason: str = "") -> list[Json]:
        """Events, those that were seen last at the end; of one *reason*, if given."""
        found = [e for e in await self.items("Event") if reason in ("", e["reason"])]
        return sorted(found, key=_last_seen)

    async def prepare(self) -> None:
        """Make what is there for good: priority classes."""
        for name, value in CLASSES.items():
            await self.create(_priority_class(name, value))
        await self.create(_priority_class(POLITE, CLASSES["high"], preemptionPolicy="Never"))

    async def create(self, *manifests: Json) -> None:
        """Create objects, with their status if they have one; those that are there stay."""
        for manifest in manifests:
            kind, status = manifest["kind"], manifest.get("status")
            with contextlib.suppress(AlreadyExists, Conflict):
                await self.request("POST", _folder(kind), manifest)
            if status and kind not in _STATUS_AT_CREATION:
                where = f"{_folder(kind)}/{manifest['metadata']['name']}/status"
                await self.request("PATCH", where, {"status": status})

    async def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object; nothing happens if it is gone."""
        with contextlib.suppress(NotFound):
            await self.request("DELETE", f"{_folder(kind)}/{name}", options)

    async def end_pod(self, name: str) -> None:
        """Do what the kubelet does when a terminating pod has ended."""
        await self.delete("Pod", name, gracePeriodSeconds=0)

    async def clear(self) -> None:
        """Take everything away again but what `prepare` made."""
        for kind in reversed(list(_PATHS)):
            if kind not in _STAYS:
                await self._clear(kind)

    async def _clear(self, kind: str) -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while items := await self.items(kind):
            assert time.monotonic() < deadline, f"{kind}s do not go away"
            for item in items:
                name = item["metadata"]["name"]
                if item["metadata"].get("finalizers"):
                    with contextlib.suppress(NotFound):
                        where = f"{_folder(kind)}/{name}"
                        await self.request("PATCH", where, {"metadata": {"finalizers": None}})
                await self.delete(kind, name, gracePeriodSeconds=0)


def _folder(kind: str) -> str:
    return _PATHS[kind].format(namespace=NAMESPACE)


def _last_seen(event: Json) -> str:
    return str((event.get("series") or {}).get("lastObservedTime") or event["eventTime"])
