"""Carries out what the kernel decides: bindings, evictions, and questions to extenders.

Owns the kernel's plugins that write, and which component carries out which kind of instruction.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from engine.app.environment import Environment
from engine.app.leadership import Leadership
from engine.app.reporting import Reporting
from engine.core.caching.cache import Cache
from engine.core.kernel import instructions as to_do
from engine.core.kernel.events import Event, WaitingPodPreempted
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.reclaims import Reclaimed
from engine.core.queueing.scheduling_queue import RetryTimes
from engine.core.scheduling.plugins.registry import make_plugins
from engine.explaining.reason_source import hook_source
from engine.explaining.reclaim_words import reclaim_text
from engine.io.binding.binder import Binder
from engine.io.binding.binding_cycle import BindingCycle
from engine.io.binding.claim_writer import DeviceClaimWriter
from engine.io.binding.eviction import Evictor
from engine.io.binding.preemptor import Preemptor
from engine.io.binding.volume_binder import VolumeBinder
from engine.io.extender_calls import ExtenderBinder, ExtenderCalls

#: A gate that holds for so long, in seconds, is reported: the pods of a group mostly wait for each
#: other only for a moment, which is not worth two requests for each of them.
GATE_REPORT_DELAY: Final = 5.0


def make_kernel(
    env: Environment, cache: Cache, reporting: Reporting, leadership: Leadership
) -> Kernel:
    """The kernel, with plugins that reserve and write more than bindings: volumes, devices."""
    settings, clock, metrics = env.settings, env.clock, env.metrics
    fenced = env.client.fenced(leadership.may_act)
    plugins = make_plugins(
        cache.objects,
        volumes=VolumeBinder(
            fenced,
            cache,
            clock=clock,
            stopwatch=metrics.volume_seconds.labels("bind"),
        ),
        claims=DeviceClaimWriter(
            fenced,
            cache,
            clock=clock,
            metrics=metrics,
            recorder=reporting.events,
            may_act=leadership.may_act,
        ),
        clock=clock,
    )
    return Kernel(
        cache,
        plugins,
        metrics=metrics,
        stopwatch=clock.monotonic,
        retries=RetryTimes(
            settings.initial_backoff,
            settings.max_backoff,
            settings.pops_early,
            settings.max_unschedulable,
        ),
    )


class Carrying:
    """Bindings, evictions and extenders, and the reports that go with them.

    Args:
        env, kernel, reporting, leadership: See there.
        report: Takes what came of an instruction, as an event.
    """

    def __init__(
        self,
        env: Environment,
        kernel: Kernel,
        reporting: Reporting,
        leadership: Leadership,
        report: Callable[[Event], None],
    ) -> None:
        self._kernel = kernel
        self._reporting = reporting
        self._leadership = leadership
        self._report = report
        clock, metrics, tracing = env.clock, env.metrics, env.tracing
        may_act = leadership.may_act
        # What decisions write must not leave after the lease, however long it waited in a queue.
        fenced = env.client.fenced(may_act)
        self.extenders = ExtenderCalls(
            metrics=metrics,
            clock=clock,
            on_answer=None if tracing is None else tracing.extender_answered,
            logs_attempts=env.settings.logs_attempts,
        )
        binder = Binder(fenced, clock=clock, metrics=metrics, may_act=may_act)
        self.bindings = BindingCycle(
            binder=ExtenderBinder(self.extenders, binder),
            reports=reporting.outcomes,
            report=report,
            metrics=metrics,
            clock=clock,
            limit=env.settings.bindings,
        )
        evictor = Evictor(
            fenced,
            events=reporting.events,
            clock=clock,
            is_going=self._is_going,
            send_back=self._send_back,
        )
        self.preemptor = Preemptor(
            evictor,
            status=reporting.status,
            report=report,
            metrics=metrics,
            clock=clock,
            is_wanted=kernel.queue.__contains__,
            given_back=self._given_back,
            may_act=may_act,
        )

    def is_busy(self) -> bool:
        """True while pods are to be decided, bound or made room for."""
        at_work = self.bindings.at_work + self.preemptor.in_flight
        return at_work > 0 or self._kernel.queue.counts()["active"] > 0

    def _given_back(self, evict: to_do.Evict) -> dict[str, str]:
        """Of the victims that queues give back, by uid: which to which, and by which rule."""
        one = self._kernel.reclaims.for_taker(evict.preemptor.key)
        if one is None:
            return {}
        rule = self._rule(one)
        givers = {victim.uid: one.giver_of(victim.key) for victim in evict.victims}
        texts = {
            u: reclaim_text(one, giver, rule) for u, giver in givers.items() if giver is not None
        }
        return {uid: text for uid, text in texts.items() if text}

    def _rule(self, one: Reclaimed) -> str:
        """`file:line` of the rule by which it happened; "" if the policies are others by now."""
        scheduler = self._kernel.scheduler
        bundle = None if scheduler is None else scheduler.bundle
        if bundle is None or one.policy not in bundle.policies:
            return ""
        return hook_source(bundle, bundle.policies[one.policy], "reclaim")

    def carriers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """What carries out each kind of instruction; a kind without an entry is only recorded."""
        reporting, outcomes = self._reporting, self._reporting.outcomes
        return {
            to_do.Bind: self._bind,
            to_do.Evict: self.preemptor.start,
            to_do.RunAction: self._run_action,
            to_do.ReportBound: outcomes.bound,
            to_do.ReportFailure: outcomes.failed,
            to_do.ReportWaiting: outcomes.waiting,
            to_do.ReportGroupReleased: outcomes.group_released,
            to_do.ReportPodGroup: reporting.group_status.report,
            to_do.ReportGate: self._report_gate,
            to_do.ReportHeld: self._report_held,
            to_do.ReportThrottled: self._report_throttled,
            to_do.ReportDeleting: outcomes.deleting,
            to_do.ReportNomination: outcomes.nominated,
            to_do.ForgetReports: outcomes.forget,
            to_do.RepeatReports: outcomes.repeat,
        }

    def _bind(self, instruction: to_do.Bind) -> None:
        self.bindings.start(instruction.placement)

    def _run_action(self, instruction: to_do.RunAction) -> None:
        self.bindings.run(instruction.action, instruction.pod)

    def _report_gate(self, instruction: to_do.ReportGate) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(GATE_REPORT_DELAY, self._report_lasting_gate, instruction)

    def _report_lasting_gate(self, instruction: to_do.ReportGate) -> None:
        """Report the gate if it still holds the pod back, for the reason that it has now."""
        pod = instruction.pod
        queued = self._kernel.queue.named(pod.key)
        if queued is None or (queued.uid, queued.gated_by) != (pod.uid, instruction.policy):
            return
        if self._leadership.leading.is_set():  # a standby leaves it to the leader
            reason = queued.gate_reason
            self._reporting.outcomes.gated(msgspec.structs.replace(instruction, reason=reason))

    def _report_held(self, instruction: to_do.ReportHeld) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(GATE_REPORT_DELAY, self._report_lasting_hold, instruction)

    def _report_lasting_hold(self, instruction: to_do.ReportHeld) -> None:
        """Report that its queue holds the pod, if it still does."""
        is_held = self._kernel.turns.hold_of(instruction.pod.uid) is not None
        if is_held and self._leadership.leading.is_set():
            self._reporting.outcomes.held(instruction)

    def _report_throttled(self, instruction: to_do.ReportThrottled) -> None:
        if self._leadership.leading.is_set():
            self._reporting.outcomes.throttled(instruction)

    def _send_back(self, uid: str) -> bool:
        """Send back the assumed pod with *uid*: its node is needed. False if it is too late."""
        if uid in self._kernel.permits:
            self._report(WaitingPodPreempted(uid))
            return True
        return self.bindings.cancel(uid)

    def _is_going(self, uid: str) -> bool:
        known = self._kernel.cache.get_pod(uid)
        return known is None or known.is_terminating
