"""What stands still in the queues of a tree, and the latest pods that had to go, as rows.

Owns what is one row, what a caller may see of it, and the numbers. Made in steps: each pod may wait
for a reason of its own.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from engine.core.kernel.reclaims import Reclaimed
from engine.core.kernel.turn_queue import HELD, TurnQueue
from engine.core.kernel.turn_standing import LaneState
from engine.core.sharing.tree import ROOT
from engine.surfaces.live.moments import Moments
from engine.surfaces.live.share_answers import GivenBack, HeldRow, NextRequest, ReclaimRow
from engine.surfaces.live.slices import Steps

_LANES_PER_STEP: Final = 256
#: Pods of one queue and stage that a reclaim names.
_MOST_NAMED: Final = 10

_Key = tuple[str, bool, str, str, bool, str, str]


class HeldRequests:
    """What stands still, by queue and cause.

    Args:
        readable: The namespaces whose pods may be named, and what is said of them; None: all.

    Attributes:
        pods: How many pods stand still in each queue and below it, by path.
    """

    def __init__(self, readable: Collection[str] | None) -> None:
        self._readable = readable
        self.pods: Counter[str] = Counter()
        self._found: dict[_Key, HeldRow] = {}

    def add(self, lane: LaneState) -> None:
        """Count what stands still together."""
        hold = lane.hold
        if hold is None:
            return
        if lane.is_there:
            for path in upwards(lane.queue):
                self.pods[path] += lane.pods
        # What the policy says may name what it sees of the request, such as its group.
        reason = hold.reason if may_name(lane.head.namespace, self._readable) else ""
        resource, short = hold.short or ("", 0)
        token = hold.token or HELD
        key = (lane.queue, lane.is_there, token, reason, lane.has_failed, hold.at, resource)
        known = self._found.get(key)
        self._found[key] = HeldRow(
            queue=lane.queue,
            is_there=lane.is_there,
            token=token,
            reason=reason,
            has_failed=lane.has_failed,
            at=hold.at,
            resource=resource,
            short=short if known is None else min(short, known.short),
            requests=lane.requests + (known.requests if known else 0),
            pods=lane.pods + (known.pods if known else 0),
        )

    def rows(self) -> list[HeldRow]:
        """The rows, those of the most pods first."""
        return sorted(
            self._found.values(),
            key=lambda one: (-one.pods, one.queue, one.token, one.at, one.resource, one.reason),
        )


def held_requests(
    turns: TurnQueue, readable: Collection[str] | None, path: str = ROOT
) -> Steps[HeldRequests]:
    """What stands still in the queue of *path* and below it; by default, in all."""
    found = HeldRequests(readable)
    for number, lane in enumerate(turns.held()):
        if number % _LANES_PER_STEP == 0:
            yield
        if path == ROOT or (lane.is_there and is_at_or_below(lane.queue, path)):
            found.add(lane)
    return found


def next_request(
    turns: TurnQueue, path: str, readable: Collection[str] | None
) -> NextRequest | None:
    """What is next in the queue of *path*; None if no pod of it is ready to be tried."""
    lane = turns.head_of(path)
    if lane is None:
        return None
    is_named = may_name(lane.head.namespace, readable)
    return NextRequest(
        queue=lane.queue,
        pod=lane.head.key if is_named else "",
        group=lane.group if is_named else "",
        is_held=lane.hold is not None,
    )


def reclaim_rows(
    latest: Iterable[Reclaimed],
    moments: Moments,
    readable: Collection[str] | None,
    path: str = ROOT,
) -> tuple[ReclaimRow, ...]:
    """The latest reclaims, the newest first; of one queue, those that it or one below it is in."""
    return tuple(
        ReclaimRow(
            at=moments.text(one.at) or "",
            taker=one.taker if may_name(_namespace(one.taker), readable) else "",
            queue=one.queue,
            is_reversal=one.is_reversal,
            victims=_given_back(one, readable),
        )
        for one in reversed(list(latest))
        if any(is_at_or_below(queue, path) for queue in _queues_of(one))
    )


def named_namespaces(turns: TurnQueue, latest: Iterable[Reclaimed], path: str = ROOT) -> set[str]:
    """The namespaces of the pods that are named here of the queue of *path* and those below it."""
    found = {lane.head.namespace for lane in turns.held() if is_at_or_below(lane.queue, path)}
    if (lane := turns.head_of(path)) is not None:
        found.add(lane.head.namespace)
    for one in latest:
        if any(is_at_or_below(queue, path) for queue in _queues_of(one)):
            found |= {_namespace(key) for key in (one.taker, *(key for key, _, _ in one.victims))}
    return found


def may_name(namespace: str, readable: Collection[str] | None) -> bool:
    """True if pods of *namespace* may be shown to who may read *readable* (None: all)."""
    return readable is None or namespace in readable


def is_at_or_below(queue: str, path: str) -> bool:
    """True if *queue* is that of *path*, or under it."""
    return path == ROOT or queue == path or queue.startswith(f"{path}/")


def upwards(path: str) -> Iterable[str]:
    """The path of a queue and those of the queues above it, the root last."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ROOT


def _given_back(one: Reclaimed, readable: Collection[str] | None) -> tuple[GivenBack, ...]:
    """The victims, by queue and stage, in the order in which those were chosen."""
    by: dict[tuple[str, int], list[str]] = {}
    for key, queue, stage in one.victims:
        by.setdefault((queue, stage), []).append(key)
    return tuple(
        GivenBack(
            queue=queue,
            stage=stage,
            count=len(keys),
            pods=tuple(key for key in keys if may_name(_namespace(key), readable))[:_MOST_NAMED],
        )
        for (queue, stage), keys in by.items()
    )


def _queues_of(one: Reclaimed) -> set[str]:
    return {one.queue, *(queue for _, queue, _ in one.victims)}


def _namespace(key: str) -> str:
    return key.partition("/")[0]
