"""How a running scheduler compares a candidate with the policies in force, as its stages want it.

Owns which counter a pod of a canary, or of its control sample, is counted in. What a shadow finds
is counted by the shadow.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

from engine.core.kernel.events import CanaryChanged, Event
from engine.core.kernel.instructions import (
    Instruction,
    ReportBound,
    ReportDecision,
    ReportFailure,
    ReportGate,
    ReportHookFailure,
    ReportWaiting,
)
from engine.core.kernel.kernel import Kernel
from engine.core.kernel.scheduler_selector import Canary
from engine.core.model.pod import Pod
from engine.lib.clock import Clock
from engine.policy.rollout_config import CanaryStage, ShadowStage
from engine.rollout.arms import CANARY, CONTROL, ArmCounter, Arms, LabelsOf, owner_of
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.trial import LoadedRevision

#: The share of a step's duration for which a pod may wait for the others of its group.
GROUP_PATIENCE: Final = 0.25


class Comparing(Protocol):
    """What the stages of a candidate ask of a running scheduler; one stage at a time."""

    def begin_shadow(
        self, candidate: LoadedRevision, base: LoadedRevision, stage: ShadowStage
    ) -> Callable[[], ShadowMeasures]:
        """Let *candidate* decide beside *base*; returns what gives the counts so far."""
        ...

    def begin_canary(
        self,
        candidate: LoadedRevision,
        control: LoadedRevision | None,
        stage: CanaryStage,
        share: float,
    ) -> tuple[ArmMeasures, ArmMeasures]:
        """Let *candidate* decide a share of the pods; returns the measures of them and of as many
        others. It may follow another stage of the same candidate, which is over then.

        *control* has the policies in force, and decides those others; None: what is in force does.
        """
        ...

    def end(self) -> None:
        """Let the policies in force decide everything, alone."""
        ...


class NoComparing:
    """For a process that decides nothing: every count stays at 0."""

    def begin_shadow(
        self, candidate: LoadedRevision, base: LoadedRevision, stage: ShadowStage
    ) -> Callable[[], ShadowMeasures]:
        """Count nothing."""
        return ShadowMeasures

    def begin_canary(
        self,
        candidate: LoadedRevision,
        control: LoadedRevision | None,
        stage: CanaryStage,
        share: float,
    ) -> tuple[ArmMeasures, ArmMeasures]:
        """Count nothing."""
        return ArmMeasures(), ArmMeasures()

    def end(self) -> None:
        """Do nothing."""


class Shadow(Protocol):
    """A candidate that decides beside the policies in force."""

    @property
    def measures(self) -> ShadowMeasures:
        """What was counted since `begin`."""
        ...

    def begin(self, candidate: LoadedRevision, base: LoadedRevision, cores: float) -> None:
        """Compare from now on, with so large a share of a core."""
        ...

    def end(self) -> None:
        """Compare no more."""
        ...


class LiveComparing:
    """The stages of a candidate in the scheduler of *kernel*.

    Args:
        kernel: Decides.
        report: Passes an event to it, and has its instructions carried out.
        shadow: Compares.
        on_candidate: Called with the candidate that is compared from now on; None: none is.
        clock: Measures waits.
        was_failing: Whether the policies in force failed the pod with this uid when they decided
            it last.
    """

    def __init__(
        self,
        kernel: Kernel,
        report: Callable[[Event], None],
        shadow: Shadow,
        on_candidate: Callable[[LoadedRevision | None], None],
        clock: Clock,
        was_failing: Callable[[str], bool] = lambda _uid: False,
    ) -> None:
        self._was_failing = was_failing
        self._kernel = kernel
        self._report = report
        self._shadow = shadow
        self._on_candidate = on_candidate
        self._clock = clock
        self._arms: Arms | None = None
        self._counters: dict[str, ArmCounter] = {}
        # The uids of the pods that were pending when the canary, or a step of it, began.
        self._pending: frozenset[str] = frozenset()
        self._patience = 0.0
        self._is_shadowed = False

    def begin_shadow(
        self, candidate: LoadedRevision, base: LoadedRevision, stage: ShadowStage
    ) -> Callable[[], ShadowMeasures]:
        """As `Comparing.begin_shadow`."""
        self._on_candidate(candidate)
        self._shadow.begin(candidate, base, stage.cores)
        self._is_shadowed = True
        return lambda: self._shadow.measures

    def begin_canary(
        self,
        candidate: LoadedRevision,
        control: LoadedRevision | None,
        stage: CanaryStage,
        share: float,
    ) -> tuple[ArmMeasures, ArmMeasures]:
        """As `Comparing.begin_canary`."""
        self._end_shadow()
        self._on_candidate(candidate)
        if self._arms is None:
            self._pending = frozenset()
        self._pending |= self._pending_pods()
        arms = self._arms = Arms(candidate.bundle.revision, share, stage, self._labels_of())
        self._counters = {CANARY: ArmCounter(), CONTROL: ArmCounter()}
        longest = max((s.duration for s in stage.steps if s.share == share), default=timedelta())
        self._patience = longest.total_seconds() * GROUP_PATIENCE
        candidate.scheduler.keeps_choices = True
        canary = Canary(candidate.scheduler, arms.has)
        if control is not None:
            control.scheduler.keeps_choices = True
            canary = Canary(candidate.scheduler, arms.has, control.scheduler, arms.has_control)
        self._report(CanaryChanged(canary))
        return self._counters[CANARY].measures, self._counters[CONTROL].measures

    def end(self) -> None:
        """As `Comparing.end`."""
        self._end_shadow()
        if self._arms is not None:
            self._arms = None
            # Not if another revision came into force, which ends it by itself.
            if self._kernel.schedulers.canary is not None:
                self._report(CanaryChanged(None))
        self._on_candidate(None)

    def _end_shadow(self) -> None:
        if self._is_shadowed:
            self._is_shadowed = False
            self._shadow.end()

    def handled(self, instructions: Sequence[Instruction]) -> None:
        """Count what is done about the pods of both arms."""
        if self._arms is None:
            return
        for counter in self._counters.values():
            counter.end_waits(self._clock.monotonic(), self._is_pending)
        for one in instructions:
            match one:
                case ReportDecision(pod=pod) if self._is_left_alone(pod):
                    owner = owner_of(pod, self._kernel.schedulers.group_of(pod))
                    self._counters[CANARY].held(owner)
                    self._counters[CANARY].stays(owner)
                case ReportDecision(pod=pod, decision=decision):
                    if (found := self._counter_of(pod)) is not None:
                        counter, owner = found
                        failed, eviction = decision.is_policy_failure, decision.eviction
                        # Those in force fail it, too: it says nothing about either of them.
                        failed = failed and not self._was_failing(pod.uid)
                        victims = 0 if eviction is None else len(eviction.victims)
                        counter.decided(owner, one.own_seconds, failed=failed, victims=victims)
                case ReportHookFailure(pod=pod):
                    if (found := self._counter_of(pod)) is not None and not _is_of_group(one):
                        counter, owner = found
                        counter.held(owner, failed=not self._was_failing(pod.uid))
                case ReportGate(pod=pod, has_failed=False):
                    if (found := self._new_of(pod)) is not None:
                        counter, owner = found
                        counter.held(owner)
                        self._waits(pod, counter, owner)
                case ReportFailure(pod=pod, rejection=rejection):
                    is_meant = rejection.is_reported and not rejection.is_error
                    if is_meant and (found := self._new_of(pod)) is not None:
                        counter, owner = found
                        counter.stays(owner)
                case ReportWaiting(pod=pod):
                    if (found := self._new_of(pod)) is not None:
                        self._waits(pod, *found)
                case ReportBound(placement=placement):
                    first = placement.queued.initial_attempt_at
                    found = self._new_of(placement.pod)
                    if found is not None and first is not None:
                        counter, owner = found
                        counter.bound(owner, self._clock.monotonic() - first)

    def is_candidates(self, made: ReportDecision | ReportHookFailure) -> bool:
        """True if a candidate has *made* a decision, or failed, and not the policies in force."""
        is_canary = self._kernel.schedulers.is_canary(made.pod)
        return is_canary and not (isinstance(made, ReportHookFailure) and _is_of_group(made))

    def _waits(self, pod: Pod, counter: ArmCounter, owner: str) -> None:
        """Count that *pod* is kept waiting; one of a group only if it is for long.

        The pods of a group arrive one after the other, and those that were first wait for the last
        whatever decides.
        """
        if self._kernel.schedulers.group_of(pod):
            counter.waits(pod.uid, owner, self._clock.monotonic() + self._patience)
        else:
            counter.stays(owner)

    def _is_pending(self, uid: str) -> bool:
        return uid in self._kernel.queue or uid in self._kernel.permits

    def _is_left_alone(self, pod: Pod) -> bool:
        """True if *pod* is meant for the canary, and the candidate has no profile for it.

        Those in force decide it, and the candidate would not.
        """
        assert self._arms is not None
        schedulers = self._kernel.schedulers
        return self._arms.has(pod, schedulers.group_of(pod)) and not schedulers.is_canary(pod)

    def _counter_of(self, pod: Pod) -> tuple[ArmCounter, str] | None:
        """The counter of *pod*, and its owner; None if the pod is in neither arm."""
        assert self._arms is not None
        if self._is_left_alone(pod):
            return None
        group = self._kernel.schedulers.group_of(pod)
        counter = self._counters.get(self._arms.of(pod, group))
        return None if counter is None else (counter, owner_of(pod, group))

    def _new_of(self, pod: Pod) -> tuple[ArmCounter, str] | None:
        """The same for a pod that was not pending before.

        Others are not newly pending, and have waited for a node while the candidate decided none.
        Of those, only the pods of the canary are tried again when it begins.
        """
        return None if pod.uid in self._pending else self._counter_of(pod)

    def _pending_pods(self) -> frozenset[str]:
        """Pods that were rejected before, that are at a gate, or that wait to be approved."""
        kernel = self._kernel
        waiting = kernel.queue.waiting_pods()
        rejected = {one.uid for one in waiting if one.attempts or one.gated_by is not None}
        return frozenset(rejected | {queued.uid for queued, _ in kernel.permits.waiting()})

    def _labels_of(self) -> LabelsOf:
        objects = self._kernel.cache.objects

        def labels_of(namespace: str) -> dict[str, str]:
            found = objects.get("namespaces", namespace)
            return {} if found is None else dict(found.metadata.labels)

        return labels_of


def _is_of_group(made: ReportHookFailure) -> bool:
    """True if it was asked for a pod's group, which the policies in force are for every pod."""
    return all(failure.hook == "group_of" for failure in made.failures)
