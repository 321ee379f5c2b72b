"""Pods that policies cannot tell apart: a finite set to ask about, without samples.

Owns which pods count as one: those of which every hook of every set of policies is given the same.
One of each class stands for all, so what is found holds for every pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.core.caching.device_classes import device_resources
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.trial_groups import TrialGroups
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.policy.fact_config import FactsConfig
from engine.policy.projections import Projector

# Hooks that see the incoming pod and are not among those by which the engine makes its classes.
_OTHER_HOOKS: Final = ("pre_enqueue", "group_of", "permit", "tie_key", "annotate")
_QUEUE_HOOK: Final = "queue_key"


class PolicySet:
    """One set of policies that is asked. Use it in a `with` statement.

    Args:
        bundle: The policies.
        evaluator: Runs them; None: in this process. It is closed with the set.

    Attributes:
        groups: What `use_groups` made; None: pods are in no group.
    """

    def __init__(self, bundle: Bundle, evaluator: Evaluator | None = None) -> None:
        self.bundle = bundle
        self._evaluator = InProcessEvaluator(bundle.program) if evaluator is None else evaluator
        self.scheduler = Scheduler(bundle, self._evaluator, has_extenders=False)
        self.groups: TrialGroups | None = None
        self._projectors: dict[tuple[str, tuple[str, ...]], Projector] = {}

    def __enter__(self) -> "PolicySet":
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()

    @property
    def facts(self) -> FactsConfig:
        """The sources of facts that the policies are shown."""
        return self.bundle.runtime.facts

    def use_groups(self, pods: Iterable[Pod], snapshot: Snapshot) -> None:
        """Ask about pods as members of the groups that *pods* make, none of them placed."""
        self.groups = TrialGroups(self.scheduler, pods, snapshot)
        self.scheduler.hooks.groups = self.groups.state_of

    def class_key(self, pod: Pod, snapshot: Snapshot) -> tuple[object, ...]:
        """What every hook but `queue_key` is given of *pod*; pods with one key are alike."""
        profile = self.scheduler.profile_of(pod)
        if profile is None:
            return ()
        return (
            self.scheduler.hooks.classifier.key(profile, pod, snapshot),
            self._projector(profile, *_OTHER_HOOKS).project(pod, snapshot),
            self._groups_of(pod),
        )

    def queue_class_key(self, pod: Pod, snapshot: Snapshot) -> tuple[object, ...]:
        """What `queue_key` is given of *pod*."""
        profile = self.scheduler.profile_of(pod)
        if profile is None:
            return ()
        name = profile.scheduler_name
        projected = self._projector(profile, _QUEUE_HOOK).project(pod, snapshot)
        return name, projected, self._groups_of(pod)

    def _groups_of(self, pod: Pod) -> tuple[object, ...]:
        return () if self.groups is None else self.groups.states_of(pod)

    def _projector(self, profile: Profile, *hooks: str) -> Projector:
        key = (profile.scheduler_name, hooks)
        if key not in self._projectors:
            self._projectors[key] = Projector("pod", self._paths(profile, hooks, "pod"))
        return self._projectors[key]

    def node_paths(self) -> frozenset[str]:
        """Everything that the policies of some profile read of a node."""
        return frozenset().union(
            *(self._paths(profile, profile.points, "node") for profile in self.bundle.profiles)
        )

    def _paths(self, profile: Profile, hooks: Iterable[str], view: str) -> frozenset[str]:
        return frozenset().union(
            *(
                self.bundle.policies[enabled.policy].hooks[hook].of(view)
                for hook in hooks
                for enabled in profile.at(hook)
            )
        )


@dataclass(frozen=True, slots=True)
class AlikePods:
    """A class: pods that policies cannot tell apart.

    Attributes:
        example: The one that stands for all of them: the one with the shortest manifest.
        count: How many there are.
    """

    example: Pod
    count: int


def classes_of(
    pods: Sequence[Pod], sets: Sequence[PolicySet], snapshots: Sequence[Snapshot]
) -> list[AlikePods]:
    """The classes of *pods*, in the order of their first pod.

    Pods are alike if all hooks of all *sets* are given the same of them, and they are the same for
    preemption. A pod with claims of volumes or devices is alike to no other: the runtime looks at
    the claims themselves. Pods of which no set has the profile are left out.
    """
    found: dict[tuple[object, ...], list[Pod]] = {}
    pairs = [*zip(sets, snapshots, strict=True)]
    for pod in pods:
        keys = tuple(one.class_key(pod, snapshot) for one, snapshot in pairs)
        if not any(keys):
            continue
        rest = (pod.scheduler_name, pod.priority, pod.manifest.spec.preemption_policy)
        own = pod.key if _has_claims(pod, snapshots[0]) else ""
        found.setdefault((keys, rest, tuple(pod.problems), own), []).append(pod)
    return [alike_of(them) for them in found.values()]


def alike_of(pods: list[Pod]) -> AlikePods:
    """The class of *pods*, which policies cannot tell apart."""
    return AlikePods(min(pods, key=lambda pod: (len(pod.raw or b""), pod.key)), len(pods))


def _has_claims(pod: Pod, snapshot: Snapshot) -> bool:
    """True if a plugin of the runtime may have something to say of *pod*."""
    return bool(
        pod.volumes
        or pod.manifest.spec.resource_claims
        or device_resources(pod.requests, snapshot.objects)
    )
