"""The pods of the queue, each in its place, and the one way to move them.

Owns the structures that hold pods by place, and that every move is an entry of the table in
`transitions.py`. Which move is made when is the scheduling queue's.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.core.framework.reasons import Reason
from engine.core.model.pod import Pod
from engine.core.queueing.active_queue import ActiveQueue
from engine.core.queueing.backoff_queue import BackoffQueue
from engine.core.queueing.in_flight import InFlight
from engine.core.queueing.queued_pod import QueuedPod, SortKey
from engine.core.queueing.transitions import TRANSITIONS, Cause, Place, Trigger, check_moves
from engine.core.queueing.unschedulable_pods import UnschedulablePods
from engine.lib.clock import Clock

#: Where pods wait for an event, or for their gate to open.
SET_ASIDE: Final = (Place.UNSCHEDULABLE, Place.GATED)
#: Where pods wait.
WAITING: Final = (Place.ACTIVE, Place.BACKOFF, *SET_ASIDE)

# A member of an enum costs as much to look up as the rest of a step of `PodStore.move`.
_ACTIVE: Final = Place.ACTIVE
_BACKOFF: Final = Place.BACKOFF
_GATED: Final = Place.GATED

# Reasons without a pod are dropped beyond so many.
_MOST_TALLIES: Final = 1_000


class Gate(NamedTuple):
    """The plugin that keeps a pod out, its reason, and the reason token for that."""

    plugin: str
    reason: str
    token: str = "GatedByPolicy"


_OPEN: Final = None, "", ""


class PodStore:
    """All known pods, by uid, by name and by place.

    Args:
        clock: Time.
        backoff: Holds the pods in backoff, and says which have to go there.
        pre_enqueue: The gate that keeps a pod out of the active queue, or None.
        on_incoming: Called for each pod that enters a queue, with its uid, the queue and the
            trigger's label.
        active: Holds the pods that can be tried now.
    """

    def __init__(
        self,
        clock: Clock,
        backoff: BackoffQueue,
        *,
        pre_enqueue: Callable[[Pod], Gate | None],
        on_incoming: Callable[[str, str, str], None],
        active: ActiveQueue | None = None,
    ) -> None:
        self.active = active if active is not None else ActiveQueue()
        self.backoff = backoff
        #: The gated pods too.
        self.unschedulable = UnschedulablePods()
        self.in_flight = InFlight()
        # How many of the pods that wait have the same reason, by that and profile. A number is a
        # list of one, which each of its pods has, too: it leaves without a look at this.
        self._tallies: dict[tuple[Reason, str], list[int]] = {}
        self._held_by: dict[Place, ActiveQueue | BackoffQueue | UnschedulablePods] = {
            Place.ACTIVE: self.active,
            Place.BACKOFF: self.backoff,
            Place.UNSCHEDULABLE: self.unschedulable,
            Place.GATED: self.unschedulable,
        }
        self._clock = clock
        self._pre_enqueue = pre_enqueue
        self._on_incoming = on_incoming
        self._known: dict[str, QueuedPod] = {}
        self._uid_of: dict[str, str] = {}  # pod key -> uid

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def get(self, uid: str) -> QueuedPod | None:
        """The pod of a uid, or None."""
        return self._known.get(uid)

    def named(self, key: str) -> QueuedPod | None:
        """The pod `namespace/name`, or None."""
        return self._known.get(self._uid_of.get(key, ""))

    def names(self) -> list[str]:
        """The names of all pods."""
        return list(self._uid_of)

    def holds(self, queued: QueuedPod) -> bool:
        """False if the pod was deleted, even if there is one of the same uid again."""
        return self._known.get(queued.uid) is queued

    def waiting(self) -> list[QueuedPod]:
        """The pods that are neither tried nor bound, in no particular order."""
        return [*self.active, *self.backoff, *self.unschedulable]

    def enroll(self, queued: QueuedPod, trigger: Trigger) -> Place:
        """Make an unknown pod known, and move it; no other pod may have its name."""
        self._known[queued.uid] = queued
        self._uid_of[queued.pod.key] = queued.uid
        return self.move(queued, trigger)

    def rename(self, queued: QueuedPod, key: str) -> None:
        """File a pod, which has its old name still, under another: its uid came back with that."""
        if key != queued.pod.key:
            del self._uid_of[queued.pod.key]
            self._uid_of[key] = queued.uid

    def dismiss(self, queued: QueuedPod) -> None:
        """Forget a pod."""
        self.move(queued, Trigger.DELETED)
        del self._known[queued.uid]
        if self._uid_of.get(queued.pod.key) == queued.uid:
            del self._uid_of[queued.pod.key]

    def can(self, queued: QueuedPod, trigger: Trigger) -> bool:
        """Whether the table has an entry for *trigger* where the pod is."""
        return (queued.place, trigger) in TRANSITIONS

    def move(
        self,
        queued: QueuedPod,
        trigger: Trigger,
        cause: Cause | None = None,
        *,
        key: SortKey | None = None,
    ) -> Place:
        """Move a pod as the table says, under the sort key *key* if given; returns its place."""
        came_from = queued.place
        # 1. The first place that applies.
        gate: Gate | None = None
        for place in TRANSITIONS[came_from, trigger]:
            if place is _GATED:
                gate = self._pre_enqueue(queued.pod)
                if gate is not None:
                    break
            elif place is not _BACKOFF or self.backoff.is_backing_off(queued):
                break
        else:
            return came_from
        # 2. Out of where it is. In flight, its events stay recorded until the attempt has ended.
        if (held_by := self._held_by.get(came_from)) is not None:
            held_by.remove(queued)
        # 3. Into its place.
        now = self._clock.monotonic()
        queued.place = place
        queued.gated_by, queued.gate_reason, queued.gate_token = _OPEN if gate is None else gate
        if key is not None:
            queued.sort_key = key
        queued.remember(now, came_from, trigger, cause)
        held_by = self._held_by.get(place)
        if (tally := queued.tally) is not None:
            tally[0] -= 1
            queued.tally = None
        if held_by is None:
            return place
        self._count(queued)
        if place is _ACTIVE and queued.initial_attempt_at is None:
            queued.initial_attempt_at = now
        if gate is not None:
            queued.was_flushed = False
        held_by.add(queued)
        if place is not came_from:
            label = trigger.label or (cause.event if cause is not None else "")
            self._on_incoming(queued.uid, place.label, label)
        return place

    def relabel(self, queued: QueuedPod, reason: Reason, message: str) -> None:
        """Note another reason why a pod waits where it is."""
        queued.rejection, queued.message = reason, message
        if (tally := queued.tally) is not None:
            tally[0] -= 1
            self._count(queued)

    def _count(self, queued: QueuedPod) -> None:
        """Count a pod that has come to where it waits, under its reason."""
        reason = queued.rejection if queued.gated_by is None else queued.reason
        key = reason, queued.pod.scheduler_name
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) > _MOST_TALLIES:
                self._tallies = {k: one for k, one in self._tallies.items() if one[0]}
            tally = self._tallies[key] = [0]
        tally[0] += 1
        queued.tally = tally

    def waiting_reasons(self) -> Counter[tuple[str, str, str]]:
        """How many pods wait for the same reason, by (token, policy, scheduler name)."""
        found: Counter[tuple[str, str, str]] = Counter()
        for (reason, profile), tally in self._tallies.items():
            if tally[0]:
                found[reason.token, reason.policy, profile] += tally[0]
        return found

    def oldest(self) -> dict[tuple[str, str, str], float]:
        """When the oldest of them was created (epoch seconds), by the same.

        Costs a look at every pod that waits: for metrics, not for decisions.
        """
        created: dict[int, float] = {}  # by the identity of a tally: a key costs more to hash
        for queued in self.waiting():
            tally = id(queued.tally)
            at = queued.pod.created_at
            if at < created.get(tally, math.inf):
                created[tally] = at
        found: dict[tuple[str, str, str], float] = {}
        for (reason, profile), one in self._tallies.items():
            if (at := created.get(id(one), math.inf)) != math.inf:
                key = reason.token, reason.policy, profile
                found[key] = min(at, found.get(key, math.inf))
        return found

    def counts(self) -> dict[str, int]:
        """How many pods are in each place."""
        gated = self.unschedulable.gated_count
        return {
            "active": len(self.active),
            "backoff": len(self.backoff),
            "unschedulable": len(self.unschedulable) - gated,
            "gated": gated,
            "in_flight": len(self.in_flight),
        }

    def rejections(self) -> Counter[tuple[str, str]]:
        """How many pods each plugin rejected or gates, by (plugin, scheduler name).

        A rejected pod counts until it is tried again. Costs a look at every pod that waits: for
        metrics, not for decisions.
        """
        return Counter(
            (plugin, queued.pod.scheduler_name)
            for queued in self.waiting()
            for plugin in queued.objectors
        )

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod is lost, in two places, or not where its moves lead."""
        parts = (self.active, self.backoff, self.unschedulable, self.in_flight)
        for part in parts:
            part.check_invariants()
        held: dict[str, tuple[Place, ...]] = {}
        for places, pods in (
            ((Place.ACTIVE,), self.active),
            ((Place.BACKOFF,), self.backoff),
            (SET_ASIDE, self.unschedulable),
        ):
            for queued in pods:
                assert queued.uid not in held, (
                    f"`{queued.pod.key}` is {held[queued.uid]} and {places}"
                )
                assert self._known.get(queued.uid) is queued, f"`{queued.pod.key}` is not known"
                held[queued.uid] = places
        for uid, queued in self._known.items():
            key, place = queued.pod.key, queued.place
            assert queued.uid == uid, f"`{key}` is filed under another uid"
            assert self._uid_of.get(key) == uid, f"the name `{key}` leads to another pod"
            assert (place in WAITING) == (uid in held), f"`{key}` is lost: {place}"
            assert place in held.get(uid, (place,)), f"`{key}` says {place}, but is {held[uid]}"
            is_in_flight = self.in_flight.get(uid) is queued
            assert is_in_flight == (place is Place.IN_FLIGHT), f"`{key}` says {place}"
            is_gated = place is Place.GATED
            assert (queued.gated_by is not None) == is_gated, f"`{key}` is {place}, and has a gate"
            check_moves(queued.moves, place)
        counted = Counter(
            (one.reason.token, one.reason.policy, one.pod.scheduler_name) for one in self.waiting()
        )
        assert self.waiting_reasons() == counted, "pods are counted under other reasons"
        assert self.oldest().keys() == counted.keys(), "a reason has pods and no oldest one"
        assert len(self._uid_of) == len(self._known), "a name is kept of an unknown pod"
