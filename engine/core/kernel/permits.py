"""Permit: the placements that wait for approval, and pod groups that get it together.

Owns which placements wait, for how long, and that those of a group which cannot be whole release
their nodes. Whether a pod is approved is the policies' `permit`. A placement that waits is not a
task and does not count as a binding in flight; it only keeps its capacity on its node.

    decided --ask--> approved --> Bind
                \\--> refused --> queue
                 \\--> waiting --the group changes, ask again--> approved | refused | waiting
                          \\--timeout, the pod goes, the group cannot be whole--> queue

**Groups.** The pods of a group come here together (`group_attempts`), and all count as waiting
before the first of them is asked about. Those that still wait afterwards release their nodes as
soon as so many of the others were refused or are gone that fewer than `min_count` are left; of a
group without a `min_count`, as soon as one of them is lost. So half a group holds no capacity.
A release within the decision that placed the pods is reported by no event: no other pod was
rejected for want of that capacity, and two groups that are refused would wake each other for ever.

**Order.** Nothing is called in the middle of a loop over placements: an approval is an instruction,
and a failed attempt is noted by `Attempts`. `settle` then does what that means for groups.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from engine.core.framework import reasons
from engine.core.framework.reasons import BACKING_OFF, Reason, legal_token
from engine.core.framework.status import Code, Status
from engine.core.kernel.attempts import Attempts
from engine.core.kernel.instructions import Bind, ReportGroupReleased, ReportWaiting
from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.scheduler_selector import SchedulerSelector
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.queueing.events import ASSIGNED_POD_DELETE
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.queueing.throttle import Throttle, Work
from engine.core.queueing.transitions import Trigger
from engine.core.scheduling.placement import WAITING_REASON, Placement, Rejection
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.lib.durations import go_duration
from engine.lib.printable import short
from engine.policy.evaluator import PolicyFailure

#: Seconds that a pod waits at most, whatever a policy says.
MOST_SECONDS: Final = 900.0
#: A wait is reported by an event and a condition after so many seconds; most end before.
REPORT_SECONDS: Final = 1.0
#: Seconds between updates of the reported reason for a wait, if it has changed.
REPORT_AGAIN_SECONDS: Final = 60.0
#: What rejects the pods of a group that cannot be whole. Events do not retry them: another pod of
#: the group does, which was rejected by a filter and is retried on what that filter waits for.
POD_GROUP: Final = "PodGroup"
#: The reason of these. A node may help: the pods released theirs, and want them all at once. To an
#: autoscaler that did not see these pods, the ones without a node would seem to fit there.
NOT_WHOLE: Final = reasons.rejection(Status(Code.UNSCHEDULABLE, (), POD_GROUP))
#: What a pod waits for by default.
_WAITING: Final = "WaitingOnPermit"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a pod is not approved. Without rejectors it is tried again after a backoff.

    `texts` are kube-scheduler's, `more` is what it does not say. `lost_time`: a policy ran into
    a limit over it.
    """

    texts: tuple[str, ...]
    rejectors: frozenset[str] = frozenset()
    is_error: bool = False
    is_reported: bool = True
    more: str = ""
    lost_time: bool = False
    reason: Reason = BACKING_OFF

    def rejection(self) -> Rejection:
        """The same for the pod's event, condition and place in the queue."""
        text = ", ".join(self.texts)
        if not self.is_error:
            text = ", ".join(f"1 {one}" for one in self.texts)
            text = f"0/1 nodes are available: {text}."
        if self.more:
            text = f"{text} permit: {self.more}."
        return Rejection(
            text,
            is_error=self.is_error,
            rejectors=self.rejectors,
            is_reported=self.is_reported,
            reason=self.reason,
        )


_GONE: Final = _Refusal(("the pod waits no more",), frozenset({POD_GROUP}), is_reported=False)
_SWITCHED: Final = _Refusal(("the policies changed",), is_reported=False)
_MOVED: Final = _Refusal(("the pod is in another group now",), is_reported=False)
_NODE_GONE: Final = _Refusal(
    ("waiting on permit for pod: the node is gone",),
    is_error=True,
    reason=reasons.failure("BackingOff"),
)
_PREEMPTED: Final = _Refusal(
    ("waiting on permit for pod: preempted",), is_error=True, reason=reasons.failure("BackingOff")
)


def _not_about_nodes(policy: str, texts: Sequence[str], token: str) -> tuple[Status, Reason]:
    """The reason of a pod that has a node, and that *policy* rejects all the same."""
    status = Status(Code.UNSCHEDULABLE, tuple(texts), policy, legal_token(token))
    return status, reasons.rejection(status, is_about_nodes=False)


def _refused(policy: str, texts: Sequence[str], token: str = "") -> _Refusal:
    """What *policy* says of a pod that must not be bound."""
    status, reason = _not_about_nodes(policy, texts, token)
    return _Refusal(status.reasons, frozenset({policy}), reason=reason)


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a policy asked a pod to wait: so many seconds, until a moment of the clock, and why."""

    seconds: float
    until: float
    text: str
    token: str = _WAITING


@dataclass(slots=True)
class _Entry:
    """A placement in permit. `waits` are those of the policies that withhold approval.

    `groups` are the pod's when it came; `reported` is what it was last said to wait for, looked at
    again at `report_at`.
    """

    placement: Placement
    groups: list[GroupKey]
    since: float
    report_at: float
    waits: dict[str, _Wait] = field(default_factory=dict)
    has_waited: bool = False
    reported: str = ""

    @property
    def pod(self) -> Pod:
        """The newest version of the pod, as the queue keeps it."""
        return self.placement.queued.pod

    def __str__(self) -> str:
        """What it waits for, as users read it."""
        waits = (
            f"policy `{policy}`, {go_duration(wait.seconds)} at most: {wait.text}"
            for policy, wait in self.waits.items()
        )
        return f"waiting on node `{self.placement.node}` for {'; '.join(waits)}"


class PermitWait(NamedTuple):
    """What a placement in permit waits for.

    `text` says it in words, `until` when it ends at the latest (monotonic seconds); `policies`
    withhold approval.
    """

    text: str
    node: str
    until: float | None
    policies: tuple[str, ...]


class Permits:
    """The placements in permit: asks the policies, and lets through what they approve.

    Every method but `settle` leaves groups to be looked at; the kernel calls that one at the end of
    each event and of each decision.

    Args:
        schedulers: The policies.
        groups: Counts groups, and pods of them that wait.
        queue: Where the rest of a group waits.
        attempts: Releases placements that are refused, and puts their pods back into the queue.
        throttle: Charged with the time that `permit` loses.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        schedulers: SchedulerSelector,
        groups: PodGroups,
        queue: SchedulingQueue,
        attempts: Attempts,
        throttle: Throttle,
    ) -> None:
        self._cache, self._metrics = shared.cache, shared.metrics
        self._time, self._out = shared.time, shared.out
        self._deciders = schedulers
        self._groups = groups
        self._queue = queue
        self._attempts = attempts
        self._throttle = throttle
        self._ordering: frozenset[int] = frozenset()
        self._entries: dict[str, _Entry] = {}
        # Groups to look at before the next decision, each with what was lost of it, or "".
        self._unchecked: dict[GroupKey, str] = {}
        # The uids of the pods that came in the decision, or with the event, of now.
        self._new: set[str] = set()

    def __len__(self) -> int:
        """How many placements wait."""
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    # --- decisions ---------------------------------------------------------------------------

    def ask(self, placements: Sequence[Placement]) -> None:
        """Let through what is approved; of the rest, keep waiting or requeue the pods.

        *placements* are of one profile, and of one group if they are several.
        """
        first = placements[0].pod
        scheduler = self._deciders.of(first)
        profile = scheduler.profile_of(first)
        if profile is None or not profile.at("permit"):
            for placement in placements:
                self._let_through(placement)
            return
        now = self._time.monotonic()
        if scheduler.hooks.approves_alone(profile, first):
            self._observe_answer("Success", placements[0], now)
            self._let_through(placements[0])
            return
        for placement in placements:
            uid = placement.pod.uid
            groups = self._groups.permit_keys_of(uid)
            self._entries[uid] = _Entry(placement, groups, now, now + REPORT_SECONDS)
            self._groups.set_waiting(uid, True)
            self._new.add(uid)
        try:
            is_moving = self._answer([one.pod.uid for one in placements], scheduler)
        except BaseException:
            for placement in placements:
                if placement.pod.uid in self._entries:
                    self._take(placement.pod.uid)  # the kernel undoes what it did
            raise
        for key in self._groups.permit_keys_of(first.uid):
            if is_moving:
                self._ask_again(key)
            self._unchecked.setdefault(key, "")
        for placement in placements:
            entry = self._entries.get(placement.pod.uid)
            if entry is not None:
                entry.has_waited = True

    def follow_groups(self) -> None:
        """Follow what changed about groups since the last call."""
        if not self._groups.has_changes:
            return
        changes = self._groups.take_changes()
        if any(changes.values()):
            self._let_go_of_moved()
        for key, is_membership in changes.items():
            self._follow(key, is_membership)

    def settle(self) -> None:
        """Release what groups hold that cannot be whole any more, until none is left."""
        while self._unchecked or self._attempts.has_failed:
            for pod in self._attempts.take_failed():
                if self._entries:
                    for key in self._groups.permit_keys_of(pod.uid):
                        self._unchecked.setdefault(key, "")
            if self._unchecked:
                key = next(iter(self._unchecked))
                self._check(key, self._unchecked.pop(key))
        self._new.clear()

    # --- time --------------------------------------------------------------------------------

    def waiting(self) -> Iterator[tuple[QueuedPod, Reason]]:
        """The pods that wait, each with why; of several policies, the first counts."""
        for entry in self._entries.values():
            policy, wait = next(iter(entry.waits.items()), ("", None))
            token = _WAITING if wait is None else wait.token
            yield entry.placement.queued, Reason(token, policy, condition=WAITING_REASON)

    def wait_of(self, uid: str) -> "PermitWait | None":
        """What the pod of *uid* waits for; None if it does not."""
        entry = self._entries.get(uid)
        if entry is None:
            return None
        until = min((wait.until for wait in entry.waits.values()), default=None)
        return PermitWait(str(entry), entry.placement.node, until, tuple(entry.waits))

    def pass_time(self) -> None:
        """Refuse placements that have timed out, and report what others wait for."""
        now = self._time.monotonic()
        # One after the other: the end of one may be that of its group.
        while (expired := self._next_expired(now)) is not None:
            self._time_out(*expired)
            self.settle()
        for entry in self._entries.values():
            if entry.report_at <= now:
                self._report_waiting(entry, now)

    def next_expiry(self) -> float | None:
        """When the next placement times out (monotonic seconds); None if none waits."""
        ends = (wait.until for entry in self._entries.values() for wait in entry.waits.values())
        return min(ends, default=None)

    def last_expiry(self) -> float | None:
        """When the last of the placements that wait now times out; None if none waits."""
        ends = (wait.until for entry in self._entries.values() for wait in entry.waits.values())
        return max(ends, default=None)

    def _next_expired(self, now: float) -> tuple[_Entry, str, _Wait] | None:
        for entry in self._entries.values():
            for policy, wait in entry.waits.items():
                if wait.until <= now:
                    return entry, policy, wait
        return None

    # --- what the watch says -----------------------------------------------------------------

    def gone(self, uid: str) -> None:
        """The pod is deleted: it is in no group any more, and waits for nothing."""
        groups = self._groups.permit_keys_of(uid)
        self._groups.remove(uid)
        self._lose(uid, groups)

    def dropped(self, uid: str) -> None:
        """The pod is being deleted, or was bound by another program."""
        if uid in self._entries:
            self._lose(uid, self._groups.permit_keys_of(uid))

    def preempt(self, uid: str) -> None:
        """Requeue the pod of *uid* if it waits: a more important one needs its capacity."""
        if uid in self._entries:
            self._lose(uid, self._groups.permit_keys_of(uid), _PREEMPTED)

    def node_gone(self, name: str) -> None:
        """A node is deleted: pods that wait there have to go elsewhere."""
        for uid in [uid for uid, one in self._entries.items() if one.placement.node == name]:
            self._lose(uid, self._groups.permit_keys_of(uid), _NODE_GONE)

    def _lose(self, uid: str, groups: Iterable[GroupKey], why: _Refusal = _GONE) -> None:
        if self._entries:
            for key in groups:
                self._unchecked[key] = f"a pod of its group `{key.name}` found no node or is gone"
        if uid in self._entries:
            self._end(uid, why)

    # --- policies, shutdown ------------------------------------------------------------------

    def use(self, scheduler: Scheduler, pods: Callable[[], Iterable[Pod]]) -> list[str]:
        """See groups as *scheduler*'s policies do, from now on. Pods that wait are decided again.

        Args:
            scheduler: The policies.
            pods: Gives every known pod.

        Returns:
            The uids of the pods that waited; they are in the queue again.
        """
        # 1. Those that wait give back their capacity.
        self._unchecked.clear()
        waited = self._release_all(list(self._entries))
        # 2. The new policies, and groups as they see them.
        bundle = scheduler.bundle
        self._ordering = frozenset(
            enabled.instance
            for profile in bundle.profiles
            for enabled in profile.at("queue_key")
            if "group" in bundle.policies[enabled.policy].hooks["queue_key"].params
        )
        self._groups.use(scheduler, pods)
        # 3. Back to the queue, which asks the new policies about each, and of its group.
        return self._requeue_all(waited)

    def take_back(self, is_meant: Callable[[Pod], bool]) -> list[str]:
        """Have those of the waiting pods decided again that are meant; returns their uids."""
        meant = [uid for uid, entry in self._entries.items() if is_meant(entry.pod)]
        return self._requeue_all(self._release_all(meant))

    def _release_all(self, uids: Sequence[str]) -> list[_Entry]:
        entries = [self._take(uid) for uid in uids]
        for entry in entries:
            self._observe(entry, is_success=False)
            self._attempts.release(entry.placement)
        return entries

    def _requeue_all(self, entries: Sequence[_Entry]) -> list[str]:
        for entry in entries:
            self._attempts.fail_placement(entry.placement, _SWITCHED.rejection())
            if entry.has_waited:
                self._queue.move(ASSIGNED_POD_DELETE, entry.placement.pod, None)
        return [entry.pod.uid for entry in entries]

    def close(self) -> None:
        """Stop: pods that wait stay pending, and keep their capacity until the process ends."""
        for uid in list(self._entries):
            self._take(uid)
        self._unchecked.clear()

    # --- one placement -----------------------------------------------------------------------

    def _ask(self, entry: _Entry, scheduler: Scheduler) -> _Refusal | bool:
        """True: approved; False: it waits; or the refusal."""
        now = self._time.monotonic()
        waits: dict[str, _Wait] = {}
        refusal: _Refusal | None = None
        for policy, verdict in scheduler.hooks.permit(entry.pod, self._cache.snapshot()):
            if isinstance(verdict, PolicyFailure):
                seconds = self._time.monotonic() - now
                lost = self._throttle.hook_failed(Work.ATTEMPT, entry.pod, [verdict], seconds)
                refusal = _Refusal(
                    (str(verdict),),
                    is_error=True,
                    lost_time=bool(lost),
                    reason=reasons.failure(verdict.token, policy),
                )
                break
            if verdict is None:
                continue
            if verdict[0] == "reject":
                refusal = _refused(policy, *verdict[1:])
                break
            seconds = min(float(verdict[1]), MOST_SECONDS)
            begun = entry.waits.get(policy) or _Wait(seconds, now + seconds, "")
            token = (legal_token(verdict[3]) if len(verdict) > 3 else "") or _WAITING
            waits[policy] = replace(begun, text=short(str(verdict[2])), token=token)
        entry.waits = waits
        status = "Success"
        if refusal is not None:
            status = "Error" if refusal.is_error else "Unschedulable"
        elif waits:
            status = "Wait"
        self._observe_answer(status, entry.placement, now)
        return refusal if refusal is not None else not waits

    def _observe_answer(self, status: str, placement: Placement, asked_at: float) -> None:
        seconds = self._time.monotonic() - asked_at
        self._metrics.extension_point("Permit", status, placement.profile).observe(seconds)

    def _take(self, uid: str) -> _Entry:
        self._groups.set_waiting(uid, False)
        return self._entries.pop(uid)

    def _end(self, uid: str, answer: _Refusal | bool) -> None:
        """The end of a wait: approval, or the way back to the queue."""
        entry = self._take(uid)
        placement = entry.placement
        self._observe(entry, is_success=answer is True)
        if not isinstance(answer, _Refusal):
            self._let_through(placement)
            return
        self._attempts.release(placement)
        self._attempts.fail_placement(placement, answer.rejection())
        if uid not in self._new:
            self._queue.move(ASSIGNED_POD_DELETE, placement.pod, None)

    def _let_through(self, placement: Placement) -> None:
        # From here no event can change the outcome: the queue need not remember them.
        self._queue.done(placement.pod.uid)
        self._out.append(Bind(placement))

    def _report_waiting(self, entry: _Entry, now: float) -> None:
        entry.report_at = now + REPORT_AGAIN_SECONDS
        text = str(entry)
        if text != entry.reported:
            entry.reported = text
            self._out.append(ReportWaiting(entry.pod, text, entry.placement))

    def _observe(self, entry: _Entry, *, is_success: bool) -> None:
        if entry.has_waited:
            result = "Success" if is_success else "Unschedulable"
            waited = self._time.monotonic() - entry.since
            self._metrics.permit_wait_seconds.labels(result).observe(waited)

    def _time_out(self, entry: _Entry, policy: str, wait: _Wait) -> None:
        time = go_duration(wait.seconds)
        reason = f"rejected due to timeout after waiting {time} at plugin {policy}"
        placement = entry.placement
        waited = f"pod `{placement.pod.key}` waited {time} at plugin {policy}, {wait.text}"
        groups = self._groups.permit_keys_of(placement.pod.uid)
        more = f"on node `{placement.node}`, {wait.text}"
        # A group that times out wants its nodes again, like one that is not whole.
        cause = NOT_WHOLE if groups else _not_about_nodes(policy, (), wait.token)[1]
        self._end(placement.pod.uid, _Refusal((reason,), more=more, reason=cause))
        for key in groups:
            self._release(key, f"of its group `{key.name}` {waited}")

    # --- groups ------------------------------------------------------------------------------

    def _let_go_of_moved(self) -> None:
        """Decide pods again that changed their group: in the new one they hold no capacity."""
        for uid, entry in list(self._entries.items()):
            groups = self._groups.permit_keys_of(uid)
            if groups != entry.groups:
                self._lose(uid, {*entry.groups, *groups}, _MOVED)

    def _follow(self, key: GroupKey, is_membership: bool) -> None:
        """Something about a group changed other than which of its pods wait."""
        if self._groups.waiting_in(key):
            self._ask_again(key)
            self._unchecked.setdefault(key, "")
        pending = self._groups.pending_in(key)
        if is_membership:
            self._queue.join(pending)
        reorders = is_membership and key.instance in self._ordering
        for uid in pending:
            if reorders:
                self._queue.reorder(uid)
            self._queue.recheck(
                uid, Trigger.GROUP_CHANGED if is_membership else Trigger.GROUP_PLACED
            )

    def _ask_again(self, key: GroupKey) -> None:
        """Ask about all pods of a group that wait, as long as that makes a difference."""
        while waiting := self._groups.waiting_in(key):
            # All pods of a group are decided by the same policies.
            scheduler = self._deciders.of(self._entries[waiting[0]].pod)
            if not self._answer(waiting, scheduler):
                break

    def _answer(self, uids: Iterable[str], scheduler: Scheduler) -> bool:
        """Ask about each of these pods, and end the waits that are over; False: all still wait."""
        # All are judged on the same state, so that they go together.
        answers: dict[str, _Refusal | bool] = {}
        answer: _Refusal | bool = False
        with self._groups.held():
            for uid in uids:
                # A policy that hit a limit for one pod would hit it for each of them.
                if not (isinstance(answer, _Refusal) and answer.lost_time):
                    answer = self._ask(self._entries[uid], scheduler)
                answers[uid] = answer
        is_moving = False
        for uid, answer in answers.items():
            if answer is not False:
                self._end(uid, answer)
                is_moving = True
        return is_moving

    def _check(self, key: GroupKey, lost: str) -> None:
        """Release what a group holds in permit if it cannot be whole."""
        state = self._groups.state(key)
        if not state.waiting:
            return
        if state.min_count:
            found = state.placed + state.waiting
            if found < state.min_count:
                wanted = f"the {state.min_count} pods that its group `{key.name}` needs"
                self._release(key, f"{found} of {wanted} found a node")
        elif lost:
            self._release(key, lost)

    def _release(self, key: GroupKey, why: str) -> None:
        """Have the pods of a group that wait release their nodes, and requeue them."""
        entries = [self._take(uid) for uid in self._groups.waiting_in(key)]
        if not entries:
            return
        refusal = _Refusal(
            ("pod group is unschedulable",), frozenset({POD_GROUP}), more=why, reason=NOT_WHOLE
        )
        rejection = refusal.rejection()
        for entry in reversed(entries):
            self._attempts.release(entry.placement)
        self._queue.align([entry.placement.queued for entry in entries])
        for entry in entries:
            self._observe(entry, is_success=False)
            self._attempts.fail_placement(entry.placement, rejection)
        for entry in entries:
            if entry.pod.uid not in self._new:
                self._queue.move(ASSIGNED_POD_DELETE, entry.placement.pod, None)
        group = f"{key.namespace}/{key.name}"
        self._out.append(ReportGroupReleased(group, key.scheduler_name, len(entries)))

    def check_invariants(self) -> None:
        """Raise `AssertionError` if a pod waits and is not assumed."""
        assert self._entries.keys() == self._groups.waiting, "pods that wait are not counted so"
        for uid, entry in self._entries.items():
            assert self._cache.is_assumed(uid), f"`{entry.pod.key}` waits and holds no capacity"
