"""Where a pod stands in the order of the queues of a tree, for readers.

Owns records only; what they say is the turn queue's.
"""

import re
from dataclasses import dataclass

from engine.core.model.pod import Pod
from engine.core.model.quantity import amount_text
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.scheduling.tree_hooks import Hold, QueueView, Request
from engine.core.sharing.ratios import TurnKey


@dataclass(frozen=True, slots=True)
class Level:
    """Where a queue stands among those under the same one.

    Attributes:
        path: The queue.
        place: 1 goes next; None: none of its requests may be tried.
        rivals: How many of them have a request that may be tried, with it.
        key: What its policy gave as its turn; empty if it gives none.
        first, first_key: The one that goes next, and its key; "" if none may.
    """

    path: str
    place: int | None
    rivals: int
    key: TurnKey
    first: str
    first_key: TurnKey


@dataclass(frozen=True, slots=True)
class LaneState:
    """Pods of one queue that are alike in what quotas read, or one group.

    Attributes:
        queue: The path of their queue, or the name of one that is not there.
        is_there: There is such a queue.
        head: The pod that is next of them.
        group: The name of the group; "": each is a request by itself.
        pods: How many are ready to be tried, and wait here.
        hold: Why they stand still; None: they do not.
        has_failed: The policy could not say.
    """

    queue: str
    is_there: bool
    head: Pod
    group: str
    pods: int
    hold: Hold | None
    has_failed: bool

    @property
    def requests(self) -> int:
        """How many requests they are."""
        return 1 if self.group else self.pods


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a pod stands.

    Attributes:
        queue: The path of its queue, or the name of one that is not there.
        is_there: There is such a queue, and pods may be in it.
        queued: Its entry, and `ready` those of all pods of the queue that are ready to be tried.
        head: The pod that was asked about for it: itself, or one before it that is like it.
        hold: Why it may not be tried; None: it may, once it is its turn.
        text: The same for people, as it is reported; "" without `hold`.
        has_failed: The policy could not say.
        request: What is asked about when it is its turn.
        path: Its queue and those above it, the root last; they change with the queues.
        levels: Those of them that are under others, its own first.
    """

    queue: str
    is_there: bool
    queued: QueuedPod
    ready: tuple[QueuedPod, ...]
    head: Pod
    hold: Hold | None
    text: str
    has_failed: bool
    request: Request
    path: tuple[QueueView, ...]
    levels: tuple[Level, ...]

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.queued.pod

    @property
    def place(self) -> int:
        """1 is the first of the pods of the queue. Looks at all of them."""
        own = self.queued.order
        return 1 + sum(one.order < own for one in self.ready)


def hold_text(queue: str, hold: Hold, *, has_failed: bool = False) -> str:
    """Why a request of *queue* is held, for people."""
    if has_failed:
        return hold.reason
    # A policy may name the queue by itself, with quotes of any kind.
    is_named = re.match(rf"queue [`'\"]?{re.escape(queue)}(?![\w./-])", hold.reason)
    text = hold.reason if is_named else f"queue `{queue}`: {hold.reason}"
    if hold.short is None:
        return text
    resource, by = hold.short
    where = f"`{hold.at}`" if hold.at else "the root"
    return f"{text} (short of {amount_text(resource, by)} at {where})"
