"""What the default admission plugins of the API server do to a new object.

Owns admission only: defaults have been set before, and validation looks afterwards. Other objects
(priority classes, runtime classes, nodes) are read through a `Lookup`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from engine.core.manifests import kinds, limit_ranges
from engine.core.manifests.errors import forbidden
from engine.core.manifests.kinds import Kind
from engine.core.manifests.pod_defaults import canonical_amounts, set_pod_resources
from engine.core.model.storage import BETA_CLASS

Json = dict[str, Any]

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
# Finalizers that keep what is used.
POD_GROUP_PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
_NO_EXECUTE_SECONDS = 300
_DEFAULT_MARKS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class Lookup(Protocol):
    """How admission reads other objects."""

    def find(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        """The object's manifest, or None."""
        ...

    def every(self, kind: Kind) -> Iterable[Json]:
        """Every object of a kind."""
        ...


def admit(kind: Kind, manifest: Json, lookup: Lookup) -> None:
    """What the default admission plugins do to a new object. Refuses with 403."""
    plugins = _ADMISSION.get(kind)
    if plugins:
        plugins(manifest, lookup)


def check(kind: Kind, manifest: Json, lookup: Lookup) -> None:
    """What the admission plugins look at in a sound object, new or changed. Refuses with 403."""
    if kind is kinds.PRIORITY_CLASSES and manifest.get("globalDefault"):
        _check_default_class(manifest, lookup)


def _check_default_class(priority_class: Json, lookup: Lookup) -> None:
    """Refuse a second default."""
    found = _default_priority_class(lookup)
    metadata = priority_class["metadata"]
    if found is None or found["metadata"]["uid"] == metadata["uid"]:
        return
    why = f"PriorityClass {found['metadata']['name']} is already marked as default. Only one"
    raise forbidden(kinds.PRIORITY_CLASSES, metadata["name"], f"{why} default can exist")


def _default_priority_class(lookup: Lookup) -> Json | None:
    """The priority class of what names none; the lowest if there are several after all."""
    defaults = [item for item in lookup.every(kinds.PRIORITY_CLASSES) if item.get("globalDefault")]
    return min(defaults, key=lambda item: item.get("value") or 0, default=None)


def _admit_namespace(namespace: Json, _: Lookup) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}


def _admit_volume(volume: Json, _: Lookup) -> None:
    _protect(volume["metadata"], VOLUME_PROTECTION)


def _admit_claim(claim: Json, lookup: Lookup) -> None:
    _protect(claim["metadata"], CLAIM_PROTECTION)
    has_class = BETA_CLASS in (claim["metadata"].get("annotations") or {})
    if "storageClassName" not in claim["spec"] and not has_class:
        chosen = _default_storage_class(lookup)
        if chosen:
            claim["spec"]["storageClassName"] = chosen
    limit_ranges.check_claim(claim, _limit_ranges(claim, lookup))


def _protect(metadata: Json, finalizer: str) -> None:
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]


def _default_storage_class(lookup: Lookup) -> str:
    """The newest class that is marked as the default; of several, the first by name."""
    found = [item["metadata"] for item in lookup.every(kinds.STORAGE_CLASSES)]
    marked = [
        meta
        for meta in sorted(found, key=lambda meta: str(meta["name"]))
        if any((meta.get("annotations") or {}).get(mark) == "true" for mark in _DEFAULT_MARKS)
    ]
    newest = max(marked, key=lambda meta: meta.get("creationTimestamp") or "", default=None)
    return newest["name"] if newest else ""


def _admit_pod(pod: Json, lookup: Lookup) -> None:
    """Admit a pod.

    Priority from its class, the overhead and selector of its runtime class, the defaults and bounds
    of the LimitRanges of its namespace, tolerations for nodes that are not ready or unreachable,
    and the topology labels of the node it is created on. Then its selectors get its own labels, and
    its resources those of its containers.
    """
    spec = pod["spec"]
    name = pod["metadata"].get("name") or ""
    _admit_priority(name, spec, lookup)
    _admit_runtime_class(name, spec, lookup)
    found = _limit_ranges(pod, lookup)
    limit_ranges.add_defaults(pod, found)
    limit_ranges.check_pod(pod, found)
    add_default_tolerations(spec)
    if spec.get("nodeName"):
        copy_topology_labels(pod["metadata"], lookup.find(kinds.NODES, spec["nodeName"]))
    _merge_label_keys(spec, pod["metadata"].get("labels") or {})
    set_pod_resources(spec)


def _limit_ranges(manifest: Json, lookup: Lookup) -> list[Json]:
    """The LimitRanges of the namespace of *manifest*, in the order of their names."""
    namespace = manifest["metadata"].get("namespace") or "default"
    found = [
        item
        for item in lookup.every(kinds.LIMIT_RANGES)
        if (item["metadata"].get("namespace") or "default") == namespace
    ]
    return sorted(found, key=lambda item: str(item["metadata"].get("name")))


def _merge_label_keys(spec: Json, labels: Json) -> None:
    """Add the pod's own values of `matchLabelKeys` and `mismatchLabelKeys` to its selectors.

    A selector that is absent selects nothing, and stays absent.

    Source:
        mutatePodAffinity and mutateTopologySpreadConstraints.
    """
    terms = list(spec.get("topologySpreadConstraints") or ())
    for part in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(part) or {}
        terms += affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        soft = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [one.get("podAffinityTerm") or {} for one in soft]
    for term in terms:
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(field) or ():
                if key not in labels:
                    continue
                merged = {"key": key, "operator": operator, "values": [labels[key]]}
                expressions = selector.get("matchExpressions") or []
                # A manifest that was read from a cluster and changed has it already.
                if merged not in expressions:
                    selector["matchExpressions"] = [*expressions, merged]


def _find_class(kind: Kind, name: str, spec: Json, lookup: Lookup) -> Json:
    """The priority class of a new pod or pod group, empty if there is none; writes its name."""
    class_name = spec.get("priorityClassName")
    if class_name:
        found = lookup.find(kinds.PRIORITY_CLASSES, class_name)
        if found is None:
            raise forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
        return found
    found = _default_priority_class(lookup)
    if found is None:
        return {}
    spec["priorityClassName"] = found["metadata"]["name"]
    return found


def _admit_group(group: Json, lookup: Lookup) -> None:
    """Give a new PodGroup the priority of its class; it stays while pods need it."""
    _protect(group["metadata"], POD_GROUP_PROTECTION)
    spec, name = group["spec"], group["metadata"].get("name") or ""
    priority = _find_class(kinds.POD_GROUPS, name, spec, lookup).get("value") or 0
    if spec.get("priority") not in (None, priority):
        raise forbidden(
            kinds.POD_GROUPS,
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


_ADMISSION: dict[Kind, Callable[[Json, Lookup], None]] = {
    kinds.PODS: _admit_pod,
    kinds.NAMESPACES: _admit_namespace,
    kinds.PERSISTENT_VOLUMES: _admit_volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _admit_claim,
    kinds.POD_GROUPS: _admit_group,
    kinds.ALPHA_POD_GROUPS: _admit_group,
}
