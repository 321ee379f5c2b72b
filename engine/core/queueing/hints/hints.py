"""Queueing hints: is an event worth another attempt at a rejected pod?

Owns combining the answers: those of the tables of this package for kube-scheduler's plugins, and
those derived from what they read for the policies of users. A wrong no leaves a pod waiting for the
flush, a wrong yes costs an attempt: in doubt the answer is yes.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from engine.core.caching.cache import Cache
from engine.core.caching.objects import ObjectStore
from engine.core.framework.profile import Profile
from engine.core.model.event_kinds import ASSIGNED_POD, TARGET_POD
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.events import ClusterEvent
from engine.core.queueing.hints import affinity, devices, groups, nodes, spreading, volumes
from engine.core.queueing.hints.derived import GATES, ORDER, DerivedHint
from engine.core.queueing.hints.interest import ClusterContext, Interest, Table, resource_for
from engine.core.queueing.hints.own_labels import Label, labels_offered
from engine.policy.analysis import Reads
from engine.policy.bundle import Bundle

INTERESTS: Final[Table] = MappingProxyType(
    {
        **nodes.HINTS,
        **volumes.HINTS,
        **spreading.HINTS,
        **affinity.HINTS,
        **devices.HINTS,
        **groups.HINTS,
    }
)
"""By plugin of kube-scheduler, the events that may change its mind."""

ANY: Final = "every plugin"
"""What an event helps that is for all of them, such as a change of policies."""

_NOT_KNOWN: Final = DerivedHint({})


class Hints:
    """The queueing hints of the policies in force.

    Args:
        profiles: Whose arguments matter to some hints; pods of other profiles get the defaults.
        policies: What the hooks of users' policies read, by policy. A policy that replaces a
            built-in one is among them: the table of the built-in one does not apply to it. Pods
            of rejectors that are neither here nor in a table are retried on everything that those
            could see.
        objects: The cluster's other objects.
        node_info: What is counted on a node, by the node's name; None if it is not known.
    """

    def __init__(
        self,
        profiles: Iterable[Profile] = (),
        policies: Mapping[str, Mapping[str, Reads]] | None = None,
        *,
        objects: ObjectStore | None = None,
        node_info: Callable[[str], NodeInfo | None] | None = None,
    ) -> None:
        context: dict[str, Any] = {}
        if objects is not None:
            context["objects"] = objects
        if node_info is not None:
            context["node_info"] = node_info
        self._context = {p.scheduler_name: ClusterContext(p.arguments, **context) for p in profiles}
        self._default_context = ClusterContext(**context)
        self._gates: dict[str, DerivedHint] = {}
        self._filters: dict[str, DerivedHint] = {}
        for name, hooks in (policies or {}).items():
            self._gates[name] = DerivedHint(hooks, GATES)
            self._filters[name] = DerivedHint(hooks)
        self._orders = [
            DerivedHint(hooks, ORDER) for hooks in (policies or {}).values() if hooks.keys() & ORDER
        ]
        self._covered: dict[tuple[str, str, str], tuple[Interest, ...]] = {}
        self._of_interest: dict[ClusterEvent, bool] = {}

    @classmethod
    def of(cls, bundle: Bundle, cache: Cache) -> "Hints":
        """The hints for the policies of *bundle*, in the cluster that *cache* holds."""
        # The hints of shipped policies that are not kube-scheduler's are derived as well.
        derived = {
            policy.name: policy.hooks
            for policy in bundle.policies.values()
            if not policy.is_builtin or policy.name not in INTERESTS
        }
        return cls(bundle.profiles, derived, objects=cache.objects, node_info=cache.node_info)

    def is_interested(self, plugin: str, event: ClusterEvent, *, is_gate: bool = False) -> bool:
        """Whether such events, about another object than the pod, can change *plugin*'s mind.

        *is_gate*: the plugin keeps pods out of the queue, instead of having rejected them.
        """
        if event.is_wildcard:
            return True
        derived = self._derived(plugin, is_gate=is_gate)
        if derived is not None:
            return derived.is_interested(event)
        return bool(self._interests(plugin, event.resource, event.action))

    def looks_at_pod(self, plugin: str) -> bool:
        """Whether a change of the rejected pod itself can change *plugin*'s mind."""
        derived = self._derived(plugin, is_gate=False)
        if derived is not None:
            return derived.looks_at_pod
        return any(interest.resource == TARGET_POD for interest in INTERESTS.get(plugin, ()))

    def is_known(self, plugin: str) -> bool:
        """False if what *plugin* reads is unknown."""
        return plugin in INTERESTS or plugin in self._filters

    def can_reject(self, plugin: str, *, is_gate: bool = False) -> bool:
        """Whether *plugin* has a hook by which a pod may wait."""
        derived = self._derived(plugin, is_gate=is_gate)
        return derived is None or derived.can_reject

    def labels_offered(self, event: ClusterEvent, old: Any, new: Any) -> frozenset[Label] | None:
        """Without one of these the event does not help pods that wait for a label; None: it may.

        See `own_labels.label_waited_for`; a policy of users may read anything else.
        """
        is_ours = self._derived("InterPodAffinity", is_gate=False) is None
        return labels_offered(event, old, new) if is_ours else None

    def is_of_interest(self, event: ClusterEvent) -> bool:
        """Whether events of this kind can change the mind of a plugin that is known."""
        known = self._of_interest.get(event)
        if known is None:
            known = self._of_interest[event] = any(
                self.is_interested(plugin, event, is_gate=is_gate)
                for plugin in INTERESTS.keys() | self._filters.keys()
                for is_gate in (False, True)
            )
        return known

    def helped(
        self,
        event: ClusterEvent,
        pod: Pod,
        rejectors: Iterable[str],
        old: Any,
        new: Any,
        *,
        is_gated: bool = False,
    ) -> str | None:
        """The first of *rejectors* by name that *event* may make accept *pod*; None if none.

        An event for every plugin helps `ANY`.

        Args:
            event: What happened.
            pod: The rejected pod.
            rejectors: The plugins that rejected it.
            old: The object before the event; None if it is new.
            new: The object after the event; None if it is gone.
            is_gated: They keep the pod out of the queue, instead of having rejected it.
        """
        if event.is_wildcard:
            # With a pod, it is meant for that pod alone.
            return ANY if not isinstance(new, Pod) or new.uid == pod.uid else None
        resource = resource_for(event, pod, new)
        if resource == ASSIGNED_POD and (old if new is None else new).uid == pod.uid:
            # It was assumed, rejected and forgotten: the capacity that it freed itself does not
            # help it.
            return None
        context = self._context.get(pod.scheduler_name, self._default_context)
        for plugin in sorted(rejectors):
            derived = self._derived(plugin, is_gate=is_gated)
            if derived is not None:
                if (resource == TARGET_POD or derived.is_interested(event)) and derived.is_worth(
                    event, resource, context, pod, old, new
                ):
                    return plugin
                continue
            for interest in self._interests(plugin, resource, event.action):
                if interest.check(context, pod, old, new):
                    return plugin
        return None

    def may_reorder(self, event: ClusterEvent) -> bool:
        """Whether such events, about an object that is no pod, can change the queue's order."""
        return any(order.is_interested(event) for order in self._orders)

    def is_reordered(self, event: ClusterEvent, pod: Pod, old: Any, new: Any) -> bool:
        """Whether the place of the waiting *pod* may change with *event*; see `may_reorder`."""
        context = self._context.get(pod.scheduler_name, self._default_context)
        return any(
            order.is_worth(event, event.resource, context, pod, old, new) for order in self._orders
        )

    def _derived(self, plugin: str, *, is_gate: bool) -> DerivedHint | None:
        found = (self._gates if is_gate else self._filters).get(plugin)
        if found is None and plugin not in INTERESTS:
            return _NOT_KNOWN
        return found

    def _interests(self, plugin: str, resource: str, action: str) -> tuple[Interest, ...]:
        key = (plugin, resource, action)
        found = self._covered.get(key)
        if found is None:
            found = tuple(i for i in INTERESTS.get(plugin, ()) if i.covers(resource, action))
            self._covered[key] = found
        return found
