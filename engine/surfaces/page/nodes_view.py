"""What the screen of the nodes shows: a heat map by zone, sums, and how fragmented what is free is.

Owns the steps of the map's colours, and which nodes the table below it lists.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.surfaces.live.answers import NodeAnswer, NodeRow, NodesPage, ResourceTotal
from engine.surfaces.page.words import in_order

#: The lower bounds of the map's steps; a node is in the last that its share reaches.
STEPS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
_MOST_LISTED: Final = 100


@dataclass(frozen=True)
class Zone:
    """The nodes of a zone, the fullest first."""

    name: str
    rows: tuple[NodeRow, ...]
    mean: float


@dataclass(frozen=True)
class TotalView:
    """A resource of all nodes together.

    Attributes:
        share: Of what there is, how much is requested.
        stranded: Of what is free, how much no pod can have: it is on nodes on which another
            resource is used up, or that take no pods.
    """

    resource: str
    total: ResourceTotal
    share: float
    stranded: float


@dataclass(frozen=True)
class NodesView:
    """The whole screen."""

    zones: tuple[Zone, ...]
    totals: tuple[TotalView, ...]
    resources: tuple[str, ...]
    listed: tuple[NodeRow, ...]
    not_listed: int
    by_step: tuple[int, ...]
    closed: int


def nodes_view(page: NodesPage) -> NodesView:
    """What the template shows for *page*."""
    zones: dict[str, list[NodeRow]] = defaultdict(list)
    by_step = [0] * len(STEPS)
    for row in page.rows:
        zones[row.zone].append(row)
        by_step[step(row.fullest_share)] += 1
    fullest = sorted(page.rows, key=_fullest_first)
    resources = in_order(page.totals)
    return NodesView(
        tuple(_zone(name, rows) for name, rows in sorted(zones.items())),
        tuple(_total(name, page.totals[name], page.rows) for name in resources),
        tuple(name for name in resources if page.totals[name].allocatable)[:6],
        tuple(fullest[:_MOST_LISTED]),
        max(0, len(fullest) - _MOST_LISTED),
        tuple(by_step),
        sum(map(is_closed, page.rows)),
    )


def node_view(answer: NodeAnswer) -> tuple[str, ...]:
    """The resources of a node, in the order of the screen."""
    return tuple(in_order(answer.node.resources))


def step(share: float) -> int:
    """The step of the heat map for *share*."""
    return max(index for index, bound in enumerate(STEPS) if share >= bound or index == 0)


def is_closed(row: NodeRow) -> bool:
    """True for a node that takes no pods, whatever is free."""
    return not row.is_ready or row.is_unschedulable


def _fullest_first(row: NodeRow) -> tuple[float, str]:
    return -row.fullest_share, row.name


def _zone(name: str, rows: list[NodeRow]) -> Zone:
    mean = sum(row.fullest_share for row in rows) / len(rows)
    return Zone(name, tuple(sorted(rows, key=_fullest_first)), mean)


def _total(resource: str, total: ResourceTotal, rows: Iterable[NodeRow]) -> TotalView:
    free = stranded = 0
    for row in rows:
        if (use := row.resources.get(resource)) is not None:
            left = max(0, use.allocatable - use.requested)
            free += left
            is_full = row.fullest != resource and row.fullest_share >= STEPS[-1]
            stranded += left if is_full or is_closed(row) else 0
    share = total.requested / total.allocatable if total.allocatable else 0.0
    return TotalView(resource, total, share, stranded / free if free else 0.0)
