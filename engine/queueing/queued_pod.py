"""A pod in the queue, with the history that backoff, order and hints need."""

import enum
from dataclasses import dataclass

from engine.model.pod import Pod

SortKey = tuple[tuple[int, int | str], ...]
"""What `queue_key` answered, normalised so that any two keys compare; smaller goes first."""


class Place(enum.Enum):
    """Where a known pod is. Exactly one at a time."""

    NOWHERE = "nowhere"
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "in_flight"
    BINDING = "binding"
    TERMINATING = "terminating"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod that wants a node.

    Attributes:
        pod: Its newest known version.
        sort_key: Its place in the order of the active queue.
        timestamp: When it came or last came back from an attempt (monotonic seconds).
        sequence: Grows with each coming, to break ties of the timestamp.
        attempts: How often it was popped.
        unschedulable_count: How many attempts ended in a rejection.
        error_count: How many of the latest attempts in a row ended in an error.
        initial_attempt_at: When it could first be popped; None while gated from the start.
        rejectors: The plugins that rejected it in its last attempt.
        pending: Those of them that wait for something: their events skip the backoff.
        gated_by: The plugin that does not let it into the active queue, if any.
        gate_reason: What that plugin said.
        waiting_since: When it was set aside (monotonic seconds); the flush counts from here.
        was_flushed: It was last retried because of the flush, which a good hint would have saved.
        place: Where it is; changed by the queue only.
        traits: What events mean to it depends on this (`unschedulable_pods.traits`), with the
            version of the pod that it is of; None as long as nobody asked.
    """

    pod: Pod
    sort_key: SortKey
    timestamp: float
    sequence: int
    attempts: int = 0
    unschedulable_count: int = 0
    error_count: int = 0
    initial_attempt_at: float | None = None
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    gated_by: str | None = None
    gate_reason: str = ""
    waiting_since: float = 0.0
    was_flushed: bool = False
    place: Place = Place.NOWHERE
    traits: tuple[Pod, bytes] | None = None

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def order(self) -> tuple[SortKey, float, int]:
        """The order among poppable pods: key, then who came first."""
        return (self.sort_key, self.timestamp, self.sequence)

    @property
    def failed_with_error(self) -> bool:
        """True if nothing rejected it: the last attempt ended in an error, or none was made."""
        return not self.rejectors
