"""The kernel itself: what each event means, and how the next pod is tried.

Owns the parts of the state and the order in which they learn of an event. Each event and each
decision collects its instructions, and returns them when the state is consistent again.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import msgspec

from engine.core.caching.cache import AlreadyAssumed, Cache
from engine.core.framework.behaviors import behaviors_of
from engine.core.framework.reasons import failure, gate
from engine.core.kernel import events
from engine.core.kernel.attempts import Attempts
from engine.core.kernel.cluster import ClusterChanges
from engine.core.kernel.decisions import Decisions
from engine.core.kernel.entities import QueuedEntityCounts
from engine.core.kernel.events import Event, PreemptionEnd, Reply
from engine.core.kernel.group_attempts import GroupAttempts
from engine.core.kernel.group_preemption import GroupPostFilters, GroupPreemption
from engine.core.kernel.instructions import (
    Evict,
    Instruction,
    ReportBound,
    ReportFault,
    ReportHeld,
    ReportHookFailure,
    ReportNomination,
    RunAction,
)
from engine.core.kernel.kernel_time import KernelTime, standing_still
from engine.core.kernel.permits import Permits
from engine.core.kernel.pod_groups import PodGroups
from engine.core.kernel.preemptions import Preemptions
from engine.core.kernel.queue_hooks import QueueHooks
from engine.core.kernel.queue_shares import QueueShares
from engine.core.kernel.reclaims import Reclaims
from engine.core.kernel.scheduler_selector import SchedulerSelector
from engine.core.kernel.shared import Shared
from engine.core.kernel.turn_queue import TurnQueue
from engine.core.model.pod import Pod
from engine.core.model.pod_group import NEVER
from engine.core.queueing.events import (
    ASSIGNED_POD_DELETE,
    CLOCK_STEPS,
    FACTS_AGE,
    FACTS_UPDATE,
    READABLE_AGAIN,
)
from engine.core.queueing.hints import EitherHints, Hints
from engine.core.queueing.places import Gate
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import RetryTimes, SchedulingQueue
from engine.core.queueing.throttle import Failures, Throttle, Work
from engine.core.queueing.transitions import Trigger
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import Answer, Question
from engine.core.scheduling.placement import Preemption, Rejection
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.telemetry.metrics import Metrics

# Sums of seconds are rounded: a wait may end a little later than its end was computed.
_SHORTEST_WAIT: Final = 0.001
# Between two looks at hooks that failed or are throttled.
_RETRY_SECONDS: Final = 1.0


class Kernel:
    """The state of a scheduler: `handle` changes it, `decide` tries one pod.

    Single-threaded. While `decide` waits for a reply, events may be handled; the decision goes on
    with the cluster as it was, and its outcome takes into account what happened meanwhile.

    Args:
        cache: Nodes and placed pods; changed by the kernel alone from here on.
        plugins: The plugins of the runtime by name, made for the cache's objects.
        metrics: Counted in.
        stopwatch: Measures how long policies take; with the default they take no time.
        retries: When a rejected pod is tried again.

    Attributes:
        time: The time of the event that is handled.
        schedulers: Whose policies decide a pod.
        decisions: How one pod is decided about.
        queue, groups, permits, preemptions, throttle, cluster, shares, turns, reclaims: The parts,
            for reading.
    """

    def __init__(
        self,
        cache: Cache,
        plugins: Mapping[str, RuntimePlugin],
        *,
        metrics: Metrics,
        stopwatch: Callable[[], float] = standing_still,
        retries: RetryTimes = RetryTimes(),  # noqa: B008  # it is frozen
    ) -> None:
        self.cache = cache
        self.plugins = plugins
        self.time = KernelTime(stopwatch)
        self._metrics = metrics
        self._is_leading = False
        self._to_reclaim: list[tuple[QueuedPod, str]] = []  # held for what others may have
        shared = Shared(cache, metrics, self.time)
        self._out = shared.out
        # 1. The parts for pods without a node. Some of what they ask is made below: none is asked
        #    before the first event.
        self.throttle = Throttle(self.time, self._hook_failed, self._decider_of)
        self.preemptions = Preemptions()
        self.groups = PodGroups(
            cache, throttle=self.throttle, clock=self.time, preemptions=self.preemptions
        )
        self.schedulers = SchedulerSelector(self.groups)
        self.entities = QueuedEntityCounts(self.groups)
        self._hooks = QueueHooks(shared, self.schedulers, self.throttle)
        self.turns = TurnQueue(
            self.time, shares=lambda: self.shares, groups=self.groups, on_hold=self._held
        )
        self.queue = SchedulingQueue(
            self.time,
            key_of=self._hooks.key_of,
            pre_enqueue=self._gate_of,
            on_incoming=self.entities.entered,
            retries=retries,
            active=self.turns,
        )
        # 2. The parts for pods with a node that is not bound yet.
        self.attempts = Attempts(cache, self.queue, self._out)
        self.permits = Permits(
            shared,
            schedulers=self.schedulers,
            groups=self.groups,
            queue=self.queue,
            attempts=self.attempts,
            throttle=self.throttle,
        )
        self.decisions = Decisions(shared, self.queue, self.throttle)
        self.group_attempts = self._for_groups(shared)
        # 3. The part that applies what the API server reports.
        self.cluster = ClusterChanges(cache, self.queue, self.groups, self.permits, self._out)
        self.shares = QueueShares(shared, self.cluster, self.queue.nominator)
        self.reclaims = Reclaims(
            shared,
            shares=self.shares,
            groups=self.groups,
            nominator=self.queue.nominator,
            preemptions=self.preemptions,
            request_of=self.turns.request,
        )
        self._handlers = self._handlers_by_event()

    def _for_groups(self, shared: Shared) -> GroupAttempts:
        """The part that tries groups as one, made of those that exist by now."""
        preemption = GroupPreemption(
            shared,
            groups=self.groups,
            nominator=self.queue.nominator,
            preemptions=self.preemptions,
        )
        return GroupAttempts(
            shared,
            groups=self.groups,
            entities=self.entities,
            queue=self.queue,
            attempts=self.attempts,
            permits=self.permits,
            decisions=self.decisions,
            post_filters=GroupPostFilters(shared, preemption, lambda: self.reclaims),
        )

    def _handlers_by_event(self) -> Mapping[type[Any], Callable[[Any], None]]:
        return {
            events.ObjectChanged: self._take,
            events.QueueObjectChanged: self.shares.take_object,
            events.QueueAdjusted: self.shares.adjust,
            events.UsageRestored: self.shares.restore_usage,
            events.NodeFactsChanged: self._show_node_facts,
            events.PodFactsChanged: self._show_pod_facts,
            events.OtherFactsChanged: self._show_other_facts,
            events.PodTypeLabelsChanged: self._set_pod_type_labels,
            events.PodGroupsServed: self._note_served,
            events.VersionChanged: self._follow_version,
            events.ReadabilityChanged: self._change_readability,
            events.FactsReported: self._retry_for_facts,
            events.RevisionSwitched: self._switch,
            events.CanaryChanged: self._change_canary,
            events.LeadershipAcquired: self._lead,
            events.TurnBegan: self._begin_turn,
            events.TimePassed: self._pass_time,
            events.Bound: self._bound,
            events.BindingFailed: self._binding_failed,
            events.BindingGivenUp: self._binding_given_up,
            events.WaitingPodPreempted: self._preempt_waiting,
            events.PreemptionEnded: self._preemption_ended,
            events.Stopped: self._stop,
        }

    # --- reading -----------------------------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler | None:
        """The policies in force; None before there are some."""
        return self.schedulers.in_force

    @property
    def has_work(self) -> bool:
        """True if a turn of decisions would do something now."""
        return self.queue.has_poppable or self.groups.has_changes

    @property
    def asks_extenders(self) -> bool:
        """True if `decide` may yield questions."""
        return self.schedulers.ask_extenders

    def wakes_at(self) -> float | None:
        """When `TimePassed` is to be reported next (monotonic seconds); None: it need not be."""
        now = self.time.monotonic()
        moments = []
        if (wait := self.queue.next_flush_in()) is not None and wait != math.inf:
            moments.append(now + wait)
        if (expiry := self.permits.next_expiry()) is not None:
            moments.append(expiry)
        of_queues = (self.shares.wakes_at(), self.turns.wakes_at(), self.reclaims.again_at())
        moments += [at for at in of_queues if at is not None]
        if self.throttle:
            moments.append(now + _RETRY_SECONDS)
        # Never at once: a shell whose moment is in the past would spin.
        return max(min(moments), now + _SHORTEST_WAIT) if moments else None

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the parts contradict themselves or each other."""
        assert not self._out, "instructions were left behind"
        self.cache.check_invariants()
        self.queue.check_invariants()
        self.permits.check_invariants()
        self.preemptions.check_invariants()
        self.shares.check_invariants()

    def waiting_reasons(self) -> Counter[tuple[str, str, str]]:
        """How many pods wait, in the queue or in permit, by (reason token, policy, profile)."""
        found = Counter(self.queue.waiting_reasons())
        for queued, reason in self.permits.waiting():
            found[reason.token, reason.policy, queued.pod.scheduler_name] += 1
        return found

    def oldest_waiting(self) -> dict[tuple[str, str, str], float]:
        """When the oldest of them was created (epoch seconds), by the same."""
        found = self.queue.oldest_waiting()
        for queued, reason in self.permits.waiting():
            key = reason.token, reason.policy, queued.pod.scheduler_name
            found[key] = min(queued.pod.created_at, found.get(key, math.inf))
        return found

    def waiting(self) -> list[QueuedPod]:
        """The pods that wait, in the queue or in permit; not to be changed."""
        return [*self.queue.waiting_pods(), *(queued for queued, _ in self.permits.waiting())]

    # --- events ------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Handle *event*, at *now* (monotonic seconds); returns what is to be done about it."""
        # An event that is not in the table is a bug of the shell: KeyError, before any part
        # changed.
        self.time.enter(now)
        self._handlers[type(event)](event)
        return self.take_instructions()

    def take_instructions(self) -> list[Instruction]:
        """What was collected, once groups have followed; for callers that change a part."""
        self.permits.settle()
        if self.shares.is_on:
            self.shares.follow(self._out, at_once=self._is_leading)
        # In place: every part holds on to this very list.
        instructions = self._out.copy()
        self._out.clear()
        return instructions

    def _take(self, event: events.ObjectChanged) -> None:
        self.cluster.take(event)
        if self.shares.is_on:
            self.shares.take(event)

    # --- facts

    def _show_node_facts(self, event: events.NodeFactsChanged) -> None:
        self.cache.set_node_facts(event.name, event.facts)

    def _show_pod_facts(self, event: events.PodFactsChanged) -> None:
        self.cache.set_pod_facts(event.key, event.facts)

    def _show_other_facts(self, event: events.OtherFactsChanged) -> None:
        before = self.cache.snapshot().cluster_facts
        self.cache.set_other_facts(cluster=event.cluster, types=event.types, pods=event.pods)
        if event.cluster == before:
            return
        # 1. First the sort keys, so that a pod that may go now goes in its turn.
        snapshot = self.cache.snapshot()
        concerned = {
            one: one.hooks.profiles_given_others(snapshot) for one in self.schedulers.all()
        }
        if any(concerned.values()):
            self.queue.ask_again(
                lambda pod: pod.scheduler_name in concerned[self.schedulers.of(pod)]
            )
        # 2. A step of the clock is no measurement: it concerns those alone that read this fact.
        for name, step in CLOCK_STEPS.items():
            if name in event.cluster and event.cluster[name] != before.get(name):
                self.queue.move(step)

    def _set_pod_type_labels(self, event: events.PodTypeLabelsChanged) -> None:
        self.cache.set_pod_type_labels(event.labels)

    def _retry_for_facts(self, event: events.FactsReported) -> None:
        self.queue.move(FACTS_AGE if event.is_age else FACTS_UPDATE)

    def _note_served(self, event: events.PodGroupsServed) -> None:
        self.groups.set_served(bool(event.api_version))

    def _follow_version(self, event: events.VersionChanged) -> None:
        objects = self.cache.objects
        before = objects.behaves
        objects.behaves = behaviors_of(event.minor, frozenset(event.gates))
        if objects.behaves is not before:
            self.groups.judge_again()
            self.queue.rekey()  # as for other policies: gates, keys and rejections may differ

    def _change_readability(self, event: events.ReadabilityChanged) -> None:
        objects = self.cache.objects
        before, objects.unknown = objects.unknown, dict(event.unknown)
        if before.keys() - event.unknown.keys():
            self.queue.move(READABLE_AGAIN)
        if event.unknown.keys() - before.keys():
            self.queue.rekey()  # asks every gate again: what it says may come of what is unknown

    # --- policies, leadership, time

    def _switch(self, event: events.RevisionSwitched) -> None:
        scheduler = self.schedulers.in_force = event.scheduler
        self.schedulers.canary = None
        scheduler.use_plugins(self.plugins)
        # 1. What is throttled is so because of the policies before.
        self.throttle.clear()
        # 2. Groups are known before a policy is asked about a pod: it may want to see its group.
        waited = self.permits.use(scheduler, self.cluster.known_pods)
        # 3. The queue holds the pods of the new profiles, and asks for every key and gate again.
        self.cluster.use(scheduler)
        # Pods that waited in permit go last: only now their gates and keys are those of the
        # policies in force.
        self.queue.rekey(Hints.of(scheduler.bundle, self.cache))
        self.queue.activate(waited)
        self.shares.use(scheduler)
        self.turns.follow_policies()
        self.reclaims.clear()

    def _change_canary(self, event: events.CanaryChanged) -> None:
        schedulers, in_force = self.schedulers, self.schedulers.in_force
        assert in_force is not None, "there is nothing to compare a candidate with"
        waiting = self.waiting()
        before = {queued.uid for queued in waiting if schedulers.is_canary(queued.pod)}
        # 1. The candidate sees groups as the policies in force do.
        schedulers.canary = event.canary
        hints = Hints.of(in_force.bundle, self.cache)
        if event.canary is not None:
            for scheduler in filter(None, (event.canary.scheduler, event.canary.control)):
                scheduler.use_plugins(self.plugins)
                scheduler.hooks.groups = self.groups.state_for
                scheduler.use_units(self.groups.disrupted_as_one)
            hints = EitherHints(hints, Hints.of(event.canary.scheduler.bundle, self.cache))
        # 2. Pods that are decided by others now are tried again.
        self.throttle.forgive()
        changed = before ^ {queued.uid for queued in waiting if schedulers.is_canary(queued.pod)}
        waited = self.permits.take_back(lambda pod: pod.uid in changed)
        self.queue.rekey(hints, changed)
        self.queue.activate(waited)

    def _lead(self, event: events.LeadershipAcquired) -> None:
        self._is_leading = True
        self.queue.rekey()  # asks every gate again: what was reported before was not carried out

    def _begin_turn(self, event: events.TurnBegan) -> None:
        self.permits.follow_groups()

    def _pass_time(self, event: events.TimePassed) -> None:
        self.queue.flush()
        self.throttle.retry(self._try_again)
        self.permits.pass_time()
        self.shares.refresh()
        self._look_again()
        if not self._is_leading:
            self.groups.take_changes()  # the first turn begins with how they are then

    def _stop(self, event: events.Stopped) -> None:
        self.permits.close()

    # --- bindings

    def _bound(self, event: events.Bound) -> None:
        self._out.append(ReportBound(event.placement))

    def _binding_failed(self, event: events.BindingFailed) -> None:
        placement = event.placement
        self.attempts.release(placement)
        # The capacity that the pod held is free again; another may have been rejected for it.
        self.queue.move(ASSIGNED_POD_DELETE, placement.pod, None)
        rejection = Rejection(
            event.reason,
            is_error=True,
            is_reported=event.is_reported,
            reason=failure("BindingFailed"),
        )
        self.attempts.fail_placement(placement, rejection)

    def _binding_given_up(self, event: events.BindingGivenUp) -> None:
        # The request may still arrive, or has arrived: then what was made for the pod is in use.
        self.attempts.forget(event.placement.pod.uid)

    # --- preemptions

    def _preempt_waiting(self, event: events.WaitingPodPreempted) -> None:
        self.permits.preempt(event.uid)

    def _preemption_ended(self, event: events.PreemptionEnded) -> None:
        uid = event.preemptor.uid
        # Before any pod is looked at again: their gates ask whether it is under way.
        released = self.preemptions.end(uid)
        if event.end is PreemptionEnd.DONE:
            # A victim that went before the last answer came triggered a retry while the gate was
            # closed. If none did, the preemptor waits for their deletion as for any other event.
            self.queue.recheck(uid, Trigger.PREEMPTION_DONE)
        elif event.end in (PreemptionEnd.IN_MEMORY, PreemptionEnd.INTERRUPTED):
            self.queue.activate([uid])
        else:
            # Without the backoff, a refusal that repeats at once would loop for ever.
            self.queue.recheck(uid, Trigger.PREEMPTION_FAILED)
        for held in released:
            self.queue.recheck(held, Trigger.PREEMPTION_DONE)

    # --- what the parts ask ------------------------------------------------------------------

    def _gate_of(self, pod: Pod) -> Gate | None:
        """What keeps *pod* out of the active queue, and why; None: it may be tried."""
        held = self.preemptions.gate(pod.uid, self.queue.nominator.node_of(pod.uid))
        own = self._hooks.gate_of(pod) if held is None else held
        return self.groups.gate_of(pod, own)

    def _held(self, queued: QueuedPod, text: str, token: str, *, has_failed: bool) -> None:
        """The queue of a pod may not start it now."""
        scheduler = self.schedulers.of(queued.pod)
        policy = self.shares.policy
        if queued.message != text:
            self.queue.explain_wait(queued, gate(policy, token), text)
            revision = scheduler.bundle.revision
            self._out.append(ReportHeld(queued.pod, policy, text, token, revision, has_failed))
        held = self.turns.hold_of(queued.uid)
        if held is not None and held[1].short is not None and self.reclaims.is_on:
            self._to_reclaim.append((queued, held[0]))

    def _decider_of(self, pod: Pod) -> str:
        """Whose policies waste time if it is over *pod*."""
        return self.schedulers.name_of(pod)

    def _hook_failed(self, pod: Pod, failures: Failures, lost: Failures, seconds: float) -> None:
        self._out.append(ReportHookFailure(pod, failures, lost, seconds))

    def _try_again(self, work: Work, uid: str) -> bool:
        """Repeat work that was throttled or failed for a pod; True if the pod may be tried now."""
        match work:
            case Work.ATTEMPT:
                return self.queue.recheck(uid, Trigger.THROTTLE_ENDED)
            case Work.GATE:
                return self.queue.recheck(uid, Trigger.GATE_RETRIED)
            case Work.GROUP:
                return self.groups.ask_again(uid)
            case Work.SORT_KEY:
                self.queue.reorder(uid)
                return True

    # --- one decision ------------------------------------------------------------------------

    def decide(self, now: float) -> Generator[Question, Reply, list[Instruction]]:
        """Try the pod that goes first, if one is ready; ends with what is to be done about it.

        A pod of a group whose pods need approval is tried together with the others of its group.
        Yields questions to extenders. Until it ends no other decision may begin. An exception costs
        the pod its attempt and does not propagate.
        """
        self.time.enter(now)
        # 1. Take the pod that goes first, of groups as they are by now.
        self.permits.follow_groups()
        queued = self.queue.pop()
        while self._to_reclaim:
            self._reclaim_for_held(*self._to_reclaim.pop())
        if queued is None:
            return self.take_instructions()
        scheduler = self.schedulers.of(queued.pod)
        started_at = self.time.monotonic()
        group = self.groups.tried_in(queued.uid)
        if group is not None:
            yield from self.group_attempts.run(queued, group, scheduler, started_at)
            return self.take_instructions()
        try:
            # 2. Some must not be tried.
            if self.decisions.is_to_be_tried(queued, scheduler):
                # 3. Choose a node, on the cluster as it is now.
                # If extenders were asked, the pod may have gone or been placed while they answered:
                # only then is it looked for again.
                answers: list[Answer] = []
                decision, waited = yield from self.decisions.choose(queued.pod, scheduler, answers)
                # 4. Account for it, even if the pod is gone by now.
                self.decisions.account(queued.pod, decision, answers, started_at, waited)
                if not answers or self.decisions.wants_node(queued, scheduler):
                    # 5. Hold the node, or put the pod back.
                    if decision.node is None:
                        self._nowhere(queued, decision, started_at)
                    else:
                        self._place(queued, decision, decision.node, started_at)
        except Exception as error:
            # A bug of ours or of a library. It costs this pod one attempt.
            self._out.append(ReportFault(queued.pod, error))
            text = f"{type(error).__name__}: {error}"
            rejection = Rejection(text, is_error=True, reason=failure("InternalError"))
            self._fail(queued, rejection, scheduler.bundle.revision, started_at)
        return self.take_instructions()

    def _nowhere(self, queued: QueuedPod, decision: Decision, started_at: float) -> None:
        """The pod fits nowhere, or a policy failed: start what was decided about it, requeue it."""
        pod = queued.pod
        if decision.eviction is None and not decision.is_error and self.reclaims.is_on:
            decision = self._with_reclaim(queued, decision)
        if decision.eviction is not None:
            self._start_preemption(pod, decision.eviction, decision.revision)
        for action in decision.actions:
            self._out.append(RunAction(action, pod))
        self._fail(queued, _rejection(decision), decision.revision, started_at)

    def _with_reclaim(self, queued: QueuedPod, decision: Decision) -> Decision:
        """The decision with the pods that other queues have to give back for *queued*, if any."""
        queue = self.shares.place_of(queued.pod)[0]
        if queue is None or queued.pod.manifest.spec.preemption_policy == NEVER:
            return decision
        found = self.reclaims.for_pod(queued, queue, self.schedulers.of(queued.pod))
        if found is None:
            self.reclaims.look_again(queued)
            return decision
        return msgspec.structs.replace(decision, eviction=found[0], nominated_node=found[1])

    def _reclaim_for_held(self, queued: QueuedPod, queue: str) -> None:
        """Have pods evicted for one whose queue has no room, if others have too much."""
        pod, group = queued.pod, self.groups.tried_in(queued.uid)
        scheduler = self.schedulers.of(pod)
        nodes: dict[str, str] | None = None
        if pod.manifest.spec.preemption_policy == NEVER:
            return
        if group is not None:
            nodes = self.group_attempts.reclaim(group, scheduler)
        elif (found := self.reclaims.for_pod(queued, queue, scheduler)) is not None:
            preemption, node = found
            nodes = {pod.uid: node}
            self._start_preemption(pod, preemption, scheduler.bundle.revision)
        if nodes is None:
            self.reclaims.look_again(queued)
            return
        for uid, node in nodes.items():
            waiting = self.queue.get(uid)
            if waiting is not None:
                self.queue.nominator.nominate(waiting.pod, node)
                self._out.append(ReportNomination(waiting.pod, node))
            self.queue.recheck(uid, Trigger.PREEMPTION_STARTED)

    def _look_again(self) -> None:
        """Try pods again for which no other had to go."""
        for queued in self.reclaims.take_again():
            held = self.turns.hold_of(queued.uid)
            if held is not None:
                self._reclaim_for_held(queued, held[0])
            else:
                self.queue.recheck(queued.uid, Trigger.RECLAIM_RETRIED)

    def _place(self, queued: QueuedPod, decision: Decision, node: str, started_at: float) -> None:
        """Hold the node, so that the next decision sees the pod there; bind it once approved."""
        info = self.cache.node_info(node)
        if info is None or info.node is None:  # since an extender was asked
            text = f"node `{node}` is gone"
            rejection = Rejection(text, is_error=True, reason=failure("BackingOff"))
            self._fail(queued, rejection, decision.revision, started_at)
            return
        try:
            # Assumed before policies are asked to approve: what waits in permit keeps its capacity,
            # so that a group cannot be overtaken member by member.
            placement = self.attempts.hold(queued, decision, node, started_at)
        except AlreadyAssumed:
            self.queue.done(queued.uid)
            return
        if isinstance(placement, Rejection):
            # Not an event: no pod was rejected for the capacity while it was held.
            self._fail(queued, placement, decision.revision, started_at)
            return
        # The nomination has served its purpose.
        self.queue.nominator.remove(queued.uid, placed_on=node)
        try:
            self.permits.ask([placement])
        except BaseException:
            self.attempts.release(placement)
            raise

    def _start_preemption(self, pod: Pod, preemption: Preemption, revision: str) -> None:
        """Have the victims evicted; until that has ended, *pod* is not tried.

        If every victim is terminating already there is nothing to do but to wait for them, which
        is the queue's business.
        """
        if pod.uid in self.preemptions:
            return
        self._metrics.preemption_victims.observe(len(preemption.victims))
        self._metrics.preemption_violations.labels("pod").inc(preemption.violations)
        victims = tuple(victim for victim in preemption.victims if not victim.is_terminating)
        if not victims:
            return
        # The gate is closed before `Evict` is out: events that come while victims go must not have
        # the pod tried on a node that is not free yet.
        nominator = self.queue.nominator
        self.preemptions.begin(pod.uid, preemption.node, [victim.uid for victim in victims])
        self._out.append(Evict(pod, preemption, victims, pod.scheduler_name, revision))
        for other in nominator.pods_on(preemption.node):
            if other.priority < pod.priority:
                # It will not fit any more: the sooner it knows, the sooner it finds another node.
                nominator.nominate(other, "")
                self._out.append(ReportNomination(other, ""))
                self.queue.recheck(other.uid, Trigger.NOMINATION_CLEARED)
            else:
                self.queue.recheck(other.uid, Trigger.PREEMPTION_STARTED)

    def _fail(
        self, queued: QueuedPod, rejection: Rejection, revision: str, started_at: float
    ) -> None:
        profile = queued.pod.scheduler_name
        self.attempts.fail(
            queued, rejection, profile=profile, revision=revision, started_at=started_at
        )


def _rejection(decision: Decision) -> Rejection:
    if decision.is_error:
        return Rejection(
            decision.message(),
            is_error=True,
            rejectors=decision.failed_objects,
            reason=decision.reason,
        )
    return Rejection(
        decision.message(),
        is_error=False,
        rejectors=decision.diagnosis.rejectors,
        nominated_node=decision.nominated_node,
        reason=decision.reason,
    )


def decided(decision: Generator[Question, Reply, list[Instruction]]) -> list[Instruction]:
    """The end of a decision of `Kernel.decide` that asks no extender."""
    try:
        question = next(decision)
    except StopIteration as end:
        instructions: list[Instruction] = end.value
        return instructions
    raise AssertionError(f"an extender would have to be asked: {question}")
