"""Tables for people: what `kubectl get` shows of pods, nodes and everything else.

Owns the columns. Clients ask for tables by `Accept: application/json;as=Table`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from devkit.cluster.store import Version
from engine.core.manifests import kinds
from engine.core.manifests.kinds import Kind

Json = dict[str, Any]
Row = list[Any]

_NONE = "<none>"
_ROLE = "node-role.kubernetes.io/"
_POD_COLUMNS = (
    ("Name", 0),
    ("Ready", 0),
    ("Status", 0),
    ("Restarts", 0),
    ("Age", 0),
    ("IP", 1),
    ("Node", 1),
    ("Nominated Node", 1),
    ("Readiness Gates", 1),
)
_NODE_COLUMNS = (("Name", 0), ("Status", 0), ("Roles", 0), ("Age", 0), ("Version", 0))
_EVENT_COLUMNS = (("Last Seen", 0), ("Type", 0), ("Reason", 0), ("Object", 0), ("Message", 0))
_COLUMNS = (("Name", 0), ("Age", 0))


def age(created: str, now: str) -> str:
    """The time between two timestamps, as short as kubectl writes it."""
    passed = datetime.fromisoformat(now) - datetime.fromisoformat(created)
    seconds = max(0, int(passed.total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _pod(pod: Json, now: str) -> Row:
    spec, status = pod["spec"], pod.get("status") or {}
    containers = len(spec.get("containers") or ())
    started = status.get("containerStatuses") or ()
    ready = sum(1 for container in started if container.get("ready"))
    phase = status.get("phase", "")
    if pod["metadata"].get("deletionTimestamp"):
        phase = "Terminating"
    elif spec.get("schedulingGates"):
        phase = "SchedulingGated"
    elif phase == "Succeeded":
        phase = "Completed"
    return [
        pod["metadata"]["name"],
        f"{ready}/{containers}",
        phase,
        "0",
        age(pod["metadata"]["creationTimestamp"], now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def _node(node: Json, now: str) -> Row:
    status = node.get("status") or {}
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
    state = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready") or "", "Unknown")
    if node["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return [
        node["metadata"]["name"],
        state,
        ",".join(roles) or _NONE,
        age(node["metadata"]["creationTimestamp"], now),
        (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
    ]


def _event(event: Json, now: str) -> Row:
    involved = event.get("involvedObject") or {}
    seen = event.get("lastTimestamp") or event.get("eventTime") or ""
    return [
        age(seen, now) if seen else "<unknown>",
        event.get("type", ""),
        event.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
        event.get("message", ""),
    ]


def _plain(manifest: Json, now: str) -> Row:
    metadata = manifest["metadata"]
    return [metadata["name"], age(metadata["creationTimestamp"], now)]


_SHOWN: dict[Kind, tuple[Sequence[tuple[str, int]], Callable[[Json, str], Row]]] = {
    kinds.PODS: (_POD_COLUMNS, _pod),
    kinds.NODES: (_NODE_COLUMNS, _node),
    kinds.EVENTS: (_EVENT_COLUMNS, _event),
    kinds.NEW_EVENTS: (_EVENT_COLUMNS, _event),
}


def as_table(kind: Kind, versions: Sequence[Version], metadata: Json, now: str) -> Json:
    """*versions* as a `Table` object; priority 1 columns are those of `-o wide`."""
    columns, row = _SHOWN.get(kind, (_COLUMNS, _plain))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": priority}
            for name, priority in columns
        ],
        "rows": [
            {
                "cells": row(version.manifest, now),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": version.manifest["metadata"],
                },
            }
            for version in versions
        ],
    }
