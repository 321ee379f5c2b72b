"""The nodes with what is requested on them, as rows, and the sums over all nodes.

Owns the arithmetic and the paging. Made in steps, as the queue's page.
"""

from collections.abc import Collection
from typing import Final

from engine.core.caching.snapshot import Snapshot
from engine.core.model.node import Node
from engine.core.model.node_info import NodeInfo
from engine.core.queueing.nominator import Nominator
from engine.explaining.remedies import taint_text
from engine.lib.clock import Clock
from engine.surfaces.live.answers import Leader, NodeRow, NodesPage, ResourceTotal, ResourceUse
from engine.surfaces.live.moments import at_text
from engine.surfaces.live.slices import Steps

#: Rows of a page, at most and by default.
MOST_ROWS: Final = 10_000
ROWS: Final = 500

_PODS: Final = "pods"
_ZONE: Final = "topology.kubernetes.io/zone"
_ROWS_PER_STEP: Final = 32


def nodes_page(
    snapshot: Snapshot,
    nominator: Nominator,
    *,
    revision: str,
    leader: Leader,
    clock: Clock,
    readable: Collection[str] | None = None,
    offset: int = 0,
    limit: int = ROWS,
) -> Steps[NodesPage]:
    """A page of the nodes, by name; nominated pods only of *readable* namespaces (None: all)."""
    infos = sorted(
        (info for info in snapshot.infos if info is not None and info.node is not None),
        key=lambda info: info.name,
    )
    yield
    sums: dict[str, list[int]] = {}
    for number, info in enumerate(infos):
        _count(sums, info)
        if number % _ROWS_PER_STEP == 0:
            yield
    rows = []
    for number, info in enumerate(infos[offset : offset + limit]):
        rows.append(_row(info, nominator, readable))
        if number % _ROWS_PER_STEP == 0:
            yield
    ends_at = offset + limit
    return NodesPage(
        revision=revision,
        at=at_text(clock.now()),
        leader=leader,
        total=len(infos),
        next=str(ends_at) if ends_at < len(infos) else None,
        totals={name: ResourceTotal(*of_all) for name, of_all in sorted(sums.items())},
        rows=tuple(rows),
    )


def _count(sums: dict[str, list[int]], info: NodeInfo) -> None:
    assert info.node is not None
    is_open = not info.node.unschedulable and _is_ready(info.node)
    for name, offered in info.node.allocatable.items():
        requested = _requested(info, name)
        free = max(0, offered - requested) if is_open else 0
        one = sums.setdefault(name, [0, 0, 0, 0])
        one[0] += offered
        one[1] += requested
        one[2] += free
        one[3] = max(one[3], free)


def _row(info: NodeInfo, nominator: Nominator, readable: Collection[str] | None) -> NodeRow:
    node = info.node
    assert node is not None
    resources = {}
    for name, offered in node.allocatable.items():
        requested = _requested(info, name)
        share = requested / offered if offered else float(requested > 0)
        resources[name] = ResourceUse(offered, requested, round(share, 4))
    fullest = max(resources, key=lambda name: resources[name].share, default="")
    nominated = [
        pod.key
        for pod in nominator.pods_on(info.name)
        if readable is None or pod.namespace in readable
    ]
    return NodeRow(
        name=info.name,
        zone=node.labels.get(_ZONE, ""),
        is_ready=_is_ready(node),
        is_unschedulable=node.unschedulable,
        taints=tuple(map(taint_text, node.taints)),
        pods=len(info.pods),
        resources=resources,
        fullest=fullest,
        fullest_share=resources[fullest].share if fullest else 0.0,
        nominated=tuple(nominated),
    )


def _requested(info: NodeInfo, resource: str) -> int:
    return len(info.pods) if resource == _PODS else info.requested.get(resource, 0)


def _is_ready(node: Node) -> bool:
    """False if its condition says so; a node without one is taken as it is."""
    return all(
        condition.status == "True"
        for condition in node.manifest.status.conditions
        if condition.type == "Ready"
    )
