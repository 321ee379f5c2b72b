"""Queues that a shipped policy governs, asked as the kernel asks it."""

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import msgspec
import yaml

from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.ratios import TurnKey, turn_sort_key
from engine.core.sharing.sums import VECTORS, Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import ROOT, Alias, GivenQueue, QueueTree, build_tree
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure

_NO_QUEUES: Final = build_tree([])


@functools.cache
def _bundle(policy: str, args: str) -> Bundle:
    head = {"apiVersion": "starsched.dev/v1", "kind": "QueueTree", "policy": policy}
    # A tree without queues is refused; a world has its own instead.
    document = {**head, "args": yaml.safe_load(args), "queues": {"none": {}}}
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
        bundle = _bundle(policy, yaml.safe_dump(args))
        self.evaluator = InProcessEvaluator(bundle.program)
        hooks = Scheduler(bundle, self.evaluator).tree
        assert hooks is not None
        self.hooks = hooks
        self.total = dict(total)
        self.sums = QueueSums(_NO_QUEUES)
        self.standing = TreeShares()
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

    def read(self, *objects: Mapping[str, Any]) -> None:
        """Have the queues that these *objects* of the API stand for."""
        given, aliases = [], []
        for answer in self.hooks.queues(objects):
            assert not isinstance(answer, PolicyFailure), answer
            for one in answer:
                if one[0] == "alias":
                    aliases.append(Alias(one[1], one[2]))
                    continue
                values, wrong = self.hooks.tree.with_defaults(one[3], is_written=False)
                assert not wrong
                given.append(GivenQueue(one[1], one[2], values, is_implied=one[4]))
        self._use(build_tree(given, aliases))
        assert not self.tree.problems

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
        **more: int,
    ) -> None:
        """Add a pod that requests *amounts* and *more*, where `gpu` stands for nvidia.com/gpu."""
        phase = PodPhase.WAITING if waits else PodPhase.ALLOCATED
        self._pods += 1
        found = {**amounts, **_named(more)}
        self.sums.put(str(self._pods), Contribution(queue, phase, found, preemptible))

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
        names = [queue.path for queue in self.tree.above(path)]
        below = [queue.path for queue in self.tree.above(leaf or path)]
        head = self._request(asked, priority=priority)
        head["$struct"]["queues"] = [self._view(one) for one in below[: below.index(path) + 1]]
        queue = self._view(path)
        queue["$struct"]["above"] = [self._view(one) for one in names[1:]]
        given = {"queue": queue, "head": head, "total": self.total}
        params = self.hooks.tree.hooks["turn_key"]
        found = self._ask("turn_key", {name: given[name] for name in params})
        assert isinstance(found, list)
        return found

    def sort_key(self, path: str, leaf: str = "", **asked: int) -> TurnKey:
        """The same, to compare."""
        return turn_sort_key(self.key(path, leaf, **asked))

    def admit(
        self, leaf: str, *, preemptible: bool = True, **asked: int
    ) -> tuple[str, tuple[str, int] | None] | None:
        """What `admit` says to a pod: None, or at which queue it lacks what, if it says so."""
        self.compute()
        names = [queue.path for queue in self.tree.above(leaf)]
        path = [self._view(one) for one in names]
        for place, view in enumerate(path):
            if names[place + 1 :]:
                view["$struct"]["above"] = [self._view(one) for one in names[place + 1 :]]
        request = self._request(asked, preemptible=preemptible)
        found = self._ask("admit", {"request": request, "path": path})
        if found is None:
            return None
        kind, _reason, token, at, short, _whole = found
        assert (kind, token) == ("hold", "QuotaReached")
        assert at in self.tree.queues
        return at, None if short is None else tuple(short)

    def ask_shares(self, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
        """The shares below the root if its children had these further *fields*, by path."""
        self.compute()
        children = [self._view(path) for path in self.tree.queues[ROOT].children]
        for child in children:
            child["$struct"].update(fields.get(child["$struct"]["name"], {}))
        return dict(self._ask("shares", {"parent": self._view(ROOT), "children": children}))

    def _view(self, path: str) -> dict[str, Any]:
        queue, sums, standing = self.tree.queues[path], self.sums[path], self.standing[path]
        return {
            "$struct": {
                **self.hooks.tree.attributes,
                **queue.attributes,
                "name": queue.name,
                "path": path,
                "is_leaf": queue.is_leaf,
                "is_root": path == ROOT,
                **{name: sums.of(name) for name in (*VECTORS, "nonpreemptible")},
                "pods": sums.pod_count,
                "up": standing.up,
                "share": standing.share or {},
            }
        }

    def _request(
        self, asked: Mapping[str, int], *, priority: int = 0, preemptible: bool = True
    ) -> dict[str, Any]:
        resources = {**_named(asked), "pods": 1}
        fields = {"resources": resources, "least": resources, "pods": 1, "priority": priority}
        return {
            "$struct": {**fields, "preemptible": preemptible, "created_at": 0, "group": ""},
        }

    def _ask(self, hook: str, given: Mapping[str, Any]) -> Any:
        call = Call(self.hooks.tree.instance, hook, b"null", None, msgspec.json.encode(given))
        ((answer,),) = self.evaluator.evaluate([call])
        assert not isinstance(answer, PolicyFailure), answer
        return answer


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
