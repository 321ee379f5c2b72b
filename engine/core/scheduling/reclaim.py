"""Chooses who gives back for a request that has no room: the fewest that the policy lets go.

Owns the order and the sparing. Victims are taken one after the other, the queue that gives next
first, each with the sums as those before it have left them; until the request may start and has
nodes. Then those are spared that are not needed, the most important first, and each of the others
has to be one that may still be taken with all the others gone: a rule that takes one for what
another gave already would have queues take from each other in turn. Whether there are nodes is the
caller's to say.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from engine.core.scheduling.tree_hooks import Giver, QueueView, Request, Taker, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts
from engine.core.sharing.ratios import TurnKey
from engine.core.sharing.sums import QueueSums
from engine.core.sharing.tree import ROOT
from engine.policy.evaluator import PolicyFailure

# Victims of one request. It gives up beyond them: that would be a storm.
_MOST_VICTIMS: Final = 256
# Queues, or kinds of candidates, that are asked about in one round trip.
_CHUNK: Final = 16

Fits = Callable[[Sequence["Candidate"]], bool]
"""If the request has nodes once these are gone; asked with one more or one less each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A pod on a node that may have to go, or a group that goes as one.

    Attributes:
        uids: Of its pods.
        queue: The path of its queue.
        giver: What hooks see of it.
        order: Within its queue, those with the smallest go first.
    """

    uids: tuple[str, ...]
    queue: str
    giver: Giver
    order: tuple[Any, ...] = ()


_Kind: TypeAlias = tuple[str, Giver]
"""The queue of a candidate, and what hooks see of it: to them those of a kind are the same."""


@dataclass(slots=True)
class Plan:
    """Who gives back.

    Attributes:
        victims: In the order in which they were taken; empty: none can.
        stages: Of each the stage at which it may be taken.
        allowed: How many the policy let go, though they do not do.
        failure: A hook failed.
    """

    victims: list[Candidate] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    allowed: int = 0
    failure: PolicyFailure | None = None


class Reclaim:
    """Plans for one request.

    Args:
        hooks: The policy that governs the tree.
        sums, shares: Of the tree as it is; as they were when a plan is made.
        total: What is divided at the root.
        request, leaf: What has no room, and the path of its queue.
        check: Called between round trips; what it raises ends the plan.
    """

    def __init__(
        self,
        hooks: TreeHooks,
        sums: QueueSums,
        shares: TreeShares,
        total: Amounts,
        *,
        request: Request,
        leaf: str,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._hooks, self._sums, self._shares = hooks, sums, shares
        self._total = total
        self._check = check
        self._request, self._leaf = request, leaf
        self._path = [queue.path for queue in sums.tree.above(leaf)]
        self._left: dict[str, list[Candidate]] = {}
        self._keys: dict[str, TurnKey] = {}
        self._failure: PolicyFailure | None = None
        self._most = 0  # the highest stage that was named

    def plan(
        self,
        sets: Iterable[Sequence[Candidate]],
        fits: Fits,
        going: Iterable[str] = (),
        own: Iterable[str] = (),
    ) -> Plan:
        """The victims among the first of *sets* that would do; none if none would, or are needed.

        *going* are the uids of pods that are on their way out, and *own* those of the request: what
        they claim is for it.
        """
        plan = Plan()
        with self._sums.trial(), self._shares.trial():
            for uid in going:
                self._sums.suppose(uid, None)
            self._sums.disclaim(own)
            self._shares.pass_up(self._hooks, self._sums)
            may_go_first: dict[_Kind, bool] = {}
            for candidates in sets:
                if self._may_begin(candidates, may_go_first):
                    self._left, self._most = {}, 0
                    for one in sorted(candidates, key=lambda one: one.order):
                        self._left.setdefault(one.queue, []).append(one)
                    plan = self._taken(fits)
                if plan.victims:
                    self._spare(plan, fits)
                if plan.victims or self._failure is not None:
                    break
        plan.failure = self._failure
        return plan

    def _may_begin(self, candidates: Sequence[Candidate], known: dict[_Kind, bool]) -> bool:
        """True if one of *candidates* may go while all others stay: else none ever goes.

        *known* has the kinds that were asked about, and gets those that are now.
        """
        kinds = {(one.queue, one.giver): one for one in candidates}
        if any(known.get(kind) for kind in kinds):
            return True
        unknown = [one for kind, one in kinds.items() if kind not in known]
        for first in range(0, len(unknown), _CHUNK):
            some = unknown[first : first + _CHUNK]
            for one, answer in zip(some, self._asked(some), strict=True):
                known[one.queue, one.giver] = answer is not None
            if any(known[one.queue, one.giver] for one in some):
                return True
        return False

    def _taken(self, fits: Fits) -> Plan:
        plan, stage, look_at = Plan(), 0, 0
        while True:
            # Looking for nodes takes longer than anything else: it is tried after one, two, four.
            if len(plan.victims) >= look_at and self._may_start():
                if fits(plan.victims):
                    return plan
                look_at = max(1, 2 * len(plan.victims))
            found = self._next(stage)
            if found is None and self._failure is None and stage < self._most:
                stage += 1
                continue
            if found is None or len(plan.victims) >= _MOST_VICTIMS:
                # What is there may do, if it was not looked at last.
                if len(plan.victims) < look_at and self._may_start() and fits(plan.victims):
                    return plan
                for one in plan.victims:
                    self._come_back(one)
                return Plan(allowed=len(plan.victims))
            candidate, at = found
            self._left[candidate.queue].remove(candidate)
            self._go(candidate)
            plan.victims.append(candidate)
            plan.stages.append(at)

    def _spare(self, plan: Plan, fits: Fits) -> None:
        """Keep those that are not needed, or may not be taken with the others gone."""
        stages = dict(zip(plan.victims, plan.stages, strict=True))
        by_importance = sorted(plan.victims, key=lambda one: one.order, reverse=True)
        going = list(plan.victims)
        for one in by_importance:
            if one in going:
                going = self._without(one, going, fits) or going
        illegal = self._illegal(going)
        if illegal is not None:
            going = self._without(illegal, going, fits) or []
        plan.victims, plan.stages = going, [stages[one] for one in going]

    def _without(
        self, one: Candidate, going: Sequence[Candidate], fits: Fits
    ) -> list[Candidate] | None:
        """*going* without *one*, and without those that may not be taken then.

        None, with the sums as they were, if that is not enough.
        """
        rest, back = list(going), list[Candidate]()
        illegal: Candidate | None = one
        while illegal is not None:
            self._come_back(illegal)
            back.append(illegal)
            rest.remove(illegal)
            if not (rest and self._may_start() and fits(rest)):
                for other in back:
                    self._go(other)
                return None
            illegal = self._illegal(rest)
        return rest

    def _illegal(self, victims: Sequence[Candidate]) -> Candidate | None:
        """The first that may not be taken with all the others gone."""
        for one in victims:
            self._come_back(one)
            (answer,) = self._asked([one])
            self._go(one)
            if answer is None:
                return one
        return None

    # --- questions ---------------------------------------------------------------------------

    def _may_start(self) -> bool:
        if not self._hooks.has("admit"):
            return True
        answer = self._hooks.admit(self._request, self._views(self._path))
        if isinstance(answer, PolicyFailure):
            self._failure = answer
        return answer is None

    def _next(self, stage: int) -> tuple[Candidate, int] | None:
        """The one that gives next, of those that may be taken at *stage* at most."""
        for queues in self._in_order():
            heads = [one for queue in queues for one in self._kinds(queue)]
            for one, answer in zip(heads, self._asked(heads), strict=True):
                if answer is not None and answer <= stage:
                    return one, answer
                self._most = max(self._most, answer or 0)
        return None

    def _kinds(self, queue: str) -> Iterator[Candidate]:
        """Of each kind of candidates of a queue the first: the others are the same to hooks."""
        seen = set[Giver]()
        for one in self._left[queue]:
            if one.giver not in seen:
                seen.add(one.giver)
                yield one

    def _in_order(self) -> Iterator[Sequence[str]]:
        """The queues that have candidates, those that give next first, a few at a time."""
        queues = [queue for queue, left in self._left.items() if left]
        self._ask_keys(queues)
        queues.sort(key=lambda queue: (self._order(queue), self._left[queue][0].order, queue))
        for first in range(0, len(queues), _CHUNK):
            yield queues[first : first + _CHUNK]

    def _order(self, queue: str) -> tuple[TurnKey, ...]:
        return tuple(self._keys.get(path, ()) for path in reversed(_line(queue)))

    def _ask_keys(self, queues: Sequence[str]) -> None:
        if not self._hooks.has("giver_key"):
            return
        paths = sorted({path for queue in queues for path in _line(queue)})
        views = [self._views([one.path for one in self._sums.tree.above(path)]) for path in paths]
        taker = self._taker("giver_key", ROOT)
        found = self._hooks.giver_keys(
            [self._hooks.giver_question(line, taker, self._total) for line in views]
        )
        for path, key in zip(paths, found, strict=True):
            if isinstance(key, PolicyFailure):
                self._failure = key
            else:
                self._keys[path] = key

    def _asked(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """The stage of each, or None where it may not be taken."""
        self._check()
        questions, takers = [], dict[str, Taker]()
        for one in candidates:
            common = self._common(one.queue)
            line = [queue.path for queue in self._sums.tree.above(one.queue)]
            if common not in takers:
                takers[common] = self._taker("reclaim", common)
            questions.append(
                self._hooks.reclaim_question(
                    takers[common],
                    one.giver,
                    self._views(line),
                    branch=line.index(common) or len(line),
                    total=self._total,
                )
            )
        found = []
        for answer in self._hooks.stages(questions):
            if isinstance(answer, PolicyFailure):
                self._failure = answer
            found.append(None if isinstance(answer, PolicyFailure) else answer)
        return found

    def _taker(self, hook: str, common: str) -> Taker:
        below = self._path.index(common)
        return self._hooks.taker(
            hook, self._request, self._views(self._path), branch=below or len(self._path)
        )

    def _common(self, queue: str) -> str:
        """The lowest queue that both are under; of two pods of one queue that queue itself."""
        there = set(self._path)
        return next(one.path for one in self._sums.tree.above(queue) if one.path in there)

    def _views(self, paths: Sequence[str]) -> list[QueueView]:
        return [self._shares.view(path, self._sums) for path in paths]

    # --- what would be -----------------------------------------------------------------------

    def _go(self, candidate: Candidate) -> None:
        for uid in candidate.uids:
            self._sums.suppose(uid, None)
        self._shares.pass_up(self._hooks, self._sums)

    def _come_back(self, candidate: Candidate) -> None:
        for uid in candidate.uids:
            self._sums.give_back(uid)
        self._shares.pass_up(self._hooks, self._sums)


def _line(queue: str) -> list[str]:
    """The queue and those above it, the root aside."""
    parts = queue.split("/")
    return ["/".join(parts[: n + 1]) for n in reversed(range(len(parts)))]
