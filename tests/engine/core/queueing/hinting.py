"""Asking hints in tests: one event, one rejected pod, one plugin."""

from collections.abc import Mapping
from typing import Any

from engine.core.caching.objects import ObjectStore
from engine.core.framework.behaviors import RELEASED, behaviors_of
from engine.core.framework.profile import Profile
from engine.core.model.objects import Namespace, ObjectMeta, PlainObject
from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.hints import Hints
from engine.core.queueing.hints.hints import ANY


def worth(
    plugin: str,
    event: ClusterEvent,
    pod: Any,
    old: Any = None,
    new: Any = None,
    hints: Hints | None = None,
    *,
    is_gated: bool = False,
) -> bool:
    """If the event is worth another attempt at *pod*, which *plugin* has rejected."""
    helped = (hints or Hints()).helped(event, pod, frozenset({plugin}), old, new, is_gated=is_gated)
    assert helped in (None, ANY if event.is_wildcard else plugin)
    return helped is not None


def plain(
    name: str,
    namespace: str = "",
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> PlainObject:
    """Any object of the API."""
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
    )
    return PlainObject(meta, dict(spec or {}), dict(status or {}))


def hints_with(
    arguments: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    minor: int = RELEASED,
    **kinds: list[Any],
) -> Hints:
    """Hints in a cluster of 1.*minor* with these objects, under a profile with these arguments."""
    objects = ObjectStore()
    objects.behaves = behaviors_of(minor)
    for kind, members in kinds.items():
        for one in members:
            objects.put(kind, one)
    return Hints([Profile("default-scheduler", {}, arguments or {})], objects=objects)


def namespace(name: str, **labels: str) -> Namespace:
    """A namespace with labels."""
    return Namespace(ObjectMeta(name=name, labels=labels))
