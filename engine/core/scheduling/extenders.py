"""What a scheduling cycle asks extenders, and their answers.

Owns the questions and answers that pass between the cycle, which is plain code, and the shell,
which sends requests. The cycle yields a question, the shell awaits the answer, and the cycle goes
on with it; so nothing here waits, and nothing there decides.

Texts and codes are kube-scheduler's (`pkg/scheduler/extender.go`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.extender import EXTENDER
from engine.core.framework.owner import Owner
from engine.core.framework.status import Code, Status
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.policy.evaluator import PolicyFailure

#: The plugin name of what an extender rejected: any event is worth a new try.
#: The status of a node that an extender left out without saying why.
DROPPED: Final = Status(Code.UNRESOLVABLE, (), EXTENDER)


@dataclass(frozen=True, slots=True)
class ExtenderFailure(PolicyFailure):
    """An extender that gave no answer, and may not be ignored; the text is kube-scheduler's."""

    @property
    def owner(self) -> Owner:
        """The extender's."""
        return Owner.EXTENDER

    @property
    def token(self) -> str:
        """The reason token of a pod whose attempt it costs."""
        return "ExtenderFailed"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class ExtenderFilter:
    """Which of these nodes, that passed every filter, may the pod go to?

    Asked also about the nominated node alone, when that one is tried first. Not asked if there is
    no node to ask about.
    """

    pod: Pod
    infos: Sequence[NodeInfo]


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The nodes that every interested extender let through, and why not the others.

    Attributes:
        feasible: Names of the nodes that are left, each one of those asked about.
        rejected: Statuses by node name, with `EXTENDER` as plugin and at most one reason; they
            take the place of what a node had. May name nodes that were not asked about, even
            unknown ones. A node that is neither here nor in *feasible* was dropped in silence:
            it counts as unresolvable, without a reason (`DROPPED`).
        failure: Set if the attempt is lost: an extender failed that may not be ignored.
    """

    feasible: tuple[str, ...]
    rejected: Mapping[str, Status] = field(default_factory=dict)
    failure: ExtenderFailure | None = None


@dataclass(frozen=True, slots=True)
class ExtenderPrioritize:
    """How good are these nodes? Asked when several are feasible, after the policies' scores."""

    pod: Pod
    infos: Sequence[NodeInfo]


@dataclass(frozen=True, slots=True)
class PrioritizeAnswer:
    """What extenders add to each node's total; one that fails adds nothing.

    Attributes:
        totals: One per node of the question, in its order: the sum of score * weight * 10.
        by_extender: The same for each extender, by its name (the `urlPrefix`).
    """

    totals: tuple[int, ...]
    by_extender: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """The pods to evict from one node, most important first, and the budgets that it violates."""

    pods: tuple[Pod, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class ExtenderPreempt:
    """Which of these candidates for preemption remain, and with which victims?

    Asked once with all candidates, if there are any. From 1.38 on there may be some without
    victims, for an extender to name them. *snapshot* is where victims are looked up.
    """

    pod: Pod
    victims: Mapping[str, NodeVictims]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class PreemptAnswer:
    """The candidates that are left, by node name, all with victims; none: it cannot help.

    `failure` is set if an extender failed that may not be ignored: then preemption is off, and its
    text stands where preemption's would.
    """

    victims: Mapping[str, NodeVictims]
    failure: ExtenderFailure | None = None


Question: TypeAlias = ExtenderFilter | ExtenderPrioritize | ExtenderPreempt
Answer: TypeAlias = FilterAnswer | PrioritizeAnswer | PreemptAnswer


def unopposed(question: Question) -> Answer:
    """The answer of extenders that have nothing to say, for decisions that only try something."""
    if isinstance(question, ExtenderFilter):
        return FilterAnswer(tuple(info.name for info in question.infos))
    if isinstance(question, ExtenderPrioritize):
        return PrioritizeAnswer((0,) * len(question.infos))
    return PreemptAnswer(with_victims(question.victims))


def with_victims(candidates: Mapping[str, NodeVictims]) -> dict[str, NodeVictims]:
    """Those of *candidates* that have victims."""
    return {node: found for node, found in candidates.items() if found.pods}
