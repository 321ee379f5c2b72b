"""The answer about one pod: what the running scheduler knows of it, and the explanation.

Owns putting the two together. What was decided comes first; what an explanation says of the cluster
as it is now is marked as such.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.core.framework import reasons
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.reclaims import Reclaimed
from engine.core.model.pod import Pod
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.transitions import Move, Place
from engine.explaining.event_words import in_words
from engine.explaining.reclaim_words import reclaim_text
from engine.lib.printable import counted
from engine.surfaces.live.answers import (
    Origin,
    Outcome,
    PodAnswer,
    PreemptionAnswer,
    QueueMove,
    QueueRow,
)
from engine.surfaces.live.decision_record import DecidedPod, DecisionRecord
from engine.surfaces.live.explainer import Question
from engine.surfaces.live.moments import Moments, at_text
from engine.surfaces.live.owner import owner_text
from engine.surfaces.live.queue_page import PERMIT, QueueRows
from engine.surfaces.live.ranking import MadeRanking
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.turn import Turn, turn_headline, turn_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPod:
    """What the scheduler knows of a pod at a moment.

    Attributes:
        pod: Its newest version.
        node: Where it counts; empty if nowhere.
        is_bound: The API server reports it there.
        queued: Its entry of the queue, if it has one.
        row: Its row, if it waits.
        turn: Where it stands in the tree of queues; None if it is in none.
        moves: What moved it through the queue, the latest at the end.
        decided: The last decision about it, if it is known.
        reclaimed: The latest reclaim for it, if there was one.
        canary: The revision on its way that decides it; "" if the policies in force do.
    """

    pod: Pod
    node: str = ""
    is_bound: bool = False
    queued: QueuedPod | None = None
    row: QueueRow | None = None
    turn: Turn | None = None
    moves: Sequence[Move] = ()
    decided: DecidedPod | None = None
    is_evicting: bool = False
    reclaimed: Reclaimed | None = None
    canary: str = ""

    def question(self, asked: Sequence[str] = ()) -> Question:
        """What is asked of the explainer; *asked* are nodes to report on one by one."""
        queued, gate = self.queued, None
        if queued is not None and queued.gated_by is not None:
            gate = Gate(queued.gated_by, queued.gate_reason, queued.gate_token)
        pod = self.pod.unplaced() if self.pod.node_name else self.pod
        return Question(pod=pod, node=self.node, gate=gate, turn=self.turn, asked=asked)


def known_pod(kernel: Kernel, rows: QueueRows, record: DecisionRecord, key: str) -> KnownPod | None:
    """What is known of the pod `namespace/name`; None if there is none."""
    queued = kernel.queue.named(key)
    pod = None if queued is None else queued.pod
    uid = kernel.cache.uid_of(key)
    counted = None if uid is None else kernel.cache.get_pod(uid)
    if pod is None:
        pod = counted or kernel.cluster.pending_pod(key)
    if pod is None:
        return None
    if counted is not None and counted.uid != pod.uid:
        counted = None
    return KnownPod(
        pod=pod,
        node="" if counted is None else counted.node_name,
        is_bound=counted is not None and not kernel.cache.is_assumed(pod.uid),
        queued=queued,
        row=rows.row_of(key),
        turn=turn_of(kernel.turns, kernel.shares, pod.uid),
        moves=() if queued is None else queued.moves,
        decided=record.of(pod.uid),
        is_evicting=pod.uid in kernel.preemptions,
        reclaimed=kernel.reclaims.for_taker(key),
        canary=_canary_of(kernel, pod),
    )


def _canary_of(kernel: Kernel, pod: Pod) -> str:
    """The revision of the canary that decides *pod*; "" if none does."""
    canary = kernel.schedulers.canary
    if canary is None or not kernel.schedulers.is_canary(pod):
        return ""
    return canary.scheduler.bundle.revision


def pod_answer(known: KnownPod, explained: PodAnswer, moments: Moments, rules: Rules) -> PodAnswer:
    """The answer about a pod that the explainer *explained*; *rules* are those in force."""
    replaced: dict[str, Any]
    if known.node:
        replaced = _of_placed(known, explained, moments)
    elif known.row is not None and known.queued is not None:
        replaced = _of_waiting(known, known.row, known.queued, explained)
    else:
        replaced = {"notes": (*explained.notes, "it is being tried at this moment")}
    if known.row is not None and known.row.group:
        group = f"it is tried with its group `{known.row.group}`; the pod alone is explained here"
        replaced["notes"] = (*replaced.get("notes", explained.notes), group)
    if known.reclaimed is not None:
        texts = _reclaimed(known.reclaimed, moments, rules)
        replaced["notes"] = (*replaced.get("notes", explained.notes), *texts)
    if by := _by_canary(known):
        replaced["notes"] = (*replaced.get("notes", explained.notes), by)
    return msgspec.structs.replace(
        explained,
        pod=known.pod.key,
        uid=known.pod.uid,
        owner=owner_text(known.pod),
        at=at_text(moments.now),
        queue=known.row,
        moves=tuple(
            QueueMove(moments.text(move.at) or "", move.place.label, move.why)
            for move in known.moves
        ),
        **replaced,
    )


def _reclaimed(one: Reclaimed, moments: Moments, rules: Rules) -> Iterator[str]:
    """What each queue gave back for the pod."""
    at, rule = moments.text(one.at), rules.hook(one.policy, "reclaim")
    for giver in dict.fromkeys(queue for _, queue, _ in one.victims):
        if text := reclaim_text(one, giver, rule):
            pods = counted(sum(queue == giver for _, queue, _ in one.victims), "pod")
            yield f"at {at} {pods} had to go for it: {text}"


def _by_canary(known: KnownPod) -> str:
    """What a reader has to know of a pod that a candidate decides; "" if none does."""
    explained = "what is explained here is what the policies in force say"
    if not known.canary:
        return ""
    if not known.node:
        return f"this pod is decided by the canary of revision {known.canary}; {explained}"
    decided = known.decided
    if decided is not None and decided.decision.revision == known.canary:
        return f"this pod was decided by the canary of revision {known.canary}; {explained}"
    return ""


def _of_placed(known: KnownPod, explained: PodAnswer, moments: Moments) -> dict[str, Any]:
    """What differs for a pod that has a node."""
    node, decided = known.node, known.decided
    is_ours = decided is not None and decided.decision.node == node
    source: Origin = "decided" if is_ours else "decided_again"
    is_in_permit = known.row is not None and known.row.place == PERMIT
    outcome: Outcome = "bound" if known.is_bound else "waiting" if is_in_permit else "placed"
    again = f"goes to {explained.node}" if explained.node else "fits nowhere"
    made_scores = _as_made(known, explained, moments) if is_ours else {}
    of_now = "verdicts are" if made_scores else "scores and verdicts are"
    notes = [
        *explained.notes,
        f"{of_now} of the cluster as it is now, without the pod: decided again, it {again}",
    ]
    headline = f"{known.pod.key} is on {node}"
    if decided is not None and is_ours:
        made = decided.decision
        headline += (
            f": decided at {moments.text(decided.at)} by revision {made.revision}, "
            f"with {made.feasible_count} of {made.diagnosis.node_count} nodes feasible"
        )
    else:
        notes.append("how it was decided is not known any more")
    replaced: dict[str, Any] = {
        "source": source,
        "outcome": outcome,
        "node": node,
        "placed_on": node,
        "headline": headline,
        "reason": "",
        "next_step": "",
        "node_helps": False,
        "node_shape": "",
        "is_new_shape": False,
        "message": "",
        "words": (),
        "preemption": None,
        "remedies": (),
        "notes": tuple(notes),
        **made_scores,
    }
    if is_in_permit and known.row is not None:
        kind = reasons.kind_of(known.row.reason)
        replaced |= {
            "headline": f"{headline} and waits there: {kind.meaning}",
            "reason": known.row.reason,
            "next_step": kind.next_step,
            "message": known.row.message,
        }
    return replaced


def _as_made(known: KnownPod, explained: PodAnswer, moments: Moments) -> dict[str, Any]:
    """The scores as the decision had them; empty if they were not kept."""
    decided = known.decided
    if decided is None or decided.decision.choice is None:
        return {}
    made = decided.decision
    order = explained.ranking[0].scores if explained.ranking else ()
    ranking = MadeRanking(decided.decision.choice, order, is_only=made.feasible_count == 1)
    return {
        "ranking": ranking.rows,
        "ties": ranking.ties,
        "why": ranking.why,
        "decided_at": moments.text(decided.at),
        "decided_by": made.revision,
    }


def _of_waiting(
    known: KnownPod, row: QueueRow, queued: QueuedPod, explained: PodAnswer
) -> dict[str, Any]:
    """What differs for a pod that waits: why, as it was decided."""
    standing = None if known.turn is None else known.turn.standing
    if standing is not None and standing.hold is not None and queued.place is Place.ACTIVE:
        return {"source": "queue", "node": ""}
    if not queued.attempts and queued.place is not Place.GATED:
        turn = ""
        if explained.turn is not None:
            turn = turn_headline(known.pod.key, explained.turn)
        return {
            "outcome": "waiting",
            "reason": row.reason,
            **_advice(row, explained),
            "headline": f"{turn or f'{known.pod.key} was not tried yet'}; now, {_would(explained)}",
            "node": "",
        }
    kind = reasons.kind_of(row.reason)
    outcome: Outcome = "unschedulable"
    if queued.place is Place.GATED:
        outcome = "gated"
    elif queued.failed_with_error:
        outcome = "failed"
    notes = explained.notes
    if outcome != "gated" and explained.outcome != outcome:
        notes = (*notes, f"decided again on the cluster as it is now, {_would(explained)}")
    by = f" ({', '.join(row.policies)})" if row.policies else ""
    preemption = explained.preemption
    if known.is_evicting:
        preemption = _evicting(known, preemption)
    return {
        "source": "decided",
        "outcome": outcome,
        "node": "",
        "reason": row.reason,
        **_advice(row, explained),
        "headline": f"{known.pod.key} waits ({row.place}): {kind.meaning}{by}",
        "message": row.message,
        "words": in_words(row.message),
        "preemption": preemption,
        "notes": notes,
    }


def _advice(row: QueueRow, explained: PodAnswer) -> dict[str, Any]:
    """What would help: in detail if the cluster still says the same about the pod."""
    is_same = explained.reason == row.reason
    return {
        "node_helps": row.node_helps,
        "node_shape": explained.node_shape if is_same else "",
        "is_new_shape": explained.is_new_shape and is_same,
        "next_step": explained.next_step if is_same else reasons.kind_of(row.reason).next_step,
    }


def _would(explained: PodAnswer) -> str:
    """What an explanation says that would become of the pod."""
    if explained.outcome == "placed":
        return f"it would go to {explained.node}"
    return "it would be gated" if explained.outcome == "gated" else "it would fit nowhere"


def _evicting(known: KnownPod, found: PreemptionAnswer | None) -> PreemptionAnswer:
    node = "" if known.row is None else known.row.nominated_node
    if found is None or found.node != node:
        return PreemptionAnswer(outcome="evicting", node=node)
    return msgspec.structs.replace(found, outcome="evicting")
