"""Field rules of pods, and what may not change in them.

Owns what a scheduler depends on; rules of probes, security contexts and the like are left out.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from engine.core.manifests import storage_rules
from engine.core.manifests.errors import Cause
from engine.core.manifests.field_rules import (
    Json,
    Rules,
    denied,
    dns_label,
    duplicate,
    is_set,
    is_there,
    label_selector,
    label_value_problem,
    labels,
    name_problems,
    node_term,
    not_found,
    qualified,
    qualified_name_problems,
    required,
    unsupported,
    wrong,
)
from engine.core.manifests.pod_defaults import qos_class, summed_amounts
from engine.core.manifests.quantities import amount

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)


def pod(manifest: Json) -> Iterator[Cause]:
    """The rules for a pod that a scheduler depends on."""
    spec = manifest["spec"]
    containers = spec.get("containers")
    if not containers:
        yield required("spec.containers")
    claims = {one.get("name") for one in spec.get("resourceClaims") or ()}
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        ports: set[tuple[object, ...]] = set()
        for index, container in enumerate(spec.get(field) or ()):
            if field == "initContainers":  # they run one by one
                ports = set()
            yield from _container(f"spec.{field}[{index}]", container, names, claims)
            if container.get("ports"):
                at = f"spec.{field}[{index}].ports"
                yield from _host_ports(at, container["ports"], spec, ports)
    if "resources" in spec:
        yield from check_resources("spec.resources", spec["resources"], claims, pod_level=True)
        yield from _pod_resources("spec.resources", spec["resources"], spec)
    if spec.get("resourceClaims"):
        yield from _claims("spec.resourceClaims", spec["resourceClaims"])
    if "schedulingGroup" in spec:
        group = spec["schedulingGroup"].get("podGroupName")
        if group is None:
            shown = "must specify one of: `podGroupName`"
            yield wrong("spec.schedulingGroup.podGroupName", "", shown)
        else:
            yield from name_problems("spec.schedulingGroup.podGroupName", group)
    if spec.get("volumes"):
        yield from _volumes("spec.volumes", spec["volumes"])
    if spec.get("nodeName"):
        yield from name_problems("spec.nodeName", spec["nodeName"])
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        yield unsupported("spec.restartPolicy", policy or "", ("Always", "OnFailure", "Never"))
    if spec.get("nodeSelector"):
        yield from labels("spec.nodeSelector", spec["nodeSelector"])
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from check_toleration(f"spec.tolerations[{index}]", toleration)
    if spec.get("affinity"):
        yield from _affinity("spec.affinity", spec["affinity"])
    constraints = spec.get("topologySpreadConstraints") or ()
    for index, constraint in enumerate(constraints):
        field = f"spec.topologySpreadConstraints[{index}]"
        yield from _spread(field, constraint)
        kind = _spread_kind(constraint)
        if any(_spread_kind(one) == kind for one in constraints[index + 1 :]):
            yield duplicate(
                f"{field}.{{topologyKey, whenUnsatisfiable}}", f"{{{kind[0]}, {kind[1]}}}"
            )
    gates = spec.get("schedulingGates")
    if gates:
        if spec.get("nodeName"):
            yield denied(
                "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
            )
        seen: set[str] = set()
        for index, gate in enumerate(gates):
            field, name = f"spec.schedulingGates[{index}]", gate.get("name") or ""
            yield from qualified(field, name)
            if name in seen:
                yield duplicate(field, f'"{name}"')
            seen.add(name)


def _container(field: str, container: Json, names: set[str], claims: set[str]) -> Iterator[Cause]:
    name = container.get("name")
    if not name:
        yield required(f"{field}.name")
    else:
        yield from dns_label(f"{field}.name", name, container)
        if name in names:
            yield duplicate(f"{field}.name", f'"{name}"')
        names.add(name)
    if not container.get("image"):
        yield required(f"{field}.image")
    policy = container.get("restartPolicy")
    if policy is not None and policy not in ("Always", "OnFailure", "Never"):
        shown = ("Always", "Never", "OnFailure")
        yield unsupported(f"{field}.restartPolicy", policy, shown)
    for index, port in enumerate(container.get("ports") or ()):
        yield from _port(f"{field}.ports[{index}]", port)
    if container.get("resources"):
        yield from check_resources(f"{field}.resources", container["resources"], claims)


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


def _host_ports(
    field: str, ports: list[Json], spec: Json, taken: set[tuple[object, ...]]
) -> Iterator[Cause]:
    """A host port is one container's, and on the host's network the container's own port."""
    for index, port in enumerate(ports):
        at, host = f"{field}[{index}]", port.get("hostPort")
        if not host:
            continue
        if spec.get("hostNetwork") and host != port.get("containerPort"):
            yield wrong(f"{at}.hostPort", host, "must match `containerPort` on the host's network")
        key = (port.get("protocol"), port.get("hostIP") or "", host)
        if key in taken:
            yield duplicate(f"{at}.hostPort", "/".join(str(one) for one in key))
        taken.add(key)


_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def _own_name(at: str, item: Json, names: set[str]) -> Iterator[Cause]:
    """What is wrong with the name of *item*, which none of *names* is; it becomes one of them."""
    name = item.get("name")
    if not name:
        yield required(f"{at}.name")
    elif name in names:
        yield duplicate(f"{at}.name", f'"{name}"')
    else:
        yield from dns_label(f"{at}.name", name, item)
        names.add(name)


def _claims(field: str, claims: list[Json]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, claim in enumerate(claims):
        at = f"{field}[{index}]"
        yield from _own_name(at, claim, names)
        sources = [one for one in _CLAIM_SOURCES if claim.get(one) is not None]
        if len(sources) != 1:
            shown = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield wrong(at, claim.get("name") or "", shown)
        for source in sources:
            yield from name_problems(f"{at}.{source}", claim[source])


#: In the order in which the API server looks: all but the first are refused.
_VOLUME_SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs",
    "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte",
    "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
    "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
    "csi", "ephemeral", "image",
)  # fmt: skip


_TEMPLATE = "ephemeral.volumeClaimTemplate"
_VOLUME = Rules(
    [
        ("persistentVolumeClaim.claimName", is_set),
        (_TEMPLATE, is_there),
        *[(f"{_TEMPLATE}.{path}", check) for path, check in storage_rules.CLAIM_SPEC],
    ]
)


def _volumes(field: str, volumes: list[Json]) -> Iterator[Cause]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{field}[{index}]"
        yield from _own_name(at, volume, names)
        sources = [one for one in _VOLUME_SOURCES if volume.get(one) is not None]
        for source in sources[1:]:
            yield denied(f"{at}.{source}", "may not specify more than 1 volume type")
        yield from _VOLUME.problems(at, volume)


def _is_native(name: str) -> bool:
    """True for resources that Kubernetes defines, by name."""
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=8192)
def is_extended(name: str) -> bool:
    """True for resources that neither Kubernetes defines nor can be overcommitted."""
    # Quotas call it `requests.` and its name, which has to be a name, too.
    return (
        not _is_native(name)
        and not name.startswith("requests.")
        and not qualified_name_problems(f"requests.{name}")
    )


def is_integer(name: str) -> bool:
    """True for resources of which there are no parts."""
    return name in _COUNTED or is_extended(name)


def check_resources(
    field: str, resources: Json, claims: set[str], *, pod_level: bool = False
) -> Iterator[Cause]:
    """What is wrong with requests and limits of a container, or of a pod if *pod_level*."""
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            if not _is_sound(name, text, pod_level=pod_level):
                yield from _amount(f"{field}.{part}[{name}]", name, text, pod_level=pod_level)
    for name, text in requests.items():
        limit = limits.get(name)
        if limit is None:
            if _is_exact(name):
                yield required(
                    f"{field}.limits", "Limit must be set for non overcommitable resources"
                )
        elif _is_exact(name) and amount(text) != amount(limit):
            yield wrong(f"{field}.requests", text, f"must be equal to {name} limit of {limit}")
        elif text != limit and amount(text) > amount(limit):
            yield wrong(
                f"{field}.requests", text, f"must be less than or equal to {name} limit of {limit}"
            )

    names = {*limits, *requests}
    if any(_is_huge(name) for name in names) and not names & {"cpu", "memory"}:
        yield denied(field, "HugePages require cpu or memory")
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.get("claims") or ()):
        at, name = f"{field}.claims[{index}]", claim.get("name") or ""
        key = (name, claim.get("request") or "")
        if not name:
            yield required(at)
            continue
        if key in seen:
            yield duplicate(at, f'"{name}"')
        if name not in claims:
            yield not_found(at, name)
        seen.add(key)


def _is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def _is_exact(name: str) -> bool:
    """True for resources whose request is their limit."""
    return not _is_native(name) or _is_huge(name)


def _pod_resources(field: str, resources: Json, spec: Json) -> Iterator[Cause]:
    """The resources of a pod cover those of its containers."""
    if "claims" in resources:
        yield denied(f"{field}.claims", "claims may not be set for Resources at pod-level")
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, text in summed_amounts(spec, requests, "requests").items():
        if amount(text) > amount(requests[name]):
            shown = f"must be greater than or equal to aggregate container requests of {text}"
            yield wrong(f"{field}.requests[{name}]", requests[name], shown)
    huge = [name for name in limits if _is_huge(name)]
    for name, text in summed_amounts(spec, huge, "limits").items():
        if amount(text) > amount(limits[name]):
            shown = f"must be greater than or equal to aggregate container limits of {text}"
            yield wrong(f"{field}.limits[{name}]", limits[name], shown)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in (container["resources"].get("limits") or {}).items():
            if name in limits and amount(text) > amount(limits[name]):
                shown = f"must be less than or equal to pod limits of {limits[name]}"
                yield wrong(f"{field}.containers[{index}][{name}].limits", text, shown)


# Pods are alike, and the amounts of most of them are a few texts.
@lru_cache(maxsize=8192)
def _is_sound(name: str, text: str, *, pod_level: bool) -> bool:
    return not any(_amount("", name, text, pod_level=pod_level))


def _amount(field: str, name: str, text: str, *, pod_level: bool) -> Iterator[Cause]:
    yield from qualified(field, name)
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield wrong(field, name, "must be a standard resource type or fully qualified")
        yield wrong(field, name, "must be a standard resource for containers")
    elif pod_level and name not in ("cpu", "memory") and not name.startswith("hugepages-"):
        yield unsupported(field, name, ("cpu", "hugepages-", "memory"))
    elif not _is_native(name) and not is_extended(name):
        yield wrong(field, name, "doesn't follow extended resource name standard")
    value: Fraction = amount(text)
    if value < 0:
        yield wrong(field, text, "must be greater than or equal to 0")
    elif is_integer(name) and value.denominator != 1:
        yield wrong(field, text, "must be an integer")
    elif _is_huge(name) and value % amount(name.removeprefix("hugepages-")):
        yield wrong(field, text, "must be a multiple of the page size")


def check_toleration(field: str, toleration: Json) -> Iterator[Cause]:
    """What is wrong with a toleration of a pod."""
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
    problem = label_value_problem(toleration.get("value") or "")
    if problem and operator == "Equal":
        yield wrong(f"{field}.operator", toleration["value"], problem)
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
    if domains is not None and action != "DoNotSchedule":
        shown = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield wrong(f"{field}.minDomains", domains, shown)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        value = constraint.get(policy)
        if value is not None and value not in ("Honor", "Ignore"):
            yield unsupported(f"{field}.{policy}", value, ("Honor", "Ignore"))
    yield from _label_keys(field, constraint)
    yield from label_selector(f"{field}.labelSelector", constraint.get("labelSelector"))


def _spread_kind(constraint: Json) -> tuple[str, str]:
    return constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""


def _label_keys(field: str, term: Json) -> Iterator[Cause]:
    """The keys whose values are the pod's own, which admission has merged into the selector."""
    selector = term.get("labelSelector")
    match = term.get("matchLabelKeys") or []
    mismatch = term.get("mismatchLabelKeys") or []
    for part, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            yield denied(f"{field}.{part}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from qualified(f"{field}.{part}[{index}]", key)
    seen = {*((selector or {}).get("matchLabels") or {})}
    for expression in (selector or {}).get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in match and key in seen:
            shown = "exists in both matchLabelKeys and labelSelector"
            yield wrong(f"{field}[{match.index(key)}]", key, shown)
        seen.add(key)
    for index, key in enumerate(match):
        if key in mismatch:
            shown = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield wrong(f"{field}.matchLabelKeys[{index}]", key, shown)


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
        preference = preferred.get("preference") or {}
        yield from node_term(f"{path}.preference", preference, is_required=False)
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
    yield from label_selector(f"{field}.labelSelector", term.get("labelSelector"))
    yield from label_selector(f"{field}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces") or ():
        yield from dns_label(f"{field}.namespace", name, term)
    yield from _label_keys(field, term)


# --- changes ---------------------------------------------------------------------------------

_POD_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def changes(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a pod specification may not do."""
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
        yield from _narrowed(_node_terms(new), _node_terms(old))


def _node_terms(spec: Json) -> list[Json]:
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    hard = nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Json] = hard.get("nodeSelectorTerms") or []
    return terms


def _narrowed(new: list[Json], old: list[Json]) -> Iterator[Cause]:
    """The terms of a gated pod only get more conditions."""
    field = (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms"
    )
    if old and len(new) != len(old):
        yield wrong(field, "", "no additions/deletions to non-empty NodeSelectorTerms list")
        return
    for index, term in enumerate(old):
        parts = ("matchExpressions", "matchFields")
        was_empty = not any(term.get(part) for part in parts)
        kept = all(
            (new[index].get(part) or [])[: len(term.get(part) or ())] == (term.get(part) or [])
            for part in parts
        )
        if not kept or (was_empty and any(new[index].get(part) for part in parts)):
            yield wrong(f"{field}[{index}]", "", "only additions are allowed")


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
        free.add("nodeSelector")
    kept = {key: value for key, value in spec.items() if key not in free}
    if gated and spec.get("affinity"):
        affinity = dict(spec["affinity"])
        affinity.pop("nodeAffinity", None)
        kept["affinity"] = affinity
    if gated and not kept.get("affinity"):
        kept.pop("affinity", None)
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [
                {key: value for key, value in item.items() if key != "image"}
                for item in kept[field]
            ]
    return kept


def status(new: Json, old: Json) -> Iterator[Cause]:
    """What an update of a pod's status may not do."""
    now, before = new.get("status") or {}, old.get("status") or {}
    if now.get("nominatedNodeName"):
        yield from name_problems("status.nominatedNodeName", now["nominatedNodeName"])
    if now.get("qosClass") != before.get("qosClass"):
        yield wrong("status.qosClass", now.get("qosClass") or "", "field is immutable")
    generation = now.get("observedGeneration") or 0
    if generation < 0:
        shown = "must be greater than or equal to 0"
        yield wrong("status.observedGeneration", generation, shown)


def resize(new: Json, old: Json) -> Iterator[Cause]:
    """What a resize may not do: other resources than cpu and memory, and less of the names."""
    before = qos_class(old)
    if before != qos_class(new):
        yield wrong("spec", before, "Pod QOS Class may not change as a result of resizing")
    yield from _resized("spec.resources", "spec", new.get("resources"), old.get("resources"))
    for part in ("initContainers", "containers"):
        now, was = new.get(part) or [], old.get(part) or []
        if [one.get("name") for one in now] != [one.get("name") for one in was]:
            yield denied(f"spec.{part}", "containers may not be added, removed or reordered")
            return
        for index, (container, other) in enumerate(zip(now, was, strict=True)):
            field = f"spec.{part}[{index}]"
            at = "spec" if part == "containers" else field
            yield from _resized(
                f"{field}.resources", at, container.get("resources"), other.get("resources")
            )


def _resized(field: str, whole: str, new: Json | None, old: Json | None) -> Iterator[Cause]:
    new, old = new or {}, old or {}
    for part in ("requests", "limits"):
        now, was = new.get(part) or {}, old.get(part) or {}
        if was.keys() - now.keys():
            yield denied(f"{field}.{part}", f"resource {part} cannot be removed")
        fixed = {*now, *was} - {"cpu", "memory"}
        if any(now.get(name) != was.get(name) for name in fixed):
            yield denied(whole, "only cpu and memory resources are mutable")
