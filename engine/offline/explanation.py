"""Explains where a pod is placed and why: the whole decision, node by node.

Owns the record of an explanation, and assembling it from the engine's own answers; evaluates
only the hooks that a decision evaluates. Printing it is `cli`'s.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from engine.framework.profile import Profile
from engine.framework.status import Status
from engine.kernel.pod_groups import PodGroups
from engine.model.event_kinds import ASSIGNED_POD, NODE, TARGET_POD
from engine.model.pod import Pod
from engine.offline.event_words import in_words
from engine.offline.reason_source import reason_source
from engine.offline.remedies import Remedy, remedies
from engine.offline.verdict_table import VerdictTable, ask_each
from engine.offline.world import World
from engine.policy.bundle import Bundle
from engine.policy.evaluator import Evaluator
from engine.queueing.events import ADD, DELETE, UPDATE, ClusterEvent
from engine.queueing.hints import INTERESTS, Hints
from engine.queueing.nominator import Nominator
from engine.scheduling.decision import Explanation
from engine.scheduling.placement import THROTTLED_REASON, WAITING_REASON
from engine.scheduling.scheduling_cycle import Scheduler

_EXAMPLES: Final = 3
# The events that `Hints.is_interested` is called with for policies without a table of their own.
_EVENTS: Final = (
    ClusterEvent(NODE, ADD),
    ClusterEvent(NODE, UPDATE),
    ClusterEvent(ASSIGNED_POD, ADD),
    ClusterEvent(ASSIGNED_POD, UPDATE),
    ClusterEvent(ASSIGNED_POD, DELETE),
    ClusterEvent("Facts", UPDATE),
)


class Reason(msgspec.Struct, frozen=True):
    """The nodes that a policy rejects for one reason.

    `source` is `file:line` of the text, "" for a part of the runtime; `is_resolvable`: evicting
    pods could help.
    """

    reason: str
    nodes: int
    examples: tuple[str, ...]
    source: str
    is_resolvable: bool


class PolicyVerdicts(msgspec.Struct, frozen=True):
    """The verdicts of one policy alone on all nodes.

    Attributes:
        policy: Its name.
        fits: The number of nodes that it accepts.
        rejects: The number of nodes that it rejects.
        decides: The number of nodes that would be feasible without it.
        reasons: Why, the most frequent first.
        waits_for: The events after which the queue tries the pod again because of this policy;
            empty if it rejects nothing.
        failed: It failed for the pod or for a node, so the counts are incomplete.
    """

    policy: str
    fits: int
    rejects: int
    decides: int
    reasons: tuple[Reason, ...] = ()
    waits_for: tuple[str, ...] = ()
    failed: bool = False


class Score(msgspec.Struct, frozen=True):
    """One policy's score of one node."""

    raw: int | None
    normalized: int
    weight: int
    weighted: int


class NodeScores(msgspec.Struct, frozen=True):
    """A feasible node with its total; `place` 1 is the winner, equal totals share a place."""

    node: str
    place: int
    total: int
    scores: Mapping[str, Score]


class NodeVerdicts(msgspec.Struct, frozen=True):
    """A node that the user named: what rejects it, or its scores."""

    node: str
    rejections: Mapping[str, tuple[str, ...]]
    scores: NodeScores | None = None


class PodExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one pod.

    Attributes:
        pod, profile, revision: The pod, and the policies that decide.
        outcome: `placed`, `unschedulable`, `gated` or `failed`.
        node: The chosen node; empty if there is none.
        placed_on: The current node; empty if the pod is not placed.
        message: The message of the event.
        words: Explanations of its less obvious phrases.
        why: Why this node was chosen.
        nodes: The number of nodes.
        feasible: The number of feasible nodes.
        verdicts: Per policy that can reject.
        ranking: Feasible nodes, the best first.
        asked: The nodes that the user named.
        eviction: Node and pods that would be evicted there to free capacity.
        remedies: Changes that would make it fit.
        notes: What an explanation without the scheduler cannot take into account.
        failures: What policies failed with.
    """

    pod: str
    profile: str
    revision: str
    outcome: str
    node: str = ""
    placed_on: str = ""
    message: str = ""
    words: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    nodes: int
    feasible: int = 0
    verdicts: tuple[PolicyVerdicts, ...] = ()
    ranking: tuple[NodeScores, ...] = ()
    asked: tuple[NodeVerdicts, ...] = ()
    eviction: Mapping[str, tuple[str, ...]] = {}
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def explain(
    bundle: Bundle,
    evaluator: Evaluator,
    world: World,
    pod: Pod,
    *,
    placed_on: str = "",
    names: Sequence[str] = (),
    pending: Sequence[Pod] = (),
    unknown_facts: Sequence[str] = (),
) -> PodExplanation:
    """Explain the decision about *pod* in *world*, which must not contain it.

    Args:
        bundle: The policies.
        evaluator: Of the bundle's program.
        world: The cluster.
        pod: The pod, without a node; its nomination counts.
        placed_on: Its current node, for the report.
        names: Nodes to report on one by one.
        pending: Pending pods: they count in their groups, and nominated ones on their nodes.
        unknown_facts: Configured sources of facts that cannot be read here.

    Raises `KeyError` if no profile has the pod's `schedulerName`.
    """
    nominator = Nominator()
    for other in pending:
        if other.uid != pod.uid:
            nominator.nominate(other)
    snapshot = world.snapshot
    scheduler = Scheduler(bundle, evaluator, has_extenders=False)
    placed = (one for info in snapshot.infos if info is not None for one in info.pods.values())
    others = (one for one in pending if one.uid != pod.uid)
    PodGroups(world.cache).use(scheduler, lambda: (*placed, *others, pod))
    gate = scheduler.hooks.pre_enqueue(pod, snapshot)
    explanation = scheduler.explain(pod, snapshot, nominator)
    decision = explanation.decision
    table = ask_each(bundle, evaluator, pod, snapshot, nominator)
    failures = [str(f) for f in (*decision.failures, *decision.ignored)]
    failures += [text for f in table.failures if (text := str(f)) not in failures]
    ranking = _ranking(explanation)
    by_name = {row.node: row for row in ranking}
    eviction = decision.eviction
    outcome = "unschedulable" if decision.node is None else "placed"
    message = decision.message() if decision.node is None else ""
    if decision.failures:
        outcome = "failed"
    elif gate is not None:
        outcome, message = "gated", f"gated by policy `{gate[0]}`: {gate[1]}"
    return PodExplanation(
        pod=pod.key,
        profile=pod.scheduler_name,
        revision=bundle.revision,
        outcome=outcome,
        node=(decision.node or "") if outcome == "placed" else "",
        placed_on=placed_on,
        message=message,
        words=in_words(message),
        why=_why(bundle, pod, ranking, decision.node) if decision.node is not None else (),
        nodes=snapshot.node_count,
        feasible=len(explanation.feasible),
        verdicts=_verdicts(bundle, world, table),
        ranking=ranking,
        asked=tuple(
            NodeVerdicts(
                name,
                {
                    policy: rejected[name].reasons
                    for policy, rejected in table.rejections.items()
                    if name in rejected
                },
                by_name.get(name),
            )
            for name in names
        ),
        eviction={}
        if eviction is None
        else {eviction.node: tuple(p.key for p in eviction.victims)},
        remedies=tuple(remedies(pod, snapshot, table, nominator, decision.diagnosis.kept_by))
        if decision.node is None
        else (),
        notes=_notes(bundle, pod, unknown_facts),
        failures=tuple(failures),
    )


def _verdicts(bundle: Bundle, world: World, table: VerdictTable) -> tuple[PolicyVerdicts, ...]:
    hints = Hints.of(bundle, world.cache)
    found = []
    for policy, rejected in table.rejections.items():
        by_reason: dict[str, list[str]] = defaultdict(list)
        statuses: dict[str, Status] = {}
        for node, status in sorted(rejected.items()):
            for reason in status.reasons or ("(no reason given)",):
                by_reason[reason].append(node)
                statuses[reason] = status
        reasons = tuple(
            Reason(
                reason,
                len(nodes),
                tuple(nodes[:_EXAMPLES]),
                reason_source(bundle, policy, reason),
                statuses[reason].code.value == "Unschedulable",
            )
            for reason, nodes in sorted(by_reason.items(), key=lambda p: (-len(p[1]), p[0]))
        )
        found.append(
            PolicyVerdicts(
                policy,
                len(table.nodes) - len(rejected),
                len(rejected),
                len(table.rejected_only_by(policy)),
                reasons,
                waited_events(bundle, hints, policy) if rejected else (),
                any(failure.policy == policy for failure in table.failures),
            )
        )
    return tuple(found)


def waited_events(bundle: Bundle, hints: Hints, policy: str) -> tuple[str, ...]:
    """The events after which the queue retries a pod that *policy* rejected."""
    known = bundle.policies.get(policy)
    if policy in INTERESTS and (known is None or known.is_builtin):
        found = []
        for interest in INTERESTS[policy]:
            actions = sorted(interest.actions) or ["*"]
            found += [_event_name(interest.resource, action) for action in actions]
        return tuple(dict.fromkeys(found))
    # A derived hint: what its hooks read.
    own = [_event_name(TARGET_POD, UPDATE)] if hints.looks_at_pod(policy) else []
    others = [
        _event_name(event.resource, event.action)
        for event in _EVENTS
        if hints.is_interested(policy, event)
    ]
    return (*own, *others)


def _event_name(resource: str, action: str) -> str:
    """`Node added`, `AssignedPod deleted`, `Node UpdateNodeTaint`."""
    words = {"Add": "added", "Update": "changed", "Delete": "deleted", "*": "added or changed"}
    return f"{resource} {words.get(action, action)}"


def _ranking(explanation: Explanation) -> tuple[NodeScores, ...]:
    """Feasible nodes by total; the chosen one first among equals, then by name."""
    totals = dict(zip(explanation.feasible, explanation.totals, strict=False))
    at = {name: i for i, name in enumerate(explanation.feasible)}
    chosen = explanation.decision.node
    ordered = sorted(totals, key=lambda name: (-totals[name], name != chosen, name))
    place = 0
    rows = []
    for i, name in enumerate(ordered):
        if i == 0 or totals[name] != totals[ordered[i - 1]]:
            place = i + 1
        scores = {
            row.policy: Score(
                row.raw[at[name]], row.normalized[at[name]], row.weight, row.weighted[at[name]]
            )
            for row in explanation.scores
        }
        rows.append(NodeScores(name, place, totals[name], scores))
    return tuple(rows)


def _why(bundle: Bundle, pod: Pod, ranking: tuple[NodeScores, ...], chosen: str) -> tuple[str, ...]:
    """Why *chosen*: the nomination, or that it leads the ranking, and by which policies."""
    if chosen == pod.nominated_node_name:
        return (
            f"the pod is nominated to `{chosen}` (status.nominatedNodeName), whatever the scores",
        )
    if not ranking:
        return ()
    first = ranking[0]
    if len(ranking) == 1:
        return (f"`{first.node}` is the only feasible node",)
    said = []
    best = [row for row in ranking if row.place == 1]
    if len(best) > 1:
        profile = _profile(bundle, pod)
        keys = [f"`{enabled.policy}`" for enabled in profile.at("tie_key")]
        by = " and ".join([*keys, "a hash of the pod's uid and the node's name"])
        said.append(f"{len(best)} nodes have the highest total, {first.total}: chosen by {by}")
    second = next((row for row in ranking if row.place > 1), None)
    if second is None:
        return tuple(said)
    said.append(
        f"`{first.node}` has {first.total}, {first.total - second.total} more than"
        f" `{second.node}` with {second.total}"
    )
    differences = {
        policy: score.weighted - second.scores[policy].weighted
        for policy, score in first.scores.items()
    }
    for policy, ahead in sorted(differences.items(), key=lambda p: (-abs(p[1]), p[0])):
        if ahead:
            verb = "favors it" if ahead > 0 else "disfavors it"
            said.append(f"{policy} {verb}: {ahead:+d}")
    return tuple(said)


def _profile(bundle: Bundle, pod: Pod) -> Profile:
    return next(p for p in bundle.profiles if p.scheduler_name == pod.scheduler_name)


def _notes(bundle: Bundle, pod: Pod, unknown_facts: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if pod.is_terminating:
        notes.append("the pod is being deleted: a scheduler does not try it any more")
    if bundle.extenders:
        notes.append("extenders are configured; they are not called here")
    if _profile(bundle, pod).at("permit"):
        notes.append("`permit` is not called here")
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
