"""The form of a hint: on which events, with which check of the objects.

Owns the form of the tables in this package, and what checks see in addition to the event's objects.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.core.caching.objects import ObjectStore
from engine.core.model.event_kinds import TARGET_POD, UNSCHEDULED_POD
from engine.core.model.node_info import NodeInfo
from engine.core.model.objects import NodeAffinity, NodeSelector, from_plain
from engine.core.model.pod import Pod
from engine.core.model.resources import is_extended_resource
from engine.core.queueing.events import ClusterEvent

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _unknown(name: str) -> NodeInfo | None:
    """The default of `ClusterContext.node_info`."""
    return None


@dataclass(frozen=True)
class ClusterContext:
    """What a check sees in addition to the objects of the event.

    Attributes:
        arguments: The plugins' arguments in the pod's profile, by plugin.
        objects: The cluster's other objects.
        node_info: What is counted on a node now; None if that is not known.
    """

    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    objects: ObjectStore = field(default_factory=ObjectStore)
    node_info: Callable[[str], NodeInfo | None] = _unknown

    def argument(self, plugin: str, name: str) -> Any:
        """An argument by its name in camelCase, given so or in snake_case; None if not given."""
        given = self.arguments.get(plugin, {})
        return given.get(name) or given.get(snake_case(name)) or None

    @functools.cached_property
    def added_affinity(self) -> NodeSelector | None:
        """What NodeAffinity requires of nodes for every pod of the profile."""
        added = self.argument("NodeAffinity", "addedAffinity")
        return from_plain(NodeAffinity, added).required if added else None

    @functools.cached_property
    def _ignored(self) -> tuple[frozenset[str], frozenset[str]]:
        names = self.argument("NodeResourcesFit", "ignoredResources")
        groups = self.argument("NodeResourcesFit", "ignoredResourceGroups")
        return frozenset(names or ()), frozenset(groups or ())

    def ignores(self, resource: str) -> bool:
        """Whether NodeResourcesFit ignores *resource*."""
        names, groups = self._ignored
        return is_extended_resource(resource) and (
            resource in names or resource.partition("/")[0] in groups
        )

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; none if it is not known."""
        found = self.objects.get("namespaces", namespace)
        return {} if found is None else found.metadata.labels


Check = Callable[[ClusterContext, Pod, Any, Any], bool]
"""Whether a change of an object, old to new, may help a pod; False only if they rule it out."""


def always(context: ClusterContext, pod: Pod, old: Any, new: Any) -> bool:
    """Any such event may help."""
    return True


@dataclass(frozen=True, slots=True)
class Interest:
    """Events that may help, and the check that rules most of them out.

    `actions` is empty for every action of the resource.
    """

    resource: str
    actions: frozenset[str]
    check: Check = always

    def covers(self, resource: str, action: str) -> bool:
        """Whether it includes such events."""
        return resource == self.resource and (not self.actions or action in self.actions)


def on(resource: str, *actions: str, check: Check = always) -> Interest:
    """The `Interest` in *actions* (none: every action) of *resource*."""
    return Interest(resource, frozenset(actions), check)


Table = Mapping[str, tuple[Interest, ...]]
"""Interests by plugin."""


def resource_for(event: ClusterEvent, pod: Pod, new: Any) -> str:
    """The resource of *event* as *pod* sees it: another waiting pod is an `UNSCHEDULED_POD`."""
    if event.resource == TARGET_POD and not (isinstance(new, Pod) and new.uid == pod.uid):
        return UNSCHEDULED_POD
    return event.resource


@functools.cache
def snake_case(name: str) -> str:
    """`claim_ref` for `claimRef`."""
    return _WORD.sub("_", name).lower()


def peek(value: Any, *path: str) -> Any:
    """A field of an object, typed or plain, by the API's names; None where there is nothing."""
    for name in path:
        if isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, snake_case(name), None)
        if value is None:
            return None
    return value
