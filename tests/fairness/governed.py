"""A case of fair sharing as the kernel has it: sums, shares, turns and admission by our policies.

Owns the way from a case, as `Original` takes it, to what the hooks of a shipped policy say: the
same steps as the kernel's, through the evaluator. What is asked about it is `schemes`'.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Hold, QueueView, Request, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.ratios import TurnKey
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import GivenQueue, QueueTree, build_tree
from engine.policy.evaluator import InProcessEvaluator, PolicyFailure
from tests.json_lines import Plain
from tests.packs.fairness.tree_world import bundle_of
from tests.packs.fairness.victims import Running, victims

_NO_QUEUES: Final = build_tree([])


@functools.cache
def _hooks(policy: str, args: str) -> TreeHooks:
    bundle = bundle_of(policy, args)
    hooks = Scheduler(bundle, InProcessEvaluator(bundle.program)).tree
    assert hooks is not None
    return hooks


class Governed:
    """The queues of *case*, governed by *policy* with these *args*.

    Attributes:
        hooks: The policy.
        tree: The queues.
        sums: Of their pods.
        standing: What is passed up and shared.
        heads: The request that is next in each leaf that has one, by path.
        running: The pods on nodes, by uid.
    """

    def __init__(self, case: Plain, policy: str, args: Mapping[str, Any]) -> None:
        self.hooks = _hooks(policy, yaml.safe_dump(dict(args)))
        self._total = case["total"]
        self.heads: dict[str, Request] = {}
        self.running: dict[str, Running] = {}
        self.tree: QueueTree = build_tree(
            GivenQueue(
                path,
                attributes={**self.hooks.tree.attributes, **queue.get("attributes", {})},
                is_path=True,
            )
            for path, queue in case["queues"].items()
        )
        assert not self.tree.problems
        self.sums = QueueSums(self.tree)
        self.standing = TreeShares()
        self.standing.use(_NO_QUEUES, self.tree)
        for path, queue in case["queues"].items():
            for place, pod in enumerate(queue.get("pods", ())):
                uid = f"{path}:{place}"
                self._put(uid, path, PodPhase.ALLOCATED, pod["resources"])
                since = pod.get("created_at", 0)
                self.running[uid] = Running(pod.get("name", uid), path, pod["resources"], since)
            if head := queue.get("head"):
                self._put(f"{path}:head", path, PodPhase.WAITING, head["resources"])
                self.heads[path] = request(
                    head["resources"], head.get("priority", 0), head.get("created_at", 0)
                )
        self.standing.compute(self.hooks, self.sums, self._total, 0.0)
        assert not self.standing.problems, self.standing.problems

    def _put(self, uid: str, path: str, phase: PodPhase, amounts: Amounts) -> None:
        self.sums.put(uid, Contribution(path, phase, amounts))

    def share(self, path: str) -> Amounts:
        """The share of the queue."""
        return self.standing[path].share or {}

    def keys(self, asked: Sequence[tuple[str, str, Request]]) -> list[TurnKey]:
        """The keys of queues: of each its path, and the leaf and the request that is next in it."""
        questions = []
        for path, leaf, head in asked:
            below = [queue.path for queue in self.tree.above(leaf)]
            views = [self._view(one) for one in below[: below.index(path) + 1]]
            questions.append(self.hooks.turn_question(self._views(path), head, views))
        found = self.hooks.turn_keys(questions)
        failures = [one for one in found if isinstance(one, PolicyFailure)]
        assert not failures, failures
        return [one for one in found if not isinstance(one, PolicyFailure)]

    def admit(self, leaf: str, head: Request) -> Hold | None:
        """What keeps a request of the leaf from being tried."""
        found = self.hooks.admit(head, self._views(leaf))
        assert not isinstance(found, PolicyFailure), found
        return found

    def victims(self, leaf: str, head: Request) -> list[str]:
        """The names of the pods that go for a request of the leaf, wherever they are."""
        return victims(
            self.hooks,
            self.sums,
            self.standing,
            self._total,
            self.running,
            request=head,
            leaf=leaf,
            fits=lambda _: True,
        )

    def turns(self, root: str) -> list[str]:
        """The leaves with a head below *root*, in the order in which these go, none placed."""
        left = self._heads_below(root)
        found = []
        while left:
            found.append(self._next(root, left))
            left.remove(found[-1])
        return found

    def first(self, root: str) -> str:
        """The leaf whose turn it is, of those below *root*, one of which has a head."""
        return self._next(root, self._heads_below(root))

    def _heads_below(self, root: str) -> list[str]:
        return [path for path in self.heads if path == root or path.startswith(f"{root}/")]

    def _next(self, path: str, left: Sequence[str]) -> str:
        if path in left:
            return path
        firsts = list(self._firsts(path, left))
        if len(firsts) == 1:
            return firsts[0][1]
        keys = self.keys([(child, leaf, self.heads[leaf]) for child, leaf in firsts])
        _, leaf = min(
            zip(keys, firsts, strict=True),
            key=lambda one: (one[0], _order(self.heads[one[1][1]]), one[1][0]),
        )[1]
        return leaf

    def _firsts(self, path: str, left: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The queues right below *path* that have one of *left*, with that which is next."""
        for child in self.tree.queues[path].children:
            if any(leaf == child or leaf.startswith(f"{child}/") for leaf in left):
                yield child, self._next(child, left)

    def _view(self, path: str) -> QueueView:
        return self.standing.view(path, self.sums)

    def _views(self, path: str) -> list[QueueView]:
        return [self._view(queue.path) for queue in self.tree.above(path)]


def request(resources: Amounts, priority: int = 0, created_at: int = 0) -> Request:
    """A pod that asks for *resources*."""
    return Request.of_pod(resources, priority, created_at=created_at)


def _order(head: Request) -> tuple[int, int]:
    return -head.priority, head.created_at
