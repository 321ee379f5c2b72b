"""The hint of a policy that is not kube-scheduler's, derived from the fields that it reads.

Owns deriving events from the fields of pod, node, cluster and group that are read by the hooks that
can reject, and from those by which other pods are protected from eviction. A change of an object is
worth a retry if a field that is read has another value after it. *How* a field matters is unknown:
more free capacity helps a policy that needs capacity, but another policy may want less of it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.core.caching.objects import ObjectStore, object_key
from engine.core.caching.snapshot import Snapshot
from engine.core.model.event_kinds import (
    ASSIGNED_POD,
    FACTS,
    NODE,
    PLURALS,
    TARGET_POD,
    UNSCHEDULED_POD,
)
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.events import (
    ADD,
    AGE,
    CLOCK_STEPS,
    DELETE,
    UPDATE,
    ClusterEvent,
    is_meaningful_pod_change,
)
from engine.core.queueing.hints.interest import ClusterContext
from engine.language.effects import AGES
from engine.language.hooks import ENTRIES
from engine.policy.analysis import Reads, reads_clock
from engine.policy.node_views import NODE_FIELDS
from engine.policy.projections import Projector
from engine.policy.view_events import ANYTHING, fields_of, resources_behind
from engine.policy.views import VIEWS
from engine.policy.workload_views import WORKLOAD_KINDS

#: The hook that orders the queue.
ORDER: Final = frozenset({"queue_key"})
#: The hook whose verdict can keep a pod waiting at the gate.
GATES: Final = frozenset({"pre_enqueue"})
# Those whose verdict can in the cycle.
_FILTERS: Final = frozenset(hook.name for hook in ENTRIES if hook.may_reject) - GATES | {
    "counters"  # whose counts the others take
}

_CLOCK_STEPS: Final = frozenset(CLOCK_STEPS.values())

# Pods that a policy protects from eviction keep others waiting.
_KEEPS: Final = "victim_key"

_MANIFEST: Final = "manifest"
# What the API server and schedulers write themselves. Reacting to what we write about a failed
# attempt would make each attempt cause the next one.
_BOOKKEEPING: Final = ("resourceVersion", "generation", "managedFields")
_OUR_STATUS: Final = ("nominatedNodeName", "observedGeneration")
# The time of the last look, which each heartbeat changes.
_HEARTBEATS: Final = ("lastHeartbeatTime", "lastProbeTime")


class DerivedHint:
    """What can change the mind of one policy, at its gate or at its filters.

    Args:
        hooks: What each hook of the policy reads. Without one that can reject, nothing is known,
            and everything that a policy could see counts.
        asked: The hooks that it is about: `GATES` for pods that its `pre_enqueue` keeps out,
            `ORDER` for the places of waiting pods; None: those that are asked in a cycle.

    Attributes:
        can_reject: It has a hook by which a pod may wait.
    """

    def __init__(self, hooks: Mapping[str, Reads], asked: frozenset[str] | None = None) -> None:
        in_cycle = asked is None
        names = _FILTERS if asked is None else asked
        read = [
            reads
            for name, reads in hooks.items()
            if name in names or (name.startswith("among_") and in_cycle)
        ]
        victims = hooks.get(_KEEPS)
        keeps = victims is not None and victims.keeps_pods and in_cycle
        self.can_reject = bool(read) or keeps
        paths = {v: frozenset[str]().union(*(one.of(v) for one in read)) for v in VIEWS}
        fields = {view: fields_of(view, found) for view, found in paths.items()}
        self._resources = frozenset[str]().union(
            *(resources_behind(view, found) for view, found in fields.items())
        )
        self._reads_ages = any(AGES in found for found in paths.values())
        self._clock_steps = frozenset(
            step for name, step in CLOCK_STEPS.items() if reads_clock(paths["cluster"], name)
        )
        params = {param for one in read for param in one.params}
        self._counts = "counts" in params
        self._is_grouped = "group" in params
        self._of_nodes = resources_behind("node", fields["node"])
        self._placed = ASSIGNED_POD in self._of_nodes | resources_behind("pod", fields["pod"])
        # A sum changes only with its summands; any other field may change with anything.
        self._placed_in_detail = any(
            ASSIGNED_POD in resources_behind("node", frozenset({field}))
            for field in fields["node"]
            if field not in NODE_FIELDS or not NODE_FIELDS[field].is_sum
        )
        # A pre-filter may name nodes that do not exist yet.
        looks_at_nodes = bool(fields["node"]) or self._counts or NODE in self._resources
        self._wants_new_nodes = looks_at_nodes or ("pre_filter" in hooks and in_cycle)
        self._looks_at_nodes = looks_at_nodes
        self._looks_at_pod = bool(paths["pod"]) or self._is_grouped
        self._pod = _Reader("pod", paths["pod"])
        self._node = _Reader("node", paths["node"])
        self._last_node: tuple[Any, Any, bool] = (None, None, False)
        # What is read of the pods that it may protect from eviction.
        kept = victims.pod if victims is not None and keeps else frozenset[str]()
        self._kept = _Reader("pod", kept) if kept else None
        self._of_kept = resources_behind("pod", fields_of("pod", kept))
        self._resources |= self._of_kept | ({ASSIGNED_POD} if kept else set())

    def is_interested(self, event: ClusterEvent) -> bool:
        """Whether such events about anything but the pod itself can help at all."""
        resource, action = event.resource, event.action
        if action == AGE:  # every few seconds: only for policies known to read ages
            return self._reads_ages
        if not self.can_reject or ANYTHING in self._resources:
            return True
        if resource == NODE:
            if action == ADD:
                return self._wants_new_nodes
            if action == DELETE:
                return self._counts or NODE in self._resources
            return self._looks_at_nodes
        if event in _CLOCK_STEPS:
            return event in self._clock_steps
        return resource in self._resources or (
            self._counts and resource in (ASSIGNED_POD, "Namespace")
        )

    @property
    def looks_at_pod(self) -> bool:
        """Whether a change of the rejected pod itself can help."""
        return not self.can_reject or ANYTHING in self._resources or self._looks_at_pod

    def is_worth(
        self,
        event: ClusterEvent,
        resource: str,
        context: ClusterContext,
        pod: Pod,
        old: Any,
        new: Any,
    ) -> bool:
        """Whether *event* may help *pod*; `is_interested` is true, or it is about *pod* itself.

        Args:
            event: What happened.
            resource: As the pod sees it (`interest.resource_for`).
            context: The cluster of the objects of the event.
            pod: The rejected pod.
            old: The object before the event; None if it is new.
            new: The object after the event; None if it is gone.
        """
        if not self.can_reject or ANYTHING in self._resources:
            return _could_be_seen(event, resource, old, new)
        if resource == TARGET_POD:
            if self._is_grouped and is_meaningful_pod_change(old, new):
                return True  # it may belong to another group now
            facts = Snapshot(context.objects)
            return self._pod.differs(old, new, facts)
        if resource == NODE:
            return event.action in (ADD, DELETE) or self._node_differs(old, new)
        if resource == ASSIGNED_POD:
            return self._after_placed(pod, old, new, Snapshot(context.objects))
        if resource == UNSCHEDULED_POD:
            return bool((old if new is None else new).namespace == pod.namespace)
        return self._after_other(resource, context, pod, old, new)

    def _node_differs(self, old: Node, new: Node) -> bool:
        # The same for all waiting pods.
        known_old, known_new, differs = self._last_node
        if known_old is not old or known_new is not new:
            is_counted = old.labels != new.labels or old.allocatable != new.allocatable
            differs = (self._counts and is_counted) or self._node.differs(
                NodeInfo(old.name, old), NodeInfo(new.name, new), Snapshot()
            )
            self._last_node = (old, new, differs)
        return differs

    def _after_placed(self, pod: Pod, old: Pod | None, new: Pod | None, facts: Snapshot) -> bool:
        if old is None or new is None:
            known = new if old is None else old
            assert known is not None
            return self._counts or self._placed or known.namespace == pod.namespace
        kept = self._kept if new.priority < pod.priority else None
        if kept is not None and kept.differs(old, new, facts):
            return True  # it may be evicted now
        if self._counts and (
            old.labels != new.labels
            or old.is_terminating != new.is_terminating
            or old.running_requests != new.running_requests
        ):
            return True
        if self._placed_in_detail and is_meaningful_pod_change(old, new):
            return True
        return self._placed and (
            old.running_requests != new.running_requests
            or old.running_nonzero_requests != new.running_nonzero_requests
            or old.host_ports != new.host_ports
        )

    def _after_other(
        self, resource: str, context: ClusterContext, pod: Pod, old: Any, new: Any
    ) -> bool:
        if resource == FACTS:
            return True
        meta = (old if new is None else new).metadata
        if resource == "Namespace":
            before, after = (None if one is None else one.metadata.labels for one in (old, new))
            is_seen = self._counts or resource in self._of_kept or meta.name == pod.namespace
            return before != after and is_seen
        if resource in self._of_nodes | self._of_kept:
            return True  # nodes hold pods of all namespaces
        if meta.namespace and meta.namespace != pod.namespace:
            return False  # the pod's own objects are in its own
        if resource not in WORKLOAD_KINDS:
            return True
        # These are looked up by name: most are those of other pods.
        before, after = (
            Snapshot(_With(context.objects, PLURALS[resource], object_key(old or new), one))
            for one in (old, new)
        )
        return self._pod.differs_in(pod, before, after)


def _could_be_seen(event: ClusterEvent, resource: str, old: Any, new: Any) -> bool:
    """Whether any policy could see the change."""
    if resource == TARGET_POD:
        return is_meaningful_pod_change(old, new)
    if resource == UNSCHEDULED_POD:
        return False
    if resource == ASSIGNED_POD and event.action == UPDATE:
        # No view shows policies the status of other pods.
        return old is None or is_meaningful_pod_change(old, new)
    return True


class _With(ObjectStore):
    """A view of *objects* in which another one, or none, is found under one key."""

    def __init__(self, objects: ObjectStore, kind: str, key: str, obj: Any) -> None:
        super().__init__()
        self._objects = objects
        self._replaced = kind, key
        self._obj = obj

    def get(self, kind: str, key: str) -> Any | None:
        """As `ObjectStore.get`."""
        return self._obj if (kind, key) == self._replaced else self._objects.get(kind, key)

    def list(self, kind: str, namespace: str | None = None) -> list[Any]:
        """As `ObjectStore.list`: those of *objects*."""
        return self._objects.list(kind, namespace)


class _Reader:
    """The fields of one view that are read, by which two versions of an object are compared."""

    def __init__(self, view: str, paths: frozenset[str]) -> None:
        known = VIEWS[view]
        plain, self._sections = set(), set[str]()
        for path in paths:
            field, _, section = path.removesuffix("]").partition("[")
            if field == _MANIFEST:
                self._sections.add(section)
            elif path == ANYTHING or field in known:
                plain.add(path)
        self._projector = Projector(view, plain)
        self._view = view

    def differs_in(self, item: Any, before: Snapshot, after: Snapshot) -> bool:
        """Whether a field that is read has another value in *after*."""
        project = self._projector.project
        return project(item, before) != project(item, after)

    def differs(self, old: Any, new: Any, facts: Snapshot) -> bool:
        """Whether a field that is read has another value."""
        project = self._projector.project
        if project(old, facts) != project(new, facts):
            return True
        if not self._sections:
            return False
        before, after = (self._manifest(one, facts) for one in (old, new))
        if "" in self._sections:
            return before != after
        return any(before.get(name) != after.get(name) for name in self._sections)

    def _manifest(self, item: Any, facts: Snapshot) -> dict[str, Any]:
        """The whole object without bookkeeping."""
        # Extraction may return a cached object, so only a copy may be changed.
        given = VIEWS[self._view][_MANIFEST].extract(item, facts)
        manifest: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(given))
        for name in _BOOKKEEPING:
            manifest.get("metadata", {}).pop(name, None)
        status = manifest.get("status", {})
        if self._view == "pod":
            for name in _OUR_STATUS:
                status.pop(name, None)
            given = status.pop("conditions", None) or ()
            # Empty and missing are the same: the first condition of all may be ours.
            if others := [one for one in given if not _is_of_schedulers(one)]:
                status["conditions"] = others
        for condition in status.get("conditions", ()):
            for name in _HEARTBEATS:
                condition.pop(name, None)
        return manifest


def _is_of_schedulers(condition: Mapping[str, Any]) -> bool:
    """True for the conditions of pods that schedulers write; others may be what a pod waits for."""
    found = condition.get("type"), condition.get("reason")
    return found[0] == "PodScheduled" or found == ("DisruptionTarget", "PreemptionByScheduler")
