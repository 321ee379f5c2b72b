"""Dumps the scheduler's state to the log on SIGUSR2, as kube-scheduler's debugger does.

That is the cache, the scheduling queue, and the tree of queues with what stands still in it. Owns
the comparison of the cache with what the watches report, and the lines of the dump. Read-only; it
yields to decisions between lines.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import structlog

from engine.core.caching.cache import Cache
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.turn_queue import HELD, TurnQueue
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.model.pod import Pod
from engine.core.queueing.scheduling_queue import SchedulingQueue

log = structlog.get_logger(component="dump")

# Lines between two yields to other tasks: a few milliseconds.
_LINES_PER_TURN: Final = 32
# Names in one line; the rest is a number.
_MOST_NAMES: Final = 100


def mismatches(
    cache: Cache, nodes: Iterable[Node], pods: Iterable[Pod]
) -> dict[str, dict[str, list[str]]]:
    """Where the cache differs from *nodes* and *pods*, which are all that the watches reported.

    By `nodes` and `pods`: the names that are `missed` by the cache, and those `redundant` in it.
    Assumed pods are in the cache alone for a while. Empty if nothing differs.
    """
    reported_nodes = {node.name for node in nodes}
    reported_pods = {pod.uid: pod.key for pod in pods if pod.node_name}
    cached = list(cache.infos())
    cached_nodes = {info.name for info in cached if info.node is not None}
    cached_pods = {pod.uid: pod.key for info in cached for pod in info.pods.values()}
    found = {
        "nodes": {
            "missed": sorted(reported_nodes - cached_nodes),
            "redundant": sorted(cached_nodes - reported_nodes),
        },
        "pods": {
            "missed": sorted(key for uid, key in reported_pods.items() if uid not in cached_pods),
            "redundant": sorted(
                key
                for uid, key in cached_pods.items()
                if uid not in reported_pods and not cache.is_assumed(uid)
            ),
        },
    }
    return {kind: names for kind, names in found.items() if any(names.values())}


async def dump(
    cache: Cache,
    queue: SchedulingQueue,
    shares: QueueShares,
    turns: TurnQueue,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
) -> None:
    """Log what differs, every node with its pods, every pod of the queue, and the tree of queues.

    Of the tree every queue, and what stands still in them.
    """
    for kind, names in mismatches(cache, nodes, pods).items():
        log.warning(
            "Cache mismatch",
            kind=kind,
            missed=_shortened(names["missed"]),
            redundant=_shortened(names["redundant"]),
        )
    lines = chain(_of_nodes(cache), _of_queue(queue), _of_shares(shares), _of_held(turns))
    for number, (message, words) in enumerate(lines):
        log.info(message, **words)
        if number % _LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    log.info("Dump ended", nodes=cache.node_count, assumed=cache.assumed_count, **queue.counts())


def _of_nodes(cache: Cache) -> Iterator[tuple[str, Mapping[str, Any]]]:
    infos: list[NodeInfo] = sorted(cache.infos(), key=lambda info: info.name)
    for info in infos:
        yield (
            "Dump of cached NodeInfo",
            {
                "node": info.name,
                "is_known": info.node is not None,
                "generation": info.generation,
                "requested": dict(info.requested),
                "pods": _shortened([pod.key for pod in info.pods.values()]),
                "assumed": [pod.key for pod in info.pods.values() if cache.is_assumed(pod.uid)],
            },
        )


def _of_queue(queue: SchedulingQueue) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in sorted(queue.keys()):
        if described := queue.describe(key):  # it may have gone meanwhile
            yield "Dump of scheduling queue", described


def _of_shares(shares: QueueShares) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not shares.is_on:
        return
    problems = _shortened(shares.problems())
    yield "Dump of QueueTree", {"policy": shares.policy, "problems": problems}
    for path in list(shares.tree.queues):
        try:
            state = shares.state(path)
        except KeyError:
            continue  # the tree was made again meanwhile
        yield (
            "Dump of queue in QueueTree",
            {
                "queue": path,
                "attributes": dict(state.queue.attributes),
                **{name: state.sums.of(name) for name in state.sums.vectors},
                "pods": state.sums.pod_count,
                "passed_up": state.standing.up,
                "share": state.standing.share,
                "starved_seconds": state.starved,
                "borrowed_seconds": state.borrowed,
            },
        )


def _of_held(turns: TurnQueue) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for lane in turns.held():
        assert lane.hold is not None, "it stands still"
        yield (
            "Dump of requests held in QueueTree",
            {
                "queue": lane.queue,
                "is_there": lane.is_there,
                "pod": lane.head.key,  # the next of them
                "group": lane.group,
                "pods": lane.pods,
                "token": lane.hold.token or HELD,
                "reason": lane.hold.reason,
                "short": dict([lane.hold.short] if lane.hold.short else ()),
                "at": lane.hold.at,
                "has_failed": lane.has_failed,
            },
        )


def _shortened(names: list[str]) -> list[str]:
    rest = len(names) - _MOST_NAMES
    return names if rest <= 0 else [*names[:_MOST_NAMES], f"... and {rest} more"]
