"""What the proofs of sameness share: a scheduler without reuse, and a decision in full.

Whoever remembers nothing cannot reuse anything. So the reference is a scheduler that was just made,
over a cache that was just filled: it has no slot, table, counter, class or total from before, and
it is thrown away after one decision. There is no switch that leaves parts of the reuse on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.core.caching.cache import Cache
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Decision, Explanation
from engine.core.scheduling.pod_hooks import GroupSource
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.language.effects import AGES
from engine.policy.analysis import Reads
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from engine.policy.projections import EVERYTHING


def without_reuse(
    bundle: Bundle, evaluator: Evaluator, groups: GroupSource | None = None
) -> Scheduler:
    """A scheduler that knows nothing yet; for one decision."""
    scheduler = Scheduler(bundle, evaluator)
    scheduler.hooks.groups = groups
    return scheduler


def with_whole_views(
    bundle: Bundle, policies: Iterable[str], named: Mapping[str, Iterable[str]]
) -> Bundle:
    """*bundle*, with hooks of *policies* that are given all of whatever they are given.

    *named* are by view the entries that are there only for those who name them. Whoever reads less
    must see no difference.
    """
    made = dict(bundle.policies)
    for name in policies:
        hooks = {hook: _whole(reads, named) for hook, reads in made[name].hooks.items()}
        made[name] = replace(made[name], hooks=hooks)
    return replace(bundle, policies=made)


def _whole(reads: Reads, named: Mapping[str, Iterable[str]]) -> Reads:
    every = frozenset({EVERYTHING, AGES})
    return replace(
        reads,
        pod=every.union(named["pod"]),
        node=every.union(named["node"]),
        cluster=every.union(named["cluster"]),
        group=every,
        counts=every,
        over=every,
    )


def decided(decision: Decision) -> Any:
    """Everything that a decision says, comparable; the order of slots left out."""
    eviction = decision.eviction
    evicted = None
    if eviction is not None:
        evicted = (eviction.node, [pod.key for pod in eviction.victims])
    diagnosis = decision.diagnosis
    return {
        "node": decision.node,
        "message": decision.message(),
        "rejections": sorted(
            (status.code.name, status.reasons, status.plugin, count)
            for status, count in diagnosis.rejections.items()
        ),
        "pre-filter": diagnosis.pre_filter,
        "narrowed by": sorted(diagnosis.narrowed_by),
        "feasible": decision.feasible_count,
        "failures": decision.failures,
        "ignored": decision.ignored,
        "eviction": evicted,
        "nominated": decision.nominated_node,
        "sought victims": decision.sought_victims,
        "annotations": dict(decision.annotations),
        "revision": decision.revision,
    }


def explained(explanation: Explanation) -> Any:
    """A decision with every verdict, score and total by node."""
    names = explanation.feasible
    scores = {
        row.policy: {
            "weight": row.weight,
            "raw": dict(zip(names, row.raw, strict=True)),
            "normalized": dict(zip(names, row.normalized, strict=True)),
            "weighted": dict(zip(names, row.weighted, strict=True)),
        }
        for row in explanation.scores
    }
    subset = explanation.pre_filter_nodes
    return {
        "decision": decided(explanation.decision),
        "subset": None if subset is None else sorted(subset),
        "rejected": dict(sorted(explanation.rejected.items())),
        "scores": scores,
        "totals": dict(zip(names, explanation.totals, strict=True)),
    }


def differences(got: Any, want: Any, path: str = "") -> list[str]:
    """Where two plain values differ, one line each."""
    if isinstance(got, dict) and isinstance(want, dict):
        lines: list[str] = []
        for key in dict.fromkeys([*want, *got]):
            lines += differences(got.get(key), want.get(key), f"{path}/{key}")
        return lines
    return [] if got == want else [f"{path}: with reuse {got!r}, without {want!r}"]


def assert_same(
    remembers: Scheduler,
    cache: Cache,
    nominator: Nominator,
    pods: Sequence[Pod],
    rebuilt: "tuple[Cache, Nominator]",
    evaluator: Evaluator,
    bundle: Bundle | None = None,
) -> list[Decision]:
    """Decide each of *pods* with and without reuse; what the one that remembers decided.

    *anew* is the same cluster in a cache and promises that were just made, *bundle* what the
    scheduler without reuse decides by if that is another one. Raises `AssertionError` with every
    difference.
    """
    other, nominations = rebuilt
    result = []
    for pod in pods:
        fresh = without_reuse(bundle or remembers.bundle, evaluator, remembers.hooks.groups)
        want = fresh.explain(pod, other.snapshot(), nominations)
        decision = remembers.schedule(pod, cache.snapshot(), nominator)
        # How often it explains must not matter either.
        found = remembers.explain(pod, cache.snapshot(), nominator)
        lines = differences(explained(found), explained(want), "explain")
        short, long = decided(decision), decided(want.decision)
        if nominations.node_of(pod.uid) is not None:
            # Whoever takes what was promised does not look on.
            short["feasible"], short["ignored"] = long["feasible"], long["ignored"]
        lines += differences(short, long, "schedule")
        for hook in ("queue_key", "pre_enqueue", "permit"):
            asked = getattr(fresh.hooks, hook)(pod, other.snapshot())
            lines += differences(getattr(remembers.hooks, hook)(pod, cache.snapshot()), asked, hook)
        assert not lines, "\n".join([f"pod {pod.key}:", *lines])
        result.append(decision)
    return result
