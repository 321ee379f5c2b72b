"""The records of the live answers: the JSON that programs, the terminal and the page all read.

Owns records only. Keys are those of the fields. Times are texts in RFC 3339, in UTC; durations are
seconds. What is not known is null, or empty.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from engine.explaining.remedies import Remedy
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.status import Verdict as StageVerdict
from engine.surfaces.live.turn_answers import TurnAnswer

Outcome = Literal["placed", "unschedulable", "gated", "held", "waiting", "failed", "bound"]
"""`placed`: it has a node, or would get one now; `bound`: the API server reports it on a node;
`held`: its queue does not let it be tried;
`waiting`: it has not been decided yet, or waits in permit or for its group; the others say why it
has none."""

Origin = Literal["decided", "decided_again", "queue"]
"""`decided`: the decision as it was made; `decided_again`: made again on the cluster as it is now,
which may differ; `queue`: only what the queue knows."""

Verdict = Literal["fits", "rejects", "failed"]


class Leader(msgspec.Struct, frozen=True):
    """The process that decides: its identity in the Lease, and whether it answered.

    `address` is where its page is; empty if it is us, or if it does not say.
    """

    identity: str = ""
    is_us: bool = True
    address: str = ""


# --- the queue -------------------------------------------------------------------------------


class PlaceCounts(msgspec.Struct, frozen=True):
    """How many pods are in each place."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0
    in_permit: int = 0
    in_flight: int = 0


class RequestRange(msgspec.Struct, frozen=True):
    """What pods request of one resource, each and together: millicores for cpu, else units."""

    least: int
    most: int
    total: int


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting pods of one group, in one place, for one reason.

    Pods that are equal to policies are a group, unless the query asks for others (`by`). What a row
    says of one pod is said of the example.

    Attributes:
        row_id: The same as long as the row stands for the same kind of pods; no two rows share it.
        example: `namespace/name` of one of them, the one that waits longest.
        pods: How many there are.
        names: Some of them.
        owner: `Kind/name` of the example's controller; empty if it has none.
        requests: By resource.
        place: `active`, `backoff`, `unschedulable`, `gated`, `permit`, `in_flight`, `binding`.
        position: In the active queue, 1 is next; of the first of them; null elsewhere.
        since: When the one that waits longest was created, or seen first.
        waited_seconds: The same as a duration.
        attempts: The most attempts at one of them.
        next_try_at: When the first of them is tried at the latest, whatever happens; null for
            those that only an event can free.
        waits_for: The events that would wake them, in words.
        reason: The token of the dominant reason.
        message: What the scheduler says about it, as in the event.
        node_helps: A further node could help.
        policies: What rejects or gates them.
        nominated_node: The node that is kept for the example, if any.
        group: `namespace/name` of the example's group, if any.
        tried_because: What led to the last attempt at the example, or leads to the next.
    """

    row_id: str
    example: str
    pods: int
    names: tuple[str, ...]
    namespace: str
    profile: str
    place: str
    owner: str = ""
    requests: Mapping[str, RequestRange] = {}
    position: int | None = None
    since: str | None = None
    waited_seconds: float = 0.0
    attempts: int = 0
    next_try_at: str | None = None
    waits_for: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    node_helps: bool = False
    policies: tuple[str, ...] = ()
    nominated_node: str = ""
    group: str = ""
    tried_because: str = ""


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of `/queue`.

    Attributes:
        revision: The policies in force.
        at: When it was taken.
        counts: Of all pods, whatever the filters.
        total_pods, total_rows: That pass the filters.
        next: The cursor of the next page; null on the last.
        values: By filter, the values that most of these pods have.
    """

    revision: str
    at: str
    leader: Leader
    counts: PlaceCounts
    total_pods: int
    total_rows: int
    next: str | None
    rows: tuple[QueueRow, ...]
    values: Mapping[str, tuple[str, ...]] = {}


# --- pods that are looked for ----------------------------------------------------------------


class FoundPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod.

    Attributes:
        place: Of the queue, or `placed`, or `bound` if the API server reports its node.
        owner: `Kind/name` of its controller.
        reason: The token of why it waits.
        queue: Its path in the tree of queues; empty if it is in none.
        requests: Millicores for cpu, else whole units.
        since: When it was created.
    """

    pod: str
    place: str
    node: str = ""
    owner: str = ""
    profile: str = ""
    reason: str = ""
    queue: str = ""
    requests: Mapping[str, int] = {}
    since: str | None = None


class PodsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of `/pods`: those that wait come first, by name.

    Attributes:
        total: How many pods pass the filters.
        next: The cursor of the next page; null on the last.
    """

    revision: str
    at: str
    leader: Leader
    total: int
    next: str | None
    rows: tuple[FoundPod, ...]


# --- one pod ---------------------------------------------------------------------------------


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes about which a policy says the same, because what it reads of them is the same.

    Attributes:
        count: How many nodes.
        example, examples: One of them, and a few.
        reason, token: Why it rejects them; empty if it does not.
        source: `file:line` of the rule; empty for a part of the runtime.
        is_resolvable: Evicting pods could help.
        read: What the policy reads of the example, by field; texts that are long are cut.
        is_same: It reads the same of all of them; else they have only the reason in common.
    """

    verdict: Verdict
    count: int
    example: str
    examples: tuple[str, ...] = ()
    reason: str = ""
    token: str = ""
    source: str = ""
    is_resolvable: bool = False
    read: Mapping[str, Any] = {}
    is_same: bool = True


class PolicyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy alone says about all nodes.

    Attributes:
        fits, rejects: How many nodes it accepts and rejects.
        decides: How many would be feasible without it.
        waits_for: The events after which the queue tries the pod again because of it.
        failed: It failed for the pod or for a node, so the counts are incomplete.
        groups: The nodes, rejected ones first: those on which evicting pods could help and the
            fewest reasons reject the pod, then the largest group. There may be more than are
            listed.
        groups_left_out: How many groups are not listed.
    """

    policy: str
    fits: int
    rejects: int
    decides: int
    waits_for: tuple[str, ...] = ()
    failed: bool = False
    groups: tuple[NodeGroup, ...] = ()
    groups_left_out: int = 0


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
    """A node that was asked for by name: what rejects it, or its scores."""

    node: str
    rejections: Mapping[str, tuple[str, ...]]
    scores: NodeScores | None = None


class Victim(msgspec.Struct, frozen=True):
    """A pod that would be evicted, or is being; of one that a queue gives back, its `queue`."""

    pod: str
    priority: int = 0
    why: str = ""
    queue: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """A node on which evicting pods would free the capacity, and how many pods it would cost."""

    node: str
    victims: int


class WhyNot(msgspec.Struct, frozen=True):
    """Why preemption does not help, and on how many nodes; null if it is not about nodes."""

    reason: str
    nodes: int | None = None


class PreemptionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What evicting pods would do.

    Attributes:
        outcome: `would_evict`, `would_evict_later` (in `in_seconds`), `evicting` (it is under
            way), `cannot_help`, `not_needed` or `not_asked`.
        node: Where.
        candidates: The nodes among which it was chosen, the cheapest first; there may be more.
        candidate_count: How many there are.
        why_not: Why it does not help, or not yet.
        rule: `file:line` of the policy that says what queues give back; empty if they do not.
        in_seconds: Until the victims may go.
        pods: How many pods it is for: those of its group that wait, which start together.
    """

    outcome: Literal[
        "would_evict", "would_evict_later", "evicting", "cannot_help", "not_needed", "not_asked"
    ]
    node: str = ""
    victims: tuple[Victim, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    candidate_count: int = 0
    why_not: tuple[WhyNot, ...] = ()
    rule: str = ""
    in_seconds: int = 0
    pods: int = 1


class QueueMove(msgspec.Struct, frozen=True):
    """When a pod came to a place of the queue, which (see `QueueRow`), and what moved it there."""

    at: str
    place: str
    why: str


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod is where it is, or nowhere.

    Attributes:
        revision: The policies that it is explained with.
        policies_from: Where these come from, if the scheduler was not asked.
        at: Of what moment the answer is.
        source: See `Origin`.
        outcome: See `Outcome`.
        owner: `Kind/name` of its controller; empty if it has none.
        node: The node that it is on or would go to; empty if there is none.
        placed_on: Its current node, of a pod that is explained as if it were not placed.
        reason: The token of the dominant reason; empty for a pod with a node.
        headline: The answer in one sentence.
        node_helps: A further node could help.
        node_shape: What such a node must offer, where resources are what lacks.
        is_new_shape: No node that is there, were it empty, offers that.
        next_step: What to do about it, in one sentence; empty if there is nothing to do.
        message: The text of the pod's event.
        words: Explanations of less obvious phrases of the message.
        why: Why this node was chosen.
        queue: Its row, if it waits.
        turn: Where it stands in the tree of queues; null if it is in none.
        moves: What moved it through the queue, the latest at the end.
        nodes, feasible: How many nodes there are, and how many of them fit.
        policies: Those that can reject, in the profile's order.
        preemption: What evicting pods would do; null if it was not looked at.
        ranking: Feasible nodes, the best first; there may be more. As it was decided, if that is
            known: the chosen one and, if none was as good, the next.
        ties: What broke the tie, if several nodes were equally good.
        decided_at, decided_by: When, and by which revision, `ranking`, `ties` and `why` were made;
            empty if they are of now.
        asked: The nodes that were asked for by name.
        notes: What was left out of account.
        not_applied: The admission plugins that a manifest which no cluster has seen did not pass.
        failures: What policies failed with.
    """

    pod: str
    uid: str = ""
    profile: str = ""
    revision: str = ""
    policies_from: str = ""
    at: str = ""
    source: Origin = "decided_again"
    outcome: Outcome
    owner: str = ""
    node: str = ""
    placed_on: str = ""
    reason: str = ""
    headline: str = ""
    node_helps: bool = False
    node_shape: str = ""
    is_new_shape: bool = False
    next_step: str = ""
    message: str = ""
    words: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    queue: QueueRow | None = None
    turn: TurnAnswer | None = None
    moves: tuple[QueueMove, ...] = ()
    nodes: int = 0
    feasible: int = 0
    policies: tuple[PolicyAnswer, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    preemption: PreemptionAnswer | None = None
    ranking: tuple[NodeScores, ...] = ()
    ties: tuple[str, ...] = ()
    decided_at: str = ""
    decided_by: str = ""
    asked: tuple[NodeVerdicts, ...] = ()
    notes: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


# --- nodes -----------------------------------------------------------------------------------


class ResourceUse(msgspec.Struct, frozen=True):
    """One resource of one node: millicores for cpu, else whole units; `share` is in 0..1."""

    allocatable: int
    requested: int
    share: float


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        taints: `key=value:effect`.
        pods: How many are counted there, assumed ones too.
        fullest: The resource with the largest share; `pods` is one.
        nominated: The pods for which capacity is kept there.
    """

    name: str
    zone: str = ""
    is_ready: bool = True
    is_unschedulable: bool = False
    taints: tuple[str, ...] = ()
    pods: int = 0
    resources: Mapping[str, ResourceUse] = {}
    fullest: str = ""
    fullest_share: float = 0.0
    nominated: tuple[str, ...] = ()


class ResourceTotal(msgspec.Struct, frozen=True):
    """One resource of all nodes.

    Attributes:
        allocatable, requested: Sums.
        free: What is left, on nodes that take pods.
        largest_free: The most that is left on one node: no pod that asks for more fits.
    """

    allocatable: int
    requested: int
    free: int
    largest_free: int


class NodesPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of `/nodes`, by name."""

    revision: str
    at: str
    leader: Leader
    total: int
    next: str | None
    totals: Mapping[str, ResourceTotal]
    rows: tuple[NodeRow, ...]


class ClassOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of the pods of a row on one node.

    Attributes:
        row: The pods that wait.
        verdict: Of the node, about the example of the row; empty if it could not be asked now.
        rejections: By policy, why it rejects them.
    """

    row: QueueRow
    verdict: Verdict | Literal[""] = ""
    rejections: Mapping[str, tuple[str, ...]] = {}


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node, and which of the pods that wait it could take.

    Attributes:
        pods, total_pods: Those on it that the caller may see, some of them and how many.
        classes: Of the rows of the queue, those with the most pods.
        classes_left_out: How many rows there are beyond.
    """

    revision: str
    at: str
    leader: Leader
    node: NodeRow
    pods: tuple[FoundPod, ...] = ()
    total_pods: int = 0
    classes: tuple[ClassOnNode, ...] = ()
    classes_left_out: int = 0


# --- policies --------------------------------------------------------------------------------


class ProblemAnswer(msgspec.Struct, frozen=True):
    """A problem of a policy's text, at its place."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that a revision came to: `offered`, `checked`, `tested`, `loaded`, `tried`,
    `probation`, `in_force`, `rejected`, `rolled_back`, `replaced`.

    `seconds` is how long it took; null if it is a moment.
    """

    stage: str
    at: str
    seconds: float | None = None
    note: str = ""


class FileDiff(msgspec.Struct, frozen=True):
    """What changed in one file, as lines of a unified diff."""

    file: str
    lines: tuple[str, ...]


class RevisionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one revision.

    Attributes:
        result: As in the history: `accepted`, `rejected`, `rolled_back`, ...
        written_by: The field manager that wrote it last, if the source is in the API server.
        compared_with: The revision that *diff* starts from.
        is_in_force: It decides now.
    """

    revision: str
    at: str
    result: str
    written_by: str = ""
    stages: tuple[Stage, ...] = ()
    problems: tuple[ProblemAnswer, ...] = ()
    note: str = ""
    compared_with: str = ""
    diff: tuple[FileDiff, ...] = ()
    is_in_force: bool = False


class PoliciesPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/policies`.

    Attributes:
        active: What is in force, with its origin, counts and warnings; null before the first.
        revisions: The latest ones, newest first.
        files: The texts in force, by name.
        texts: Those of the revisions that were asked for, as far as they are known.
        kubernetes: Which version of Kubernetes is answered like, and that of the API server.
        source, last_rejected, last_good, rolled_back, history, pod_groups: As ever.
    """

    leader: Leader
    at: str
    source: Mapping[str, Any]
    active: Mapping[str, Any] | None
    last_rejected: Mapping[str, Any] | None
    last_good: str | None
    rolled_back: tuple[str, ...]
    history: tuple[Mapping[str, Any], ...]
    revisions: tuple[RevisionAnswer, ...] = ()
    files: Mapping[str, str] = {}
    texts: Mapping[str, Mapping[str, str]] = {}
    pod_groups: Mapping[str, Any] = {}
    kubernetes: Mapping[str, Any] = {}


# --- the roll-out ----------------------------------------------------------------------------


StageState = Literal["done", "now", "paused", "failed", "ahead", "skipped"]


class RolloutStage(msgspec.Struct, frozen=True):
    """A stage on a candidate's way.

    Attributes:
        name: `shadow`, `canary` or `in_force`.
        share: Of the pods that the candidate decides about; 0 in the shadow.
        state: `skipped` if it was promoted, or gave way, before the end of the stage.
    """

    name: str
    share: float = 0.0
    state: StageState = "ahead"


class Command(msgspec.Struct, frozen=True):
    """What to type, and what it does."""

    command: str
    means: str


class RolloutPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/rollout`: a candidate on its way, or the last one that was.

    Attributes:
        revision: The policies in force.
        source: Where policies come from.
        config_map: `namespace/name` of the ConfigMap that holds the mode; "" if there is none.
        mode: Of roll-outs: `staged`, `at-once` or `paused`.
        is_stopped: The kill switch is set.
        problems: What in that ConfigMap makes no sense.
        headline: How far it has come, in one sentence.
        next_step: What happens next, or what to do about it.
        commands: What can be done.
        candidate, base: Revisions: what is rolled out, and what it is compared with.
        stages: Its way.
        since: When the present stage began; null if it is in none.
        elapsed: Seconds that count for the stage: not those for which it was paused.
        paused: Why it stands still; "" if it does not.
        result: `running`, `promoted`, `failed`, `aborted` or `superseded`; "" without candidate.
        verdict: Of the present stage, or of the last one.
        shadow: What was compared, without what the caller may not see; null without a shadow.
        canary, control: What became of the pods that the candidate decided about, and of the
            control sample; null without a canary.
        left_out: Namespaces whose pods the caller may not see, and which are not listed.
    """

    revision: str
    at: str
    leader: Leader
    source: str = ""
    config_map: str = ""
    mode: str = "staged"
    is_stopped: bool = False
    problems: tuple[str, ...] = ()
    headline: str = ""
    next_step: str = ""
    commands: tuple[Command, ...] = ()
    candidate: str = ""
    base: str = ""
    stages: tuple[RolloutStage, ...] = ()
    since: str | None = None
    elapsed: float = 0.0
    paused: str = ""
    result: str = ""
    verdict: StageVerdict | None = None
    shadow: ShadowMeasures | None = None
    canary: ArmMeasures | None = None
    control: ArmMeasures | None = None
    left_out: int = 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer: the body of every response that is not one.

    Attributes:
        error: One sentence.
        hint: What to do about it.
        leader: Who leads, if this process does not.
    """

    error: str
    hint: str = ""
    leader: Leader | None = None
