"""How the kernel decides about one pod: whether to try it, on which node, and what that cost.

Owns what a pod tried alone and a pod tried with its group have in common. What follows from a
decision is the kernel's, and `group_attempts`'.
"""

from collections.abc import Generator

from engine.core.kernel.events import Reply
from engine.core.kernel.instructions import PodAssumed, ReportDecision, ReportDeleting
from engine.core.kernel.shared import Shared
from engine.core.model.pod import Pod
from engine.core.queueing.queued_pod import QueuedPod
from engine.core.queueing.scheduling_queue import SchedulingQueue
from engine.core.queueing.throttle import Throttle, Work
from engine.core.queueing.transitions import Trigger
from engine.core.scheduling.decision import Decision, Explanation
from engine.core.scheduling.extenders import Answer, Question
from engine.core.scheduling.scheduling_cycle import Scheduler


class Decisions:
    """Decides about pods that were popped.

    Args:
        queue: Where those go back to that are not tried.
        throttle: Says which must not be tried for now; charged with what a decision took.
    """

    def __init__(self, shared: Shared, queue: SchedulingQueue, throttle: Throttle) -> None:
        self._cache, self._time, self._out = shared.cache, shared.time, shared.out
        self._queue = queue
        self._throttle = throttle

    def choose(
        self, pod: Pod, scheduler: Scheduler, answers: list[Answer], *, is_member: bool = False
    ) -> Generator[Question, Reply, tuple[Decision, float]]:
        """The decision about *pod*, and how many seconds of it were waiting for extenders.

        *answers* takes theirs. *is_member*: it is tried with others of its group, and what
        post-filters can do is not asked for it alone. Until it ends the snapshot stays as it was,
        whatever happens to the cache meanwhile.
        """
        waited = 0.0
        with self._cache.frozen() as snapshot:
            steps = scheduler.steps(
                pod, snapshot, self._queue.nominator, has_post_filters=not is_member
            )
            try:
                question = next(steps)
                while True:
                    asked_at = self._time.monotonic()
                    # What others are to do about events meanwhile is not part of this decision.
                    so_far = self._out.copy()
                    self._out.clear()
                    try:
                        reply = yield question
                    finally:  # asking may fail, and the caller may give up
                        # What an event said meanwhile of a pod that was held is out already.
                        self._out[:0] = [
                            one
                            for one in so_far
                            if not isinstance(one, PodAssumed) or self._cache.is_assumed(one.uid)
                        ]
                    self._time.enter(reply.at)
                    waited += reply.at - asked_at
                    answers.append(reply.answer)
                    question = steps.send(reply.answer)
            except StopIteration as end:
                explanation: Explanation = end.value
                return explanation.decision, waited

    def choose_for_member(
        self, queued: QueuedPod, scheduler: Scheduler, answers: list[Answer]
    ) -> Generator[Question, Reply, Decision]:
        """The decision about a pod of a group, accounted for."""
        started_at = self._time.monotonic()
        decision, waited = yield from self.choose(queued.pod, scheduler, answers, is_member=True)
        self.account(queued.pod, decision, answers, started_at, waited, is_member=True)
        return decision

    def is_to_be_tried(self, queued: QueuedPod, scheduler: Scheduler) -> bool:
        """False if the pod is placed already, unwanted or throttled; it is put away."""
        pod = queued.pod
        if self._cache.get_pod(pod.uid) is not None:
            # It was not ours for a while, and is still being bound from before that. The watch
            # will end its stay here, unless that fails.
            self._queue.requeue(queued)
            return False
        if not self.wants_node(queued, scheduler):
            return False
        if self._throttle.why_throttled(Work.ATTEMPT, pod) is not None:
            self._queue.requeue_untried(queued, Trigger.THROTTLED)
            return False
        return True

    def wants_node(self, queued: QueuedPod, scheduler: Scheduler) -> bool:
        """False if the pod is gone, was placed by another program, or is being deleted by now."""
        pod = queued.pod
        if pod.uid not in self._queue:
            self._queue.done(pod.uid)
            return False
        if pod.is_terminating:
            self._queue.skip(pod.uid)
            self._out.append(ReportDeleting(pod, scheduler.bundle.revision))
            return False
        return True

    def account(
        self,
        pod: Pod,
        decision: Decision,
        answers: list[Answer],
        started_at: float,
        waited: float,
        *,
        is_member: bool = False,
    ) -> None:
        """Report the decision, and charge the pod's policies with the time that they lost."""
        seconds = self._time.monotonic() - started_at
        own_seconds = seconds - waited
        # What is not the policies' fault must not throttle them, nor cause a fallback.
        failures = decision.policy_failures
        lost = self._throttle.charge(Work.ATTEMPT, pod, failures, own_seconds)
        if not lost and not self._throttle.charge_large(pod, own_seconds):
            self._throttle.succeeded(Work.ATTEMPT, pod)
        self._out.append(
            ReportDecision(
                pod,
                decision,
                answers,
                seconds,
                own_seconds,
                failures,
                lost,
                is_member,
                started_at,
            )
        )
