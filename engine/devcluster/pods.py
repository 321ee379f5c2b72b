"""The API server's rules for pods: defaults, admission, binding, status, graceful deletion.

Owns every rule that is special to pods. Works on plain manifests; lookups of other objects
(priority classes, runtime classes, nodes) come in as a `Lookup`, time as text.

    (created) --binding--> assigned --delete--> terminating --delete, grace 0--> gone
    (created) --delete--> gone                  (finalizers hold an object until they are removed)
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from engine.devcluster import kinds
from engine.devcluster.errors import (
    ApiStatus,
    Cause,
    bad_request,
    conflict,
    forbidden,
    internal_error,
    invalid,
    too_many_requests,
    undecodable,
)
from engine.devcluster.kinds import Kind
from engine.devcluster.quantities import QuantityRefused, amount, canonical, plain
from engine.devcluster.validation import name_problems, required, unsupported, wrong

Json = dict[str, Any]

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_NO_EXECUTE_SECONDS = 300
_TERMINAL = ("Succeeded", "Failed")
_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}


class Lookup(Protocol):
    """How admission reads other objects."""

    def find(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        """The object's manifest, or None."""
        ...

    def every(self, kind: Kind) -> Iterable[Json]:
        """Every object of a kind."""
        ...


# --- defaults ------------------------------------------------------------------------------


def canonical_amounts(kind: Kind, amounts: Json) -> Json:
    """*amounts* with every quantity in canonical text. Refuses with 400."""
    try:
        return {name: plain(value) for name, value in amounts.items()}
    except QuantityRefused as error:
        raise undecodable(kind, str(error)) from error


@lru_cache(maxsize=1024)
def _pull_policy(image: str) -> str:
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if not at and tag in ("", "latest") else "IfNotPresent"


def _default_resources(resources: Json) -> None:
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = canonical_amounts(kinds.PODS, resources[part])
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _default_container(container: Json, *, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    _default_resources(container.setdefault("resources", {}))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")


def set_defaults(spec: Json) -> None:
    """Fill in what a pod specification leaves out. Refuses malformed quantities with 400."""
    for key, value in _DEFAULTS.items():
        if not spec.get(key) and spec.get(key) != 0:
            spec[key] = value
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("securityContext", {})
    spec.setdefault("enableServiceLinks", True)
    for key in ("nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(key) == "":
            del spec[key]
    host_network = bool(spec.get("hostNetwork"))
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            _default_container(container, host_network=host_network)
    if spec.get("overhead"):
        spec["overhead"] = canonical_amounts(kinds.PODS, spec["overhead"])
    if spec.get("resources"):
        _default_pod_resources(spec)


def _default_pod_resources(spec: Json) -> None:
    resources = spec["resources"]
    for part in ("limits", "requests"):
        if resources.get(part):
            resources[part] = canonical_amounts(kinds.PODS, resources[part])
    limits = resources.get("limits") or {}
    if not limits and not resources.get("requests"):
        return
    requests = dict(resources.get("requests") or {})
    for name in sorted({*_container_resources(spec), *limits}):
        if name in requests:
            continue
        summed = _summed_requests(spec, name)
        if summed is not None:
            requests[name] = _text(summed)
        elif name in limits:
            requests[name] = limits[name]
    if requests:
        resources["requests"] = requests


def _container_resources(spec: Json) -> Iterator[str]:
    """The resources of containers that pod-level requests are derived from."""
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for name in container["resources"].get("requests") or {}:
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                yield name


def _summed_requests(spec: Json, name: str) -> Fraction | None:
    """What the containers request of *name* together, None if none of them does.

    Restartable init containers run next to the others; the rest run one by one before them.
    """
    found = False
    running = peak = Fraction(0)
    for container in spec.get("initContainers") or ():
        text = (container["resources"].get("requests") or {}).get(name)
        found |= text is not None
        value = amount(text or "0")
        if container.get("restartPolicy") == "Always":
            running += value
            peak = max(peak, running)
        else:
            peak = max(peak, running + value)
    for container in spec.get("containers") or ():
        text = (container["resources"].get("requests") or {}).get(name)
        found |= text is not None
        running += amount(text or "0")
    return max(peak, running) if found else None


def _text(value: Fraction) -> str:
    whole = value.numerator if value.denominator == 1 else None
    if whole is not None and whole % 1024 == 0 and whole >= 1024:
        return canonical(f"{whole // 1024}Ki")
    return canonical(f"{value.numerator * 1000 // value.denominator}m")


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort.

    Source:
        ComputePodQOS: only cpu and memory count, zero amounts do not.
    """
    groups = [spec["resources"]] if spec.get("resources") else []
    if not groups:
        groups = [
            container.get("resources") or {}
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        ]
    anything = False
    guaranteed = True
    for resources in groups:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            wanted, most = amount(requests.get(name) or "0"), amount(limits.get(name) or "0")
            anything |= wanted > 0 or most > 0
            guaranteed &= most > 0 and wanted == most
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


# --- admission -----------------------------------------------------------------------------


def admit(pod: Json, lookup: Lookup) -> None:
    """What the default admission plugins do to a new pod. Refuses with 403.

    Priority from its class, the overhead and selector of its runtime class, tolerations for nodes
    that are not ready or unreachable, and the topology labels of the node it is created on.
    """
    spec = pod["spec"]
    name = pod["metadata"].get("name") or ""
    _admit_priority(name, spec, lookup)
    _admit_runtime_class(name, spec, lookup)
    add_default_tolerations(spec)
    if spec.get("nodeName"):
        copy_topology_labels(pod["metadata"], lookup.find(kinds.NODES, spec["nodeName"]))


def _find_class(kind: Kind, name: str, spec: Json, lookup: Lookup) -> Json:
    """The priority class of a new pod or pod group, empty if there is none; writes its name."""
    class_name = spec.get("priorityClassName")
    if class_name:
        found = lookup.find(kinds.PRIORITY_CLASSES, class_name)
        if found is None:
            raise forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
        return found
    defaults = [item for item in lookup.every(kinds.PRIORITY_CLASSES) if item.get("globalDefault")]
    if not defaults:
        return {}
    found = min(defaults, key=lambda item: item.get("value") or 0)
    spec["priorityClassName"] = found["metadata"]["name"]
    return found


def admit_group(kind: Kind, group: Json, lookup: Lookup) -> None:
    """Give a new PodGroup the priority of its class. Refuses another one with 403."""
    spec, name = group["spec"], group["metadata"].get("name") or ""
    priority = _find_class(kind, name, spec, lookup).get("value") or 0
    if spec.get("priority") not in (None, priority):
        raise forbidden(
            kind,
            name,
            f"priority set in the pod group ({spec['priority']}) must match the priority computed "
            f"({priority}) based on the priority class set in the spec",
        )
    spec["priority"] = priority


def _admit_priority(name: str, spec: Json, lookup: Lookup) -> None:
    found = _find_class(kinds.PODS, name, spec, lookup)
    priority = found.get("value") or 0
    policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
    if spec.get("priority") is not None and spec["priority"] != priority:
        raise forbidden(
            kinds.PODS,
            name,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name",
        )
    if spec.get("preemptionPolicy") and spec["preemptionPolicy"] != policy:
        raise forbidden(
            kinds.PODS,
            name,
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
            f"provided in pod spec; priority admission controller computed {policy} from the "
            "given PriorityClass name",
        )
    spec["priority"] = priority
    spec["preemptionPolicy"] = policy


def _admit_runtime_class(name: str, spec: Json, lookup: Lookup) -> None:
    class_name = spec.get("runtimeClassName")
    found: Json = {}
    if class_name:
        runtime = lookup.find(kinds.RUNTIME_CLASSES, class_name)
        if runtime is None:
            raise forbidden(
                kinds.PODS, name, f'pod rejected: RuntimeClass "{class_name}" not found'
            )
        found = runtime
    overhead = (found.get("overhead") or {}).get("podFixed") or {}
    if spec.get("overhead") and not overhead:
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(kinds.PODS, name, why)
    if overhead:
        wanted = canonical_amounts(kinds.PODS, overhead)
        if spec.get("overhead") and spec["overhead"] != wanted:
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise forbidden(kinds.PODS, name, why)
        spec["overhead"] = wanted
    scheduling = found.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        own = spec.get("nodeSelector") or {}
        if any(own.get(key, value) != value for key, value in scheduling["nodeSelector"].items()):
            raise forbidden(kinds.PODS, name, "pod rejected: conflict in runtimeClass nodeSelector")
        spec["nodeSelector"] = {**own, **scheduling["nodeSelector"]}
    for toleration in scheduling.get("tolerations") or ():
        own_tolerations = spec.setdefault("tolerations", [])
        if toleration not in own_tolerations:
            own_tolerations.append(toleration)


def add_default_tolerations(spec: Json) -> None:
    """Tolerate not-ready and unreachable for five minutes, unless the pod says otherwise.

    Source:
        DefaultTolerationSeconds.
    """
    own = spec.get("tolerations") or []
    missing = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _NO_EXECUTE_SECONDS,
        }
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(
            toleration.get("key") in (key, None, "")
            and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in own
        )
    ]
    if missing:
        spec["tolerations"] = [*own, *missing]


def copy_topology_labels(metadata: Json, node: Json | None) -> None:
    """Give a pod the zone and region of its node."""
    labels = ((node or {}).get("metadata") or {}).get("labels") or {}
    found = {key: labels[key] for key in TOPOLOGY_LABELS if labels.get(key)}
    if found:
        metadata["labels"] = {**(metadata.get("labels") or {}), **found}


def initial_status(spec: Json, now: str) -> Json:
    """The status of a new pod; a gated one says why it waits."""
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": GATED_MESSAGE,
            }
        ]
    return status


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
    """*pod* with the container resources of *wanted*; refuses with 422 if its class changes."""
    asked = {item.get("name"): item for item in wanted["spec"].get("containers") or ()}
    containers = [
        {**item, "resources": asked[item["name"]]["resources"]} if item["name"] in asked else item
        for item in pod["spec"]["containers"]
    ]
    spec = {**pod["spec"], "containers": containers}
    before, after = qos_class(pod["spec"]), qos_class(spec)
    if before != after:
        cause = wrong("spec", before, "Pod QOS Class may not change as a result of resizing")
        raise invalid(kinds.PODS, pod["metadata"]["name"], [cause])
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
