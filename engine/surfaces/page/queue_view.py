"""What the screens of the queue and of one pod show in addition to their answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.surfaces.live.answers import PodAnswer, PolicyAnswer, QueuePage
from engine.surfaces.page.words import query

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
FILTERS: Final = ("namespace", "profile", "reason", "policy", "place")


@dataclass(frozen=True)
class Tab:
    """A place or state, how many pods or queues are there, and the address of their rows."""

    place: str
    count: int
    address: str


@dataclass(frozen=True)
class QueueView:
    """The whole screen.

    Attributes:
        tabs: The places; the first is all of them.
        filters: By name; empty where there is none.
        next: The address of the next page; empty on the last.
    """

    tabs: tuple[Tab, ...]
    filters: Mapping[str, str]
    next: str

    @property
    def is_filtered(self) -> bool:
        """True if rows may be left out."""
        return any(self.filters.values())


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
    counts = {place: getattr(page.counts, count) for count, place in _PLACES}
    tabs = {"": sum(counts.values()), **counts}
    return QueueView(
        tuple(Tab(place, n, query(filters | {"place": place})) for place, n in tabs.items()),
        filters,
        query(filters | {"continue": page.next}) if page.next else "",
    )


def pod_view(answer: PodAnswer) -> PodView:
    """What the template shows for *answer*."""
    names = (name for one in answer.ranking for name in one.scores)
    says_no = [one.rejects > 0 or one.failed for one in answer.policies]
    return PodView(
        tuple(one for one, says in zip(answer.policies, says_no, strict=True) if says),
        tuple(one.policy for one, says in zip(answer.policies, says_no, strict=True) if not says),
        tuple(dict.fromkeys(names)),
    )
