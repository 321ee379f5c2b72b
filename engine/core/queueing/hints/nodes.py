"""Hints of the policies that look at one node: cordons, taints, labels, ports, capacity.

Source: `EventsToRegister` of kube-scheduler's plugins of these names.
"""

from collections.abc import Iterable
from typing import Any, Final

from engine.core.model.devices import IMPLICIT_RESOURCE_PREFIX
from engine.core.model.event_kinds import ASSIGNED_POD, NODE, TARGET_POD
from engine.core.model.node import Node
from engine.core.model.objects import Taint, Toleration
from engine.core.model.pod import ANY_IP, HostPort, Pod
from engine.core.model.resources import Amounts
from engine.core.model.selectors import matches_node_selector
from engine.core.queueing.events import ADD, DELETE, UPDATE, is_meaningful_pod_change
from engine.core.queueing.hints.interest import ClusterContext, Table, on, peek

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_CORDONED: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether *toleration* tolerates *taint*: same effect, key (empty: any), and value if Equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def has_untolerated_taint(node: Node, pod: Pod) -> bool:
    """Whether *pod* does not tolerate a taint of *node*."""
    tolerations = pod.manifest.spec.tolerations
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
    )


def matches_own_affinity(pod: Pod, node: Node) -> bool:
    """Whether the pod's own node selector and required node affinity match *node*."""
    spec = pod.manifest.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    labels = node.labels
    return all(labels.get(k) == v for k, v in spec.node_selector.items()) and matches_node_selector(
        required, labels, node.name
    )


def _tolerates_cordons(context: ClusterContext, pod: Pod, old: Pod, new: Pod) -> bool:
    return any(tolerates(t, _CORDONED) for t in new.manifest.spec.tolerations)


def _takes_pods_now(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    return not new.unschedulable and (old is None or old.unschedulable)


def _is_tolerated_now(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    return not has_untolerated_taint(new, pod) and (old is None or has_untolerated_taint(old, pod))


def _matches_now(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    def matches(node: Node) -> bool:
        added = context.added_affinity
        return matches_own_affinity(pod, node) and matches_node_selector(
            added, node.labels, node.name
        )

    return matches(new) and (old is None or not matches(old))


def _clash(ports: Iterable[HostPort], others: Iterable[HostPort]) -> bool:
    # Grouped by port first: both may have thousands, too many to compare each pair.
    addresses: dict[tuple[str, int], set[str]] = {}
    for ip, protocol, port in others:
        addresses.setdefault((protocol, port), set()).add(ip)
    for ip, protocol, port in ports:
        taken = addresses.get((protocol, port))
        if taken and (ip == ANY_IP or ip in taken or ANY_IP in taken):
            return True
    return False


def _freed_a_port(context: ClusterContext, pod: Pod, old: Pod, new: None) -> bool:
    is_placed = old.node_name or old.nominated_node_name
    return bool(is_placed) and _clash(pod.host_ports, old.host_ports)


# --- NodeResourcesFit ------------------------------------------------------------------------


def _freed_capacity(context: ClusterContext, pod: Pod, old: Pod, new: None) -> bool:
    node = old.node_name or old.nominated_node_name
    return bool(node) and _may_fit(context, pod, node)


def _scaled_down(context: ClusterContext, pod: Pod, old: Pod, new: Pod) -> bool:
    before, after = old.running_requests, new.running_requests
    return any(
        amount > 0 and after.get(name, 0) < before.get(name, 0)
        for name, amount in pod.requests.items()
    ) and _may_fit(context, pod, new.node_name)


def _may_fit(context: ClusterContext, pod: Pod, node_name: str) -> bool:
    """Whether *pod* fits next to the pods on the node now that it could not preempt."""
    info = context.node_info(node_name)
    if info is None or info.node is None:
        return True  # not known here: in doubt, yes
    never_preempts = pod.manifest.spec.preemption_policy == "Never"
    weaker = [] if never_preempts else [p for p in info.pods.values() if p.priority < pod.priority]
    free: Amounts = {"pods": info.node.allocatable.get("pods", 0) - len(info.pods) + len(weaker)}
    for name in pod.requests:
        free[name] = info.node.allocatable.get(name, 0) - info.requested.get(name, 0)
        free[name] += sum(p.running_requests.get(name, 0) for p in weaker)
    return _suffices(context, pod, free, info.node)


def _fits_when_empty(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    if _suffices(context, pod, new.allocatable, new):
        return old is None or _grew(pod, old, new) or _leaves_more_to_devices(pod, old, new)
    return old is not None and _shrank_below_nominated(context, pod, old, new)


def _shrank_below_nominated(context: ClusterContext, pod: Pod, old: Node, new: Node) -> bool:
    """Whether *pod* waits in vain for victims on the node, and is to preempt elsewhere."""
    return (
        context.objects.behaves.shrunk_nominated_nodes_retry
        and pod.nominated_node_name == new.name
        and pod.manifest.spec.scheduling_group is None
        # Not extended resources, which are gone for a moment when a device plugin restarts.
        and any(pod.requests.get(name, 0) > new.allocatable.get(name, 0) for name in _NATIVE)
        and _suffices(context, pod, old.allocatable, old)
    )


def _suffices(context: ClusterContext, pod: Pod, offered: Amounts, node: Node) -> bool:
    if offered.get("pods", 0) < 1:
        return False
    for name, amount in pod.requests.items():
        if not amount or amount <= offered.get(name, 0) or context.ignores(name):
            continue
        if not node.allocatable.get(name, 0) and _is_device(context, name):
            continue  # devices may provide it, which DynamicResources decides
        return False
    return True


def _is_device(context: ClusterContext, resource: str) -> bool:
    return resource.startswith(IMPLICIT_RESOURCE_PREFIX) or any(
        peek(one, "spec", "extendedResourceName") == resource
        for one in context.objects.list("deviceclasses")
    )


def _grew(pod: Pod, old: Node, new: Node) -> bool:
    """Whether the node now offers more of something that *pod* uses, or takes more pods."""
    before, after = old.allocatable, new.allocatable
    return after.get("pods", 0) > before.get("pods", 0) or any(
        amount > 0 and after.get(name, 0) > before.get(name, 0)
        for name, amount in pod.requests.items()
    )


def _provides_more(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Whether a device class now provides an extended resource that the pod requests."""
    name = peek(new, "spec", "extendedResourceName")
    if old is None and IMPLICIT_RESOURCE_PREFIX + new.metadata.name in pod.requests:
        return True
    is_new = old is None or peek(old, "spec", "extendedResourceName") != name
    return is_new and name in pod.requests


def _leaves_more_to_devices(pod: Pod, old: Node, new: Node) -> bool:
    """Whether the node stopped offering a resource that *pod* uses: devices may provide it."""
    return any(
        amount > 0 and old.allocatable.get(name, 0) and not new.allocatable.get(name, 0)
        for name, amount in pod.requests.items()
    )


# --- NodeDeclaredFeatures --------------------------------------------------------------------


def _declares_others(context: ClusterContext, pod: Pod, old: Node | None, new: Node) -> bool:
    return old is None or old.declared_features != new.declared_features


def _own_change(context: ClusterContext, pod: Pod, old: Pod, new: Pod) -> bool:
    return is_meaningful_pod_change(old, new)


HINTS: Final[Table] = {
    "PodSpec": (on(TARGET_POD, check=_own_change),),
    "NodeUnschedulable": (
        on(NODE, ADD, "UpdateNodeTaint", check=_takes_pods_now),
        on(TARGET_POD, "UpdatePodToleration", check=_tolerates_cordons),
    ),
    "NodeName": (on(NODE, ADD),),
    "TaintToleration": (
        on(NODE, ADD, "UpdateNodeTaint", check=_is_tolerated_now),
        on(TARGET_POD, "UpdatePodToleration"),
    ),
    "NodeAffinity": (on(NODE, ADD, "UpdateNodeLabel", check=_matches_now),),
    "NodePorts": (on(ASSIGNED_POD, DELETE, check=_freed_a_port), on(NODE, ADD)),
    "NodeResourcesFit": (
        on(ASSIGNED_POD, DELETE, check=_freed_capacity),
        on(ASSIGNED_POD, "UpdatePodScaleDown", check=_scaled_down),
        on(TARGET_POD, "UpdatePodScaleDown"),
        on(NODE, ADD, "UpdateNodeAllocatable", check=_fits_when_empty),
        on("DeviceClass", ADD, UPDATE, check=_provides_more),
    ),
    "NodeDeclaredFeatures": (
        on(NODE, ADD, "UpdateNodeDeclaredFeature", check=_declares_others),
        on(TARGET_POD, check=_own_change),
    ),
}
