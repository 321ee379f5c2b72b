"""Which pods of a workload no node accepts, and whose fault that is.

Owns the question and its answer for one set of policies. Nodes are asked about without their pods,
so nothing is said of a cluster that is full; a pod that needs others near it may have them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from engine.comparing.population import AlikePods, PolicySet, classes_of
from engine.comparing.rejectors import Rejector, accepts, rejectors
from engine.core.caching.snapshot import Snapshot
from engine.files.cluster_file import Cluster
from engine.files.world import ManifestError
from workbench.comparing.counterexample import is_needed
from workbench.comparing.population import Population, manifest_of, snapshots_of
from workbench.comparing.shrinking import Plain, shrink


class RejectedPods(msgspec.Struct, frozen=True):
    """Pods that no node accepts, for the same reason.

    Attributes:
        of: The pod that was asked about.
        count: How many pods are rejected like it.
        nodes: How many nodes there are.
        by: The policies that reject every node; if none does so alone, all that reject some.
        is_hopeless: The policies that ship with the runtime accept no node either.
        pod: The manifest, without what does not matter for that.
    """

    of: str
    count: int
    nodes: int
    by: tuple[Rejector, ...]
    is_hopeless: bool
    pod: dict[str, Any]


def rejected_pods(
    asked: PolicySet,
    population: Population,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[RejectedPods]:
    """The pods that no node accepts, be it empty or as it is. Raises `ManifestError`.

    *on_progress* is called with how many of how many classes are done.
    """
    snapshots = [
        snapshots_of(cluster, [asked], population.pods)[0] for cluster in population.states()
    ]
    classes = classes_of(population.pods, [asked], snapshots[-1:])
    # One snapshot after the other, as the engine keeps what it knows of nodes only as long as it is
    # asked about the same ones.
    left = classes
    for number, snapshot in enumerate(snapshots):
        before, left = left, []
        for done, alike in enumerate(before, 1):
            if not accepts(asked, alike.example, snapshot):
                left.append(alike)
            if number == 0:
                on_progress(done, len(classes))
    return _merged([_rejected(asked, population.cluster, alike, snapshots[0]) for alike in left])


def _merged(found: Sequence[RejectedPods]) -> list[RejectedPods]:
    """*found* with one entry for pods that are the same without what does not matter."""
    alike: dict[tuple[object, ...], RejectedPods] = {}
    for one in found:
        pod = msgspec.json.encode({**one.pod, "metadata": {**one.pod["metadata"], "name": ""}})
        key = (pod, tuple(_names(one.by)), one.is_hopeless)
        known = alike.setdefault(key, one)
        if known is not one:
            count = known.count + one.count
            alike[key] = msgspec.structs.replace(known, count=count)
    return list(alike.values())


def _rejected(
    asked: PolicySet, cluster: Cluster, alike: AlikePods, snapshot: Snapshot
) -> RejectedPods:
    by, is_hopeless = rejectors(asked, alike.example, snapshot)

    def is_same(case: Plain) -> bool:
        try:
            pod = cluster.pod_of(case["pod"])
        except ManifestError:
            return False
        if asked.scheduler.profile_of(pod) is None or accepts(asked, pod, snapshot):
            return False
        return _names(rejectors(asked, pod, snapshot)[0]) == _names(by)

    case = shrink(
        {"pod": manifest_of(alike.example)},
        lambda cases: [is_same(each) for each in cases],
        is_needed=is_needed,
        batch=1,
    )
    return RejectedPods(
        alike.example.key, alike.count, snapshot.node_count, by, is_hopeless, case["pod"]
    )


def _names(by: Sequence[Rejector]) -> list[str]:
    return [one.policy for one in by]
