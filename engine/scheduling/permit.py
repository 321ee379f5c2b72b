"""Leave to bind: the room where placements wait for it, and pod groups that get it together.

Owns who waits, for how long, and that a group which cannot be placed whole holds nothing. Whether
a pod is given leave is the policies' `permit`. A placement that waits is no task and takes no place
among the bindings in flight; it only keeps its room on its node.

    decided --ask--> leave given --> bindings
                \\--> refused --> queue
                 \\--> waiting --the group changes, ask again--> leave given | refused | waiting
                          \\--time is up, the pod goes, the group cannot be whole--> queue

**Groups.** From the first pod of a group that waits, a round begins: the others that want a node
are tried before every other pod. If so many of them are rejected that `min_count` is out of reach,
the round ends and all that wait let go of their nodes, in the same turn. So no other pod is decided
while half of a group holds room, and two groups cannot each hold what the other one needs. Nobody
has to be told of the room that was given back, since nobody missed it; telling would make two
groups that fit nowhere wake each other for ever. When somebody else was decided during a round
all the same, he is told.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from engine.binding.placement import Bindings, Outcomes, Placement, Rejection
from engine.caching.cache import Cache
from engine.lib.clock import Clock
from engine.lib.durations import go_duration
from engine.model.pod import Pod
from engine.policy.evaluator import PolicyFailure
from engine.queueing.events import ASSIGNED_POD_DELETE
from engine.queueing.queued_pod import QueuedPod
from engine.queueing.scheduling_queue import SchedulingQueue
from engine.queueing.throttle import Throttle, Work
from engine.queueing.transitions import Trigger
from engine.scheduling.pod_groups import GroupKey, PodGroups
from engine.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="permit")

#: Seconds that a pod waits at most, whatever a policy says.
MOST_SECONDS: Final = 900.0
#: After so many seconds of waiting a pod's event and condition say so; most waits end before.
TELL_SECONDS: Final = 1.0
#: What a pod is said to wait for is brought up to date so often, if it has changed.
RETELL_SECONDS: Final = 60.0
#: Who rejects the pods of a group that cannot be whole. Events do not wake them: another pod of
#: the group does, which was rejected by a filter and is woken by what that filter waits for.
POD_GROUP: Final = "PodGroup"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a pod is not given leave. Without rejectors it is tried again after a backoff.

    `reasons` are kube-scheduler's, `more` is what it does not say. `lost_time`: a policy ran into
    a limit over it.
    """

    reasons: tuple[str, ...]
    rejectors: frozenset[str] = frozenset()
    is_error: bool = False
    is_reported: bool = True
    more: str = ""
    lost_time: bool = False

    def rejection(self) -> Rejection:
        """The same for the pod's event, condition and place in the queue."""
        text = ", ".join(self.reasons)
        if not self.is_error:
            text = ", ".join(f"1 {reason}" for reason in self.reasons)
            text = f"0/1 nodes are available: {text}."
        if self.more:
            text = f"{text} permit: {self.more}."
        return Rejection(
            text,
            is_error=self.is_error,
            rejectors=self.rejectors,
            is_reported=self.is_reported,
        )


_GONE: Final = _Refusal(("the pod waits no more",), frozenset({POD_GROUP}), is_reported=False)
_SWITCHED: Final = _Refusal(("the policies changed",), is_reported=False)
_MOVED: Final = _Refusal(("the pod is in another group now",), is_reported=False)
_NODE_GONE: Final = _Refusal(("waiting on permit for pod: the node is gone",), is_error=True)
_PREEMPTED: Final = _Refusal(("waiting on permit for pod: preempted",), is_error=True)


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a policy asked a pod to wait: so many seconds, until a moment of the clock, and why."""

    seconds: float
    until: float
    reason: str


@dataclass(slots=True)
class _Entry:
    """A placement in the room. `waits` are those of the policies that withhold leave.

    `groups` are the pod's when it came; `told` is what it is said to wait for, looked at again at
    `tell_at`.
    """

    placement: Placement
    groups: list[GroupKey]
    since: float
    tell_at: float
    waits: dict[str, _Wait] = field(default_factory=dict)
    has_waited: bool = False
    told: str = ""

    @property
    def pod(self) -> Pod:
        """The newest version of the pod, as the queue keeps it."""
        return self.placement.queued.pod

    def __str__(self) -> str:
        """What it waits for, for people."""
        waits = (
            f"policy `{policy}`, {go_duration(wait.seconds)} at most: {wait.reason}"
            for policy, wait in self.waits.items()
        )
        return f"waiting on node `{self.placement.node}` for {'; '.join(waits)}"


@dataclass(slots=True)
class _Round:
    """An attempt at a group: from its first pod that waits until none waits any more.

    `failed` are the group's pods that were rejected in it. `has_outsiders`: a pod of no business
    here was rejected while the group held room. `why` it ended, for the pods that wait.
    """

    failed: set[str] = field(default_factory=set)
    has_outsiders: bool = False
    why: str = ""


class Permits:
    """Stands between the loop and the bindings: passes on what has leave.

    Args:
        groups: Counts groups; told who waits.
        cache: Where pods that wait are assumed.
        queue: Where pods that are refused go back to, and where the rest of a group waits.
        bindings: Takes placements that have leave.
        outcomes: Told of refusals; has to call `failed` for every pod that was not placed.
        metrics, clock: Measure.
        throttle: Charged with the time that `permit` loses; None: a new one.
    """

    def __init__(
        self,
        *,
        groups: PodGroups,
        cache: Cache,
        queue: SchedulingQueue,
        bindings: Bindings,
        outcomes: Outcomes,
        metrics: Metrics,
        clock: Clock,
        throttle: Throttle | None = None,
    ) -> None:
        self._throttle = Throttle(clock) if throttle is None else throttle
        self._groups = groups
        self._cache = cache
        self._queue = queue
        self._bindings = bindings
        self._outcomes = outcomes
        self._metrics = metrics
        self._clock = clock
        self._scheduler: Scheduler | None = None
        self._permitting: frozenset[int] = frozenset()
        self._ordering: frozenset[int] = frozenset()
        self._entries: dict[str, _Entry] = {}
        self._rounds: dict[GroupKey, _Round] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """How many placements wait."""
        return len(self._entries)

    # --- the loop's calls --------------------------------------------------------------------

    def run_beside(self, action: Callable[[], Awaitable[None]], pod: Pod) -> None:
        """Carry out what a plugin does about *pod*: not a matter of leave."""
        self._bindings.run_beside(action, pod)

    def start(self, placement: Placement) -> None:
        """Pass the placement on if it has leave; else keep it, or give it back to the queue."""
        pod = placement.pod
        scheduler = self._scheduler
        profile = scheduler.profile_of(pod) if scheduler is not None else None
        if scheduler is None or profile is None or not profile.at("permit"):
            self._bindings.start(placement)
            return
        now = self._clock.monotonic()
        groups = self._groups_of(pod.uid)
        entry = _Entry(placement, groups, since=now, tell_at=now + TELL_SECONDS)
        self._entries[pod.uid] = entry
        self._groups.set_waiting(pod.uid, True)
        try:
            answer = self._ask(entry, scheduler)
        except BaseException:
            self._take(pod.uid)  # the loop undoes what it did
            raise
        if answer is not False:
            self._end(pod.uid, answer)
            if answer is True:
                for key in groups:
                    self._ask_again(key)
            return
        entry.has_waited = True
        log.debug("Pod waits for leave", pod=pod.key, policies=sorted(entry.waits))
        for key in groups:
            if key not in self._rounds:
                self._rounds[key] = _Round()
                self._queue.activate(self._groups.pending_in(key), to_front=True)
                self._check(key)

    def failed(self, pod: Pod) -> None:
        """An attempt at *pod* did not end with a binding."""
        if not self._rounds:
            return
        own = set(self._groups_of(pod.uid))
        for key, attempt in self._rounds.items():
            if key in own:
                attempt.failed.add(pod.uid)
            else:
                attempt.has_outsiders = True
        for key in own:
            self._check(key)

    def work(self) -> None:
        """Let go of those whose time is up, and follow what changed. To be called between turns."""
        scheduler = self._scheduler
        if self._is_closed or scheduler is None:
            return
        if not (self._entries or self._rounds or self._groups.has_changes):
            return
        now = self._clock.monotonic()
        for uid, entry in list(self._entries.items()):
            if uid in self._entries:  # it may have gone with another of its group
                for policy, wait in entry.waits.items():
                    if wait.until <= now:
                        self._time_out(uid, policy, wait)
                        break
        changes = self._groups.take_changes()
        if any(changes.values()):
            self._let_go_of_moved()
        for key, is_membership in changes.items():
            self._follow(key, is_membership)
        for key in list(self._rounds):
            self._check(key)
        for entry in self._entries.values():
            if entry.tell_at <= now:
                self._tell_of_waiting(entry, now)

    # --- what the watch says -----------------------------------------------------------------

    def gone(self, uid: str) -> None:
        """The pod is deleted, or on a node by somebody else's hand: it wants leave no more."""
        groups = self._groups_of(uid)
        self._groups.remove(uid)
        self._lose(uid, groups)

    def dropped(self, uid: str) -> None:
        """The pod is on its way out, or on a node by somebody else's hand."""
        if uid in self._entries:
            self._lose(uid, self._groups_of(uid))

    def preempt(self, uid: str) -> bool:
        """Send a pod back that waits: a more important one wants its room. False if none waits."""
        if uid not in self._entries:
            return False
        self._lose(uid, self._groups_of(uid), _PREEMPTED)
        return True

    def node_gone(self, name: str) -> None:
        """A node is deleted: those who wait for leave to go there have to go elsewhere."""
        for uid, entry in list(self._entries.items()):
            if uid in self._entries and entry.placement.node == name:
                self._lose(uid, self._groups_of(uid), _NODE_GONE)

    def _lose(self, uid: str, groups: Iterable[GroupKey], why: _Refusal = _GONE) -> None:
        for key in groups:
            if key in self._rounds:
                # Not between two turns of the loop, so somebody may just miss the room.
                self._rounds[key].has_outsiders = True
                self._rounds[key].failed.add(uid)
        if uid in self._entries:
            self._end(uid, why)
        for key in groups:
            self._check(key)

    # --- policies, shutdown ------------------------------------------------------------------

    def use(self, scheduler: Scheduler, pods: Callable[[], Iterable[Pod]]) -> list[str]:
        """Ask *scheduler*'s policies from now on. Those that wait are decided anew.

        Args:
            scheduler: The policies.
            pods: Gives every known pod.

        Returns:
            The uids of the pods that waited; they are in the queue again.
        """
        # 1. Those that wait give back their room.
        self._rounds.clear()
        waited = [self._take(uid) for uid in list(self._entries)]
        for entry in waited:
            self._observe(entry, is_success=False)
            self._undo(entry.placement)
        # 2. The new policies, and groups in their eyes.
        self._scheduler = scheduler
        bundle = scheduler.bundle
        self._permitting = frozenset(
            enabled.instance for profile in bundle.profiles for enabled in profile.at("permit")
        )
        self._ordering = frozenset(
            enabled.instance
            for profile in bundle.profiles
            for enabled in profile.at("queue_key")
            if "group" in bundle.policies[enabled.policy].hooks["queue_key"].params
        )
        self._groups.use(scheduler, pods)
        # 3. Back to the queue, which asks the new policies about each, and of its group.
        for entry in waited:
            self._tell(entry.placement, _SWITCHED)
            if entry.has_waited:
                self._queue.move(ASSIGNED_POD_DELETE, entry.placement.pod, None)
        return [entry.pod.uid for entry in waited]

    def close(self) -> int:
        """Stop: nobody is given leave any more. Returns how many waited; they stay pending."""
        self._is_closed = True
        left = len(self._entries)
        for uid in list(self._entries):
            self._take(uid)
        self._rounds.clear()
        return left

    # --- one placement -----------------------------------------------------------------------

    def _ask(self, entry: _Entry, scheduler: Scheduler) -> _Refusal | bool:
        """True: leave is given; False: it waits; or the refusal."""
        now = self._clock.monotonic()
        waits: dict[str, _Wait] = {}
        refusal: _Refusal | None = None
        for policy, verdict in scheduler.hooks.permit(entry.pod, self._cache.snapshot()):
            if isinstance(verdict, PolicyFailure):
                seconds = self._clock.monotonic() - now
                lost = self._throttle.hook_failed(Work.ATTEMPT, entry.pod, [verdict], seconds)
                refusal = _Refusal((str(verdict),), is_error=True, lost_time=bool(lost))
                break
            if verdict is None:
                continue
            if verdict[0] == "reject":
                refusal = _Refusal(tuple(verdict[1]), frozenset({policy}))
                break
            seconds = min(float(verdict[1]), MOST_SECONDS)
            begun = entry.waits.get(policy) or _Wait(seconds, now + seconds, "")
            waits[policy] = replace(begun, reason=str(verdict[2]))
        entry.waits = waits
        status = "Success"
        if refusal is not None:
            status = "Error" if refusal.is_error else "Unschedulable"
        elif waits:
            status = "Wait"
        self._metrics.extension_point("Permit", status, entry.placement.profile).observe(
            self._clock.monotonic() - now
        )
        return refusal if refusal is not None else not waits

    def _take(self, uid: str) -> _Entry:
        self._groups.set_waiting(uid, False)
        return self._entries.pop(uid)

    def _end(self, uid: str, answer: _Refusal | bool) -> None:
        """The end of a wait: leave, or the way back to the queue."""
        entry = self._take(uid)
        placement = entry.placement
        self._observe(entry, is_success=answer is True)
        if not isinstance(answer, _Refusal):
            self._bindings.start(placement)
            return
        attempts = [self._rounds[key] for key in self._groups_of(uid) if key in self._rounds]
        self._undo(placement)
        self._tell(placement, answer)
        if entry.has_waited and (not attempts or any(a.has_outsiders for a in attempts)):
            self._queue.move(ASSIGNED_POD_DELETE, placement.pod, None)

    def _undo(self, placement: Placement) -> None:
        for plugin, state in reversed(placement.reserves):
            plugin.unreserve(state, placement.pod, placement.node)
        self._cache.forget(placement.pod.uid)

    def _tell(self, placement: Placement, refusal: _Refusal) -> None:
        self._outcomes.not_placed(
            placement.queued,
            refusal.rejection(),
            profile=placement.profile,
            revision=placement.revision,
            started_at=placement.started_at,
        )

    def _tell_of_waiting(self, entry: _Entry, now: float) -> None:
        entry.tell_at = now + RETELL_SECONDS
        text = str(entry)
        if text != entry.told:
            entry.told = text
            placement = entry.placement
            self._outcomes.waiting(entry.pod, text, placement)

    def _observe(self, entry: _Entry, *, is_success: bool) -> None:
        if entry.has_waited:
            result = "Success" if is_success else "Unschedulable"
            waited = self._clock.monotonic() - entry.since
            self._metrics.permit_wait_seconds.labels(result).observe(waited)

    def _time_out(self, uid: str, policy: str, wait: _Wait) -> None:
        time = go_duration(wait.seconds)
        reason = f"rejected due to timeout after waiting {time} at plugin {policy}"
        placement = self._entries[uid].placement
        waited = f"pod `{placement.pod.key}` waited {time} at plugin {policy}, {wait.reason}"
        groups = self._groups_of(uid)
        for key in groups:
            if key in self._rounds:
                self._rounds[key].has_outsiders = True  # whoever was decided meanwhile
                self._rounds[key].why = f"of its group `{key.name}` {waited}"
        self._end(uid, _Refusal((reason,), more=f"on node `{placement.node}`, {wait.reason}"))
        for key in groups:
            self._release(key)

    # --- groups ------------------------------------------------------------------------------

    def _let_go_of_moved(self) -> None:
        """Decide those anew that changed their group: they hold room in no round of the new one."""
        for uid, entry in list(self._entries.items()):
            groups = self._groups_of(uid)
            if uid in self._entries and groups != entry.groups:
                self._lose(uid, {*entry.groups, *groups}, _MOVED)

    def _groups_of(self, uid: str) -> list[GroupKey]:
        """The pod's groups in the eyes of policies that give leave."""
        return [key for key in self._groups.keys_of(uid) if key.instance in self._permitting]

    def _follow(self, key: GroupKey, is_membership: bool) -> None:
        """Something about a group changed beside who waits."""
        if key.instance in self._permitting:
            self._ask_again(key)
            self._check(key)
        reorders = is_membership and key.instance in self._ordering
        for uid in self._groups.pending_in(key):
            if reorders:
                self._queue.reorder(uid)
            self._queue.recheck(
                uid, Trigger.GROUP_CHANGED if is_membership else Trigger.GROUP_PLACED
            )

    def _ask_again(self, key: GroupKey) -> None:
        """Ask about all of a group that wait, as long as that makes a difference."""
        scheduler = self._scheduler
        assert scheduler is not None, "somebody waits, and nobody was asked"
        is_moving = True
        while is_moving:
            is_moving = False
            # All are judged on the same state, so that they go together.
            answers: dict[str, _Refusal | bool] = {}
            answer: _Refusal | bool = False
            with self._groups.held():
                for uid in self._groups.waiting_in(key):
                    # What ran into a limit for one would for each of them.
                    if not (isinstance(answer, _Refusal) and answer.lost_time):
                        answer = self._ask(self._entries[uid], scheduler)
                    answers[uid] = answer
            for uid, answer in answers.items():
                if answer is not False and uid in self._entries:
                    self._end(uid, answer)
                    is_moving = True
        self._check(key)

    def _check(self, key: GroupKey) -> None:
        """End the round if nobody waits, or if the group cannot be whole in it."""
        attempt = self._rounds.get(key)
        if attempt is None:
            return
        state = self._groups.state(key)
        if not state.waiting:
            del self._rounds[key]
            return
        if state.min_count:
            tried = sum(
                uid not in attempt.failed and self._queue.is_being_tried(uid)
                for uid in self._groups.pending_in(key)
            )
            found = state.placed + state.waiting
            if found + tried < state.min_count:
                wanted = f"the {state.min_count} pods that its group `{key.name}` needs"
                attempt.why = attempt.why or f"{found} of {wanted} found a node"
                self._release(key)
        elif attempt.failed:
            lost = f"a pod of its group `{key.name}` found no node or is gone"
            attempt.why = attempt.why or lost
            self._release(key)

    def _release(self, key: GroupKey) -> None:
        """End the round: all that wait let go, and those whose turn would come lose it."""
        attempt = self._rounds.pop(key, None)
        if attempt is None:
            return
        left: list[QueuedPod] = []
        for uid in self._groups.pending_in(key):
            queued = self._queue.pop(uid) if uid not in attempt.failed else None
            if queued is not None:
                left.append(queued)
        refusal = _Refusal(
            ("pod group is unschedulable",), frozenset({POD_GROUP}), more=attempt.why
        )
        entries = [self._take(uid) for uid in self._groups.waiting_in(key)]
        for entry in reversed(entries):
            self._undo(entry.placement)
        for entry in entries:
            self._observe(entry, is_success=False)
            self._tell(entry.placement, refusal)
        self._tell_untried(left, refusal)
        if attempt.has_outsiders:
            for entry in entries:
                self._queue.move(ASSIGNED_POD_DELETE, entry.placement.pod, None)
        log.info(
            "Pod group let go of its nodes",
            group=f"{key.namespace}/{key.name}",
            profile=key.scheduler_name,
            waited=len(entries),
            rejected=len(attempt.failed),
        )

    def _tell_untried(self, pods: Iterable[QueuedPod], refusal: _Refusal) -> None:
        assert self._scheduler is not None, "a round without policies"
        for queued in pods:
            self._outcomes.not_placed(
                queued,
                refusal.rejection(),
                profile=queued.pod.scheduler_name,
                revision=self._scheduler.bundle.revision,
                started_at=self._clock.monotonic(),
            )

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod waits and is not assumed, or a round is about nobody."""
        assert self._entries.keys() == self._groups.waiting, "who waits is not who is counted so"
        for uid, entry in self._entries.items():
            assert self._cache.is_assumed(uid), f"`{entry.pod.key}` waits and holds no room"
            for key in self._groups_of(uid):
                assert key in self._rounds, f"`{entry.pod.key}` waits outside a round"
        for key in self._rounds:
            assert self._groups.waiting_in(key), f"nobody waits in the round of `{key.name}`"
