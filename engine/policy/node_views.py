"""What a policy sees of a node: names, types, documentation, values."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from engine.core.caching.attachments import (
    csi_drivers,
    other_attached_volumes,
    volume_limits,
    volumes_in_use,
)
from engine.core.model.event_kinds import ASSIGNED_POD, FACTS, NODE
from engine.core.model.node_info import NodeInfo
from engine.core.model.resources import NONZERO_RESOURCES, spec_limits
from engine.policy.device_views import DeviceShares
from engine.policy.view_fields import ClusterFacts, Entries, ViewField, Wanted, manifest_view
from engine.policy.volume_views import (
    STORAGE_KINDS,
    shared_volumes,
    used_claims_view,
    used_disks_view,
)


def _node(type_: str, doc: str, extract: Callable[[NodeInfo], Any], **more: Any) -> ViewField:
    return ViewField(type_, doc, lambda info, _: extract(info), (), **more)


def _pods(
    type_: str,
    doc: str,
    extract: Callable[[NodeInfo], Any],
    *parts: str,
    **more: Any,
) -> ViewField:
    """What pods on the node change: a function of these parts of the NodeInfo."""
    return ViewField(type_, doc, lambda info, _: extract(info), (ASSIGNED_POD,), parts, **more)


def _limits_of_pods(info: NodeInfo) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in info.pods.values():
        for name, amount in spec_limits(pod.manifest).items():
            total[name] = total.get(name, 0) + amount
    return total


def _taints(info: NodeInfo) -> list[dict[str, str]]:
    return [
        {"key": t.key, "value": t.value, "effect": t.effect} for t in _of(info).manifest.spec.taints
    ]


def _of(info: NodeInfo) -> Any:
    if info.node is None:
        raise ValueError(f"node `{info.name}` has pods but no object: it has no view")
    return info.node


def _images(info: NodeInfo, facts: ClusterFacts) -> dict[str, dict[str, int]]:
    return {
        name: {"size_bytes": size, "node_count": facts.image_nodes.get(name, 1)}
        for name, size in _of(info).images.items()
    }


def _used_ports(info: NodeInfo) -> list[dict[str, Any]]:
    return [
        {"ip": ip, "protocol": protocol, "port": port}
        for ip, protocol, port in sorted(info.used_ports)
    ]


class _PodAnnotations(dict[str, list[dict[str, str]]]):
    """The annotations of a node's pods by prefix of their keys, collected on look-up.

    As a whole it is empty: there are too many prefixes.
    """

    def __init__(self, info: NodeInfo) -> None:
        super().__init__()
        self._pods = info.pods.values()

    def __contains__(self, prefix: object) -> bool:
        return True

    def __getitem__(self, prefix: str) -> list[dict[str, str]]:
        found = []
        for pod in self._pods:
            if pod.annotations:
                own = {k: text for k, text in pod.annotations.items() if k.startswith(prefix)}
                if own:
                    found.append(own)
        # Not by the pods' order, which is that of their arrival here.
        found.sort(key=lambda own: sorted(own.items()))
        return found


def _volumes_by_name(info: NodeInfo, facts: ClusterFacts) -> dict[str, str]:
    return {
        "/".join((driver, handle)): driver
        for driver, handles in volumes_in_use(info, facts.objects).items()
        for handle in handles
    }


_REQUESTS: Final = Wanted(
    frozenset({"cpu", "memory", "ephemeral-storage", "pods"}),
    lambda pod, _: pod.requests,
)

NODE_FIELDS: Final[dict[str, ViewField]] = {
    "name": _node(
        "str",
        "its name; unique, so reading it defeats reuse",
        lambda i: i.name,
        instead="read a label that groups nodes, or `only_nodes([...])` in `pre_filter`",
    ),
    "labels": _node("dict[str, str]", "its labels", lambda i: _of(i).labels, shows_labels=True),
    "annotations": _node("dict[str, str]", "its annotations", lambda i: _of(i).annotations),
    "created_at": _node(
        "int", "creation time, seconds since the epoch", lambda i: int(_of(i).created_at)
    ),
    "taints": _node("list[Taint]", "its taints", _taints),
    "unschedulable": _node("bool", "it is cordoned", lambda i: _of(i).unschedulable),
    "allocatable": _node(
        "dict[str, int]",
        "what it offers; millicores, bytes, whole units",
        lambda i: _of(i).allocatable,
    ),
    "capacity": _node("dict[str, int]", "what it has in all", lambda i: _of(i).capacity),
    "wanted_allocatable": replace(
        _node(
            "dict[str, int]",
            "of what it offers, what the pod requests, and cpu, memory, ephemeral-storage and pods",
            lambda i: _of(i).allocatable,
        ),
        wanted=_REQUESTS,
    ),
    "conditions": _node(
        "dict[str, str]", "condition type to True, False or Unknown", lambda i: _of(i).conditions
    ),
    "declared_features": _node(
        "list[str]", "features that its kubelet declares", lambda i: list(_of(i).declared_features)
    ),
    "images": ViewField("dict[str, Image]", "images present, by name", _images, (NODE,)),
    "requested": _pods(
        "dict[str, int]",
        "the sum of its pods' requests",
        lambda i: i.requested,
        "requested",
        is_sum=True,
    ),
    "wanted_requested": replace(
        _pods(
            "dict[str, int]",
            "of the sum of its pods' requests, what the pod requests, and cpu, memory and "
            "ephemeral-storage",
            lambda i: i.requested,
            "requested",
            is_sum=True,
        ),
        wanted=_REQUESTS,
    ),
    "limits": _pods(
        "dict[str, int]",
        "the sum of what its pods may use at most, as in `pod.limits`",
        _limits_of_pods,
        "pods",
    ),
    "nonzero_requested": _pods(
        "dict[str, int]",
        "cpu and memory of its pods, with a default where a container names none",
        lambda i: i.nonzero_requested,
        "nonzero_requested",
        is_sum=True,
        keys=NONZERO_RESOURCES,
    ),
    "pod_count": _pods(
        "int", "how many pods are on it", lambda i: i.pod_count, "pods", is_sum=True
    ),
    "used_ports": _pods(
        "list[HostPort]", "host ports in use on it", _used_ports, "used_ports", is_sum=True
    ),
    "used_disks": _pods(
        "list[Disk]", "disks that its pods name themselves, each once", used_disks_view, "volumes"
    ),
    "used_claims": _pods(
        "list[str]", "claims that its pods name, as `namespace/name`", used_claims_view, "volumes"
    ),
    "volume_limits": ViewField(
        "dict[str, int]",
        "how many volumes it takes, by CSI driver; without an entry there is no limit",
        lambda info, facts: volume_limits(info.name, facts.objects),
        ("CSINode",),
        parts=("storage",),
    ),
    "csi_drivers": ViewField(
        "list[str]?",
        "the CSI drivers that are installed on it; None if it has no CSINode",
        lambda info, facts: csi_drivers(info.name, facts.objects),
        ("CSINode",),
        parts=("storage",),
    ),
    "volumes_in_use": ViewField(
        "dict[str, list[str]]",
        "the handles of the volumes that its pods use, by CSI driver",
        lambda info, facts: volumes_in_use(info, facts.objects),
        (*STORAGE_KINDS, "CSINode", ASSIGNED_POD),
        parts=("volumes", "storage"),
    ),
    "volume_counts": ViewField(
        "dict[str, int]",
        "how many volumes its pods use, by CSI driver",
        lambda info, facts: {
            driver: len(handles) for driver, handles in volumes_in_use(info, facts.objects).items()
        },
        (*STORAGE_KINDS, "CSINode", ASSIGNED_POD),
        parts=("volumes", "storage"),
    ),
    "wanted_volumes": ViewField(
        "dict[str, str]",
        "of the volumes that its pods use, those that the pod mounts too: the CSI driver by "
        "`driver/handle`",
        _volumes_by_name,
        (*STORAGE_KINDS, "CSINode", ASSIGNED_POD),
        parts=("volumes", "storage"),
        wanted=Wanted(
            frozenset(),
            lambda pod, facts: shared_volumes(pod, facts.objects, facts.volume_users),
        ),
    ),
    "other_attached_volumes": ViewField(
        "dict[str, int]",
        "how many volumes are attached to it that its pods do not use, by CSI driver",
        lambda info, facts: other_attached_volumes(info, facts.objects),
        (*STORAGE_KINDS, "CSINode", "VolumeAttachment", ASSIGNED_POD),
        parts=("volumes", "storage"),
    ),
    "pod_annotations": _pods(
        "dict[str, list[dict[str, str]]]",
        "annotations of its pods whose keys start with the one that is looked up: a dict for each "
        "pod that has such; look it up by a constant",
        _PodAnnotations,
        "pods",
        entries=Entries.MADE,
    ),
    "device_shares": _pods(
        "dict[str, list[int]]",
        "thousandths left of each of its devices, by index, by the annotations of its pods; look "
        "it up by the constant that their names start with, such as `alibabacloud.com/gpu-`",
        DeviceShares,
        "pods",
        entries=Entries.MADE,
    ),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of it from elsewhere, such as its measured load; None: nothing",
        lambda info, _: info.facts.own,
        (FACTS,),
        parts=("facts",),
        entries=Entries.FILLED,
    ),
    "pod_facts": ViewField(
        "dict[str, dict[str, Fact]]",
        "what is known of kinds of pods on it: by name, then by `pod.type`",
        lambda info, _: info.facts.of_pods,
        (FACTS,),
        parts=("facts",),
        entries=Entries.FILLED,
    ),
    "manifest": _node(
        "dict[str, any]",
        "the whole object as the API sent it; costs reuse",
        lambda i: manifest_view(_of(i).raw, _of(i).manifest),
        shows_labels=True,
        instead="read the fields that matter, such as `node.labels`",
    ),
}
