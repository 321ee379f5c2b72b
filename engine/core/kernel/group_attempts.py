"""An attempt at a group of pods: a node for each of them, one after the other, all or nothing.

Owns the order of its steps, and what each pod of the group is told. Which pods are in a group, and
how many belong together, is `pod_groups`'; how one pod is decided is the kernel's.

    taken --> checked --> decided one by one, each held --> as many as belong together: permit
                 \\                          \\-------------> released, requeued as one
                  \\-> requeued as one
"""

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.core.caching.cache import AlreadyAssumed
from engine.core.framework.reasons import Reason, failure
from engine.core.framework.reasons import rejection as reason_of
from engine.core.framework.status import Status
from engine.core.kernel.attempts import Attempts
from engine.core.kernel.decisions import Decisions
from engine.core.kernel.entities import QueuedEntityCounts
from engine.core.kernel.events import Reply
from engine.core.kernel.group_preemption import GroupPostFilters
from engine.core.kernel.instructions import ReportFault, ReportPodGroup
from engine.core.kernel.permits import NOT_WHOLE, POD_GROUP, Permits
from engine.core.kernel.pod_groups import GroupKey, PodGroups
from engine.core.kernel.shared import Shared
from engine.core.model.group_words import GroupWords, words_of
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.queueing.transitions import Place
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import Answer, Question
from engine.core.scheduling.placement import Placement, Rejection
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler

# The text is kube-scheduler's.
_OTHER_POD: Final = "failed to schedule other pod from a pod group: {}"
_REASONS: Final = {"scheduled": "Scheduled", "error": "SchedulerError"}

_GROUP: Final = frozenset({POD_GROUP})
_INVALID: Final = failure("InvalidGroup")


@dataclass(slots=True)
class _Attempt:
    """An attempt under way.

    Attributes:
        key: The group.
        members: The pods that are tried, in order.
        words: What is said of groups.
        min_count: How many of its pods belong together, at least one.
        scheduled: How many of the group have a node, those from before included.
        unfit: How many were tried and have none.
        remaining: How many are still to be tried.
        held: The placements of this attempt.
        rejections: By uid, why pods fitted nowhere.
        nominated: By uid, where members that are held were nominated.
        states: By uid, what plugins of the runtime know of the members that were tried.
        logged: The messages that are in the log: of members with the same one, the first is logged.
        error: What ended the attempt; "" if nothing did.
        is_invalid: That ended it before any pod was tried, for what the group is like.
        cause: The same as a reason, while there is an error.
    """

    key: GroupKey
    members: list[QueuedPod]
    words: GroupWords
    min_count: int = 1
    scheduled: int = 0
    unfit: int = 0
    remaining: int = 0
    held: list[Placement] = field(default_factory=list)
    rejections: dict[str, Rejection] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    states: dict[str, Sequence[tuple[RuntimePlugin, Any]]] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    error: str = ""
    is_invalid: bool = False
    cause: Reason = _INVALID

    def end(self, error: str, cause: Reason) -> None:
        """Note what ends the attempt."""
        self.error, self.cause = error, cause

    @property
    def is_hopeless(self) -> bool:
        """True if too few pods are left."""
        return self.scheduled + self.remaining < self.min_count

    @property
    def too_few(self) -> str:
        """Why the group cannot be whole; "" if it can."""
        if self.scheduled >= self.min_count:
            return ""
        return self.words.too_few.format(
            wanted=self.min_count,
            scheduled=self.scheduled,
            unschedulable=self.unfit,
            remaining=self.remaining,
        )


class GroupAttempts:
    """Tries groups as one.

    Args:
        groups: Knows them.
        entities: Counts them.
        queue, attempts, permits: The parts of the kernel that an attempt changes.
        decisions: Decides about one pod.
        post_filters: Does something about a group that fits nowhere.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        groups: PodGroups,
        entities: QueuedEntityCounts,
        queue: SchedulingQueue,
        attempts: Attempts,
        permits: Permits,
        decisions: Decisions,
        post_filters: GroupPostFilters,
    ) -> None:
        self._cache, self._metrics = shared.cache, shared.metrics
        self._time, self._out = shared.time, shared.out
        self._post_filters = post_filters
        self._groups = groups
        self._entities = entities
        self._queue = queue
        self._attempts = attempts
        self._permits = permits
        self._decisions = decisions

    def run(
        self, first: QueuedPod, key: GroupKey, scheduler: Scheduler, started_at: float
    ) -> Generator[Question, Reply, None]:
        """Try the group of *first*, which was popped, with all its pods that wait in the queue."""
        members = self._take(first, key)
        self._entities.tried(key)
        attempt = _Attempt(key, members, words_of(self._cache.objects.behaves))
        try:
            yield from self._run(attempt, scheduler, started_at)
        except Exception as error:
            # A bug of ours or of a library. It costs the group one attempt.
            self._out.append(ReportFault(first.pod, error))
            attempt.end(f"{type(error).__name__}: {error}", failure("InternalError"))
            self._undo(attempt)
            self._fail(attempt, scheduler, started_at)
        finally:
            self._entities.tried(None)

    def _run(
        self, attempt: _Attempt, scheduler: Scheduler, started_at: float
    ) -> Generator[Question, Reply, None]:
        # 1. Are they a group that can be tried as one?
        attempt.error = self._problem(attempt.key, attempt.members, attempt.words)
        if attempt.error:
            attempt.is_invalid = True
            self._fail(attempt, scheduler, started_at)
            return
        attempt.members = [
            one for one in attempt.members if self._decisions.is_to_be_tried(one, scheduler)
        ]
        if not attempt.members:
            return
        self._count(attempt)
        # 2. A node for each, as long as enough can have one.
        if scheduler.has_extenders:
            # Nothing that happens while they are asked may be seen by the next pod only.
            with self._cache.frozen():
                yield from self._decide(attempt, scheduler, started_at)
            self._drop_lost(attempt, scheduler)
        else:
            yield from self._decide(attempt, scheduler, started_at)
        seconds = self._time.monotonic() - started_at
        self._metrics.podgroup_algorithm_seconds.observe(seconds)
        # 3. All or nothing.
        is_whole = attempt.scheduled >= attempt.min_count and bool(attempt.held)
        if attempt.error or not is_whole:
            self._undo(attempt)
            self._fail(attempt, scheduler, started_at)
            return
        for placement in attempt.held:
            self._restore_nomination(attempt, placement.queued)
            self._queue.nominator.remove(placement.queued.uid, placed_on=placement.node)
        self._report(attempt, started_at, "scheduled", "")
        self._permits.ask(attempt.held)
        held = {placement.queued.uid for placement in attempt.held}
        left = [queued for queued in attempt.members if queued.uid not in held]
        self._queue.align(left)
        for queued in left:
            self._fail_one(attempt, queued, attempt.rejections[queued.uid], scheduler, started_at)
        # They are tried again at once: now it is about them alone.
        self._queue.activate([queued.uid for queued in left if queued.place is Place.UNSCHEDULABLE])

    def _count(self, attempt: _Attempt) -> None:
        """Note how many pods the group wants, has, and is going to try."""
        state = self._groups.state(attempt.key)
        attempt.min_count = max(state.min_count, 1)
        attempt.scheduled = state.placed + state.waiting
        attempt.remaining = len(attempt.members)

    def _take(self, first: QueuedPod, key: GroupKey) -> list[QueuedPod]:
        """Pop the other pods of the group; all in the order in which they are tried."""
        members = [first]
        for uid in self._groups.pending_in(key):
            queued = self._queue.pop(uid)
            if queued is not None:
                members.append(queued)
        members.sort(
            key=lambda one: (-one.pod.priority, -one.attempts, one.timestamp, one.pod.name)
        )
        return members

    def _problem(self, key: GroupKey, members: Sequence[QueuedPod], words: GroupWords) -> str:
        """Why the pods cannot be tried as one group; "" if they can."""
        if not self._groups.follows_object(key):
            return ""
        placed = [
            pod
            for pod in self._groups.members_of(key)
            if self._cache.get_pod(pod.uid) is not None and not pod.is_terminating
        ]
        for other in self._groups.namesakes(key):
            if self._groups.state(other).pod_count:
                return words.schedulers.format(
                    scheduler=other.scheduler_name,
                    pod=self._groups.members_of(other)[0].name,
                    own_scheduler=key.scheduler_name,
                    own_pod=members[0].pod.name,
                )
        has_priority = self._groups.has_priority(key)
        priority = self._groups.state(key).priority
        found = self._groups.object_of(key)
        policy = found.preemption_policy if found is not None else ""
        differ = words.group_policies if policy else words.policies
        for pod in (*(queued.pod for queued in members), *placed):
            if has_priority and pod.priority != priority:
                return words.priorities.format(
                    priority=pod.priority,
                    pod=pod.name,
                    group_priority=priority,
                    key=f"podgroup/{key.namespace}/{key.name}",
                )
            of_pod = _preemption_policy(pod)
            policy = policy or of_pod
            if of_pod != policy:
                return differ.format(policy=of_pod, pod=pod.name, other_policy=policy)
        return ""

    def _decide(
        self, attempt: _Attempt, scheduler: Scheduler, started_at: float
    ) -> Generator[Question, Reply, None]:
        """Choose nodes and hold them, until all pods are tried or it is hopeless."""
        for queued in attempt.members:
            if attempt.is_hopeless or attempt.error:
                return
            answers: list[Answer] = []
            decision = yield from self._decisions.choose_for_member(queued, scheduler, answers)
            attempt.remaining -= 1
            held = len(attempt.held)
            attempt.states[queued.uid] = decision.reserves
            if decision.is_error:
                attempt.rejections[queued.uid] = Rejection(
                    decision.message(),
                    is_error=True,
                    rejectors=decision.failed_objects,
                    reason=decision.reason,
                )
                attempt.end(_OTHER_POD.format(decision.message()), decision.reason)
            elif decision.node is None:
                attempt.rejections[queued.uid] = Rejection(
                    decision.message(),
                    is_error=False,
                    rejectors=decision.diagnosis.rejectors,
                    reason=decision.reason,
                )
            else:
                self._hold(attempt, queued, decision, decision.node, started_at)
            attempt.unfit += len(attempt.held) == held

    def _hold(
        self, attempt: _Attempt, queued: QueuedPod, decision: Decision, node: str, started: float
    ) -> None:
        try:
            held = self._attempts.hold(queued, decision, node, started)
        except AlreadyAssumed as error:  # bound by another program while extenders were asked
            held = Rejection(str(error), is_error=False, rejectors=_GROUP, reason=NOT_WHOLE)
        if isinstance(held, Placement):
            attempt.held.append(held)
            attempt.scheduled += 1
            # It counts there itself now. In force again if the attempt is undone.
            nominated = self._queue.nominator.node_of(queued.uid)
            if nominated is not None:
                attempt.nominated[queued.uid] = nominated
                self._queue.nominator.remove(queued.uid, placed_on=nominated)
            return
        attempt.rejections[queued.uid] = held
        if held.is_error:
            attempt.end(_OTHER_POD.format(held.message), held.reason)

    def _drop_lost(self, attempt: _Attempt, scheduler: Scheduler) -> None:
        """Put away the pods, and release the nodes, that went while extenders were asked."""
        kept = []
        for placement in attempt.held:
            info = self._cache.node_info(placement.node)
            if info is None or info.node is None:
                text = f"node `{placement.node}` is gone"
                attempt.rejections[placement.queued.uid] = Rejection(
                    text, is_error=True, reason=failure("BackingOff")
                )
            elif self._still_wants(placement):
                kept.append(placement)
                continue
            self._attempts.release(placement)
            attempt.scheduled -= 1
            attempt.unfit += 1
        attempt.held = kept
        attempt.members = [
            one for one in attempt.members if self._decisions.wants_node(one, scheduler)
        ]

    def _still_wants(self, placement: Placement) -> bool:
        queued = placement.queued
        is_known = queued.uid in self._queue and not queued.pod.is_terminating
        return is_known and self._cache.is_assumed(queued.uid)

    def reclaim(self, key: GroupKey, scheduler: Scheduler) -> dict[str, str] | None:
        """Have pods of other queues evicted for a group that its queue holds.

        Returns by uid where its pods go then; None: no pod has to go.
        """
        uids = self._groups.pending_in(key)
        members = [queued for uid in uids if (queued := self._queue.get(uid)) is not None]
        if not members:
            return None
        trial = functools.partial(self._try, key, members, scheduler)
        return self._post_filters.reclaim(key, members, scheduler, trial)

    # --- the end -----------------------------------------------------------------------------

    def _undo(self, attempt: _Attempt) -> None:
        """Release what the attempt holds; what was bound or requeued already stays so."""
        for placement in reversed(attempt.held):
            if placement.queued.place is Place.IN_FLIGHT:
                self._attempts.release(placement)
                self._restore_nomination(attempt, placement.queued)

    def _restore_nomination(self, attempt: _Attempt, queued: QueuedPod) -> None:
        node = attempt.nominated.pop(queued.uid, None)
        if node is not None:
            self._queue.nominator.nominate(queued.pod, node)

    def _fail(self, attempt: _Attempt, scheduler: Scheduler, started_at: float) -> None:
        """Requeue every pod of the attempt, each with its reason."""
        members = [one for one in attempt.members if one.place is Place.IN_FLIGHT]
        self._queue.align(members)
        words, name = attempt.words, attempt.key.name
        if attempt.error:
            self._report(attempt, started_at, "error", attempt.error)
            why = attempt.error
            if not attempt.is_invalid:
                why = words.error.format(group=name, why=attempt.error)
            for queued in members:
                own = attempt.rejections.get(queued.uid)
                failure = (
                    own
                    if own and own.is_error
                    else Rejection(why, is_error=True, reason=attempt.cause)
                )
                self._fail_one(attempt, queued, failure, scheduler, started_at)
            return
        # 1. Why, and what can be done about it.
        is_tried = bool(attempt.held or attempt.rejections)
        text = attempt.too_few or words.none_fits
        if attempt.too_few and not is_tried:
            text = words.hopeless.format(why=text)
        untried = words.untried.format(group=name, why=text)
        nodes: dict[str, str] | None = None
        held_by: Status | None = None
        if members:
            trial = functools.partial(self._try, attempt.key, members, scheduler)
            outcome = self._post_filters.run(attempt.key, members, attempt.states, scheduler, trial)
            text, nodes = ", ".join(filter(None, (text, outcome.message))), outcome.nodes
            held_by = outcome.held
        self._report(
            attempt, started_at, "unschedulable" if nodes is None else "waiting_on_preemption", text
        )
        # 2. The message of each pod.
        held = {placement.queued.uid for placement in attempt.held}
        for queued in members:
            rejection = attempt.rejections.get(queued.uid)
            if rejection is None:
                message = untried
                if queued.uid in held:
                    says = words.tried if nodes is None else words.untried
                    message = says.format(group=name, why=text)
                rejection = Rejection(message, is_error=False, rejectors=_GROUP, reason=NOT_WHOLE)
            if held_by is not None:
                # What is said of nodes is true, but not why the pod waits.
                rejectors = rejection.rejectors | {held_by.plugin}
                message = rejection.message if held_by.message in rejection.message else text
                rejection = replace(
                    rejection, message=message, rejectors=rejectors, reason=reason_of(held_by)
                )
            if nodes is not None:
                rejection = replace(rejection, nominated_node=nodes.get(queued.uid, ""))
            self._fail_one(attempt, queued, rejection, scheduler, started_at)

    def _try(
        self, key: GroupKey, members: Sequence[QueuedPod], scheduler: Scheduler
    ) -> tuple[list[Placement], str]:
        """Place the group, release it again: the placements, or why it does not fit."""
        trial = _Attempt(key, list(members), words_of(self._cache.objects.behaves))
        self._count(trial)
        for queued in members:
            if trial.is_hopeless or trial.error:
                break
            trial.remaining -= 1
            found = len(trial.held)
            decision = scheduler.schedule(
                queued.pod, self._cache.snapshot(), self._queue.nominator, has_post_filters=False
            )
            if decision.is_error:
                trial.error = decision.message()
            elif decision.node is not None:
                self._hold(trial, queued, decision, decision.node, 0.0)
            trial.unfit += len(trial.held) == found
        held = trial.held.copy()
        self._undo(trial)
        if trial.error:
            return [], trial.error
        if trial.too_few:
            return [], trial.too_few
        return held, "" if held else trial.words.none_fits

    def _report(self, attempt: _Attempt, started_at: float, result: str, message: str) -> None:
        """Count the attempt, and report it if there is a PodGroup to say so."""
        key = attempt.key
        labels = result, key.scheduler_name
        self._metrics.podgroup_attempts.labels(*labels).inc()
        seconds = self._time.monotonic() - started_at
        self._metrics.podgroup_attempt_seconds.labels(*labels).observe(seconds)
        if self._groups.follows_object(key) and self._groups.state(key).exists:
            reason = _REASONS.get(result, "Unschedulable")
            if attempt.is_invalid:
                reason = attempt.words.invalid
            name = f"{key.namespace}/{key.name}"
            self._out.append(ReportPodGroup(name, result == "scheduled", reason, message))

    def _fail_one(
        self,
        attempt: _Attempt,
        queued: QueuedPod,
        rejection: Rejection,
        scheduler: Scheduler,
        started_at: float,
    ) -> None:
        is_logged = rejection.message not in attempt.logged
        attempt.logged.add(rejection.message)
        self._attempts.fail(
            queued,
            rejection,
            profile=queued.pod.scheduler_name,
            revision=scheduler.bundle.revision,
            started_at=started_at,
            is_logged=is_logged,
        )


def _preemption_policy(pod: Pod) -> str:
    return pod.manifest.spec.preemption_policy or "PreemptLowerPriority"
