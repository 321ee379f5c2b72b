"""Handlers of informers that report each change of an object to the kernel.

Owns the translation, and its timing. What a change means is `kernel.cluster`'s.
"""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import Histogram

from engine.kernel.events import ObjectChanged
from engine.lib.clock import Clock
from engine.queueing.events import ADD, DELETE, UPDATE, qualified_kind
from engine.watching.informer import Handler

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


class SampledHandler:
    """Passes changes to *handler*, and times one of sixteen by kind of change.

    Args:
        handler: Handles them.
        kind: The Kubernetes kind of the object: `Pod`, `Node`.
        seconds: Takes the durations, labelled `PodAdd`, `PodUpdate`, `PodDelete`.
        clock: Time.
    """

    def __init__(self, handler: Handler[Any], kind: str, seconds: Histogram, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._seen = 0
        self._added = seconds.labels(f"{qualified_kind(kind)}{ADD}")
        self._updated = seconds.labels(f"{qualified_kind(kind)}{UPDATE}")
        self._deleted = seconds.labels(f"{qualified_kind(kind)}{DELETE}")

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._call(self._added, self._handler.on_add, obj)

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed."""
        self._call(self._updated, self._handler.on_update, old, new)

    def on_delete(self, obj: Any) -> None:
        """An object is gone."""
        self._call(self._deleted, self._handler.on_delete, obj)

    def _call(self, seconds: Histogram, handle: Callable[..., None], *objects: Any) -> None:
        self._seen += 1
        if self._seen & _SAMPLE_MASK:
            handle(*objects)
            return
        started = self._clock.monotonic()
        handle(*objects)
        seconds.observe(self._clock.monotonic() - started)
