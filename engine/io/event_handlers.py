"""Handlers of informers that report each change of an object to the kernel.

Owns the translation, and its timing. What a change means is `kernel.cluster`'s.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import Histogram

from engine.core.kernel.events import ObjectChanged, QueueObjectChanged
from engine.core.model.event_kinds import ASSIGNED_POD, UNSCHEDULED_POD
from engine.core.queueing.events import ADD, DELETE, UPDATE, ClusterEvent
from engine.io.watching.informer import Handler
from engine.lib.clock import Clock

_SAMPLE_MASK: Final = 15


class ObjectReporter:
    """Reports the changes of one resource.

    Args:
        plural: Its resource name, such as `pods`.
        report: Takes the events.
    """

    def __init__(self, plural: str, report: Callable[[ObjectChanged], None]) -> None:
        self._plural = plural
        self._report = report

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._report(ObjectChanged(self._plural, None, obj))

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed."""
        self._report(ObjectChanged(self._plural, old, new))

    def on_delete(self, obj: Any) -> None:
        """An object is gone."""
        self._report(ObjectChanged(self._plural, obj, None))


class QueueReporter:
    """Reports the changes of objects that are queues for some policy.

    Args:
        kind: What they are, such as `queues.scheduling.volcano.sh`.
        report: Takes the events.
    """

    def __init__(self, kind: str, report: Callable[[QueueObjectChanged], None]) -> None:
        self._kind = kind
        self._report = report

    def on_add(self, obj: Mapping[str, Any]) -> None:
        """An object appeared."""
        self._report(QueueObjectChanged(self._kind, _key_of(obj), obj))

    def on_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """An object changed: reported if that is not its status alone."""
        if new != old:
            self.on_add(new)

    def on_delete(self, obj: Mapping[str, Any]) -> None:
        """An object is gone."""
        self._report(QueueObjectChanged(self._kind, _key_of(obj), None))


def _key_of(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


class SampledHandler:
    """Passes changes to *handler*, and times one of sixteen by kind of change.

    Args:
        handler: Handles them.
        kind: The Kubernetes kind of the object: `Pod`, `Node`.
        seconds: Takes the durations, labelled `NodeAdd`, `NodeUpdate`, `NodeDelete`. Pods are told
            apart: `AssignedPodAdd` is one that was bound, or is seen with a node.
        clock: Time.
    """

    def __init__(self, handler: Handler[Any], kind: str, seconds: Histogram, clock: Clock) -> None:
        self._handler = handler
        self._kind = kind
        self._clock = clock
        self._seen = 0
        self._seconds = seconds

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._call(self._handler.on_add, None, obj, obj)

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed."""
        self._call(self._handler.on_update, old, new, old, new)

    def on_delete(self, obj: Any) -> None:
        """An object is gone."""
        self._call(self._handler.on_delete, obj, None, obj)

    def _call(self, handle: Callable[..., None], old: Any, new: Any, *objects: Any) -> None:
        self._seen += 1
        if self._seen & _SAMPLE_MASK:
            handle(*objects)
            return
        started = self._clock.monotonic()
        handle(*objects)
        seconds = self._clock.monotonic() - started
        self._seconds.labels(self._event(old, new).label).observe(seconds)

    def _event(self, old: Any, new: Any) -> ClusterEvent:
        action = ADD if old is None else UPDATE if new is not None else DELETE
        if self._kind != "Pod":
            return ClusterEvent(self._kind, action)
        if not (old if new is None else new).node_name:
            return ClusterEvent(UNSCHEDULED_POD, action)
        is_bound_now = old is not None and not old.node_name
        return ClusterEvent(ASSIGNED_POD, ADD if is_bound_now else action)
