"""The scheduling queue: which pod is tried next, and when a rejected pod is tried again.

Owns every pod that wants a node, from the first sight of it until it is bound or gone. Knows
nothing of policies but what it is given: a key, a gate and hints. Pure: time comes from a clock,
events from the caller.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.lib.clock import Clock
from engine.model.node import Node
from engine.model.pod import Pod
from engine.queueing.active_queue import ActiveQueue, InFlight, RecordedEvent
from engine.queueing.backoff_queue import BackoffQueue
from engine.queueing.events import (
    ASSIGNED_POD_DELETE,
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    NODE_UPDATE_TAINT,
    POD_ADD,
    POD_UPDATE,
    POLICIES_CHANGED,
    POP_FROM_BACKOFF,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
    is_meaningful_pod_change,
    pod_update_events,
)
from engine.queueing.hints import Hints
from engine.queueing.nominator import Nominator
from engine.queueing.queued_pod import Place, QueuedPod, SortKey
from engine.queueing.unschedulable_pods import UnschedulablePods

# Changes of a pod after which another may fit beside it that did not before.
_LETS_GO: Final = frozenset({"UpdatePodScaleDown", "UpdatePodLabel"})

Gate = tuple[str, str]
"""The plugin that keeps a pod out, and its reason."""


def _nothing() -> None:
    """The default of `on_ready`."""


def _uncounted(queue: str, event: str) -> None:
    """The default of `on_incoming`."""


class SchedulingQueue:
    """Pods that want a node.

    A pod, by uid::

        unknown --add--> active | gated
        active, backoff --hold (its gate has closed)--> gated
        active, backoff --pop--> in flight --done--> binding --delete (seen bound)--> unknown
        in flight, binding --requeue_unschedulable--> unschedulable | backoff (an event came)
        in flight, binding --requeue_error--> backoff
        in flight --put_back (its profile loses time)--> gated
        in flight --skip (it is being deleted)--> terminating --update (not so any more)--> active
        unschedulable --event that may help, flush, own update--> backoff | active | gated
        gated --the gate opens (event, flush, own update)--> backoff | active
        backoff --wait over (flush)--> active
        any --delete--> unknown

    Gated pods are set aside with the unschedulable ones, and are let go by their gate alone. A pod
    in binding is nobody's to pop; it stays known so that it can come back if its binding fails,
    and so that it does not come back if it was deleted or seen bound meanwhile. So `delete` has to
    be called for every pod that is deleted *or seen with a node*. A terminating pod stays known so
    that its updates do not bring it back; only a restored API server can let it live on.

    A name belongs to one pod at a time: a pod that comes under the name of another uid ends that
    one. The newest version of a pod is kept here, also while it is in flight, so what a requeued
    pod is tried with next is never older than what the watch said.

    Args:
        clock: Source of time (its monotonic side).
        key_of: The order of a pod: the policy's `queue_key`, normalised.
        pre_enqueue: The gate that keeps a pod out of the active queue, or None.
        initial_backoff: Seconds after the first failure; doubled by each further one.
        max_backoff: The longest wait in seconds; 0 switches waiting off.
        max_unschedulable: After so many seconds a rejected pod is tried again in any case.
        hints: Which events are worth a retry; may be replaced through `rekey`.
        on_ready: Called whenever a pod has become poppable.
        on_incoming: Called with the queue and the event's label for each pod that enters a queue.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        key_of: Callable[[Pod], SortKey],
        pre_enqueue: Callable[[Pod], Gate | None],
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        max_unschedulable: float = 300.0,
        hints: Hints | None = None,
        on_ready: Callable[[], None] = _nothing,
        on_incoming: Callable[[str, str], None] = _uncounted,
    ) -> None:
        self.nominator = Nominator(self._on_promise_lost)
        self._clock = clock
        self._key_of = key_of
        self._pre_enqueue = pre_enqueue
        self._max_unschedulable = max_unschedulable
        self._hints = hints if hints is not None else Hints()
        self._on_ready = on_ready
        self._on_incoming = on_incoming
        self._known: dict[str, QueuedPod] = {}
        self._uid_of: dict[str, str] = {}  # pod key -> uid
        self._sequence = 0
        self._active = ActiveQueue()
        self._backoff = BackoffQueue(clock, initial_backoff, max_backoff)
        self._unschedulable = UnschedulablePods()
        self._in_flight = InFlight()

    # --- what the watch says -----------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Take in a pod that wants a node. A pod that is known already is updated."""
        self._end_namesake(pod)
        if pod.uid in self._known:
            self.update(None, pod)
            return
        tried = self._in_flight.get(pod.uid)
        if tried is not None:
            # Deleted and here again while it was being tried: that attempt's outcome counts.
            tried.place = Place.IN_FLIGHT
            self._known[pod.uid] = tried
            self._uid_of[pod.key] = pod.uid
            self.update(None, pod)
            return
        queued = QueuedPod(
            pod, self._key_of(pod), timestamp=self._clock.monotonic(), sequence=self._next()
        )
        self._known[pod.uid] = queued
        self._uid_of[pod.key] = pod.uid
        self._settle(queued, POD_ADD.label)
        if queued.gated_by is None:
            self.nominator.nominate(pod)

    def update(self, old: Pod | None, new: Pod) -> None:
        """Take in a new version of a pod; an unknown one is added.

        What changed is judged against the version known here, *old* only tells when a pod of
        another uid held the name. A version that is known already is ignored.
        """
        if old is not None and old.uid != new.uid:
            self.delete(old)
        queued = self._known.get(new.uid)
        if queued is None:
            self.add(new)
            return
        before = queued.pod
        if new is before or (
            new.resource_version and new.resource_version == before.resource_version
        ):
            return
        queued.pod = new
        promised = self.nominator.node_of(new.uid)
        if queued.place is Place.UNSCHEDULABLE:
            self._unschedulable.follow(queued)
        if queued.place is Place.IN_FLIGHT:
            self.nominator.refresh(new)
            for event in pod_update_events(before, new):
                self._in_flight.record(event, before, new)
        elif queued.place is Place.TERMINATING and not new.is_terminating:
            queued.place = Place.NOWHERE
            self._settle(queued, POD_UPDATE.label)
        elif queued.place is Place.TERMINATING:
            self.nominator.update(before, new)
        elif queued.place is Place.BINDING:
            self.nominator.refresh(new)
        else:
            self._update_waiting(queued, before)
            self.nominator.update(before, new)
            if promised is not None and self.nominator.node_of(new.uid) != promised:
                # Somebody else took its node back, or named another: it has to look again.
                self._look_again(queued)
        if promised is not None and self.nominator.node_of(new.uid) == promised:
            self._promise_changed(before, new, promised)

    def _update_waiting(self, queued: QueuedPod, before: Pod) -> None:
        is_meaningful = is_meaningful_pod_change(before, queued.pod)
        if queued.place is Place.UNSCHEDULABLE and not (is_meaningful and queued.gated_by):
            if is_meaningful:
                queued.sort_key = self._key_of(queued.pod)
            obstacles, is_gated = UnschedulablePods.obstacles(queued), queued.gated_by is not None
            for event in pod_update_events(before, queued.pod):
                if self._hints.worth_retrying(
                    event, queued.pod, obstacles, before, queued.pod, is_gated=is_gated
                ):
                    self._retry(queued, event, before, queued.pod)
                    return
        elif is_meaningful:
            # Active, backing off or gated: its key and its gate may be others now.
            self._settle_anew(queued, POD_UPDATE.label, self._key_of(queued.pod))

    def _promise_changed(self, before: Pod, new: Pod, node_name: str) -> None:
        """Wake those who left room on *node_name* for what *new* does not ask for any more."""
        if any(event.action in _LETS_GO for event in pod_update_events(before, new)):
            self._on_promise_lost(before, node_name)

    def _look_again(self, queued: QueuedPod) -> None:
        """Retry a rejected pod that was promised a node and is not any more."""
        if queued.place is Place.UNSCHEDULABLE and queued.gated_by is None:
            self._settle_anew(queued, ASSIGNED_POD_DELETE.label)

    def delete(self, pod: Pod) -> None:
        """Let go of a pod that was deleted, or that has a node now; unknown ones are ignored.

        If it is in flight, it will not come back.
        """
        self.nominator.remove(pod.uid, placed_on=pod.node_name)
        queued = self._known.pop(pod.uid, None)
        if queued is None:
            return
        self._take_out(queued)
        if self._uid_of.get(queued.pod.key) == pod.uid:
            del self._uid_of[queued.pod.key]

    def _end_namesake(self, pod: Pod) -> None:
        uid = self._uid_of.get(pod.key)
        if uid is not None and uid != pod.uid:
            self.delete(self._known[uid].pod)

    # --- attempts ----------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """The pod to try now, or None. It is in flight until `done` or a requeue.

        When no pod is ready, the rejected pod whose wait is nearest its end is tried early: an
        idle scheduler gains nothing by waiting.
        """
        queued = self._active.pop()
        if queued is None:
            queued = self._backoff.pop_early()
            if queued is None:
                return None
            self._on_incoming("active", POP_FROM_BACKOFF)
        return self._start(queued)

    def take(self, uid: str) -> QueuedPod | None:
        """As `pop`, for the pod of *uid*; None if it is not active."""
        queued = self._known.get(uid)
        if queued is None or queued.place is not Place.ACTIVE:
            return None
        self._active.remove(queued)
        return self._start(queued)

    def _start(self, queued: QueuedPod) -> QueuedPod:
        # Counted at pop, not at failure: a crash in between must not hand out a free retry.
        queued.attempts += 1
        queued.place = Place.IN_FLIGHT
        self._in_flight.start(queued)
        return queued

    def done(self, uid: str) -> None:
        """The pod's scheduling cycle is over and it will be bound.

        Events are not recorded for it any more. It can still be requeued.
        """
        self._finish(uid, Place.BINDING)

    def skip(self, uid: str) -> None:
        """The pod's scheduling cycle is over because the pod is being deleted."""
        self._finish(uid, Place.TERMINATING)

    def put_back(self, queued: QueuedPod, label: str) -> None:
        """Put a pod that was popped where it belongs by now: there was no attempt at it."""
        self._in_flight.finish(queued.uid)
        if self._known.get(queued.uid) is queued and queued.place is Place.IN_FLIGHT:
            queued.place = Place.NOWHERE
            queued.attempts -= 1
            self._settle(queued, label)

    def _finish(self, uid: str, place: Place) -> None:
        queued = self._in_flight.get(uid)
        self._in_flight.finish(uid)
        if queued is not None and self._known.get(uid) is queued:
            queued.place = place

    def requeue_unschedulable(
        self,
        queued: QueuedPod,
        rejectors: frozenset[str],
        pending: frozenset[str] = frozenset(),
    ) -> bool:
        """Put back a pod that *rejectors* rejected, until an event may change their minds.

        An event that came during the attempt counts. Without rejectors it is an error. *pending*
        are plugins that only wait for something: an event for them ends the wait at once.

        Returns:
            False if the pod was deleted or bound meanwhile: it is gone.
        """
        if not rejectors and not pending:
            return self.requeue_error(queued)
        events = (
            self._in_flight.events_since_pop(queued.uid) if queued.uid in self._in_flight else None
        )
        if not all(map(self._hints.is_known, rejectors | pending)) and (
            self._in_flight.has_missed(queued.uid)
        ):
            events = None
        if not self._come_back(queued):
            return False
        queued.unschedulable_count += 1
        queued.error_count = 0
        queued.rejectors, queued.pending = rejectors, pending
        if events is None:
            # Events after `done` were not recorded: one of them may have been the one.
            self._settle(queued, SCHEDULE_ATTEMPT_FAILURE)
            return True
        immediately = bool(pending) and self._is_news(events, queued.pod, pending)
        if immediately or self._is_news(events, queued.pod, rejectors):
            self._settle(queued, SCHEDULE_ATTEMPT_FAILURE, immediately=immediately)
        else:
            self._set_aside(queued, SCHEDULE_ATTEMPT_FAILURE)
        return True

    def _is_news(
        self, events: Iterable[RecordedEvent], pod: Pod, rejectors: frozenset[str]
    ) -> bool:
        """If one of *events* may change the mind of one of *rejectors*."""
        return any(
            self._hints.worth_retrying(one.event, pod, rejectors, one.old, one.new)
            or any(pod.uid == other.uid for other in self._promised_where(one.event, one.old))
            for one in events
            if one.max_priority is None or pod.priority <= one.max_priority
        )

    def requeue_error(self, queued: QueuedPod) -> bool:
        """Put back a pod whose attempt met an error; it is tried again after a wait.

        Returns:
            False if the pod was deleted or bound meanwhile: it is gone.
        """
        if not self._come_back(queued):
            return False
        queued.error_count += 1
        queued.rejectors = queued.pending = frozenset()
        self._settle(queued, SCHEDULE_ATTEMPT_FAILURE)
        return True

    def _come_back(self, queued: QueuedPod) -> bool:
        self._in_flight.finish(queued.uid)
        if self._known.get(queued.uid) is not queued or queued.place not in (
            Place.IN_FLIGHT,
            Place.BINDING,
        ):
            return False
        queued.place = Place.NOWHERE
        queued.timestamp = self._clock.monotonic()
        queued.sequence = self._next()
        queued.sort_key = self._key_of(queued.pod)
        queued.was_flushed = False
        return True

    # --- what happens around -----------------------------------------------------------------

    def move(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        *,
        max_priority: int | None = None,
    ) -> int:
        """Retry the rejected and gated pods that *event* may help, and note it for those in flight.

        Args:
            event: What happened.
            old: The object before (None if it is new).
            new: The object after (None if it is gone).
            max_priority: Only for pods up to this priority, if given: a nominated pod that goes
                frees nothing for pods above it.

        Returns:
            How many pods left the unschedulable ones.
        """
        if event.is_wildcard and isinstance(new, Pod):
            return self._force(event, new)
        if self._hints.is_of_interest(event):
            self._in_flight.record(event, old, new, max_priority)
        else:
            self._in_flight.miss()
        woken = self._helped(event, old, new, max_priority) if self._unschedulable else []
        woken += [
            (self._known[pod.uid], False)
            for pod in self._promised_where(event, old)
            if max_priority is None or pod.priority <= max_priority
        ]
        # The order of plugins must not leak into the order of retries: runs have to repeat.
        woken.sort(key=lambda one: one[0].sequence)
        moved = 0
        for queued, is_gated in woken:
            # Letting one go may have moved another.
            if queued.place is Place.UNSCHEDULABLE and is_gated == (queued.gated_by is not None):
                moved += self._retry(queued, event, old, new)
        return moved

    def _helped(
        self, event: ClusterEvent, old: Any, new: Any, max_priority: int | None
    ) -> list[tuple[QueuedPod, bool]]:
        """The rejected pods that *event* may help, and if they are gated; see `move`."""
        subject = old if new is None else new
        about = subject.uid if isinstance(subject, Pod) else None
        helped: list[tuple[QueuedPod, bool]] = []
        for alike in self._unschedulable.held_by(
            lambda plugin, is_gate: self._hints.is_interested(plugin, event, is_gate=is_gate)
        ):
            # What the event means to one of them, it means to all; a pod is no news to itself.
            pod, obstacles, is_gated = alike.other_than(about), alike.obstacles, alike.is_gated
            if pod is None or (max_priority is not None and pod.priority > max_priority):
                continue
            if self._hints.worth_retrying(event, pod, obstacles, old, new, is_gated=is_gated):
                helped += [(one, is_gated) for uid, one in alike.pods.items() if uid != about]
        return helped

    def _promised_where(self, event: ClusterEvent, old: Any) -> list[Pod]:
        """The pods that were promised the node that a pod has left, or whose taints changed.

        Whether they fit there now or not: if not, they are free to look elsewhere.
        """
        if event == ASSIGNED_POD_DELETE and isinstance(old, Pod):
            node_name, gone = old.node_name, old.uid
        elif event == NODE_UPDATE_TAINT and isinstance(old, Node):
            node_name, gone = old.name, ""
        else:
            return []
        promised = self.nominator.pods_on(node_name)
        return [pod for pod in promised if pod.uid != gone and pod.uid in self._known]

    def _force(self, event: ClusterEvent, pod: Pod) -> int:
        """Retry one pod, whatever it waits for."""
        queued = self._known.get(pod.uid)
        if queued is None:
            return 0
        if queued.place is Place.IN_FLIGHT:
            self._in_flight.record(event, None, pod)
        if queued.place is not Place.UNSCHEDULABLE:
            return 0
        return int(self._retry(queued, event, None, pod))

    def _on_promise_lost(self, pod: Pod, node_name: str) -> None:
        """Wake those who left room for *pod* on a node where it will not go."""
        # To pods above it, the promise was nothing.
        gone = pod.with_node(node_name)
        self.move(ASSIGNED_POD_DELETE, gone, None, max_priority=pod.priority)

    def _retry(self, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any) -> bool:
        """Settle a set-aside pod anew. Returns True if it is not set aside any more."""
        immediately = bool(queued.pending) and self._hints.worth_retrying(
            event, queued.pod, queued.pending, old, new
        )
        self._take_out(queued)
        place = self._settle(queued, event.label, immediately=immediately)
        return place is not Place.UNSCHEDULABLE

    def flush(self) -> int:
        """Let go of waits that are over. To be called every second, on the second if possible.

        Returns:
            How many pods became poppable in their turn or were taken up after the long wait.
        """
        expired = self._backoff.pop_expired()
        for queued in expired:
            # The gate was asked when the pod entered the backoff queue.
            self._activate(queued, BACKOFF_COMPLETE)
        moved = len(expired)
        now = self._clock.monotonic()
        for queued in self._unschedulable.held_since(now - self._max_unschedulable):
            queued.was_flushed = True
            moved += self._retry(queued, UNSCHEDULABLE_TIMEOUT, None, None)
        return moved

    def next_flush_in(self) -> float | None:
        """Seconds until `flush` has something to do; None if it has nothing to wait for."""
        waits = []
        if (backoff := self._backoff.next_expiry_in()) is not None:
            waits.append(backoff)
        if (oldest := self._unschedulable.oldest()) is not None:
            waits.append(max(oldest + self._max_unschedulable - self._clock.monotonic(), 0.0))
        return min(waits, default=None)

    def activate(self, keys: Iterable[str]) -> int:
        """Make the pods of these keys poppable now, whatever they wait for but a gate.

        Returns:
            How many became poppable. A pod in flight is not counted: it is retried once if its
            attempt fails.
        """
        activated = 0
        for key in keys:
            queued = self._known.get(self._uid_of.get(key, ""))
            if queued is None:
                continue
            if queued.place is Place.IN_FLIGHT:
                self._in_flight.record(FORCE_ACTIVATE, None, queued.pod)
            elif queued.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
                self._take_out(queued)
                place = self._settle(queued, FORCE_ACTIVATE.label, immediately=True)
                activated += place is Place.ACTIVE
        return activated

    def pull(self, uids: Iterable[str]) -> None:
        """Try these pods before all others, whatever they wait for but a gate.

        For pods that only make sense together. Pods in flight are left alone.
        """
        for uid in uids:
            queued = self._known.get(uid)
            if queued is None:
                continue
            if queued.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
                self._take_out(queued)
                self._settle(queued, FORCE_ACTIVATE.label, immediately=True)
            if queued.place is Place.ACTIVE:
                self._active.pull(queued)

    def reconsider(
        self, uid: str, label: str, *, only_gated: bool = False, reorders: bool = False
    ) -> bool:
        """Settle a pod that is set aside anew: its gate is asked, then it waits out its backoff.

        For news that concern this one pod and that no event tells.

        Args:
            uid: The pod.
            label: What happened, for metrics.
            only_gated: Leave the pod if it is not a gate that holds it.
            reorders: Its place in the order may be another one, also if it is ready or backs off.

        Returns:
            True if it is not set aside any more.
        """
        queued = self._known.get(uid)
        if queued is None:
            return False
        if reorders and queued.place in (Place.ACTIVE, Place.BACKOFF):
            self._reorder(queued, label)
            return False
        if queued.place is not Place.UNSCHEDULABLE or (only_gated and queued.gated_by is None):
            return False
        key = self._key_of(queued.pod) if reorders else None
        return self._settle_anew(queued, label, key) is not Place.UNSCHEDULABLE

    def reorder(self, uid: str, label: str) -> None:
        """Ask for the place of a waiting pod in the order again; what it waits for stays.

        Args:
            uid: The pod.
            label: Why, for metrics.
        """
        queued = self._known.get(uid)
        if queued is None:
            return
        if queued.place in (Place.ACTIVE, Place.BACKOFF):
            self._reorder(queued, label)
        elif queued.place is Place.UNSCHEDULABLE:
            queued.sort_key = self._key_of(queued.pod)  # nothing is ordered there

    def _reorder(self, queued: QueuedPod, label: str) -> None:
        """Give a pod that is ready or backs off the place that it has in the order by now."""
        key = self._key_of(queued.pod)
        if key != queued.sort_key:
            self._settle_anew(queued, label, key)

    def hold(self, uid: str, label: str) -> bool:
        """Set a pod aside that is ready or backs off, if its gate is closed by now.

        Args:
            uid: The pod.
            label: What has closed the gate, for metrics.

        Returns:
            True if it is set aside by this.
        """
        queued = self._known.get(uid)
        if queued is None or queued.place not in (Place.ACTIVE, Place.BACKOFF):
            return False
        if self._pre_enqueue(queued.pod) is None:
            return False
        return self._settle_anew(queued, label) is Place.UNSCHEDULABLE

    def rekey(self, hints: Hints | None = None) -> None:
        """The policies changed: compute keys and gates anew, and retry every rejected pod.

        Args:
            hints: The hints of the new policies, if they are other ones.
        """
        if hints is not None:
            self._hints = hints
        self._in_flight.record(POLICIES_CHANGED, None, None)
        waiting = [*self._active, *self._backoff, *self._unschedulable]
        for queued in sorted(waiting, key=lambda queued: queued.sequence):
            self._settle_anew(queued, POLICIES_CHANGED.label, self._key_of(queued.pod))

    # --- moving one pod ----------------------------------------------------------------------

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _take_out(self, queued: QueuedPod) -> None:
        """Take a pod out of the structure that holds it. In flight, the events stay recorded."""
        match queued.place:
            case Place.ACTIVE:
                self._active.remove(queued)
            case Place.BACKOFF:
                self._backoff.remove(queued)
            case Place.UNSCHEDULABLE:
                self._unschedulable.remove(queued)
        queued.place = Place.NOWHERE

    def _settle(self, queued: QueuedPod, label: str, *, immediately: bool = False) -> Place:
        """Put a pod that is nowhere where it belongs: behind its gate, in backoff, or active."""
        gate = self._pre_enqueue(queued.pod)
        if gate is not None:
            queued.gated_by, queued.gate_reason = gate
            self._set_aside(queued, label)
            return queued.place
        if queued.gated_by is not None:
            queued.gated_by, queued.gate_reason = None, ""
            if self.nominator.node_of(queued.uid) is None:
                self.nominator.nominate(queued.pod)  # what its status says counts from here
        if immediately or not self._backoff.is_backing_off(queued):
            self._activate(queued, label)
            return queued.place
        queued.place = Place.BACKOFF
        self._backoff.add(queued)
        self._on_incoming("backoff", label)
        if not queued.failed_with_error:
            self._on_ready()  # `pop` may take it early
        return queued.place

    def _settle_anew(self, queued: QueuedPod, label: str, key: SortKey | None = None) -> Place:
        """Put a waiting pod where it belongs by now, under *key*; a ready one needs no backoff."""
        immediately = queued.place is Place.ACTIVE
        self._take_out(queued)
        if key is not None:
            queued.sort_key = key
        return self._settle(queued, label, immediately=immediately)

    def _activate(self, queued: QueuedPod, label: str) -> None:
        if queued.initial_attempt_at is None:
            queued.initial_attempt_at = self._clock.monotonic()
        queued.place = Place.ACTIVE
        self._active.add(queued)
        self._on_incoming("active", label)
        self._on_ready()

    def _set_aside(self, queued: QueuedPod, label: str) -> None:
        queued.place = Place.UNSCHEDULABLE
        self._unschedulable.add(queued, self._clock.monotonic())
        self._on_incoming("gated" if queued.gated_by is not None else "unschedulable", label)

    # --- reading -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many pods are known."""
        return len(self._known)

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def is_being_tried(self, uid: str) -> bool:
        """True if the pod is active or in flight: its attempt is under way, or due."""
        queued = self._known.get(uid)
        return queued is not None and queued.place in (Place.ACTIVE, Place.IN_FLIGHT)

    def counts(self) -> dict[str, int]:
        """How many pods are in each place."""
        gated = self._unschedulable.gated_count
        return {
            "active": len(self._active),
            "backoff": len(self._backoff),
            "unschedulable": len(self._unschedulable) - gated,
            "gated": gated,
            "in_flight": len(self._in_flight),
        }

    def rejections(self) -> Counter[tuple[str, str]]:
        """How many set-aside pods each plugin stands in the way of, by (plugin, scheduler name).

        Costs a look at every set-aside pod: for whoever looks now and then.
        """
        return Counter(
            (plugin, queued.pod.scheduler_name)
            for queued in self._unschedulable
            for plugin in UnschedulablePods.obstacles(queued)
        )

    @property
    def in_flight_event_count(self) -> int:
        """How many events are held for the pods in flight."""
        return self._in_flight.event_count

    @property
    def has_poppable(self) -> bool:
        """True if `pop` would give a pod."""
        return len(self._active) > 0 or self._backoff.early_count > 0

    def keys(self) -> list[str]:
        """The names of all pods in the queue, whose attempt is under way included."""
        return list(self._uid_of)

    def describe(self, key: str) -> dict[str, Any]:
        """What the queue knows of the pod `namespace/name`, as plain data; empty if nothing."""
        queued = self._known.get(self._uid_of.get(key, ""))
        if queued is None:
            return {}
        now = self._clock.monotonic()
        is_gated = queued.gated_by is not None
        return {
            "pod": key,
            "uid": queued.uid,
            "queue": "gated" if is_gated else queued.place.value,
            "attempts": queued.attempts,
            "unschedulable_count": queued.unschedulable_count,
            "error_count": queued.error_count,
            "rejectors": sorted(queued.rejectors | queued.pending),
            "gated_by": queued.gated_by,
            "gate_reason": queued.gate_reason,
            "seconds_in_queue": now - queued.timestamp,
            "seconds_of_backoff_left": (
                self._backoff.seconds_left(queued) if queued.place is Place.BACKOFF else 0.0
            ),
            "nominated_node": self.nominator.node_of(queued.uid),
        }

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod is lost, in two places, or not where it says it is."""
        self._active.check_invariants()
        self._backoff.check_invariants()
        self._unschedulable.check_invariants()
        self._in_flight.check_invariants()
        self.nominator.check_invariants()
        places: dict[str, Place] = {}
        for place, pods in (
            (Place.ACTIVE, self._active),
            (Place.BACKOFF, self._backoff),
            (Place.UNSCHEDULABLE, self._unschedulable),
        ):
            for queued in pods:
                key = queued.pod.key
                assert queued.uid not in places, f"`{key}` is {places[queued.uid]} and {place}"
                assert queued.place is place, f"`{key}` says {queued.place}, but is {place}"
                assert self._known.get(queued.uid) is queued, f"`{key}` is queued, but not known"
                places[queued.uid] = place
        for uid, queued in self._known.items():
            key = queued.pod.key
            assert queued.uid == uid, f"`{key}` is filed under another uid"
            assert self._uid_of.get(key) == uid, f"the name `{key}` leads to another pod"
            if uid in places:
                assert uid not in self._in_flight, f"`{key}` is queued and in flight"
            elif queued.place is Place.IN_FLIGHT:
                assert self._in_flight.get(uid) is queued, f"`{key}` says in flight, but is lost"
            else:
                is_let_go = queued.place in (Place.BINDING, Place.TERMINATING)
                assert is_let_go, f"`{key}` is lost: {queued.place}"
            is_set_aside = queued.place is Place.UNSCHEDULABLE
            assert queued.gated_by is None or is_set_aside, f"`{key}` is gated and not set aside"
        assert len(self._uid_of) == len(self._known), "a name is kept of an unknown pod"
