"""Field rules: what the API server refuses with 422 in the objects that a scheduler reads.

Owns the rules that decide whether an object may exist; which of them the embedded server checks is
what the contract tests list. Defaults have been set before a rule looks.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from engine.core.framework.behaviors import Behaviors
from engine.core.manifests import (
    device_rules,
    kinds,
    pod_rules,
    storage_rules,
    workload_rules,
)
from engine.core.manifests.errors import Cause
from engine.core.manifests.field_rules import (
    DNS_LABEL,
    LABEL_RULE,
    NAME_TOO_LONG,
    Rules,
    denied,
    duplicate,
    is_set,
    label_if_set,
    label_selector,
    label_value_problem,
    labels,
    name_problems,
    qualified,
    required,
    unique,
    unsupported,
    wrong,
)
from engine.core.manifests.kinds import Kind
from engine.core.manifests.quantities import amount
from engine.core.manifests.schema import without_empties

Json = dict[str, Any]

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DEVICE_EFFECTS = ("NoExecute", "NoSchedule", "None")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_PERCENTAGE = re.compile(r"[0-9]+%")
_CONFIG_MAP_LIMIT = 1_048_576
_EVENT_NOTE_LIMIT = 1024
_EVENT_WORD_LIMIT = 128
_USER_PRIORITY_LIMIT = 1_000_000_000
# The API server takes so many templates of pod groups in a Workload.
_MOST_TEMPLATES = 8
_ONLY_GANGS = "only_gangs_go_as_one"


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
        problem = label_value_problem(taint.get("value") or "")
        if problem:
            yield wrong(f"{field}.value", taint["value"], problem)
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
            elif pod_rules.is_integer(name) and amount(text).denominator != 1:
                yield wrong(f"status.{part}.{name}", text, "must be an integer")


def config_map(manifest: Json) -> Iterator[Cause]:
    """The rules for a ConfigMap: key names, and one MiB in all."""
    size = 0
    for part in ("data", "binaryData"):
        for key, text in (manifest.get(part) or {}).items():
            if not _CONFIG_KEY.fullmatch(key):
                yield wrong(f"{part}[{key}]", key, _CONFIG_KEY_RULE)
            size += len(text.encode()) if part == "data" else _decoded_size(text)
    for key in manifest.get("data") or {}:
        if key in (manifest.get("binaryData") or {}):
            yield wrong(f"data[{key}]", key, "duplicate of key present in binaryData")
    if size > _CONFIG_MAP_LIMIT:
        yield Cause(
            "[]",
            "FieldValueTooLong",
            f"Too long: may not be more than {_CONFIG_MAP_LIMIT} bytes",
        )


def _decoded_size(text: str) -> int:
    """The bytes that *text* stands for, which is base64."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def lease(manifest: Json) -> Iterator[Cause]:
    """The rules for a Lease."""
    spec = manifest.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def event(manifest: Json, *, controller: str) -> Iterator[Cause]:
    """The rules for an event in its core form, however it is written.

    One with an `eventTime` has to be complete; one without is of the old kind, which is about an
    object of its own namespace.

    Args:
        controller: What the resource calls the `reportingComponent`.

    Source:
        legacyValidateEvent.
    """
    namespace = manifest["metadata"].get("namespace")
    about = (manifest.get("involvedObject") or {}).get("namespace") or ""
    if manifest.get("eventTime"):
        is_elsewhere = not about and namespace not in ("default", "kube-system")
    else:
        is_elsewhere = (about or "default") != namespace
    if is_elsewhere:
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")
    if not manifest.get("eventTime"):
        return
    for field, value in (
        (controller, manifest.get("reportingComponent")),
        ("reportingInstance", manifest.get("reportingInstance")),
        ("action", manifest.get("action")),
        ("reason", manifest.get("reason")),
    ):
        if not value:
            yield required(field)
        if field == controller:
            yield from qualified(field, value or "")
        elif _size(value) > _EVENT_WORD_LIMIT:
            yield wrong(field, "", f"can have at most {_EVENT_WORD_LIMIT} characters")
    if _size(manifest.get("message")) > _EVENT_NOTE_LIMIT:
        yield wrong("message", "", f"can have at most {_EVENT_NOTE_LIMIT} characters")


def _size(text: str | None) -> int:
    """The bytes of *text*, which the API server calls characters."""
    return len((text or "").encode())


def _created_event(manifest: Json) -> Iterator[Cause]:
    """The rules for an event that is created through events.k8s.io."""
    yield from _series(manifest)
    if not manifest.get("eventTime"):
        yield required("eventTime")
    if manifest.get("type") not in ("Normal", "Warning"):
        yield wrong("type", "", "has invalid value: " + str(manifest.get("type") or ""))
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if manifest.get(field):
            yield wrong(field, "", "needs to be unset")
    if any((manifest.get("source") or {}).values()):
        yield wrong("source", "", "needs to be unset")


def _series(manifest: Json) -> Iterator[Cause]:
    series = manifest.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield wrong("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


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

    policy = manifest.get("preemptionPolicy")
    if policy not in ("Never", "PreemptLowerPriority"):
        yield unsupported("preemptionPolicy", policy or "", ("Never", "PreemptLowerPriority"))


def runtime_class(manifest: Json) -> Iterator[Cause]:
    """The rules for a RuntimeClass."""
    yield from _RUNTIME_CLASS.problems("", manifest)
    fixed = (manifest.get("overhead") or {}).get("podFixed") or {}
    yield from pod_rules.check_resources("overhead", {"limits": fixed}, set())
    scheduling = manifest.get("scheduling") or {}
    yield from labels("scheduling.nodeSelector", scheduling.get("nodeSelector") or {})
    for index, toleration in enumerate(scheduling.get("tolerations") or ()):
        yield from pod_rules.check_toleration(f"scheduling.tolerations[{index}]", toleration)


_RUNTIME_CLASS = Rules(
    [
        ("handler", is_set),
        ("handler", label_if_set),
        ("scheduling.tolerations", unique("key", "operator", "value", "effect")),
    ]
)


def disruption_budget(manifest: Json) -> Iterator[Cause]:
    """The rules for a PodDisruptionBudget: one bound, a number or a percentage."""
    spec = manifest.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield wrong("spec", "", "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        bound = spec.get(name)
        if isinstance(bound, int) and bound < 0:
            yield wrong(f"spec.{name}", bound, "must be greater than or equal to 0")
        elif isinstance(bound, str):
            if not _PERCENTAGE.fullmatch(bound):
                yield wrong(f"spec.{name}", bound, "a valid percent string must be a number and %")
            elif int(bound[:-1]) > 100:
                yield wrong(f"spec.{name}", bound, "must not be greater than 100%")
    yield from label_selector("spec.selector", spec.get("selector"))


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


def _created_group(manifest: Json) -> Iterator[Cause]:
    yield from _goes_as_one("spec", manifest.get("spec") or {})


def _created_workload(manifest: Json) -> Iterator[Cause]:
    templates = (manifest.get("spec") or {}).get("podGroupTemplates") or []
    for index, template in enumerate(templates):
        yield from _goes_as_one(f"spec.podGroupTemplates[{index}]", template)


def _goes_as_one(field: str, spec: Json) -> Iterator[Cause]:
    """Only a gang is disrupted as one."""
    is_gang = (spec.get("schedulingPolicy") or {}).get("gang") is not None
    if not is_gang and (spec.get("disruptionMode") or {}).get("all") is not None:
        yield Cause(
            f"{field}.disruptionMode",
            "FieldValueInvalid",
            'Invalid value: cannot have "all" disruption mode when scheduling policy is '
            'other than "gang"',
        )


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
    kinds.PODS: pod_rules.pod,
    kinds.NODES: node,
    kinds.CONFIG_MAPS: config_map,
    kinds.LEASES: lease,
    kinds.PRIORITY_CLASSES: priority_class,
    kinds.RUNTIME_CLASSES: runtime_class,
    kinds.POD_DISRUPTION_BUDGETS: disruption_budget,
    kinds.PERSISTENT_VOLUMES: storage_rules.volume,
    kinds.PERSISTENT_VOLUME_CLAIMS: _by_table(storage_rules.CLAIM),
    kinds.STORAGE_CLASSES: _by_table(storage_rules.STORAGE_CLASS),
    kinds.CSI_NODES: _by_table(storage_rules.NODE),
    kinds.CSI_DRIVERS: _by_table(storage_rules.DRIVER),
    kinds.CSI_STORAGE_CAPACITIES: _by_table(storage_rules.CAPACITY),
    kinds.VOLUME_ATTACHMENTS: _by_table(storage_rules.ATTACHMENT),
    kinds.DEVICE_TAINT_RULES: device_taint_rule,
    kinds.POD_GROUPS: pod_group,
    kinds.ALPHA_POD_GROUPS: pod_group,
    kinds.WORKLOADS: workload,
    kinds.ALPHA_WORKLOADS: workload,
    kinds.RESOURCE_CLAIMS: _by_table(device_rules.CLAIM),
    kinds.RESOURCE_CLAIM_TEMPLATES: _by_table(device_rules.TEMPLATE),
    kinds.RESOURCE_SLICES: _by_table(device_rules.SLICE),
    kinds.DEVICE_CLASSES: _by_table(device_rules.CLASS),
    kinds.EVENTS: lambda manifest: event(manifest, controller="reportingComponent"),
    kinds.NEW_EVENTS: lambda manifest: event(manifest, controller="reportingController"),
    **workload_rules.RULES,
}
#: What holds for new objects only.
_CREATION_RULES: dict[Kind, Callable[[Json], Iterator[Cause]]] = {
    kinds.NEW_EVENTS: _created_event,
    kinds.JOBS: workload_rules.created_job,
}
#: The same from a minor version on, each with the difference (`Behaviors`) that brings it.
_CREATION_RULES_OF_MINORS: dict[Kind, tuple[str, Callable[[Json], Iterator[Cause]]]] = {
    kinds.POD_GROUPS: (_ONLY_GANGS, _created_group),
    kinds.ALPHA_POD_GROUPS: (_ONLY_GANGS, _created_group),
    kinds.WORKLOADS: (_ONLY_GANGS, _created_workload),
    kinds.ALPHA_WORKLOADS: (_ONLY_GANGS, _created_workload),
}


def problems(
    kind: Kind, manifest: Json, behaves: Behaviors, *, is_new: bool = False
) -> list[Cause]:
    """Everything wrong with *manifest*, in the order of its fields.

    *behaves* is what differs between minor versions of Kubernetes.
    """
    found = list(metadata(kind, manifest["metadata"]))
    for table in (RULES, _CREATION_RULES) if is_new else (RULES,):
        rules = table.get(kind)
        if rules:
            found += rules(manifest)
    of_minor = _CREATION_RULES_OF_MINORS.get(kind)
    if is_new and of_minor and getattr(behaves, of_minor[0]):
        found += of_minor[1](manifest)
    return found


def update_problems(kind: Kind, new: Json, old: Json) -> list[Cause]:
    """What an update may not change, beyond the rules of the object itself."""
    if any(new.get(part) != old.get(part) for part in {*new, *old} - {"metadata", "status"}):
        new, old = without_empties(kind, new), without_empties(kind, old)
    changes = _CHANGES.get(kind)
    found = list(changes(new, old)) if changes else []
    for path in _IMMUTABLE.get(kind, ()):
        if _value(new, path) != _value(old, path):
            found.append(wrong(_CALLED.get(path, path), "", "field is immutable"))
    return found


def _pod_changes(new: Json, old: Json) -> Iterator[Cause]:
    if new["spec"] != old["spec"]:
        yield from pod_rules.changes(new["spec"], old["spec"])


def _priority_class_changes(new: Json, old: Json) -> Iterator[Cause]:
    if new.get("value") != old.get("value"):
        yield denied("value", "may not be changed in an update.")


def _config_map_changes(new: Json, old: Json) -> Iterator[Cause]:
    for field in ("data", "binaryData", "immutable") if old.get("immutable") else ():
        if new.get(field) != old.get(field):
            yield denied(field, "field is immutable when `immutable` is set")


def _pod_group_changes(group: Json, before: Json) -> Iterator[Cause]:
    """All but the number of a gang is as it was made."""
    new, old = group["spec"], before["spec"]
    now, was = new["schedulingPolicy"], old["schedulingPolicy"]
    for name in ("basic", "gang"):
        if (now.get(name) is None) != (was.get(name) is None):
            yield wrong(f"spec.schedulingPolicy.{name}", "", "field is immutable")
    for field in sorted({*new, *old} - {"schedulingPolicy"}):
        if new.get(field) != old.get(field):
            yield wrong(f"spec.{field}", "", "field is immutable")


def _event_changes(new: Json, old: Json) -> Iterator[Cause]:
    if new.get("series") != old.get("series"):
        yield from _series(new)


_CHANGES: dict[Kind, Callable[[Json, Json], Iterator[Cause]]] = {
    kinds.PODS: _pod_changes,
    kinds.PRIORITY_CLASSES: _priority_class_changes,
    kinds.CONFIG_MAPS: _config_map_changes,
    kinds.NEW_EVENTS: _event_changes,
    kinds.POD_GROUPS: _pod_group_changes,
    kinds.ALPHA_POD_GROUPS: _pod_group_changes,
    kinds.PERSISTENT_VOLUMES: storage_rules.volume_changes,
    kinds.PERSISTENT_VOLUME_CLAIMS: storage_rules.claim_changes,
    kinds.CSI_NODES: storage_rules.node_changes,
}
#: The fields that no update may change.
_IMMUTABLE: dict[Kind, tuple[str, ...]] = {
    kinds.RESOURCE_CLAIMS: ("spec",),
    kinds.RESOURCE_CLAIM_TEMPLATES: ("spec",),
    kinds.PRIORITY_CLASSES: ("preemptionPolicy",),
    kinds.RUNTIME_CLASSES: ("handler",),
    kinds.RESOURCE_SLICES: ("spec.driver", "spec.nodeName", "spec.pool.name"),
    kinds.STORAGE_CLASSES: ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    kinds.CSI_DRIVERS: ("spec.attachRequired", "spec.volumeLifecycleModes"),
    kinds.CSI_STORAGE_CAPACITIES: ("nodeTopology", "storageClassName"),
    kinds.VOLUME_ATTACHMENTS: ("spec",),
    kinds.NEW_EVENTS: (
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ),
}
#: What the API server calls a field in its refusal, where it is not the field's name.
_CALLED = {
    "spec.attachRequired": "spec.attachedRequired",
    "reportingComponent": "reportingController",  # events are stored in their core form
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


_CONDITIONS = Rules(
    [
        ("status.conditions", unique("type")),
        ("status.conditions[].reason", is_set),
    ]
)


def _conditions(new: Json, _: Json) -> Iterator[Cause]:
    return _CONDITIONS.problems("", new)


_STATUS_RULES: dict[Kind, Callable[[Json, Json], Iterator[Cause]]] = {
    kinds.PODS: pod_rules.status,
    kinds.POD_GROUPS: _conditions,
    kinds.ALPHA_POD_GROUPS: _conditions,
    kinds.RESOURCE_CLAIMS: device_rules.claim_status,
}
