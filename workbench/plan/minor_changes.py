"""What another minor version of Kubernetes would change in the answers about the pods of a cluster.

Owns the comparison of one set of policies with itself under two versions, and finding the
difference between the versions that makes a difference between answers.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import msgspec

from engine.comparing.population import PolicySet, classes_of
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import CHANGES, Behaviors, behaviors_of
from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster
from engine.policy.bundle import Bundle
from engine.rollout.trial import frozen_copy
from workbench.comparing.policy_differences import Said, compare_pod
from workbench.comparing.population import Population, cache_of

#: The states of the nodes, in the order of `Population.states`.
EMPTY, AS_IT_IS = "empty", "as it is"


class AnswerChange(msgspec.Struct, frozen=True):
    """An answer that the other version changes, for pods that policies cannot tell apart.

    Attributes:
        pod: `namespace/name` of one of them.
        pods: How many there are.
        nodes: The state of the nodes where it was found: `empty`, or `as it is`.
        kind: The kind of the difference.
        before, after: What is said under either version.
        because: The differences between the versions each of which makes it, by their names in
            `behaviors.CHANGES`; if none does alone, those without each of which it is not made.
    """

    pod: str
    pods: int
    nodes: str
    kind: str
    before: Said
    after: Said
    because: tuple[str, ...]


class MinorChanges(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        pods: Pods that were asked about, each as if it came now.
        skipped: Pods of which no profile has the scheduler.
        changed: Pods about which something is answered otherwise.
        changes: One for each kind and class of pods, where it was found first.
    """

    pods: int
    skipped: int
    changed: int
    changes: tuple[AnswerChange, ...]


def minor_changes(
    bundle: Bundle,
    population: Population,
    minors: tuple[int, int],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> MinorChanges:
    """Ask *bundle* about every class of pods under both *minors*. Raises `ManifestError`.

    *on_progress* is called with how many of how many questions are answered.
    """
    old, new = (behaviors_of(minor) for minor in minors)
    rows = [name for name in CHANGES if getattr(old, name) != getattr(new, name)]
    with PolicySet(bundle) as first, PolicySet(bundle) as second:
        pair = (first, second)
        # The cluster as it is comes last: there hooks are given the most.
        states = [_Seen(cluster, first, population) for cluster in population.states()]
        snapshots = [states[-1].by(one) for one in (old, new)]
        for one, snapshot in zip(pair, snapshots, strict=True):
            one.use_groups(population.pods, snapshot)
        classes = classes_of(population.pods, pair, snapshots)

        def is_there(kind: str, pod: Pod, seen: _Seen, behaves: Behaviors) -> bool:
            compared = compare_pod(pair, pod, (seen.by(old), seen.by(behaves)))
            return any(one.kind == kind for one in compared.differences)

        def because(kind: str, pod: Pod, seen: _Seen) -> tuple[str, ...]:
            alone = [replace(old, **{row: getattr(new, row)}) for row in rows]
            found = [
                row for row, one in zip(rows, alone, strict=True) if is_there(kind, pod, seen, one)
            ]
            without = [replace(new, **{row: getattr(old, row)}) for row in rows]
            return tuple(found) or tuple(
                row
                for row, one in zip(rows, without, strict=True)
                if not is_there(kind, pod, seen, one)
            )

        found: dict[tuple[str, str], AnswerChange] = {}
        names = [EMPTY, AS_IT_IS] if len(states) > 1 else [EMPTY]
        questions = [*itertools.product(zip(names, states, strict=True), classes)]
        for done, ((name, seen), alike) in enumerate(questions, 1):
            pod = alike.example
            compared = compare_pod(pair, pod, (seen.by(old), seen.by(new)))
            for difference in compared.differences:
                kind, before, after = difference.kind, difference.before, difference.after
                if (kind, pod.key) not in found:
                    why = because(kind, pod, seen)
                    found[kind, pod.key] = AnswerChange(
                        pod.key, alike.count, name, kind, before, after, why
                    )
            on_progress(done, len(questions))
    asked = sum(alike.count for alike in classes)
    return MinorChanges(
        pods=asked,
        skipped=len(population.pods) - asked,
        changed=sum({one.pod: one.pods for one in found.values()}.values()),
        changes=tuple(found.values()),
    )


class _Seen:
    """A cluster as policies see it under one version or another."""

    def __init__(self, cluster: Cluster, asked: PolicySet, population: Population) -> None:
        self._cache = cache_of(cluster, asked, population.pods)
        self._known: dict[Behaviors, Snapshot] = {}

    def by(self, behaves: Behaviors) -> Snapshot:
        """The cluster where *behaves* is what is answered like."""
        known = self._known.get(behaves)
        if known is None:
            self._cache.objects.behaves = behaves
            known = self._known[behaves] = frozen_copy(self._cache.snapshot())
        return known
