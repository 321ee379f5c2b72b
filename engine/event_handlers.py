"""What a change of an object means: to the cache, and to the pods that wait.

Owns the meeting of watching, caching and queueing: which change goes where, and in which order
(the cache first, so that a pod that is woken sees why). Synchronous; called by informers.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import Histogram

from engine.binding.pod_status import PodStatusUpdater
from engine.caching.cache import Cache
from engine.caching.objects import ApiObject, object_key
from engine.lib.clock import Clock
from engine.model.node import Node
from engine.model.pod import Pod
from engine.queueing.events import (
    ADD,
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    DELETE,
    NODE_ADD,
    NODE_DELETE,
    UPDATE,
    ClusterEvent,
    is_meaningful_pod_change,
    node_update_events,
    pod_update_events,
    spelt,
)
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.scheduling.permit import Permits
from engine.scheduling.pod_groups import PodGroups
from engine.watching.informer import Handler

_SAMPLE_MASK: Final = 15


class PodHandler:
    """Sorts pods into placed ones (cache) and pending ones (queue).

    Pods of every scheduler count on their nodes; only those that `is_ours` are queued. Pending
    pods of others are remembered too: after a change of profiles they may be ours.

    A pod, as seen here: `unknown --> pending --> placed --> unknown`; a pod may skip a state.
    """

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        status: PodStatusUpdater,
        is_ours: Callable[[Pod], bool],
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._status = status
        self._is_ours = is_ours
        self._pending: dict[str, Pod] = {}

    def pending_pods(self) -> Iterator[Pod]:
        """Every pending pod, of whatever scheduler."""
        return iter(self._pending.values())

    # --- the informer's calls --------------------------------------------------------------

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        if pod.node_name:
            self._placed(pod)
        else:
            self._pend(pod)

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed; between the two there may have been other versions."""
        if old.uid != new.uid:
            self.on_delete(old)
            self.on_add(new)
        elif not new.node_name:
            if old.node_name:  # the API forbids it; a restored etcd may show it
                self.on_delete(old)
                self._pend(new)
            else:
                self._repend(old, new)
        elif old.node_name == new.node_name:
            self._cache.update_pod(new)
            for event in pod_update_events(old, new):
                self._queue.move(event, old, new)
        else:
            if old.node_name:  # forbidden and shown as above: bound once more, elsewhere
                self.on_delete(old)
            self._placed(new)

    def on_delete(self, pod: Pod) -> None:
        """A pod is gone, or has come to its end; *pod* is the version seen last."""
        self._status.forget(pod.uid)
        if not pod.node_name:
            self._unpend(pod)
            self._give_back(pod)
            return
        self._cache.remove_pod(pod)
        self._queue.move(ASSIGNED_POD_DELETE, pod, None)

    # --- transitions -----------------------------------------------------------------------

    def _placed(self, pod: Pod) -> None:
        self._unpend(pod)
        assumed = self._cache.get_pod(pod.uid)
        self._cache.add_pod(pod)
        self._status.forget(pod.uid)
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
        self._status.seen(old, new)
        self._queue.update(old, new)
        if new.is_terminating and self._cache.is_assumed(new.uid):
            self._give_back(new)  # the API server binds no pod that is being deleted

    def _give_back(self, pod: Pod) -> None:
        """Free the room of a pod that is not going to be bound any more, if it holds some."""
        assumed = self._cache.get_pod(pod.uid)
        if assumed is not None:
            self._cache.remove_pod(assumed)
            self._queue.move(ASSIGNED_POD_DELETE, assumed, None)

    def _unpend(self, pod: Pod) -> None:
        known = self._pending.get(pod.key)
        if known is not None and known.uid == pod.uid:
            del self._pending[pod.key]
        self._queue.delete(pod)

    def profiles_changed(self, was_ours: Callable[[Pod], bool]) -> None:
        """Take in the pods that a new set of profiles makes ours, and let go of the others."""
        for pod in list(self._pending.values()):
            before, now = was_ours(pod), self._is_ours(pod)
            if now and not before:
                self._queue.add(pod)
            elif before and not now:
                self._queue.delete(pod)
                self._status.forget(pod.uid)  # somebody else speaks of it now


def _unheard(name: str) -> None:
    """The default of `on_gone`."""


class NodeHandler:
    """Keeps the cache's nodes; wakes pods that a change of a node may help.

    Args:
        cache: Nodes.
        queue: Pods that may be helped.
        on_gone: Told the name of a node that is gone, before anybody is woken.
    """

    def __init__(
        self, cache: Cache, queue: SchedulingQueue, on_gone: Callable[[str], None] = _unheard
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._on_gone = on_gone

    def on_add(self, node: Node) -> None:
        """A node appeared."""
        self._cache.add_node(node)
        self._queue.move(NODE_ADD, None, node)

    def on_update(self, old: Node, new: Node) -> None:
        """A node changed."""
        self._cache.update_node(new)
        for event in node_update_events(old, new):
            self._queue.move(event, old, new)

    def on_delete(self, node: Node) -> None:
        """A node is gone; its pods stay counted until they are gone too."""
        self._cache.remove_node(node.name)
        self._on_gone(node.name)
        self._queue.move(NODE_DELETE, node, None)


class ObjectHandler:
    """Keeps the other objects that decisions read; wakes pods that a change may help.

    Args:
        kind: The plural resource name: the store's word.
        resource: kube's word in events: the kind in CamelCase.
    """

    def __init__(self, cache: Cache, queue: SchedulingQueue, kind: str, resource: str) -> None:
        self._objects = cache.objects
        self._queue = queue
        self._kind = kind
        self._added = ClusterEvent(resource, ADD)
        self._updated = ClusterEvent(resource, UPDATE)
        self._deleted = ClusterEvent(resource, DELETE)

    def on_add(self, obj: ApiObject) -> None:
        """An object appeared."""
        self._objects.put(self._kind, obj)
        self._queue.move(self._added, None, obj)

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        """An object changed."""
        self._objects.put(self._kind, new)
        self._queue.move(self._updated, old, new)

    def on_delete(self, obj: ApiObject) -> None:
        """An object is gone."""
        self._objects.delete(self._kind, object_key(obj))
        self._queue.move(self._deleted, obj, None)


class GroupHandler:
    """Tells pod groups and those who wait for leave of pods, around *handler*.

    Groups are told first: a pod that is queued is asked with its group. Who waits is told last:
    what he held in the cache is gone by then.
    """

    def __init__(self, handler: Handler[Pod], groups: PodGroups, permits: Permits) -> None:
        self._handler = handler
        self._groups = groups
        self._permits = permits

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        self._groups.put(pod)
        self._handler.on_add(pod)
        if pod.node_name:
            self._permits.dropped(pod.uid)

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""
        self._groups.put(new)
        self._handler.on_update(old, new)
        if old.uid != new.uid:
            self._permits.gone(old.uid)
        if new.node_name or new.is_terminating:
            self._permits.dropped(new.uid)

    def on_delete(self, pod: Pod) -> None:
        """A pod is gone."""
        self._handler.on_delete(pod)
        self._permits.gone(pod.uid)


class SampledHandler:
    """Passes changes on to *handler* and times one in sixteen, by kind of change.

    Args:
        handler: What handles them.
        kind: kube's word for the object: `Pod`, `Node`.
        seconds: Takes the durations, labelled `PodAdd`, `PodUpdate`, `PodDelete`.
        clock: Time.
    """

    def __init__(self, handler: Handler[Any], kind: str, seconds: Histogram, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._seen = 0
        self._added = seconds.labels(f"{spelt(kind)}{ADD}")
        self._updated = seconds.labels(f"{spelt(kind)}{UPDATE}")
        self._deleted = seconds.labels(f"{spelt(kind)}{DELETE}")

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._seen += 1
        if self._seen & _SAMPLE_MASK:
            self._handler.on_add(obj)
            return
        started = self._clock.monotonic()
        self._handler.on_add(obj)
        self._added.observe(self._clock.monotonic() - started)

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed."""
        self._seen += 1
        if self._seen & _SAMPLE_MASK:
            self._handler.on_update(old, new)
            return
        started = self._clock.monotonic()
        self._handler.on_update(old, new)
        self._updated.observe(self._clock.monotonic() - started)

    def on_delete(self, obj: Any) -> None:
        """An object is gone."""
        self._seen += 1
        if self._seen & _SAMPLE_MASK:
            self._handler.on_delete(obj)
            return
        started = self._clock.monotonic()
        self._handler.on_delete(obj)
        self._deleted.observe(self._clock.monotonic() - started)
