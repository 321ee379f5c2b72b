"""Where a pod stands in the tree of queues: what the kernel knows of it, and what would help.

Owns taking it from the kernel, in the loop of the decisions, and the answer that is made of it
elsewhere.
"""

import copy
import dataclasses
import heapq
from dataclasses import dataclass
from typing import Final

from engine.core.framework import reasons
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.turn_queue import HELD, TurnQueue
from engine.core.kernel.turn_standing import Standing
from engine.core.scheduling.tree_hooks import QueueView
from engine.core.sharing.ratios import turn_key_text
from engine.core.sharing.tree import ROOT
from engine.surfaces.live.rules import Rules
from engine.surfaces.live.turn_answers import HoldAnswer, Holder, LevelAnswer, TurnAnswer

_MOST_HOLDERS: Final = 5
# Of queues right below one, those that have the most are looked at closely.
_MOST_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class Turn:
    """What was known of a pod's turn at a moment; nothing of it changes any more.

    Attributes:
        policy: The one that governs the queues.
        queue: The path of the pod's queue.
        standing: Where the pod stands; None if it is not ready to be tried.
        has: How much the queue that is short has, or claims.
        holders, holders_left_out: See `HoldAnswer`.
    """

    policy: str
    queue: str
    standing: Standing | None = None
    has: int = 0
    holders: tuple[Holder, ...] = ()
    holders_left_out: int = 0

    @property
    def is_held(self) -> bool:
        """True if the pod may not be tried."""
        return self.standing is not None and self.standing.hold is not None

    @property
    def reason(self) -> reasons.Reason | None:
        """The cause of its not being tried; None if it may be."""
        hold = None if self.standing is None else self.standing.hold
        return None if hold is None else reasons.gate(self.policy, hold.token or HELD)


def turn_of(turns: TurnQueue, shares: QueueShares, uid: str) -> Turn | None:
    """What is known of the turn of the pod of *uid*; None if it is in no queue."""
    if not shares.is_on:
        return None
    standing = turns.standing_of(uid)
    if standing is None:
        queue = shares.queue_of(uid)
        return None if queue is None else Turn(shares.policy, queue)
    standing = dataclasses.replace(standing, path=tuple(map(_kept, standing.path)))
    return with_holders(Turn(shares.policy, standing.queue, standing), shares)


def with_holders(turn: Turn, shares: QueueShares) -> Turn:
    """*turn* with who has what the pod lacks."""
    standing = turn.standing
    if standing is None or standing.hold is None or standing.hold.short is None:
        return turn
    at, resource = standing.hold.at, standing.hold.short[0]
    if at not in shares.tree.queues:
        at = ROOT
    having = [
        (amount, path)
        for path in shares.tree.queues[at].children
        if (amount := shares.taken(path, resource)) > 0
    ]
    found = []
    for amount, path in heapq.nlargest(_MOST_LOOKED_AT, having):
        share = (shares.state(path).standing.share or {}).get(resource)
        borrowed = 0 if share is None else max(0, amount - share)
        found.append(Holder(queue=path, allocated=amount, share=share, borrowed=borrowed))
    found.sort(key=lambda one: (-one.borrowed, -one.allocated, one.queue))
    shown = tuple(found[:_MOST_HOLDERS])
    return dataclasses.replace(
        turn,
        has=shares.taken(at, resource),
        holders=shown,
        holders_left_out=len(having) - len(shown),
    )


def turn_answer(turn: Turn, rules: Rules) -> TurnAnswer:
    """The answer about it, with the lines of the policy."""
    standing = turn.standing
    if standing is None:
        return TurnAnswer(policy=turn.policy, queue=turn.queue)
    behind = ""
    if standing.hold is not None and standing.head.key != standing.pod.key:
        behind = standing.head.key
    return TurnAnswer(
        policy=turn.policy,
        queue=standing.queue,
        is_there=standing.is_there,
        place=standing.place,
        pods=len(standing.ready),
        requests=standing.request.resources,
        hold=_hold(turn, standing, rules),
        behind=behind,
        levels=tuple(
            LevelAnswer(
                queue=one.path,
                place=one.place,
                rivals=one.rivals,
                key=turn_key_text(one.key),
                first=one.first,
                first_key=turn_key_text(one.first_key),
            )
            for one in standing.levels
        ),
    )


def held_headline(pod: str, standing: Standing) -> str:
    """Why the pod is held, in one sentence."""
    if standing.head.key == standing.pod.key:
        return f"{pod} is held: {standing.text}"
    return f"{pod} is held behind {standing.head.key}: {standing.text}"


def turn_headline(pod: str, turn: TurnAnswer) -> str:
    """How many are before a pod that waits for its turn; "" if it is next, or not in its turn."""
    behind = [one for one in reversed(turn.levels) if (one.place or 1) > 1]
    before = [f"`{one.first}` goes before `{one.queue}`" for one in behind]
    if turn.place is None or (turn.place == 1 and not before):
        return ""
    place = f"it is number {turn.place:,} of {turn.pods:,} in queue `{turn.queue}`"
    return f"{pod} waits for its turn: {', and '.join([place, *before])}"


def _hold(turn: Turn, standing: Standing, rules: Rules) -> HoldAnswer | None:
    hold = standing.hold
    if hold is None:
        return None
    is_policy_s = standing.is_there and not standing.has_failed
    resource, short = hold.short or ("", 0)
    return HoldAnswer(
        reason=hold.reason,
        token=hold.token or HELD,
        source=rules.source(turn.policy, hold.reason, "admit") if is_policy_s else "",
        has_failed=standing.has_failed,
        at=hold.at,
        resource=resource,
        short=short,
        has=turn.has,
        holders=turn.holders,
        holders_left_out=turn.holders_left_out,
        is_whole_queue=hold.whole_queue,
    )


def _kept(view: QueueView) -> QueueView:
    """*view* as it is now: its sums go on changing."""
    queue = copy.copy(view.queue)
    up = {name: dict(vector) for name, vector in view.up.items()}
    sums, share = copy.deepcopy(view.sums), dict(view.share)
    return QueueView(queue, sums, up, share, dict(view.claimed))
