"""A pod in the queue, with the history that backoff, order and hints need."""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine.core.framework import reasons
from engine.core.framework.reasons import NOT_YET_TRIED, Reason
from engine.core.model.pod import Pod
from engine.core.queueing.transitions import Cause, Move, Place, Trigger, makes_it_tried

# About two attempts with what led to them.
_MOST_MOVES: Final = 8

# The fields of a `Move`, which costs more to make than a pod's move may.
_Move: TypeAlias = tuple[float, Place, Place, Trigger, Cause | None]

SortKey = tuple[tuple[int, int | str], ...]
"""What `queue_key` answered, normalised so that any two keys compare; the smaller goes first."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod that wants a node.

    Attributes:
        pod: Its newest known version.
        sort_key: Orders the active queue.
        timestamp: When it was added or last requeued (monotonic seconds).
        sequence: Grows with each of these, to break ties of the timestamp.
        attempts: How often it was popped.
        unschedulable_count: How many attempts ended in a rejection.
        error_count: How many of the latest attempts in a row ended in an error.
        members: How many pods were tried together with it in its last attempt, itself included.
        initial_attempt_at: When it could first be popped; None while gated from the start.
        rejectors: The plugins that rejected it in its last attempt.
        rejection: The dominant cause of the end of its last attempt.
        message: What was reported of it.
        gated_by: The plugin that does not let it into the active queue, if any.
        gate_reason: What that plugin said.
        gate_token: The reason token for it.
        tally: While it waits, the number of pods that wait for its reason, as a list of one.
        place: Where it is; changed by the queue only.
        is_backlog: It was not tried here yet, but found unschedulable by who decided before.
        was_flushed: It is active or in backoff because no event helped it for too long.
        moved_at: When it came to its place (monotonic seconds).
        traits: What events mean to it depends on this (`unschedulable_pods.traits`), with the
            version of the pod that it is of; None until it is needed.
    """

    pod: Pod
    sort_key: SortKey
    timestamp: float
    sequence: int
    attempts: int = 0
    unschedulable_count: int = 0
    error_count: int = 0
    members: int = 1
    initial_attempt_at: float | None = None
    rejectors: frozenset[str] = frozenset()
    rejection: Reason = NOT_YET_TRIED
    message: str = ""
    gated_by: str | None = None
    gate_reason: str = ""
    gate_token: str = ""
    tally: list[int] | None = None
    place: Place = Place.UNKNOWN
    is_backlog: bool = False
    was_flushed: bool = False
    moved_at: float = 0.0
    _moves: list[_Move] = field(default_factory=list)
    traits: tuple[Pod, bytes] | None = None

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def order(self) -> tuple[bool, SortKey, float, int]:
        """The order among active pods: by sort key, then first come, first served.

        A backlog comes last, as it would wait aside had the same process gone on deciding.
        """
        return (self.is_backlog, self.sort_key, self.timestamp, self.sequence)

    @property
    def failed_with_error(self) -> bool:
        """True if nothing rejected it: the last attempt ended in an error, or none was made."""
        return not self.rejectors

    @property
    def objectors(self) -> frozenset[str]:
        """The plugins that rejected it in its last attempt, and the one that gates it."""
        return self.rejectors if self.gated_by is None else self.rejectors | {self.gated_by}

    @property
    def reason(self) -> Reason:
        """Why it waits: the gate that it is at, or else the cause of the end of its attempt."""
        if self.gated_by is None:
            return self.rejection
        return reasons.gate(self.gated_by, self.gate_token)

    @property
    def reason_text(self) -> str:
        """The same in words; empty if it was not tried."""
        return self.message if self.gated_by is None else self.gate_reason

    @property
    def tried_because(self) -> str:
        """Why its last attempt was made, or its next one is due: `NodeAdd n3 (NodeResourcesFit)`.

        Empty if that is too long ago.
        """
        for at, came_from, place, trigger, cause in reversed(self._moves):
            if makes_it_tried(came_from, place, trigger):
                return Move(at, came_from, place, trigger, cause).why
        return ""

    @property
    def moves(self) -> list[Move]:
        """Its last moves, the latest at the end; of those in a row that left it, the last."""
        return [Move(*move) for move in self._moves]

    def remember(self, now: float, came_from: Place, trigger: Trigger, cause: Cause | None) -> None:
        """Note that it was moved from *came_from* to its place."""
        self.moved_at = now
        moves = self._moves
        place = self.place
        if place is came_from and moves and moves[-1][1] is moves[-1][2]:
            moves[-1] = (now, came_from, place, trigger, cause)
            return
        if len(moves) >= _MOST_MOVES:
            del moves[0]
        moves.append((now, came_from, place, trigger, cause))
