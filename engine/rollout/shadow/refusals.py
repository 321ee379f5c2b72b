"""What keeps a pod from being tried or bound that its node does not: gates, approval, its group.

Owns asking `pre_enqueue` and `permit` in a shadow, where nothing waits. A pod of a group is judged
with the pods that are known: could the group ever be whole?
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy
from engine.core.model.pod import Pod
from engine.core.model.pod_group import POD_GROUPS, GroupTerms, PodGroupState, group_state
from engine.core.scheduling.pod_hooks import PodHooks
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
        state = group_state(name, [GroupTerms(*terms)], [pod], found)
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
