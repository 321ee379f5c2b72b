"""Queueing hints: is an event worth another attempt at a rejected pod?

Owns, for each built-in policy, which events can make it change its mind and a quick look at the
objects where that rules most of them out. A wrong no leaves a pod waiting for the flush, a wrong
yes costs an attempt: in doubt the answer is yes.

Source: `EventsToRegister` of kube-scheduler's plugins.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from engine.framework.profile import Profile
from engine.model.node import Node
from engine.model.objects import NodeAffinity, NodeSelector, Taint, Toleration, from_plain
from engine.model.pod import ANY_IP, HostPort, Pod
from engine.model.resources import is_extended_resource
from engine.model.selectors import matches_node_selector
from engine.queueing.events import (
    ADD,
    ASSIGNED_POD,
    DELETE,
    NODE,
    POD,
    UPDATE,
    ClusterEvent,
    is_meaningful_pod_change,
)

_Table = Mapping[str, Mapping[str, frozenset[str]]]
_ANY: Final[frozenset[str]] = frozenset()  # every action of the resource


def _on(*actions: str) -> frozenset[str]:
    return frozenset(actions)


_ADD_OR_UPDATE: Final = _on(ADD, UPDATE)
_TOLERATION: Final = _on("UpdatePodToleration")

# Plugin -> resource -> actions. Where kube-scheduler leaves out an event that can help, it is here:
# a new node for the volume plugins, changed namespaces for pod affinity, changed selectors for
# default spreading, pods on their way out for spreading.
INTERESTS: Final[_Table] = {
    "SchedulingGates": {POD: _on("UpdatePodSchedulingGatesEliminated")},
    "NodeUnschedulable": {NODE: _on(ADD, "UpdateNodeTaint"), POD: _TOLERATION},
    "NodeName": {NODE: _on(ADD)},
    "TaintToleration": {NODE: _on(ADD, "UpdateNodeTaint"), POD: _TOLERATION},
    "NodeAffinity": {NODE: _on(ADD, "UpdateNodeLabel")},
    "NodePorts": {ASSIGNED_POD: _on(DELETE), NODE: _on(ADD)},
    "NodeResourcesFit": {
        ASSIGNED_POD: _on(DELETE, "UpdatePodScaleDown"),
        POD: _on("UpdatePodScaleDown"),
        NODE: _on(ADD, "UpdateNodeAllocatable"),
        "DeviceClass": _ADD_OR_UPDATE,
    },
    "VolumeRestrictions": {
        ASSIGNED_POD: _on(DELETE),
        NODE: _on(ADD),
        "PersistentVolumeClaim": _on(ADD),
    },
    "NodeVolumeLimits": {
        ASSIGNED_POD: _on(DELETE),
        NODE: _on(ADD),
        "CSINode": _ADD_OR_UPDATE,
        "PersistentVolumeClaim": _on(ADD),
        "VolumeAttachment": _on(DELETE),
    },
    "VolumeBinding": {
        NODE: _on(ADD, "UpdateNodeLabel"),
        "StorageClass": _ADD_OR_UPDATE,
        "PersistentVolumeClaim": _ADD_OR_UPDATE,
        "PersistentVolume": _ADD_OR_UPDATE,
        "CSINode": _ADD_OR_UPDATE,
        "CSIDriver": _on(UPDATE),
        "CSIStorageCapacity": _ADD_OR_UPDATE,
    },
    "VolumeZone": {
        NODE: _on(ADD, "UpdateNodeLabel"),
        "StorageClass": _on(ADD),
        "PersistentVolumeClaim": _ADD_OR_UPDATE,
        "PersistentVolume": _ADD_OR_UPDATE,
    },
    "PodTopologySpread": {
        ASSIGNED_POD: _on(ADD, DELETE, "UpdatePodLabel", "UpdatePodTerminating"),
        POD: _on("UpdatePodLabel", "UpdatePodToleration"),
        NODE: _on(ADD, DELETE, "UpdateNodeLabel", "UpdateNodeTaint"),
        "Service": _ANY,
        "ReplicationController": _ANY,
        "ReplicaSet": _ANY,
        "StatefulSet": _ANY,
    },
    "InterPodAffinity": {
        ASSIGNED_POD: _on(ADD, DELETE, "UpdatePodLabel"),
        POD: _on("UpdatePodLabel"),
        NODE: _on(ADD, "UpdateNodeLabel"),
        "Namespace": _ADD_OR_UPDATE,
    },
    "DynamicResources": {
        NODE: _on(ADD, "UpdateNodeLabel", "UpdateNodeAllocatable"),
        POD: _on("UpdatePodGeneratedResourceClaim"),
        "ResourceClaim": _ANY,
        "DeviceClass": _ADD_OR_UPDATE,
        "ResourceSlice": _ADD_OR_UPDATE,
    },
    "NodeDeclaredFeatures": {
        NODE: _on(ADD, "UpdateNodeDeclaredFeature"),
        POD: _on(UPDATE, "UpdatePodLabel", "UpdatePodToleration"),
    },
    # Preemption only ever helps because a victim goes, and then the plugin that rejected is asked.
    "DefaultPreemption": {},
    "GangScheduling": {POD: _on(ADD), ASSIGNED_POD: _on(ADD), "PodGroup": _on(ADD)},
}


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """If *toleration* bears *taint*: same effect and key (empty means all), and value if Equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _has_untolerated_taint(node: Node, pod: Pod) -> bool:
    tolerations = pod.manifest.spec.tolerations
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
    )


def _clash(ports: Iterable[HostPort], others: Iterable[HostPort]) -> bool:
    return any(
        port == other_port and protocol == other and (ip == other_ip or ANY_IP in (ip, other_ip))
        for ip, protocol, port in ports
        for other_ip, other, other_port in others
    )


class _Arguments:
    """What a profile's plugin arguments mean to the hints."""

    def __init__(self, arguments: Mapping[str, Mapping[str, Any]]) -> None:
        fit = arguments.get("NodeResourcesFit", {})
        self.ignored_resources = frozenset(_either(fit, "ignoredResources", "ignored_resources"))
        self.ignored_groups = frozenset(
            _either(fit, "ignoredResourceGroups", "ignored_resource_groups")
        )
        affinity = arguments.get("NodeAffinity", {})
        added = _either(affinity, "addedAffinity", "added_affinity")
        self.added: NodeSelector | None = (
            from_plain(NodeAffinity, added).required if added else None
        )

    def ignores(self, resource: str) -> bool:
        """If NodeResourcesFit looks away from *resource*."""
        return is_extended_resource(resource) and (
            resource in self.ignored_resources or resource.partition("/")[0] in self.ignored_groups
        )


def _either(arguments: Mapping[str, Any], *spellings: str) -> Any:
    return next((arguments[name] for name in spellings if arguments.get(name)), ())


_NO_ARGUMENTS: Final = _Arguments({})

_Check = Callable[["Hints", ClusterEvent, Pod, Any, Any], bool]


class Hints:
    """The answers for the policies in force.

    Args:
        profiles: Whose arguments matter to some hints; pods of other profiles get the defaults.
        replaced: Names of built-ins that a user's file replaces: their table does not hold any
            more, so they are treated like any user policy.
        device_resources: Extended resources that device classes stand for where a node has none.
    """

    def __init__(
        self,
        profiles: Iterable[Profile] = (),
        replaced: Iterable[str] = (),
        device_resources: Iterable[str] = (),
    ) -> None:
        self._device_resources = frozenset(device_resources)
        self._arguments = {p.scheduler_name: _Arguments(p.arguments) for p in profiles}
        self._replaced = frozenset(replaced)

    def is_interested(self, plugin: str, event: ClusterEvent) -> bool:
        """If events of this kind can make *plugin* change its mind at all."""
        interests = INTERESTS.get(plugin)
        if interests is None or plugin in self._replaced or event.is_wildcard:
            return True
        actions = interests.get(event.resource)
        return actions is not None and (not actions or event.action in actions)

    def worth_retrying(
        self, event: ClusterEvent, pod: Pod, rejectors: Iterable[str], old: Any, new: Any
    ) -> bool:
        """If *event* may make one of *rejectors* let *pod* pass.

        Args:
            event: What happened.
            pod: The rejected pod.
            rejectors: The plugins that rejected it.
            old: The object before the event; None if it is new.
            new: The object after the event; None if it is gone.
        """
        if event.is_wildcard:
            # With a pod, it is meant for that pod alone.
            return not isinstance(new, Pod) or new.uid == pod.uid
        if event.resource == ASSIGNED_POD and (old if new is None else new).uid == pod.uid:
            # It was assumed, refused and forgotten: room that it gave back itself is no news.
            return False
        for plugin in rejectors:
            if plugin in self._replaced or plugin not in INTERESTS:
                if self._user_policy(event, pod, old, new):
                    return True
            elif self.is_interested(plugin, event):
                check = _CHECKS.get(plugin)
                if check is None or check(self, event, pod, old, new):
                    return True
        return False

    def _arguments_of(self, pod: Pod) -> _Arguments:
        return self._arguments.get(pod.scheduler_name, _NO_ARGUMENTS)

    # --- per policy: True unless the objects rule out that the event helps -------------------

    def _user_policy(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == POD:
            return (
                event.action not in (ADD, DELETE)
                and new.uid == pod.uid
                and is_meaningful_pod_change(old, new)
            )
        if event.resource == ASSIGNED_POD and event.action == UPDATE:
            # No view of a policy shows the status of other pods.
            return old is None or is_meaningful_pod_change(old, new)
        return True

    def _own_pod_only(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        return event.resource != POD or (new is not None and new.uid == pod.uid)

    def _own_change_only(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        return event.resource != POD or (new.uid == pod.uid and is_meaningful_pod_change(old, new))

    def _same_namespace(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource not in (POD, ASSIGNED_POD):
            return True
        return bool((new or old).namespace == pod.namespace)

    def _node_unschedulable(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == POD:
            cordoned = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
            return new.uid == pod.uid and any(
                tolerates(t, cordoned) for t in new.manifest.spec.tolerations
            )
        return not new.unschedulable and (old is None or old.unschedulable)

    def _taint_toleration(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == POD:
            return bool(new.uid == pod.uid)
        return not _has_untolerated_taint(new, pod) and (
            old is None or _has_untolerated_taint(old, pod)
        )

    def _node_affinity(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        spec = pod.manifest.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        added = self._arguments_of(pod).added

        def matches(node: Node) -> bool:
            labels, name = node.labels, node.name
            return (
                all(labels.get(k) == v for k, v in spec.node_selector.items())
                and matches_node_selector(required, labels, name)
                and matches_node_selector(added, labels, name)
            )

        return matches(new) and (old is None or not matches(old))

    def _node_ports(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == NODE:
            return True
        is_placed = old.node_name or old.nominated_node_name
        return bool(is_placed) and _clash(pod.host_ports, old.host_ports)

    def _node_resources_fit(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == NODE:
            return self._fits_when_empty(pod, new) and (old is None or _grew_for(pod, old, new))
        if event.resource == ASSIGNED_POD and event.action == DELETE:
            return bool(old.node_name or old.nominated_node_name)
        if event.resource in (POD, ASSIGNED_POD):
            return bool(new.uid == pod.uid) or (
                event.resource == ASSIGNED_POD and _gave_back_for(pod, old, new)
            )
        return True

    def _fits_when_empty(self, pod: Pod, node: Node) -> bool:
        offered = node.allocatable
        if offered.get("pods", 0) < 1:
            return False
        arguments = self._arguments_of(pod)
        for name, amount in pod.requests.items():
            if amount <= offered.get(name, 0) or arguments.ignores(name):
                continue
            if name in self._device_resources and not offered.get(name, 0):
                continue  # devices may stand for it, which is DynamicResources' to say
            return False
        return True

    def _pod_topology_spread(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource == ASSIGNED_POD:
            return bool((new or old).namespace == pod.namespace)
        return self._own_pod_only(event, pod, old, new)

    def _own_claim(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        if event.resource != "PersistentVolumeClaim":
            return self._own_pod_only(event, pod, old, new)
        claim = new if new is not None else old
        return bool(claim.metadata.namespace == pod.namespace) and bool(pod.manifest.spec.volumes)


def _grew_for(pod: Pod, old: Node, new: Node) -> bool:
    """If the node now offers more of something that *pod* uses, the place of a pod included."""
    before, after = old.allocatable, new.allocatable
    return after.get("pods", 0) > before.get("pods", 0) or any(
        amount > 0 and after.get(name, 0) > before.get(name, 0)
        for name, amount in pod.requests.items()
    )


def _gave_back_for(pod: Pod, old: Pod, new: Pod) -> bool:
    """If a placed pod now counts for less of something that *pod* requests."""
    before, after = old.running_requests, new.running_requests
    return any(
        amount > 0 and after.get(name, 0) < before.get(name, 0)
        for name, amount in pod.requests.items()
    )


_CHECKS: Final[Mapping[str, _Check]] = {
    "SchedulingGates": Hints._own_pod_only,
    "NodeUnschedulable": Hints._node_unschedulable,
    "TaintToleration": Hints._taint_toleration,
    "NodeAffinity": Hints._node_affinity,
    "NodePorts": Hints._node_ports,
    "NodeResourcesFit": Hints._node_resources_fit,
    "VolumeRestrictions": Hints._own_claim,
    "NodeVolumeLimits": Hints._own_claim,
    "VolumeBinding": Hints._own_claim,
    "VolumeZone": Hints._own_claim,
    "PodTopologySpread": Hints._pod_topology_spread,
    "InterPodAffinity": Hints._own_pod_only,
    "DynamicResources": Hints._own_pod_only,
    "NodeDeclaredFeatures": Hints._own_change_only,
    "GangScheduling": Hints._same_namespace,
}
