"""Whose rejections leave a pod without a node.

Owns the question and its answer for one pod under one set of policies.
"""

from collections import Counter

import msgspec

from engine.comparing.population import PolicySet
from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import NO_NOMINATIONS
from engine.explaining.reason_source import reason_source
from engine.explaining.verdict_table import VerdictTable, ask_each
from engine.policy.evaluator import PolicyFailure


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


def accepts(asked: PolicySet, pod: Pod, snapshot: Snapshot) -> bool:
    """True if *asked* has a node for *pod* on *snapshot*, without evictions."""
    decision = asked.scheduler.schedule(pod, snapshot, has_post_filters=False)
    return decision.node is not None


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


def place_of_failure(failure: PolicyFailure) -> str:
    """`file:line` of *failure*, or the file alone."""
    return f"{failure.file}:{failure.line}" if failure.line else failure.file
