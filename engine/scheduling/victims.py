"""The victims of one node: the fewest and least important pods whose going makes another one fit.

Owns kube-scheduler's SelectVictimsOnNode: take every less important pod away, then spare one after
the other while the pod still fits. Which pods matter more is the hook `victim_key`.
"""

from collections.abc import Mapping
from typing import Final

from engine.caching.counters import PodChanges
from engine.framework.profile import EnabledPolicy, Profile
from engine.framework.status import Code, Status
from engine.model.node_info import NodeInfo
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.policy.verdicts import FITS, VerdictMemo
from engine.scheduling.disruption_budgets import Budgets
from engine.scheduling.extenders import NodeVictims
from engine.scheduling.feasibility import Feasibility, Filters
from engine.scheduling.pod_classifier import PodClassifier
from engine.scheduling.select_host import SortKey, sort_key

#: The plugin's name, in the configuration and in statuses.
PLUGIN: Final = "DefaultPreemption"
NO_VICTIMS: Final = Status(
    Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",), PLUGIN
)
# Pods whose importance is remembered; more than a cluster holds on a few thousand nodes.
_MOST_KEYS: Final = 200_000


class VictimSelector:
    """Finds the victims of a node; one object serves all decisions of a bundle."""

    def __init__(
        self, memo: VerdictMemo, feasibility: Feasibility, classifier: PodClassifier
    ) -> None:
        self._memo = memo
        self._feasibility = feasibility
        self._classifier = classifier
        self._keys: dict[tuple[int, str], tuple[Pod, SortKey]] = {}

    def select(
        self, filters: Filters, slot: int, info: NodeInfo, budgets: Budgets
    ) -> NodeVictims | Status | PolicyFailure:
        """The pods to evict from the node of *slot*, most important first; or why not."""
        # 1. Does the pod fit at all once every less important pod is gone?
        removed = {
            uid: pod for uid, pod in info.pods.items() if pod.priority < filters.pod.priority
        }
        if not removed:
            return NO_VICTIMS
        for uid in removed:
            info = info.without_pod(uid)
        verdict = self._fits(filters, slot, info, removed)
        if verdict != FITS:
            if isinstance(verdict, PolicyFailure):
                return verdict
            return self._memo.reasons.status(verdict)
        # 2. Spare who can be spared: first those whose budget would be violated, then the others,
        #    the most important ones first.
        ordered = self._by_importance(filters, list(removed.values()))
        if isinstance(ordered, PolicyFailure):
            return ordered
        violating, others = budgets.split(ordered)
        victims: list[Pod] = []
        violations = 0
        for group in (violating, others):
            for pod in group:
                with_pod = info.with_pod(pod)
                rest = {uid: gone for uid, gone in removed.items() if uid != pod.uid}
                verdict = self._fits(filters, slot, with_pod, rest)
                if isinstance(verdict, PolicyFailure):
                    return verdict
                if verdict == FITS:
                    info, removed = with_pod, rest
                else:
                    victims.append(pod)
                    violations += group is violating
        if not victims:
            # The filters contradict each other: what was rejected fits with everybody back.
            return Status(Code.ERROR, (f"expected at least one victim pod on node {info.name}",))
        place = {pod.uid: k for k, pod in enumerate(ordered)}
        if violating and others:
            victims.sort(key=lambda pod: place[pod.uid])
        return NodeVictims(tuple(victims), violations)

    def _fits(
        self, filters: Filters, slot: int, info: NodeInfo, removed: Mapping[str, Pod]
    ) -> int | PolicyFailure:
        changes = PodChanges(slot, removed=tuple(removed.values()))
        return self._feasibility.at(filters, info, changes)

    def _by_importance(self, filters: Filters, pods: list[Pod]) -> list[Pod] | PolicyFailure:
        """The pods by `victim_key`, smallest first, then by name: those are spared first."""
        enabled = last_enabled(filters.profile, "victim_key")
        if enabled is None:
            return pods
        known = self._keys
        if len(known) > _MOST_KEYS:
            known.clear()
        missing = []
        for pod in pods:
            kept = known.get((enabled.instance, pod.uid))
            if kept is None or kept[0] is not pod:
                missing.append(pod)
        if missing:
            verdicts = self._classifier.ask_all(enabled, "victim_key", missing, filters.snapshot)
            for pod, verdict in zip(missing, verdicts, strict=True):
                if isinstance(verdict, PolicyFailure):
                    return verdict
                known[enabled.instance, pod.uid] = pod, sort_key(verdict)
        return sorted(pods, key=lambda pod: (known[enabled.instance, pod.uid][1], pod.key))


def last_enabled(profile: Profile, hook: str) -> EnabledPolicy | None:
    """The policy whose *hook* counts: the last one enabled, so that a user's beats the default."""
    enabled = profile.at(hook)
    return enabled[-1] if enabled else None
