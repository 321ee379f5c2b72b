"""Asks every hook of a tree of queues about pods of a cluster, before the tree is in force.

Owns what the tree is made of then: the queues that its document has, and those that pods name.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.tree_hooks import Giver, QueueView, Request, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts, add, offered
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import GivenQueue, QueueTree, build_tree
from engine.policy.evaluator import PolicyFailure

# Queues that are asked about in one round trip.
_CHUNK: Final = 64

# In a cluster whose pods name no queue, hooks are asked about one of this name.
_MADE_UP: Final = "trial"


def failures_in_tree(
    hooks: TreeHooks, pods: Iterable[Pod], snapshot: Snapshot
) -> Iterator[PolicyFailure]:
    """What fails of the hooks of the tree: about *pods*, which wait, and those on nodes."""
    sums, failed = _summed(hooks, pods, snapshot)
    yield from failed
    # 1. What is passed up, and the shares.
    total: dict[str, int] = {}
    for info in snapshot.infos:
        if info is not None and info.node is not None:
            add(total, offered(info.node), 1)
    shares = TreeShares()
    shares.use(build_tree(()), sums.tree)
    shares.compute(hooks, sums, total, 0.0)
    yield from shares.failures.values()
    # 2. Whose turn it is, what may start, who gives back: of each queue one pod is asked about.
    first: dict[str, Contribution] = {}
    for _, one in sums.contributions():
        first.setdefault(one.queue, one)
    below = [path for path, queue in sums.tree.queues.items() if queue.parent is not None]
    for start in range(0, len(below), _CHUNK):
        cases = [
            (
                _request(first.get(path)),
                [shares.view(one.path, sums) for one in sums.tree.above(path)],
            )
            for path in below[start : start + _CHUNK]
        ]
        yield from _failures(_asked(hooks, cases, total))


_Case: TypeAlias = tuple[Request, list[QueueView]]
"""A request, and its queue with those above it."""


def _asked(hooks: TreeHooks, cases: Sequence[_Case], total: Amounts) -> Iterator[object]:
    """What each hook that decides says of *cases*: a round trip for each hook."""
    if hooks.has("turn_key"):
        yield from hooks.turn_keys(
            [hooks.turn_question(line, request, line[:1]) for request, line in cases]
        )
    if hooks.has("admit"):
        yield from hooks.admits(
            [hooks.admit_question(*case) for case in cases if case[1][0].queue.is_leaf]
        )
    if hooks.has("reclaim"):
        yield from hooks.stages([_reclaim_question(hooks, *case, total) for case in cases])
    if hooks.has("giver_key"):
        yield from hooks.giver_keys(
            [
                hooks.giver_question(line, hooks.taker("giver_key", request, line, branch=1), total)
                for request, line in cases
            ]
        )


def _reclaim_question(
    hooks: TreeHooks, request: Request, line: Sequence[QueueView], total: Amounts
) -> bytes:
    giver = Giver(tuple(sorted(request.resources.items())), 0, request.preemptible, 0)
    taker = hooks.taker("reclaim", request, line, branch=1)
    return hooks.reclaim_question(taker, giver, line, branch=1, total=total)


def _summed(
    hooks: TreeHooks, pods: Iterable[Pod], snapshot: Snapshot
) -> tuple[QueueSums, list[PolicyFailure]]:
    """The sums of all pods in the queues that they name, and what failed of saying those."""
    failed: dict[str, PolicyFailure] = {}
    named: list[tuple[Pod, PodPhase, str, bool]] = []
    placed = ((p, PodPhase.ALLOCATED) for i in snapshot.infos if i for p in i.pods.values())
    all_pods = [*((pod, PodPhase.WAITING) for pod in pods), *placed]
    answers = hooks.queues_of([pod for pod, _ in all_pods], snapshot)
    for (pod, phase), found in zip(all_pods, answers, strict=True):
        if isinstance(found, PolicyFailure):
            failed.setdefault(str(found), found)
        elif found is not None:
            named.append((pod, phase, *found))
    tree = _tree(hooks, [name for *_, name, _ in named])
    sums = QueueSums(tree)
    for pod, phase, name, preemptible in named:
        queue = tree.find(name)
        if queue is not None:
            sums.put(pod.uid, Contribution(queue.path, phase, pod.requests, preemptible))
    return sums, list(failed.values())


def _tree(hooks: TreeHooks, names: Sequence[str]) -> QueueTree:
    given = hooks.tree.given
    there = build_tree(given)
    more = sorted({name for name in names if there.find(name) is None}) if not given else []
    if not given and not more:
        more = [_MADE_UP]
    attributes = dict(hooks.tree.attributes)
    return build_tree([*given, *(GivenQueue(n, "", attributes, is_path=True) for n in more)])


def _request(found: Contribution | None) -> Request:
    if found is None:
        return Request.of_pod({"cpu": 1})
    return Request.of_pod(found.amounts, preemptible=found.is_preemptible)


def _failures(answers: Iterable[object]) -> Iterator[PolicyFailure]:
    return (one for one in answers if isinstance(one, PolicyFailure))
