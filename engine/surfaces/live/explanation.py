"""Explains where a pod is placed and why: the whole decision, node by node.

Owns assembling an answer from the engine's own answers, for a running scheduler and for a copy of
a cluster alike. Evaluates only the hooks that a decision evaluates. Printing it is `cli`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework import reasons
from engine.core.framework.profile import Profile
from engine.core.kernel.kernel_time import standing_still
from engine.core.kernel.turn_standing import Standing
from engine.core.kernel.victim_search import ReclaimCase
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.places import Gate
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.placement import THROTTLED_REASON, WAITING_REASON
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.explaining.event_words import in_words
from engine.explaining.queue_remedies import queue_remedies
from engine.explaining.remedies import Remedy, is_offered, remedies, shape_text
from engine.explaining.verdict_table import VerdictTable, ask_each
from engine.policy.bundle import Bundle
from engine.surfaces.live.answers import NodeVerdicts, Outcome, PodAnswer, PreemptionAnswer
from engine.surfaces.live.node_groups import policy_answers
from engine.surfaces.live.preemption_answer import preemption_answer
from engine.surfaces.live.ranking import Ranking, ties_of, why_chosen
from engine.surfaces.live.reclaim_answer import reclaim_answer
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.turn import Turn, held_headline, turn_answer


def _never() -> None:
    """The default of `check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is explained, and with what.

    Attributes:
        scheduler: Decides; it asks no extenders.
        rules: Of its policies.
        pod: Without a node; its nomination counts.
        snapshot: The cluster, without the pod.
        nominator: The nominations of other pods, and of this one.
        gate: What keeps the pod from being tried, if anything.
        turn: Where it stands in the tree of queues; None if it is in none.
        placed_on: Its current node, for the report.
        asked: Nodes to report on one by one; they must exist.
        reclaim: What queues may give back for it; None: nothing.
        stopwatch: Bounds how long that is looked for.
        unknown_facts: Configured sources of facts that cannot be read here.
        check: Called between steps; raises what is to end the explanation.
    """

    scheduler: Scheduler
    rules: Rules
    pod: Pod
    snapshot: Snapshot
    nominator: Nominator
    gate: Gate | None = None
    turn: Turn | None = None
    placed_on: str = ""
    asked: Sequence[str] = ()
    unknown_facts: Sequence[str] = ()
    reclaim: ReclaimCase | None = None
    stopwatch: Callable[[], float] = standing_still
    check: Callable[[], None] = _never


def explain(subject: Subject) -> PodAnswer:
    """The explanation of the decision about a pod.

    Raises `KeyError` if no profile has its `schedulerName`.
    """
    scheduler, snapshot = subject.scheduler, subject.snapshot
    pod = _as_decided(subject.pod, snapshot.info(subject.placed_on))
    bundle = scheduler.bundle
    profile = scheduler.profile_of(pod)
    if profile is None:
        raise KeyError(pod.scheduler_name)
    # 1. The decision, and every filter alone.
    explanation = scheduler.explain(pod, snapshot, subject.nominator)
    subject.check()
    decision = explanation.decision
    table = ask_each(scheduler, pod, snapshot, subject.nominator, subject.check)
    # 2. What became of it.
    held = _standing_held(subject)
    outcome, message = _outcome(decision, subject.gate, held)
    is_placed = outcome == "placed"
    ranking = Ranking(explanation)
    ties = ties_of(ranking, profile)
    cause = _cause(decision, subject)
    failures = [str(f) for f in (*decision.failures, *decision.ignored)]
    failures += [text for f in table.failures if (text := str(f)) not in failures]
    # 3. What would help.
    helps: tuple[Remedy, ...] = ()
    if held is not None:
        # Nodes are not what it waits for: what would help there is said once it may be tried.
        if scheduler.tree is not None:
            helps = tuple(queue_remedies(scheduler.tree, held, len(explanation.totals)))
    elif decision.node is None:
        kept_by = decision.diagnosis.kept_by
        helps = tuple(remedies(pod, snapshot, table, subject.nominator, kept_by))
    subject.check()
    next_step = "" if cause is None else reasons.kind_of(cause.token).next_step
    shape, is_new_shape = "", False
    if cause is not None and cause.token == reasons.INSUFFICIENT and cause.node_helps:
        shape = shape_text(pod)
        is_new_shape = bool(shape) and not is_offered(pod, snapshot)
        if is_new_shape:
            next_step = f"lower the pod's requests, or add a node that offers {shape}"
    preemption = None
    if not is_placed and held is None:
        preemption = preemption_answer(scheduler, pod, snapshot, subject.nominator, decision)
    if not failures:
        preemption = _with_reclaim(subject, preemption, held, is_placed=is_placed)
    node = decision.node if is_placed and decision.node is not None else ""
    answer = PodAnswer(
        pod=pod.key,
        uid=pod.uid,
        profile=pod.scheduler_name,
        revision=bundle.revision,
        outcome=outcome,
        node=node,
        placed_on=subject.placed_on,
        reason="" if cause is None else cause.token,
        headline=held_headline(pod.key, held)
        if held is not None and outcome == "held"
        else _headline(pod, outcome, node, len(explanation.totals), snapshot, cause),
        node_helps=cause is not None and cause.node_helps,
        node_shape=shape,
        is_new_shape=is_new_shape,
        next_step=next_step,
        message=message,
        words=in_words(message),
        turn=None if subject.turn is None else turn_answer(subject.turn, subject.rules),
        why=why_chosen(pod, ranking, decision.node, ties) if decision.node is not None else (),
        nodes=snapshot.node_count,
        feasible=len(explanation.totals),
        policies=policy_answers(table, subject.rules),
        remedies=helps,
        preemption=preemption,
        ranking=tuple(ranking.rows),
        ties=ties,
        asked=tuple(_asked(name, table, ranking) for name in subject.asked),
        notes=(
            *_notes(bundle, profile, pod, subject.unknown_facts, is_placed=is_placed),
            *([_once_let(len(explanation.totals), snapshot.node_count)] if held else ()),
        ),
        failures=tuple(failures),
    )
    if held is None or not len(explanation.totals):
        return answer
    # No node is at fault, and which of them is best shows when the pod is tried.
    return msgspec.structs.replace(answer, why=(), policies=(), ranking=(), ties=())


def _with_reclaim(
    subject: Subject, found: PreemptionAnswer | None, held: Standing | None, *, is_placed: bool
) -> PreemptionAnswer | None:
    """*found*, or what queues would give back where that does not help."""
    case, hold = subject.reclaim, None if held is None else held.hold
    if is_placed and (case is None or len(case.taking) == 1):
        return found
    if case is None or subject.gate is not None or (hold is not None and hold.short is None):
        return found
    if found is not None and found.outcome == "would_evict":
        return found
    answer = reclaim_answer(
        case,
        subject.scheduler,
        subject.rules,
        subject.snapshot,
        subject.nominator,
        subject.stopwatch,
    )
    if is_placed and not answer.victims:
        return found  # its group fits as well, or nothing helps it
    why_not = () if found is None else found.why_not
    return msgspec.structs.replace(answer, why_not=(*why_not, *answer.why_not))


def _as_decided(pod: Pod, info: NodeInfo | None) -> Pod:
    """*pod* as it was before it was bound to the node of *info*.

    Policies would take the labels of its node for its own, and pods of each zone for another class.
    """
    if info is None or info.node is None:
        return pod
    return pod.without_labels_of(info.node.labels)


def _standing_held(subject: Subject) -> Standing | None:
    """Where the pod is held; None: it is not, or something else keeps it from being tried."""
    turn = subject.turn
    return turn.standing if turn is not None and turn.is_held and subject.gate is None else None


def _once_let(feasible: int, nodes: int) -> str:
    """What nodes would say of a pod that is held."""
    if feasible:
        return f"once it may be tried, it fits on {feasible} of {nodes} nodes as they are now"
    return f"besides, it fits on none of {nodes} nodes as they are now"


def _outcome(decision: Decision, gate: Gate | None, held: Standing | None) -> tuple[Outcome, str]:
    """What becomes of the pod, and the message of its event."""
    if held is not None:
        return "failed" if held.has_failed else "held", held.text
    if decision.is_policy_failure:
        return "failed", decision.message()
    if gate is not None:
        return "gated", f"gated by policy `{gate.plugin}`: {gate.reason}"
    if decision.node is not None:
        return "placed", ""
    return "unschedulable", decision.message()


def _cause(decision: Decision, subject: Subject) -> reasons.Reason | None:
    """The dominant cause of a pod's not having a node; None if it gets one."""
    gate = subject.gate
    if _standing_held(subject) is not None and subject.turn is not None:
        return subject.turn.reason
    if decision.failures:
        return decision.reason
    if gate is not None:
        return reasons.gate(gate.plugin, gate.token)
    return None if decision.node is not None else decision.reason


def _headline(
    pod: Pod,
    outcome: Outcome,
    node: str,
    feasible: int,
    snapshot: Snapshot,
    cause: reasons.Reason | None,
) -> str:
    """The answer in one sentence."""
    if cause is None:
        return f"{pod.key} fits on {feasible} of {snapshot.node_count} nodes and goes to {node}"
    kind = reasons.kind_of(cause.token)
    by = f" ({cause.policy})" if cause.policy else ""
    said = {
        "gated": "is kept from being tried",
        "failed": "cannot be decided",
    }.get(outcome, f"fits on none of {snapshot.node_count} nodes")
    return f"{pod.key} {said}: {kind.meaning}{by}"


def _asked(name: str, table: VerdictTable, ranking: Ranking) -> NodeVerdicts:
    slot = table.snapshot.slot_of[name]
    rejections = {
        policy: column.status(code).reasons
        for policy, column in table.columns.items()
        if (code := int(column.codes[slot])) > 0
    }
    return NodeVerdicts(name, rejections, ranking.of(name))


def _notes(
    bundle: Bundle, profile: Profile, pod: Pod, unknown_facts: Sequence[str], *, is_placed: bool
) -> tuple[str, ...]:
    notes = []
    if pod.is_terminating:
        notes.append("the pod is being deleted: a scheduler does not try it any more")
    if bundle.extenders:
        notes.append("extenders are configured; they are not called here")
    if profile.at("permit") and is_placed:
        notes.append("whether it would wait there, in permit, was not asked")
    notes += [
        f"a scheduler has a node for it and reports: {condition.message}"
        for condition in pod.manifest.status.conditions
        if condition.reason == WAITING_REASON
    ]
    notes += [
        f"a scheduler does not try it for now and reports: {condition.message}"
        for condition in pod.manifest.status.conditions
        if condition.reason == THROTTLED_REASON
    ]
    if unknown_facts:
        known = ", ".join(f"`{name}`" for name in unknown_facts)
        notes.append(f"no facts are known here from {known}")
    return tuple(notes)
