"""The result of a scheduling cycle: the decision and, on request, everything behind it.

Owns records only.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeAlias

import msgspec

from engine.framework import reasons
from engine.framework.reasons import Reason
from engine.framework.status import Status
from engine.policy.evaluator import PolicyFailure
from engine.scheduling.choice import Choice
from engine.scheduling.diagnosis import Diagnosis
from engine.scheduling.extenders import Answer, Question
from engine.scheduling.placement import Preemption as Eviction
from engine.scheduling.runtime_plugin import RuntimePlugin


class Decision(msgspec.Struct, frozen=True):
    """What the cycle decided for one pod.

    Exactly one of these holds: `node` is set (placed); `failures` is not empty (a policy failed
    and the pod's attempt is lost); else the pod is unschedulable for the reasons in `diagnosis`.
    `ignored` are failures that cost the pod nothing more: of score policies that the profile chose
    to live with, and of preemption.

    Placed: `choice` is why there, if the scheduler keeps that and scores decided;
    `annotations` are what the pod gets with its binding; `reserves` are the plugins of the
    runtime that have to reserve something for the pod, with their states. (Of a pod of a group
    that was not placed, those that may do something about it.) Not placed: `eviction`
    names the pods to evict, and where, so that the pod fits later; `actions` are what other plugins
    do about it; `nominated_node` is the node to nominate it to ("" clears a nomination, None leaves
    it); `sought_victims`: preemption was asked.
    """

    node: str | None
    diagnosis: Diagnosis
    revision: str
    feasible_count: int = 0
    failures: tuple[PolicyFailure, ...] = ()
    ignored: tuple[PolicyFailure, ...] = ()
    reserves: tuple[tuple[RuntimePlugin, Any], ...] = ()
    eviction: Eviction | None = None
    actions: tuple[Callable[[], Awaitable[None]], ...] = ()
    nominated_node: str | None = None
    sought_victims: bool = False
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    choice: Choice | None = None

    @property
    def is_error(self) -> bool:
        """True if a policy failed, so that nothing could be decided."""
        return bool(self.failures)

    @property
    def reason(self) -> Reason:
        """The dominant cause of a pod that was not placed."""
        if self.failures:
            return reasons.failure_of(self.failures[0].policy)
        return self.diagnosis.reason

    def message(self) -> str:
        """The text for the event and the condition of a pod that was not placed."""
        if self.failures:
            return "; ".join(str(failure) for failure in self.failures)
        return self.diagnosis.message()


class PolicyScores(msgspec.Struct, frozen=True):
    """One policy's scores over the feasible nodes, in the order of `Explanation.feasible`.

    `raw` is what the hook answered (None: no opinion on that node), `normalized` is in 0..100,
    `weighted` is normalized times the weight.
    """

    policy: str
    weight: int
    raw: tuple[int | None, ...]
    normalized: tuple[int, ...]
    weighted: tuple[int, ...]


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that led to it, node by node."""

    decision: Decision
    pre_filter_nodes: tuple[str, ...] | None = None
    rejected: Mapping[str, Status] = msgspec.field(default_factory=dict)
    feasible: tuple[str, ...] = ()
    scores: tuple[PolicyScores, ...] = ()
    totals: tuple[int, ...] = ()


Steps: TypeAlias = Generator[Question, Answer, Explanation]
"""A decision that may have to ask extenders: the caller answers what it yields."""
