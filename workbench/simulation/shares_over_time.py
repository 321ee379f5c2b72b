"""What the queues of a tree had over the time of a simulation, and what they deserved.

Owns the measures. What a queue *deserves* is one yardstick for all policies: what its parent
deserves, divided by weight among the queues that want some of it at that moment. A policy may
aim at something else; then its shares differ from it.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from engine.core.kernel.kernel import Kernel
from engine.core.sharing.divide import Entry, divide
from engine.core.sharing.tree import ROOT, QueueTree

#: Queues are followed down to this level, and so many of them at most.
DEEPEST: Final = 2
MOST: Final = 200


class QueueStep(msgspec.Struct, frozen=True):
    """A queue at a moment, with those below it: amounts by resource, millicores for cpu.

    `share` is what its policy gave it; null if it gave nothing. Of the root, what nodes offer.
    """

    allocated: Mapping[str, int]
    requested: Mapping[str, int]
    share: Mapping[str, int] | None


class QueueLife(msgspec.Struct, frozen=True):
    """A pod and its queue; `waited` is seconds until it had a node, null if it got none."""

    queue: str
    waited: float | None
    evictions: int


class QueueUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue had of a resource, on average over time.

    Attributes:
        queue: Its path.
        arrived, placed: Its pods, and those that got a node.
        evictions: How often pods of it were evicted.
        mean, deserved: What it had, and what it deserved.
        share: What its policy gave it; null if it gave nothing.
        error: How far it was from what it deserved, of all there is: 0..1.
        starved_seconds: For how long it had less than it deserved.
        waits: Seconds until a node: the median, and the 95th percentile.
    """

    queue: str
    arrived: int
    placed: int
    evictions: int
    mean: float
    deserved: float
    share: float | None
    error: float
    starved_seconds: float
    waits: tuple[float, float]


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the queues of one level had of one resource.

    Attributes:
        policy: The one that governs the queues.
        resource: Which; of cpu amounts are millicores.
        level: Below the root; 1 is right below it.
        error: The sum of what each queue was away from what it deserved, over time, of all there
            is: 0 if each had what it deserved all the time, 2 at most.
        queues: By path.
        left_out: Queues of the level that were not followed.
        reversals: How often one queue took back from another what that had just taken from it.
    """

    policy: str
    resource: str
    level: int
    error: float
    queues: tuple[QueueUse, ...]
    left_out: int = 0
    reversals: int = 0


class QueueRecorder:
    """Takes how the queues of a kernel stand, again and again."""

    def __init__(self) -> None:
        self._last: dict[str, QueueStep] = {}
        self._paths: tuple[QueueTree, list[str]] | None = None

    def take(self, kernel: Kernel) -> Mapping[str, QueueStep]:
        """The queues as they are, by path, the root too; empty without a tree."""
        if not kernel.shares.is_on:
            return {}
        found = {}
        for path in self._followed(kernel.shares.tree):
            state = kernel.shares.state(path)
            vectors, share = state.sums.vectors, state.standing.share
            last = self._last.get(path)
            if (
                last is None
                or last.allocated != vectors["allocated"]
                or last.requested != vectors["requested"]
                or last.share != share
            ):
                kept = None if share is None else dict(share)
                last = QueueStep(dict(vectors["allocated"]), dict(vectors["requested"]), kept)
            found[path] = last
        self._last = found
        return found

    def _followed(self, tree: QueueTree) -> list[str]:
        """The paths that are followed: those nearest to the root first."""
        if self._paths is None or self._paths[0] is not tree:
            near = [path for path in tree.queues if level_of(path) <= DEEPEST]
            near.sort(key=level_of)
            self._paths = tree, near[:MOST]
        return self._paths[1]


def level_of(path: str) -> int:
    """How far below the root a queue is."""
    return path.count("/") + 1 if path else 0


def weights_of(kernel: Kernel) -> dict[str, int]:
    """The attribute `weight` of each queue, or 1 where there is none above 0."""
    found = {}
    for path, queue in kernel.shares.tree.queues.items():
        weight = queue.attributes.get("weight")
        found[path] = weight if isinstance(weight, int) and weight > 0 else 1
    return found


def deserved(
    queues: Mapping[str, QueueStep], resource: str, weights: Mapping[str, int]
) -> dict[str, int]:
    """What each of *queues* deserves of *resource* at a moment, by path."""
    root = queues.get(ROOT)
    found = {ROOT: (root.share or {}).get(resource, 0) if root is not None else 0}
    below: dict[str, list[str]] = defaultdict(list)
    for path in queues:
        if path != ROOT:
            below[path.rpartition("/")[0]].append(path)
    for parent in sorted(below, key=level_of):
        entries = [
            Entry(path, most=queues[path].requested.get(resource, 0), weight=weights.get(path, 1))
            for path in below[parent]
        ]
        found |= divide(found.get(parent, 0), entries)
    return found


def most_wanted(moments: Iterable[Mapping[str, QueueStep]]) -> str:
    """The resource of which most is in use at some moment, of what the nodes offer then."""
    best: dict[str, float] = {}
    for queues in moments:
        root = queues.get(ROOT)
        for name, total in ((root.share or {}) if root is not None else {}).items():
            part = root.allocated.get(name, 0) / total if root is not None and total else 0.0
            best[name] = max(best.get(name, 0.0), part)
    return min(best, key=lambda name: (-best[name], name), default="")


class Curves(msgspec.Struct, frozen=True):
    """A resource over time: what each queue of a level had, and deserved; as long as `times`."""

    times: Sequence[float]
    capacity: int
    used: Mapping[str, Sequence[int]]
    deserved: Mapping[str, Sequence[int]]
    shares: Mapping[str, Sequence[int | None]]


def curves(
    times: Sequence[float],
    moments: Sequence[Mapping[str, QueueStep]],
    *,
    resource: str,
    level: int,
    weights: Mapping[str, int],
) -> Curves:
    """The curves of the queues of *level* that are there at any of *moments*."""
    paths = sorted({path for queues in moments for path in queues if level_of(path) == level})
    right = [deserved(queues, resource, weights) for queues in moments]
    roots = [queues[ROOT].share or {} for queues in moments if ROOT in queues]
    nothing = QueueStep({}, {}, None)
    shares: dict[str, list[int | None]] = {path: [] for path in paths}
    for queues in moments:
        for path in paths:
            share = queues.get(path, nothing).share
            shares[path].append(None if share is None else share.get(resource, 0))
    return Curves(
        times,
        max((root.get(resource, 0) for root in roots), default=0),
        {p: [q.get(p, nothing).allocated.get(resource, 0) for q in moments] for p in paths},
        {p: [one.get(p, 0) for one in right] for p in paths},
        shares,
    )


def queue_report(
    found: Curves,
    lives: Sequence[QueueLife],
    *,
    policy: str,
    resource: str,
    level: int,
    queues: int,
    reversals: int = 0,
) -> QueueReport:
    """The measures of *found*; *queues* is how many the tree has at that level."""
    by_queue: dict[str, list[QueueLife]] = defaultdict(list)
    for life in lives:
        by_queue["/".join(life.queue.split("/")[:level])].append(life)
    capacity = found.capacity or 1
    rows = []
    for path, used in found.used.items():
        right = found.deserved[path]
        away = [abs(a - b) / capacity for a, b in zip(used, right, strict=True)]
        shares = [one for one in found.shares[path] if one is not None]
        of_it = by_queue[path]
        waits = sorted(life.waited for life in of_it if life.waited is not None)
        rows.append(
            QueueUse(
                queue=path,
                arrived=len(of_it),
                placed=len(waits),
                evictions=sum(life.evictions for life in of_it),
                mean=_mean(found.times, used),
                deserved=_mean(found.times, right),
                share=_mean(found.times[-len(shares) :], shares) if shares else None,
                error=_mean(found.times, away),
                starved_seconds=sum(
                    span
                    for span, a, b in zip(_spans(found.times), used, right, strict=False)
                    if a < b
                ),
                waits=(_percentile(waits, 0.5), _percentile(waits, 0.95)),
            )
        )
    return QueueReport(
        policy=policy,
        resource=resource,
        level=level,
        error=sum(row.error for row in rows),
        queues=tuple(rows),
        left_out=max(0, queues - len(rows)),
        reversals=reversals,
    )


def _spans(times: Sequence[float]) -> Iterator[float]:
    return (after - before for before, after in itertools.pairwise(times))


def _mean(times: Sequence[float], values: Sequence[Any]) -> float:
    """The mean over time: a value holds until the next."""
    spans = list(_spans(times))
    total = sum(spans)
    if total <= 0:
        return float(values[-1]) if values else 0.0
    return float(sum(v * s for v, s in zip(values, spans, strict=False)) / total)


def _percentile(values: Sequence[float], part: float) -> float:
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)] if values else 0.0
