"""Which of several shapes of nodes helps most of the pods that wait, and at what price.

Owns the question's form and the search: nodes are added one at a time, and a shape is not charged
for those after the last one that helped a pod.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.lib.deep_json import UNREADABLE
from engine.surfaces.live.what_if.answers import ReasonCount
from engine.surfaces.live.what_if.changes import MOST_NODES, WrongQuestion
from engine.surfaces.live.what_if.imagined_cluster import ImaginedCluster, Tracked
from engine.surfaces.live.what_if.shapes import Shape, WrongTypes, node_of, shape_of_type

MOST_SHAPES: Final = 20
_MOST_REASONS: Final = 10


class OfferedShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shape as a caller offers it: like a node or of a machine type, or written as a Node.

    `price` is of each node, in any unit; at most `max` of them can be had.
    """

    name: str = ""
    like: str = ""
    node: dict[str, Any] | None = None
    price: float = 0.0
    max: int = 10


class ShapesQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    shapes: tuple[OfferedShape, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A shape that was read; `written` is it as a Node, None: it is like `like`."""

    name: str
    like: str
    written: Shape | None
    price: float
    most: int


@dataclass(slots=True)
class Outcome:
    """What nodes of an offer do: `nodes` of them have `helped` start."""

    offer: Offer
    nodes: int
    helped: list[Tracked]
    added: list[str]
    still_waiting: tuple[ReasonCount, ...]
    is_complete: bool

    @property
    def cost(self) -> float:
        """Of the nodes together."""
        return self.nodes * self.offer.price


def offers_of(body: bytes) -> tuple[Offer, ...]:
    """The shapes of a request. Raises `WrongQuestion`."""
    try:
        question = msgspec.json.decode(body, type=ShapesQuestion)
    except UNREADABLE as error:
        raise WrongQuestion(
            f'want {{"shapes": [{{"like": NODE, "price": 1.5, "max": 10}}, ...]}}: {error}'
        ) from error
    if not 1 <= len(question.shapes) <= MOST_SHAPES:
        got = len(question.shapes)
        raise WrongQuestion(f"shapes: want 1 to {MOST_SHAPES} of them, got {got}")
    offers = tuple(_offer(one, f"shapes[{at}]") for at, one in enumerate(question.shapes))
    names = Counter(one.name for one in offers)
    for name, times in names.items():
        if times > 1:
            raise WrongQuestion(f"shapes: want names of their own, got `{name}` {times} times")
    return offers


def _offer(one: OfferedShape, place: str) -> Offer:
    if bool(one.like) == (one.node is not None):
        raise WrongQuestion(f"{place}: want one of `like` and `node`")
    if not 1 <= one.max <= MOST_NODES:
        raise WrongQuestion(f"{place}.max: want a number in 1..{MOST_NODES}, got {one.max}")
    if not 0 <= one.price < float("inf"):
        raise WrongQuestion(f"{place}.price: want a number of at least 0, got {one.price}")
    written = None
    if one.node is not None:
        try:
            written = shape_of_type(node_of(one.node, f"{place}.node"))
        except WrongTypes as error:
            raise WrongQuestion(str(error)) from error
    name = one.name or one.like or (written.name if written is not None else "")
    return Offer(name, one.like, written, one.price, one.max)


def try_offer(
    offer: Offer, make: Callable[[], ImaginedCluster], too_long: type[Exception]
) -> Outcome:
    """Add nodes of *offer* to a copy that *make* makes, until more cannot help.

    Raises `WrongQuestion`; *too_long* if the time is over before the first node was tried.
    """
    cluster = make()
    shape = offer.written or cluster.shape(offer.like)
    nodes, helped, is_complete = 0, list[Tracked](), True
    try:
        for number in range(1, offer.most + 1):
            if not waiting_of(cluster):
                break
            cluster.add_nodes(shape, 1)
            cluster.come_to_rest()
            started = helped_in(cluster)
            # A group may need several nodes before its first pod starts.
            if len(started) > len(helped):
                nodes, helped = number, started
    except too_long:
        is_complete = False
    counted = Counter(cluster.reason_of(one.pod)[0] for one in waiting_of(cluster))
    reasons = tuple(ReasonCount(*one) for one in counted.most_common(_MOST_REASONS))
    return Outcome(offer, nodes, helped, cluster.found.added, reasons, is_complete)


def best_first(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that help most pods first; of equal ones the cheapest, then the one of fewest nodes."""
    return sorted(outcomes, key=lambda one: (-len(one.helped), one.cost, one.nodes, one.offer.name))


def helped_in(cluster: ImaginedCluster) -> list[Tracked]:
    """The pods that wait now and would start there, as they would not without the changes."""
    tracked = cluster.found.tracked.values()
    return [one for one in tracked if one.node and one.origin == "waiting" and not one.anyway]


def waiting_of(cluster: ImaginedCluster) -> list[Tracked]:
    """The pods without a node there that wait now."""
    return [one for one in cluster.found.tracked.values() if not one.node]
