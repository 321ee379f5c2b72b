"""The kubelets of an embedded cluster, and makers of the example cluster's objects."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from devkit.cluster.api import Api
from devkit.cluster.companion import Companion
from devkit.cluster.store import Version
from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind

Json = dict[str, Any]


class Kubelets(Companion):
    """The kubelets of every node: bound pods run, and terminating ones end.

    A pod whose node does not exist stays as it is.

    Args:
        start_delay: Seconds from binding to Running.
        stop_delay: Seconds that a terminating pod takes, at most its grace period.
        run_seconds: How long a pod runs until it has Succeeded; None forever.
    """

    _kinds = (kinds.PODS,)

    def __init__(
        self,
        api: Api,
        *,
        start_delay: float = 0.0,
        stop_delay: float = 0.0,
        run_seconds: Callable[[Json], float | None] | None = None,
    ) -> None:
        super().__init__(api)
        self._start_delay = start_delay
        self._stop_delay = stop_delay
        self._run_seconds = run_seconds

    def consider(self, kind: Kind, version: Version) -> None:
        """Run a pod that was bound, end one that is terminating."""
        pod = version.manifest
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if not spec.get("nodeName"):
            return
        uid, key = metadata["uid"], version.key
        if metadata.get("deletionTimestamp"):
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            if grace or not metadata.get("finalizers"):
                self._after(min(self._stop_delay, grace), self._end, key, uid)
        elif status.get("phase") == "Pending":
            self._after(self._start_delay, self._run_pod, key, uid)

    def _current(self, key: str, uid: str) -> Json | None:
        version = self._api.store.get(kinds.PODS.storage, key)
        if version is None or version.manifest["metadata"]["uid"] != uid:
            return None
        return version.manifest

    def _run_pod(self, key: str, uid: str) -> None:
        pod = self._current(key, uid)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if (pod.get("status") or {}).get("phase") != "Pending":
            return
        # Without a node again: the store was restored from a backup.
        node = pod["spec"].get("nodeName")
        if not node or self._api.find(kinds.NODES, node) is None:
            return
        self._write(pod, running_status(pod, self._api.now()))
        self._finish_later(pod, key)

    def _finish_later(self, pod: Json, key: str) -> None:
        seconds = self._run_seconds(pod) if self._run_seconds else None
        if seconds is not None:
            uid = pod["metadata"]["uid"]
            self._after(max(seconds, 1e-9), self._finish, key, uid)

    def look_again(self) -> None:
        """Do so; pods that run may have ended already, in the time that is forgotten."""
        super().look_again()
        for version in tuple(self._api.store.table(kinds.PODS.storage).objects.values()):
            if (version.manifest.get("status") or {}).get("phase") == "Running":
                self._finish_later(version.manifest, version.key)

    def _finish(self, key: str, uid: str) -> None:
        pod = self._current(key, uid)
        if pod is None or (pod.get("status") or {}).get("phase") != "Running":
            return
        self._write(pod, {**pod["status"], "phase": "Succeeded"})

    def _write(self, pod: Json, status: Json) -> None:
        metadata = pod["metadata"]
        manifest = {**pod, "status": status}
        self._api.update(
            kinds.PODS, metadata["namespace"], metadata["name"], manifest, subresource="status"
        )

    def _end(self, key: str, uid: str) -> None:
        pod = self._current(key, uid)
        if pod is None:
            return
        metadata = pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._api.delete(kinds.PODS, metadata["namespace"], metadata["name"], options)


def running_status(pod: Json, now: str) -> Json:
    """The status that a kubelet writes for a pod whose containers have started."""
    ready = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    status = pod.get("status") or {}
    kept = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") not in {entry["type"] for entry in ready}
    ]
    digest = hashlib.sha256(pod["metadata"]["uid"].encode()).digest()
    address = f"10.{digest[0]}.{digest[1]}.{digest[2]}"
    return {
        **status,
        "phase": "Running",
        "conditions": [*kept, *ready],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
                "lastState": {},
            }
            for container in pod["spec"]["containers"]
        ],
    }


# --- object makers -------------------------------------------------------------------------


def make_node(
    name: str,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    zone: str = "",
    labels: dict[str, str] | None = None,
    taints: Iterable[Json] = (),
    images: dict[str, int] | None = None,
    resources: dict[str, str] | None = None,
) -> Json:
    """A Ready node as a manifest.

    Args:
        images: Image name to its size in bytes.
        resources: Further allocatable resources (`nvidia.com/gpu`).
    """
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    if zone:
        own["topology.kubernetes.io/zone"] = zone
        own["topology.kubernetes.io/region"] = "example"
    allocatable = {"cpu": cpu, "memory": memory, "pods": str(pods), **(resources or {})}
    spec: Json = {"taints": list(taints)} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own | (labels or {})},
        "spec": spec,
        "status": {
            "capacity": dict(allocatable),
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": [
                {"names": [image], "sizeBytes": size} for image, size in (images or {}).items()
            ],
        },
    }


def make_pod(
    name: str,
    *,
    namespace: str = "default",
    cpu: str = "100m",
    memory: str = "128Mi",
    image: str = "registry.example/app:1.0",
    labels: dict[str, str] | None = None,
    scheduler_name: str = "",
    resources: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod of one container as a manifest; *spec* adds fields by their API names.

    Args:
        resources: Further requests, set as limits, too (`nvidia.com/gpu`).
    """
    requests = {"cpu": cpu, "memory": memory, **(resources or {})}
    container: Json = {"name": "main", "image": image, "resources": {"requests": requests}}
    if resources:
        container["resources"]["limits"] = dict(resources)
    if scheduler_name:
        spec["schedulerName"] = scheduler_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def example_cluster(*, zones: int = 3, nodes_per_zone: int = 4) -> list[Json]:
    """Nodes of a small mixed cluster.

    Every zone has two general sizes, its last node is tainted for GPU work and has GPUs, its first
    one has the example image already; the first zone's second node is cordoned off by a soft taint.
    """
    made = []
    for zone in range(zones):
        name = f"zone-{chr(ord('a') + zone)}"
        for index in range(nodes_per_zone):
            is_gpu = nodes_per_zone > 1 and index == nodes_per_zone - 1
            is_big = index % 2 == 1 and not is_gpu
            taints: list[Json] = []
            if is_gpu:
                taints.append({"key": "example.com/gpu", "value": "true", "effect": "NoSchedule"})
            elif zone == 0 and index == 1:
                taints.append({"key": "example.com/maintenance", "effect": "PreferNoSchedule"})
            made.append(
                make_node(
                    f"node-{name[-1]}{index + 1}",
                    cpu="16" if is_big or is_gpu else "8",
                    memory="64Gi" if is_big or is_gpu else "32Gi",
                    zone=name,
                    labels={"example.com/disk": "ssd" if index % 2 == 0 else "hdd"},
                    taints=taints,
                    images={"registry.example/app:1.0": 400_000_000} if index == 0 else None,
                    resources={"nvidia.com/gpu": "4"} if is_gpu else None,
                )
            )
    return made
