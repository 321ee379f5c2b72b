"""The API server's rules for pods that exist: binding, status, resize, eviction, deletion.

Owns every rule that is special to pods after their creation. Works on plain manifests; nodes and
disruption budgets come in as manifests, time as text.

    (created) --binding--> assigned --delete--> terminating --delete, grace 0--> gone
    (created) --delete--> gone                  (finalizers hold an object until they are removed)
"""

from collections.abc import Sequence
from typing import Any

from engine.core.manifests import kinds, pod_rules
from engine.core.manifests.admission import copy_topology_labels
from engine.core.manifests.errors import (
    Cause,
    bad_request,
    conflict,
    internal_error,
    invalid,
    too_many_requests,
)
from engine.core.manifests.field_rules import name_problems, required, unsupported

Json = dict[str, Any]

TERMINAL = ("Succeeded", "Failed")


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
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    status["conditions"] = _with_condition(status, condition, now)
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
    if not spec.get("nodeName") or phase in TERMINAL:
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


# --- eviction ------------------------------------------------------------------------------


def check_eviction(body: Json, name: str) -> None:
    """Refuse with 400 an eviction that is not of the pod in the URL."""
    if (body.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")


def needs_no_budget(pod: Json) -> bool:
    """True for a pod whose eviction disrupts nothing: it has not begun, has ended, or will."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in (*TERMINAL, "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def budget_spent(pod: Json, budgets: Sequence[Json]) -> Json | None:
    """The budget that is charged for the eviction of *pod*, None for none.

    Args:
        budgets: Those that select the pod.

    Refuses with 429 if the budget allows no disruption, and with 500 if there are several.

    Source:
        EvictionREST.Create.
    """
    if len(budgets) > 1:
        raise internal_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    for budget in budgets:
        status = budget.get("status") or {}
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        is_ready = (_condition(pod["status"], "Ready") or {}).get("status") == "True"
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not is_ready and (always or healthy >= wanted > 0):
            return None
        name, seconds = budget["metadata"]["name"], 0
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            text = f"The disruption budget {name} is still being processed by the server."
            seconds = 10
        elif status.get("disruptionsAllowed", 0) > 0:
            return budget
        else:
            text = _why_none(name, status, healthy, wanted)
        raise too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            seconds,
            [{"reason": "DisruptionBudget", "message": text}],
        )
    return None


def _why_none(name: str, status: Json, healthy: int, wanted: int) -> str:
    """Why a budget allows no disruption."""
    condition = _condition(status, "DisruptionAllowed") or {}
    reason = condition.get("reason") or ""
    message = condition.get("message") if condition.get("status") == "False" else ""
    refused = f"The disruption budget {name} does not allow evicting pods currently"
    if message and reason == "SyncFailed":
        return f"{refused} because it failed sync: {message}"
    if healthy <= wanted:
        return (
            f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        )
    return f"{refused} ({reason}): {message}" if message else refused


def charged(budget: Json, pod_name: str, now: str) -> Json:
    """*budget* with one disruption less, and the pod among those that it has been spent on."""
    status = dict(budget["status"])
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: now}
    if not status["disruptionsAllowed"]:
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration", 0),
            "reason": "InsufficientPods",
            "message": "",
        }
        status["conditions"] = _with_condition(status, condition, now)
    return {**budget, "metadata": dict(budget["metadata"]), "status": status}


def evicted(pod: Json, now: str) -> Json:
    """*pod* with the condition that says why it ends."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = {**pod["status"], "conditions": _with_condition(pod["status"], condition, now)}
    return {**pod, "metadata": dict(pod["metadata"]), "status": status}


def _condition(status: Json, kind: str) -> Json | None:
    conditions = status.get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)


def _with_condition(status: Json, condition: Json, now: str) -> list[Json]:
    """The conditions of *status* with *condition* in the place of that of its type."""
    conditions: list[Json] = list(status.get("conditions") or ())
    old = _condition(status, condition["type"])
    is_same = old is not None and old.get("status") == condition["status"]
    since = old.get("lastTransitionTime") if old and is_same else now
    new = {**condition, "lastTransitionTime": since}
    if old is None:
        return [*conditions, new]
    return [new if one is old else one for one in conditions]
