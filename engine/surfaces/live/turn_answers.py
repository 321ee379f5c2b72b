"""The records of a pod's turn: where it stands in the tree of queues, and what holds it there.

Owns records only, in the terms of `answers`. Amounts are millicores for cpu, else whole units.
"""

from collections.abc import Mapping

import msgspec


class LevelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where a queue stands among those under the same one, as they were compared last.

    Attributes:
        queue: Its path.
        place: 1 goes next; null: none of its requests may be tried.
        rivals: How many of them have a request that may be tried, with it.
        key: What `turn_key` gave for it; "" if the policy has none: then arrival decides.
        first, first_key: The one that goes next, and its key; "" if none may.
    """

    queue: str
    place: int | None
    rivals: int
    key: str = ""
    first: str = ""
    first_key: str = ""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has, or claims, some of what another lacks; its share, and what is beyond."""

    queue: str
    allocated: int
    share: int | None = None
    borrowed: int = 0


class HoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request may not be tried.

    Attributes:
        reason: What the policy says; `token` is the word for it.
        source: `file:line` of what it says it with; "" for a part of the runtime.
        has_failed: The policy could not say, and `reason` is what it failed with.
        at: The queue that is short; "" is the root.
        resource, short: Of what, and by how much; "" and 0 if the policy does not say.
        has: How much of it that queue has, with what it claims.
        holders: The queues right below `at` that have the most of it, those that borrow first.
        holders_left_out: How many others have some.
        is_whole_queue: Those behind it in its queue wait, too.
    """

    reason: str
    token: str
    source: str = ""
    has_failed: bool = False
    at: str = ""
    resource: str = ""
    short: int = 0
    has: int = 0
    holders: tuple[Holder, ...] = ()
    holders_left_out: int = 0
    is_whole_queue: bool = False


class TurnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod stands in the tree of queues.

    Attributes:
        policy: The one that governs the queues.
        queue: The path of its queue, or the name of one that is not there.
        is_there: There is such a queue, and pods may be in it.
        place: 1 is the first pod of the queue; null: it is not ready to be tried.
        pods: How many of the queue are.
        requests: What is asked about when it is its turn: of the pod, or of its group.
        hold: Why that may not be tried; null: it may, once it is its turn.
        behind: The pod before it that is like it and is held; "" if it is itself the first.
        levels: Its queue, and those above it, without the root.
    """

    policy: str
    queue: str
    is_there: bool = True
    place: int | None = None
    pods: int = 0
    requests: Mapping[str, int] = {}
    hold: HoldAnswer | None = None
    behind: str = ""
    levels: tuple[LevelAnswer, ...] = ()
