"""The hint of PodTopologySpread: the counts in the domains change, or the domains do.

Source: `EventsToRegister` of kube-scheduler's PodTopologySpread. Unlike there, it makes a
difference if a node starts or stops being counted because of its other labels or its taints; so do
the services and workloads that the default constraints use.
"""

from typing import Any, Final
from weakref import WeakKeyDictionary

from engine.core.caching.snapshot import Snapshot
from engine.core.model.event_kinds import ASSIGNED_POD, NODE, TARGET_POD
from engine.core.model.node import Node
from engine.core.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    TopologySpreadConstraint,
    from_plain,
)
from engine.core.model.pod import Pod
from engine.core.model.selectors import SelectorError, SelectorSet
from engine.core.queueing.events import ADD, DELETE
from engine.core.queueing.hints.interest import ClusterContext, Table, on
from engine.core.queueing.hints.nodes import has_untolerated_taint, matches_own_affinity
from engine.policy.pod_views import POD_FIELDS

_PLUGIN: Final = "PodTopologySpread"
_HARD: Final = "DoNotSchedule"


def _defaults(context: ClusterContext) -> list[TopologySpreadConstraint]:
    """The profile's default constraints that can reject; the built-in ones cannot."""
    if context.argument(_PLUGIN, "defaultingType") in (None, "System"):
        return []
    given = context.argument(_PLUGIN, "defaultConstraints") or []
    made = [from_plain(TopologySpreadConstraint, one) for one in given]
    return [one for one in made if one.when_unsatisfiable == _HARD]


# For each pod, the selectors of its own constraints, of which there may be a thousand.
_known_selectors: WeakKeyDictionary[Pod, SelectorSet] = WeakKeyDictionary()


def _constraints(context: ClusterContext, pod: Pod) -> list[TopologySpreadConstraint]:
    """What can reject *pod*."""
    own = pod.manifest.spec.topology_spread_constraints
    if own:
        return [c for c in own if c.when_unsatisfiable == _HARD]
    defaults = _defaults(context)
    return defaults if defaults and _default_selector(context, pod) is not None else []


def _selectors(context: ClusterContext, pod: Pod) -> SelectorSet:
    """Which pods are counted by what can reject *pod*. Raises `SelectorError`."""
    if not pod.manifest.spec.topology_spread_constraints:
        return SelectorSet([_default_selector(context, pod)])
    found = _known_selectors.get(pod)
    if found is None:
        own = [_own_selector(c, pod) for c in _constraints(context, pod)]
        found = _known_selectors[pod] = SelectorSet(own)
    return found


def _default_selector(context: ClusterContext, pod: Pod) -> LabelSelector | None:
    plain = POD_FIELDS["spread_selector"].extract(pod, Snapshot(context.objects))
    if plain is None:
        return None
    words = {"matchLabels": plain["labels"], "matchExpressions": plain["expressions"]}
    return from_plain(LabelSelector, words)


def _own_selector(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    selector = constraint.label_selector
    if selector is None:
        return None
    equal = [
        LabelSelectorRequirement(key, "In", (pod.labels[key],))
        for key in constraint.match_label_keys
        if key in pod.labels
    ]
    if not equal:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *equal))


def _after_pod(context: ClusterContext, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    known = new if new is not None else old
    assert known is not None
    if known.namespace != pod.namespace:
        return False
    if not _constraints(context, pod):
        return True  # they changed since it was rejected
    try:
        selectors = _selectors(context, pod)
    except SelectorError:
        return True

    def counting(other: Pod | None) -> int:
        # Terminating pods do not count.
        if other is None or (other.is_terminating and new is not None):
            return 0
        return selectors.matching(other.labels)

    return counting(old) != counting(new)


def _after_own_toleration(context: ClusterContext, pod: Pod, old: Pod, new: Pod) -> bool:
    return any(c.node_taints_policy == "Honor" for c in _constraints(context, pod))


def _after_node(context: ClusterContext, pod: Pod, old: Node | None, new: Node | None) -> bool:
    constraints = _constraints(context, pod)

    def domains(node: Node | None) -> tuple[tuple[str, bool], ...] | None:
        """The node's domain for each constraint, and if it counts there; None if in none."""
        if node is None or any(c.topology_key not in node.labels for c in constraints):
            return None
        is_affine = matches_own_affinity(pod, node)
        is_tolerated = not has_untolerated_taint(node, pod)
        return tuple(
            (
                node.labels[c.topology_key],
                (is_affine or c.node_affinity_policy == "Ignore")
                and (is_tolerated or c.node_taints_policy != "Honor"),
            )
            for c in constraints
        )

    return domains(old) != domains(new)


def _after_owner(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Whether a service or workload may be one that the default constraints use."""
    namespace = (old if new is None else new).metadata.namespace
    has_own = bool(pod.manifest.spec.topology_spread_constraints)
    return bool(namespace == pod.namespace and not has_own and _defaults(context))


HINTS: Final[Table] = {
    _PLUGIN: (
        on(ASSIGNED_POD, ADD, DELETE, "UpdatePodLabel", "UpdatePodTerminating", check=_after_pod),
        on(TARGET_POD, "UpdatePodLabel"),
        on(TARGET_POD, "UpdatePodToleration", check=_after_own_toleration),
        on(NODE, ADD, DELETE, "UpdateNodeLabel", "UpdateNodeTaint", check=_after_node),
        *(
            on(kind, check=_after_owner)
            for kind in ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
        ),
    ),
}
