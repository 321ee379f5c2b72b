"""Which pods of a workload no node accepts, and whose fault that is.

Owns the question and its answer for one set of policies. Nodes are asked about without their pods,
so nothing is said of a cluster that is full; a pod that needs others near it may have them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from engine.comparing.counterexample import is_needed
from engine.comparing.policy_differences import place_of_failure
from engine.comparing.population import (
    AlikePods,
    PolicySet,
    Population,
    classes_of,
    manifest_of,
    snapshots_of,
)
from engine.comparing.shrinking import Plain, shrink
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import NO_NOMINATIONS
from engine.explaining.reason_source import reason_source
from engine.explaining.verdict_table import VerdictTable, ask_each
from engine.files.cluster_file import Cluster
from engine.files.world import ManifestError


class Rejector(msgspec.Struct, frozen=True):
    """A policy that rejects nodes for a pod.

    Attributes:
        policy: Its name; that of a plugin of the runtime, too.
        source: `file:line` of the reason, or of the failure; empty for a part of the runtime.
        reason: The most frequent one.
        nodes: How many it rejects.
        is_builtin: It ships with the runtime, and is not replaced.
    """

    policy: str
    source: str
    reason: str
    nodes: int
    is_builtin: bool


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


def accepts(asked: PolicySet, pod: Pod, snapshot: Snapshot) -> bool:
    """True if *asked* has a node for *pod* on *snapshot*, without evictions."""
    decision = asked.scheduler.schedule(pod, snapshot, has_post_filters=False)
    return decision.node is not None


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


def rejectors(asked: PolicySet, pod: Pod, snapshot: Snapshot) -> tuple[tuple[Rejector, ...], bool]:
    """Whose rejections leave no node, and if those of shipped policies alone would do."""
    if pod.problems:
        return (Rejector("PodSpec", "", "; ".join(pod.problems), snapshot.node_count, True),), True
    table = ask_each(asked.scheduler, pod, snapshot, NO_NOMINATIONS)
    failures = list(table.failures)
    if not any(table.rejections.values()):
        # What no filter rejects is kept from its nodes by a hook that comes later, such as `score`.
        failures += asked.scheduler.schedule(pod, snapshot, has_post_filters=False).failures
    if failures:
        one = failures[0]
        failed = Rejector(
            one.policy,
            place_of_failure(one),
            f"`{one.hook}` fails: {one.message}",
            snapshot.node_count,
            _is_builtin(asked, one.policy),
        )
        return (failed,), failed.is_builtin
    every = [_rejector(asked, table, policy) for policy, them in table.rejections.items() if them]
    by = [one for one in every if one.nodes == snapshot.node_count] or every
    by.sort(key=lambda one: (-one.nodes, one.policy))
    hopeless = {
        node
        for policy, nodes in table.rejections.items()
        if _is_builtin(asked, policy)
        for node in nodes
    }
    # A policy of the user that rejects every node itself is to blame all the same.
    is_blamed = any(one.nodes == snapshot.node_count and not one.is_builtin for one in by)
    return tuple(by), len(hopeless) == snapshot.node_count and not is_blamed


def _rejector(asked: PolicySet, table: VerdictTable, policy: str) -> Rejector:
    statuses = table.rejections[policy]
    counts = Counter(status.message for status in statuses.values())
    reason = min(counts, key=lambda text: (-counts[text], text))
    return Rejector(
        policy,
        reason_source(asked.bundle, policy, reason),
        reason,
        len(statuses),
        _is_builtin(asked, policy),
    )


def _is_builtin(asked: PolicySet, policy: str) -> bool:
    known = asked.bundle.policies.get(policy)
    return known is None or known.is_builtin
