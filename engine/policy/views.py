"""What a policy sees of pods, nodes and the cluster: names, types, documentation, values.

Owns the schema that `check`, the sandbox, the projections and the documents share. A field's value
is plain JSON data; records (`Taint`, `Toleration`, ...) are objects here and structs in Starlark.
Which fields a hook gets is decided by `analysis`; how they are reused by `verdicts`.
"""

from collections.abc import Callable
from typing import Any, Final

from engine.core.framework.behaviors import CHANGES, by_name
from engine.core.model.clock_facts import CLOCK_FACTS
from engine.core.model.event_kinds import FACTS, NODE, VERSION
from engine.core.model.pod_group import PodGroupState
from engine.language.values import Schema
from engine.policy.node_views import NODE_FIELDS
from engine.policy.pod_views import POD_FIELDS
from engine.policy.view_fields import RECORDS, Entries, ViewField

CLUSTER_FIELDS: Final[dict[str, ViewField]] = {
    "node_count": ViewField(
        "int", "how many nodes there are", lambda facts, _: facts.node_count, (NODE,)
    ),
    "facts": ViewField(
        "dict[str, Fact?]",
        "what is known of the cluster from elsewhere, and the hour and the date; None: nothing",
        lambda facts, _: facts.cluster_facts,
        (FACTS,),
        entries=Entries.FILLED,
        # A hook that looks at all facts is not called again with every hour.
        if_named=dict.fromkeys(CLOCK_FACTS, "ClockFact"),
    ),
    "kubernetes_minor": ViewField(
        "int",
        "the minor version of Kubernetes that is answered like: 38 for 1.38",
        lambda facts, _: facts.objects.behaves.minor,
        (VERSION,),
    ),
    "behaves": ViewField(
        "dict[str, bool]",
        "what differs between minor versions of kube-scheduler, by its name in "
        "[compatibility](compatibility.md): True if it is as in the newest",
        lambda facts, _: by_name(facts.objects.behaves),
        (VERSION,),
        keys=frozenset(CHANGES),
    ),
}


def _group(type_: str, doc: str, extract: Callable[[PodGroupState], Any], **more: Any) -> ViewField:
    # Pods of a group are reconsidered by those that count groups, so no other event has to.
    return ViewField(type_, doc, lambda group, _: extract(group), (), **more)


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
    "priority": _group(
        "int",
        "what `group_of` gives, or else that of its PodGroup; without one, the highest "
        "among its pods",
        lambda g: g.priority,
        can_be_negative=True,
    ),
    "preemption_policy": _group(
        "str",
        '"PreemptLowerPriority" or "Never": whether pods are preempted for it; "": as its pods say',
        lambda g: g.preemption_policy,
    ),
    "disruption_mode": _group(
        "str",
        '"single" or "all": its pods are preempted one by one, or all together',
        lambda g: g.disruption_mode,
    ),
    "workload": _group(
        "str", 'the Workload that its PodGroup was made from, or ""', lambda g: g.workload
    ),
    "problem": _group(
        "str", 'why its PodGroup is not there or cannot be followed, or ""', lambda g: g.problem
    ),
    "shortage": _group(
        "str",
        "what its pods wait for as long as they are fewer than `min_count`, in the words of "
        "kube-scheduler's minor version",
        lambda g: g.shortage,
    ),
    "is_bound_at_once": _group(
        "bool",
        "True: kube-scheduler has no pod of a group wait in permit for others, as from 1.38 on",
        lambda g: g.is_bound_at_once,
    ),
    "pod_count": _group("int", "how many pods it has: the next three", lambda g: g.pod_count),
    "pending": _group("int", "pods without a node", lambda g: g.pending),
    "waiting": _group(
        "int",
        "pods that have a node and wait in permit; in `permit`, this pod too",
        lambda g: g.waiting,
    ),
    "placed": _group(
        "int", "pods that permit approved, those on their nodes included", lambda g: g.placed
    ),
}

VIEWS: Final[dict[str, dict[str, ViewField]]] = {
    "pod": POD_FIELDS,
    "node": NODE_FIELDS,
    "cluster": CLUSTER_FIELDS,
    "group": GROUP_FIELDS,
}

#: The fields that hold facts, whatever view they are of.
FACT_FIELDS: Final = frozenset(
    name for fields in VIEWS.values() for name, field in fields.items() if field.is_fact
)

#: What the analysis of policies needs of all this.
SCHEMA: Final = Schema(VIEWS, RECORDS)
