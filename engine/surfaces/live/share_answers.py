"""The records of `/queues`: how the queues of a tree stand, what is held, and who takes from whom.

Owns records only, in the terms of `answers`. Amounts are millicores for cpu, else whole units.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from engine.surfaces.live.answers import Leader


class ResourceStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a queue, with that of the queues below it.

    Attributes:
        allocated: What its pods on nodes request.
        leaving: Of that, what pods request that are being deleted or evicted.
        nonpreemptible: Of `allocated`, what the policy does not give back.
        waiting: What its pods without a node request.
        claimed: Of that, what pods request for which others are evicted.
        requested: `allocated` and `waiting` together.
        share: What it may have now; null if no policy says. Of the root, what the nodes offer.
        borrowed: How much more than its share is allocated.
        lacks: How much of its share it does not have, although its pods wait for it; 0 if that is
            too little for each of them. This and `borrowed` are 0 without a share, and of the root,
            which has no others to borrow from.
        usage: What it had of what the nodes offer, averaged over the past with the tree's
            half-life, in thousandths; null if the tree does not keep it, and of pods.
    """

    allocated: int = 0
    leaving: int = 0
    nonpreemptible: int = 0
    waiting: int = 0
    claimed: int = 0
    requested: int = 0
    share: int | None = None
    borrowed: int = 0
    lacks: int = 0
    usage: int | None = None


class PodCounts(msgspec.Struct, frozen=True):
    """How many pods a queue has in each phase; each pod is in one."""

    waiting: int = 0
    claimed: int = 0
    allocated: int = 0
    leaving: int = 0


class ShareRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the tree.

    Attributes:
        path: Names from the root down, with slashes; "" for the root.
        level: 0 for the root.
        is_leaf: No queue is below it.
        source: Where it was given: a line of a file, an object, a namespace.
        attributes: What the policy reads of it.
        pods: With those of the queues below it.
        resources: By name.
        dominant_share: The largest part that it has of what the nodes offer of a resource, in
            thousandths; `dominant_resource` is which.
        is_starved: It lacks something.
        is_borrowing: It borrows something.
        starved_seconds, borrowed_seconds: For how long in all, since this process leads or the
            queue is there.
        held: How many of its pods stand still: the policy says that they may not start now.
    """

    path: str
    level: int
    is_leaf: bool = True
    source: str = ""
    attributes: Mapping[str, Any] = {}
    pods: PodCounts = PodCounts()
    resources: Mapping[str, ResourceStanding] = {}
    dominant_share: int = 0
    dominant_resource: str = ""
    is_starved: bool = False
    is_borrowing: bool = False
    starved_seconds: float = 0.0
    borrowed_seconds: float = 0.0
    held: int = 0


class SharePair(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that lacks something, and one under the same parent that borrows it.

    Attributes:
        resource: What.
        starved, borrowing: Their paths.
        amount: How much of what one borrows the other lacks. No amount is in two pairs.
        lacks, borrowed: What each lacks and borrows in all.
    """

    resource: str
    starved: str
    borrowing: str
    amount: int
    lacks: int
    borrowed: int


class HeldRow(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one queue that stand still for the same.

    Attributes:
        queue: Its path, or the name of one that is not there.
        is_there: There is such a queue, and pods may be in it.
        token: The word for the reason.
        reason: What the policy says; "" if the caller may not list the pods that it is said of.
        has_failed: The policy could not say.
        at: The queue that is short; "" is the root.
        resource, short: Of what, and by how much when it was asked about, the least of all; "" and
            0 if the policy does not say.
        requests: How many requests they are: pods, or groups of pods.
        pods: How many pods.
    """

    queue: str
    is_there: bool = True
    token: str
    reason: str = ""
    has_failed: bool = False
    at: str = ""
    resource: str = ""
    short: int = 0
    requests: int = 0
    pods: int = 0


class NextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is next in a queue, as of when a pod was tried last.

    Attributes:
        queue: The leaf that it is in.
        pod: `namespace/name`, of a group its first; "" if the caller may not list it.
        group: The name of the group; "" for a pod by itself.
        is_held: It may not start now.
    """

    queue: str
    pod: str = ""
    group: str = ""
    is_held: bool = False


class GivenBack(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one queue that had to go for a request of another.

    Attributes:
        stage: What the policy said of them: those of 0 go first.
        count: How many.
        pods: Those that the caller may list, ten at most.
    """

    queue: str
    stage: int
    count: int
    pods: tuple[str, ...] = ()


class ReclaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request for which other queues had to give back.

    Attributes:
        taker: The pod, or the first of its group; "" if the caller may not list it.
        queue: Its queue.
        is_reversal: Its queue took back from the one that had taken from it a moment ago.
        victims: By queue and stage.
    """

    at: str
    queue: str
    taker: str = ""
    is_reversal: bool = False
    victims: tuple[GivenBack, ...] = ()


class SharesPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of `/queues`: the tree, each queue before those below it.

    Attributes:
        revision: The policies in force.
        policy: The one that governs the queues; "" if there is no tree.
        headline: How the queues stand, in one sentence.
        next_step: What to do about it; "" if there is nothing.
        problems: What is wrong with the tree, its sources, and what the policy answers.
        problems_left_out: How many are not listed.
        queues: How many there are, without the root.
        starved, borrowing: How many of them are.
        outside: Pods that are in no queue.
        resources: The names of all, in the order of names.
        pairs: The largest parts of what the nodes offer first.
        pairs_left_out: How many are not listed.
        held: What stands still, in queues that pass the filter of their paths; the most pods first.
        held_left_out: How many rows of it are not listed.
        reclaims: For whom others had to give back, the latest of this process, the newest first.
        reversals: How many took back what had just been taken, in all.
        total: Rows that pass the filters.
        next: The cursor of the next page; null on the last.
    """

    revision: str
    at: str
    leader: Leader
    policy: str = ""
    headline: str = ""
    next_step: str = ""
    problems: tuple[str, ...] = ()
    problems_left_out: int = 0
    queues: int = 0
    starved: int = 0
    borrowing: int = 0
    outside: int = 0
    resources: tuple[str, ...] = ()
    pairs: tuple[SharePair, ...] = ()
    pairs_left_out: int = 0
    held: tuple[HeldRow, ...] = ()
    held_left_out: int = 0
    reclaims: tuple[ReclaimRow, ...] = ()
    reversals: int = 0
    total: int = 0
    next: str | None = None
    rows: tuple[ShareRow, ...] = ()


class PodInQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a queue.

    Attributes:
        pod: `namespace/name`.
        phase: `claimed`, `waiting`, `leaving` or `allocated`.
        node: The node that it is on; "" if there is none.
        requests: By resource.
        is_preemptible: False: the policy does not give it back.
        since: When it was created.
    """

    pod: str
    phase: str
    node: str = ""
    requests: Mapping[str, int] = {}
    is_preemptible: bool = True
    since: str | None = None


class ShareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/queues/PATH`: one queue.

    Attributes:
        queue: The queue.
        children: The queues right below it.
        children_left_out: How many are not listed.
        pairs: Those that it is in.
        pairs_left_out: How many are not listed.
        next_request: What is next in it; null if none of its pods is ready to be tried.
        held: What stands still in it and below it, the most pods first.
        held_left_out: How many rows of it are not listed.
        reclaims: Those of the latest in which it, or one below it, took or gave.
        pods: Its own, those that wait first; not those of the queues below it.
        total_pods: How many of them the caller may see.
        hidden_pods: How many the caller may not see.
        next: The cursor of the next pods; null after the last.
    """

    revision: str
    at: str
    leader: Leader
    policy: str
    queue: ShareRow
    children: tuple[ShareRow, ...] = ()
    children_left_out: int = 0
    pairs: tuple[SharePair, ...] = ()
    pairs_left_out: int = 0
    next_request: NextRequest | None = None
    held: tuple[HeldRow, ...] = ()
    held_left_out: int = 0
    reclaims: tuple[ReclaimRow, ...] = ()
    pods: tuple[PodInQueue, ...] = ()
    total_pods: int = 0
    hidden_pods: int = 0
    next: str | None = None
