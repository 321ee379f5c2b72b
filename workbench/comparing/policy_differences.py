"""What two sets of policies say differently of one pod, or of the order of two.

Owns what counts as a difference: what is decided, not how. Reasons count, since users read them;
names of policies and the size of totals do not, as long as the same nodes come in the same order.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from engine.comparing.difference import FAILED, OTHER_VICTIMS, Difference
from engine.comparing.population import PolicySet
from engine.comparing.rejectors import place_of_failure
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.queueing.places import Gate
from engine.core.scheduling.decision import Explanation
from engine.core.scheduling.select_host import SortKey
from engine.explaining.reason_source import hook_source, reason_source
from engine.policy.bundle import Bundle
from engine.policy.evaluator import PolicyFailure
from workbench.comparing.kinds import (
    OF_ANSWERS,
    OTHER_ANNOTATIONS,
    OTHER_GATE,
    OTHER_GROUP,
    OTHER_ORDER,
    OTHER_PERMIT,
    OTHER_REASON,
    OTHER_SCORES,
    OTHER_TIE,
    OTHER_VERDICT,
    WITHOUT_PROFILE,
)

_LEFT_OUT: Final = Status(Code.UNRESOLVABLE, ("left out by a pre-filter",))


@dataclass(frozen=True, slots=True)
class Said:
    """What one set of policies says.

    Attributes:
        text: In words.
        policy: Which of its policies says so, or those that matter; empty if none does.
        source: `file:line` of that, as a module of the bundle; empty if it is not known.
    """

    text: str
    policy: str = ""
    source: str = ""


class PolicyDifference(Difference[Said], frozen=True, kw_only=True):
    """One difference about a pod, of one of the kinds `OF_ANSWERS`.

    Attributes:
        nodes: The nodes that it is about: none, one or two.
        signature: Equal for differences that are the same on another cluster; begins with the kind.
    """

    nodes: tuple[str, ...] = ()
    signature: tuple[object, ...] = ()


def _difference(
    kind: str, pod: Pod, said: Sequence[Said], nodes: tuple[str, ...] = (), *signature: object
) -> PolicyDifference:
    before, after = said
    whose = after if after.policy else before
    return PolicyDifference(
        kind=kind,
        pod=pod.key,
        before=before,
        after=after,
        policy=whose.policy,
        place=whose.source,
        nodes=nodes,
        signature=(kind, *signature),
    )


Pair: TypeAlias = tuple[PolicySet, PolicySet]
Snapshots: TypeAlias = Sequence[Snapshot]


@dataclass(frozen=True, slots=True)
class Compared:
    """What two sets say of one pod.

    Attributes:
        differences: One of each kind that there is, the gravest first.
        is_rejected_by_first, is_rejected_by_second: That set rejects a node that the other one
            accepts.
    """

    differences: tuple[PolicyDifference, ...]
    is_rejected_by_first: bool = False
    is_rejected_by_second: bool = False


def compare_pod(pair: Pair, pod: Pod, snapshots: Snapshots) -> Compared:
    """What the two sets say differently of *pod*, without its place in the queue."""
    has = [one.scheduler.profile_of(pod) is not None for one in pair]
    if not all(has):
        text = f"decides pods of the scheduler `{pod.scheduler_name}`"
        said = [Said(text if it else f"no profile {text}") for it in has]
        only = _difference(WITHOUT_PROFILE, pod, said, (), *has)
        return Compared((only,), is_rejected_by_first=not has[0], is_rejected_by_second=not has[1])
    both = [
        one.scheduler.explain(pod, snapshot) for one, snapshot in zip(pair, snapshots, strict=True)
    ]
    sides = [_Side(*each) for each in zip(pair, snapshots, both, strict=True)]
    found = [*_of_pod(pair, pod, snapshots), *_of_nodes(sides, pod)]
    found.sort(key=lambda one: OF_ANSWERS.index(one.kind))
    accepted = [side.accepted for side in sides]
    return Compared(
        tuple(found),
        is_rejected_by_first=bool(accepted[1] - accepted[0]),
        is_rejected_by_second=bool(accepted[0] - accepted[1]),
    )


class _Side:
    """What one set says of the nodes."""

    def __init__(self, asked: PolicySet, snapshot: Snapshot, explanation: Explanation) -> None:
        self.asked = asked
        self.snapshot = snapshot
        self.explanation = explanation
        self.decision = explanation.decision
        self.failures = explanation.decision.failures
        # A pod of which a policy fails goes nowhere.
        self.accepted = frozenset(() if self.failures else explanation.feasible)

    @property
    def bundle(self) -> Bundle:
        return self.asked.bundle

    def rejection(self, node: str) -> Status:
        """Why *node* is not accepted."""
        everywhere = self.decision.diagnosis.pre_filter
        return everywhere or self.explanation.rejected.get(node, _LEFT_OUT)

    def says_of(self, node: str) -> Said:
        """What is said of *node*."""
        if node in self.accepted:
            return Said(f"accepts `{node}`")
        status = self.rejection(node)
        return Said(
            f"rejects `{node}`: {_with_code(status)}",
            status.plugin,
            reason_source(self.bundle, status.plugin, status.message),
        )


def _with_code(status: Status) -> str:
    is_final = status.code is Code.UNRESOLVABLE
    return f"{status.message} (evicting pods cannot help)" if is_final else status.message


# --- the pod alone ---------------------------------------------------------------------------


def _of_pod(pair: Pair, pod: Pod, snapshots: Snapshots) -> Iterator[PolicyDifference]:
    sides = [*zip(pair, snapshots, strict=True)]
    gates = [one.scheduler.hooks.pre_enqueue(pod, facts) for one, facts in sides]
    if _as_read(gates[0]) != _as_read(gates[1]):
        said = [_gated(one.bundle, gate) for one, gate in zip(pair, gates, strict=True)]
        yield _difference(OTHER_GATE, pod, said, (), *(gate and gate.plugin for gate in gates))
    for kind, hook, answers in (
        (OTHER_PERMIT, "permit", [_permits(one, pod, facts) for one, facts in sides]),
        (OTHER_GROUP, "group_of", [[_groups(one, pod, facts)] for one, facts in sides]),
    ):
        moments = enumerate(itertools.zip_longest(*answers, fillvalue=()))
        differing = (_first_of(hook, pair, both, is_last=moment > 0) for moment, both in moments)
        if (found := next(filter(None, differing), None)) is not None:
            yield _difference(kind, pod, found)


def _as_read(gate: Gate | None) -> tuple[str, str] | None:
    """A gate as users and metrics see it."""
    return None if gate is None else (gate.reason, gate.token)


def _gated(bundle: Bundle, gate: Gate | None) -> Said:
    if gate is None:
        return Said("lets the pod be tried")
    source = reason_source(bundle, gate.plugin, gate.reason)
    return Said(f"gates the pod: {gate.reason}", gate.plugin, source)


_Answers: TypeAlias = Sequence[tuple[str, Any]]
"""Policies with what they say that is not None."""


def _permits(one: PolicySet, pod: Pod, facts: Snapshot) -> list[_Answers]:
    """What policies say that do not approve: of a pod as the first and as the last of its group."""
    moments = (None,) if one.groups is None else one.groups.at_permit(pod)
    return [_spoken(one.scheduler.hooks.permit(pod, facts)) for _ in moments]


def _groups(one: PolicySet, pod: Pod, facts: Snapshot) -> _Answers:
    """The groups that the pod is in, as policies see them."""
    hooks = one.scheduler.hooks
    asked = hooks.grouping().get(pod.scheduler_name, ())
    return _spoken([(enabled.policy, hooks.group_of(enabled, pod, facts)) for enabled in asked])


def _spoken(answers: _Answers) -> _Answers:
    """Those that say something; comparable, so failures without their lines."""
    return [
        (policy, ("fails", said.hook) if isinstance(said, PolicyFailure) else said)
        for policy, said in answers
        if said is not None
    ]


def _first_of(
    hook: str, pair: Pair, both: Sequence[_Answers], *, is_last: bool
) -> tuple[Said, Said] | None:
    """The first answer that is not the same on both sides; None if all are."""
    whose = " of the last pod of its group" if is_last else ""
    for answers in itertools.zip_longest(*both):
        verdicts = [None if answer is None else answer[1] for answer in answers]
        if verdicts[0] != verdicts[1]:
            first, second = (
                Said(f"says nothing in `{hook}`{whose}")
                if answer is None
                else Said(
                    f"says {answer[1]} in `{hook}`{whose}",
                    answer[0],
                    _hook_source(one.bundle, answer[0], hook),
                )
                for one, answer in zip(pair, answers, strict=True)
            )
            return first, second
    return None


def _hook_source(bundle: Bundle, policy: str, *hooks: str) -> str:
    known = bundle.policies.get(policy)
    return "" if known is None else hook_source(bundle, known, *hooks)


# --- the nodes -------------------------------------------------------------------------------


def _of_nodes(sides: Sequence[_Side], pod: Pod) -> Iterator[PolicyDifference]:
    first, second = sides
    if (failure := _failure(first, second, pod)) is not None:
        yield failure
    if first.failures and second.failures:
        return
    differing = first.accepted ^ second.accepted
    if differing:
        node = min(differing)
        said = (first.says_of(node), second.says_of(node))
        policies = [one.policy for one in said]
        yield _difference(OTHER_VERDICT, pod, said, (node,), node in first.accepted, *policies)
    if first.failures or second.failures:
        return
    if (reason := _reason(first, second, pod)) is not None:
        yield reason
    if differing:
        return
    if first.accepted:
        yield from _of_choice(first, second, pod)
    elif (victims := _victims(first, second, pod)) is not None:
        yield victims


def _failure(first: _Side, second: _Side, pod: Pod) -> PolicyDifference | None:
    both = [
        {(one.policy, one.hook): one for one in (*side.failures, *side.decision.ignored)}
        for side in (first, second)
    ]
    differing = both[0].keys() ^ both[1].keys()
    if not differing:
        return None
    key = min(differing)
    said = [
        Said(f"`{key[1]}` fails: {found[key].message}", key[0], place_of_failure(found[key]))
        if key in found
        else Said("no failure")
        for found in both
    ]
    return _difference(FAILED, pod, said, (), key, key in both[0])


def _reason(first: _Side, second: _Side, pod: Pod) -> PolicyDifference | None:
    """The first node, by name, that both reject for reasons that are not the same."""
    whole = [side.decision.diagnosis.pre_filter for side in (first, second)]
    names = sorted(first.snapshot.slot_of)
    if None not in whole:
        names = names[:1]  # what is said is said of all of them
    same: dict[tuple[int, int], bool] = {}
    for node in names:
        if node in first.accepted or node in second.accepted:
            continue
        was, now = first.rejection(node), second.rejection(node)
        key = (id(was), id(now))
        if key not in same:
            same[key] = _is_read_alike(was, now)
        if not same[key]:
            said = (first.says_of(node), second.says_of(node))
            return _difference(OTHER_REASON, pod, said, (node,), said[0].policy, said[1].policy)
    return None


def _is_read_alike(was: Status, now: Status) -> bool:
    return (was.code, was.reasons, was.token) == (now.code, now.reasons, now.token)


def _of_choice(first: _Side, second: _Side, pod: Pod) -> Iterator[PolicyDifference]:
    names = first.explanation.feasible
    totals = [
        dict(zip(side.explanation.feasible, side.explanation.totals, strict=True))
        for side in (first, second)
    ]
    pair = first_swap(
        [totals[0][name] for name in names], [totals[1][name] for name in names], names
    )
    if pair is not None:
        yield _order(first, second, pod, pair, totals)
        return
    if (tie := _tie(first, second, pod, totals[0])) is not None:
        yield tie
    elif first.decision.node == second.decision.node:
        given = [dict(side.decision.annotations) for side in (first, second)]
        if given[0] != given[1]:
            said = [Said(f"annotates {texts or 'nothing'}") for texts in given]
            node = str(first.decision.node)
            keys = tuple(tuple(sorted(texts)) for texts in given)
            yield _difference(OTHER_ANNOTATIONS, pod, said, (node,), *keys)


def _tie(
    first: _Side, second: _Side, pod: Pod, totals: Mapping[str, int]
) -> PolicyDifference | None:
    """A node that only one set may take among those with the highest total."""
    best = max(totals.values())
    equals = [name for name, total in totals.items() if total == best]
    taken = []
    for side in (first, second):
        names = side.asked.scheduler.first_of_equals(pod, equals, side.snapshot)
        if isinstance(names, PolicyFailure):
            return None  # of which the decision failed, too
        taken.append(frozenset(names))
    if taken[0] == taken[1]:
        return None
    node = min(taken[0] ^ taken[1])
    said = [
        Said(
            f"{'may take' if node in names else 'does not take'} `{node}`, one of {len(equals)} "
            "equally good nodes",
            *_tie_policy(side, pod),
        )
        for side, names in zip((first, second), taken, strict=True)
    ]
    return _difference(OTHER_TIE, pod, said, (node,), said[0].policy, said[1].policy)


def _tie_policy(side: _Side, pod: Pod) -> tuple[str, str]:
    """The policy whose `tie_key` counts first, and its place."""
    profile = side.asked.scheduler.profile_of(pod)
    enabled = profile.at("tie_key") if profile is not None else ()
    if not enabled:
        return "", ""
    return enabled[0].policy, _hook_source(side.bundle, enabled[0].policy, "tie_key")


def first_swap(
    first: Sequence[int], second: Sequence[int], names: Sequence[str]
) -> tuple[str, str] | None:
    """Two of *names* next to each other by the totals *first* that *second* orders otherwise.

    The highest count first. None if both give the same order, equal ones included: the order of
    all follows from that of neighbours.
    """
    was, now = np.array(first, np.int64), np.array(second, np.int64)
    by_name = np.argsort(np.argsort(np.array(names, object)))
    order = np.lexsort((by_name, -now, -was))
    differs = np.sign(np.diff(was[order])) != np.sign(np.diff(now[order]))
    places = np.flatnonzero(differs)
    if not len(places):
        return None
    place = int(places[0])
    return names[order[place]], names[order[place + 1]]


def _order(
    first: _Side,
    second: _Side,
    pod: Pod,
    nodes: tuple[str, str],
    totals: Sequence[Mapping[str, int]],
) -> PolicyDifference:
    rows = [_rows(side, nodes) for side in (first, second)]
    # The policies that make the difference: which prefer the one node by another margin.
    names = dict.fromkeys([*rows[0], *rows[1]])
    guilty = [name for name in names if _margin(rows[0].get(name)) != _margin(rows[1].get(name))]
    said = []
    for side, row, total in zip((first, second), rows, totals, strict=True):
        scores = "; ".join(
            f"`{name}` {row[name][0]} and {row[name][1]}" for name in guilty if name in row
        )
        one, other = (total[node] for node in nodes)
        word = "before" if one > other else "after" if one < other else "level with"
        text = f"puts `{nodes[0]}` {word} `{nodes[1]}`: {one} and {other}"
        policy = next((name for name in guilty if name in row), "")
        source = _hook_source(side.bundle, policy, "score", "score_all")
        said.append(Said(f"{text} ({scores})" if scores else text, policy, source))
    signs = [int(np.sign(total[nodes[0]] - total[nodes[1]])) for total in totals]
    return _difference(OTHER_SCORES, pod, said, nodes, *signs)


def _rows(side: _Side, nodes: tuple[str, str]) -> dict[str, tuple[int, int]]:
    """The weighted scores of two nodes, by policy."""
    places = [side.explanation.feasible.index(node) for node in nodes]
    return {
        row.policy: (row.weighted[places[0]], row.weighted[places[1]])
        for row in side.explanation.scores
    }


def _margin(scores: tuple[int, int] | None) -> int:
    return 0 if scores is None else scores[0] - scores[1]


def _victims(first: _Side, second: _Side, pod: Pod) -> PolicyDifference | None:
    evictions = [
        None if one is None else (one.node, tuple(sorted(pod.key for pod in one.victims)))
        for one in (first.decision.eviction, second.decision.eviction)
    ]
    if evictions[0] == evictions[1]:
        return None
    said = [
        Said("evicts no pod")
        if one is None
        else Said(f"evicts {', '.join(f'`{key}`' for key in one[1])} from `{one[0]}`")
        for one in evictions
    ]
    return _difference(OTHER_VICTIMS, pod, said, (), *(one is None for one in evictions))


# --- the queue -------------------------------------------------------------------------------


def compare_queue(
    pair: Pair, pods: Sequence[Pod], snapshots: Snapshots
) -> tuple[PolicyDifference, Pod, Pod] | None:
    """Two of *pods* that the two sets would try in another order; None if there are none."""
    sides = [*zip(pair, snapshots, strict=True)]
    keys = [[one.scheduler.hooks.queue_key(pod, facts) for pod in pods] for one, facts in sides]
    ranks = [_ranks(one) for one in keys]
    swapped = first_swap(ranks[0], ranks[1], [pod.key for pod in pods])
    if swapped is None:
        return None
    by_key = {pod.key: place for place, pod in enumerate(pods)}
    one, other = (by_key[key] for key in swapped)
    said = []
    for (asked, _), rank in zip(sides, ranks, strict=True):
        word = "before" if rank[one] > rank[other] else "after"
        word = "level with" if rank[one] == rank[other] else word
        policy = _queue_policy(asked, pods[one])
        source = _hook_source(asked.bundle, policy, "queue_key")
        said.append(Said(f"tries `{swapped[0]}` {word} `{swapped[1]}`", policy, source))
    signs = [int(np.sign(rank[one] - rank[other])) for rank in ranks]
    return _difference(OTHER_ORDER, pods[one], said, (), *signs), pods[one], pods[other]


def _ranks(keys: Sequence[SortKey | PolicyFailure]) -> list[int]:
    """For each key a number, larger for one that goes earlier; a failed one goes last."""
    good = sorted({key for key in keys if not isinstance(key, PolicyFailure)}, reverse=True)
    places = {key: number for number, key in enumerate(good, 1)}
    return [0 if isinstance(key, PolicyFailure) else places[key] for key in keys]


def _queue_policy(asked: PolicySet, pod: Pod) -> str:
    profile = asked.scheduler.profile_of(pod)
    enabled = profile.at("queue_key") if profile is not None else ()
    return enabled[0].policy if enabled else ""
