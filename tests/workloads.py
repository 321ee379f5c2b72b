"""Manifests of workloads, and a policy that reads them."""

from typing import Any, Final

_APIS: Final = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
}
SPOT_SHARE: Final = '''"""At most 30 % of the replicas of a workload on spot nodes.

Hooks: counters, filter. Reads: pod.namespace, pod.workload, node.labels["capacity"].
"""

def counters(pod):
    if pod.workload == None or pod.workload.selector == None:
        return []
    return [count_pods("capacity", [pods_in([pod.namespace], pod.workload.selector)])]

def filter(pod, node, counts):
    if not counts or node.labels.get("capacity") != "spot":
        return None
    most = 30 * (pod.workload.replicas or 0) // 100
    return None if counts[0].here < most else "too many replicas on spot nodes"
'''


def owned_by(kind: str, name: str, api_version: str = "") -> dict[str, Any]:
    """A reference to a controller."""
    api = api_version or _APIS[kind]
    return {"apiVersion": api, "kind": kind, "name": name, "uid": name, "controller": True}


def workload(
    kind: str, name: str = "web", *, owner: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A workload of the pods whose label `app` is its *name* up to the first dash."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    labels = {"app": name.partition("-")[0]}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    return {
        "apiVersion": _APIS[kind],
        "kind": kind,
        "metadata": metadata,
        "spec": {"selector": selector, "template": template, **spec},
    }


def replica_set(name: str, *, owner: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A ReplicaSet."""
    return workload("ReplicaSet", name, owner=owner, **spec)
