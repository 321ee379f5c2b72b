"""Queues that a shipped policy governs, asked as the kernel asks it."""

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import msgspec
import yaml

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Hold, QueueView, Request
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import ROOT, GivenQueue, QueueTree, build_tree
from engine.language.tree_hooks import ALL_QUEUES
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure
from tests.packs.fairness.victims import Running, victims

_NO_QUEUES: Final = build_tree([])


@functools.cache
def bundle_of(policy: str, args: str) -> Bundle:
    """The shipped policy with these arguments (YAML), for a tree that is given apart."""
    head = {"apiVersion": "starsched.dev/v1", "kind": "QueueTree", "policy": policy}
    # A tree without queues is refused; a world has its own instead.
    more = {"usage": {"halfLife": "1h"}, "queues": {"none": {}}}
    document = {**head, "args": yaml.safe_load(args), **more}
    return build_bundle({"tree.yaml": yaml.safe_dump(document)})


class TreeWorld:
    """A tree of queues with pods, governed by the policy of this name.

    Args:
        policy: The shipped policy.
        total: What all nodes offer.
        queues: The attributes of each queue, by its path; amounts in the units of the language.
        args: The arguments of the policy.
    """

    def __init__(
        self,
        policy: str,
        total: Amounts,
        queues: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        **args: Any,
    ) -> None:
        bundle = bundle_of(policy, yaml.safe_dump(args))
        self.evaluator = InProcessEvaluator(bundle.program)
        hooks = Scheduler(bundle, self.evaluator).tree
        assert hooks is not None
        self.hooks = hooks
        self.total = dict(total)
        self.sums = QueueSums(_NO_QUEUES)
        self.standing = TreeShares()
        self.running: dict[str, Running] = {}
        self._pods = 0
        self._use(
            build_tree(
                GivenQueue(path, attributes={**hooks.tree.attributes, **given}, is_path=True)
                for path, given in queues.items()
            )
        )

    @property
    def tree(self) -> QueueTree:
        """The queues."""
        return self.sums.tree

    def _use(self, tree: QueueTree) -> None:
        before = self.sums.tree
        self.sums.use(tree)
        self.standing.use(before, tree)

    def put(
        self,
        queue: str,
        amounts: Amounts = MappingProxyType({}),
        *,
        waits: bool = False,
        preemptible: bool = True,
        name: str = "",
        priority: int = 0,
        **more: int,
    ) -> None:
        """Add a pod that requests *amounts* and *more*, where `gpu` stands for nvidia.com/gpu."""
        phase = PodPhase.WAITING if waits else PodPhase.ALLOCATED
        self._pods += 1
        found = {**amounts, **_named(more)}
        uid = str(self._pods)
        self.sums.put(uid, Contribution(queue, phase, found, preemptible))
        if not waits:
            self.running[uid] = Running(
                name or uid, queue, found, self._pods, priority, preemptible
            )

    def compute(self) -> None:
        """Have everything passed up and shared."""
        self.standing.compute(self.hooks, self.sums, self.total, 0.0)
        self.sums.check_invariants()
        assert not self.standing.is_dirty

    def shares(self) -> dict[str, dict[str, int]]:
        """The share of each queue but the root, by path."""
        self.compute()
        return {path: dict(self.standing[path].share or {}) for path in self.tree.queues if path}

    def key(self, path: str, leaf: str = "", *, priority: int = 0, **asked: int) -> list[Any]:
        """What `turn_key` gives for the queue of *path*, of which a pod of *leaf* is next."""
        self.compute()
        above = self._views(path)
        below = self._views(leaf or path)
        head = _request(asked, priority=priority)
        below = below[: len(below) - len(above) + 1]
        found = self._ask("turn_key", self.hooks.turn_question(above, head, below))
        assert isinstance(found, list)
        return found

    def admit(
        self, leaf: str, *, preemptible: bool = True, **asked: int
    ) -> tuple[str, tuple[str, int] | None] | None:
        """What `admit` says to a pod: None, or at which queue it lacks what, if it says so."""
        self.compute()
        found = self.hooks.admit(_request(asked, preemptible=preemptible), self._views(leaf))
        if found is None:
            return None
        assert isinstance(found, Hold), found
        assert found.token == "QuotaReached"
        assert found.at in self.tree.queues
        return found.at, found.short

    def victims(self, leaf: str, *, priority: int = 0, **asked: int) -> list[str]:
        """The names of the pods that go for a pod of *leaf*, for which all nodes have to do."""
        self.compute()
        used: dict[str, int] = {}
        for pod in self.running.values():
            add(used, pod.amounts, 1)

        def fits(gone: Sequence[Running]) -> bool:
            left = dict(used)
            for pod in gone:
                add(left, pod.amounts, -1)
            wanted = _named(asked)
            return all(left.get(r, 0) + n <= self.total.get(r, 0) for r, n in wanted.items())

        request = _request(asked, priority=priority)
        return victims(
            self.hooks,
            self.sums,
            self.standing,
            self.total,
            self.running,
            request=request,
            leaf=leaf,
            fits=fits,
        )

    def ask_shares(self, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
        """The shares below the root if its children had these further *fields*, by path."""
        self.compute()
        children = [self.standing.view(c, self.sums) for c in self.tree.queues[ROOT].children]
        question = self.hooks.shares_question(self._views(ROOT)[0], children)
        given = msgspec.json.decode(question)
        for place in given["children"]:
            child = given[ALL_QUEUES][place]
            child.update(fields.get(child["name"], {}))
        return dict(self._ask("shares", msgspec.json.encode(given)))

    def _views(self, path: str) -> list[QueueView]:
        """The queue and those above it."""
        return [self.standing.view(one.path, self.sums) for one in self.tree.above(path)]

    def _ask(self, hook: str, question: bytes) -> Any:
        call = Call(self.hooks.tree.instance, hook, b"null", None, question)
        ((answer,),) = self.evaluator.evaluate([call])
        assert not isinstance(answer, PolicyFailure), answer
        return answer


def _request(asked: Mapping[str, int], *, priority: int = 0, preemptible: bool = True) -> Request:
    return Request.of_pod(_named(asked), priority, preemptible)


def _named(amounts: Mapping[str, int]) -> dict[str, int]:
    return {
        "nvidia.com/gpu" if r == "gpu" else r: amount for r, amount in amounts.items() if amount
    }


def fractions(key: Sequence[Any]) -> list[Any]:
    """The parts of a key, ratios as fractions; an infinite one is infinity."""
    return [
        (Fraction(*part) if part[1] else float("inf") if part[0] else Fraction(0))
        if isinstance(part, list)
        else part
        for part in key
    ]
