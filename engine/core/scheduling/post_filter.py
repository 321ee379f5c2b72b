"""Runs the post-filters, preemption among them, for a pod that fits nowhere.

Owns their order and what they say together. The dry run is `preemption`'s.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.core.framework.status import Status
from engine.core.scheduling.decision import NodeCodes
from engine.core.scheduling.extenders import (
    Answer,
    ExtenderPreempt,
    NodeVictims,
    PreemptAnswer,
    Question,
)
from engine.core.scheduling.feasibility import Filters, RuntimeUse
from engine.core.scheduling.placement import Preemption as Eviction
from engine.core.scheduling.preemption import NO_CANDIDATE, PREFIX, Preemption
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.victims import PLUGIN
from engine.policy.evaluator import PolicyFailure
from engine.policy.verdicts import VerdictMemo


@dataclass(slots=True)
class PostFiltered:
    """The outcome of the post-filters; the fields are those of `Decision`.

    `sought_victims`: preemption was asked.
    `kept_by`, by policy: on how many nodes only pods that it keeps stood in the way. `refused_by`:
    those that reject the pod even with all possible victims gone.
    """

    message: str = ""
    eviction: Eviction | None = None
    nominated_node: str | None = None
    actions: tuple[Callable[[], Awaitable[None]], ...] = ()
    failures: tuple[PolicyFailure, ...] = ()
    sought_victims: bool = False
    kept_by: Mapping[str, int] = field(default_factory=dict)
    refused_by: frozenset[str] = frozenset()


class PostFilters:
    """Runs the post-filters of a profile; one object serves all decisions of a bundle."""

    def __init__(self, memo: VerdictMemo, preemption: Preemption) -> None:
        self._memo = memo
        self._preemption = preemption

    def run(
        self,
        filters: Filters,
        codes: NDArray[np.int32],
        uses: Sequence[RuntimeUse],
        plugins: Mapping[str, RuntimePlugin],
        *,
        has_extenders: bool,
        is_extended: bool,
    ) -> Generator[Question, Answer, PostFiltered]:
        """Ask every post-filter in order, until one has helped.

        *codes* says by slot why each node was not feasible; *uses* are the plugins of the runtime
        that had something to say about the pod. *is_extended*: an extender has a say in preemption
        for it.
        """
        result = PostFiltered()
        messages: list[str] = []
        states = {use.plugin.name: use.state for use in uses}
        for name in filters.profile.order.get("postFilter", ()):
            if name == PLUGIN:
                found = yield from self._preempt(
                    filters, codes, has_extenders=has_extenders, is_extended=is_extended
                )
                result.sought_victims = True
                result.nominated_node, result.failures = found.nominated_node, found.failures
                result.kept_by, result.refused_by = found.kept_by, found.refused_by
                if found.eviction is not None:
                    # As in kube-scheduler: a success drops what earlier ones said.
                    result.eviction, result.message = found.eviction, PREFIX + found.message
                    return result
                messages.append(PREFIX + found.message)
                continue
            plugin = plugins.get(name)
            if plugin is None:
                continue
            state = states.get(name)
            rejected: Mapping[str, Status] = {}
            if state is not None:
                rejected = NodeCodes(codes, filters.snapshot.infos, self._memo.reasons).rejected
            said = plugin.post_filter(state, filters.pod, rejected, filters.snapshot)
            if said is None:
                continue
            messages.append(said.message)
            if said.action is not None:
                result.actions = (*result.actions, said.action)
            if said.is_final:
                break
        result.message = ", ".join(messages)
        return result

    def _preempt(
        self,
        filters: Filters,
        codes: NDArray[np.int32],
        *,
        has_extenders: bool,
        is_extended: bool,
    ) -> Generator[Question, Answer, PostFiltered]:
        """Which pods to evict where, with the nomination; or why it cannot help."""
        found = self._preemption.candidates(filters, codes, is_extended=is_extended)
        if found.failure is not None:
            return PostFiltered(str(found.failure), failures=(found.failure,))
        if not len(found.slots):
            nominated = None if found.keeps_nomination else ""
            return PostFiltered(
                found.refusal,
                nominated_node=nominated,
                kept_by=found.kept_by,
                refused_by=found.refused_by,
            )
        chosen: tuple[str, NodeVictims] | PolicyFailure | None
        if has_extenders:
            victims = found.victims(filters.snapshot)
            answer = yield ExtenderPreempt(filters.pod, victims, filters.snapshot)
            assert isinstance(answer, PreemptAnswer)
            if answer.failure is not None:
                return PostFiltered(str(answer.failure), failures=(answer.failure,))
            if not answer.victims:
                return PostFiltered(NO_CANDIDATE)
            chosen = self._preemption.choose_among(filters, answer.victims)
        else:
            chosen = self._preemption.choose(filters, found)
        if chosen is None:
            return PostFiltered(NO_CANDIDATE)
        if isinstance(chosen, PolicyFailure):
            return PostFiltered(str(chosen), failures=(chosen,))
        node, evicted = chosen
        found_one = (
            f"found a potential placement for pod on node {node}, "
            f"preempting {len(evicted.pods)} victims"
        )
        eviction = Eviction(node, evicted.pods, evicted.pdb_violations)
        return PostFiltered(found_one, eviction, node)
