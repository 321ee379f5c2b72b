"""Where the rules of policies are written, and what their rejections wait for.

Owns looking these up once per revision: finding a line means parsing the text.
"""

from typing import Final

from engine.core.model.event_kinds import ASSIGNED_POD, FACTS, NODE, TARGET_POD, UNSCHEDULED_POD
from engine.core.queueing.events import ADD, DELETE, UPDATE, ClusterEvent
from engine.core.queueing.hints import INTERESTS, Hints
from engine.explaining.reason_source import hook_source, reason_source
from engine.policy.bundle import Bundle

# The events that `Hints.is_interested` is called with for policies without a table of their own.
_EVENTS: Final = (
    ClusterEvent(NODE, ADD),
    ClusterEvent(NODE, UPDATE),
    ClusterEvent(ASSIGNED_POD, ADD),
    ClusterEvent(ASSIGNED_POD, UPDATE),
    ClusterEvent(ASSIGNED_POD, DELETE),
    ClusterEvent(FACTS, UPDATE),
)
# Reasons may contain numbers, so that they never end.
_MOST_SOURCES: Final = 4_096

_THINGS: Final = {
    ASSIGNED_POD: "placed pod",
    TARGET_POD: "the pod itself",
    UNSCHEDULED_POD: "pending pod",
    FACTS: "facts",
}
_ACTIONS: Final = {
    "Add": "added",
    "Update": "changed",
    "Delete": "deleted",
    "*": "added or changed",
}
# What the narrower actions of kube-scheduler are about.
_PARTS: Final = {
    "UpdateNodeAllocatable": "capacity",
    "UpdateNodeAnnotation": "annotations",
    "UpdateNodeCondition": "conditions",
    "UpdateNodeDeclaredFeature": "features",
    "UpdateNodeLabel": "labels",
    "UpdateNodePreemptionPolicy": "preemption policy",
    "UpdateNodeTaint": "taints",
    "UpdatePodGeneratedResourceClaim": "resource claims",
    "UpdatePodLabel": "labels",
    "UpdatePodScaleDown": "requests",
    "UpdatePodScaleUp": "requests",
    "UpdatePodSchedulingGatesEliminated": "scheduling gates",
    "UpdatePodTerminating": "deletion",
    "UpdatePodToleration": "tolerations",
}


class Rules:
    """The rules of the policies of *bundle*, and the events that *hints* says they wait for."""

    def __init__(self, bundle: Bundle, hints: Hints) -> None:
        self.bundle = bundle
        self._hints = hints
        self._sources: dict[tuple[str, str], str] = {}
        self._events: dict[str, tuple[str, ...]] = {}

    def source(self, policy: str, reason: str, *hooks: str) -> str:
        """`file:line` of what *policy* says *reason* with; "" for a part of the runtime.

        In one of *hooks*, by default those that reject nodes.
        """
        found = self._sources.get((policy, reason))
        if found is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            in_hooks = {"hooks": hooks} if hooks else {}
            found = reason_source(self.bundle, policy, reason, **in_hooks)
            self._sources[policy, reason] = found
        return found

    def hook(self, policy: str, hook: str) -> str:
        """`file:line` of *hook* of *policy*; "" for a part of the runtime."""
        found = self.bundle.policies.get(policy)
        return "" if found is None else hook_source(self.bundle, found, hook)

    def waits_for(self, policy: str) -> tuple[str, ...]:
        """The events after which the queue retries a pod that *policy* rejected, in words."""
        found = self._events.get(policy)
        if found is None:
            found = self._events[policy] = self._waits_for(policy)
        return found

    def _waits_for(self, policy: str) -> tuple[str, ...]:
        known = self.bundle.policies.get(policy)
        if policy in INTERESTS and (known is None or known.is_builtin):
            found = []
            for interest in INTERESTS[policy]:
                actions = sorted(interest.actions) or ["*"]
                found += [_event_name(interest.resource, action) for action in actions]
            return tuple(dict.fromkeys(found))
        # A derived hint: what its hooks read.
        own = [_event_name(TARGET_POD, UPDATE)] if self._hints.looks_at_pod(policy) else []
        others = [
            _event_name(event.resource, event.action)
            for event in _EVENTS
            if self._hints.is_interested(policy, event)
        ]
        return (*own, *others)


def _event_name(resource: str, action: str) -> str:
    """`Node added`, `taints of a Node changed`, `labels of a placed pod changed`."""
    thing = _THINGS.get(resource, resource)
    if action in _ACTIONS:
        return f"{thing} {_ACTIONS[action]}"
    article = "" if resource == TARGET_POD else "a "
    return f"{_PARTS[action]} of {article}{thing} changed"
