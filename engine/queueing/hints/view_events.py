"""Whose changes can change a field of a view, beside those of the pod or node that it is of.

Owns that table and nothing else. It has to be complete over `policy.views`: a field that is missing
here counts as one that anything can change, and a test says so.
"""

from collections.abc import Mapping
from typing import Final

from engine.policy.views import VIEWS
from engine.queueing.events import ASSIGNED_POD, FACTS, NODE

ANYTHING: Final = "*"
"""In place of the resource of an event: any."""

_NOTHING: Final[tuple[str, ...]] = ()
_OWNERS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_STORAGE: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


def _written(*names: str) -> dict[str, tuple[str, ...]]:
    """Fields that are written on the object itself, or follow from what is."""
    return dict.fromkeys(names, _NOTHING)


FIELD_EVENTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "pod": {
        **_written("name", "namespace", "uid", "labels", "annotations", "owner", "created_at"),
        **_written("is_terminating", "priority", "priority_class_name", "preemption_policy"),
        **_written("qos_class", "scheduler_name", "service_account_name", "node_name"),
        **_written("nominated_node_name", "node_selector", "node_affinity", "pod_affinity"),
        **_written("pod_anti_affinity", "topology_spread_constraints", "tolerations"),
        **_written("scheduling_gates", "requests", "nonzero_requests", "scoring_requests"),
        **_written("containers", "init_containers", "image_volumes", "host_ports"),
        **_written("host_network", "host_users", "pod_group_name", "limits", "overhead"),
        **_written("start_time", "manifest"),
        "volumes": (*_STORAGE, ASSIGNED_POD),  # their objects, and who uses them
        "device_resources": ("DeviceClass",),
        "namespace_labels": ("Namespace",),
        "spread_selector": _OWNERS,
        "type": (FACTS,),
        "facts": (FACTS,),
    },
    "node": {
        **_written("name", "labels", "annotations", "created_at", "taints", "unschedulable"),
        **_written("allocatable", "capacity", "conditions", "declared_features", "manifest"),
        "images": (NODE,),  # on how many nodes they are
        "requested": (ASSIGNED_POD,),
        "nonzero_requested": (ASSIGNED_POD,),
        "pod_count": (ASSIGNED_POD,),
        "used_ports": (ASSIGNED_POD,),
        "limits": (ASSIGNED_POD,),
        "pod_annotations": (ASSIGNED_POD,),
        "device_shares": (ASSIGNED_POD,),
        "used_disks": (ASSIGNED_POD,),
        "used_claims": (ASSIGNED_POD,),
        "volume_limits": ("CSINode",),
        "volumes_in_use": (*_STORAGE, "CSINode", ASSIGNED_POD),
        "other_attached_volumes": (*_STORAGE, "CSINode", "VolumeAttachment", ASSIGNED_POD),
        "facts": (FACTS,),
        "pod_facts": (FACTS,),
    },
    "cluster": {"node_count": (NODE,), "facts": (FACTS,)},
    # Whoever counts groups has their pods reconsidered when one changes, all of them at once and
    # once for a hundred new pods; so no event has to.
    "group": {
        **_written("name", "exists", "min_count", "created_at", "priority", "pod_count"),
        **_written("pending", "waiting", "placed"),
    },
}


def resources_behind(view: str, fields: frozenset[str]) -> frozenset[str]:
    """The resources whose events can change one of *fields*, beside the object that has them."""
    known = FIELD_EVENTS.get(view, {})
    return frozenset(resource for field in fields for resource in known.get(field, (ANYTHING,)))


def fields_of(view: str, paths: frozenset[str]) -> frozenset[str]:
    """The fields that *paths* (those of `analysis.Reads`) reach."""
    fields = set()
    for path in paths:
        if path == ANYTHING:
            fields |= VIEWS[view].keys() - {"manifest"}
        else:
            fields.add(path.partition("[")[0].partition(".")[0])
    return frozenset(fields)
