"""What is said of an edit before it is written: the problems it would be rejected for, or warnings.

Owns the order of one examination, its time, and what becomes of one that does not end in it. The
stages are those of a reload (`preparing`, `trial`, `losses`); nothing of the roll-out changes, and
nothing is watched for an edit that is not there yet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine.core.model.objects import ConfigMap
from engine.io.informers import resources_read
from engine.lib.background import cancelled
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem, SandboxDied
from engine.rollout.control import AT_ONCE, PAUSED, RolloutControl, read_control
from engine.rollout.inbox import CandidateInbox
from engine.rollout.judge import TakenAway, judge_losses
from engine.rollout.last_resort import LastResort
from engine.rollout.losses import count_losses
from engine.rollout.preparing import INTERNAL, Preparing, faults_reject
from engine.rollout.reports import warnings_of
from engine.rollout.saved_policies import SavedPolicies
from engine.rollout.sources import NO_FILES, ConfigMapSource, Offer, PolicySource, offer_of
from engine.rollout.staging import in_stages
from engine.rollout.trial import CandidateStages, LoadedRevision, Rejected, World

log = structlog.get_logger(component="admission")

#: Edits that wait for their turn, the one that is examined included; they are examined one by one.
MOST_WAITING: Final = 8
_ENDED: Final = "the reload examines it, and what is in force stays if it fails"
_STANDS_BY: Final = (
    "this was checked by a replica that stands by: whether this revision was rolled back or "
    "refused before, the leader alone knows"
)
_GONE: Final = (
    "the last good policies stay in force without this ConfigMap, also after a restart, until it "
    "is written again"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A write of the ConfigMap *namespace*/*name*.

    Attributes:
        namespace, name: Which.
        before: What it holds; None if it is created.
        after: What it is to hold; None if it is deleted.
    """

    namespace: str
    name: str
    before: ConfigMap | None
    after: ConfigMap | None


@dataclass(frozen=True, slots=True)
class Opinion:
    """What is said of a change.

    Attributes:
        problems: Why it must not be written; none: it may be.
        warnings: What to know of it.
        stage: Which stage of a reload has found the problems; "" if none has.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    stage: str = ""


NOTHING: Final = Opinion()


@dataclass(slots=True)
class _Examination:
    """An edit that is examined.

    Attributes:
        offer: What the source would offer.
        ends_at: When the answer is due, by the loop's clock.
        under_way: What of it is under way.
        warnings: What was found to know of it.
    """

    offer: Offer
    ends_at: float
    under_way: str = "other edits"
    warnings: list[Problem] = field(default_factory=list)

    @property
    def is_late(self) -> bool:
        return asyncio.get_running_loop().time() >= self.ends_at

    def warn(self, text: str, hint: str = "") -> None:
        self.warnings.append(_warning(text, hint))

    def opinion(self) -> Opinion:
        return Opinion(warnings=tuple(self.warnings))

    def late(self) -> Opinion:
        text = f"not checked in time ({self.under_way}): {_ENDED}"
        return Opinion(warnings=(*self.warnings, _warning(text)))


class Admission:
    """Judges changes of the ConfigMaps that a roll-out reads.

    Args:
        source: Where policies come from; of others than a ConfigMap there is nothing to judge.
        stages, saved, last_resort, control, world: Those of the roll-out.
        active: What is in force.
        is_leader: Whether this process knows what becomes of edits.
        sleep: Waits.
    """

    def __init__(
        self,
        source: PolicySource,
        stages: CandidateStages,
        saved: SavedPolicies,
        last_resort: LastResort,
        control: RolloutControl,
        world: World,
        *,
        active: Callable[[], LoadedRevision],
        is_leader: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._source = source
        self._stages = stages
        self._saved = saved
        self._last_resort = last_resort
        self._control = control
        self._world = world
        self._active = active
        self._is_leader = is_leader
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Opinion]] = set()

    async def judge(self, change: Change, seconds: float) -> Opinion:
        """What is said of *change*, within *seconds*."""
        key = f"{change.namespace}/{change.name}"
        if key == self._control.name:
            return self._judge_control(key, change.after)
        source = self._source
        if not isinstance(source, ConfigMapSource) or key != source.key:
            return NOTHING
        if change.after is None:
            return Opinion(warnings=(_warning(_GONE),))
        offer = offer_of(change.after, change.namespace, change.name)
        if change.before is not None and _means_the_same(
            offer_of(change.before, change.namespace, change.name), offer
        ):
            return NOTHING  # the kill switch and labels must not wait for a text to be corrected
        return await self._examined(offer, seconds)

    async def stop(self) -> None:
        """End what is under way."""
        await cancelled(self._under_way)

    def _judge_control(self, name: str, after: ConfigMap | None) -> Opinion:
        if after is None:
            return NOTHING
        problems = read_control(after, name, self._control.current.mode).problems
        return Opinion(problems, stage="check" if problems else "")

    # --- policies ------------------------------------------------------------------------------

    async def _examined(self, offer: Offer, seconds: float) -> Opinion:
        loop = asyncio.get_running_loop()
        edit = _Examination(offer, loop.time() + seconds)
        if len(self._under_way) >= MOST_WAITING:
            return edit.late()
        task = asyncio.ensure_future(self._in_turn(edit))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        # One that is late goes on to a place where it can end: threads cannot be cancelled, and
        # the next edit has to wait for it.
        done, _ = await asyncio.wait({task}, timeout=seconds)
        return task.result() if done else edit.late()

    async def _in_turn(self, edit: _Examination) -> Opinion:
        """Examine *edit* once those before it have been."""
        async with self._turn:
            if edit.is_late:
                return edit.late()
            try:
                return await self._examine(edit, self._active())
            except Rejected as rejection:
                has_died = isinstance(rejection.__cause__, SandboxDied)
                # Perhaps the machine's doing: the same text may pass later.
                if rejection.stage == INTERNAL or has_died:
                    edit.warn(f"not checked to the end: {rejection.note()}")
                    return edit.opinion()
                return Opinion(tuple(rejection.problems), stage=rejection.stage)
            except TimeoutError:
                return edit.late()

    async def _examine(self, edit: _Examination, active: LoadedRevision) -> Opinion:
        """Raises `Rejected`, and `TimeoutError` for what could be interrupted and was late."""
        offer, files = edit.offer, edit.offer.files or {}
        inbox = CandidateInbox(self._source, self._sleep)
        inbox.add(offer)
        prepare = Preparing(
            self._source.name,
            self._stages,
            self._saved,
            self._last_resort,
            inbox,
            self._control,
            self._sleep,
        )
        # 1. The text.
        edit.under_way = "its static checks"
        with faults_reject():
            bundle = await prepare.build(offer)
            if bundle.revision == active.bundle.revision:
                return NOTHING
            if not files:
                edit.warn(NO_FILES)
            if not self._is_leader():
                edit.warn(_STANDS_BY)
            elif not inbox.means(bundle.revision):
                prepare.refuse_rolled_back(bundle.revision)
                prepare.refuse_refused(bundle.revision, active)
            if edit.is_late:
                return edit.late()
            edit.under_way = "its tests"
            await self._stages.test(bundle, files)
        # 2. What it does here.
        async with asyncio.timeout_at(edit.ends_at):
            with faults_reject():
                await self._try(edit, bundle, active, inbox)
        return edit.opinion()

    async def _try(
        self, edit: _Examination, bundle: Bundle, active: LoadedRevision, inbox: CandidateInbox
    ) -> None:
        edit.under_way = "loading it"
        candidate = await self._stages.load(bundle, edit.offer.files or {})
        try:
            await candidate.follow(active)
            known = resources_read(active.bundle)
            unknown = [one.kind for one in resources_read(bundle) if one not in known]
            if unknown:
                read = ", ".join(sorted(unknown))
                edit.warn(f"not tried on the cluster: {read}, which it reads, is not watched yet")
            else:
                edit.under_way = "its trial on the cluster"
                await self._stages.try_out(candidate, self._world, active)
                edit.under_way = "what it takes away"
                candidate.losses = await count_losses(self._stages, candidate, active, self._world)
        finally:
            closing = asyncio.ensure_future(asyncio.to_thread(candidate.close))
            await asyncio.shield(closing)
        edit.warnings = [*warnings_of(candidate), *edit.warnings]
        for text in self._course(candidate, active, inbox):
            edit.warn(text)

    def _course(
        self, candidate: LoadedRevision, active: LoadedRevision, inbox: CandidateInbox
    ) -> list[str]:
        """What happens to *candidate* before it is in force; nothing if it is at once."""
        control, revision = self._control.current, candidate.bundle.revision
        if inbox.is_stopped:
            return ["it waits: roll-outs are stopped by the annotation of this ConfigMap"]
        rollout = active.bundle.runtime.rollout
        is_at_once = control.promotes(revision) or control.mode == AT_ONCE
        if is_at_once or self._saved.knows(revision):
            return []
        said = ["it waits: the mode of roll-outs is `paused`"] if control.mode == PAUSED else []
        if not rollout.is_staged:
            return said
        taken = TakenAway(candidate.losses, inbox.means(revision))
        verdict = judge_losses(taken, rollout.gates)
        if verdict.outcome == "fail":
            how = inbox.how_to_mean(revision)
            return [f"a gate refuses it before its stages: {verdict.why}; if this is meant, {how}"]
        return [*said, f"it is rolled out in stages: {in_stages(rollout)}"]


def _means_the_same(before: Offer, after: Offer) -> bool:
    """True if the texts are the same, and so is what is said of what they take away."""
    return (before.files, before.problems, before.means) == (
        after.files,
        after.problems,
        after.means,
    )


def _warning(text: str, hint: str = "") -> Problem:
    return Problem("", 0, 0, text, hint, "warning")
