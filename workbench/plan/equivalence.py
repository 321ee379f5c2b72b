"""Whether two sets of policies decide alike on the pod classes and nodes of a workload.

Owns the comparison over the whole set and its result. The answer is exact for the workload, and
says nothing of pods and nodes that are not in it.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from engine.comparing.population import AlikePods, classes_of
from engine.core.caching.snapshot import Snapshot
from engine.files.cluster_file import Cluster
from workbench.comparing.counterexample import Counterexample, Found, counterexample
from workbench.comparing.kinds import OF_ANSWERS, OTHER_ORDER
from workbench.comparing.policy_differences import Pair, compare_pod, compare_queue
from workbench.comparing.population import Population, queue_classes_of, shape_count, snapshots_of
from workbench.plan.queue_plan import is_same_tree

State: TypeAlias = tuple[Cluster, list[Snapshot]]
"""The cluster in a state, and what each set sees of it."""

EQUIVALENT: Final = "equivalent"
IMPLIES: Final = "implies"
DIFFERS: Final = "differs"


class Equivalence(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        relation: `equivalent`; `implies`: one set rejects everything that the other one rejects,
            and more; `differs`: neither.
        first_implies_second: The second set rejects every node that the first one rejects, for
            every pod.
        second_implies_first: The other way round.
        classes, pods: Classes of pods that were asked about, and pods in them.
        skipped: Pods of which no set has the profile.
        nodes, shapes: Nodes, and how many are different to policies, in all states together.
        differing: By kind, the gravest first: how many pods are in classes with such a difference.
        counterexample: Of the gravest kind; None if the sets are equivalent.
        has_other_queues: Their trees of queues are not the same, so that pods may go in another
            order, or be held; what they come to is not compared.
    """

    relation: str
    first_implies_second: bool
    second_implies_first: bool
    classes: int
    pods: int
    skipped: int
    nodes: int
    shapes: int
    differing: dict[str, int]
    counterexample: Counterexample | None
    has_other_queues: bool = False


@dataclass(slots=True)
class _Tally:
    """What was found so far.

    Attributes:
        pods: By kind, the classes with such a difference, by their example: how many pods.
        smallest: By kind, where it was found on the smallest cluster, of the smallest pod.
    """

    pods: dict[str, dict[str, int]] = field(default_factory=dict)
    smallest: dict[str, Found] = field(default_factory=dict)
    is_rejected_by_first: bool = False
    is_rejected_by_second: bool = False

    def note(self, found: Found) -> None:
        kind = found.difference.kind
        known = self.smallest.get(kind)
        if known is None or _size(found) < _size(known):
            self.smallest[kind] = found


def _size(found: Found) -> tuple[int, int, str]:
    return len(found.cluster.pods), len(found.pod.raw or b""), found.pod.key


def compare(
    pair: Pair,
    population: Population,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Equivalence:
    """Ask both sets about every class on every node. Raises `ManifestError`.

    *on_progress* is called with how many of how many questions are answered.
    """
    # 1. Classes, by the cluster as it is: there hooks are given the most.
    states = [(one, snapshots_of(one, pair, population.pods)) for one in population.states()]
    cluster, snapshots = states[-1]
    for one, snapshot in zip(pair, snapshots, strict=True):
        one.use_groups(population.pods, snapshot)
    classes = classes_of(population.pods, pair, snapshots)
    # 2. Each class in each state; one state after the other, as the engine keeps what it knows of
    # nodes only as long as it is asked about the same ones.
    tally = _Tally()
    total = len(states) * len(classes)
    for done, (state, alike) in enumerate(itertools.product(states, classes), 1):
        _ask(pair, alike, state, tally)
        on_progress(done, total)
    # 3. The order of the queue.
    queued = queue_classes_of(population.pods, pair, snapshots)
    swapped = compare_queue(pair, [alike.example for alike in queued], snapshots)
    if swapped is not None:
        difference, pod, other = swapped
        tally.note(Found(difference, pod, replace(cluster, pods=[]), other))
        tally.pods[OTHER_ORDER] = {
            alike.example.key: alike.count for alike in queued if alike.example in (pod, other)
        }
    # 4. The result.
    gravest = next((tally.smallest[kind] for kind in OF_ANSWERS if kind in tally.smallest), None)
    pods = sum(alike.count for alike in classes)
    is_one_way = tally.is_rejected_by_first != tally.is_rejected_by_second
    return Equivalence(
        relation=EQUIVALENT if gravest is None else IMPLIES if is_one_way else DIFFERS,
        first_implies_second=not tally.is_rejected_by_first,
        second_implies_first=not tally.is_rejected_by_second,
        classes=len(classes),
        pods=pods,
        skipped=len(population.pods) - pods,
        nodes=len(population.cluster.nodes),
        shapes=sum(shape_count(pair, each) for _, each in states),
        differing={
            kind: sum(tally.pods[kind].values()) for kind in OF_ANSWERS if kind in tally.pods
        },
        counterexample=None if gravest is None else counterexample(pair, gravest),
        has_other_queues=not is_same_tree(pair[0].bundle, pair[1].bundle),
    )


def _ask(pair: Pair, alike: AlikePods, state: State, tally: _Tally) -> None:
    """Add to *tally* what the two sets say differently of one class."""
    cluster, snapshots = state
    compared = compare_pod(pair, alike.example, snapshots)
    for difference in compared.differences:
        tally.note(Found(difference, alike.example, cluster))
        tally.pods.setdefault(difference.kind, {})[alike.example.key] = alike.count
    tally.is_rejected_by_first |= compared.is_rejected_by_first
    tally.is_rejected_by_second |= compared.is_rejected_by_second
