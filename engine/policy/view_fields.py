"""The form of a view's fields, the records in them, and what they are extracted from.

Owns the words; the fields themselves are in `pod_views`, `node_views` and `views`.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from engine.core.caching.attachments import VolumeUsers
from engine.core.caching.objects import ObjectStore
from engine.core.model.event_kinds import FACTS, NODE
from engine.core.model.fact import Facts
from engine.policy.volume_views import VOLUME_RECORDS
from engine.policy.workload_views import WORKLOAD_RECORDS


class ClusterFacts(Protocol):
    """What the views need of a snapshot in addition to the pod or node."""

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


class Entries(enum.Enum):
    """What a hook is given of a dict field of which it names entries by constants."""

    #: Those of them that are there.
    PRESENT = "present"
    #: Each of them, None where there is none (`{}` where entries are dicts). Without names: all.
    FILLED = "filled"
    #: Each of them, made for its name. Without names: none.
    MADE = "made"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries of a dict of the node `filter` and `score` are given: those of their pod.

    Nodes that differ in the others are the same to them. `always` are given whatever the pod is,
    `by` says what the pod wants.
    """

    always: frozenset[str]
    by: Callable[[Any, ClusterFacts], Iterable[str]]


@dataclass(frozen=True, slots=True)
class ViewField:
    """One attribute of a view.

    | field | of interest | so it is |
    | --- | --- | --- |
    | `pod.labels` | nothing | extracted once for each pod |
    | `pod.priority` | `is_spec` | not extracted again for pods with the same `spec_text` |
    | `pod.namespace_labels` | `changed_by=("Namespace",)` | a reason to retry a rejected pod |
    | `node.labels` | nothing | extracted once for each node object |
    | `node.requested` | `parts=("requested",)` | extracted when pods come to the node or go |
    | `node.images` | `changed_by=(NODE,)` | extracted when any node changes |
    | `node.facts` | `entries=FILLED` | there for each name that a hook asks for, if as None |
    | `cluster.facts` | `if_named` | without `hour` for hooks that do not ask for it by name |
    | `node.pod_annotations` | `entries=MADE` | made for the prefix that a hook asks for |
    | `pod.nonzero_requests` | `keys` | read by these keys without a default |
    | `node.wanted_requested` | `wanted` | cut to what the pod wants |
    | `node.pod_count` | `is_sum` | the same for nodes whose pods hold the same |
    | `pod.uid` | `instead` | a reason for `check --reads` to warn |

    Attributes:
        type: The type text of the documents: int, str, bool, float, T?, list[T], dict[str, T] or
            the name of a record.
        doc: What it is, for the documents.
        extract: Gives the plain value; its arguments are the object and the facts.
        changed_by: The kinds of objects whose changes can change it, besides its own object.
        parts: Of a node, the attributes of NodeInfo that it is a function of, besides the node
            object. While they are the same objects, it is the same.
        entries: What hooks are given of a dict.
        if_named: Of a dict of facts, those that are always there, with their types, and that only
            hooks are given which name them.
        is_spec: It is the same for pods with the same `spec_text`.
        wanted: Of a node's dict, which entries the hooks of a pod class are given.
        is_sum: Of a node, that it follows from how many pods there are and from the sums of what
            they request, host ports included. Nothing else that changes in a pod changes it.
        can_be_negative: Of a whole number.
        shows_labels: The labels of the object can be read in it.
        instead: It differs from object to object; what policies read in its place.
        whole: Of a dict, why few objects have the same as a whole.
        keys: Of a dict, the keys that every object has.
    """

    type: str
    doc: str
    extract: Callable[[Any, ClusterFacts], Any]
    changed_by: tuple[str, ...]
    parts: tuple[str, ...] = ()
    entries: Entries = Entries.PRESENT
    if_named: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_spec: bool = False
    wanted: Wanted | None = None
    is_sum: bool = False
    can_be_negative: bool = False
    shows_labels: bool = False
    instead: str = ""
    whole: str = ""
    keys: frozenset[str] = frozenset()

    @property
    def is_shared(self) -> bool:
        """True for a field of a node that the change of another node can change."""
        return NODE in self.changed_by

    @property
    def fills(self) -> bool:
        """True for a dict in which each entry that is named is there, if only as None."""
        return self.entries is Entries.FILLED

    @property
    def is_fact(self) -> bool:
        """True for a dict of facts."""
        return self.fills and FACTS in self.changed_by

    @property
    def is_asked(self) -> bool:
        """True for a dict that has no entries but those that are named."""
        return self.entries is Entries.MADE


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
    "SpreadSelector": {
        "labels": ("dict[str, str]", "labels that must be equal"),
        "expressions": ("list[Requirement]", "requirements that must all hold"),
        "selects_pod": ("bool", "the pod itself is selected too"),
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
        "value": (
            "float?",
            "the number, an int if it was written as one; None: not a finite number",
        ),
        "text": ("str", "what came, as it was written"),
        "age_seconds": ("int?", "whole seconds since it was measured; None: not known"),
    },
    "ClockFact": {
        "value": ("int", "the hour, the minute, the number of the weekday, or the date"),
        "text": ("str", "the same as a text"),
        "age_seconds": ("int?", "0; None: of a source that does not say"),
    },
    "Owner": {
        "kind": ("str", "for example ReplicaSet"),
        "name": ("str", "its name"),
        "uid": ("str", "its uid"),
    },
    **WORKLOAD_RECORDS,
    "Image": {
        "size_bytes": ("int", "size on this node"),
        "node_count": ("int", "how many nodes have the image"),
    },
    **VOLUME_RECORDS,
}


def manifest_view(raw: bytes | None, fallback: Any) -> Any:
    """The whole object, from its text if that is known."""
    # Kept raw until a policy asks: decoding a whole manifest costs more than a decision.
    return msgspec.json.decode(raw if raw is not None else msgspec.json.encode(fallback))
