"""How the queues of the tree in force stand, as rows, and one queue with its pods.

Owns what is computed of the sums and the shares, the filters and the paging. Made in steps, as the
page of the pods that wait: a tree may have 20,000 queues, and a queue all pods of the cluster.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.core.kernel.kernel import Kernel
from engine.core.kernel.queue_shares import QueueShares, QueueState
from engine.core.model.pod import Pod
from engine.core.model.times import epoch_seconds
from engine.core.sharing.amounts import LARGEST, NOT_DIVIDED, Amounts
from engine.core.sharing.sums import NONPREEMPTIBLE, VECTORS, Contribution, PodPhase
from engine.core.sharing.tree import ROOT
from engine.core.sharing.usage import THOUSANDTHS
from engine.lib.clock import Clock
from engine.lib.printable import counted
from engine.surfaces.live.answers import Leader
from engine.surfaces.live.held_rows import held_requests, next_request, reclaim_rows
from engine.surfaces.live.moments import Moments, at_text
from engine.surfaces.live.share_answers import (
    PodCounts,
    PodInQueue,
    ResourceStanding,
    ShareAnswer,
    ShareRow,
    SharesPage,
)
from engine.surfaces.live.share_pairs import SharePairs
from engine.surfaces.live.slices import Steps, first_of

#: Rows of a page, and pods of a queue, at most and by default.
MOST_ROWS: Final = 10_000
ROWS: Final = 500
MOST_PODS: Final = 1_000
PODS: Final = 100

STARVED: Final = "starved"
BORROWING: Final = "borrowing"
#: What rows can be filtered by in addition to names.
STATES: Final = (STARVED, BORROWING)

_MOST_PAIRS: Final = 50
_MOST_PROBLEMS: Final = 50
_MOST_HELD: Final = 50
_ROWS_PER_STEP: Final = 32
_PODS_PER_STEP: Final = 512
#: Pods in the order in which they are listed: those that something is to become of first.
_PHASES: Final = (PodPhase.CLAIMED, PodPhase.WAITING, PodPhase.LEAVING, PodPhase.ALLOCATED)
_SUMS: Final = (*VECTORS, NONPREEMPTIBLE)

NO_TREE: Final = "The policies in force have no QueueTree: pods are in no queues"
HOW_TO_HAVE_ONE: Final = (
    "put a document `kind: QueueTree` among the policies, with a policy that governs it: "
    "docs/queues.md"
)
_NO_SHARES: Final = "have the policy give some by the hook `shares`: docs/hooks/shares.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFilter:
    """What a page shows; empty fields show everything.

    Attributes:
        queue: A part of the path.
        resource: This resource alone; queues are starved and borrow as far as it goes.
        state: One of `STATES`.
        readable: The namespaces whose pods may be named; None: all.
        offset: Rows before the page.
    """

    queue: str = ""
    resource: str = ""
    state: str = ""
    readable: Collection[str] | None = None
    limit: int = ROWS
    offset: int = 0

    def passes(self, row: ShareRow) -> bool:
        """True if *row* is in the page."""
        return self.queue in row.path and (
            not self.state or (row.is_starved if self.state == STARVED else row.is_borrowing)
        )


@dataclass(slots=True)
class _Tree:
    """What is found while the queues are looked at, one after the other."""

    rows: list[ShareRow] = field(default_factory=list)
    total: int = 0
    starved: int = 0
    borrowing: int = 0
    is_shared: bool = False
    by_parent: dict[str, list[ShareRow]] = field(default_factory=dict)

    def add(self, row: ShareRow, wanted: ShareFilter) -> None:
        """Count one more queue, and keep what is shown of it."""
        self.starved += row.is_starved
        self.borrowing += row.is_borrowing
        if row.path != ROOT:
            self.is_shared = self.is_shared or any(
                one.share is not None for one in row.resources.values()
            )
            if row.is_starved or row.is_borrowing:
                self.by_parent.setdefault(row.path.rpartition("/")[0], []).append(row)
        if wanted.passes(row):
            if wanted.offset <= self.total < wanted.offset + wanted.limit:
                self.rows.append(row)
            self.total += 1


def shares_page(
    kernel: Kernel, wanted: ShareFilter, *, revision: str, leader: Leader, clock: Clock
) -> Steps[SharesPage]:
    """The page of the tree that *wanted* describes."""
    shares = kernel.shares
    if not shares.is_on:
        return SharesPage(
            revision=revision,
            at=at_text(clock.now()),
            leader=leader,
            headline=f"{NO_TREE}.",
            next_step=_sentence(HOW_TO_HAVE_ONE),
        )
    # 1. What stands still, and every queue, to count them; those of the page are kept.
    held = yield from held_requests(kernel.turns, wanted.readable)
    found = _Tree()
    offered = _offered(shares)
    now = clock.monotonic()
    for row in _rows(shares, list(shares.tree.queues), offered, now, held.pods, wanted.resource):
        if row is None:
            yield
        else:
            found.add(row, wanted)
    # 2. Who lacks what others have.
    pairs = SharePairs(offered, _MOST_PAIRS)
    for number, siblings in enumerate(found.by_parent.values()):
        pairs.add(siblings)
        if number % _ROWS_PER_STEP == 0:
            yield
    problems = shares.problems(wanted.readable)
    ends_at = wanted.offset + wanted.limit
    queues = len(shares.tree.queues) - 1
    held_rows = [row for row in held.rows() if wanted.queue in row.queue]
    return SharesPage(
        revision=revision,
        at=at_text(clock.now()),
        leader=leader,
        policy=shares.policy,
        headline=_headline(found, queues, shares.policy),
        next_step="" if found.is_shared or not queues else _sentence(_NO_SHARES),
        problems=tuple(problems[:_MOST_PROBLEMS]),
        problems_left_out=max(0, len(problems) - _MOST_PROBLEMS),
        queues=queues,
        starved=found.starved,
        borrowing=found.borrowing,
        outside=shares.outside,
        resources=tuple(share_row(shares.state(ROOT), offered).resources),
        pairs=pairs.largest,
        pairs_left_out=pairs.left_out,
        held=tuple(held_rows[:_MOST_HELD]),
        held_left_out=max(0, len(held_rows) - _MOST_HELD),
        reclaims=reclaim_rows(kernel.reclaims.latest, Moments(clock), wanted.readable),
        reversals=kernel.reclaims.reversals,
        total=found.total,
        next=str(ends_at) if ends_at < found.total else None,
        rows=tuple(found.rows),
    )


def share_answer(
    kernel: Kernel,
    path: str,
    *,
    revision: str,
    leader: Leader,
    clock: Clock,
    readable: Collection[str] | None = None,
    offset: int = 0,
    limit: int = PODS,
) -> Steps[ShareAnswer]:
    """The queue of *path* with its pods of *readable* namespaces (None: all).

    Raises KeyError if there is no such queue.
    """
    shares = kernel.shares
    shares.state(path)  # there is one, or there is no answer
    held = yield from held_requests(kernel.turns, readable, path)
    offered, now = _offered(shares), clock.monotonic()
    queue = share_row(shares.state(path, now), offered, held=held.pods[path])
    # 1. The queues below it, and those that it is among.
    beside = list(shares.tree.queues[queue.path.rpartition("/")[0]].children) if path else []
    below = list(shares.tree.queues[path].children)
    siblings: list[ShareRow] = []
    children: list[ShareRow] = []
    for paths, rows in ((beside, siblings), (below, children)):
        for row in _rows(shares, paths, offered, now, held.pods):
            if row is None:
                yield
            else:
                rows.append(row)
    pairs = SharePairs(offered, _MOST_PAIRS, about=path)
    pairs.add(siblings)
    yield
    # 2. Its pods.
    pods, hidden = yield from _pods_of(shares, path, readable)
    held_rows = held.rows()
    ends_at = offset + limit
    shown = yield from first_of(pods, _order, offset, ends_at)
    return ShareAnswer(
        revision=revision,
        at=at_text(clock.now()),
        leader=leader,
        policy=shares.policy,
        queue=queue,
        children=tuple(children[:ROWS]),
        children_left_out=max(0, len(children) - ROWS),
        pairs=pairs.largest,
        pairs_left_out=pairs.left_out,
        next_request=next_request(kernel.turns, path, readable),
        held=tuple(held_rows[:_MOST_HELD]),
        held_left_out=max(0, len(held_rows) - _MOST_HELD),
        reclaims=reclaim_rows(kernel.reclaims.latest, Moments(clock), readable, path),
        pods=tuple(_pod_row(pod, added) for pod, added in shown),
        total_pods=len(pods),
        hidden_pods=hidden,
        next=str(ends_at) if ends_at < len(pods) else None,
    )


def share_row(
    state: QueueState, offered: Amounts, resource: str = "", *, held: int = 0
) -> ShareRow:
    """The row of a queue, of which the nodes offer *offered*; of *resource* alone, if given.

    *held* of its pods stand still.
    """
    queue, vectors = state.queue, state.sums.vectors
    names = {*vectors["requested"], *(state.standing.share or {}), *(state.usage or {})}
    resources = {name: _standing(state, name) for name in sorted(names) if resource in ("", name)}
    parts = {
        name: THOUSANDTHS * one.allocated // offered[name]
        for name, one in resources.items()
        if offered.get(name)
    }
    dominant = max(parts, key=lambda name: parts[name], default="")
    counts = {phase.value: number for phase, number in state.sums.pods.items()}
    return ShareRow(
        path=queue.path,
        level=len(queue.path.split("/")) if queue.path else 0,
        is_leaf=queue.is_leaf,
        source=queue.source,
        attributes=queue.attributes,
        pods=PodCounts(**counts),
        resources=resources,
        dominant_share=parts.get(dominant, 0),
        dominant_resource=dominant,
        is_starved=any(one.lacks for one in resources.values()),
        is_borrowing=any(one.borrowed for one in resources.values()),
        starved_seconds=round(state.starved, 3) if queue.path else 0.0,
        borrowed_seconds=round(state.borrowed, 3) if queue.path else 0.0,
        held=held,
    )


def _rows(
    shares: QueueShares,
    paths: Collection[str],
    offered: Amounts,
    now: float,
    held: Mapping[str, int],
    resource: str = "",
) -> Iterator[ShareRow | None]:
    """The rows of *paths*, and None where others may go on."""
    for number, path in enumerate(paths):
        if number % _ROWS_PER_STEP == 0:
            yield None
        try:
            state = shares.state(path, now)
        except KeyError:
            continue  # the tree is another by now
        yield share_row(state, offered, resource, held=held.get(path, 0))


def _standing(state: QueueState, name: str) -> ResourceStanding:
    amounts = {one: min(state.sums.vectors[one].get(name, 0), LARGEST) for one in _SUMS}
    share = (state.standing.share or {}).get(name)
    borrowed = lacks = 0
    if share is not None and state.queue.path != ROOT:
        borrowed = max(0, amounts["allocated"] - share)
        if name in state.standing.lacks:
            lacks = max(0, min(share - amounts["allocated"], amounts["waiting"]))
    is_kept = state.usage is not None and name not in NOT_DIVIDED
    usage = (state.usage or {}).get(name, 0) if is_kept else None
    return ResourceStanding(**amounts, share=share, borrowed=borrowed, lacks=lacks, usage=usage)


def _offered(shares: QueueShares) -> Amounts:
    """What the nodes offer."""
    return shares.state(ROOT).standing.share or {}


def _pods_of(
    shares: QueueShares, path: str, readable: Collection[str] | None
) -> Steps[tuple[list[tuple[Pod, Contribution]], int]]:
    """The pods of the queue that may be named, and how many may not."""
    found = []
    all_of_it = shares.pods_of(path)
    for number, (pod, added) in enumerate(all_of_it):
        if number % _PODS_PER_STEP == 0:
            yield
        if readable is None or pod.namespace in readable:
            found.append((pod, added))
    return found, len(all_of_it) - len(found)


def _order(one: tuple[Pod, Contribution]) -> tuple[int, str]:
    pod, added = one
    return _PHASES.index(added.phase), pod.key


def _pod_row(pod: Pod, added: Contribution) -> PodInQueue:
    created = epoch_seconds(pod.manifest.metadata.creation_timestamp or "")
    return PodInQueue(
        pod=pod.key,
        phase=added.phase.value,
        node=pod.node_name or "",
        requests=dict(added.amounts),
        is_preemptible=added.is_preemptible,
        since=None if created is None else at_text(created),
    )


def _headline(found: _Tree, queues: int, policy: str) -> str:
    if not queues:
        return f"The tree of `{policy}` has no queues."
    if not found.is_shared:
        return f"`{policy}` gives no shares to {counted(queues, 'queue')}: there are sums alone."
    borrow = f"{found.borrowing:,} {'borrows' if found.borrowing == 1 else 'borrow'}"
    if not found.starved:
        return f"No queue starves; {borrow}."
    starve = f"{found.starved:,} {'starves' if found.starved == 1 else 'starve'}"
    return f"Of {counted(queues, 'queue')}, {starve} and {borrow}."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
