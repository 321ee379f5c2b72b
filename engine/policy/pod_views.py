"""What a policy sees of a pod: names, types, documentation, values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from engine.core.caching.device_classes import device_resources
from engine.core.caching.kind_index import terms_of, terms_of_kind
from engine.core.caching.own_terms import own_terms
from engine.core.model import objects as api
from engine.core.model.event_kinds import ASSIGNED_POD, FACTS, VERSION
from engine.core.model.fact import Facts, pod_type
from engine.core.model.pod import Pod
from engine.core.model.quantity import QuantityError, resource_amount
from engine.core.model.resources import NONZERO_RESOURCES, Amounts, spec_limits
from engine.core.model.selectors import label_keys, selects
from engine.language.counter_makers import TERMS
from engine.policy.term_views import Requirement, Selector, node_affinity, shown
from engine.policy.view_fields import ClusterFacts, Entries, ViewField, manifest_view
from engine.policy.volume_views import (
    STORAGE_KINDS,
    exclusive_claims,
    unnamed_volumes_view,
    volumes_view,
)
from engine.policy.workload_views import WORKLOAD_KINDS, workload


class _PodTerm(msgspec.Struct, rename={"label_selector": "selector"}):
    match_label_keys: list[str]
    mismatch_label_keys: list[str]
    namespace_selector: Selector | None
    namespaces: list[str]
    label_selector: Selector | None
    topology_key: str


class _PreferredPodTerm(msgspec.Struct, rename={"pod_affinity_term": "term"}):
    pod_affinity_term: _PodTerm
    weight: int


class _PodAffinity(msgspec.Struct):
    preferred: list[_PreferredPodTerm]
    required: list[_PodTerm]


class _Spread(msgspec.Struct, rename={"label_selector": "selector"}):
    match_label_keys: list[str]
    max_skew: int
    min_domains: int | None
    node_affinity_policy: str | None
    node_taints_policy: str | None
    label_selector: Selector | None
    topology_key: str
    when_unsatisfiable: str


def _requirements(given: Sequence[Any]) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = msgspec.to_builtins(shown(given, list[Requirement]))
    return plain


def _pod_affinity(affinity: api.PodAffinity | None) -> _PodAffinity | None:
    return None if affinity is None else shown(affinity, _PodAffinity)


def _affinity(pod: Pod) -> api.Affinity:
    return pod.manifest.spec.affinity or api.Affinity()


def _term_topologies(pod: Pod) -> dict[str, list[str]]:
    affinity = _affinity(pod)
    return {
        kind: list(dict.fromkeys(term.topology_key for term, _ in terms_of_kind(affinity, kind)))
        for kind in TERMS
    }


def _meets_own_affinity(pod: Pod, facts: ClusterFacts) -> bool:
    return own_terms(pod).match_all(pod.namespace, pod.labels, facts.objects)


def _selector_labels(pod: Pod) -> dict[str, str]:
    spec = pod.manifest.spec
    if not pod.labels or (spec.affinity is None and not spec.topology_spread_constraints):
        return {}
    rules: list[api.PodAffinityTerm | api.TopologySpreadConstraint]
    rules = [*spec.topology_spread_constraints, *terms_of(_affinity(pod))]
    named: set[str] = set()
    for rule in rules:
        named |= label_keys(rule.label_selector)
        named.update(rule.match_label_keys)
        if isinstance(rule, api.PodAffinityTerm):
            named.update(rule.mismatch_label_keys)
    return {key: value for key, value in pod.labels.items() if key in named}


def _tolerations(pod: Pod) -> list[dict[str, str]]:
    return [
        {
            "key": t.key,
            "operator": t.operator or "Equal",
            "value": t.value,
            "effect": t.effect,
        }
        for t in pod.manifest.spec.tolerations
    ]


def _amounts(given: Mapping[str, Any]) -> dict[str, int]:
    amounts = {}
    for name, quantity in given.items():
        try:
            amounts[name] = resource_amount(name, quantity)
        except QuantityError:
            amounts[name] = 0  # listed in `Pod.problems`, which rejects the pod with its path
    return amounts


def _containers(containers: Sequence[api.Container]) -> list[dict[str, Any]]:
    return [
        {
            "name": c.name,
            "image": c.image,
            "requests": _amounts(c.resources.requests),
            "limits": _amounts(c.resources.limits),
            "is_sidecar": c.restart_policy == "Always",
            "restart_actions": [rule.action for rule in c.restart_policy_rules],
        }
        for c in containers
    ]


def _owner(pod: Pod) -> dict[str, str] | None:
    owner = pod.controller
    return None if owner is None else {"kind": owner.kind, "name": owner.name, "uid": owner.uid}


def _host_ports(pod: Pod) -> list[dict[str, Any]]:
    return [{"ip": ip, "protocol": proto, "port": port} for ip, proto, port in pod.host_ports]


def _image_volumes(pod: Pod) -> list[str]:
    return [
        str(v.image.get("reference", "")) for v in pod.manifest.spec.volumes if v.image is not None
    ]


def _bind_mount_options(pod: Pod) -> list[str]:
    spec = pod.manifest.spec
    containers = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    options = {o for c in containers for mount in c.volume_mounts for o in mount.bind_mount_options}
    return sorted(options)


def _namespace_labels(pod: Pod, facts: ClusterFacts) -> Mapping[str, str]:
    namespace = facts.objects.get("namespaces", pod.namespace)
    return {} if namespace is None else namespace.metadata.labels


# The owners whose selectors spread pods by default: kind to API group and plural.
_OWNERS: Final = {
    "ReplicationController": ("v1", "replicationcontrollers"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
}


def _spread_selector(pod: Pod, facts: ClusterFacts) -> dict[str, Any] | None:
    """What PodTopologySpread's default constraints select, as `helper.DefaultSelector` does."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for service in facts.objects.list("services", pod.namespace):
        wanted = service.spec.selector
        if wanted and all(pod.labels.get(key) == value for key, value in wanted.items()):
            labels.update(wanted)
    owner = pod.controller
    known = _OWNERS.get(owner.kind) if owner is not None else None
    if owner is not None and known is not None and owner.api_version == known[0]:
        workload = facts.objects.get(known[1], f"{pod.namespace}/{owner.name}")
        selector = None if workload is None else workload.spec.selector
        if isinstance(selector, api.LabelSelector):
            expressions += [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in selector.match_labels.items()
            ]
            expressions += _requirements(selector.match_expressions)
        elif selector:
            labels.update(selector)
    if not labels and not expressions:
        return None
    requirements = tuple(
        api.LabelSelectorRequirement(e["key"], e["operator"], tuple(e["values"]))
        for e in expressions
    )
    selector = api.LabelSelector(labels, requirements)
    return {
        "labels": labels,
        "expressions": expressions,
        "selects_pod": selects(selector, pod.labels),
    }


def _pod(type_: str, doc: str, extract: Callable[[Pod], Any], **more: Any) -> ViewField:
    return ViewField(type_, doc, lambda pod, _: extract(pod), (), **more)


def _spec(type_: str, doc: str, extract: Callable[[Pod], Any], **more: Any) -> ViewField:
    return _pod(type_, doc, extract, is_spec=True, **more)


def spec_text(pod: Pod, with_requests: bool = True) -> bytes:
    """A text of what the fields with `is_spec` are made of, much cheaper than those.

    Volumes and claims are left out: their names are made up for each pod.
    """
    spec = pod.manifest.spec
    if not with_requests:
        spec = _without_requests(spec)
    return msgspec.json.encode(
        (
            spec.containers,
            spec.init_containers,
            spec.ephemeral_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.priority,
            spec.priority_class_name,
            spec.preemption_policy,
            spec.node_name,
            spec.scheduler_name,
            spec.scheduling_gates,
            spec.scheduling_group,
            spec.service_account_name,
            spec.host_network,
            spec.host_users,
        )
    )


def _without_requests(spec: api.PodSpec) -> api.PodSpec:
    replace = msgspec.structs.replace

    def stripped(containers: tuple[api.Container, ...]) -> tuple[api.Container, ...]:
        return tuple(replace(one, resources=api.ResourceRequirements()) for one in containers)

    return replace(
        spec,
        containers=stripped(spec.containers),
        init_containers=stripped(spec.init_containers),
        resources=None,
    )


def _scoring_requests(pod: Pod, facts: ClusterFacts) -> Amounts:
    if facts.objects.behaves.fit_scores_pod_level_requests:
        return pod.scoring_requests
    return pod.containers_scoring_requests


def _type(pod: Pod, facts: ClusterFacts) -> str:
    return pod_type(pod.labels, pod.name, facts.pod_type_labels)


def _pod_facts(pod: Pod, facts: ClusterFacts) -> Facts:
    of_type = facts.type_facts.get(_type(pod, facts)) if facts.type_facts else None
    own = facts.pod_facts.get(pod.key) if facts.pod_facts else None
    return {**(of_type or {}), **(own or {})}


POD_FIELDS: Final[dict[str, ViewField]] = {
    "name": _pod(
        "str",
        "its name; unique, so reading it defeats reuse",
        lambda p: p.name,
        instead="read what the name stands for: a label, or `pod.owner`",
    ),
    "namespace": _pod("str", "its namespace", lambda p: p.namespace),
    "uid": _pod(
        "str",
        "its uid; unique, so reading it defeats reuse",
        lambda p: p.uid,
        instead="the runtime breaks ties by itself; read nothing for that",
    ),
    "labels": _pod(
        "dict[str, str]",
        "its labels",
        lambda p: p.labels,
        shows_labels=True,
        whole="controllers add labels that differ from pod to pod",
    ),
    "selector_labels": _pod(
        "dict[str, str]",
        "those of its labels that its own affinity terms and spread constraints name",
        _selector_labels,
    ),
    "annotations": _pod(
        "dict[str, str]",
        "its annotations",
        lambda p: p.annotations,
        whole="many annotations differ from pod to pod",
    ),
    "owner": _pod("Owner?", "the controller that made it, or None", _owner),
    "workload": ViewField(
        "Workload?",
        "the workload that it is of: the Deployment of its ReplicaSet, the CronJob of its Job, "
        "or else its controller; None if nothing controls it",
        lambda pod, facts: workload(pod, facts.objects),
        WORKLOAD_KINDS,
    ),
    "created_at": _pod(
        "int",
        "creation time, seconds since the epoch",
        lambda p: int(p.created_at),
        instead="order by arrival is the queue's; for an age, use `queue_key`",
    ),
    "start_time": _pod(
        "int?",
        "when it began to run, seconds since the epoch; None before",
        lambda p: None if p.start_time is None else int(p.start_time),
        instead="only placed pods have one; use it in `victim_key`",
    ),
    "is_terminating": _pod("bool", "it is being deleted", lambda p: p.is_terminating),
    "priority": _spec(
        "int", "its priority; 0 if not given", lambda p: p.priority, can_be_negative=True
    ),
    "priority_class_name": _spec(
        "str", 'its priority class, or ""', lambda p: p.manifest.spec.priority_class_name
    ),
    "preemption_policy": _spec(
        "str",
        "PreemptLowerPriority or Never",
        lambda p: p.manifest.spec.preemption_policy or "PreemptLowerPriority",
    ),
    "qos_class": _spec("str", "Guaranteed, Burstable or BestEffort", lambda p: p.qos_class),
    "scheduler_name": _spec("str", "the profile that schedules it", lambda p: p.scheduler_name),
    "service_account_name": _spec(
        "str", "its service account", lambda p: p.manifest.spec.service_account_name
    ),
    "node_name": _spec("str", 'the node it is on or asks for, or ""', lambda p: p.node_name),
    "nominated_node_name": _pod(
        "str", 'the node nominated for it, or ""', lambda p: p.nominated_node_name
    ),
    "node_selector": _spec(
        "dict[str, str]", "node labels that it needs", lambda p: p.manifest.spec.node_selector
    ),
    "node_affinity": _spec(
        "NodeAffinity?",
        "its node affinity, or None",
        lambda p: node_affinity(_affinity(p).node_affinity),
    ),
    "pod_affinity": _spec(
        "PodAffinity?",
        "pods it wants near, or None",
        lambda p: _pod_affinity(_affinity(p).pod_affinity),
    ),
    "pod_anti_affinity": _spec(
        "PodAffinity?",
        "pods it wants far, or None",
        lambda p: _pod_affinity(_affinity(p).pod_anti_affinity),
    ),
    "term_topologies": _spec(
        "dict[str, list[str]]",
        "the topology keys of its affinity terms, each once, by their kind as in `count_terms`; "
        "a kind of which it has no terms is there with none",
        _term_topologies,
        keys=frozenset(TERMS),
    ),
    "meets_own_affinity": ViewField(
        "bool",
        "all of its required affinity terms match the pod itself; True if it has none",
        _meets_own_affinity,
        ("Namespace",),
    ),
    "topology_spread_constraints": _spec(
        "list[SpreadConstraint]",
        "how its peers spread",
        lambda p: shown(p.manifest.spec.topology_spread_constraints, list[_Spread]),
    ),
    "namespace_labels": ViewField(
        "dict[str, str]",
        "the labels of its namespace",
        _namespace_labels,
        ("Namespace",),
    ),
    "spread_selector": ViewField(
        "SpreadSelector?",
        "what its services and its owner select, merged; None if nothing does",
        _spread_selector,
        ("Service", *_OWNERS),
    ),
    "tolerations": _spec("list[Toleration]", "the taints that it tolerates", _tolerations),
    "scheduling_gates": _spec(
        "list[str]",
        "names of its scheduling gates",
        lambda p: [g.name for g in p.manifest.spec.scheduling_gates],
    ),
    "requests": _spec(
        "dict[str, int]",
        "what it requests, overhead included; millicores, bytes, whole units",
        lambda p: p.requests,
    ),
    "limits": _spec(
        "dict[str, int]",
        "what it may use at most, overhead included; the request of a container without a limit",
        lambda p: spec_limits(p.manifest),
    ),
    "overhead": _spec(
        "dict[str, int]",
        "what it takes in addition to its containers, by its runtime class",
        lambda p: _amounts(p.manifest.spec.overhead),
    ),
    "nonzero_requests": _spec(
        "dict[str, int]",
        "cpu and memory with a default per container that names none",
        lambda p: p.nonzero_requests,
        keys=NONZERO_RESOURCES,
    ),
    "scoring_requests": ViewField(
        "dict[str, int]",
        "the requests that NodeResourcesFit scores with: defaults applied per container",
        _scoring_requests,
        (VERSION,),
        is_spec=True,
        keys=NONZERO_RESOURCES,
    ),
    "containers": _spec(
        "list[Container]", "its containers", lambda p: _containers(p.manifest.spec.containers)
    ),
    "init_containers": _spec(
        "list[Container]",
        "its init containers",
        lambda p: _containers(p.manifest.spec.init_containers),
    ),
    "bind_mount_options": _spec(
        "list[str]",
        "options of the bind mounts in its containers, init and ephemeral ones included",
        _bind_mount_options,
    ),
    "image_volumes": _pod("list[str]", "images that it mounts as volumes", _image_volumes),
    "volumes": ViewField(
        "list[Volume]",
        "claims and disks that it mounts; what lives on its node anyway is left out",
        lambda pod, facts: volumes_view(pod, facts.objects) if pod.volumes else [],
        (*STORAGE_KINDS, "CSIDriver", ASSIGNED_POD),  # their objects, and what uses them
    ),
    "unnamed_volumes": ViewField(
        "list[Volume]",
        "the same with names, keys and handles empty: equal for pods whose volumes are alike, "
        "so that hooks that read them are asked once for all of these",
        lambda pod, facts: unnamed_volumes_view(pod, facts.objects) if pod.volumes else [],
        (*STORAGE_KINDS, "CSIDriver", ASSIGNED_POD),
    ),
    "exclusive_claims": ViewField(
        "dict[str, list[str]]",
        "of its ReadWriteOncePod claims those that a pod uses: on which nodes, by `namespace/name`",
        lambda pod, facts: (
            exclusive_claims(pod, facts.objects, facts.volume_users) if pod.volumes else {}
        ),
        ("PersistentVolumeClaim", ASSIGNED_POD),
    ),
    "device_resources": ViewField(
        "list[str]",
        "the resources among its requests that devices may stand for: a device class names them",
        lambda pod, facts: device_resources(pod.requests, facts.objects),
        ("DeviceClass",),
    ),
    "host_ports": _spec("list[HostPort]", "host ports that it needs", _host_ports),
    "host_network": _spec(
        "bool", "it uses the node's network", lambda p: p.manifest.spec.host_network
    ),
    "host_users": _spec(
        "bool",
        "it uses the node's users; False: it has a user namespace of its own",
        lambda p: p.manifest.spec.host_users is not False,
    ),
    "pod_group_name": _spec(
        "str",
        'the pod group of `spec.schedulingGroup`, or ""',
        lambda p: (p.manifest.spec.scheduling_group or api.SchedulingGroup()).pod_group_name or "",
    ),
    "type": ViewField(
        "str",
        "its kind, by which facts are kept: the first of the configured labels, else its name",
        _type,
        (FACTS,),
    ),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of it or of its type from elsewhere; None: nothing",
        _pod_facts,
        (FACTS,),
        entries=Entries.FILLED,
    ),
    "manifest": _pod(
        "dict[str, any]",
        "the whole object as the API sent it; costs reuse",
        lambda p: manifest_view(p.raw, p.manifest),
        shows_labels=True,
        instead="read the fields that matter, such as `pod.containers`",
    ),
}
