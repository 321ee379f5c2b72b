"""What evicting pods would do for a pod that fits nowhere, as a record.

Owns choosing which candidates are shown, and the sentences.
"""

import heapq
from collections import Counter
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.preemption import Candidates
from engine.core.scheduling.rejections import node_name
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.surfaces.live.answers import Candidate, PreemptionAnswer, Victim, WhyNot

_MOST_CANDIDATES: Final = 10
_MOST_VICTIMS: Final = 50


def preemption_answer(
    scheduler: Scheduler, pod: Pod, snapshot: Snapshot, nominator: Nominator, decision: Decision
) -> PreemptionAnswer:
    """What evicting pods would do for *pod*, about which *decision* was made just now."""
    if not decision.sought_victims:
        return PreemptionAnswer(outcome="not_asked")
    found = scheduler.candidates(pod, snapshot, nominator)
    eviction = decision.eviction
    if found is None or found.failure is not None or eviction is None:
        why = () if found is None else _why_not(found)
        return PreemptionAnswer(outcome="cannot_help", why_not=why)
    costs = [(len(found.victims_on(slot).pods), node_name(slot, snapshot)) for slot in found.slots]
    shown = heapq.nsmallest(_MOST_CANDIDATES, costs, key=lambda one: (one[1] != eviction.node, one))
    return PreemptionAnswer(
        outcome="would_evict",
        node=eviction.node,
        victims=tuple(_victim(one, pod) for one in eviction.victims[:_MOST_VICTIMS]),
        candidates=tuple(Candidate(node, victims) for victims, node in shown),
        candidate_count=len(costs),
    )


def _victim(victim: Pod, pod: Pod) -> Victim:
    why = f"its priority {victim.priority} is lower than {pod.priority}"
    return Victim(victim.key, victim.priority, why)


def _why_not(found: Candidates) -> tuple[WhyNot, ...]:
    if not found.refusals:
        return (WhyNot(found.refusal),)
    counted = Counter[str]()
    for status, nodes in found.refusals.items():
        for reason in status.reasons:
            counted[reason] += nodes
    return tuple(WhyNot(reason, nodes) for reason, nodes in counted.most_common())
