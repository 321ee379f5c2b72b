"""The result of a scheduling cycle: the decision and, on request, everything behind it.

Owns records only.
"""

import functools
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core.framework import reasons
from engine.core.framework.owner import Owner
from engine.core.framework.reasons import Reason
from engine.core.framework.status import Status
from engine.core.model.node_info import NodeInfo
from engine.core.scheduling.choice import Choice
from engine.core.scheduling.diagnosis import Diagnosis
from engine.core.scheduling.extenders import Answer, Question
from engine.core.scheduling.placement import Preemption as Eviction
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.policy.evaluator import PolicyFailure, of_policies
from engine.policy.verdicts import FITS, Reasons


class Decision(msgspec.Struct, frozen=True):
    """What the cycle decided for one pod.

    Exactly one of these holds: `node` is set (placed); `failures` is not empty (the attempt is
    lost, and each says whose fault that is); else the pod is unschedulable for the reasons in
    `diagnosis`. `ignored` are failures that cost the pod nothing more: of score policies that the
    profile chose to live with, and of preemption.

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
        """True if something failed, so that nothing could be decided."""
        return bool(self.failures)

    @property
    def policy_failures(self) -> tuple[PolicyFailure, ...]:
        """The failures that policies are judged by, ignored ones included."""
        if not (self.failures or self.ignored):
            return ()
        return of_policies((*self.failures, *self.ignored))

    @property
    def is_policy_failure(self) -> bool:
        """True if it is the fault of a policy's text that nothing could be decided."""
        return bool(of_policies(self.failures))

    @property
    def failed_objects(self) -> frozenset[str]:
        """The plugins that objects are at fault for that nothing could be decided.

        Empty if anything else is at fault, or if another attempt may get further: otherwise a
        change of what these plugins look at is worth another attempt, and nothing else is.
        """
        if any(f.owner is not Owner.OBJECT or f.is_timeout for f in self.failures):
            return frozenset()
        return frozenset(failure.policy for failure in self.failures)

    @property
    def reason(self) -> Reason:
        """The dominant cause of a pod that was not placed."""
        if self.failures:
            return reasons.failure(self.failures[0].token, self.failures[0].policy)
        return self.diagnosis.reason

    def message(self) -> str:
        """The text for the event and the condition of a pod that was not placed."""
        if self.failures:
            return "; ".join(str(failure) for failure in self.failures)
        return self.diagnosis.message()


class PolicyScores(msgspec.Struct, frozen=True):
    """One policy's scores over the feasible nodes, in the order of `Explanation.feasible`.

    `raw` is what the hook answered (`shown_raw` says which are none), `normalized` is in 0..100,
    `weighted` is normalized times the weight.
    """

    policy: str
    weight: int
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]
    weighted: NDArray[np.int64]


class NodeCodes:
    """What the filters said of every node, by slot, as it was when it was made.

    Names and statuses are looked up when they are asked for: of most nodes nobody does.

    Attributes:
        slots: The feasible nodes.
    """

    def __init__(
        self, codes: NDArray[np.int32], infos: Sequence[NodeInfo | None], reasons: Reasons
    ) -> None:
        self._codes, self._infos, self._reasons = codes.copy(), list(infos), reasons
        self.slots: NDArray[np.int64] = np.flatnonzero(codes == FITS)

    def names(self, slots: NDArray[np.int64]) -> list[str]:
        """The names of the nodes in *slots*."""
        infos = self._infos
        return [info.name for slot in slots.tolist() if (info := infos[slot]) is not None]

    @functools.cached_property
    def feasible(self) -> tuple[str, ...]:
        """The names of the feasible nodes."""
        return tuple(self.names(self.slots))

    @functools.cached_property
    def rejected(self) -> Mapping[str, Status]:
        """Why each node was rejected, by its name."""
        slots = np.flatnonzero(self._codes > 0)
        statuses = map(self._reasons.status, self._codes[slots].tolist())
        return dict(zip(self.names(slots), statuses, strict=True))


_NO_CODES: Final = NodeCodes(np.empty(0, np.int32), (), Reasons())


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that led to it, node by node.

    `scores` and `totals` are of the feasible nodes.
    """

    decision: Decision
    pre_filter_nodes: tuple[str, ...] | None = None
    nodes: NodeCodes = _NO_CODES
    scores: tuple[PolicyScores, ...] = ()
    totals: NDArray[np.int64] = msgspec.field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def rejected(self) -> Mapping[str, Status]:
        """Why each node was rejected, by its name."""
        return self.nodes.rejected

    @property
    def feasible(self) -> tuple[str, ...]:
        """The names of the feasible nodes, in the order of their slots."""
        return self.nodes.feasible


Steps: TypeAlias = Generator[Question, Answer, Explanation]
"""A decision that may have to ask extenders: the caller answers what it yields."""
