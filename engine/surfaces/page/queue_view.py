"""What the screens of the queue and of one pod show in addition to their answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.surfaces.live.answers import (
    PodAnswer,
    PodsPage,
    PolicyAnswer,
    QueuePage,
    QueueRow,
    RequestRange,
)
from engine.surfaces.live.queue_page import NONE, PLACES
from engine.surfaces.page.words import amount, amounts, in_order, named_amount, query

#: Places by the name of their count, in the order in which pods come to them.
_PLACES: Final = (
    ("active", "active"),
    ("in_flight", "in_flight"),
    ("in_permit", "permit"),
    ("backoff", "backoff"),
    ("unschedulable", "unschedulable"),
    ("gated", "gated"),
)
#: What the queue can be filtered by; `continue` is where a page begins.
FILTERS: Final = ("pod", "namespace", "owner", "profile", "reason", "policy", "place")
#: The group that is a row if no other is asked for.
BY: Final = "workload"
#: What a row can be: the group, its name, and the filters that show its pods one workload a row.
_GROUPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    BY: ("workload", ()),
    "owner": ("owner", ("namespace", "owner")),
    "namespace": ("namespace", ("namespace",)),
    "reason": ("reason", ()),
}
#: The columns: title, whether numbers are in it, and the order that a first click asks for.
_COLUMNS: Final = (
    ("pods", "Pods", True, "-pods"),
    ("pod", "Pod", False, "pod"),
    ("reason", "Why", False, "reason"),
    ("place", "Place", False, "place"),
    ("requests", "Requests", False, ""),
    ("tries", "Tries", True, "-tries"),
    ("waiting", "Oldest", True, "waiting"),
    ("next_try", "Next try in", True, "next_try"),
)
_NODES: Final = re.compile(r"(\d+)/(\d+) nodes are available\b")


@dataclass(frozen=True)
class Tab:
    """A place or state, how many pods or queues are there, and the address of their rows.

    The address is empty if no rows can be asked for: pods that are being tried are only counted.
    """

    place: str
    count: int
    address: str


@dataclass(frozen=True)
class Group:
    """What a row can be, and the address of such rows."""

    by: str
    name: str
    address: str


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        address: Sorts by it; empty if nothing does.
        order: `ascending` or `descending` if rows are sorted by it.
    """

    name: str
    title: str
    is_number: bool
    address: str
    order: str


@dataclass(frozen=True)
class RowView:
    """A row.

    Attributes:
        name: Of the group, if rows are none of workloads.
        address: Of the pods of the row, one workload a row.
        nodes: Of how many nodes how many fit: `0 of 12`; empty if it is not about nodes.
        requests: Of each pod.
        total: Of all pods together; empty for a single one.
    """

    row: QueueRow
    name: str
    address: str
    nodes: str
    requests: str
    total: str


@dataclass(frozen=True)
class QueueView:
    """The whole screen.

    Attributes:
        tabs: The places; the first is all of them.
        filters: By name; empty where there is none.
        by, sort: What a row is, and the order of rows if one is asked for.
        first: The address of the first page.
        next: The address of the next page; empty on the last.
    """

    tabs: tuple[Tab, ...]
    filters: Mapping[str, str]
    by: str
    sort: str
    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    rows: tuple[RowView, ...]
    first: str
    next: str

    @property
    def is_filtered(self) -> bool:
        """True if rows may be left out."""
        return any(self.filters.values())


@dataclass(frozen=True)
class PodsView:
    """The pods that were looked for.

    Attributes:
        named: The filters but the text.
        first: The address of the first page.
        next: The address of the next page; empty on the last.
    """

    named: Mapping[str, str]
    first: str
    next: str


@dataclass(frozen=True)
class PodView:
    """The screen of one pod.

    Attributes:
        policies: Those that reject nodes or failed.
        content: The names of the others.
        scorers: The policies that scored, in the order of the answer.
    """

    policies: tuple[PolicyAnswer, ...]
    content: tuple[str, ...]
    scorers: tuple[str, ...]


def queue_view(page: QueuePage, asked: Mapping[str, str]) -> QueueView:
    """What the template shows for *page*, which was *asked* for."""
    filters = {name: asked.get(name, "") for name in FILTERS}
    by, sort = asked.get("by") or BY, asked.get("sort", "")
    shown = filters | {"by": "" if by == BY else by, "sort": sort}
    counts = {place: getattr(page.counts, count) for count, place in _PLACES}
    tabs = {"": sum(counts.values()), **counts}
    return QueueView(
        tabs=tuple(
            Tab(place, n, query(shown | {"place": place}) if not place or place in PLACES else "")
            for place, n in tabs.items()
        ),
        filters=filters,
        by=by,
        sort=sort,
        groups=tuple(
            # Many pods first: what others than workloads are looked at for.
            Group(name, text, query(filters | _asking(name)))
            for name, (text, _) in _GROUPS.items()
        ),
        columns=tuple(_column(*one, shown, by) for one in _COLUMNS),
        rows=tuple(_row(row, by, filters) for row in page.rows),
        first=query(shown),
        next=query(shown | {"continue": page.next}) if page.next else "",
    )


def _asking(by: str) -> dict[str, str]:
    return {} if by == BY else {"by": by, "sort": "-pods"}


def _column(
    name: str, title: str, is_number: bool, first: str, shown: Mapping[str, str], by: str
) -> Column:
    sort = shown["sort"]
    if name == "pod" and by != BY:
        title = by.capitalize()
    if not first or sort.removeprefix("-") != name:
        return Column(name, title, is_number, query({**shown, "sort": first}) if first else "", "")
    other = name if sort.startswith("-") else f"-{name}"
    order = "descending" if sort.startswith("-") else "ascending"
    return Column(name, title, is_number, query({**shown, "sort": other}), order)


def _row(row: QueueRow, by: str, filters: Mapping[str, str]) -> RowView:
    owner = f"{row.namespace}/{row.owner or '(no owner)'}"
    names = {"owner": owner, "namespace": row.namespace, "reason": row.reason or "(no reason)"}
    of_row = {"namespace": row.namespace, "owner": row.owner or NONE}
    narrower = {name: of_row[name] for name in _GROUPS.get(by, ("", ()))[1]}
    found = _NODES.match(row.message)
    resources = in_order(row.requests)
    return RowView(
        row=row,
        name=names.get(by, ""),
        address=query({**filters, "place": row.place, "reason": row.reason or NONE, **narrower}),
        nodes=f"{found[1]} of {found[2]}" if found else "",
        requests=", ".join(_range(name, row.requests[name]) for name in resources),
        total=amounts({name: one.total for name, one in row.requests.items()})
        if row.pods > 1
        else "",
    )


def _range(resource: str, one: RequestRange) -> str:
    most = named_amount(resource, one.most)
    return most if one.least == one.most else f"{amount(one.least, resource)}–{most}"


def pods_view(page: PodsPage, asked: Mapping[str, str]) -> PodsView:
    """What the template shows for *page*, which was *asked* for."""
    filters = {name: asked.get(name, "") for name in ("text", "namespace", "node", "owner")}
    # What is looked for by a link is named; what is typed stays in its field.
    named = {name: value for name, value in filters.items() if value and name != "text"}
    more = query(filters | {"continue": page.next}) if page.next else ""
    return PodsView(named, query(filters), more)


def pod_view(answer: PodAnswer) -> PodView:
    """What the template shows for *answer*."""
    names = (name for one in answer.ranking for name in one.scores)
    says_no = [one.rejects > 0 or one.failed for one in answer.policies]
    return PodView(
        tuple(one for one, says in zip(answer.policies, says_no, strict=True) if says),
        tuple(one.policy for one, says in zip(answer.policies, says_no, strict=True) if not says),
        tuple(dict.fromkeys(names)),
    )
