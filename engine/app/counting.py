"""Decisions and their failures as metrics, for the roll-out and for the live answers.

Owns what a decision counts as. Attempts and their outcomes are `engine.io.binding.outcomes`'.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from engine.app.environment import Environment
from engine.app.leadership import Leadership
from engine.app.policies import Policies
from engine.core.kernel import instructions as to_do
from engine.core.kernel.kernel import Kernel
from engine.surfaces.live.decision_record import DecisionRecord

log = structlog.get_logger(component="app")


class DecisionCounting:
    """Counts what was decided.

    Args:
        env, kernel, policies, leadership: See there.
    """

    def __init__(
        self, env: Environment, kernel: Kernel, policies: Policies, leadership: Leadership
    ) -> None:
        self._metrics = env.metrics
        self._kernel = kernel
        self._policies = policies
        self._leadership = leadership
        self.record = DecisionRecord()

    def carriers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """What counts each kind of instruction that reports a decision."""
        return {
            to_do.ReportDecision: self._count_decision,
            to_do.ReportFault: self._report_fault,
            to_do.ReportHookFailure: self._count_hook_failure,
        }

    def _count_decision(self, made: to_do.ReportDecision) -> None:
        decision, metrics, policies = made.decision, self._metrics, self._policies
        self.record.note(made.pod.uid, decision, self._kernel.time.monotonic())
        metrics.algorithm_seconds.observe(made.seconds)
        # A failed score costs nothing if the pod was placed all the same; a failed preemption does.
        failed = bool(made.failures) and decision.node is None
        if not policies.comparing.is_candidates(made):
            policies.rollout.counts.count(made.own_seconds, failed, made.lost, made.pod.uid)
        for failure in decision.policy_failures:
            metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if made.lost:
            labels = made.lost[0].policy, made.pod.scheduler_name
            metrics.lost_seconds.labels(*labels).inc(made.own_seconds)
        if decision.sought_victims:
            metrics.preemption_attempts.inc()

    def _count_hook_failure(self, made: to_do.ReportHookFailure) -> None:
        metrics, policies = self._metrics, self._policies
        for failure in made.failures:
            log.warning(
                "Policy failed outside of a decision; asking again later",
                pod=made.pod.key,
                extension_point=failure.hook,
                reason=str(failure),
            )
            metrics.policy_failures.labels(failure.policy, failure.hook, failure.kind).inc()
        if made.lost:
            labels = made.lost[0].policy, made.pod.scheduler_name
            metrics.lost_seconds.labels(*labels).inc(made.seconds)
        # Counted like a failed decision: keeping pods from being tried is no better than failing
        # them.
        if self._leadership.leading.is_set() and not policies.comparing.is_candidates(made):
            policies.rollout.counts.count(made.seconds, True, made.lost, made.pod.uid)

    def _report_fault(self, made: to_do.ReportFault) -> None:
        pod, error = made.pod, made.error
        log.error("Unexpected exception in a scheduling cycle", pod=pod.key, exc_info=error)
        self._metrics.loop_errors.labels("decide").inc()
