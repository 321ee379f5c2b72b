"""The records of what-if answers, in the terms of `engine.surfaces.live.answers`."""

from typing import Literal

import msgspec

from engine.surfaces.live.answers import Leader

Origin = Literal["waiting", "drained", "evicted"]
"""Where a pod comes from: it waits now; it would lose its node to a drain, or to another pod."""


class WouldStart(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would start.

    Attributes:
        pod: `namespace/name`; of one that would lose its node, of the pod that is there now.
        node: Where.
        origin: Where it comes from.
        was_on: The node that it would lose.
        is_new_node: The node is one of those that would be added.
        anyway: It would start without the changes, too.
    """

    pod: str
    node: str
    origin: Origin = "waiting"
    was_on: str = ""
    is_new_node: bool = False
    anyway: bool = False


class WouldWait(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would have no node: its dominant reason, and what the scheduler would say."""

    pod: str
    token: str
    message: str
    origin: Origin = "waiting"
    was_on: str = ""


class WouldEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would lose its node.

    Attributes:
        pod: `namespace/name`.
        node: The one that it would lose.
        by: The pod that it would make way for; "": the drain.
        comes_back: Its controller makes it again. If so, it is among those that start or wait.
    """

    pod: str
    node: str
    by: str = ""
    comes_back: bool = True


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods, those that are not listed included.

    Attributes:
        start: Of those that wait now, would start because of the changes.
        anyway: Of those that wait now, would start without them, too.
        wait: Of those that wait now, would still wait.
        moved, unplaced: Of those that would lose their nodes, would start elsewhere, or would not.
        lost: Would lose their nodes, and no controller makes them again.
    """

    start: int = 0
    anyway: int = 0
    wait: int = 0
    moved: int = 0
    unplaced: int = 0
    lost: int = 0


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of pods if the cluster were changed; without `changes`, nothing was asked.

    Attributes:
        revision: Of the policies in force.
        at: When the copy was made.
        leader: Who decides.
        changes: Each in words, in the order in which they are made.
        added: The names that the new nodes have in this answer.
        counts: How many pods there are of each kind.
        start, wait, end: The pods, those of namespaces that the caller may not read left out.
        hidden_pods: How many rows were left out for that.
        rows_left_out: How many because there are too many.
        left_out: Pods that wait and were not considered, those that come last in the queue.
        notes: What is not taken into account.
        machine_types: Of which nodes can be asked for.
    """

    revision: str
    at: str
    leader: Leader
    changes: tuple[str, ...]
    added: tuple[str, ...] = ()
    counts: Counts = Counts()
    start: tuple[WouldStart, ...] = ()
    wait: tuple[WouldWait, ...] = ()
    end: tuple[WouldEnd, ...] = ()
    hidden_pods: int = 0
    rows_left_out: int = 0
    left_out: int = 0
    notes: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()


class ReasonCount(msgspec.Struct, frozen=True):
    """How many pods would still wait for a reason."""

    token: str
    pods: int


class ShapeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes of one shape would do.

    Attributes:
        name: Of the shape, as it was given.
        nodes: How many would be added: with fewer, fewer pods start; with more, none more.
        helped: How many pods would start because of them.
        cost: Their prices together.
        pods: Which pods, those of namespaces that the caller may not read left out.
        hidden_pods, rows_left_out: As in `WhatIfAnswer`.
        still_waiting: Why the others would still wait, the most frequent reasons first.
        is_complete: False if the time ran out before `max` nodes were tried.
    """

    name: str
    nodes: int = 0
    helped: int = 0
    cost: float = 0.0
    pods: tuple[WouldStart, ...] = ()
    hidden_pods: int = 0
    rows_left_out: int = 0
    still_waiting: tuple[ReasonCount, ...] = ()
    is_complete: bool = True


class BestShapeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest of the shapes that help most pods.

    Attributes:
        best: The name of the shape; "" if none helps a pod.
        reason: Why that one, for people.
        shapes: All of them, the best first.
        left_out, notes: As in `WhatIfAnswer`.
    """

    revision: str
    at: str
    leader: Leader
    best: str
    reason: str
    shapes: tuple[ShapeAnswer, ...]
    left_out: int = 0
    notes: tuple[str, ...] = ()
