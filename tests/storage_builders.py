"""Builders of storage objects: plain manifests from a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.builders import HOSTNAME

Json = dict[str, Any]

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
DRIVER = "disk.example.com"


def claim(
    name: str = "data",
    *,
    size: Any = "1Gi",
    storage_class: str | None = "local",
    volume: str = "",
    bound: bool | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "",
    annotations: Mapping[str, str] | None = None,
    selector: Json | None = None,
    volume_mode: str | None = None,
    namespace: str = "default",
    uid: str | None = None,
    **metadata: Any,
) -> Json:
    """A claim; one with a *volume* is bound to it unless *bound* says otherwise."""
    is_bound = bool(volume) if bound is None else bound
    spec: Json = {"accessModes": list(modes)}
    if size is not None:
        spec["resources"] = {"requests": {"storage": size}}
    optional = {
        "storageClassName": storage_class,
        "volumeName": volume or None,
        "selector": selector,
        "volumeMode": volume_mode,
    }
    spec |= {key: value for key, value in optional.items() if value is not None}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{name}-uid" if uid is None else uid,
            "resourceVersion": "1",
            "annotations": {**(BOUND if is_bound else {}), **(annotations or {})},
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase or ("Bound" if is_bound else "Pending")},
    }


def volume(
    name: str = "disk",
    *,
    size: Any = "1Gi",
    storage_class: str = "local",
    node: str | Sequence[str] | None = None,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "Available",
    claimed_by: Json | None = None,
    source: Json | None = None,
    affinity: Json | None = None,
    volume_mode: str | None = None,
    **metadata: Any,
) -> Json:
    """A volume, reached from one *node*, from several, from a *zone*, or from everywhere."""
    wanted = []
    if node is not None:
        wanted.append(need(HOSTNAME, *([node] if isinstance(node, str) else node)))
    if zone is not None:
        wanted.append(need("topology.kubernetes.io/zone", zone))
    spec: Json = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        **(source or {"csi": {"driver": DRIVER, "volumeHandle": name}}),
    }
    if wanted:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": wanted}]}}
    if affinity is not None:
        spec["nodeAffinity"] = affinity
    if claimed_by is not None:
        spec["claimRef"] = claimed_by
    if volume_mode is not None:
        spec["volumeMode"] = volume_mode
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "resourceVersion": "1",
            "labels": dict(labels or {}),
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def need(key: str, *values: str, operator: str = "In") -> Json:
    """A requirement of a node selector."""
    return {"key": key, "operator": operator, "values": list(values)}


def storage_class(
    name: str = "local",
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    mode: str | None = "WaitForFirstConsumer",
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> Json:
    """A class; each of *topologies* maps labels to the values allowed."""
    made: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    }
    if mode is not None:
        made["volumeBindingMode"] = mode
    if topologies:
        made["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": k, "values": list(v)} for k, v in term.items()]}
            for term in topologies
        ]
    return made


def csi_driver(*, counts_storage: bool | None = True) -> Json:
    """The driver of `DRIVER`."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {} if counts_storage is None else {"storageCapacity": counts_storage},
    }


def capacity(
    name: str,
    size: Any,
    *,
    node: str | None = None,
    storage_class: str = "made",
    largest: Any = None,
    topology: Json | None = None,
) -> Json:
    """What is left of a class on one *node*, or where *topology* says."""
    made: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": storage_class,
        "capacity": size,
    }
    if node is not None:
        topology = {"matchLabels": {HOSTNAME: node}}
    if topology is not None:
        made["nodeTopology"] = topology
    if largest is not None:
        made["maximumVolumeSize"] = largest
    return made


def csi_node(
    name: str, *, migrated: str = "", limits: Mapping[str, int | None] | None = None
) -> Json:
    """What drivers say of a node: how many volumes they take, which plugins they took over."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated},
        },
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": name}
                | ({} if count is None else {"allocatable": {"count": count}})
                for driver, count in (limits or {}).items()
            ]
        },
    }


def uses(*claims: str) -> list[Json]:
    """The volumes of a pod that uses these claims."""
    return [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}}
        for i, name in enumerate(claims)
    ]
