"""The complete answer of the policies about one pod in a world.

Owns the answer's shape: the one of kube-scheduler's recorded answers, shared by policy tests and
conformance. Deciding is `scheduling`'s.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.core.framework.reasons import Reason
from engine.core.framework.status import Status
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import NO_NOMINATIONS, Scheduler
from engine.files.world import World

_NO_REASON: Final = Reason("")


class Rejection(msgspec.Struct, frozen=True):
    """The plugin that rejected, its code (as kube-scheduler writes it) and its reasons."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


class FullDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was decided about one pod.

    Attributes:
        pre_filter: Set when a pre-filter rejected the pod; then nothing else was asked.
        pre_filter_nodes: The nodes that the pre-filters allow; None: all.
        rejected: By node, the first rejection.
        scores: By feasible node, normalised score times weight of each policy that scored.
        total: By feasible node, the sum.
        best: The nodes with the highest total, sorted.
        post_filter: What preemption and other post-filters said of a pod that fits nowhere; empty
            if preemption found a node.
        preemption: The node to free capacity on, with the pods to evict, the most important first.
        annotations: What the pod gets with its binding.
        reason: The token of the dominant reason of a pod that fits nowhere; else empty.
        node_helps: One more node might let it run.
        failures: What policies failed with; the decision is then worth nothing.
    """

    pre_filter: Rejection | None = None
    pre_filter_nodes: tuple[str, ...] | None = None
    rejected: Mapping[str, Rejection] = {}
    scores: Mapping[str, Mapping[str, int]] = {}
    total: Mapping[str, int] = {}
    best: tuple[str, ...] = ()
    post_filter: str = ""
    preemption: Mapping[str, tuple[str, ...]] = {}
    annotations: Mapping[str, str] = {}
    reason: str = ""
    node_helps: bool = False
    failures: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


def decide(
    world: World, scheduler: Scheduler, pod: Pod, nominator: Nominator = NO_NOMINATIONS
) -> FullDecision:
    """The decision of *scheduler*'s policies on *pod* in *world*, with *nominator*'s nominations.

    Raises `KeyError` if no profile of the scheduler has the pod's `schedulerName`.
    """
    explanation = scheduler.explain(pod, world.snapshot, nominator)
    decision = explanation.decision
    failures = (*decision.failures, *decision.ignored)
    if decision.failures:
        return FullDecision(failures=tuple(str(failure) for failure in failures))
    why = decision.reason if decision.node is None else _NO_REASON
    pre_filter = decision.diagnosis.pre_filter
    eviction = decision.eviction
    evicted = {} if eviction is None else {eviction.node: tuple(p.key for p in eviction.victims)}
    post_filter = "" if evicted else decision.diagnosis.post_filter
    if pre_filter is not None:
        return FullDecision(
            pre_filter=_rejection(pre_filter),
            pre_filter_nodes=explanation.pre_filter_nodes,
            post_filter=post_filter,
            preemption=evicted,
            reason=why.token,
            node_helps=why.node_helps,
        )
    total = dict(zip(explanation.feasible, explanation.totals.tolist(), strict=True))
    weighted = {row.policy: row.weighted.tolist() for row in explanation.scores}
    highest = max(total.values(), default=0)
    return FullDecision(
        pre_filter_nodes=explanation.pre_filter_nodes,
        rejected={name: _rejection(status) for name, status in explanation.rejected.items()},
        scores={
            name: {policy: scores[i] for policy, scores in weighted.items()}
            for i, name in enumerate(explanation.feasible)
        },
        total=total,
        best=tuple(sorted(name for name, score in total.items() if score == highest)),
        post_filter=post_filter,
        preemption=evicted,
        annotations=decision.annotations,
        reason=why.token,
        node_helps=why.node_helps,
        failures=tuple(str(failure) for failure in failures),
    )


def _rejection(status: Status) -> Rejection:
    return Rejection(status.plugin, status.code.value, status.reasons)
