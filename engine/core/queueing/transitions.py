"""The queue as a state machine: where a pod can be, what moves it, and where to.

Owns the table that every move of `SchedulingQueue` goes by, and the record of a move. The table is
the drawing of the queue: a move that is not in it does not happen.
"""

import enum
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from engine.core.caching.objects import object_key
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing import events
from engine.core.queueing.events import ClusterEvent

_FAILURE: Final = "ScheduleAttemptFailure"


class _Member(enum.Enum):
    """A member that hashes as fast as any object; that of `Enum` is computed from its name."""

    __hash__ = object.__hash__


class Place(_Member):
    """Where a pod is. Exactly one at a time; the queue knows nothing of an `UNKNOWN` pod."""

    def __init__(self, label: str) -> None:
        self.label = label

    UNKNOWN = "unknown"
    #: Ready to be tried, in the order of its sort key.
    ACTIVE = "active"
    #: Failed lately; tried again when its backoff is over, or earlier if no pod is active.
    BACKOFF = "backoff"
    #: Rejected; waits for an event that may help.
    UNSCHEDULABLE = "unschedulable"
    #: Kept out by its gate (`pre_enqueue`, preemption under way, the throttle).
    GATED = "gated"
    #: Popped: its scheduling cycle is under way, and events are recorded for it.
    IN_FLIGHT = "in_flight"
    #: Has a node and is being bound. Known, so that it comes back if its binding fails.
    BINDING = "binding"
    #: Popped while being deleted. Known, so that its updates do not add it again.
    TERMINATING = "terminating"


class Trigger(_Member):
    """What moves a pod: in words for users, and as the label in metrics.

    `EVENT` stands for every cluster event; its label is that of the event.
    """

    def __init__(self, words: str, label: str) -> None:
        self.words = words
        self.label = label

    # What the watch reports.
    ADDED = "new pod", events.UNSCHEDULED_POD_ADD.label
    REAPPEARED = "deleted and created again during its attempt", events.UNSCHEDULED_POD_ADD.label
    UPDATED = "pod changed", events.TARGET_POD_UPDATE.label
    RESTORED = "pod is not being deleted any more", events.TARGET_POD_UPDATE.label
    DELETED = "deleted, or bound", ""
    # An attempt and its end.
    POPPED = "its turn", "PopFromBackoffQ"
    PLACED = "node found", ""
    SKIPPED = "pod is being deleted", ""
    REJECTED = "rejected", _FAILURE
    #: An event came during the attempt that may help, or may have: events were not recorded.
    OUTDATED = "rejected, and an event came meanwhile", _FAILURE
    FAILED = "attempt failed", _FAILURE
    THROTTLED = "throttled before its attempt", "Throttled"
    # What happens around.
    EVENT = "event", ""
    BACKOFF_ENDED = "backoff is over", "BackoffComplete"
    TIMED_OUT = "no event helped for too long", events.UNSCHEDULABLE_TIMEOUT.label
    ACTIVATED = "activated", events.FORCE_ACTIVATE.label
    POLICIES_CHANGED = "policies changed", events.POLICIES_CHANGED.label
    REORDERED = "sort key evaluated again", "Reordered"
    FACTS_CHANGED = "facts of the cluster changed", events.FACTS_UPDATE.label
    # Changes about one pod that no event reports.
    GROUP_CHANGED = "its group changed", "PodGroupChange"
    GROUP_PLACED = "pods of its group were placed, or lost their nodes", "PodGroupChange"
    GATE_RETRIED = "gate evaluated again after a failure", "GateRetried"
    THROTTLE_ENDED = "not throttled any more", "ThrottleEnded"
    PREEMPTION_STARTED = "preemption started on its nominated node", "PreemptionStarted"
    PREEMPTION_DONE = "preemption done", "PreemptionDone"
    PREEMPTION_FAILED = "preemption failed", "PreemptionFailed"
    NOMINATION_CLEARED = "nomination cleared by preemption", "NominationCleared"
    RECLAIM_RETRIED = "other queues may have something to give by now", "ReclaimRetried"


# Where a pod goes that may be tried again: `GATED` applies if its gate is closed, `BACKOFF` if its
# backoff is not over, any other place always. The pod goes to the first place that applies.
_RETRY: Final = (Place.GATED, Place.BACKOFF, Place.ACTIVE)
_NOW: Final = (Place.GATED, Place.ACTIVE)
_NOT_NOW: Final = (Place.GATED, Place.BACKOFF)

_Row: TypeAlias = tuple[tuple[Place, ...], tuple[Trigger, ...], tuple[Place, ...]]


def _rows(p: type[Place], t: type[Trigger]) -> tuple[_Row, ...]:
    # fmt: off
    return (
        # in
        ((p.UNKNOWN,),                   (t.ADDED,),                           _RETRY),
        ((p.UNKNOWN,),                   (t.REAPPEARED,),                      (p.IN_FLIGHT,)),
        # an attempt and its end
        ((p.ACTIVE, p.BACKOFF),          (t.POPPED,),                          (p.IN_FLIGHT,)),
        ((p.UNSCHEDULABLE,),             (t.POPPED,),                          (p.IN_FLIGHT,)),
        ((p.IN_FLIGHT,),                 (t.PLACED,),                          (p.BINDING,)),
        ((p.IN_FLIGHT,),                 (t.SKIPPED,),                         (p.TERMINATING,)),
        ((p.IN_FLIGHT,),                 (t.THROTTLED,),                       _RETRY),
        ((p.IN_FLIGHT,),                 (t.REJECTED,),                        (p.UNSCHEDULABLE,)),
        ((p.IN_FLIGHT, p.BINDING),       (t.OUTDATED, t.FAILED),               _RETRY),
        # waits that end
        ((p.BACKOFF,),                   (t.BACKOFF_ENDED,),                   (p.ACTIVE,)),
        ((p.UNSCHEDULABLE, p.GATED),     (t.EVENT, t.TIMED_OUT),               _RETRY),
        ((p.UNSCHEDULABLE, p.GATED),     (t.ACTIVATED,),                       _NOW),
        ((p.UNSCHEDULABLE, p.GATED),     (t.POLICIES_CHANGED,),                _RETRY),
        ((p.UNSCHEDULABLE, p.GATED),     (t.GROUP_CHANGED,),                   _RETRY),
        ((p.UNSCHEDULABLE, p.GATED),     (t.PREEMPTION_FAILED,),               _RETRY),
        ((p.UNSCHEDULABLE, p.GATED),     (t.NOMINATION_CLEARED,),              _RETRY),
        ((p.UNSCHEDULABLE,),             (t.RECLAIM_RETRIED,),                 _RETRY),
        ((p.GATED,),                     (t.GROUP_PLACED, t.PREEMPTION_DONE),  _RETRY),
        ((p.GATED,),                     (t.GATE_RETRIED, t.THROTTLE_ENDED),   _RETRY),
        ((p.GATED,),                     (t.UPDATED,),                         _RETRY),
        ((p.BACKOFF,),                   (t.ACTIVATED,),                       _NOW),
        # sort keys that change, and gates that close
        ((p.ACTIVE,),                    (t.UPDATED, t.REORDERED),             _NOW),
        ((p.ACTIVE,),                    (t.FACTS_CHANGED,),                   _NOW),
        ((p.ACTIVE,),                    (t.GROUP_CHANGED,),                   _NOT_NOW),
        ((p.BACKOFF,),                   (t.GROUP_CHANGED,),                   (p.GATED,)),
        ((p.ACTIVE,),                    (t.POLICIES_CHANGED,),                _NOW),
        ((p.BACKOFF,),                   (t.UPDATED, t.REORDERED),             _RETRY),
        ((p.BACKOFF,),                   (t.FACTS_CHANGED,),                   _RETRY),
        ((p.BACKOFF,),                   (t.POLICIES_CHANGED,),                _RETRY),
        ((p.ACTIVE, p.BACKOFF),          (t.PREEMPTION_STARTED,),              (p.GATED,)),
        # out
        ((p.TERMINATING,),               (t.RESTORED,),                        _RETRY),
        (tuple(p)[1:],                   (t.DELETED,),                         (p.UNKNOWN,)),
    )
    # fmt: on


TRANSITIONS: Final[Mapping[tuple[Place, Trigger], tuple[Place, ...]]] = {
    (came_from, trigger): places
    for froms, triggers, places in _rows(Place, Trigger)
    for came_from in froms
    for trigger in triggers
}
"""By place and trigger, where a pod goes: to the first place that applies. It stays if none does,
or if there is no entry."""

NOMINATED: Final = "nominated node"
"""The hint of an event on the node that a pod is nominated to."""


class Cause(NamedTuple):
    """The event that moved a pod.

    Attributes:
        event: Its label: the kind of object and the action.
        about: The object, as `namespace/name` or `name`; empty if it is about none.
        hint: The plugin that may change its mind, as its queueing hint says, or `NOMINATED`.
    """

    event: str
    about: str
    hint: str

    @classmethod
    def of(cls, event: ClusterEvent, old: Any, new: Any, hint: str) -> "Cause":
        """The cause that *event* is, of the object *old* or *new*, by the hint of *hint*."""
        return cls(event.label, _name_of(old if new is None else new), hint)

    def __str__(self) -> str:
        about = f" {self.about}" if self.about else ""
        return f"{self.event}{about} ({self.hint})"


class Move(NamedTuple):
    """A pod's way from one place to another, or its stay in place after it was looked at again."""

    at: float
    came_from: Place
    place: Place
    trigger: Trigger
    cause: Cause | None

    def text(self, now: float) -> str:
        """The move in words, for a reader at *now*."""
        stays = self.place is self.came_from
        way = self.place.label if stays else f"{self.came_from.label} -> {self.place.label}"
        return f"{now - self.at:.1f}s ago: {way}: {self.why}"

    @property
    def why(self) -> str:
        """What moved it, in words: `NodeAdd node-3 (NodeResourcesFit)`."""
        if self.cause is None:
            return self.trigger.words
        if self.came_from in (Place.IN_FLIGHT, Place.BINDING):
            return f"{self.cause} during its last attempt"
        return str(self.cause)


_READY: Final = (Place.ACTIVE, Place.BACKOFF)


def makes_it_tried(came_from: Place, place: Place, trigger: Trigger) -> bool:
    """Whether such a move is why a pod is tried: waits that end on the way are no reason."""
    return place in _READY and (came_from not in _READY or trigger is Trigger.ACTIVATED)


def check_moves(moves: Sequence[Move], place: Place) -> None:
    """Raise `AssertionError` if *moves* are not all in the table, or do not lead to *place*."""
    for move in moves:
        allowed = TRANSITIONS.get((move.came_from, move.trigger), ())
        assert move.place in allowed, f"not in the table: {move}"
    for before, after in pairwise(moves):
        assert before.place is after.came_from, f"a move is missing between {before} and {after}"
    assert not moves or moves[-1].place is place, f"{moves[-1]} does not lead to {place}"


def _name_of(subject: Any) -> str:
    if isinstance(subject, Pod):
        return subject.key
    if isinstance(subject, Node):
        return subject.name
    return "" if subject is None else object_key(subject)
