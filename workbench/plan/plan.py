"""What another text would change: decisions of a cluster's pods under both, compared.

Owns which pods are compared, the kinds of differences, and what makes each of them. Deciding is
`workbench.plan.what_if`'s; the records go to the terminal and to programs as they are.
"""

import bisect
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from engine.comparing.difference import OTHER_VICTIMS, Difference
from engine.comparing.difference import kind_of as kind_of_decisions
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Explanation
from engine.explaining.reason_source import hook_source, reason_source
from engine.language.syntax import with_loaded
from engine.policy.bundle import Bundle
from engine.policy.file_names import STARLARK_SUFFIX
from workbench.comparing.kinds import (
    NEWLY_EVICTED,
    NEWLY_GATED,
    NEWLY_GONE,
    NEWLY_UNGATED,
    OF_OUTCOMES,
    OTHER_ORDER,
    OTHER_REASON,
)
from workbench.plan.attribution import cause_of, changed_place
from workbench.plan.queue_plan import QueueComparison, Stands, compare_queues, stands_of
from workbench.plan.what_if import Decider, Outcome, controller_of, untracked

#: The kinds of differences, the gravest first.
KINDS: Final = tuple(
    kind for kind in OF_OUTCOMES if kind not in (NEWLY_GONE, NEWLY_EVICTED, OTHER_REASON)
)

# Mixtures of both texts that are made, each with a scheduler of its own.
_MOST_MIXTURES: Final = 40
# Differences of which the rule is looked for; others have the file and its changed line.
_MOST_RULES: Final = 50

MakeDecider: TypeAlias = Callable[[Mapping[str, str], Decider], Decider | None]
"""A decider for some files, which begins with what another one knows; None if the files make no
bundle."""


class PlanDifference(Difference[Outcome], frozen=True, kw_only=True):
    """A pod that the candidate decides differently.

    Attributes:
        is_running: It runs, and was decided as if it waited.
        runs_on: Its node, if it runs.
        position_before, position_after: In the queue, 1 is first; of a pod with another order.
        causes: The changed files that make the difference, by name; empty if there are so many
            that it takes too long to find out.
        why: What the rule does, in one sentence.
    """

    is_running: bool = False
    runs_on: str = ""
    position_before: int | None = None
    position_after: int | None = None
    causes: tuple[str, ...] = ()
    why: str = ""


class PlanMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods were compared, and how many differ.

    Attributes:
        waiting, running: Pods that wait, and that run.
        compared_waiting, compared_running: Those that both texts decided.
        skipped: Why others of the chosen were not compared, and how many.
        counts: Differences by kind.
        victims: How many more pods the candidate would evict.
        by_cause, by_namespace: Differences, by the changed files that make them and by namespace.
    """

    waiting: int
    running: int
    compared_waiting: int
    compared_running: int
    skipped: Mapping[str, int] = {}
    counts: Mapping[str, int] = {}
    victims: int = 0
    by_cause: Mapping[str, int] = {}
    by_namespace: Mapping[str, int] = {}


class Comparison(msgspec.Struct, frozen=True):
    """The measures, and every difference, the gravest kind first.

    `queues` is null if neither text has a tree of queues.
    """

    measures: PlanMeasures
    differences: tuple[PlanDifference, ...]
    queues: QueueComparison | None = None


def sample(manifests: Iterable[Mapping[str, Any]], most: int | None) -> list[Mapping[str, Any]]:
    """At most *most* pods of *manifests*, or all: the same each time, spread over controllers.

    One of each controller before a second one of any, so that a class of few pods is seen.
    """
    ranked = sorted(manifests, key=_rank)
    turns: Counter[str] = Counter()
    by_turn: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for one in ranked:
        owner = controller_of(one)
        by_turn[turns[owner]].append(one)
        turns[owner] += 1
    chosen = [one for turn in sorted(by_turn) for one in by_turn[turn]]
    return chosen[:most]


def _rank(manifest: Mapping[str, Any]) -> bytes:
    metadata = manifest.get("metadata") or {}
    key = f"{metadata.get('namespace')}/{metadata.get('name')}"
    return hashlib.blake2b(key.encode(errors="replace"), digest_size=8).digest()


def kind_of(before: Outcome, after: Outcome) -> str:
    """The kind of difference between two outcomes of one pod; "" if there is none."""
    if not after.has_failed and bool(after.gate) != bool(before.gate):
        return NEWLY_GATED if after.gate else NEWLY_UNGATED
    return kind_of_decisions(before, after)


@dataclass(frozen=True, slots=True)
class EditedFiles:
    """The files of both texts."""

    base: Mapping[str, str]
    candidate: Mapping[str, str]


class Planner:
    """Compares the decisions of *before* with those of a candidate.

    Args:
        before: Decides by the policies in force.
        files: Those of both texts.
        make: Deciders of the candidate and of mixtures.
    """

    def __init__(self, before: Decider, files: EditedFiles, make: MakeDecider) -> None:
        self._before = before
        self._after = before
        self._files = files
        self._make = make
        self._mixtures: dict[tuple[tuple[str, str], ...], Decider | None] = {}
        self._likely: tuple[str, ...] = ()

    def compare(
        self,
        waiting: Sequence[Pod],
        running: Sequence[Pod],
        *,
        waiting_count: int,
        running_count: int,
        track: Callable[[Sequence[Any], str], Iterable[Any]] = untracked,
    ) -> Comparison:
        """Decide *waiting* and *running* pods, which are so many of all, under both.

        *track* is passed what is gone through, with what is done to it, and shows the progress.
        The candidate must make a bundle.
        """
        # All by one text and then all by the other: what the unchanged policies said is known then.
        pods = [*waiting, *running]
        before = {
            pod.uid: self._before.decide(pod)
            for pod in track(pods, "deciding as before")
            if self._before.takes(pod)
        }
        candidate = self._make(self._files.candidate, self._before)
        assert candidate is not None, "a candidate with problems is not compared"
        self._after = candidate
        after = {
            pod.uid: candidate.decide(pod)
            for pod in track(pods, "deciding by the candidate")
            if candidate.takes(pod)
        }
        both = before.keys() & after.keys()
        skipped = len(pods) - len(both)
        found = [
            PlanDifference(
                kind=kind,
                pod=pod.key,
                is_running=bool(pod.node_name),
                runs_on=pod.node_name,
                before=before[pod.uid],
                after=after[pod.uid],
            )
            for pod in pods
            if pod.uid in both and (kind := kind_of(before[pod.uid], after[pod.uid]))
        ]
        found += self._reordered(waiting)
        found.sort(key=lambda one: (KINDS.index(one.kind), one.is_running, one.pod))
        pods_by_key = {pod.key: pod for pod in (*running, *waiting)}
        caused = self._caused(track(found, "looking for causes"), pods_by_key, waiting)
        return Comparison(
            PlanMeasures(
                waiting=waiting_count,
                running=running_count,
                compared_waiting=sum(pod.uid in both for pod in waiting),
                compared_running=sum(pod.uid in both for pod in running),
                skipped={"of a profile that only one of both has": skipped} if skipped else {},
                counts={
                    kind: count
                    for kind in KINDS
                    if (count := sum(one.kind == kind for one in caused))
                },
                victims=sum(len(after[uid].victims) - len(before[uid].victims) for uid in both),
                by_cause=_counted(" + ".join(one.causes) for one in caused if one.causes),
                by_namespace=_counted(one.pod.partition("/")[0] for one in caused),
            ),
            tuple(caused),
            self._queues(),
        )

    def _queues(self) -> QueueComparison | None:
        """How the queues of the tree differ, and what makes it."""
        before, after = _stands(self._before), _stands(self._after)
        policies = (_tree_policy(self._before), _tree_policy(self._after))
        found = compare_queues(before, after, policies)
        if found is None or not found.changes:
            return found

        def differs(files: Mapping[str, str]) -> bool:
            decider = self._mixture(files)
            return decider is not None and _stands(decider) == after

        causes = self._cause_of(differs)
        place = ""
        if causes:
            place = changed_place(self._files.base, self._files.candidate, causes, "")
        return msgspec.structs.replace(found, causes=causes, place=place)

    # --- the queue ---------------------------------------------------------------------------

    def _reordered(self, waiting: Sequence[Pod]) -> list[PlanDifference]:
        """The fewest pods that would have to change places, for one queue to become the other."""
        queues = [decider.queue(waiting) for decider in (self._before, self._after)]
        positions = [{pod.uid: at for at, pod in enumerate(queue, 1)} for queue in queues]
        both = [pod for pod in queues[0] if pod.uid in positions[1]]
        moved = _out_of_order([positions[1][pod.uid] for pod in both])
        return [
            PlanDifference(
                kind=OTHER_ORDER,
                pod=both[at].key,
                before=Outcome(),
                after=Outcome(),
                position_before=positions[0][both[at].uid],
                position_after=positions[1][both[at].uid],
            )
            for at in moved
        ]

    # --- causes ------------------------------------------------------------------------------

    def _caused(
        self, found: Iterable[PlanDifference], pods: Mapping[str, Pod], waiting: Sequence[Pod]
    ) -> list[PlanDifference]:
        order_causes: tuple[str, ...] | None = None
        caused = []
        for number, one in enumerate(found):
            pod = pods[one.pod]
            if one.kind == OTHER_ORDER:
                if order_causes is None:
                    order_causes = self._cause_of_order(waiting)
                causes = order_causes
            else:
                causes = self._cause(one, pod)
            rule = _Rule()
            if number < _MOST_RULES:
                rule = self._rule(one, pod)
            caused.append(self._with_cause(one, causes, rule))
        return caused

    def _cause(self, one: PlanDifference, pod: Pod) -> tuple[str, ...]:
        def differs(files: Mapping[str, str]) -> bool:
            decider = self._mixture(files)
            if decider is None or not decider.takes(pod):
                return False
            return kind_of(one.before, decider.decide(pod)) == one.kind

        self._likely = self._cause_of(differs)
        return self._likely

    def _cause_of_order(self, waiting: Sequence[Pod]) -> tuple[str, ...]:
        def differs(files: Mapping[str, str]) -> bool:
            decider = self._mixture(files)
            return decider is not None and keys(decider) != before

        def keys(decider: Decider) -> list[str]:
            return [pod.uid for pod in decider.queue(waiting)]

        before = keys(self._before)
        return self._cause_of(differs)

    def _cause_of(self, differs: Callable[[Mapping[str, str]], bool]) -> tuple[str, ...]:
        try:
            return cause_of(self._files.base, self._files.candidate, differs, self._likely)
        except _TooManyMixtures:
            return ()

    def _mixture(self, files: Mapping[str, str]) -> Decider | None:
        key = tuple(sorted(files.items()))
        if key not in self._mixtures:
            if len(self._mixtures) >= _MOST_MIXTURES:
                raise _TooManyMixtures
            self._mixtures[key] = self._make(files, self._after)
        return self._mixtures[key]

    def _with_cause(
        self, one: PlanDifference, causes: tuple[str, ...], rule: "_Rule"
    ) -> PlanDifference:
        """*one* with its causes, at the changed line that is nearest to the rule."""
        place = rule.place
        if causes:
            place = changed_place(self._files.base, self._files.candidate, causes, place)
        policies = [name for name in causes if name.endswith(STARLARK_SUFFIX)]
        return msgspec.structs.replace(
            one,
            causes=causes,
            hook=rule.hook,
            policy=rule.policy or _policy_of(self._after.bundle, policies),
            place=place,
            why=rule.why,
            scores_before=rule.scores_before,
            scores_after=rule.scores_after,
        )

    # --- rules -------------------------------------------------------------------------------

    def _rule(self, one: PlanDifference, pod: Pod) -> "_Rule":
        """The rule that makes a difference, as far as decisions show it."""
        before, after = self._before, self._after
        if one.kind == OTHER_ORDER:
            profile = after.scheduler.profile_of(pod)
            enabled = profile.at("queue_key") if profile is not None else ()
            said = f"position {one.position_before} becomes {one.position_after}"
            if not enabled:
                return _Rule(why=said)
            policy = enabled[0].policy
            return _Rule(policy, "queue_key", _hook(after.bundle, policy, "queue_key"), said)
        if one.after.has_failed:
            return _Rule(one.after.policy, one.after.hook, one.after.place, one.after.fate)
        if one.kind in (NEWLY_GATED, NEWLY_UNGATED):
            is_new = one.kind == NEWLY_GATED
            gated, side = (one.after, after) if is_new else (one.before, before)
            said = f"`{gated.gate}` {'gates' if is_new else 'no longer gates'} it: {gated.message}"
            place = gated.place or reason_source(side.bundle, gated.gate, gated.message)
            return _Rule(gated.gate, gated.hook or "pre_enqueue", place, said)
        if one.kind == OTHER_VICTIMS:
            return self._rule_of_victims(one)
        shown = before.explain(pod), after.explain(pod)
        rejected = _rejection_of(shown[1], one.before.node)
        if rejected is not None:
            policy, hook, reason = rejected
            said = f"`{policy}` rejects {one.before.node}: {reason}"
            return _Rule(policy, hook, reason_source(after.bundle, policy, reason), said)
        accepted = _rejection_of(shown[0], one.after.node)
        if accepted is not None:
            policy, hook, reason = accepted
            said = f"`{policy}` no longer rejects {one.after.node}: {reason}"
            return _Rule(policy, hook, reason_source(before.bundle, policy, reason), said)
        return self._rule_of_scores(one, *shown)

    def _rule_of_victims(self, one: PlanDifference) -> "_Rule":
        evicts = [
            f"{', '.join(side.victims)} on {side.victims_on}" if side.victims else "none"
            for side in (one.before, one.after)
        ]
        return _Rule(why=f"would evict {evicts[1]}, before: {evicts[0]}")

    def _rule_of_scores(
        self, one: PlanDifference, before: Explanation, after: Explanation
    ) -> "_Rule":
        """The policy that favours the new node the most, against what it did before."""
        old, new = one.before.node, one.after.node
        gained: dict[str, int] = defaultdict(int)
        leads: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for side, (shown, sign) in enumerate(((before, -1), (after, 1))):
            rows = {node: at for at, node in enumerate(shown.feasible)}
            if old not in rows or new not in rows:
                continue
            for row in shown.scores:
                lead = int(row.weighted[rows[new]] - row.weighted[rows[old]])
                gained[row.policy] += sign * lead
                leads[row.policy][side] = lead
        policy, gain = max(gained.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        scores = _scores_of(before, old), _scores_of(after, new)
        if gain <= 0:
            return _Rule(scores_before=scores[0], scores_after=scores[1])
        was, now = leads[policy]
        said = f"`{policy}` prefers {_lead(new, old, now)}; before, {_lead(new, old, was)}"
        place = _hook(self._after.bundle, policy, "score", "normalize")
        return _Rule(policy, "score", place, said, *scores)


def _stands(decider: Decider) -> Stands:
    return {} if decider.queues is None else stands_of(decider.queues.kernel)


def _tree_policy(decider: Decider) -> str:
    tree = decider.bundle.queue_tree
    return "" if tree is None else tree.policy


class _TooManyMixtures(Exception):
    """The cause of a difference would take too long to find."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule that makes a difference; what is not known is empty."""

    policy: str = ""
    hook: str = ""
    place: str = ""
    why: str = ""
    scores_before: dict[str, int] = field(default_factory=dict)
    scores_after: dict[str, int] = field(default_factory=dict)


def _rejection_of(explanation: Explanation, node: str) -> tuple[str, str, str] | None:
    """The policy and hook that reject *node*, and the reason; None if none does."""
    pre_filter = explanation.decision.diagnosis.pre_filter
    status = explanation.rejected.get(node) if pre_filter is None else pre_filter
    if status is None or not node:
        return None
    return status.plugin, "filter" if pre_filter is None else "pre_filter", status.message


def _scores_of(explanation: Explanation, node: str) -> dict[str, int]:
    if node not in explanation.feasible:
        return {}
    at = explanation.feasible.index(node)
    weighted = {row.policy: int(row.weighted[at]) for row in explanation.scores}
    return {policy: points for policy, points in weighted.items() if points}


def _lead(new: str, old: str, lead: int) -> str:
    """Which of two nodes a score prefers, and by how many points."""
    if lead == 0:
        return "neither"
    return f"{new if lead > 0 else old} by {abs(lead)} point{'s' * (abs(lead) != 1)}"


def _hook(bundle: Bundle, policy: str, *hooks: str) -> str:
    found = bundle.policies.get(policy)
    return "" if found is None else hook_source(bundle, found, *hooks)


def _policy_of(bundle: Bundle, files: Iterable[str]) -> str:
    """A policy of the first of *files*, or one that loads it; "" if there is none."""
    for file in files:
        for policy in bundle.policies.values():
            if policy.module == file or file in with_loaded(bundle.files, [policy.module]):
                return policy.name
    return ""


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _out_of_order(values: Sequence[int]) -> list[int]:
    """The places of the fewest of *values* without which the others ascend."""
    tails: list[int] = []
    at_tail: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        length = bisect.bisect_left(tails, value)
        if length == len(tails):
            tails.append(value)
            at_tail.append(at)
        else:
            tails[length], at_tail[length] = value, at
        before.append(at_tail[length - 1] if length else -1)
    kept = set()
    at = at_tail[-1] if at_tail else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(values)) if at not in kept]
