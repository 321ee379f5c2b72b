"""Asks every hook of a tree of queues about pods of a cluster, before the tree is in force.

Owns what the tree is made of then: the queues that its document has, and those that pods name.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.pod import Pod
from engine.core.scheduling.tree_hooks import Giver, Request, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import add, offered
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import GivenQueue, QueueTree, build_tree
from engine.policy.evaluator import PolicyFailure

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
    # 2. Whose turn it is, and what may start: of each queue a pod, the last one of the path first.
    for path, queue in sums.tree.queues.items():
        if queue.parent is None:
            continue
        views = [shares.view(one.path, sums) for one in sums.tree.above(path)]
        uid = next((uid for uid, _ in sums.pods_of(path)), "")
        found = sums.contribution(uid)
        request = _request(found)
        if hooks.has("turn_key"):
            question = hooks.turn_question(views, request, views[:1])
            yield from _failures(hooks.turn_keys([question]))
        if hooks.has("admit") and queue.is_leaf:
            yield from _failures([hooks.admit(request, views)])
        if hooks.has("reclaim"):
            giver = Giver(tuple(sorted(request.resources.items())), 0, request.preemptible, 0)
            taker = hooks.taker("reclaim", request, views, branch=1)
            asked = hooks.reclaim_question(taker, giver, views, branch=1, total=total)
            yield from _failures(hooks.stages([asked]))
        if hooks.has("giver_key"):
            taker = hooks.taker("giver_key", request, views, branch=1)
            yield from _failures(hooks.giver_keys([views], taker, total))


def _summed(
    hooks: TreeHooks, pods: Iterable[Pod], snapshot: Snapshot
) -> tuple[QueueSums, list[PolicyFailure]]:
    """The sums of all pods in the queues that they name, and what failed of saying those."""
    failed: dict[str, PolicyFailure] = {}
    named: list[tuple[Pod, PodPhase, str, bool]] = []
    placed = ((p, PodPhase.ALLOCATED) for i in snapshot.infos if i for p in i.pods.values())
    for pod, phase in (*((pod, PodPhase.WAITING) for pod in pods), *placed):
        found = hooks.queue_of(pod, snapshot) if hooks.has("queue_of") else None
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
