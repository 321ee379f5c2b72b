"""Takes a candidate through the stages between its trial and its coming into force.

Owns their order, their time and what ends them. What is measured is counted by `comparing`, and
what follows from it is said by `judge`.

    shadow --pass--> canary 1 % --pass--> canary 5 % --pass--> (in force)
       any --fail, abort--> rejected
       any --newer edit, other policies in force--> superseded
       any --promote, mode at-once, was in force before--> (in force)
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from engine.lib.clock import Clock
from engine.lib.durations import go_duration
from engine.policy.errors import Problem
from engine.policy.rollout_config import CanaryStep, RolloutConfig
from engine.rollout.comparing import Comparing
from engine.rollout.control import AT_ONCE, PAUSED, RolloutControl
from engine.rollout.inbox import CandidateInbox
from engine.rollout.judge import MEANT_GATES, TakenAway, judge_canary, judge_losses, judge_shadow
from engine.rollout.last_good import Progress
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.reports import Reports
from engine.rollout.status import (
    CANARY,
    RUNNING,
    SHADOW,
    RolloutStatus,
    StageStatus,
    Verdict,
)
from engine.rollout.trial import LoadedRevision, Rejected

log = structlog.get_logger(component="rollout")

ABORT: Final = "abort"
#: The stages whose gates compare a text with what is in force.
GATED_STAGES: Final = frozenset({SHADOW, CANARY})
#: Seconds between two looks at what was measured.
TICK: Final = 0.5
# A process that was stopped for a while has measured nothing meanwhile.
_LONGEST_TICK: Final = 5.0


class Superseded(Exception):
    """Something newer takes the candidate's place; the text says what."""


class _Promoted(Exception):
    """The candidate comes into force now; the text says why."""


class _Interrupted(Exception):
    """The stage has to begin anew once it may go on."""


def stages_of(config: RolloutConfig) -> tuple[StageStatus, ...]:
    """The stages that an edit goes through, in order."""
    steps = () if config.canary is None else config.canary.steps
    canary = tuple(StageStatus(CANARY, step.share) for step in steps)
    return canary if config.shadow is None else (StageStatus(SHADOW), *canary)


def in_stages(config: RolloutConfig) -> str:
    """The stages that an edit goes through, and how long each takes at least."""
    seconds = [_duration(config, at) for at, _ in enumerate(stages_of(config))]
    stages = zip(stages_of(config), seconds, strict=True)
    listed = ", ".join(f"{_named(stage)} for {go_duration(each)}" for stage, each in stages)
    return f"{listed}: {go_duration(sum(seconds))} at least"


@dataclass(frozen=True)
class Twins:
    """What decides control samples.

    Attributes:
        load: Loads the policies in force (the second one) again, to decide the control sample of a
            candidate (the first one), beginning with what that one knows. Raises `Rejected`.
        close: Ends the sandbox of what was loaded.
    """

    load: Callable[[LoadedRevision, LoadedRevision], Awaitable[LoadedRevision]]
    close: Callable[[LoadedRevision], None]


class Staging:
    """The stages of one candidate at a time.

    Args:
        comparing: Measures.
        control: What those want who may skip stages.
        inbox: A newer one supersedes the candidate; says whether all stages are stopped.
        cannot_measure_reason: Why this process cannot measure now; "" if it can.
        reports: Reports what happens in a stage, and what it comes to.
        twins: What decides control samples.
        clock, sleep: Time.
    """

    def __init__(
        self,
        *,
        comparing: Comparing,
        control: RolloutControl,
        inbox: CandidateInbox,
        cannot_measure_reason: Callable[[], str],
        reports: Reports,
        twins: Twins,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._comparing = comparing
        self._control = control
        self._inbox = inbox
        self._why_not_here = cannot_measure_reason
        self._report = reports.staged
        self._on_verdict = reports.judged
        self._twins = twins
        self._twin: LoadedRevision | None = None
        self._clock = clock
        self._sleep = sleep
        self._status = RolloutStatus()
        self._is_known: Callable[[], bool] = bool
        self._shadow: Callable[[], ShadowMeasures] = ShadowMeasures
        self._arms = ArmMeasures(), ArmMeasures()

    @property
    def status(self) -> RolloutStatus:
        """How far the candidate is, or the last one came."""
        return self._status

    async def run(
        self,
        candidate: LoadedRevision,
        base: LoadedRevision,
        *,
        check: Callable[[], None],
        begun: Callable[[], Progress | None],
        save: Callable[[Progress], Awaitable[None]],
        is_known: Callable[[], bool] = bool,
    ) -> None:
        """Return when *candidate* may come into force.

        Args:
            candidate: Checked, tested and tried.
            base: What is in force, whose stages and gates count: no edit loosens its own.
            check: Raises `Superseded` or `Rejected` if the candidate is not wanted any more.
            begun: Which stage had been begun before a restart or a change of the leader.
            save: Saves that a stage is begun.
            is_known: Whether the candidate was in force before: one may go back to it at once,
                however bad what it is compared with is.

        Raises `Rejected` if a gate fails or it is aborted, and `Superseded`.
        """
        config = base.bundle.runtime.rollout
        stages = stages_of(config)
        self._is_known = is_known
        revisions = candidate.bundle.revision, base.bundle.revision
        self._status = RolloutStatus(*revisions, stages=stages, result=RUNNING)
        result = "failed"
        try:
            await self._until_allowed(candidate, check)
            at = _resumed(begun(), *revisions, len(stages))
            while at < len(stages):
                try:
                    await save(Progress(*revisions, at))
                    await self._pass(at, candidate, base, check)
                except _Interrupted:
                    self._comparing.end()
                    await self._until_allowed(candidate, check)
                    continue
                at += 1
            result = "promoted"
            self._update(stage=None)
        except _Promoted as why:
            result = "promoted"
            self._report("promoted", f"revision {revisions[0]} skips its other stages: {why}")
        except Superseded as why:
            result = "superseded"
            self._report("superseded", f"revision {revisions[0]}: {why}")
            raise
        except Rejected as rejection:
            result = "aborted" if rejection.stage == ABORT else "failed"
            raise
        finally:
            self._comparing.end()
            twin, self._twin = self._twin, None
            if twin is not None:
                self._twins.close(twin)
            self._update(result=result, paused="")
            if not stages:
                self._status = RolloutStatus()

    # --- one stage ---------------------------------------------------------------------------

    async def _pass(
        self,
        at: int,
        candidate: LoadedRevision,
        base: LoadedRevision,
        check: Callable[[], None],
    ) -> None:
        """Return when the stage passes."""
        config, revision = base.bundle.runtime.rollout, candidate.bundle.revision
        stage = self._status.stages[at]
        named = _named(stage)
        taken = self._taken_away(candidate)
        self._fail(judge_losses(taken, config.gates), stage, revision, 0.0)
        if stage.name == CANARY and self._twin is None:
            self._twin = await self._load_twin(candidate, base)
            self._look(candidate, check)
        self._begin(at, stage, candidate, base)
        self._report(stage.name, f"revision {revision}: {named} begins")
        elapsed, is_told = 0.0, False
        before = self._clock.monotonic()
        while True:
            await self._sleep(TICK)
            self._look(candidate, check)
            now = self._clock.monotonic()
            why = self._standstill()
            if not why:
                elapsed += min(max(now - before, 0.0), _LONGEST_TICK)
            before = now
            verdict = self._judge(config, at, elapsed, self._taken_away(candidate))
            self._update(elapsed=elapsed, verdict=verdict, paused=why)
            text = f"{named}: {verdict.why}"
            self._fail(verdict, stage, revision, elapsed)
            if why:
                continue
            if verdict.outcome == "pass":
                log.info("Stage passed", revision=revision, stage=named, reason=verdict.why)
                self._on_verdict(stage.name, "pass", elapsed)
                return
            if elapsed >= _duration(config, at) and not is_told:
                is_told = True
                self._on_verdict(stage.name, "inconclusive", elapsed)
                self._report("inconclusive", f"revision {revision}: {text}")

    def _taken_away(self, candidate: LoadedRevision) -> TakenAway:
        return TakenAway(candidate.losses, self._inbox.means(candidate.bundle.revision))

    def _fail(self, verdict: Verdict, stage: StageStatus, revision: str, elapsed: float) -> None:
        """Raise `Rejected` if *verdict* is that the stage fails."""
        if verdict.outcome != "fail":
            return
        self._update(stage=self._status.stages.index(stage), verdict=verdict)
        self._on_verdict(stage.name, "fail", elapsed)
        failed = {one.name for one in verdict.gates if one.verdict == "fail"}
        how = self._inbox.how_to_mean(revision) if failed <= MEANT_GATES else ""
        hint = f"if this is meant, {how}" if how else ""
        problem = Problem("", 0, 0, f"{_named(stage)}: {verdict.why}", hint)
        raise Rejected(stage.name, [problem], revision)

    def _begin(
        self, at: int, stage: StageStatus, candidate: LoadedRevision, base: LoadedRevision
    ) -> None:
        config = base.bundle.runtime.rollout
        if stage.name == SHADOW:
            assert config.shadow is not None
            self._shadow = self._comparing.begin_shadow(candidate, base, config.shadow)
        else:
            assert config.canary is not None
            self._arms = self._comparing.begin_canary(
                candidate, self._twin, config.canary, stage.share
            )
            self._update(canary=self._arms[0], control=self._arms[1])
        self._update(stage=at, since=self._clock.now(), elapsed=0.0, verdict=None)

    async def _load_twin(
        self, candidate: LoadedRevision, base: LoadedRevision
    ) -> LoadedRevision | None:
        """What decides the control sample; None, for what is in force, if it does not load."""
        try:
            return await self._twins.load(candidate, base)
        except Rejected as rejection:
            log.warning(
                "The policies in force decide the control sample themselves",
                reason=rejection.note(),
            )
            return None

    def _judge(self, config: RolloutConfig, at: int, elapsed: float, taken: TakenAway) -> Verdict:
        if self._status.stages[at].name == SHADOW:
            assert config.shadow is not None
            measures = self._shadow()
            self._update(shadow=measures)
            return judge_shadow(measures, config.shadow, config.gates, elapsed, taken)
        return judge_canary(*self._arms, _step(config, at), config.gates, elapsed, taken)

    # --- what is wanted ----------------------------------------------------------------------

    async def _until_allowed(self, candidate: LoadedRevision, check: Callable[[], None]) -> None:
        """Return when stages may begin: here, and at all."""
        while True:
            try:
                self._look(candidate, check)
            except _Interrupted as why:
                self._update(paused=str(why))
                await self._sleep(TICK)
                continue
            why_paused = "" if self._is_known() else self._standstill()
            if not self._status.stages and why_paused:
                # Without a stage to stay in, it stays here.
                self._update(paused=why_paused)
                await self._sleep(TICK)
                continue
            self._update(paused="")
            return

    def _look(self, candidate: LoadedRevision, check: Callable[[], None]) -> None:
        """Raise what ends or interrupts the stages, if anything does."""
        revision = candidate.bundle.revision
        check()
        control = self._control.current
        if self._inbox.supersedes(candidate.files):
            raise Superseded("a newer edit takes its place")
        if control.aborts(revision):
            text = f"aborted by {control.written_by or 'its control'}"
            raise Rejected(ABORT, [Problem("", 0, 0, text)], revision)
        if self._inbox.is_stopped:
            raise _Interrupted("stopped by the annotation of the policies' ConfigMap")
        if not self._status.stages:
            return  # a standby follows at once, too
        if why := self._why_not_here():
            raise _Interrupted(why)
        if control.promotes(revision) or control.mode == AT_ONCE:
            raise _Promoted(control.written_by or "its control")
        if self._is_known():
            raise _Promoted("it was in force before")

    def _standstill(self) -> str:
        """Why time does not count; "" if it does."""
        if self._control.current.mode == PAUSED:
            return "paused by the mode"
        return ""

    def _update(self, **changes: object) -> None:
        self._status = msgspec.structs.replace(self._status, **changes)


def promoted(revision: str) -> str:
    """How *revision* is made to skip its stages, by those who may."""
    return f"`starsched rollout promote --revision {revision}`"


def _resumed(begun: Progress | None, candidate: str, base: str, count: int) -> int:
    """The stage to go on with: it begins anew, those before it have passed."""
    if begun is None or (begun.candidate, begun.base) != (candidate, base):
        return 0
    return begun.stage if 0 <= begun.stage < count else 0


def _step(config: RolloutConfig, at: int) -> CanaryStep:
    assert config.canary is not None
    return config.canary.steps[at - (config.shadow is not None)]


def _duration(config: RolloutConfig, at: int) -> float:
    if at == 0 and config.shadow is not None:
        return config.shadow.duration.total_seconds()
    if config.canary is None:
        return math.inf
    return _step(config, at).duration.total_seconds()


def _named(stage: StageStatus) -> str:
    return stage.name if stage.name == SHADOW else f"{stage.name} {stage.share:.0%}"
