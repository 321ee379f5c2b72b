"""Generates a cluster in use and arriving pods, to measure policies on.

Owns its shape. It is to reach every kind of hook: shapes, zones and taints of nodes,
pods of some twenty apps with selectors, spreading and affinity, a group, and in the end pods that
only fit if others are evicted. The same numbers and seed give the same cluster.
"""

import random
from typing import Any, Final

from engine.files.cluster_file import Cluster
from workbench.simulation.workload import Arrival, Workload

_SHAPES: Final = (("8", "32Gi", 0), ("16", "64Gi", 0), ("32", "128Gi", 0), ("32", "256Gi", 8))
_SIZES: Final = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("2", "8Gi"))
_ZONE: Final = "topology.kubernetes.io/zone"
_HOST: Final = "kubernetes.io/hostname"
_APPS: Final = 20
_GROUP: Final = "training"
_GROUP_SIZE: Final = 3
# Placed pods for each node.
_CROWD: Final = 5


def generated_workload(nodes: int, pods: int, seed: int) -> Workload:
    """*pods* pods that come to a cluster of *nodes* nodes, five pods on each."""
    chance = random.Random(seed)
    cluster = Cluster()
    for number in range(nodes):
        cluster.add(_node(number, chance))
    for number in range(nodes * _CROWD):
        spec = {"nodeName": f"node-{number % nodes:04d}", "priority": 0}
        cluster.add(_pod(f"placed-{number:05d}", chance, spec))
    group = {"minCount": _GROUP_SIZE}
    cluster.add(
        {
            "kind": "PodGroup",
            "metadata": {"name": _GROUP, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": group}},
        }
    )
    workload = Workload(cluster)
    for number in range(pods):
        manifest = _coming(number, pods, chance)
        workload.arrivals.append(Arrival(float(number), cluster.pod_of(manifest)))
    return workload


def _node(number: int, chance: random.Random) -> dict[str, Any]:
    cpu, memory, gpus = chance.choice(_SHAPES)
    name = f"node-{number:04d}"
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    spec: dict[str, Any] = {}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
        spec["taints"] = [{"key": "nvidia.com/gpu", "value": "", "effect": "PreferNoSchedule"}]
    elif chance.random() < 0.1:
        spec["taints"] = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                _HOST: name,
                _ZONE: f"zone-{number % 3}",
                "disk": chance.choice(("ssd", "hdd")),
            },
        },
        "spec": spec,
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [
                {"names": [f"registry.example/app-{number % _APPS}:1"], "sizeBytes": 1 << 28}
            ],
        },
    }


def _pod(name: str, chance: random.Random, spec: dict[str, Any]) -> dict[str, Any]:
    app = f"app-{chance.randrange(_APPS)}"
    cpu, memory = chance.choice(_SIZES)
    requests = {"cpu": cpu, "memory": memory}
    container = {
        "name": "main",
        "image": f"registry.example/{app}:1",
        "resources": {"requests": requests, "limits": {"memory": memory}},
    }
    owner = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": app, "uid": app}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"app": app},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [container], **spec},
    }


def _coming(number: int, pods: int, chance: random.Random) -> dict[str, Any]:
    """A pod that wants a node; the last tenth is important and large."""
    spec: dict[str, Any] = {"priority": chance.choice((0, 0, 100))}
    manifest = _pod(f"pod-{number:04d}", chance, spec)
    spec = manifest["spec"]
    selector = {"matchLabels": dict(manifest["metadata"]["labels"])}
    kind = number % 6
    if kind == 1:
        spec["nodeSelector"] = {"disk": "ssd"}
    elif kind == 2:
        spread = {"maxSkew": 1, "topologyKey": _ZONE, "labelSelector": selector}
        spec["topologySpreadConstraints"] = [
            {**spread, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 5},
            {**spread, "whenUnsatisfiable": "ScheduleAnyway", "topologyKey": _HOST},
        ]
    elif kind == 3:
        term = {"labelSelector": selector, "topologyKey": _HOST}
        preferred = [{"weight": 10, "podAffinityTerm": {**term, "topologyKey": _ZONE}}]
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        }
    elif kind == 4:
        requirement = {"key": _ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}
        terms = [{"weight": 5, "preference": {"matchExpressions": [requirement]}}]
        spec["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
        }
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    elif kind == 5:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + number % 7}]
    if _GROUP_SIZE <= number < 2 * _GROUP_SIZE:
        spec["schedulingGroup"] = {"podGroupName": _GROUP}
        spec["priority"] = 100
    elif number >= pods - max(1, pods // 10):
        # More than nearly every node has free, less than the largest nodes have.
        spec["containers"][0]["resources"] = {"requests": {"cpu": "31", "memory": "8Gi"}}
        spec["priority"] = 1000
    return manifest
