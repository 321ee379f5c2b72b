"""What the queues of a tree pass up, and their shares: asked again where something has changed.

Owns the order of the questions: what is passed up from the leaves to the root, then shares from
the root to the leaves, all queues of one level in one round trip. A question that is the same as
before is not asked. When it is time to ask is the kernel's.
"""

import contextlib
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from engine.core.scheduling.tree_hooks import QueueView, TreeHooks, Vectors
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.sums import QueueSums
from engine.core.sharing.tree import ROOT, Queue, QueueTree
from engine.core.sharing.usage import Usage
from engine.policy.evaluator import PolicyFailure

#: In place of a resource in what has changed of a queue.
ATTRIBUTES: Final = "*"

# So many queues are named in a problem.
_MOST_NAMED: Final = 3


@dataclass(slots=True)
class Span:
    """For how long something has held in all; `since` when it does now."""

    seconds: float = 0.0
    since: float | None = None

    def follow(self, holds: bool, now: float) -> None:
        """It holds from now on, or not."""
        if self.since is not None and not holds:
            self.seconds += now - self.since
            self.since = None
        elif self.since is None and holds:
            self.since = now

    def until(self, now: float) -> float:
        """Seconds, with those of now."""
        return self.seconds if self.since is None else self.seconds + now - self.since


@dataclass(slots=True)
class Standing:
    """How a queue stands, its sums aside.

    Attributes:
        up: What the queues right below it passed up, summed by name.
        passed: What it passed up itself.
        share: What it may have; None: no policy says.
        asked: The question that gave the shares of the queues below it.
        asked_up: The question that gave `passed`.
        lacks: The resources of which it has so much less than its share that the smallest pod which
            waits for it would fit into that.
        starving: It lacks something.
        borrowing: It has more than its share of something.
    """

    up: dict[str, dict[str, int]] = field(default_factory=dict)
    passed: Vectors = field(default_factory=dict)
    share: Amounts | None = None
    asked: bytes = b""
    asked_up: bytes = b""
    lacks: frozenset[str] = frozenset()
    starving: Span = field(default_factory=Span)
    borrowing: Span = field(default_factory=Span)


class TreeShares:
    """What is passed up and shared in one tree.

    Attributes:
        wrong: What is wrong with answers of the policy, by what it is about.
        failures: Hooks that gave none, by hook and queue.
        usage: What queues used in the past; None: it is not kept.
    """

    def __init__(self) -> None:
        self.wrong: dict[str, str] = {}
        self.failures: dict[tuple[str, str], PolicyFailure] = {}
        self.usage: Usage | None = None
        #: The queues whose share, attributes, or what is passed up to them, has changed since it
        #: was taken; each with the resources of which its share has grown, and `ATTRIBUTES`.
        self.changed: dict[str, set[str]] = {}
        self._standing: dict[str, Standing] = {}
        # Of which nothing was passed up since they changed; and for which no shares were computed.
        self._unpassed: set[str] = set()
        self._dirty: set[str] = set()
        # Of queues of the tree before, until one of the path is there.
        self._spans: dict[str, tuple[Span, Span]] = {}
        # How queues stood before a trial; None: there is none.
        self._before: dict[str, tuple[dict[str, dict[str, int]], Vectors, bytes]] | None = None

    def __getitem__(self, path: str) -> Standing:
        """How the queue of *path* stands."""
        return self._standing[path]

    @property
    def is_dirty(self) -> bool:
        """True if something has changed since it was computed, sums aside."""
        return bool(self._dirty or self._unpassed)

    def copy(self) -> "TreeShares":
        """The same for another thread, whatever becomes of the original; without spans."""
        made = copy.copy(self)
        made.wrong, made.failures = dict(self.wrong), dict(self.failures)
        made.changed = {}
        made._unpassed, made._dirty = set(self._unpassed), set(self._dirty)
        # Constructed by hand: `replace` takes five times as long, and decisions wait meanwhile.
        made._standing = {
            path: Standing(
                {name: dict(vector) for name, vector in one.up.items()},
                one.passed,
                one.share,
                one.asked,
                one.asked_up,
                one.lacks,
            )
            for path, one in self._standing.items()
        }
        return made

    def mark(self, path: str) -> None:
        """Something about this queue has changed that its sums do not show."""
        self._unpassed.add(path)

    def clear(self, now: float) -> None:
        """Forget everything at *now*, but for how long queues starved and borrowed.

        Queues of the next tree that have the same paths go on with it.
        """
        self._spans = {
            path: (Span(one.starving.until(now)), Span(one.borrowing.until(now)))
            for path, one in self._standing.items()
        }
        self.wrong.clear()
        self.failures.clear()
        for kept in (self.changed, self._standing, self._unpassed, self._dirty):
            kept.clear()

    def use(self, before: QueueTree, tree: QueueTree) -> None:
        """Follow *tree*, which takes the place of *before*."""
        kept, self._standing = self._standing, {}
        for path, queue in tree.queues.items():
            self._standing[path] = kept.get(path) or self._new(path)
            if path not in kept or before.queues[path].attributes != queue.attributes:
                self._unpassed.add(path)
                self.changed.setdefault(path, set()).add(ATTRIBUTES)
        for path, queue in tree.queues.items():
            if path in before.queues and queue.children != before.queues[path].children:
                self._pass_up_again(queue)

    def _new(self, path: str) -> Standing:
        starving, borrowing = self._spans.pop(path, (Span(), Span()))
        return Standing(starving=starving, borrowing=borrowing)

    def pass_up(self, hooks: TreeHooks, sums: QueueSums) -> None:
        """Ask what is passed up by queues that have changed; shares stay as they are."""
        dirty = (self._unpassed | sums.take_changed()) & self._standing.keys()
        self._unpassed = set()
        self._pass_up(hooks, sums, dirty)
        self._dirty |= dirty

    def compute(self, hooks: TreeHooks, sums: QueueSums, total: Amounts, now: float) -> None:
        """Ask for all that may have changed; *total* is what is divided at the root."""
        self.pass_up(hooks, sums)
        dirty, self._dirty = self._dirty & self._standing.keys(), set()
        self._set_share(ROOT, total)
        self._share(hooks, sums, dirty)
        for path in dirty:
            self._judge(path, sums, now)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Inside, what is passed up may be asked of other sums; in the end all is as it was."""
        kept = (self._unpassed, self._dirty, self.changed, self.failures, self.wrong)
        self._unpassed, self._dirty, self.changed = set(), set(), {}
        self.failures, self.wrong = dict(self.failures), dict(self.wrong)
        self._before = {}
        try:
            yield
        finally:
            for path, (up, passed, asked_up) in self._before.items():
                standing = self._standing[path]
                standing.up, standing.passed, standing.asked_up = up, passed, asked_up
            self._before = None
            self._unpassed, self._dirty, self.changed, self.failures, self.wrong = kept

    def _keep(self, path: str) -> None:
        """Remember how the queue stood, in a trial."""
        if self._before is not None and path not in self._before:
            standing = self._standing[path]
            up = {name: dict(vector) for name, vector in standing.up.items()}
            self._before[path] = (up, standing.passed, standing.asked_up)

    def _set_share(self, path: str, share: Amounts) -> bool:
        """Give the queue its share; True if that is another one than before."""
        standing = self._standing[path]
        before = standing.share
        if before == share:
            return False
        standing.share = dict(share)
        grown = self.changed.setdefault(path, set())
        grown |= {r for r, amount in share.items() if before is None or amount > before.get(r, 0)}
        return True

    def _pass_up_again(self, queue: Queue) -> None:
        """Sum up what the queues below *queue* have passed, which are others than before."""
        up: dict[str, dict[str, int]] = {}
        for child in queue.children:
            for name, vector in self._standing[child].passed.items():
                add(up.setdefault(name, {}), vector, 1)
        self._standing[queue.path].up = up
        self._unpassed.add(queue.path)

    def _pass_up(self, hooks: TreeHooks, sums: QueueSums, dirty: set[str]) -> None:
        """Ask what *dirty* queues pass up, from the leaves; those that it changes join them."""
        if not hooks.has("passes_up"):
            return
        for level in range(max(map(_depth, dirty), default=0), 0, -1):
            asked = {
                path: hooks.passes_up_question(self.view(path, sums))
                for path in sorted(path for path in dirty if _depth(path) == level)
            }
            fresh = {p: q for p, q in asked.items() if q != self._standing[p].asked_up}
            for path, answer in zip(fresh, hooks.passes_up(list(fresh.values())), strict=True):
                if isinstance(answer, PolicyFailure):
                    self._failed("passes_up", path, answer)
                    continue
                self.note_failure("passes_up", path, None)
                self._keep(path)
                standing = self._standing[path]
                standing.asked_up = fresh[path]
                if answer == standing.passed:
                    continue
                parent = sums.tree.queues[path].parent
                assert parent is not None, "the root passes nothing up"
                self._keep(parent)
                up = self._standing[parent].up
                for sign, vectors in ((-1, standing.passed), (1, answer)):
                    for name, vector in vectors.items():
                        add(up.setdefault(name, {}), vector, sign)
                standing.passed = answer
                dirty.add(parent)
                self.changed.setdefault(parent, set())

    def _share(self, hooks: TreeHooks, sums: QueueSums, dirty: set[str]) -> None:
        """Ask for the shares of queues under those of which something has changed."""
        if not hooks.has("shares"):
            return
        queues = sums.tree.queues
        to_ask = {queues[path].parent for path in dirty} | dirty
        parents = {path for path in to_ask if path is not None}
        for level in itertools.count():
            if not parents:
                return
            of_level = sorted(path for path in parents if _depth(path) == level)
            parents.difference_update(of_level)
            of_level = [path for path in of_level if queues[path].children]
            questions = {path: self._question(hooks, sums, path) for path in of_level}
            fresh = {p: q for p, q in questions.items() if q != self._standing[p].asked}
            for path, answer in zip(fresh, hooks.shares(list(fresh.values())), strict=True):
                if isinstance(answer, PolicyFailure):
                    self._failed("shares", path, answer)
                    continue
                self.note_failure("shares", path, None)
                self._standing[path].asked = fresh[path]
                self._give(queues[path], answer, dirty, parents)

    def _give(self, parent: Queue, answer: Vectors, dirty: set[str], parents: set[str]) -> None:
        """Give the queues under *parent* their shares; those to ask next go to *parents*."""
        children = {path.rpartition("/")[2]: path for path in parent.children}
        wrong = [
            *_named("gives nothing to", [name for name in children if name not in answer]),
            *_named("gives a share to", [name for name in answer if name not in children]),
        ]
        of = f"`{parent.path}`" if parent.path else "the root"
        self._note(
            f"shares {parent.path}", f"shares() of {of} {' and '.join(wrong)}" if wrong else ""
        )
        for name, path in children.items():
            if self._set_share(path, answer.get(name, {})):
                dirty.add(path)
                parents.add(path)

    def _question(self, hooks: TreeHooks, sums: QueueSums, path: str) -> bytes:
        children = [self.view(child, sums) for child in sums.tree.queues[path].children]
        return hooks.shares_question(self.view(path, sums), children)

    def note_failure(self, hook: str, path: str, failure: PolicyFailure | None) -> None:
        """Keep that *hook* failed for the queue of *path*; None: it does not any more."""
        if failure is None:
            self.failures.pop((hook, path), None)
        else:
            self.failures[hook, path] = failure

    @property
    def problems(self) -> list[str]:
        """What is wrong, for people."""
        failed = sorted(self.failures.items(), key=lambda one: one[0])
        texts = [f"queue `{path or 'root'}`: {failure}" for (_, path), failure in failed]
        return [*texts, *(text for _, text in sorted(self.wrong.items()))]

    def _failed(self, hook: str, path: str, failure: PolicyFailure) -> None:
        self.note_failure(hook, path, failure)
        if failure.is_transient:
            self._unpassed.add(path)

    def view(self, path: str, sums: QueueSums) -> QueueView:
        """The queue of *path* as hooks see it."""
        standing, own = self._standing[path], sums[path]
        return QueueView(
            sums.tree.queues[path],
            own,
            standing.up,
            standing.share or {},
            own.vectors["claimed"].copy(),
            {} if self.usage is None else self.usage[path],
        )

    def _judge(self, path: str, sums: QueueSums, now: float) -> None:
        """Follow if the queue has less than its share, or more, from now on.

        Not of the root, which has no others that could give or take.
        """
        standing = self._standing[path]
        if standing.share is None or path == ROOT:
            return
        has = sums[path].vectors["allocated"]
        # Whole pods seldom use a share to its end: what is too little for any is not waited for.
        standing.lacks = frozenset(
            r
            for r, amount in standing.share.items()
            if amount > has.get(r, 0) and sums.waits_for_at_most(path, r, amount - has.get(r, 0))
        )
        standing.starving.follow(bool(standing.lacks), now)
        standing.borrowing.follow(
            any(amount > standing.share[r] for r, amount in has.items() if r in standing.share),
            now,
        )

    def _note(self, name: str, problem: str) -> None:
        """Keep *problem*, or forget the one of this *name*."""
        if problem:
            self.wrong[name] = problem
        else:
            self.wrong.pop(name, None)


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0


def _named(what: str, names: list[str]) -> list[str]:
    listed = ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])
    return [f"{what} {listed}"] if names else []
