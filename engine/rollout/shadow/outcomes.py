"""What became of a pod, as far as two decisions about it are compared, and by which rule.

Owns the record, its words, and what the decisions themselves show of the rule that makes a
difference: nothing is decided again to find it. Owns also asking `pre_enqueue` and `permit` in a
shadow, where nothing waits: what keeps a pod from being tried or bound that its node does not. A
pod of a group is judged with the pods that are known: could the group ever be whole?
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from engine.comparing.difference import MOVED, NEWLY_PENDING, NEWLY_PLACED
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, GroupTerms, PodGroupState, group_state
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.pod_hooks import PodHooks
from engine.explaining.reason_source import hook_source, reason_source
from engine.policy.bundle import Bundle
from engine.policy.evaluator import PolicyFailure

Known = Mapping[str, PodGroupState]
"""The groups of a pod as the policies in force see them, by name."""


class Refusal(NamedTuple):
    """Why a pod would not be tried, or not be bound; *has_failed*: because *policy* failed."""

    policy: str
    hook: str
    text: str
    has_failed: bool = False


def asked_hooks(bundle: Bundle, unchanged: Iterable[int]) -> frozenset[str]:
    """Which of `pre_enqueue`, `permit` and `group_of` say something else than before, perhaps.

    *unchanged* are the indices of the policies that are as they were.
    """
    same, instances, policies = set(unchanged), bundle.program.instances, bundle.policies
    changed = {index for index in range(len(instances)) if index not in same}
    found = {
        hook
        for profile in bundle.profiles
        for hook in ("pre_enqueue", "permit")
        for enabled in profile.at(hook)
        if enabled.instance in changed
    }
    if found and any("group_of" in policies[instances[one].policy].hooks for one in changed):
        found.add("group_of")
    return frozenset(found)


def refusal_of(
    hooks: PodHooks,
    pod: Pod,
    snapshot: Snapshot,
    asked: frozenset[str],
    known: Known,
    others: Callable[[], Iterable[Pod]],
) -> Refusal | None:
    """What keeps *pod* pending that would not depend on its node; None if nothing does.

    Args:
        hooks: Of the policies that are asked.
        pod: Has no node.
        snapshot: Of the cluster.
        asked: The hooks to ask.
        known: See there.
        others: All pods that there are, to be counted for a group that is not known.
    """
    is_complete = False

    def state_of(enabled: EnabledPolicy, pod: Pod) -> PodGroupState | PolicyFailure | None:
        said = hooks.group_of(enabled, pod, snapshot)
        if not isinstance(said, list):
            failure: PolicyFailure | None = said
            return failure
        name, *terms = said
        found = snapshot.objects.get(POD_GROUPS, f"{pod.namespace}/{name}")
        behaves = snapshot.objects.behaves
        state = group_state(pod.namespace, name, [GroupTerms(*terms)], [pod], found, behaves)
        counted = known.get(name)
        if counted is not None:
            pods, placed = counted.pod_count, counted.placed
        else:
            pods, placed = _members(hooks, enabled, pod, name, snapshot, others())
        if is_complete:
            return replace(state, waiting=pods - placed, placed=placed)
        return replace(state, pending=pods - placed, placed=placed)

    hooks.groups = state_of
    try:
        if "pre_enqueue" in asked:
            failures: list[PolicyFailure] = []
            gate = hooks.pre_enqueue(pod, snapshot, failures.append)
            if gate is not None:
                return Refusal(gate[0], "pre_enqueue", gate[1], has_failed=bool(failures))
        if "permit" in asked:
            is_complete = True
            for policy, verdict in hooks.permit(pod, snapshot):
                if verdict is not None:
                    return _refused(policy, verdict)
    finally:
        hooks.groups = None
    return None


def _refused(policy: str, verdict: Any) -> Refusal:
    """The refusal of a pod that *policy* does not approve though its group has all its nodes."""
    if isinstance(verdict, PolicyFailure):
        return Refusal(policy, "permit", str(verdict), has_failed=True)
    if verdict[0] == "reject":
        return Refusal(policy, "permit", ", ".join(verdict[1]))
    return Refusal(policy, "permit", str(verdict[2]))


def _members(
    hooks: PodHooks,
    enabled: EnabledPolicy,
    pod: Pod,
    name: str,
    snapshot: Snapshot,
    others: Iterable[Pod],
) -> tuple[int, int]:
    """How many pods are in the group *name* with *pod*, and how many of those have a node."""
    pods, placed = {pod.uid}, 0
    for other in others:
        if (
            other.uid in pods
            or other.namespace != pod.namespace
            or other.scheduler_name != pod.scheduler_name
        ):
            continue
        said = hooks.group_of(enabled, other, snapshot)
        if isinstance(said, list) and said[0] == name:
            pods.add(other.uid)
            placed += bool(other.node_name)
    return len(pods), placed


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, and what keeps the pod from its node all the same.

    Attributes:
        decision: What was decided.
        refusal: Why the pod would not be tried, or not be bound; "" if it would.
        refused_by, refused_in: The policy that says so, and in which hook; "" if none does.
        has_refusal_failed: The policy says so because it failed.
    """

    decision: Decision
    refusal: str = ""
    refused_by: str = ""
    refused_in: str = ""
    has_refusal_failed: bool = False

    @property
    def node(self) -> str | None:
        """The node that the pod gets; None if it gets none."""
        return None if self.refusal else self.decision.node

    @property
    def has_failed(self) -> bool:
        """True if a policy's failure costs the pod this attempt."""
        if self.refusal:
            return self.has_refusal_failed
        decision = self.decision
        return decision.node is None and bool(decision.policy_failures)

    @property
    def victims(self) -> tuple[Pod, ...]:
        """The pods that would be evicted."""
        eviction = None if self.refusal else self.decision.eviction
        return () if eviction is None else eviction.victims

    @property
    def evictions(self) -> tuple[str, frozenset[str]]:
        """The node on which pods would be evicted, and their uids."""
        eviction = None if self.refusal else self.decision.eviction
        if eviction is None:
            return "", frozenset()
        return eviction.node, frozenset(pod.uid for pod in eviction.victims)

    @property
    def scores(self) -> dict[str, int]:
        """By policy, the weighted score of the chosen node; empty if scores did not decide."""
        choice = self.decision.choice
        if choice is None:
            return {}
        return {one.policy: one.weight * one.normal for one in choice.scores_of(choice.chosen)}

    def __str__(self) -> str:
        """In words: the node, or why there is none."""
        if self.refusal:
            return self.refusal
        decision = self.decision
        if decision.node is not None:
            return decision.node
        eviction = decision.eviction
        if eviction is None:
            return decision.message()
        evicted = ", ".join(f"`{pod.key}`" for pod in eviction.victims)
        return f"evicts {evicted} from node `{eviction.node}`"


class Rule(NamedTuple):
    """What makes a difference: a hook of a policy, and its reason; "" for what is not known.

    Attributes:
        place: `file:line` of a failure; of others `place_of` finds it.
    """

    policy: str = ""
    hook: str = ""
    reason: str = ""
    place: str = ""

    def place_of(self, bundle: Bundle) -> str:
        """`file:line` of the rule in *bundle*, whose policy it is; "" if that is not known."""
        policy = bundle.policies.get(self.policy)
        if self.place or policy is None:
            return self.place
        if self.reason:
            return reason_source(bundle, self.policy, self.reason)
        return hook_source(bundle, policy, self.hook) if self.hook else ""


def rule_of(kind: str, before: Outcome, after: Outcome, changed: Set[str]) -> Rule:
    """The rule that makes a difference of *kind*; of *changed* policies rather than of others."""
    if after.has_failed and not after.refusal:
        failure = after.decision.policy_failures[0]
        return Rule(failure.policy, failure.hook, place=f"{failure.file}:{failure.line}")
    if kind == MOVED:
        return _rule_of_scores(before.scores, after.scores, changed)
    if kind in (NEWLY_PENDING, NEWLY_PLACED) or after.refusal:
        return _rule_of_rejection(before if kind == NEWLY_PLACED else after, changed)
    return Rule()


def _rule_of_rejection(outcome: Outcome, changed: Set[str]) -> Rule:
    """What keeps the pod pending: what refuses it, or rejects the most nodes."""
    if outcome.refusal:
        place = outcome.refusal.partition(": ")[0] if outcome.has_refusal_failed else ""
        return Rule(outcome.refused_by, outcome.refused_in, outcome.refusal, place)
    diagnosis = outcome.decision.diagnosis
    if diagnosis.pre_filter is not None:
        return Rule(diagnosis.pre_filter.plugin, "pre_filter", diagnosis.pre_filter.message)
    most = max(
        diagnosis.rejections.items(),
        key=lambda item: (item[0].plugin in changed, item[1]),
        default=None,
    )
    return Rule() if most is None else Rule(most[0].plugin, "filter", most[0].message)


def _rule_of_scores(before: dict[str, int], after: dict[str, int], changed: Set[str]) -> Rule:
    """The policy that scores the two chosen nodes most differently.

    A filter that moves a pod leaves no trace in a decision that has a node: it is named only if it
    is all that has changed.
    """
    if len(changed) == 1 and not changed & {*before, *after}:
        return Rule(*changed)
    gained = {
        policy: abs(after.get(policy, 0) - before.get(policy, 0)) for policy in {*before, *after}
    }
    policy, gain = max(
        gained.items(), key=lambda item: (item[0] in changed, item[1], item[0]), default=("", 0)
    )
    return Rule(policy, "score") if gain or policy in changed else Rule()
