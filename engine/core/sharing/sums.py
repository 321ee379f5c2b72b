"""What belongs to each queue: exact sums over its pods, and over those of the queues below it.

Owns the sums. A change of one pod is added to its queue and to each above it. What was added for a
pod is remembered and taken away as it was: a pod whose label, amounts or queue change is never
computed twice from what it is now.

    waiting --placed--> allocated --being deleted or evicted--> leaving --gone--> (nothing)
       |                    ^
       '--victims go for it--> claimed

`requested` is waiting plus allocated, so it changes when a pod comes or goes and not when it is
placed. `claimed` is of waiting ones, `leaving` and `nonpreemptible` of allocated ones.
"""

import contextlib
import copy
import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from engine.core.sharing.amounts import LARGEST, Amounts
from engine.core.sharing.tree import QueueTree


class PodPhase(enum.StrEnum):
    """Where a pod of a queue stands."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    ALLOCATED = "allocated"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a pod adds to its queue.

    Attributes:
        queue: The path of the queue; a leaf's, unless its pods are to count in another.
        phase: Where it stands.
        amounts: What it requests.
        is_preemptible: False: its queue does not give it back.
    """

    queue: str
    phase: PodPhase
    amounts: Amounts
    is_preemptible: bool = True


#: The sums, and in which phases a pod counts in each.
VECTORS: Final[Mapping[str, frozenset[PodPhase]]] = {
    "waiting": frozenset({PodPhase.WAITING, PodPhase.CLAIMED}),
    "claimed": frozenset({PodPhase.CLAIMED}),
    "allocated": frozenset({PodPhase.ALLOCATED, PodPhase.LEAVING}),
    "leaving": frozenset({PodPhase.LEAVING}),
    "requested": frozenset(PodPhase),
}
# How many pods there are is an amount as any other: quotas may limit it.
_ONE_POD: Final = (("pods", 1),)

# What pods request that are alike in that.
_Kind: TypeAlias = tuple[tuple[str, int], ...]

#: As `allocated`, of pods that are not preemptible.
NONPREEMPTIBLE: Final = "nonpreemptible"

# The sums in which a pod counts, by its phase and if it is preemptible.
_COUNTED_IN: Final[Mapping[tuple[PodPhase, bool], frozenset[str]]] = {
    (phase, is_preemptible): frozenset(
        {name for name, phases in VECTORS.items() if phase in phases}
        | ({NONPREEMPTIBLE} if phase in VECTORS["allocated"] and not is_preemptible else set())
    )
    for phase in PodPhase
    for is_preemptible in (True, False)
}


@dataclass(slots=True)
class Sums:
    """The sums of one queue, those below it included.

    Attributes:
        vectors: By name (`VECTORS` and `NONPREEMPTIBLE`), amounts by resource; none is 0.
        pods: How many pods it has in each phase.
    """

    vectors: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {} for name in (*VECTORS, NONPREEMPTIBLE)}
    )
    pods: dict[PodPhase, int] = field(default_factory=lambda: dict.fromkeys(PodPhase, 0))

    def copy(self) -> "Sums":
        """The same sums, which change by themselves."""
        return Sums({name: one.copy() for name, one in self.vectors.items()}, self.pods.copy())

    def of(self, vector: str) -> dict[str, int]:
        """The amounts of *vector*, as large as amounts get; a copy."""
        return {r: min(amount, LARGEST) for r, amount in self.vectors[vector].items()}

    @property
    def pod_count(self) -> int:
        """How many pods it has in all."""
        return sum(self.pods.values())


class QueueSums:
    """The sums of every queue of a tree.

    A pod of a queue that is not in the tree counts in none; it does when a tree has the queue.
    """

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        self._pods: dict[str, Contribution] = {}
        self._sums: dict[str, Sums] = {path: Sums() for path in tree.queues}
        #: The queues whose sums have changed since `take_changed`.
        self.changed: set[str] = set(self._sums)
        self._moved: set[str] = set()
        self._gone: dict[str, Contribution] = {}
        #: What became free in each queue, added up over time, and in the queues below it.
        self.freed: dict[str, dict[str, int]] = {}
        # How many pods of each queue itself wait, by what one of them requests.
        self._waiting: dict[str, dict[_Kind, int]] = {}

    def copy(self) -> "QueueSums":
        """The same for another thread, whatever becomes of the original."""
        made = copy.copy(self)
        made._gone = {}
        made._pods = self._pods.copy()
        made._sums = {path: sums.copy() for path, sums in self._sums.items()}
        made.changed, made._moved = self.changed.copy(), self._moved.copy()
        made.freed = {path: amounts.copy() for path, amounts in self.freed.items()}
        made._waiting = {path: kinds.copy() for path, kinds in self._waiting.items()}
        return made

    @property
    def tree(self) -> QueueTree:
        """The tree that they are of."""
        return self._tree

    def __len__(self) -> int:
        """How many pods add something."""
        return len(self._pods)

    def __getitem__(self, path: str) -> Sums:
        """The sums of the queue of *path*. Raises KeyError if there is none."""
        return self._sums[path]

    def contribution(self, uid: str) -> Contribution | None:
        """What the pod of *uid* adds; None if it is in no queue."""
        return self._pods.get(uid)

    def contributions(self) -> Iterator[tuple[str, Contribution]]:
        """What each pod adds, by uid."""
        return iter(self._pods.items())

    def pods_of(self, path: str) -> Iterator[tuple[str, Contribution]]:
        """The pods of the queue of *path* itself, by uid; not of those below it."""
        return ((uid, one) for uid, one in self._pods.items() if one.queue == path)

    def put(self, uid: str, contribution: Contribution | None) -> None:
        """Have the pod of *uid* add *contribution* from now on, or nothing.

        Costs one addition for each level, vector and resource.
        """
        before = self._pods.get(uid)
        if before == contribution:
            return
        self._pods.pop(uid, None)
        stays = _stays(before, contribution)
        if before is not None:
            self._add(before, -1, stays)
            if before.phase in VECTORS["allocated"]:
                self._free(before, contribution)
        if contribution is not None:
            self._pods[uid] = contribution
            self._add(contribution, 1, stays)

    def take_changed(self) -> set[str]:
        """The paths of the queues whose sums have changed since this was asked last."""
        changed, self.changed = self.changed, set()
        return changed

    @property
    def has_moved(self) -> bool:
        """True if `take_moved` would name a queue."""
        return bool(self._moved)

    def take_moved(self) -> set[str]:
        """As `take_changed`, for another reader."""
        moved, self._moved = self._moved, set()
        return moved

    def waits_for_at_most(self, path: str, resource: str, amount: int) -> bool:
        """True if a pod waits in the queue, or below it, that wants *resource*, and no more of it.

        Costs a look at each kind of pods that wait there, until there is one.
        """
        if resource not in self._sums[path].vectors["waiting"]:
            return False
        kinds = self._waiting.get(path, ())
        if any(name == resource and 0 < one <= amount for kind in kinds for name, one in kind):
            return True
        below = self._tree.queues[path].children
        return any(self.waits_for_at_most(child, resource, amount) for child in below)

    # --- what would be -----------------------------------------------------------------------

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Inside, pods may be supposed to add something else; in the end all is as it was."""
        changed, moved = set(self.changed), set(self._moved)
        freed = {path: dict(amounts) for path, amounts in self.freed.items()}
        self._gone = {}
        try:
            yield
        finally:
            for uid in list(self._gone):
                self.give_back(uid)
            self.changed, self._moved, self.freed = changed, moved, freed

    def suppose(self, uid: str, contribution: Contribution | None) -> None:
        """Have the pod of *uid* add this, or nothing, in a trial."""
        found = self._gone.get(uid) or self._pods.get(uid)
        if found is not None:
            self._gone[uid] = found
            self.put(uid, contribution)

    def disclaim(self, uids: Iterable[str]) -> None:
        """Have the pods of *uids* wait that claim something, in a trial."""
        for uid in uids:
            found = self._pods.get(uid)
            if found is not None and found.phase is PodPhase.CLAIMED:
                self.suppose(uid, replace(found, phase=PodPhase.WAITING))

    def give_back(self, uid: str) -> None:
        """Have the pod of *uid* add what it does again."""
        found = self._gone.pop(uid, None)
        if found is not None:
            self.put(uid, found)

    def use(self, tree: QueueTree) -> None:
        """Sum up by *tree* from now on: the same pods, in its queues."""
        before, self._tree = self._tree, tree
        if before.queues.keys() == tree.queues.keys():
            return  # only attributes differ
        self.changed = set(tree.queues)
        self.freed.clear()
        self._waiting.clear()
        self._sums = {path: Sums() for path in tree.queues}
        for one in self._pods.values():
            self._add(one, 1)

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless the sums are those of the pods, computed again."""
        again = QueueSums(self._tree)
        for uid, one in self._pods.items():
            again.put(uid, one)
        assert again._sums == self._sums, "sums of queues are not those of their pods"
        assert again._waiting == self._waiting, "kinds of pods that wait are not those of the pods"
        for path, queue in self._tree.queues.items():
            own = Sums()
            for _, one in self.pods_of(path):
                _count(own, one, 1, _COUNTED_IN[one.phase, one.is_preemptible])
            below = [self._sums[child] for child in queue.children]
            for name, amounts in self._sums[path].vectors.items():
                parts = [own.vectors[name], *(one.vectors[name] for one in below)]
                for resource, amount in amounts.items():
                    total = sum(part.get(resource, 0) for part in parts)
                    assert amount == total, f"{path or 'root'}: {name} of {resource}"

    def _free(self, before: Contribution, after: Contribution | None) -> None:
        """Count what *before* held and *after* does not as free."""
        if before.queue not in self._sums:
            return
        kept = _holds(after, before.queue)
        at: str | None = before.queue
        while at is not None:
            freed = self.freed.setdefault(at, {})
            for resource, amount in itertools.chain(before.amounts.items(), _ONE_POD):
                if amount > (left := kept.get(resource, 0)):
                    freed[resource] = freed.get(resource, 0) + amount - left
            at = self._tree.queues[at].parent

    def _add(self, one: Contribution, sign: int, stays: Collection[str] = ()) -> None:
        """Add *one*, or take it away where *sign* is -1, but for the vectors that it *stays* in."""
        if one.queue not in self._sums:
            return
        if one.phase in VECTORS["waiting"]:
            self._add_waiting(one, sign)
        names = _COUNTED_IN[one.phase, one.is_preemptible].difference(stays)
        at: str | None = one.queue
        while at is not None:
            _count(self._sums[at], one, sign, names)
            self.changed.add(at)
            self._moved.add(at)
            at = self._tree.queues[at].parent

    def _add_waiting(self, one: Contribution, sign: int) -> None:
        kinds = self._waiting.setdefault(one.queue, {})
        kind = (*sorted(one.amounts.items()), *_ONE_POD)
        count = kinds.get(kind, 0) + sign
        if count:
            kinds[kind] = count
            return
        kinds.pop(kind, None)
        if not kinds:
            del self._waiting[one.queue]


def _holds(one: Contribution | None, queue: str) -> Mapping[str, int]:
    """What the pod holds in *queue*, or in one below it: its own, and no queue above that."""
    is_there = one is not None and one.phase in VECTORS["allocated"] and one.queue == queue
    return dict(itertools.chain(one.amounts.items(), _ONE_POD)) if one and is_there else {}


def _stays(before: Contribution | None, after: Contribution | None) -> Collection[str]:
    """The vectors in which a pod adds the same after as before."""
    if before is None or after is None:
        return ()
    if (before.queue, before.amounts) != (after.queue, after.amounts):
        return ()
    return (
        _COUNTED_IN[before.phase, before.is_preemptible]
        & _COUNTED_IN[after.phase, after.is_preemptible]
    )


def _count(sums: Sums, one: Contribution, sign: int, names: Iterable[str]) -> None:
    """Add *one* to the vectors of these *names*, or take it away where *sign* is -1."""
    sums.pods[one.phase] += sign
    for name in names:
        vector = sums.vectors[name]
        for resource, amount in itertools.chain(one.amounts.items(), _ONE_POD):
            # Kept without a bound: what is beyond it has to be there when the pod goes.
            total = vector.get(resource, 0) + sign * amount
            if total:
                vector[resource] = total
            else:
                vector.pop(resource, None)
