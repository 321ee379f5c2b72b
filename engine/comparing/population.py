"""The pods and nodes of a workload that policies are asked about: a finite set, without samples.

Owns which pods count as one: those of which every hook of every set of policies is given the same.
One of each class stands for all, so what is found holds for every pod of the workload. All nodes
are asked about: verdicts of nodes with one shape are evaluated once, by the engine's own reuse.

Nodes are looked at in two states: with the pods that are on them, and empty. On a full cluster
nearly every node rejects nearly every pod, and that alone would hide most of what policies say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from engine.core.caching.device_classes import device_resources
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import Profile
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.trial_groups import TrialGroups
from engine.files.cluster_file import Cluster
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


@dataclass(frozen=True, slots=True)
class Population:
    """What policies are asked about.

    Attributes:
        cluster: Its nodes, pods on them, and other objects; without pods that have no node.
        pods: All pods, by name, as if each of them came now.
    """

    cluster: Cluster
    pods: tuple[Pod, ...]

    def states(self) -> list[Cluster]:
        """The cluster in each state: empty, and then as it is if that is another one."""
        empty = replace(self.cluster, pods=[])
        return [empty, self.cluster] if self.cluster.pods else [empty]


def snapshots_of(
    cluster: Cluster, sets: Sequence[PolicySet], pods: Sequence[Pod]
) -> list[Snapshot]:
    """*cluster* as each of *sets* sees it; they differ in facts. Raises `ManifestError`."""
    made: list[tuple[FactsConfig, Snapshot]] = []
    for one in sets:
        known = next((snapshot for config, snapshot in made if config == one.facts), None)
        if known is None:
            world = cluster.world()
            world.cache.set_pod_type_labels(one.facts.pod_type_labels)
            cluster.show_facts(world.cache, one.facts, pods)
            known = world.cache.snapshot()
        made.append((one.facts, known))
    return [snapshot for _, snapshot in made]


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
    return [_alike(them) for them in found.values()]


def queue_classes_of(
    pods: Sequence[Pod], sets: Sequence[PolicySet], snapshots: Sequence[Snapshot]
) -> list[AlikePods]:
    """As `classes_of`, of pods for which `queue_key` is given the same."""
    found: dict[tuple[object, ...], list[Pod]] = {}
    pairs = [*zip(sets, snapshots, strict=True)]
    for pod in pods:
        keys = tuple(one.queue_class_key(pod, snapshot) for one, snapshot in pairs)
        if all(keys):
            found.setdefault(keys, []).append(pod)
    return [_alike(them) for them in found.values()]


def shape_count(sets: Sequence[PolicySet], snapshots: Sequence[Snapshot]) -> int:
    """How many shapes nodes have: those of one differ in nothing that is read but their name."""
    columns = []
    for one, snapshot in zip(sets, snapshots, strict=True):
        projector = Projector("node", one.node_paths())
        infos = [info for info in snapshot.infos if info is not None and info.node is not None]
        texts = projector.project_all(infos, snapshot)[1] if infos else []
        # Labels have the name too.
        quoted = (msgspec.json.encode(info.name) for info in infos)
        columns.append([t.replace(name, b'""') for t, name in zip(texts, quoted, strict=True)])
    return len(set(zip(*columns, strict=True)))


def manifest_of(pod: Pod) -> dict[str, Any]:
    """The manifest of *pod*, as it was read if that is known."""
    text = pod.raw if pod.raw is not None else msgspec.json.encode(pod.manifest)
    plain: dict[str, Any] = msgspec.json.decode(text)
    return plain


def _alike(pods: list[Pod]) -> AlikePods:
    return AlikePods(min(pods, key=lambda pod: (len(pod.raw or b""), pod.key)), len(pods))


def _has_claims(pod: Pod, snapshot: Snapshot) -> bool:
    """True if a plugin of the runtime may have something to say of *pod*."""
    return bool(
        pod.volumes
        or pod.manifest.spec.resource_claims
        or device_resources(pod.requests, snapshot.objects)
    )
