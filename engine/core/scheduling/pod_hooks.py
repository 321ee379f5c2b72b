"""The hooks that see a pod and no node: of the queue, of groups, and of permit.

Owns asking them, with the pod's group where they want to see it. What becomes of the answers is
the queue's, `pod_groups` and `permit`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.framework.reasons import legal_token, reason_of
from engine.core.model.pod import Pod
from engine.core.model.pod_group import GroupTerms, PodGroupState
from engine.core.queueing.places import Gate
from engine.core.scheduling.pod_classifier import PodClassifier
from engine.core.scheduling.runtime_plugin import RuntimePlugin, plugins_at
from engine.core.scheduling.select_host import SortKey, sort_key
from engine.lib.printable import short
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Instance, PolicyFailure
from engine.policy.profiles import GROUPS_BY_ARGUMENT

GroupSource: TypeAlias = Callable[[EnabledPolicy, Pod], PodGroupState | PolicyFailure | None]
"""The group of a pod as a policy sees it."""

# In place of a verdict that was not asked for yet.
_UNKNOWN: Final = object()


class PodHooks:
    """Asks what policies say of a pod alone, under one bundle revision.

    Args:
        bundle: The policies and profiles.
        classifier: Answers for one policy.
        plugins: The plugins of the runtime by name.

    Attributes:
        groups: Where a pod's group stands; set by `kernel.pod_groups`.
        classifier, plugins: May be replaced.
    """

    def __init__(
        self, bundle: Bundle, classifier: PodClassifier, plugins: Mapping[str, RuntimePlugin]
    ) -> None:
        self.groups: GroupSource | None = None
        self.classifier = classifier
        self.plugins = plugins
        self._bundle = bundle
        self._profiles: dict[str, Profile] = {p.scheduler_name: p for p in bundle.profiles}
        self._naming_groups = {
            number
            for number, instance in enumerate(bundle.program.instances)
            if _names_groups(bundle, instance)
        }
        # Verdicts about pods in no group of hooks that read nothing else, by instance and hook.
        self._without_group: dict[tuple[int, str], Any] = {}
        # What `queue_key` and `pre_enqueue` are given of the cluster, by profile.
        self._given: dict[str, list[bytes]] = {}

    def queue_key(self, pod: Pod, facts: Snapshot) -> SortKey | PolicyFailure:
        """Where the pod stands in the queue: smaller goes first; equal keys go by arrival.

        Ints sort before strings at the same place, so that any two keys have an order.
        """
        profile = self._profiles.get(pod.scheduler_name)
        enabled = profile.at("queue_key") if profile is not None else ()
        if not enabled:
            return ()
        verdict = self._ask(enabled[0], "queue_key", pod, facts)
        if isinstance(verdict, PolicyFailure):
            return verdict
        return sort_key(verdict)

    def pre_enqueue(
        self,
        pod: Pod,
        facts: Snapshot,
        on_failure: Callable[[PolicyFailure], None] | None = None,
    ) -> Gate | None:
        """None if the pod may be tried, else the policy that gates it and the reason.

        A policy that fails here gates the pod: what cannot be judged is not let through.
        *on_failure* is called with it, as it may be worth asking again.
        """
        profile = self._profiles.get(pod.scheduler_name)
        for enabled in profile.at("pre_enqueue") if profile is not None else ():
            verdict = self._ask(enabled, "pre_enqueue", pod, facts)
            if isinstance(verdict, PolicyFailure) and on_failure is not None:
                on_failure(verdict)
            if verdict is not None:
                return _gate(enabled.policy, verdict)
        for plugin in plugins_at(self.plugins, profile, "preEnqueue"):
            reason = plugin.pre_enqueue(pod, facts)
            if reason is not None:
                return Gate(plugin.name, reason, reason_of(plugin.name, [reason]))
        return None

    def profiles_given_others(self, facts: Snapshot) -> set[str]:
        """The profiles whose `queue_key` or `pre_enqueue` are given another cluster than before.

        Before is when this was asked last.
        """
        found = set()
        for name, profile in self._profiles.items():
            given = [
                self.classifier.projector(enabled, hook, "cluster").project(facts, facts)
                for hook in ("queue_key", "pre_enqueue")
                for enabled in profile.at(hook)
                if self._bundle.policies[enabled.policy].hooks[hook].cluster
            ]
            if given != self._given.get(name, []):
                found.add(name)
                self._given[name] = given
        return found

    def permit(self, pod: Pod, facts: Snapshot) -> list[tuple[str, Any]]:
        """What each policy with `permit` says of a pod that has a node: (policy, verdict)."""
        profile = self._profiles.get(pod.scheduler_name)
        return [
            (enabled.policy, self._ask(enabled, "permit", pod, facts))
            for enabled in (profile.at("permit") if profile is not None else ())
        ]

    def approves_alone(self, profile: Profile, pod: Pod) -> bool:
        """True if *pod* is in no group, and every `permit` is known to approve such pods."""
        for enabled in profile.at("permit"):
            if not self.is_in_no_group(enabled, pod):
                return False
            if self._without_group.get((enabled.instance, "permit"), _UNKNOWN) is not None:
                return False
        return True

    def names_groups(self, enabled: EnabledPolicy) -> bool:
        """True if *enabled* has to be asked for the groups of pods, which do not name them."""
        return enabled.instance in self._naming_groups

    def is_in_no_group(self, enabled: EnabledPolicy, pod: Pod) -> bool:
        """True if *pod* is in no group for *enabled*, which need not be asked for that."""
        # Most pods are in none: this is asked several times of each.
        if enabled.instance in self._naming_groups:
            return False
        group = pod.manifest.spec.scheduling_group
        return group is None or not group.pod_group_name

    def group_of(self, enabled: EnabledPolicy, pod: Pod, facts: Snapshot) -> Any:
        """The group that the pod is in for this policy: None, or its name and `GroupTerms`.

        A `PolicyFailure` if the policy does not know.
        """
        if enabled.instance in self._naming_groups:
            return self.classifier.ask(enabled, "group_of", pod, facts)
        group = pod.manifest.spec.scheduling_group
        if group is None or not group.pod_group_name:
            return None
        return [group.pod_group_name, *GroupTerms()]

    def grouping(self) -> dict[str, tuple[EnabledPolicy, ...]]:
        """The policies that look at groups, by the profile's scheduler name."""
        return {
            name: tuple(
                dict.fromkeys(
                    EnabledPolicy(enabled.policy, enabled.instance)
                    for hook in ("queue_key", "pre_enqueue", "permit")
                    for enabled in profile.at(hook)
                    if "group" in self._bundle.policies[enabled.policy].hooks[hook].params
                )
            )
            for name, profile in self._profiles.items()
        }

    # --- what a trial asks ------------------------------------------------------------------

    def pod_failures(self, pod: Pod, facts: Snapshot, hooks: Sequence[str]) -> list[PolicyFailure]:
        """What fails about *pod* of *hooks* that are asked about a pod alone, and its group."""
        profile = self._profiles[pod.scheduler_name]
        verdicts = [
            self._ask(enabled, hook, pod, facts) for hook in hooks for enabled in profile.at(hook)
        ]
        return [verdict for verdict in verdicts if isinstance(verdict, PolicyFailure)]

    def group_failures(self, pod: Pod, facts: Snapshot) -> list[PolicyFailure]:
        """What fails of the profile's policies that say in which group *pod* is."""
        profile = self._profiles[pod.scheduler_name]
        asked = {
            enabled.instance: enabled
            for point in profile.points.values()
            for enabled in point
            if enabled.instance in self._naming_groups
        }
        verdicts = [self.group_of(enabled, pod, facts) for enabled in asked.values()]
        return [verdict for verdict in verdicts if isinstance(verdict, PolicyFailure)]

    def _ask(self, enabled: EnabledPolicy, hook: str, pod: Pod, facts: Snapshot) -> Any:
        """The verdict of a per-pod hook that may want to see the pod's group."""
        group: PodGroupState | None = None
        reads = self._bundle.policies[enabled.policy].hooks[hook]
        if self.groups is not None and "group" in reads.params:
            found = self.groups(enabled, pod)
            if isinstance(found, PolicyFailure):
                return found
            group = found
            if group is None and not (reads.pod or reads.cluster):
                return self._verdict_without_group(enabled, hook, pod, facts)
        return self.classifier.ask(enabled, hook, pod, facts, group)

    def _verdict_without_group(
        self, enabled: EnabledPolicy, hook: str, pod: Pod, facts: Snapshot
    ) -> Any:
        """The verdict about any pod that is in no group: asked once, as most pods are in none."""
        key = (enabled.instance, hook)
        if key in self._without_group:
            return self._without_group[key]
        verdict = self.classifier.ask(enabled, hook, pod, facts, None)
        if not isinstance(verdict, PolicyFailure):
            self._without_group[key] = verdict
        return verdict


def _gate(policy: str, verdict: Any) -> Gate:
    """The gate that a verdict of `pre_enqueue` other than None closes."""
    if isinstance(verdict, PolicyFailure):
        return Gate(policy, str(verdict), verdict.token)
    text, given = (verdict, "") if isinstance(verdict, str) else verdict
    token = legal_token(given)
    text = short(text)
    return Gate(policy, text, token or reason_of(policy, [text], "GatedByPolicy"))


def _names_groups(bundle: Bundle, instance: Instance) -> bool:
    """Whether *instance* has to be asked for the groups of pods."""
    policy = bundle.policies[instance.policy]
    argument = GROUPS_BY_ARGUMENT.get(instance.policy) if policy.is_builtin else None
    is_idle = argument is not None and not instance.args.get(argument)
    return "group_of" in policy.hooks and not is_idle
