"""What a policy sees of pods, nodes and the cluster: names, types, documentation, values.

Owns the schema that `check`, the sandbox, the projections and the documents share. A field's value
is plain JSON data; records (`Taint`, `Toleration`, ...) are objects here and structs in Starlark.
Which fields a hook gets is decided by `analysis`; how they are reused by `verdicts`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from engine.caching.attachments import (
    VolumeUsers,
    other_attached_volumes,
    volume_limits,
    volumes_in_use,
)
from engine.caching.device_classes import device_resources
from engine.caching.objects import ObjectStore
from engine.model import objects as api
from engine.model.fact import Facts, pod_type
from engine.model.node_info import NodeInfo
from engine.model.pod import Pod
from engine.model.pod_group import PodGroupState
from engine.model.quantity import QuantityError, resource_amount
from engine.policy.device_views import DeviceShares
from engine.policy.volume_views import (
    VOLUME_RECORDS,
    used_claims_view,
    used_disks_view,
    volumes_view,
)


class ClusterFacts(Protocol):
    """What the views need of a snapshot beside the pod or node at hand."""

    @property
    def node_count(self) -> int:
        """How many nodes the cluster has."""
        ...

    @property
    def objects(self) -> ObjectStore:
        """The other objects: namespaces, services, workloads."""
        ...

    @property
    def volume_users(self) -> VolumeUsers:
        """On which nodes claims and disks are used."""
        ...

    @property
    def image_nodes(self) -> Mapping[str, int]:
        """For each image name, on how many nodes it is present."""
        ...

    @property
    def cluster_facts(self) -> Facts:
        """Facts of the cluster."""
        ...

    @property
    def type_facts(self) -> Mapping[str, Facts]:
        """Facts of pods, by their type."""
        ...

    @property
    def pod_facts(self) -> Mapping[str, Facts]:
        """Facts of single pods, by `namespace/name`."""
        ...

    @property
    def pod_type_labels(self) -> Sequence[str]:
        """The labels that say of which type a pod is."""
        ...


@dataclass(frozen=True, slots=True)
class ViewField:
    """One attribute of a view.

    `type` is the type text of the documents: int, str, bool, float, T?, list[T], dict[str, T] or
    a record name. `extract` gives the plain value; its arguments are the object and the facts.
    `is_placed` marks what changes while the object stays the same: with placements, or with facts;
    `parts` are the attributes of a NodeInfo that such a field is a function of, beside the node:
    while they are the same objects, it is the same. `is_own` marks what depends on the object
    alone, and `is_shared` what other nodes' changes can change. `is_spec` marks fields of a pod
    that are the same for pods with the same `spec_text`. In a dict field with `fills`, an entry
    that is named and missing is there as None (or as `{}`, where entries are dicts).
    """

    type: str
    doc: str
    extract: Callable[[Any, ClusterFacts], Any]
    is_placed: bool = False
    is_shared: bool = False
    fills: bool = False
    parts: tuple[str, ...] = ()
    is_own: bool = False
    is_spec: bool = False


# --- records -------------------------------------------------------------------------------

RECORDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Taint": {
        "key": ("str", "the taint's key"),
        "value": ("str", 'its value, or ""'),
        "effect": ("str", "NoSchedule, PreferNoSchedule or NoExecute"),
    },
    "Toleration": {
        "key": ("str", '"" with operator Exists tolerates every taint'),
        "operator": ("str", "Equal or Exists"),
        "value": ("str", 'compared by Equal, or ""'),
        "effect": ("str", '"" means every effect'),
    },
    "Requirement": {
        "key": ("str", "label key, or field name in fields"),
        "operator": ("str", "In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        "values": ("list[str]", "what the operator compares with"),
    },
    "NodeTerm": {
        "expressions": ("list[Requirement]", "label requirements; all must hold"),
        "fields": ("list[Requirement]", "field requirements; all must hold"),
    },
    "PreferredNodeTerm": {
        "weight": ("int", "1..100"),
        "term": ("NodeTerm", "the nodes that are preferred"),
    },
    "NodeAffinity": {
        "required": ("list[NodeTerm]?", "terms of which one must hold; None if not given"),
        "preferred": ("list[PreferredNodeTerm]", "weighted preferences"),
    },
    "Selector": {
        "labels": ("dict[str, str]", "labels that must be equal"),
        "expressions": ("list[Requirement]", "requirements that must all hold"),
    },
    "PodTerm": {
        "topology_key": ("str", "node label that makes the domains"),
        "selector": ("Selector?", "which pods; None matches none"),
        "namespaces": ("list[str]", "in these namespaces"),
        "namespace_selector": ("Selector?", "or in namespaces with these labels"),
        "match_label_keys": ("list[str]", "pod label keys that must be equal"),
        "mismatch_label_keys": ("list[str]", "pod label keys that must differ"),
    },
    "PreferredPodTerm": {
        "weight": ("int", "1..100"),
        "term": ("PodTerm", "the pods that are preferred near"),
    },
    "PodAffinity": {
        "required": ("list[PodTerm]", "all must hold"),
        "preferred": ("list[PreferredPodTerm]", "weighted preferences"),
    },
    "SpreadConstraint": {
        "max_skew": ("int", "how uneven is still allowed"),
        "topology_key": ("str", "node label that makes the domains"),
        "when_unsatisfiable": ("str", "DoNotSchedule or ScheduleAnyway"),
        "selector": ("Selector?", "which pods are counted"),
        "min_domains": ("int?", "how many domains must exist"),
        "node_affinity_policy": ("str?", "Honor or Ignore; None is Honor"),
        "node_taints_policy": ("str?", "Honor or Ignore; None is Ignore"),
        "match_label_keys": ("list[str]", "pod label keys that must be equal"),
    },
    "HostPort": {
        "ip": ("str", '"0.0.0.0" is every address'),
        "protocol": ("str", "TCP, UDP or SCTP"),
        "port": ("int", "the port on the node"),
    },
    "Container": {
        "name": ("str", "its name"),
        "image": ("str", "as written in the manifest"),
        "requests": ("dict[str, int]", "millicores for cpu, whole units for the rest"),
        "limits": ("dict[str, int]", "millicores for cpu, whole units for the rest"),
        "is_sidecar": ("bool", "an init container that is always restarted"),
        "restart_actions": ("list[str]", "what its restart rules do, in their order"),
    },
    "Fact": {
        "value": ("float?", "the number, an int if it was spelt as one; None: not a finite number"),
        "text": ("str", "what came, as it was spelt"),
        "age_seconds": ("int?", "whole seconds since it was measured; None: nobody said when"),
    },
    "Owner": {
        "kind": ("str", "for example ReplicaSet"),
        "name": ("str", "its name"),
        "uid": ("str", "its uid"),
    },
    "Image": {
        "size_bytes": ("int", "size on this node"),
        "node_count": ("int", "how many nodes have the image"),
    },
    **VOLUME_RECORDS,
}


def _requirements(given: list[Any]) -> list[dict[str, Any]]:
    return [{"key": r.key, "operator": r.operator, "values": list(r.values)} for r in given]


def _node_term(term: api.NodeSelectorTerm) -> dict[str, Any]:
    return {
        "expressions": _requirements(term.match_expressions),
        "fields": _requirements(term.match_fields),
    }


def node_affinity_view(affinity: api.NodeAffinity | None) -> dict[str, Any] | None:
    """The plain form of a `NodeAffinity` record; also used for the `addedAffinity` argument."""
    if affinity is None:
        return None
    required = None
    if affinity.required is not None:
        required = [_node_term(t) for t in affinity.required.node_selector_terms]
    return {
        "required": required,
        "preferred": [
            {"weight": p.weight, "term": _node_term(p.preference)} for p in affinity.preferred
        ],
    }


def _selector(selector: api.LabelSelector | None) -> dict[str, Any] | None:
    if selector is None:
        return None
    return {
        "labels": selector.match_labels,
        "expressions": _requirements(selector.match_expressions),
    }


def _pod_term(term: api.PodAffinityTerm) -> dict[str, Any]:
    return {
        "topology_key": term.topology_key,
        "selector": _selector(term.label_selector),
        "namespaces": list(term.namespaces),
        "namespace_selector": _selector(term.namespace_selector),
        "match_label_keys": list(term.match_label_keys),
        "mismatch_label_keys": list(term.mismatch_label_keys),
    }


def _pod_affinity(affinity: api.PodAffinity | None) -> dict[str, Any] | None:
    if affinity is None:
        return None
    return {
        "required": [_pod_term(t) for t in affinity.required],
        "preferred": [
            {"weight": p.weight, "term": _pod_term(p.pod_affinity_term)} for p in affinity.preferred
        ],
    }


def _affinity(pod: Pod) -> api.Affinity:
    return pod.manifest.spec.affinity or api.Affinity()


def _spread(constraint: api.TopologySpreadConstraint) -> dict[str, Any]:
    return {
        "max_skew": constraint.max_skew,
        "topology_key": constraint.topology_key,
        "when_unsatisfiable": constraint.when_unsatisfiable,
        "selector": _selector(constraint.label_selector),
        "min_domains": constraint.min_domains,
        "node_affinity_policy": constraint.node_affinity_policy,
        "node_taints_policy": constraint.node_taints_policy,
        "match_label_keys": list(constraint.match_label_keys),
    }


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


def _containers(containers: list[api.Container]) -> list[dict[str, Any]]:
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


def _limits(pod: Pod) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.manifest.spec.containers:
        # What has no limit may use more, but nobody can say how much.
        amounts = {
            **_amounts(container.resources.requests),
            **_amounts(container.resources.limits),
        }
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _limits_of_pods(info: NodeInfo) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in info.pods.values():
        for name, amount in _limits(pod).items():
            total[name] = total.get(name, 0) + amount
    return total


def _owner(pod: Pod) -> dict[str, str] | None:
    owner = pod.controller
    return None if owner is None else {"kind": owner.kind, "name": owner.name, "uid": owner.uid}


def _host_ports(pod: Pod) -> list[dict[str, Any]]:
    return [{"ip": ip, "protocol": proto, "port": port} for ip, proto, port in pod.host_ports]


def _image_volumes(pod: Pod) -> list[str]:
    return [
        str(v.image.get("reference", "")) for v in pod.manifest.spec.volumes if v.image is not None
    ]


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
    return {"labels": labels, "expressions": expressions}


def _manifest(raw: bytes | None, fallback: Any) -> Any:
    # Kept raw until a policy asks: decoding a whole manifest costs more than a decision.
    return msgspec.json.decode(raw if raw is not None else msgspec.json.encode(fallback))


def _pod(type_: str, doc: str, extract: Callable[[Pod], Any]) -> ViewField:
    return ViewField(type_, doc, lambda pod, _: extract(pod))


def _spec(type_: str, doc: str, extract: Callable[[Pod], Any]) -> ViewField:
    return ViewField(type_, doc, lambda pod, _: extract(pod), is_spec=True)


def spec_text(pod: Pod) -> bytes:
    """A text of what the fields with `is_spec` are made of, much cheaper than those.

    Volumes and claims are left out: their names are made up for each pod.
    """
    spec = pod.manifest.spec
    return msgspec.json.encode(
        (
            spec.containers,
            spec.init_containers,
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


def _type(pod: Pod, facts: ClusterFacts) -> str:
    return pod_type(pod.labels, pod.name, facts.pod_type_labels)


def _pod_facts(pod: Pod, facts: ClusterFacts) -> Facts:
    of_type = facts.type_facts.get(_type(pod, facts)) if facts.type_facts else None
    own = facts.pod_facts.get(pod.key) if facts.pod_facts else None
    return {**(of_type or {}), **(own or {})}


POD_FIELDS: Final[dict[str, ViewField]] = {
    "name": _pod("str", "its name; unique, so reading it defeats reuse", lambda p: p.name),
    "namespace": _pod("str", "its namespace", lambda p: p.namespace),
    "uid": _pod("str", "its uid; unique, so reading it defeats reuse", lambda p: p.uid),
    "labels": _pod("dict[str, str]", "its labels", lambda p: p.labels),
    "annotations": _pod("dict[str, str]", "its annotations", lambda p: p.annotations),
    "owner": _pod("Owner?", "the controller that made it, or None", _owner),
    "created_at": _pod(
        "int", "creation time, seconds since the epoch", lambda p: int(p.created_at)
    ),
    "start_time": _pod(
        "int?",
        "when it began to run, seconds since the epoch; None before",
        lambda p: None if p.start_time is None else int(p.start_time),
    ),
    "is_terminating": _pod("bool", "it is being deleted", lambda p: p.is_terminating),
    "priority": _spec("int", "its priority; 0 if not given", lambda p: p.priority),
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
        lambda p: node_affinity_view(_affinity(p).node_affinity),
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
    "topology_spread_constraints": _spec(
        "list[SpreadConstraint]",
        "how its peers spread",
        lambda p: [_spread(c) for c in p.manifest.spec.topology_spread_constraints],
    ),
    "namespace_labels": ViewField(
        "dict[str, str]",
        "the labels of its namespace",
        lambda pod, facts: _namespace_labels(pod, facts),
    ),
    "spread_selector": ViewField(
        "Selector?",
        "what its services and its owner select, merged; None if nothing does",
        lambda pod, facts: _spread_selector(pod, facts),
    ),
    "tolerations": _spec("list[Toleration]", "the taints that it bears", _tolerations),
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
        "the sum of its containers' limits; the request of one that names no limit",
        _limits,
    ),
    "nonzero_requests": _spec(
        "dict[str, int]",
        "cpu and memory with a default per container that names none",
        lambda p: p.nonzero_requests,
    ),
    "scoring_requests": _spec(
        "dict[str, int]",
        "the requests that NodeResourcesFit scores with: defaults applied per container",
        lambda p: p.scoring_requests,
    ),
    "containers": _spec(
        "list[Container]", "its containers", lambda p: _containers(p.manifest.spec.containers)
    ),
    "init_containers": _spec(
        "list[Container]",
        "its init containers",
        lambda p: _containers(p.manifest.spec.init_containers),
    ),
    "image_volumes": _pod("list[str]", "images that it mounts as volumes", _image_volumes),
    "volumes": ViewField(
        "list[Volume]",
        "claims and disks that it mounts; what lives on its node anyway is left out",
        lambda pod, facts: (
            volumes_view(pod, facts.objects, facts.volume_users) if pod.volumes else []
        ),
    ),
    "device_resources": ViewField(
        "list[str]",
        "the resources among its requests that devices may stand for: a device class names them",
        lambda pod, facts: device_resources(pod.requests, facts.objects),
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
    ),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of it or of its type from elsewhere; None: nothing",
        _pod_facts,
        fills=True,
    ),
    "manifest": _pod(
        "dict[str, any]",
        "the whole object as the API sent it; costs reuse",
        lambda p: _manifest(p.raw, p.manifest),
    ),
}


def _node(
    type_: str,
    doc: str,
    extract: Callable[[NodeInfo], Any],
    *,
    is_placed: bool = False,
    parts: tuple[str, ...] = (),
) -> ViewField:
    return ViewField(
        type_,
        doc,
        lambda info, _: extract(info),
        is_placed=is_placed or bool(parts),
        parts=parts,
        is_own=True,
    )


def _taints(info: NodeInfo) -> list[dict[str, str]]:
    return [
        {"key": t.key, "value": t.value, "effect": t.effect} for t in _of(info).manifest.spec.taints
    ]


def _of(info: NodeInfo) -> Any:
    if info.node is None:
        raise ValueError(f"node `{info.name}` has pods but no object: it has no view")
    return info.node


def _images(info: NodeInfo, facts: ClusterFacts) -> dict[str, dict[str, int]]:
    return {
        name: {"size_bytes": size, "node_count": facts.image_nodes.get(name, 1)}
        for name, size in _of(info).images.items()
    }


def _used_ports(info: NodeInfo) -> list[dict[str, Any]]:
    return [
        {"ip": ip, "protocol": protocol, "port": port}
        for ip, protocol, port in sorted(info.used_ports)
    ]


class _PodAnnotations(dict[str, list[dict[str, str]]]):
    """The annotations of a node's pods by how their keys start, found when a start is asked for.

    As a whole it is empty: every possible start would be too much.
    """

    def __init__(self, info: NodeInfo) -> None:
        super().__init__()
        self._pods = info.pods.values()

    def __contains__(self, prefix: object) -> bool:
        return True

    def __getitem__(self, prefix: str) -> list[dict[str, str]]:
        found = []
        for pod in self._pods:
            if pod.annotations:
                own = {k: text for k, text in pod.annotations.items() if k.startswith(prefix)}
                if own:
                    found.append(own)
        # Not by the pods' order, which is that of their arrival here.
        found.sort(key=lambda own: sorted(own.items()))
        return found


NODE_FIELDS: Final[dict[str, ViewField]] = {
    "name": _node("str", "its name; unique, so reading it defeats reuse", lambda i: i.name),
    "labels": _node("dict[str, str]", "its labels", lambda i: _of(i).labels),
    "annotations": _node("dict[str, str]", "its annotations", lambda i: _of(i).annotations),
    "created_at": _node(
        "int", "creation time, seconds since the epoch", lambda i: int(_of(i).created_at)
    ),
    "taints": _node("list[Taint]", "its taints", _taints),
    "unschedulable": _node("bool", "it is cordoned", lambda i: _of(i).unschedulable),
    "allocatable": _node(
        "dict[str, int]",
        "what it offers; millicores, bytes, whole units",
        lambda i: _of(i).allocatable,
    ),
    "capacity": _node("dict[str, int]", "what it has in all", lambda i: _of(i).capacity),
    "conditions": _node(
        "dict[str, str]", "condition type to True, False or Unknown", lambda i: _of(i).conditions
    ),
    "declared_features": _node(
        "list[str]", "features that its kubelet declares", lambda i: list(_of(i).declared_features)
    ),
    "images": ViewField("dict[str, Image]", "images present, by name", _images, is_shared=True),
    "requested": _node(
        "dict[str, int]",
        "the sum of its pods' requests",
        lambda i: i.requested,
        parts=("requested",),
    ),
    "limits": _node(
        "dict[str, int]",
        "the sum of its pods' limits; the request of a container that names no limit",
        _limits_of_pods,
        parts=("pods",),
    ),
    "nonzero_requested": _node(
        "dict[str, int]",
        "cpu and memory of its pods, with a default where a container names none",
        lambda i: i.nonzero_requested,
        parts=("nonzero_requested",),
    ),
    "pod_count": _node("int", "how many pods are on it", lambda i: i.pod_count, parts=("pods",)),
    "used_ports": _node(
        "list[HostPort]", "host ports in use on it", _used_ports, parts=("used_ports",)
    ),
    "used_disks": _node(
        "list[Disk]",
        "disks that its pods name themselves, each once",
        used_disks_view,
        parts=("volumes",),
    ),
    "used_claims": _node(
        "list[str]",
        "claims that its pods name, as `namespace/name`",
        used_claims_view,
        parts=("volumes",),
    ),
    "volume_limits": ViewField(
        "dict[str, int]",
        "how many volumes it takes, by CSI driver; without an entry there is no limit",
        lambda info, facts: volume_limits(info.name, facts.objects),
        is_placed=True,
        parts=("storage",),
    ),
    "volumes_in_use": ViewField(
        "dict[str, list[str]]",
        "the handles of the volumes that its pods use, by CSI driver",
        lambda info, facts: volumes_in_use(info, facts.objects),
        is_placed=True,
        parts=("volumes", "storage"),
    ),
    "other_attached_volumes": ViewField(
        "dict[str, int]",
        "how many volumes are attached to it that its pods do not use, by CSI driver",
        lambda info, facts: other_attached_volumes(info, facts.objects),
        is_placed=True,
        parts=("volumes", "storage"),
    ),
    "pod_annotations": _node(
        "dict[str, list[dict[str, str]]]",
        "annotations of its pods whose keys start with the one that is asked for: a dict for each "
        "pod that has such; ask with a constant",
        _PodAnnotations,
        parts=("pods",),
    ),
    "device_shares": _node(
        "dict[str, list[int]]",
        "thousandths left of each of its devices, by index, as annotations of its pods say; ask "
        "with the constant that their names start with, such as `alibabacloud.com/gpu-`",
        DeviceShares,
        parts=("pods",),
    ),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of it from elsewhere, such as its measured load; None: nothing",
        lambda info, _: info.facts.own,
        is_placed=True,
        parts=("facts",),
        fills=True,
    ),
    "pod_facts": ViewField(
        "dict[str, dict[str, Fact]]",
        "what is known of kinds of pods on it: by name, then by `pod.type`",
        lambda info, _: info.facts.of_pods,
        is_placed=True,
        parts=("facts",),
        fills=True,
    ),
    "manifest": _node(
        "dict[str, any]",
        "the whole object as the API sent it; costs reuse",
        lambda i: _manifest(_of(i).raw, _of(i).manifest),
    ),
}

CLUSTER_FIELDS: Final[dict[str, ViewField]] = {
    "node_count": ViewField("int", "how many nodes there are", lambda facts, _: facts.node_count),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of the cluster from elsewhere; None: nothing",
        lambda facts, _: facts.cluster_facts,
        fills=True,
    ),
}


def _group(type_: str, doc: str, extract: Callable[[PodGroupState], Any]) -> ViewField:
    return ViewField(type_, doc, lambda group, _: extract(group))


GROUP_FIELDS: Final[dict[str, ViewField]] = {
    "name": _group("str", "its name within its namespace", lambda g: g.name),
    "exists": _group(
        "bool", "False: its pods name a PodGroup that is not there (yet)", lambda g: g.exists
    ),
    "min_count": _group(
        "int",
        "how many of its pods have to be placed together; 0: they go one by one",
        lambda g: g.min_count,
    ),
    "created_at": _group(
        "int",
        "when its PodGroup, or else its oldest pod was made; seconds since the epoch",
        lambda g: int(g.created_at),
    ),
    "priority": _group("int", "the highest priority among its pods", lambda g: g.priority),
    "pod_count": _group("int", "how many pods it has: the next three", lambda g: g.pod_count),
    "pending": _group("int", "pods without a node", lambda g: g.pending),
    "waiting": _group(
        "int",
        "pods that have a node and wait for leave; in `permit`, this pod too",
        lambda g: g.waiting,
    ),
    "placed": _group(
        "int", "pods that were given leave, those on their nodes included", lambda g: g.placed
    ),
}

#: The path of a read that is not a field: how old facts are.
AGES: Final = "facts.age_seconds"

VIEWS: Final[dict[str, dict[str, ViewField]]] = {
    "pod": POD_FIELDS,
    "node": NODE_FIELDS,
    "cluster": CLUSTER_FIELDS,
    "group": GROUP_FIELDS,
}
