"""Builders of the objects that tests are about: pods and nodes from a few words.

Every pod gets a uid of its own unless one is given, so that two pods of one name are two pods.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.model.node import Node
from engine.core.model.pod import Pod

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

_uids = itertools.count(1)

Quantity = str | int | float


def of_cluster(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """*manifest* as an API server has stored it, so that commands do not admit it again."""
    metadata = manifest["metadata"]
    known = {"uid": f"uid-{metadata['name']}", "resourceVersion": "1"}
    return {**manifest, "metadata": {**known, **metadata}}


def _plain_port(port: int | str | Mapping[str, Any]) -> dict[str, Any]:
    """A host port: `8080`, `"53/UDP"`, or the API's fields."""
    if isinstance(port, Mapping):
        return dict(port)
    number, _, protocol = str(port).partition("/")
    plain: dict[str, Any] = {"containerPort": int(number), "hostPort": int(number)}
    if protocol:
        plain["protocol"] = protocol
    return plain


def container(
    name: str = "main",
    *,
    image: str = "",
    requests: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    ports: Sequence[int | str | Mapping[str, Any]] = (),
    sidecar: bool = False,
) -> dict[str, Any]:
    """A container's manifest; `sidecar` makes an init container one that stays."""
    plain: dict[str, Any] = {"name": name}
    if image:
        plain["image"] = image
    resources: dict[str, Any] = {}
    if requests is not None:
        resources["requests"] = dict(requests)
    if limits is not None:
        resources["limits"] = dict(limits)
    if resources:
        plain["resources"] = resources
    if ports:
        plain["ports"] = [_plain_port(p) for p in ports]
    if sidecar:
        plain["restartPolicy"] = "Always"
    return plain


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    """A taint's manifest."""
    return {"key": key, "value": value, "effect": effect}


def toleration(
    key: str = "", value: str = "", effect: str = "", *, operator: str | None = None
) -> dict[str, str]:
    """A toleration's manifest: Equal when a value is given, Exists otherwise."""
    plain = {"operator": operator or ("Equal" if value else "Exists")}
    return plain | {k: v for k, v in (("key", key), ("value", value), ("effect", effect)) if v}


def pod_manifest(
    name: str = "p",
    namespace: str = "default",
    *,
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    requests: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str | None = None,
    priority: int | None = None,
    scheduler_name: str | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    node_selector: Mapping[str, str] | None = None,
    affinity: Mapping[str, Any] | None = None,
    topology_spread: Sequence[Mapping[str, Any]] = (),
    ports: Sequence[int | str | Mapping[str, Any]] = (),
    image: str = "",
    containers: Sequence[Mapping[str, Any]] | None = None,
    init_containers: Sequence[Mapping[str, Any]] = (),
    overhead: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    gates: Sequence[str] = (),
    volumes: Sequence[Mapping[str, Any]] = (),
    nominated: str | None = None,
    phase: str | None = None,
    start_time: str | None = None,
    created: str | None = None,
    terminating: bool = False,
    owner: Mapping[str, Any] | None = None,
    resource_version: str | None = None,
    status: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The plain API object of a pod; `spec` and `status` are merged over what the words say."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid if uid is not None else f"{name}-uid-{next(_uids)}",
    }
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owner:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    if created:
        metadata["creationTimestamp"] = created
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if resource_version:
        metadata["resourceVersion"] = resource_version
    if containers is None:
        asked: dict[str, Any] = dict(requests or {})
        if cpu is not None:
            asked["cpu"] = cpu
        if memory is not None:
            asked["memory"] = memory
        containers = [container(image=image, requests=asked or None, limits=limits, ports=ports)]
    plain_spec: dict[str, Any] = {"containers": [dict(c) for c in containers]}
    optional: dict[str, Any] = {
        "nodeName": node,
        "priority": priority,
        "schedulerName": scheduler_name,
        "tolerations": [dict(t) for t in tolerations],
        "nodeSelector": node_selector and dict(node_selector),
        "affinity": affinity and dict(affinity),
        "topologySpreadConstraints": [dict(c) for c in topology_spread],
        "initContainers": [dict(c) for c in init_containers],
        "overhead": overhead and dict(overhead),
        "resources": resources and dict(resources),
        "schedulingGates": [{"name": gate} for gate in gates],
        "volumes": [dict(v) for v in volumes],
    }
    plain_spec |= {k: v for k, v in optional.items() if v not in (None, [], {})}
    plain_spec |= spec or {}
    known = {"nominatedNodeName": nominated, "phase": phase, "startTime": start_time}
    plain_status: dict[str, Any] = {k: v for k, v in known.items() if v is not None}
    plain_status |= status or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": plain_spec,
        "status": plain_status,
    }


def make_pod(name: str = "p", namespace: str = "default", **words: Any) -> Pod:
    """A pod from the words of `pod_manifest`."""
    return Pod.from_plain(pod_manifest(name, namespace, **words))


def node_manifest(
    name: str = "n",
    *,
    cpu: Quantity | None = "4",
    memory: Quantity | None = "8Gi",
    pods: Quantity | None = 110,
    allocatable: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    zone: str | None = None,
    taints: Sequence[Mapping[str, Any]] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | Sequence[Mapping[str, Any]] | None = None,
    conditions: Mapping[str, str] | None = None,
    declared_features: Sequence[str] = (),
    uid: str | None = None,
    created: str | None = None,
    resource_version: str | None = None,
) -> dict[str, Any]:
    """The plain API object of a node. `images` maps a name to its size, or is the API's list."""
    all_labels = {HOSTNAME: name}
    if zone is not None:
        all_labels[ZONE] = zone
    all_labels |= labels or {}
    metadata: dict[str, Any] = {"name": name, "uid": uid or f"{name}-uid", "labels": all_labels}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if created:
        metadata["creationTimestamp"] = created
    if resource_version:
        metadata["resourceVersion"] = resource_version
    spec: dict[str, Any] = {}
    if taints:
        spec["taints"] = [dict(t) for t in taints]
    if unschedulable:
        spec["unschedulable"] = True
    offered: dict[str, Any] = {
        k: v for k, v in (("cpu", cpu), ("memory", memory), ("pods", pods)) if v is not None
    }
    offered |= allocatable or {}
    status: dict[str, Any] = {
        "allocatable": offered,
        "capacity": dict(capacity) if capacity is not None else dict(offered),
    }
    if isinstance(images, Mapping):
        status["images"] = [{"names": [n], "sizeBytes": size} for n, size in images.items()]
    elif images:
        status["images"] = [dict(image) for image in images]
    if conditions:
        status["conditions"] = [{"type": k, "status": v} for k, v in conditions.items()]
    if declared_features:
        status["declaredFeatures"] = list(declared_features)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def make_node(name: str = "n", **words: Any) -> Node:
    """A node from the words of `node_manifest`."""
    return Node.from_plain(node_manifest(name, **words))
