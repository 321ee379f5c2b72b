"""The API server's rules for pods that exist: binding, status, resize, eviction, deletion.

Owns every rule that is special to pods after their creation. Works on plain manifests; nodes and
disruption budgets come in as manifests, time as text.

    (created) --binding--> assigned --delete--> terminating --delete, grace 0--> gone
    (created) --delete--> gone                  (finalizers hold an object until they are removed)
"""

from collections.abc import Iterable
from typing import Any

from engine.manifests import kinds, pod_rules
from engine.manifests.admission import copy_topology_labels
from engine.manifests.errors import (
    ApiStatus,
    Cause,
    bad_request,
    conflict,
    internal_error,
    invalid,
    too_many_requests,
)
from engine.manifests.field_rules import name_problems, required, unsupported

Json = dict[str, Any]

_TERMINAL = ("Succeeded", "Failed")


# --- status and binding --------------------------------------------------------------------


def settle_status(status: Json) -> None:
    """The form that the server gives a written status."""
    for condition in status.get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for key in ("nominatedNodeName", "conditions"):
        if key in status and not status[key]:
            del status[key]


def bind(pod: Json, target: str, sent: Json, node: Json | None, now: str) -> Json:
    """*pod* assigned to the node *target*; *pod* itself is not changed.

    Args:
        sent: The metadata of the binding; its labels and annotations are added to the pod's.
        node: The node's manifest. It need not exist.

    Refuses with 409 if the pod is assigned, gated or being deleted.
    """
    name = pod["metadata"]["name"]
    spec, metadata = dict(pod["spec"]), dict(pod["metadata"])
    why = ""
    if metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict(kinds.PODS, name, why, label="pods/binding")
    spec["nodeName"] = target
    for field in ("annotations", "labels"):
        if sent.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **sent[field]}
    copy_topology_labels(metadata, node)
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = _scheduled(status.get("conditions") or [], now)
    return {**pod, "metadata": metadata, "spec": spec, "status": status}


def target_of(binding: Json) -> str:
    """The node that *binding* names. Refuses with 500, as the real server, if there is none."""
    target = binding.get("target") or {}
    causes: list[Cause] = []
    if target.get("kind") not in (None, "", "Node"):
        causes.append(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        causes.append(required("target.name"))
    elif not causes:
        causes += name_problems("target.name", target["name"])
    if causes:
        texts = [str(cause) for cause in causes]
        raise internal_error(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    name: str = target["name"]
    return name


def _scheduled(conditions: list[Json], now: str) -> list[Json]:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    for index, existing in enumerate(conditions):
        if existing.get("type") == "PodScheduled":
            return [*conditions[:index], condition, *conditions[index + 1 :]]
    return [*conditions, condition]


def check_binding(body: Json, namespace: str, name: str) -> None:
    """Refuse with 400 a binding that is not about the pod in the URL."""
    metadata = body.get("metadata") or {}
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")


# --- deletion ------------------------------------------------------------------------------


def grace_seconds(pod: Json, asked: int | None) -> int:
    """How long the pod may take to end.

    Zero for a pod that runs nowhere: not assigned, or finished.
    """
    spec = pod["spec"]
    seconds: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    phase = (pod.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in _TERMINAL:
        return 0
    return 1 if seconds < 0 else seconds


def resize(pod: Json, wanted: Json) -> Json:
    """*pod* with the resources of *wanted*, its containers' and its own; refuses with 422."""
    found = list(pod_rules.resize(wanted["spec"], pod["spec"]))
    if found:
        raise invalid(kinds.PODS, pod["metadata"]["name"], found)
    spec = dict(pod["spec"])
    if "resources" in wanted["spec"]:
        spec["resources"] = wanted["spec"]["resources"]
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [
                {**item, "resources": other["resources"]}
                for item, other in zip(spec[part], wanted["spec"][part], strict=True)
            ]
    return {**pod, "spec": spec}


def evictable(pod: Json, budgets: Iterable[Json]) -> ApiStatus | None:
    """None if *budgets* (those that select the pod) allow one more disruption, else the refusal."""
    phase = (pod.get("status") or {}).get("phase")
    if phase in (*_TERMINAL, "Pending", None) or pod["metadata"].get("deletionTimestamp"):
        return None
    for budget in budgets:
        if (budget.get("status") or {}).get("disruptionsAllowed", 0) > 0:
            continue
        status = budget.get("status") or {}
        name = budget["metadata"]["name"]
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            text, seconds = (
                f"The disruption budget {name} is still being processed by the server.",
                10,
            )
        else:
            text = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} "
                f"healthy pods and has {status.get('currentHealthy', 0)} currently"
            )
            seconds = 0
        return too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            seconds,
            [{"reason": "DisruptionBudget", "message": text}],
        )
    return None
