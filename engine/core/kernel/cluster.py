"""Applies changes of objects to the cache, the groups, the queue and the pods in permit.

Owns which part learns of a change, and in which order: groups first, since policies are asked about
a queued pod together with its group; then the cache, so that a pod that is retried sees the change
that it is retried for; then the queue; then the pods in permit, whose capacity in the cache is
released by then.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Final

from engine.core.caching.cache import Cache
from engine.core.caching.objects import object_key
from engine.core.kernel.events import NODES, PODS, ObjectChanged
from engine.core.kernel.instructions import (
    ForgetReports,
    Instruction,
    PodCounted,
    PodUncounted,
    RepeatReports,
)
from engine.core.kernel.permits import Permits
from engine.core.kernel.pod_groups import PodGroups
from engine.core.model.devices import DeviceTaintRule
from engine.core.model.event_kinds import KINDS
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.events import (
    ADD,
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    DELETE,
    NODE_ADD,
    NODE_DELETE,
    READABLE_AGAIN,
    UPDATE,
    ClusterEvent,
    is_meaningful_pod_change,
    node_update_events,
    pod_update_events,
)
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.scheduling.devices.taint_rules import TAINT_RULES, is_changed
from engine.core.scheduling.scheduling_cycle import Scheduler

_EVENTS: Final = {
    plural: tuple(ClusterEvent(kind, action) for action in (ADD, UPDATE, DELETE))
    for plural, kind in KINDS.items()
}


class ClusterChanges:
    """Applies changes of objects to the parts of the kernel.

    Pods of every scheduler count on their nodes; only those that name one of our profiles are
    queued. Other pending pods are remembered too: the next revision may have a profile for them.

    A pod, as seen here: `unknown --> pending --> placed --> unknown`; a pod may skip a state.

    Args:
        cache, queue, groups, permits: Receive the changes.
        out: Receives the instructions.
    """

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        groups: PodGroups,
        permits: Permits,
        out: list[Instruction],
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._groups = groups
        self._permits = permits
        self._out = out
        self._pending: dict[str, Pod] = {}  # by key
        self._scheduler: Scheduler | None = None

    # --- reading -----------------------------------------------------------------------------

    def pending_pods(self) -> Iterator[Pod]:
        """Every pending pod, of whatever scheduler."""
        return iter(self._pending.values())

    def pending_pod(self, key: str) -> Pod | None:
        """The pending pod `namespace/name`, of whatever scheduler."""
        return self._pending.get(key)

    def placed_pods(self) -> Iterator[Pod]:
        """Every pod that counts on a node, assumed ones included."""
        return (pod for info in self._cache.infos() for pod in info.pods.values())

    def known_pods(self) -> Iterator[Pod]:
        """Every pod; one that is only assumed also as the API server has it, which comes later."""
        return itertools.chain(self.placed_pods(), self.pending_pods())

    # --- changes -----------------------------------------------------------------------------

    def take(self, event: ObjectChanged) -> None:
        """Apply one change."""
        unread = self._cache.objects.unread
        self._apply(event)
        if unread.keys() - self._cache.objects.unread.keys():
            self._queue.move(READABLE_AGAIN)

    def _apply(self, event: ObjectChanged) -> None:
        if event.plural == PODS:
            self._take_pod(event.old, event.new)
        elif event.plural == NODES:
            self._take_node(event.old, event.new)
        elif event.plural == TAINT_RULES:
            self._take_taint_rule(event.old, event.new)
        else:
            self._take_object(event.plural, event.old, event.new)

    def use(self, scheduler: Scheduler) -> None:
        """Queue the pods that *scheduler* has a profile for, and drop the others."""
        before, self._scheduler = self._scheduler, scheduler
        for pod in list(self._pending.values()):
            was_ours = before is not None and before.profile_of(pod) is not None
            is_ours = scheduler.profile_of(pod) is not None
            if is_ours and not was_ours:
                self._queue.add(pod)
            elif was_ours and not is_ours:
                self._queue.delete(pod)
                self._out.append(ForgetReports(pod.uid))  # another scheduler reports on it now

    def _take_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None, "nothing changed"
            self._cache.remove_node(old.name)
            self._permits.node_gone(old.name)
            self._queue.move(NODE_DELETE, old, None)
            return
        self._cache.add_node(new)
        if old is None:
            self._queue.move(NODE_ADD, None, new)
            return
        for event in node_update_events(old, new):
            self._queue.move(event, old, new)

    def _take_object(self, plural: str, old: Any | None, new: Any | None) -> None:
        added, updated, deleted = _EVENTS[plural]
        if new is None:
            assert old is not None, "nothing changed"
            self._cache.objects.delete(plural, object_key(old))
            event = deleted
        else:
            self._cache.objects.put(plural, new)
            event = added if old is None else updated
        # First the order, so that a pod that may go now goes in its turn.
        self._queue.reorder_for(event, old, new)
        self._queue.move(event, old, new)

    def _take_taint_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        """Apply a rule; to the queue it is a change of the slices whose devices it means.

        One slice stands for all: which one changed does not matter to a pod.
        """
        objects = self._cache.objects
        changed = (s for s in objects.list("resourceslices") if is_changed(s, old, new))
        if new is not None:
            objects.put(TAINT_RULES, new)
        elif old is not None:
            objects.delete(TAINT_RULES, object_key(old))
        one = next(changed, None)
        if one is not None:
            _, updated, _ = _EVENTS["resourceslices"]
            self._queue.move(updated, one, one)

    # --- pods --------------------------------------------------------------------------------

    def _take_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None, "nothing changed"
            self._gone(old)
            self._permits.gone(old.uid)
            return
        self._groups.put(new)
        if old is None:
            self._appeared(new)
        else:
            self._changed(old, new)
            if old.uid != new.uid:
                self._permits.gone(old.uid)
        if new.node_name or new.is_terminating:
            self._permits.dropped(new.uid)

    def _appeared(self, pod: Pod) -> None:
        if pod.node_name:
            self._placed(pod)
        else:
            self._pend(pod)

    def _changed(self, old: Pod, new: Pod) -> None:
        """Apply a new version; versions between the two may have been missed."""
        if old.uid != new.uid:
            self._gone(old)
            self._appeared(new)
        elif not new.node_name:
            if old.node_name:  # the API forbids it; a restored etcd may show it
                self._gone(old)
                self._pend(new)
            else:
                self._repend(old, new)
        elif old.node_name == new.node_name:
            self._count(new)
            for event in pod_update_events(old, new):
                self._queue.move(event, old, new)
        else:
            if old.node_name:  # forbidden and shown as above: bound again, to another node
                self._gone(old)
            self._placed(new)

    def _gone(self, pod: Pod) -> None:
        """Handle a pod that was deleted or has finished; *pod* is the version seen last."""
        self._out.append(ForgetReports(pod.uid))
        if not pod.node_name:
            self._unpend(pod)
            self._give_back(pod)
            return
        self._uncount(pod)
        self._queue.move(ASSIGNED_POD_DELETE, pod, None)

    def _placed(self, pod: Pod) -> None:
        self._unpend(pod)
        assumed = self._cache.get_pod(pod.uid)
        self._count(pod)
        self._out.append(ForgetReports(pod.uid))
        self._queue.move(ASSIGNED_POD_ADD, None, pod)
        if assumed is None:
            return
        # It counted already, but maybe not as it is now, or not there.
        if assumed.node_name != pod.node_name:
            self._queue.move(ASSIGNED_POD_DELETE, assumed, None)
        elif is_meaningful_pod_change(assumed, pod):
            for event in pod_update_events(assumed, pod):
                self._queue.move(event, assumed, pod)

    def _pend(self, pod: Pod) -> None:
        self._pending[pod.key] = pod
        if self._is_ours(pod):
            self._queue.add(pod)

    def _repend(self, old: Pod, new: Pod) -> None:
        self._pending[new.key] = new
        if not self._is_ours(new):
            return
        self._out.append(RepeatReports(old, new))
        self._queue.update(old, new)
        if new.is_terminating and self._cache.is_assumed(new.uid):
            self._give_back(new)  # the API server binds no pod that is being deleted

    def _unpend(self, pod: Pod) -> None:
        known = self._pending.get(pod.key)
        if known is not None and known.uid == pod.uid:
            del self._pending[pod.key]
        self._queue.delete(pod)

    def _give_back(self, pod: Pod) -> None:
        """Free the capacity of a pod that will not be bound any more, if it holds some."""
        assumed = self._cache.get_pod(pod.uid)
        if assumed is not None:
            self._uncount(assumed)
            self._queue.move(ASSIGNED_POD_DELETE, assumed, None)

    def _is_ours(self, pod: Pod) -> bool:
        # None is before the first policies are in force; pods are remembered until then.
        return self._scheduler is not None and self._scheduler.profile_of(pod) is not None

    def _count(self, pod: Pod) -> None:
        """Count a pod where the API server says that it is."""
        # A name belongs to one pod at a time: whichever had it is gone, even if no event said so.
        namesake = self._cache.uid_of(pod.key)
        if namesake is not None and namesake != pod.uid:
            self._out.append(PodUncounted(namesake))
        self._cache.add_pod(pod)
        is_counted = self._cache.get_pod(pod.uid) is not None  # else it has finished
        self._out.append(PodCounted(pod) if is_counted else PodUncounted(pod.uid))

    def _uncount(self, pod: Pod) -> None:
        self._cache.remove_pod(pod)
        self._out.append(PodUncounted(pod.uid))
