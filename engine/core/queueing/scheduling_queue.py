"""The scheduling queue: which pod is tried next, and when a rejected pod is tried again.

Owns every pod that wants a node, from its first sight until it is bound or deleted. Knows nothing
of policies but what it is given: a sort key, a gate and queueing hints. Pure: time comes from a
clock, events from the caller. Which event moves a pod from where to where is one table, in
`transitions.py`.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.framework.reasons import BACKING_OFF, POD_SCHEDULED, UNSCHEDULABLE, Reason
from engine.core.model.node import Node
from engine.core.model.pod import Pod
from engine.core.queueing.active_queue import ActiveQueue
from engine.core.queueing.backoff_queue import BackoffQueue
from engine.core.queueing.events import (
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_UPDATE_ALLOCATABLE,
    NODE_UPDATE_TAINT,
    POLICIES_CHANGED,
    ClusterEvent,
    is_meaningful_pod_change,
    pod_update_events,
)
from engine.core.queueing.hints import Hints, is_by_label
from engine.core.queueing.in_flight import RecordedEvent
from engine.core.queueing.nominator import Nominator
from engine.core.queueing.places import SET_ASIDE, WAITING, Gate, PodStore
from engine.core.queueing.queued_pod import QueuedPod, SortKey
from engine.core.queueing.transitions import NOMINATED, Cause, Place, Trigger
from engine.core.queueing.unschedulable_pods import UnschedulablePods
from engine.lib.clock import Clock

# Changes of a pod after which another may fit next to it that did not before.
_FREES_CAPACITY: Final = frozenset({"UpdatePodScaleDown", "UpdatePodLabel"})


def _uncounted(uid: str, queue: str, event: str) -> None:
    """The default of `on_incoming`."""


@dataclass(frozen=True)
class RetryTimes:
    """When a rejected pod is tried again.

    Attributes:
        initial_backoff: Seconds after the first failure; doubled by each further one.
        max_backoff: The longest backoff in seconds; 0 switches backoff off.
        pops_early: A rejected pod in backoff is tried at once while no pod is active.
        max_unschedulable: After so many seconds it is tried again in any case.
    """

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    pops_early: bool = True
    max_unschedulable: float = 300.0


class SchedulingQueue:
    """Pods that want a node.

    A pod in binding cannot be popped; it stays known so that it can come back if its binding fails,
    and so that it does not come back if it was deleted or seen bound meanwhile. So `delete` has to
    be called for every pod that is deleted *or seen with a node*. A terminating pod stays known so
    that its updates do not add it again; only a restored API server can let it live on.

    A name belongs to one pod at a time: a pod that comes under the name of another uid ends that
    one. The newest version of a pod is kept here, also while it is in flight, so what a requeued
    pod is tried with next is never older than what the watch reported.

    Args:
        clock: Source of time (its monotonic side).
        key_of: The sort key of a pod: the policy's `queue_key`, normalised.
        pre_enqueue: The gate that keeps a pod out of the active queue, or None.
        retries: When a rejected pod is tried again.
        hints: Which events are worth a retry; may be replaced through `rekey`.
        on_incoming: Called for each pod that enters a queue, with its uid, the queue and the
            trigger's label.
        active: Orders the pods that can be tried now; None: by their sort keys.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        key_of: Callable[[Pod], SortKey],
        pre_enqueue: Callable[[Pod], Gate | None],
        retries: RetryTimes = RetryTimes(),  # it is frozen
        hints: Hints | None = None,
        on_incoming: Callable[[str, str, str], None] = _uncounted,
        active: ActiveQueue | None = None,
    ) -> None:
        self.nominator = Nominator(self._on_nomination_lost)
        self._clock = clock
        self._key_of = key_of
        self._max_unschedulable = retries.max_unschedulable
        self._hints = hints if hints is not None else Hints()
        self._on_incoming = on_incoming
        self._sequence = 0
        self._places = PodStore(
            clock,
            BackoffQueue(
                clock,
                retries.initial_backoff,
                retries.max_backoff,
                pops_early=retries.pops_early,
            ),
            pre_enqueue=pre_enqueue,
            on_incoming=on_incoming,
            active=active,
        )

    # --- what the watch reports --------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Add a pod that wants a node. A pod that is known already is updated."""
        namesake = self._places.named(pod.key)
        # Its deletion comes later, or was lost in a relist: nothing else ends it.
        if namesake is not None and namesake.uid != pod.uid:
            self.delete(namesake.pod)
        if pod.uid in self._places:
            self.update(None, pod)
            return
        # First, so that a gated pod holds its nominated node, too.
        self.nominator.nominate(pod)
        tried = self._places.in_flight.get(pod.uid)
        if tried is not None:
            # Deleted and created again while it was being tried: that attempt's outcome counts.
            self._places.enroll(tried, Trigger.REAPPEARED)
            self.update(None, pod)
            return
        # The sequence breaks ties of keys and times, so that the order is total and runs repeat.
        queued = QueuedPod(
            pod, self._key_of(pod), timestamp=self._clock.monotonic(), sequence=self._next()
        )
        queued.is_backlog = self._is_backlog(queued)
        self._places.enroll(queued, Trigger.ADDED)

    def update(self, old: Pod | None, new: Pod) -> None:
        """Update a pod to a new version; an unknown one is added.

        What changed is judged against the version known here; *old* only shows when a pod of
        another uid had the name. A version that is known already is ignored.
        """
        if old is not None and old.uid != new.uid:
            self.delete(old)
        queued = self._places.get(new.uid)
        if queued is None:
            self.add(new)
            return
        before = queued.pod
        # A relist reports every object again. Without this, each would be a reason to ask gates
        # again, and a pod that waits would be retried for nothing.
        if new is before or (
            new.resource_version and new.resource_version == before.resource_version
        ):
            return
        self._places.rename(queued, new.key)
        queued.pod = new
        nominated = self.nominator.node_of(new.uid)
        match queued.place:
            # It is decided about as it was. What changed is an event like any other: if the attempt
            # fails, it may be the reason to try again at once.
            case Place.IN_FLIGHT:
                self.nominator.refresh(new)
                for event in pod_update_events(before, new):
                    self._places.in_flight.record(event, before, new)
            # The decision is made, and its binding names the uid, not the version.
            case Place.BINDING:
                self.nominator.refresh(new)
            case Place.TERMINATING if not new.is_terminating:
                self._places.move(queued, Trigger.RESTORED)
            case Place.TERMINATING:
                self.nominator.update(before, new)
            case _:
                self._update_waiting(queued, before)
                self.nominator.update(before, new)
                # Another program cleared the nomination, and what it held there is free for others.
                if nominated is not None and self.nominator.node_of(new.uid) != nominated:
                    self._lost_nomination(queued)
        if nominated is not None and self.nominator.node_of(new.uid) == nominated:
            self._nominated_changed(before, new, nominated)

    def _update_waiting(self, queued: QueuedPod, before: Pod) -> None:
        pod = queued.pod
        # Conditions and managed fields change often, above all by what we write ourselves. Asking
        # `queue_key` and the gates each time would make each rejection cause the next attempt.
        key = self._key_of(pod) if is_meaningful_pod_change(before, pod) else None
        if queued.is_backlog != (is_backlog := self._is_backlog(queued)):
            queued.is_backlog = is_backlog
            if key is None and queued.place is Place.ACTIVE:
                key = queued.sort_key  # another place in the same order
        if queued.place in SET_ASIDE:
            self._places.unschedulable.follow(queued)
            is_gated, obstacles = queued.place is Place.GATED, UnschedulablePods.obstacles(queued)
            for event in pod_update_events(before, pod):
                hint = self._hints.helped(event, pod, obstacles, before, pod, is_gated=is_gated)
                if hint is not None:
                    cause = Cause.of(event, before, pod, hint)
                    self._places.move(queued, Trigger.EVENT, cause, key=key)
                    return
        if key is None:
            return
        if queued.place is Place.UNSCHEDULABLE:
            # It will go by it when it is active; moving it now would end its wait.
            queued.sort_key = key
        else:
            # Active, in backoff or gated: its sort key and its gate may have changed.
            self._places.move(queued, Trigger.UPDATED, key=key)

    def _is_backlog(self, queued: QueuedPod) -> bool:
        """True if another process has found the pod unschedulable, and this one never tried it.

        Not if room is being made for it, nor where queues take turns: there who came first stays
        first.
        """
        status = queued.pod.manifest.status
        return (
            queued.attempts == 0
            and not status.nominated_node_name
            and any(
                one.type == POD_SCHEDULED and one.reason == UNSCHEDULABLE
                for one in status.conditions
            )
            and not self._places.active.goes_by_turns
        )

    def delete(self, pod: Pod) -> None:
        """Forget a pod that was deleted, or that has a node now; unknown ones are ignored.

        If it is in flight, it will not come back.
        """
        self.nominator.remove(pod.uid, placed_on=pod.node_name)
        queued = self._places.get(pod.uid)
        if queued is not None:
            self._places.dismiss(queued)

    # --- attempts ----------------------------------------------------------------------------

    def pop(self, uid: str | None = None) -> QueuedPod | None:
        """The pod to try now, or None. It is in flight until `done` or a requeue.

        When no pod is active, the rejected pod whose backoff is nearest its end is tried early, if
        that is wanted: an idle scheduler gains nothing by waiting. With *uid*: that pod, if it
        waits and is not gated; it goes with another one of its group.
        """
        if uid is not None:
            queued = self._places.get(uid)
            if queued is None or not self._places.can(queued, Trigger.POPPED):
                return None
        else:
            # In this order: a pod in backoff never goes before one that is active.
            queued = self._places.active.pop()
            if queued is None and not self._places.active.goes_by_turns:
                queued = self._places.backoff.pop_early()
            if queued is None:
                return None
        if queued.place is Place.BACKOFF:
            self._on_incoming(queued.uid, Place.ACTIVE.label, Trigger.POPPED.label)
        # Counted at pop, not at failure: a crash in between must not hand out a free retry.
        queued.attempts += 1
        queued.is_backlog = False
        self._places.move(queued, Trigger.POPPED)
        self._places.in_flight.start(queued)
        return queued

    def done(self, uid: str) -> None:
        """The pod's scheduling cycle is over and it will be bound.

        Events are not recorded for it any more. It can still be requeued.
        """
        self._finish(uid, Trigger.PLACED)

    def skip(self, uid: str) -> None:
        """The pod's scheduling cycle is over because the pod is being deleted."""
        self._finish(uid, Trigger.SKIPPED)

    def _finish(self, uid: str, trigger: Trigger) -> None:
        queued = self._places.in_flight.get(uid)
        if queued is not None:
            self._places.in_flight.finish(queued)
            if self._places.holds(queued):
                self._places.move(queued, trigger)

    def requeue_untried(self, queued: QueuedPod, trigger: Trigger) -> None:
        """Take back a pod that was popped, and with which no attempt was made."""
        self._places.in_flight.finish(queued)
        # No attempt was made, so that none counts.
        if self._places.holds(queued) and queued.place is Place.IN_FLIGHT:
            queued.attempts -= 1
            self._places.move(queued, trigger)

    def requeue(
        self,
        queued: QueuedPod,
        rejectors: frozenset[str] = frozenset(),
        *,
        reason: Reason = BACKING_OFF,
        message: str = "",
    ) -> bool:
        """Take back a pod that was tried and not placed.

        A pod that *rejectors* rejected waits until an event may change their minds; an event that
        came during the attempt counts. Without rejectors the attempt met an error, and the pod is
        tried again after its backoff. *reason* and *message* say why it waits.

        Returns:
            False if the pod was deleted or bound meanwhile: it is gone.
        """
        # Before it ends: the events that came during the attempt are dropped with its end.
        trigger, cause = self._outcome(queued, rejectors)
        self._places.in_flight.finish(queued)
        if not (self._places.holds(queued) and self._places.can(queued, trigger)):
            return False
        # It goes behind pods of the same key that wait already: a large pod that never fits must
        # not keep those behind it from being tried.
        queued.timestamp = self._clock.monotonic()
        queued.sequence = self._next()
        # `queue_key` may read what changed while it was tried.
        queued.sort_key = self._key_of(queued.pod)
        queued.rejectors = rejectors
        queued.rejection, queued.message = reason, message
        queued.was_flushed = False
        # Counted apart, as in kube-scheduler: an API server that fails for a minute should not have
        # every pod wait as long as one that was rejected ten times.
        if trigger is Trigger.FAILED:
            queued.error_count += 1
        else:
            queued.unschedulable_count += 1
            queued.error_count = 0
        self._places.move(queued, trigger, cause)
        return True

    def _outcome(
        self, queued: QueuedPod, rejectors: frozenset[str]
    ) -> tuple[Trigger, Cause | None]:
        """How an attempt ended, and the event that came during it and may help."""
        # There is no plugin whose answer an event could change: only time helps.
        if not rejectors:
            return Trigger.FAILED, None
        uid = queued.uid
        # Events after `done` are not recorded, nor are those that no known plugin is interested
        # in. One of them may have been the one that this pod will now wait for in vain.
        if uid not in self._places.in_flight or (
            self._places.in_flight.has_missed(uid) and not all(map(self._hints.is_known, rejectors))
        ):
            return Trigger.OUTDATED, None
        cause = self._helpful(self._places.in_flight.events_since_pop(uid), queued.pod, rejectors)
        return (Trigger.REJECTED if cause is None else Trigger.OUTDATED), cause

    def _helpful(
        self, events: Iterable[RecordedEvent], pod: Pod, rejectors: frozenset[str]
    ) -> Cause | None:
        """The first of *events* that may change the mind of one of *rejectors*."""
        for event, old, new, max_priority in events:
            if max_priority is not None and pod.priority > max_priority:
                continue
            hint = self._hints.helped(event, pod, rejectors, old, new)
            if hint is None and any(
                pod.uid == other.uid for other in self._nominated_where(event, old)
            ):
                hint = NOMINATED
            if hint is not None:
                return Cause.of(event, old, new, hint)
        return None

    # --- cluster events ----------------------------------------------------------------------

    def move(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        *,
        max_priority: int | None = None,
    ) -> int:
        """Retry the rejected and gated pods that *event* may help; record it for those in flight.

        Args:
            event: What happened.
            old: The object before (None if it is new).
            new: The object after (None if it is gone).
            max_priority: Only for pods up to this priority, if given: a nominated pod that goes
                frees nothing for pods above it.

        Returns:
            How many pods are not set aside any more.
        """
        # Recorded for the pods in flight, as they may be rejected by what this event has just
        # changed. Events of no interest are only counted as missed, which bounds what is kept.
        if self._hints.is_of_interest(event):
            self._places.in_flight.record(event, old, new, max_priority)
        else:
            self._places.in_flight.miss()
        # Most events find no pod set aside: then not even the hints are looked at.
        helped = self._helped(event, old, new, max_priority) if self._places.unschedulable else []
        for pod in self._nominated_where(event, old):
            if max_priority is None or pod.priority <= max_priority:
                nominated = self._places.get(pod.uid)
                assert nominated is not None  # see there
                helped.append((nominated, False, NOMINATED))
        # The order of plugins must not leak into the order of retries: runs have to repeat.
        helped.sort(key=lambda one: one[0].sequence)
        moved = 0
        cause: Cause | None = None
        for queued, is_gated, hint in helped:
            # Retrying one may have moved another.
            if queued.place is (Place.GATED if is_gated else Place.UNSCHEDULABLE):
                if cause is None or cause.hint != hint:
                    cause = Cause.of(event, old, new, hint)
                moved += self._places.move(queued, Trigger.EVENT, cause) not in SET_ASIDE
        return moved

    def _helped(
        self, event: ClusterEvent, old: Any, new: Any, max_priority: int | None
    ) -> list[tuple[QueuedPod, bool, str]]:
        """The pods that *event* may help, if they are gated, and by whose hint; see `move`."""
        subject = old if new is None else new
        about = subject.uid if isinstance(subject, Pod) else None
        helped: list[tuple[QueuedPod, bool, str]] = []
        # Pods that are alike may be nominated to different nodes. They are kept together for all
        # other events: there may be thousands of them, while victims go one after the other.
        is_by_nomination = event == NODE_UPDATE_ALLOCATABLE and bool(
            self.nominator.pods_on(subject.name)
        )
        for alike in self._places.unschedulable.held_by(
            lambda plugin, is_gate: self._hints.is_interested(plugin, event, is_gate=is_gate),
            self._hints.labels_offered(event, old, new),
        ):
            obstacles, is_gated = alike.obstacles, alike.is_gated
            is_one_by_one = is_by_nomination or is_by_label(old, new, obstacles)
            # The pod that the event is about knows it differently.
            others = alike.other_than(about)
            for first in others:
                pod, hint = first.pod, None
                if max_priority is None or pod.priority <= max_priority:
                    hint = self._hints.helped(event, pod, obstacles, old, new, is_gated=is_gated)
                if hint is not None:
                    pods = [first] if is_one_by_one else [first, *others]
                    helped += [(queued, is_gated, hint) for queued in pods]
                if not is_one_by_one:
                    break
        return helped

    def flush(self) -> int:
        """End the waits that are over. To be called every second, on the second if possible.

        Returns:
            How many pods became poppable in their turn or were retried after the long wait.
        """
        # A tick of one second, on the second: pods whose backoffs end within it are retried
        # together, and go by their keys and not by the millisecond at which they failed.
        expired = self._places.backoff.pop_expired()
        for queued in expired:
            self._places.move(queued, Trigger.BACKOFF_ENDED)
        moved = len(expired)
        now = self._clock.monotonic()
        # The net below the hints: a hint that is wrong costs five minutes, never a pod.
        for queued in self._places.unschedulable.held_since(now - self._max_unschedulable):
            queued.was_flushed = self._places.move(queued, Trigger.TIMED_OUT) not in SET_ASIDE
            moved += queued.was_flushed
        return moved

    def next_flush_in(self) -> float | None:
        """Seconds until `flush` has something to do; None if it has nothing to wait for."""
        waits = []
        if (backoff := self._places.backoff.next_expiry_in()) is not None:
            waits.append(backoff)
        if (oldest := self._places.unschedulable.oldest()) is not None:
            waits.append(max(oldest + self._max_unschedulable - self._clock.monotonic(), 0.0))
        return min(waits, default=None)

    # --- pods that are tried together --------------------------------------------------------

    def align(self, pods: Sequence[QueuedPod]) -> None:
        """Give pods that were tried together, before they are requeued, one backoff."""
        # The longest of theirs, so that they become poppable together: a group is tried as one.
        failed = max((queued.unschedulable_count for queued in pods), default=0)
        errors = max((queued.error_count for queued in pods), default=0)
        for queued in pods:
            queued.unschedulable_count, queued.error_count = failed, errors
            queued.members = len(pods)

    def join(self, uids: Sequence[str]) -> None:
        """Have pods that were never tried share the backoff of others of their group."""
        known = [queued for uid in uids if (queued := self._places.get(uid)) is not None]
        tried = [queued for queued in known if queued.place in WAITING and queued.attempts]
        if not tried:
            return
        last = max(tried, key=lambda queued: queued.sequence)
        for queued in known:
            if queued.place in WAITING and not queued.attempts:
                queued.unschedulable_count = last.unschedulable_count
                queued.error_count, queued.members = last.error_count, last.members
                queued.timestamp = last.timestamp

    # --- changes about single pods -----------------------------------------------------------

    def activate(self, uids: Iterable[str]) -> int:
        """Make the pods of these uids poppable now, whatever they wait for but a gate.

        One in flight is retried once if its attempt fails. Returns how many became poppable.
        """
        activated = 0
        for uid in uids:
            queued = self._places.get(uid)
            if queued is None:
                continue
            if queued.place is Place.IN_FLIGHT:
                self._places.in_flight.record(FORCE_ACTIVATE, None, queued.pod)
            if self._places.can(queued, Trigger.ACTIVATED):
                activated += self._places.move(queued, Trigger.ACTIVATED) is Place.ACTIVE
        return activated

    def recheck(self, uid: str, trigger: Trigger) -> bool:
        """Check a pod again about which something changed that no cluster event reports.

        Its gate is evaluated, then it waits for its backoff. The table has which pods a trigger
        concerns and where they may go; others stay.

        Returns:
            True if the pod moved to another place.
        """
        queued = self._places.get(uid)
        if queued is None or not self._places.can(queued, trigger):
            return False
        came_from = queued.place
        return self._places.move(queued, trigger) is not came_from

    def reorder(self, uid: str) -> None:
        """Ask for the sort key of a waiting pod again; what it waits for stays."""
        queued = self._places.get(uid)
        if queued is None or queued.place not in WAITING:
            return
        key = self._key_of(queued.pod)
        if queued.place in SET_ASIDE:
            queued.sort_key = key  # nothing is ordered there
        elif key != queued.sort_key:
            self._places.move(queued, Trigger.REORDERED, key=key)

    def reorder_for(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Ask for the sort keys again that *event*, about an object of the cluster, may change."""
        if self._hints.may_reorder(event):
            for queued in list(self._places.waiting()):
                if self._hints.is_reordered(event, queued.pod, old, new):
                    self.reorder(queued.uid)

    def ask_again(self, concerns: Callable[[Pod], bool]) -> None:
        """Ask for the sort keys of the waiting pods that facts of the cluster concern.

        Those that are ready, or in backoff, also for their gates: one may be closed now. Which pods
        that are set aside the facts may help is what the events of `move` say.
        """
        waiting = [queued for queued in self._places.waiting() if concerns(queued.pod)]
        for queued in sorted(waiting, key=lambda queued: queued.sequence):
            key = self._key_of(queued.pod)
            if queued.place in SET_ASIDE:
                queued.sort_key = key
            else:
                self._places.move(queued, Trigger.FACTS_CHANGED, key=key)

    def rekey(self, hints: Hints | None = None, uids: Container[str] | None = None) -> None:
        """The policies changed: ask for sort keys and gates again, and retry every rejected pod.

        Args:
            hints: The hints of the new policies, if they are other ones.
            uids: Of the pods that this is about; None: all.
        """
        if hints is not None:
            self._hints = hints
        self._places.in_flight.record(POLICIES_CHANGED, None, None)
        waiting = [one for one in self._places.waiting() if uids is None or one.uid in uids]
        for queued in sorted(waiting, key=lambda queued: queued.sequence):
            self._places.move(queued, Trigger.POLICIES_CHANGED, key=self._key_of(queued.pod))

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    # --- nominations -------------------------------------------------------------------------

    def _nominated_where(self, event: ClusterEvent, old: Any) -> list[Pod]:
        """The pods nominated to the node that a pod has left, or whose taints changed.

        Whether they fit there now or not: if not, they are free to look elsewhere.
        """
        if event == ASSIGNED_POD_DELETE and isinstance(old, Pod):
            node_name, gone = old.node_name, old.uid
        elif event == NODE_UPDATE_TAINT and isinstance(old, Node):
            node_name, gone = old.name, ""
        else:
            return []
        nominated = self.nominator.pods_on(node_name)
        return [pod for pod in nominated if pod.uid != gone and pod.uid in self._places]

    def _on_nomination_lost(self, pod: Pod, node_name: str) -> None:
        """Retry pods that left capacity to *pod* on a node where it will not go."""
        # Pods of higher priority ignored the nomination.
        gone = pod.with_node(node_name)
        self.move(ASSIGNED_POD_DELETE, gone, None, max_priority=pod.priority)

    def _nominated_changed(self, before: Pod, new: Pod, node_name: str) -> None:
        """Retry pods that left capacity on *node_name* which *new* does not ask for any more."""
        if any(event.action in _FREES_CAPACITY for event in pod_update_events(before, new)):
            self._on_nomination_lost(before, node_name)

    def _lost_nomination(self, queued: QueuedPod) -> None:
        """Retry a rejected pod whose nomination was cleared or changed by another component."""
        if queued.place is Place.UNSCHEDULABLE:
            cause = Cause(ASSIGNED_POD_DELETE.label, queued.pod.key, NOMINATED)
            self._places.move(queued, Trigger.EVENT, cause)

    def explain_wait(self, queued: QueuedPod, reason: Reason, message: str) -> None:
        """Note why a pod waits that is ready to be tried, and whose turn has not come."""
        self._places.relabel(queued, reason, message)

    # --- reading -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many pods are known."""
        return len(self._places)

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def in_flight_events(self) -> Counter[str]:
        """How many events are held for the pods in flight, by label."""
        return self._places.in_flight.event_counts()

    @property
    def has_poppable(self) -> bool:
        """True if `pop` would give a pod."""
        active = self._places.active
        return active.may_pop or (not active.goes_by_turns and self._places.backoff.early_count > 0)

    def keys(self) -> list[str]:
        """The names of all pods in the queue, including those whose attempt is under way."""
        return self._places.names()

    def counts(self) -> dict[str, int]:
        """How many pods are in each place."""
        return self._places.counts()

    @property
    def hints(self) -> Hints:
        """Which events are worth a retry, by the policies in force."""
        return self._hints

    def waiting_pods(self) -> list[QueuedPod]:
        """Every pod that waits, in no particular order; not to be changed."""
        return self._places.waiting()

    def get(self, uid: str) -> QueuedPod | None:
        """The pod of *uid*, wherever it is; not to be changed."""
        return self._places.get(uid)

    def named(self, key: str) -> QueuedPod | None:
        """The pod `namespace/name`, wherever it is; not to be changed."""
        return self._places.named(key)

    def next_try_at(self, queued: QueuedPod) -> float | None:
        """When a waiting pod is tried again at the latest (monotonic seconds), if nothing happens.

        None for an active pod, which goes in its turn, and for one at its gate.
        """
        match queued.place:
            case Place.BACKOFF:
                return self._clock.monotonic() + self._places.backoff.seconds_left(queued)
            case Place.UNSCHEDULABLE:
                return queued.moved_at + self._max_unschedulable
            case _:
                return None

    def waiting(self) -> list[tuple[str, str]]:
        """Every pod that waits: its uid, and the label of its place."""
        return [(queued.uid, queued.place.label) for queued in self._places.waiting()]

    def waiting_reasons(self) -> Mapping[tuple[str, str, str], int]:
        """How many pods wait for the same reason, by (token, policy, scheduler name)."""
        return self._places.waiting_reasons()

    def oldest_waiting(self) -> dict[tuple[str, str, str], float]:
        """When the oldest of them was created (epoch seconds), by the same.

        Costs a look at every pod that waits: for metrics, not for decisions.
        """
        return self._places.oldest()

    def rejections(self) -> Counter[tuple[str, str]]:
        """How many pods each plugin rejected or gates, by (plugin, scheduler name).

        A rejected pod counts until it is tried again. Costs a look at every pod that waits: for
        metrics, not for decisions.
        """
        return self._places.rejections()

    def describe(self, key: str) -> dict[str, Any]:
        """What the queue knows of the pod `namespace/name`, as plain data; empty if nothing."""
        queued = self._places.named(key)
        if queued is None:
            return {}
        now = self._clock.monotonic()
        is_in_backoff = queued.place is Place.BACKOFF
        backoff_left = self._places.backoff.seconds_left(queued) if is_in_backoff else 0.0
        return {
            "pod": key,
            "uid": queued.uid,
            "queue": queued.place.label,
            "sort_key": [value for _, value in queued.sort_key],
            "attempts": queued.attempts,
            "unschedulable_count": queued.unschedulable_count,
            "error_count": queued.error_count,
            "rejectors": sorted(queued.rejectors),
            "gated_by": queued.gated_by,
            "gate_reason": queued.gate_reason,
            "reason": queued.reason.token,
            "node_helps": queued.reason.node_helps,
            "tried_because": queued.tried_because,
            "moves": [move.text(now) for move in queued.moves],
            "seconds_in_queue": now - queued.timestamp,
            "seconds_of_backoff_left": backoff_left,
            "nominated_node": self.nominator.node_of(queued.uid),
        }

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod is lost, in two places, or not where its moves lead."""
        self._places.check_invariants()
        self.nominator.check_invariants()
