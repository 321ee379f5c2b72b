"""Field rules: what the API server refuses with 422 in the objects that a scheduler reads.

Owns the rules that decide whether an object may exist; which of them the embedded server checks is
what the contract tests list. Defaults have been set before a rule looks.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from engine.manifests import device_rules, kinds
from engine.manifests.errors import Cause
from engine.manifests.field_rules import (
    DNS_LABEL,
    LABEL_RULE,
    NAME_TOO_LONG,
    Rules,
    denied,
    duplicate,
    label_value_problem,
    labels,
    name_problems,
    node_term,
    qualified,
    required,
    unsupported,
    wrong,
)
from engine.manifests.kinds import Kind
from engine.manifests.quantities import amount

Json = dict[str, Any]

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d\.\d{6}\d*([Zz]|[+-]\d\d:\d\d)")
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DEVICE_EFFECTS = ("NoExecute", "NoSchedule", "None")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_CONFIG_MAP_LIMIT = 1_048_576
_EVENT_NOTE_LIMIT = 1024
_USER_PRIORITY_LIMIT = 1_000_000_000
_MOST_TEMPLATES = 8


def metadata(kind: Kind, meta: Json) -> Iterator[Cause]:
    """The rules for `metadata` of every kind."""
    name = meta.get("name")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif len(name) > 253:
        yield wrong("metadata.name", name, NAME_TOO_LONG)
    elif kind is kinds.NAMESPACES:
        if len(name) > 63 or not DNS_LABEL.fullmatch(name):
            yield wrong("metadata.name", name, LABEL_RULE)
    elif kind.group == kinds.RBAC:  # `system:kube-scheduler` is a name here
        if "/" in name or "%" in name or name in (".", ".."):
            yield wrong("metadata.name", name, "may not contain '/' or '%'")
    else:
        yield from name_problems("metadata.name", name)
    yield from labels("metadata.labels", meta.get("labels") or {})
    for key in meta.get("annotations") or {}:
        yield from qualified("metadata.annotations", key.lower())


# --- pods ----------------------------------------------------------------------------------


def pod(manifest: Json) -> Iterator[Cause]:
    """The rules for a pod that a scheduler depends on."""
    spec = manifest["spec"]
    containers = spec.get("containers")
    if not containers:
        yield required("spec.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container(f"spec.{field}[{index}]", container, names)
    if "resources" in spec:
        yield from _resources("spec.resources", spec["resources"], pod_level=True)
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        yield unsupported("spec.restartPolicy", policy or "", ("Always", "OnFailure", "Never"))
    if spec.get("nodeSelector"):
        yield from labels("spec.nodeSelector", spec["nodeSelector"])
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(f"spec.tolerations[{index}]", toleration)
    if spec.get("affinity"):
        yield from _affinity("spec.affinity", spec["affinity"])
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(f"spec.topologySpreadConstraints[{index}]", constraint)
    gates = spec.get("schedulingGates")
    if gates:
        if spec.get("nodeName"):
            yield denied(
                "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
            )
        seen: set[str] = set()
        for index, gate in enumerate(gates):
            field, name = f"spec.schedulingGates[{index}].name", gate.get("name") or ""
            yield from qualified(field, name)
            if name in seen:
                yield duplicate(field, f'"{name}"')
            seen.add(name)


def _container(field: str, container: Json, names: set[str]) -> Iterator[Cause]:
    name = container.get("name")
    if not name:
        yield required(f"{field}.name")
    elif len(name) > 63 or not DNS_LABEL.fullmatch(name):
        yield wrong(f"{field}.name", name, LABEL_RULE)
    elif name in names:
        yield duplicate(f"{field}.name", f'"{name}"')
    else:
        names.add(name)
    if not container.get("image"):
        yield required(f"{field}.image")
    for index, port in enumerate(container.get("ports") or ()):
        yield from _port(f"{field}.ports[{index}]", port)
    if container.get("resources"):
        yield from _resources(f"{field}.resources", container["resources"])


def _port(field: str, port: Json) -> Iterator[Cause]:
    number = port.get("containerPort")
    if not number:
        yield required(f"{field}.containerPort")
    elif not 0 < number < 65536:
        yield wrong(f"{field}.containerPort", number, "must be between 1 and 65535, inclusive")
    host = port.get("hostPort")
    if host and not 0 < host < 65536:
        yield wrong(f"{field}.hostPort", host, "must be between 1 and 65535, inclusive")
    if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
        yield unsupported(f"{field}.protocol", port.get("protocol") or "", ("SCTP", "TCP", "UDP"))


def is_extended(name: str) -> bool:
    """True for resources that neither Kubernetes defines nor can be overcommitted."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _resources(field: str, resources: Json, *, pod_level: bool = False) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            yield from _amount(f"{field}.{part}[{name}]", name, text, pod_level=pod_level)
    for name, text in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_extended(name):
                yield required(
                    f"{field}.limits", "Limit must be set for non overcommitable resources"
                )
        elif is_extended(name) and amount(text) != amount(limit):
            yield wrong(f"{field}.requests", text, f"must be equal to {name} limit of {limit}")
        elif amount(text) > amount(limit):
            yield wrong(
                f"{field}.requests", text, f"must be less than or equal to {name} limit of {limit}"
            )


def _amount(field: str, name: str, text: str, *, pod_level: bool) -> Iterator[Cause]:
    yield from qualified(field, name)
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield wrong(field, name, "must be a standard resource type or fully qualified")
        yield wrong(field, name, "must be a standard resource for containers")
    elif pod_level and name not in ("cpu", "memory") and not name.startswith("hugepages-"):
        yield unsupported(field, name, ("cpu", "hugepages-", "memory"))
    value: Fraction = amount(text)
    if value < 0:
        yield wrong(field, text, "must be greater than or equal to 0")
    elif is_extended(name) and value.denominator != 1:
        yield wrong(field, text, "must be an integer")


def _toleration(field: str, toleration: Json) -> Iterator[Cause]:
    key = toleration.get("key")
    operator = toleration.get("operator") or "Equal"
    if key:
        yield from qualified(f"{field}.key", key)
    elif operator != "Exists":
        yield wrong(
            f"{field}.operator",
            toleration.get("operator") or "",
            "operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"',
        )
    if operator not in ("Equal", "Exists"):
        yield unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    elif operator == "Exists" and toleration.get("value"):
        yield wrong(
            f"{field}.operator",
            toleration["value"],
            "value must be empty when `operator` is 'Exists'",
        )
    effect = toleration.get("effect")
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{field}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield wrong(
            f"{field}.effect",
            effect or "",
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        )


def _spread(field: str, constraint: Json) -> Iterator[Cause]:
    skew = constraint.get("maxSkew") or 0
    if skew <= 0:
        yield wrong(f"{field}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    action = constraint.get("whenUnsatisfiable") or ""
    if action not in ("DoNotSchedule", "ScheduleAnyway"):
        yield unsupported(f"{field}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
    domains = constraint.get("minDomains")
    if domains is not None and domains <= 0:
        yield wrong(f"{field}.minDomains", domains, "must be greater than 0")


def _affinity(field: str, affinity: Json) -> Iterator[Cause]:
    nodes = affinity.get("nodeAffinity") or {}
    hard = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    if hard is not None:
        path = f"{field}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        terms = hard.get("nodeSelectorTerms")
        if not terms:
            yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
        for index, term in enumerate(terms or ()):
            yield from node_term(f"{path}.nodeSelectorTerms[{index}]", term)
    soft = nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    for index, preferred in enumerate(soft):
        path = f"{field}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _weight(path, preferred)
        yield from node_term(f"{path}.preference", preferred.get("preference") or {})
    for part in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(f"{field}.{part}", affinity.get(part) or {})


def _pod_affinity(field: str, affinity: Json) -> Iterator[Cause]:
    hard = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    for index, term in enumerate(hard):
        yield from _pod_term(
            f"{field}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", term
        )
    soft = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    for index, preferred in enumerate(soft):
        path = f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _weight(path, preferred)
        yield from _pod_term(f"{path}.podAffinityTerm", preferred.get("podAffinityTerm") or {})


def _weight(field: str, preferred: Json) -> Iterator[Cause]:
    weight = preferred.get("weight") or 0
    if not 1 <= weight <= 100:
        yield wrong(f"{field}.weight", weight, "must be in the range 1-100")


def _pod_term(field: str, term: Json) -> Iterator[Cause]:
    key = term.get("topologyKey") or ""
    if not key:
        yield required(f"{field}.topologyKey", "can not be empty")
    yield from qualified(f"{field}.topologyKey", key)


# --- other kinds ---------------------------------------------------------------------------


def node(manifest: Json) -> Iterator[Cause]:
    """The rules for a node."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((manifest.get("spec") or {}).get("taints") or ()):
        field = f"metadata.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        yield from qualified(f"{field}.key", key)
        if not effect:
            yield required(f"{field}.effect")
        elif effect not in _EFFECTS:
            yield unsupported(f"{field}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            shown = (
                f'{{"Key":"{key}","Value":"{taint.get("value") or ""}","Effect":"{effect}",'
                '"TimeAdded":null}: taints must be unique by key and effect pair'
            )
            yield duplicate(field, shown)
        seen.add((key, effect))
    status = manifest.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, text in (status.get(part) or {}).items():
            if amount(text) < 0:
                yield wrong(f"status.{part}.{name}", text, "must be greater than or equal to 0")


def config_map(manifest: Json) -> Iterator[Cause]:
    """The rules for a ConfigMap: key names, and one MiB in all."""
    size = 0
    for part in ("data", "binaryData"):
        for key, text in (manifest.get(part) or {}).items():
            if not _CONFIG_KEY.fullmatch(key):
                yield wrong(f"{part}[{key}]", key, _CONFIG_KEY_RULE)
            size += len(text.encode())
    if size > _CONFIG_MAP_LIMIT:
        yield Cause(
            "[]",
            "FieldValueTooLong",
            f"Too long: may not be more than {_CONFIG_MAP_LIMIT} bytes",
        )


def lease(manifest: Json) -> Iterator[Cause]:
    """The rules for a Lease."""
    spec = manifest.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def micro_time_problem(manifest: Json, *paths: tuple[str, ...]) -> str | None:
    """The decoding error for the first of *paths* that holds a time without microseconds."""
    for path in paths:
        value: Any = manifest
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str) and not _MICRO_TIME.fullmatch(value):
            return (
                f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": '
                f'cannot parse "{value[19:]}" as ".000000"'
            )
    return None


def event(manifest: Json, *, is_new: bool) -> Iterator[Cause]:
    """The rules for an event in its core form.

    An event with an `eventTime` has to follow the rules of events.k8s.io, through either resource;
    one without is of the old kind, which is about an object of its own namespace.
    """
    if not manifest.get("eventTime"):
        involved = manifest.get("involvedObject") or {}
        if (involved.get("namespace") or "default") != manifest["metadata"].get("namespace"):
            yield wrong(
                "involvedObject.namespace",
                involved.get("namespace") or "",
                "does not match event.namespace",
            )
        if is_new:
            yield required("eventTime")
        return
    for field, value in (
        ("reportingController", manifest.get("reportingComponent")),
        ("reportingInstance", manifest.get("reportingInstance")),
        ("action", manifest.get("action")),
        ("reason", manifest.get("reason")),
    ):
        if not value:
            yield required(field)
        if field == "reportingController":
            yield from qualified(field, value or "")
        elif len(value or "") > 128:
            yield wrong(field, "", "can have at most 128 characters")
    if manifest.get("type") not in ("Normal", "Warning"):
        yield wrong("type", "", "has invalid value: " + str(manifest.get("type") or ""))
    if len(manifest.get("message") or "") > _EVENT_NOTE_LIMIT:
        yield wrong("message", "", f"can have at most {_EVENT_NOTE_LIMIT} characters")


def priority_class(manifest: Json) -> Iterator[Cause]:
    """The rules for a PriorityClass."""
    name = manifest["metadata"].get("name") or ""
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            yield denied(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. "
                "error: system priority classes are not allowed",
            )
    elif (manifest.get("value") or 0) > _USER_PRIORITY_LIMIT:
        yield denied(
            "value",
            "maximum allowed value of a user defined priority is " + str(_USER_PRIORITY_LIMIT),
        )


def device_taint_rule(manifest: Json) -> Iterator[Cause]:
    """The rules for a DeviceTaintRule: its taint is complete."""
    taint = (manifest.get("spec") or {}).get("taint") or {}
    yield from qualified("spec.taint.key", taint.get("key") or "")
    problem = label_value_problem(taint.get("value") or "")
    if problem:
        yield wrong("spec.taint.value", taint["value"], problem)
    effect = taint.get("effect") or ""
    if not effect:
        yield required("spec.taint.effect")
    elif effect not in _DEVICE_EFFECTS:
        yield unsupported("spec.taint.effect", effect, _DEVICE_EFFECTS)


def pod_group(manifest: Json) -> Iterator[Cause]:
    """The rules for a PodGroup."""
    yield from _group_terms("spec", manifest.get("spec") or {})


def workload(manifest: Json) -> Iterator[Cause]:
    """The rules for a Workload."""
    templates = (manifest.get("spec") or {}).get("podGroupTemplates") or []
    if not templates:
        yield wrong(
            "spec", "", "must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`"
        )
    if len(templates) > _MOST_TEMPLATES:
        yield Cause(
            "spec.podGroupTemplates",
            "FieldValueTooMany",
            f"Too many: {len(templates)}: must have at most {_MOST_TEMPLATES} items",
        )
    for index, template in enumerate(templates):
        field = f"spec.podGroupTemplates[{index}]"
        if not template.get("name"):
            yield required(f"{field}.name")
        yield from _group_terms(field, template)


def _group_terms(field: str, spec: Json) -> Iterator[Cause]:
    yield from _union(f"{field}.schedulingPolicy", spec.get("schedulingPolicy"), ("basic", "gang"))
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    count = None if gang is None else gang.get("minCount")
    if gang is not None and not count:
        yield required(f"{field}.schedulingPolicy.gang.minCount")
    elif count is not None and count < 1:
        yield wrong(
            f"{field}.schedulingPolicy.gang.minCount",
            count,
            "must be greater than or equal to 1",
        )
    if spec.get("disruptionMode") is not None:
        yield from _union(f"{field}.disruptionMode", spec["disruptionMode"], ("single", "all"))
    if (spec.get("priority") or 0) > _USER_PRIORITY_LIMIT:
        limit = f"must be less than or equal to {_USER_PRIORITY_LIMIT}"
        yield wrong(f"{field}.priority", spec["priority"], limit)


def _union(field: str, given: Json | None, members: tuple[str, ...]) -> Iterator[Cause]:
    """Exactly one of *members* has to be there."""
    present = [name for name in members if (given or {}).get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not present:
        yield wrong(field, "", f"must specify one of: {listed}")
    elif len(present) > 1:
        shown = ", ".join(f"`{name}`" for name in present)
        yield wrong(field, f"{{{shown}}}", f"must specify exactly one of: {listed}")


def _by_table(rules: Rules) -> Callable[[Json], Iterator[Cause]]:
    return lambda manifest: rules.problems("", manifest)


RULES: dict[Kind, Callable[[Json], Iterator[Cause]]] = {
    kinds.PODS: pod,
    kinds.NODES: node,
    kinds.CONFIG_MAPS: config_map,
    kinds.LEASES: lease,
    kinds.PRIORITY_CLASSES: priority_class,
    kinds.DEVICE_TAINT_RULES: device_taint_rule,
    kinds.POD_GROUPS: pod_group,
    kinds.ALPHA_POD_GROUPS: pod_group,
    kinds.WORKLOADS: workload,
    kinds.ALPHA_WORKLOADS: workload,
    kinds.RESOURCE_CLAIMS: _by_table(device_rules.CLAIM),
    kinds.RESOURCE_CLAIM_TEMPLATES: _by_table(device_rules.TEMPLATE),
    kinds.RESOURCE_SLICES: _by_table(device_rules.SLICE),
    kinds.DEVICE_CLASSES: _by_table(device_rules.CLASS),
    kinds.EVENTS: lambda manifest: event(manifest, is_new=False),
    kinds.NEW_EVENTS: lambda manifest: event(manifest, is_new=True),
}


def problems(kind: Kind, manifest: Json) -> list[Cause]:
    """Everything wrong with *manifest*, in the order of its fields."""
    found = list(metadata(kind, manifest["metadata"]))
    rules = RULES.get(kind)
    if rules:
        found += rules(manifest)
    return found


def update_problems(kind: Kind, new: Json, old: Json) -> list[Cause]:
    """What an update may not change, beyond the rules of the object itself."""
    found: list[Cause] = []
    if kind is kinds.PODS and new["spec"] != old["spec"]:
        found += _pod_changes(new["spec"], old["spec"])
    elif kind is kinds.PRIORITY_CLASSES and new.get("value") != old.get("value"):
        found.append(denied("value", "may not be changed in an update."))
    elif kind is kinds.CONFIG_MAPS and old.get("immutable") and new.get("data") != old.get("data"):
        found.append(denied("data", "field is immutable when `immutable` is set"))
    elif kind in (kinds.POD_GROUPS, kinds.ALPHA_POD_GROUPS):
        found += _pod_group_changes(new["spec"], old["spec"])
    for path in _IMMUTABLE.get(kind, ()):
        if _value(new, path) != _value(old, path):
            found.append(wrong(path, "", "field is immutable"))
    return found


#: The fields that no update may change.
_IMMUTABLE: dict[Kind, tuple[str, ...]] = {
    kinds.RESOURCE_CLAIMS: ("spec",),
    kinds.RESOURCE_CLAIM_TEMPLATES: ("spec",),
    kinds.RESOURCE_SLICES: ("spec.driver", "spec.nodeName", "spec.pool.name"),
}


def _value(manifest: Json, path: str) -> Any:
    value: Any = manifest
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def status_problems(kind: Kind, new: Json, old: Json) -> list[Cause]:
    """What an update of the status may not do."""
    rules = _STATUS_RULES.get(kind)
    return list(rules(new, old)) if rules else []


_STATUS_RULES: dict[Kind, Callable[[Json, Json], Iterator[Cause]]] = {
    kinds.RESOURCE_CLAIMS: device_rules.claim_status,
}


def _pod_group_changes(new: Json, old: Json) -> Iterator[Cause]:
    """All but the number of a gang is as it was made."""
    now, before = new["schedulingPolicy"], old["schedulingPolicy"]
    for name in ("basic", "gang"):
        if (now.get(name) is None) != (before.get(name) is None):
            yield wrong(f"spec.schedulingPolicy.{name}", "", "field is immutable")
    for field in sorted({*new, *old} - {"schedulingPolicy"}):
        if new.get(field) != old.get(field):
            yield wrong(f"spec.{field}", "", "field is immutable")


_POD_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def _pod_changes(new: Json, old: Json) -> Iterator[Cause]:
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            yield denied(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )
            return
    kept = {_identity(toleration) for toleration in new.get("tolerations") or ()}
    if any(_identity(toleration) not in kept for toleration in old.get("tolerations") or ()):
        yield denied(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
        return
    if _settled(new, gated=bool(gates)) != _settled(old, gated=bool(gates)):
        yield denied("spec", _POD_IMMUTABLE)
        return
    if gates:
        selector = old.get("nodeSelector") or {}
        if any((new.get("nodeSelector") or {}).get(key) != selector[key] for key in selector):
            yield wrong(
                "spec.nodeSelector",
                "",
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            )


def _identity(toleration: Json) -> tuple[str, ...]:
    """A toleration without its seconds, which may change."""
    return (
        toleration.get("key") or "",
        toleration.get("operator") or "Equal",
        toleration.get("value") or "",
        toleration.get("effect") or "",
    )


def _settled(spec: Json, *, gated: bool) -> Json:
    """The part of a pod's specification that no update may change."""
    free = {"tolerations", "schedulingGates", "activeDeadlineSeconds"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    kept = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [
                {key: value for key, value in item.items() if key != "image"}
                for item in kept[field]
            ]
    return kept
