"""What the screens of the tree of queues show: which resources, and the lengths of the bars.

Owns the scale of the bars. Queues under one parent share what the parent has, so their bars have
one scale; a queue far down is not a hair because the cluster is large.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.surfaces.live.share_answers import (
    ResourceStanding,
    ShareAnswer,
    ShareRow,
    SharesPage,
)
from engine.surfaces.live.shares_page import BORROWING, STARVED
from engine.surfaces.page.queue_view import Tab
from engine.surfaces.page.words import amount, in_order, query

#: What the tree can be filtered by; `continue` is where a page begins.
FILTERS: Final = ("queue", "resource", "state")
_MOST_COLUMNS: Final = 4
#: Rarely what a share is about.
_LAST: Final = ("ephemeral-storage", "pods")
_FULL: Final = 100.0


@dataclass(frozen=True)
class Bar:
    """A bar of one resource of a queue, in percent of its length.

    Attributes:
        own, borrowed, waiting: Lengths, one after the other: what is allocated within the share,
            beyond it, and what pods wait for.
        share: Where the share ends; None without one.
        label: The same in words.
    """

    own: float
    borrowed: float
    waiting: float
    share: float | None
    label: str


@dataclass(frozen=True)
class Cell:
    """One resource of a queue."""

    resource: str
    standing: ResourceStanding
    bar: Bar


@dataclass(frozen=True)
class QueueView:
    """A row of the tree.

    Attributes:
        name: The last part of its path.
        cells: One for each column; None where the queue has nothing of the resource.
    """

    row: ShareRow
    name: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class SharesView:
    """The whole screen.

    Attributes:
        tabs: The states; the first is all queues.
        filters: By name; empty where there is none.
        resources: The columns.
        not_shown: Resources without a column.
        next: The address of the next page; empty on the last.
    """

    tabs: tuple[Tab, ...]
    filters: Mapping[str, str]
    resources: tuple[str, ...]
    not_shown: tuple[str, ...]
    rows: tuple[QueueView, ...]
    next: str

    @property
    def is_filtered(self) -> bool:
        """True if rows may be left out."""
        return any(self.filters.values())


@dataclass(frozen=True)
class ShareView:
    """The screen of one queue.

    Attributes:
        cells: Its resources.
        resources: The columns of `children`.
        children: The queues right below it.
        requested: The columns of its pods.
        next: The address of the next pods; empty after the last.
    """

    cells: tuple[Cell, ...]
    resources: tuple[str, ...]
    children: tuple[QueueView, ...]
    requested: tuple[str, ...]
    next: str

    @property
    def keeps_usage(self) -> bool:
        """True if the tree keeps what queues used in the past."""
        return any(cell.standing.usage is not None for cell in self.cells)


def shares_view(page: SharesPage, asked: Mapping[str, str]) -> SharesView:
    """What the template shows for *page*, which was *asked* for."""
    filters = {name: asked.get(name, "") for name in FILTERS}
    columns, others = _columns(page.rows, page.resources, filters["resource"])
    tabs = {"": page.queues, STARVED: page.starved, BORROWING: page.borrowing}
    return SharesView(
        tuple(Tab(state, n, query(filters | {"state": state})) for state, n in tabs.items()),
        filters,
        columns,
        others,
        _views(page.rows, columns),
        query(filters | {"continue": page.next}) if page.next else "",
    )


def share_view(answer: ShareAnswer) -> ShareView:
    """What the template shows for *answer*."""
    names = _in_order(answer.queue.resources)
    (queue,) = _views((answer.queue,), names)
    columns, _ = _columns(answer.children, names, "")
    requested = _in_order({name for pod in answer.pods for name in pod.requests})
    return ShareView(
        tuple(cell for cell in queue.cells if cell is not None),
        columns,
        _views(answer.children, columns),
        tuple(requested[:_MOST_COLUMNS]),
        query({"continue": answer.next}) if answer.next else "",
    )


def _in_order(resources: Iterable[str]) -> list[str]:
    return sorted(in_order(resources), key=lambda name: _LAST.index(name) if name in _LAST else -1)


def _columns(
    rows: Iterable[ShareRow], resources: Iterable[str], asked: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The resources that have a column, and the others; what is shared comes first."""
    if asked:
        return (asked,), ()
    shared = {name for row in rows if row.path for name, one in row.resources.items() if one.share}
    names = sorted(_in_order(resources), key=lambda name: name not in shared)
    shown = [name for name in names if name in shared or not shared]
    if not shared and len(shown) > 1:
        shown = [name for name in shown if name != "pods"]
    shown = shown[:_MOST_COLUMNS]
    return tuple(shown), tuple(name for name in names if name not in shown)


def _views(rows: Iterable[ShareRow], columns: Iterable[str]) -> tuple[QueueView, ...]:
    rows, columns = tuple(rows), tuple(columns)
    # Per parent and resource, what the longest bar is about.
    longest: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        for name in columns:
            one = row.resources.get(name)
            if one is not None:
                key = _scale(row, name)
                longest[key] = max(longest[key], one.requested, one.share or 0)
    return tuple(
        QueueView(
            row,
            row.path.rpartition("/")[2],
            tuple(_cell(row, name, longest[_scale(row, name)]) for name in columns),
        )
        for row in rows
    )


def _scale(row: ShareRow, resource: str) -> tuple[str, str]:
    # The root is by itself: those of the first level have the empty path above them, too.
    return row.path.rpartition("/")[0] if row.path else "/", resource


def _cell(row: ShareRow, resource: str, longest: int) -> Cell | None:
    one = row.resources.get(resource)
    if one is None:
        return None

    def length(of: int) -> float:
        return round(_FULL * of / longest, 2) if longest else 0.0

    share = None if one.share is None else length(one.share)
    own = length(one.allocated - one.borrowed)
    bar = Bar(own, length(one.borrowed), length(one.waiting), share, _label(one, resource))
    return Cell(resource, one, bar)


def _label(one: ResourceStanding, resource: str) -> str:
    words = [f"{amount(one.allocated, resource)} used"]
    if one.share is not None:
        words[0] += f" of a share of {amount(one.share, resource)}"
    for text, of in (("borrowed", one.borrowed), ("waiting", one.waiting), ("lacking", one.lacks)):
        if of:
            words.append(f"{amount(of, resource)} {text}")
    return ", ".join(words)
