"""The roll-out: which policies are in force, how others replace them, and when to roll back.

Owns the order of what happens to an offer and the tasks that it happens in. Which revisions there
are is `revisions`', how a candidate is examined `trial`'s, how it is compared with what is in force
`staging`'s, what the source offers `offers`', what is saved `saved_policies`', and what is reported
`reports`'. A candidate that fails anything changes nothing but what is reported.

    offered --check--> --test--> --load--> --trial--> --stages--> in force --probation--> last good
       any failure --> rejected (what is in force stays)
       in force --failures or latency out of bounds--> rolled back (the one before is in force)
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import structlog

from engine.io.binding.binder import yes
from engine.io.binding.event_recorder import Reference
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.saved_state import PATIENCE_SECONDS, WAIT, SavedStates, Unread
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.evaluator import Files
from engine.rollout.comparing import Comparing, NoComparing
from engine.rollout.control import AT_ONCE, Control, NoControl, RolloutControl
from engine.rollout.decision_counts import DecisionCounts
from engine.rollout.last_good import LastGood, Progress, Store, StoreError
from engine.rollout.last_resort import BUILTIN, WAITING, LastResort
from engine.rollout.losses import count_losses, newly_pending
from engine.rollout.measures import NO_LOSSES, PENDING, Loss, Losses
from engine.rollout.offers import Offers
from engine.rollout.reports import Reports, WriteEvent
from engine.rollout.revisions import Revisions
from engine.rollout.saved_policies import SAVE_TIMEOUT, SavedPolicies
from engine.rollout.sources import Offer, PolicySource
from engine.rollout.staging import ABORT, GATED_STAGES, Staging, Superseded, promoted
from engine.rollout.status import RolloutStatus
from engine.rollout.timeline import Timeline
from engine.rollout.trial import BuiltRevision, CandidateStages, LoadedRevision, Rejected, World
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="rollout")

_PROBATION_TICK: Final = 0.5
_PENDING_SECONDS: Final = 5.0
_START_AGAIN_SECONDS: Final = 5.0
_OFFER_AGAIN_SECONDS: Final = 10.0
_LONGEST_OFFER_PAUSE: Final = 300.0
#: Stages that fail for want of memory or of a live sandbox, too: the same text may pass later.
_PASSING_STAGES: Final = frozenset({"load", "internal"})

OnSwitch = Callable[[LoadedRevision, LoadedRevision | None], None]
"""(new, old): called between two scheduling cycles when *new* is to decide from now on."""


@contextlib.contextmanager
def _faults_reject() -> Iterator[None]:
    """Reject the candidate on an unexpected exception, which must end neither start nor `run`."""
    try:
        yield
    except (Rejected, Superseded):
        raise
    except Exception as error:
        log.exception("Unexpected exception while examining policies")
        problem = Problem("", 0, 0, f"internal error: {type(error).__name__}: {error}")
        raise Rejected("internal", [problem]) from error


class Rollout:
    """Keeps policies in force.

    Args:
        source: Where candidates come from.
        store: Where the last good policies are saved.
        stages: Takes candidates through their stages.
        world: What the trial decides on, and what has to be known before a switch.
        on_switch: Puts a loaded revision in force.
        write_event: Writes events; none are written while `is_active` is False.
        metrics, clock: Measure.
        comparing: Compares a candidate with what is in force; None: this process decides nothing.
        control: Who may skip stages wants this.
        last_resort: What is in force where the policies that the source offers, and the last good
            ones, are not usable.
        may_save: False once another replica may lead, by the clock: also before this one knows.
        states: Reads what was saved before; None: it is waited for as long as it takes.
        save_timeout, load_timeout: Seconds for which a new leader waits for *store*; the second is
            that of *states* if there are none.
        sleep: Waits between two looks at the source, the store and an edit on probation.
    """

    def __init__(
        self,
        *,
        source: PolicySource,
        store: Store,
        stages: CandidateStages,
        world: World,
        on_switch: OnSwitch,
        write_event: WriteEvent,
        metrics: Metrics,
        clock: Clock,
        comparing: Comparing | None = None,
        control: RolloutControl | None = None,
        last_resort: LastResort | None = None,
        may_save: Callable[[], bool] = yes,
        states: SavedStates | None = None,
        save_timeout: float = SAVE_TIMEOUT,
        load_timeout: float = PATIENCE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.source_name: Final = source.name
        self._stages = stages
        self._world = world
        self._on_switch = on_switch
        self._clock = clock
        self._sleep = sleep
        #: False on a standby: it follows the source, and leaves events and saving to the leader.
        self.is_active = True
        self.offers = Offers(source, sleep)
        self._control = control if control is not None else NoControl()
        self._revisions = Revisions()
        if states is None:
            states = SavedStates(clock, patience=load_timeout, sleep=sleep)
        #: Nothing can stand in for what the source offers.
        self._offered = states.add(
            "policies",
            self.offers.arrived,
            "Cannot read the policies",
            when_unread=WAIT,
            trouble=source.trouble,
        )
        self._mode = states.add(
            "rollout-mode",
            self._control_known,
            "Cannot read the mode of roll-outs",
            trouble=self._control.trouble,
        )
        self._saved = SavedPolicies(
            store,
            lambda: self.is_active and may_save(),
            states=states,
            save_timeout=save_timeout,
            sleep=sleep,
        )
        self._reports = Reports(
            source.name,
            offers=self.offers,
            write_event=write_event,
            is_leader=lambda: self.is_active,
            metrics=metrics,
            clock=clock,
        )
        self._comparing = comparing if comparing is not None else NoComparing()
        self._last_resort = last_resort if last_resort is not None else LastResort()
        #: Why every pod waits, while that is so.
        self._waits_for = ""
        self._may_pass = asyncio.Event()
        self._is_again = False
        self._last_good_may_load = False
        self._staging = Staging(
            comparing=self._comparing,
            control=self._control,
            offers=self.offers,
            why_not_here=self._why_no_stages,
            report=self._reports.staged,
            on_verdict=self._reports.judged,
            control_of=self._control_of,
            close=lambda loaded: self._close([loaded]),
            clock=clock,
            sleep=sleep,
        )
        self._examined: Bundle | None = None
        self._is_taking_over = False
        self._profiles: frozenset[str] = frozenset()
        self._tasks: list[asyncio.Task[None]] = []
        self._probation: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # --- what others see -----------------------------------------------------------------------

    @property
    def active(self) -> LoadedRevision:
        """What is in force. Raises `LookupError` before `start` and after `stop`."""
        if self._revisions.active is None:
            raise LookupError("no policies are in force")
        return self._revisions.active

    @property
    def bundles(self) -> list[Bundle]:
        """What is in force, what a roll-back would restore, and the edit that is on its way."""
        loaded = (self._revisions.active, self._revisions.previous)
        examined = [] if self._examined is None else [self._examined]
        return [*(one.bundle for one in loaded if one is not None), *examined]

    @property
    def counts(self) -> DecisionCounts:
        """The decisions of what is in force; the scheduling loop counts them here."""
        return self._revisions.counts

    @property
    def former_profiles(self) -> frozenset[str]:
        """The schedulerNames that policies had while this process ran, and have no more."""
        active = self._revisions.active
        now = () if active is None else active.bundle.profiles
        return self._profiles - {profile.scheduler_name for profile in now}

    @property
    def timeline(self) -> Timeline:
        """What became of the latest revisions."""
        return self._reports.timeline

    @property
    def status(self) -> RolloutStatus:
        """How far the edit that is on its way is, or the last one came."""
        return self._staging.status

    @property
    def origin(self) -> str:
        """Where what is in force comes from; "" if nothing is in force.

        `source`, `last-good`, `rolled-back`, `builtin`, or `waiting`: every pod waits.
        """
        active = self._revisions.active
        if active is None:
            return ""
        return "source" if active.origin == self.source_name else active.origin

    def waits_for(self) -> str | None:
        """Why no policies decide, for `/readyz`; None if some do."""
        if self._revisions.active is None:
            return self._waits_for or "no policies are chosen yet"
        return self._waits_for if self.origin == WAITING else None

    def describe(self) -> dict[str, Any]:
        """The state as plain data, for `/policies`."""
        return self._reports.describe(self._revisions, self._saved)

    def report_control(self, about: Reference, control: Control) -> None:
        """Report that *control*, as the object *about* has it, makes no sense."""
        self._reports.control_rejected(about, control)

    # --- life cycle ----------------------------------------------------------------------------

    async def start(self) -> LoadedRevision:
        """Choose what is in force at first, before there is a snapshot to try it on.

        The source's policies if they pass checks and tests; else the last good ones; else nothing
        decides, or with the operator's consent the built-in ones, with an error in the log. Waits
        for the source as long as it takes, and for what was saved unless the operator wants to
        start without: nothing is decided before it is known what those say. Raises
        `UnusableConfiguration` if nothing loads because of a configuration file that no edit of the
        policies could make work.
        """
        # 1. What the source offers now, and what was in force before.
        with contextlib.suppress(Unread):
            await self._mode.read()
        self._tasks.append(asyncio.ensure_future(self.offers.follow()))
        await self._offered.read()
        try:
            self._saved.last_good = await self._saved.load()
        except StoreError as error:
            self._saved.last_good = error.otherwise
        except Unread:
            self._saved.last_good = None
        offer = self.offers.take()
        # 2. The source's, unless they do not pass.
        chosen: LoadedRevision | None = None
        why = "they do not exist"
        if offer is not None and offer.files is not None:
            try:
                with _faults_reject():
                    chosen = await self._prepare(offer)
            except Rejected as rejection:
                why = f"they were rejected: {rejection.note()}"
                self._rejected(rejection, offer, in_force="")
        elif offer is not None:
            self._reports.source_gone(offer, in_force="")
        # 3. The last good, also if an edit goes through stages from those; 4. the last resort.
        if offer is not None and chosen is not None and await self._is_to_be_staged(offer, chosen):
            last_good = await self._prepare_last_good()
            if last_good is not None:
                self._close([chosen])
                chosen = last_good
                self.offers.repeat()
        loaded = chosen or await self._prepare_last_good()
        if loaded is None:
            if offer is not None and offer.files is not None:
                self._stages.require_usable(offer.files)
            loaded = await self._last_resort_at_last(None if offer is None else offer.files, why)
        self._switch(loaded)
        self._report_waiting()
        return loaded

    async def run(self) -> None:
        """Try the first policies on the live snapshot, then follow the source until cancelled."""
        saving = self._saved.keep_saving(self._take_over)
        self._tasks.append(asyncio.ensure_future(saving))
        self._tasks.append(asyncio.ensure_future(self._follow_control()))
        self._tasks.append(asyncio.ensure_future(self._offer_again()))
        try:
            await self._try_first()
            while True:
                await self.offers.arrived()
                offer = self.offers.take()
                if offer is not None:
                    try:
                        await self._consider(offer)
                    finally:
                        self._examined = None
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the tasks and the sandboxes."""
        tasks = [t for t in (*self._tasks, self._probation) if t is not None]
        self._tasks.clear()
        self._probation = None
        await cancelled(tasks)
        # What was accepted a moment ago must be found again after a restart.
        await self._saved.save_in_time()
        self._stages.close()
        self._close(self._revisions.clear())
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close(self, unneeded: Iterable[LoadedRevision]) -> None:
        """Close revisions in threads: a sandbox may take its time to end."""
        for loaded in unneeded:
            task = asyncio.ensure_future(self._close_unused(loaded))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_unused(self, loaded: LoadedRevision) -> None:
        await self._world.until_decided()
        await asyncio.to_thread(loaded.close)

    # --- leading -------------------------------------------------------------------------------

    async def lead(self) -> None:
        """Begin to save and to write events, and go on from what the leader before has saved.

        A standby examines candidates for itself, without load. The store has what the last leader
        rolled back, or kept in force while this process fell back to earlier policies.
        """
        self.is_active = True
        with self._taking_over():
            stored: LastGood | None = None
            with contextlib.suppress(Unread):
                stored = await self._saved.load()
            await self._go_on_from(stored)
        self._report_waiting()

    async def _take_over(self, stored: LastGood | None) -> None:
        """As `lead`, from a store that did not answer when this process began to lead."""
        with self._taking_over():
            await self._go_on_from(stored)

    @contextlib.contextmanager
    def _taking_over(self) -> Iterator[None]:
        self._is_taking_over = True
        try:
            yield
        finally:
            self._is_taking_over = False

    async def _go_on_from(self, stored: LastGood | None) -> None:
        """Go on from what is *stored*; None if nothing is, or if it cannot be read."""
        active = self.active
        adopted: LoadedRevision | None = None
        if stored is not None:
            # With stages, what is in force is what the leader before let pass.
            is_staged = active.bundle.runtime.rollout.is_staged
            is_fallback = is_staged or active.origin != self.source_name
            revision = active.bundle.revision
            if self._saved.adopt(stored, revision, is_fallback=is_fallback):
                adopted = await self._prepare_last_good()
                if adopted is not None:
                    await self._fall_back(adopted, active)
        active = self.active
        is_rolled_back = active.bundle.revision in self._saved.rolled_back
        if active.origin == self.source_name and not is_rolled_back:
            # What the previous leader saved, it has reported, too.
            unreported = self._reports.unreported
            is_stored = stored is not None and stored.revision == unreported
            if unreported == active.bundle.revision and not is_stored:
                self._reports.write_accepted(active)
            self._saved.remember(active)
        await self._saved.save_in_time()
        is_otherwise = self._reports.last_rejected is not None or adopted is not None
        if is_otherwise or self._reports.is_source_gone:
            self.offers.repeat()  # examined again, and reported this time

    # --- a candidate ---------------------------------------------------------------------------

    async def _consider(self, offer: Offer) -> None:
        """Take an offer through all stages; on success it is in force when this returns."""
        if offer.files is None:
            self._reports.source_gone(offer, self._revisions.active_revision)
            return
        was_gone, self._reports.is_source_gone = self._reports.is_source_gone, False
        started = before = self._clock.monotonic()
        candidate: LoadedRevision | None = None
        took: dict[str, float] = {}
        timeline = self._reports.timeline
        timeline.offered(offer.files, offer.written_by)

        def end_stage(stage: str) -> None:
            nonlocal before
            now = self._clock.monotonic()
            took[f"{stage}_ms"] = round((now - before) * 1000, 1)
            timeline.passed(stage, now - before)
            before = now

        try:
            with _faults_reject():
                bundle = await self._build(offer)
                timeline.named(bundle.revision)
                end_stage("check")
                # What it is compared with: other policies may come into force while it is examined.
                base = self.active
                if bundle.revision == base.bundle.revision:
                    self._unchanged(base, was_gone)
                    await self._saved.save()
                    return
                if self.offers.means(bundle.revision):
                    self._saved.forgive(bundle.revision)
                self._refuse_rolled_back(bundle.revision)
                self._refuse_refused(bundle.revision, base)
                await self._stages.test(bundle, offer.files)
                end_stage("test")
                candidate = await self._load_as(self.source_name, bundle, offer.files)
                await candidate.follow(base)
                self._examined = bundle
                unread = await self._world.watch(bundle)
                if unread:
                    raise Rejected("load", [_unread(one) for one in unread], bundle.revision)
                end_stage("load")
                await self._stages.try_out(candidate, self._world, base)
                end_stage("trial")
                candidate.losses = await count_losses(self._stages, candidate, base, self._world)
                end_stage("losses")
                await self._world.prepare(bundle)
                end_stage("facts")
        except Rejected as rejection:
            if candidate is not None:
                self._close([candidate])
            self._rejected(rejection, offer, self._revisions.active_revision)
            return
        finally:
            duration_ms = round((self._clock.monotonic() - started) * 1000, 1)
            self._reports.examined(duration_ms / 1000)
        if not await self._pass_stages(candidate, base, offer):
            self._close([candidate])
            return
        candidate.was_in_force = self._saved.knows(candidate.bundle.revision)
        # Where every pod waited, there is nothing that a roll-back could go back to.
        self._switch(candidate, on_probation=self.origin != WAITING)
        self._reports.accepted(candidate, duration_ms, took)
        self._saved.remember(candidate)
        await self._saved.save()

    async def _pass_stages(
        self, candidate: LoadedRevision, base: LoadedRevision, offer: Offer
    ) -> bool:
        """Take a candidate that passed its trial to where it may come into force after *base*."""
        revision = candidate.bundle.revision

        def check() -> None:
            if self._revisions.active is not base:
                self.offers.repeat()
                raise Superseded("other policies have come into force")
            # The store may have answered meanwhile.
            self._refuse_rolled_back(revision)
            self._refuse_refused(revision, base)

        async def save(progress: Progress) -> None:
            self._saved.remember_progress(progress)
            await self._saved.save_in_time()

        try:
            with _faults_reject():
                begun = lambda: self._saved.progress  # noqa: E731
                known = lambda: self._saved.knows(revision)  # noqa: E731
                await self._staging.run(
                    candidate, base, check=check, begun=begun, save=save, is_known=known
                )
                # The revision that a roll-back would restore may have changed, also during the
                # comparison.
                compared_with: LoadedRevision | None = base
                while (back_to := self._revisions.proven()) is not compared_with:
                    compared_with = back_to
                    if compared_with is not None:
                        await candidate.compare(compared_with)
                check()
        except Superseded as why:
            self._reports.timeline.superseded(str(why))
            return False
        except Rejected as rejection:
            # Not tried again after a restart, or by the next leader.
            if rejection.stage == ABORT:
                self._saved.remember_rolled_back(revision, self.active)
            elif rejection.stage in GATED_STAGES:
                self._saved.remember_refused(revision, base.bundle.revision)
            self._reports.rejected(rejection, offer, self._revisions.active_revision)
            await self._saved.save()
            return False
        except asyncio.CancelledError:
            self._close([candidate])
            raise
        return True

    async def _control_known(self) -> None:
        """Return when the mode is known."""
        while not self._control.is_known:
            await self._control.changed.wait()
            self._control.changed.clear()

    async def _follow_control(self) -> None:
        """Have policies that a gate has refused examined again when they may skip their stages."""
        while True:
            control, refused = self._control.current, self._reports.refused_by_gate
            if control.promotes(refused) or (refused and control.mode == AT_ONCE):
                self.offers.repeat()
            await self._control.changed.wait()
            self._control.changed.clear()

    async def _control_of(self, candidate: LoadedRevision, base: LoadedRevision) -> LoadedRevision:
        """The policies of *base* once more, knowing what *candidate* knows. Raises `Rejected`."""
        twin = await self._stages.load(base.bundle, base.files)
        try:
            await twin.follow(candidate)
        except BaseException:
            self._close([twin])
            raise
        return twin

    def _why_no_stages(self) -> str:
        if not self.is_active:
            return "this process does not lead"
        if self._is_taking_over or self._saved.is_unread:
            return "it is not known yet what the leader before has saved"
        return ""

    async def _is_to_be_staged(self, offer: Offer, chosen: LoadedRevision) -> bool:
        """True if *chosen* has to pass stages before it replaces the last good policies."""
        last_good = self._saved.last_good
        if last_good is None or last_good.revision in ("", chosen.bundle.revision):
            return False
        try:
            with _faults_reject():
                bundle = await self._stages.build(last_good.files)
        except Rejected:
            return False
        return offer.is_stopped or bundle.runtime.rollout.is_staged

    def _unchanged(self, active: LoadedRevision, was_gone: bool) -> None:
        """The source offers what is in force already: a comment in another key, or a revert.

        It is reported if the last report was different, for the author of the repair.
        """
        is_rejected = self._reports.last_rejected is not None
        is_news = was_gone or is_rejected or active.origin != self.source_name
        if is_news:
            active.origin = self.source_name
        self._reports.unchanged(active, is_news=is_news)
        if is_news:
            self._saved.remember(active)

    async def _build(self, offer: Offer) -> Bundle:
        if offer.problems:
            raise Rejected("read", offer.problems)
        assert offer.files is not None
        return await self._stages.build(offer.files)

    async def _prepare(self, offer: Offer) -> LoadedRevision:
        """The revision of *offer*, checked, tested and loaded, not tried. Raises `Rejected`."""
        bundle = await self._build(offer)
        files = offer.files or {}
        self._refuse_rolled_back(bundle.revision)
        if bundle.revision != self._saved.revision:
            await self._stages.test(bundle, files)  # the last good ones have passed theirs before
        return await self._load_as(self.source_name, bundle, files)

    async def _prepare_last_good(self) -> LoadedRevision | None:
        last_good = self._saved.last_good
        if last_good is None or not last_good.revision:
            return None
        try:
            with _faults_reject():
                bundle = await self._stages.build(last_good.files)
                loaded = await self._load_as("last-good", bundle, last_good.files)
        except Rejected as rejection:
            log.error("The last good policies do not load any more", reason=rejection.note())
            self._last_good_may_load = rejection.stage in _PASSING_STAGES
            if self._last_good_may_load:
                self._may_pass.set()
            return None
        self._last_good_may_load = False
        log.warning("Running the last good policies", revision=bundle.revision)
        return loaded

    async def _prepare_builtin(self, offered: Files | None) -> LoadedRevision:
        files: Files = {}
        # A fault in reading what is offered must not keep the built-in ones from a start.
        with contextlib.suppress(Rejected), _faults_reject():
            files = self._last_resort.builtin(offered)
        bundle = await self._stages.build(files)
        loaded = await self._load_as("builtin", bundle, files)
        log.error(
            "No usable policies: running the built-in ones alone",
            source=self.source_name,
            revision=bundle.revision,
            profiles=", ".join(profile.scheduler_name for profile in bundle.profiles),
        )
        return loaded

    async def _prepare_waiting(self, offered: Files | None, why: str) -> LoadedRevision:
        reason = f"no policies are in force from {self.source_name}"
        try:
            bundle, files = await asyncio.to_thread(self._last_resort.waiting, offered, reason)
        except Exception:
            # What is offered names profiles that cannot be: the pods of the others wait.
            log.exception("Unexpected exception while reading the names of profiles")
            bundle, files = await asyncio.to_thread(self._last_resort.waiting, None, reason)
        loaded = await self._load_as(WAITING, bundle, files)
        log.error(
            "No usable policies: every pod waits",
            source=self.source_name,
            reason=why,
            profiles=", ".join(profile.scheduler_name for profile in bundle.profiles),
            hint="correct the policies; --when-no-policies=builtin has the built-in ones decide",
        )
        return loaded

    async def _last_resort_at_last(self, offered: Files | None, why: str) -> LoadedRevision:
        """The last resort, however often its sandbox dies: nothing else could be in force."""
        self._waits_for = f"no policies are in force from {self.source_name}: {why}"
        # No files are a choice, too: that of the built-in policies.
        is_wanted = self._last_resort.when_none == BUILTIN or offered == {}
        while True:
            try:
                if is_wanted:
                    return await self._prepare_builtin(offered)
                return await self._prepare_waiting(offered, why)
            except Rejected as rejection:
                log.error("Not even the built-in policies load", reason=rejection.note())
            self.offers.repeat()  # may load, too, when these do
            await self._sleep(_START_AGAIN_SECONDS)

    def _report_waiting(self) -> None:
        if self.origin == WAITING:
            self._reports.waits(self._waits_for)

    def _rejected(self, rejection: Rejected, offer: Offer, in_force: str) -> None:
        """Report that *offer* is rejected; if the reason may pass, it is offered again later."""
        is_again, self._is_again = self._is_again, False
        self._reports.rejected(rejection, offer, in_force, is_again=is_again)
        if rejection.stage in _PASSING_STAGES:
            self._may_pass.set()

    async def _offer_again(self) -> None:
        """Try again what did not load, less and less often, until cancelled.

        What goes out of force because the machine is short of memory comes back by itself.
        """
        pause = _OFFER_AGAIN_SECONDS
        while True:
            await self._may_pass.wait()
            self._may_pass.clear()
            await self._sleep(pause)
            pause = min(2 * pause, _LONGEST_OFFER_PAUSE)
            if self._last_good_may_load and self.origin in (WAITING, "builtin"):
                active, loaded = self.active, await self._prepare_last_good()
                if loaded is not None:
                    await self._fall_back(loaded, active)
            rejected = self._reports.last_rejected
            if rejected is not None and rejected["stage"] in _PASSING_STAGES:
                self._is_again = True
                self.offers.repeat()
            elif not self._may_pass.is_set():
                pause = _OFFER_AGAIN_SECONDS

    async def _load_as(
        self, origin: str, bundle: Bundle, files: Mapping[str, str]
    ) -> LoadedRevision:
        loaded = await self._stages.load(bundle, files)
        loaded.origin = origin
        return loaded

    async def _try_first(self) -> None:
        """The trial of the policies chosen at start, now that there is a snapshot."""
        await self._world.until_idle()  # the first decisions need the cores more
        first = self.active
        # The one in force is busy deciding; the trial needs a sandbox of its own.
        twin: LoadedRevision | None = None
        try:
            twin = await self._stages.load(first.bundle, first.files)
            await twin.follow(first)
            # What was in force before is no worse than what it was.
            is_known = self._saved.knows(first.bundle.revision)
            await self._stages.try_out(twin, self._world, first if is_known else None)
            first.losses = await self._losses_since_last_good(twin)
        except Rejected as rejection:
            if first.origin in ("builtin", WAITING):
                log.error("The built-in policies failed their trial", reason=rejection.note())
                return
            if first.bundle.revision == self._saved.revision:
                # They were good, and are no worse than the built-in ones would be.
                log.error(
                    "The last good policies failed their trial and stay in force",
                    revision=first.bundle.revision,
                    reason=rejection.note(),
                )
                return
            offer = Offer(first.files, reference=self.offers.reference)
            self._reports.rejected(rejection, offer, self._revisions.active_revision)
            await self._replace_first(first)
        except Exception:
            # A bug in the trial itself: what was checked, tested and loaded goes on deciding.
            log.exception("Unexpected exception while trying the first policies")
        else:
            # Meanwhile an edit may have come into force, or the store may have answered that the
            # leader before rolled this revision back; then `_go_on_from` is about to replace it.
            is_current = self._revisions.active is first and first.origin == self.source_name
            if not is_current or first.bundle.revision in self._saved.rolled_back:
                return
            if self._is_taking_over:
                # What the leader before saved must not be overwritten before it is in force; if
                # *first* stays, `_go_on_from` reports and saves it.
                self._reports.unreported = first.bundle.revision
            else:
                self._reports.write_accepted(first)
                self._saved.remember(first)
                await self._saved.save()
        finally:
            if twin is not None:
                self._close([twin])

    async def _losses_since_last_good(self, first: LoadedRevision) -> Losses:
        """What *first* takes away next to what was in force before this process began."""
        last_good = self._saved.last_good
        if last_good is None or last_good.revision in ("", first.bundle.revision):
            return NO_LOSSES
        try:
            bundle = await self._stages.build(last_good.files)
        except Rejected:
            return NO_LOSSES  # it could not be gone back to either
        before = BuiltRevision(bundle, last_good.files)
        return await count_losses(self._stages, first, before, self._world)

    async def _replace_first(self, first: LoadedRevision) -> None:
        """Fall back from *first*, which failed its trial, to the last good ones.

        Without any, *first* stays: the pods that it fails for wait, and others are decided by no
        other rules, unless the operator wants the built-in ones then.
        """
        loaded = await self._prepare_last_good()
        if loaded is None and self._last_resort.when_none == BUILTIN:
            try:
                loaded = await self._prepare_builtin(first.files)
            except Rejected as rejection:
                # A machine without memory for a sandbox, say. What decides now, has one.
                log.error("Not even the built-in policies load", reason=rejection.note())
        if loaded is None:
            log.error(
                "Policies that failed their trial stay in force: there are no others",
                in_force=first.bundle.revision,
            )
            return
        await self._fall_back(loaded, first)

    def _refuse_rolled_back(self, revision: str) -> None:
        if revision in self._saved.rolled_back:
            text = f"revision `{revision}` was rolled back before; change the policies to try again"
            how = self.offers.how_to_mean(revision)
            hint = f"if the pods that it keeps waiting are to wait, {how}" if how else ""
            raise Rejected("rolled_back", [Problem("", 0, 0, text, hint)], revision)

    def _refuse_refused(self, revision: str, base: LoadedRevision) -> None:
        """Raise `Rejected` if a gate refused *revision* next to *base*, which is in force."""
        in_force = base.bundle.revision
        if self._saved.knows(revision) or not self._saved.has_refused(revision, in_force):
            return
        control = self._control.current
        is_allowed = control.promotes(revision) or control.mode == AT_ONCE
        if is_allowed or self.offers.means(revision):
            return
        text = (
            f"revision `{revision}` was refused by a gate next to `{in_force}`, which is in force"
        )
        hint = f"change the policies to try again, or {promoted(revision)}"
        if how := self.offers.how_to_mean(revision):
            hint += f"; if what it moves or takes away is meant, {how}"
        raise Rejected("refused", [Problem("", 0, 0, text, hint)], revision)

    # --- switching -----------------------------------------------------------------------------

    def _switch(self, loaded: LoadedRevision, *, on_probation: bool = False) -> None:
        """Put *loaded* in force; what is not needed any more is closed."""
        if self._probation is not None:
            self._probation.cancel()
            self._probation = None
        self._profiles |= {profile.scheduler_name for profile in loaded.bundle.profiles}
        old = self._revisions.active
        unneeded = self._revisions.replace(loaded, on_probation=on_probation)
        self._reports.in_force(loaded, on_probation=self._revisions.previous is not None)
        self._on_switch(loaded, old)
        self._close(unneeded)
        if self._revisions.previous is not None:
            self._probation = asyncio.ensure_future(self._watch(loaded))

    async def _fall_back(self, loaded: LoadedRevision, before: LoadedRevision) -> None:
        """Put *loaded* in force instead of *before*; not over an edit that came meanwhile."""
        await self._world.prepare(loaded.bundle)
        if self._revisions.active is before:
            self._switch(loaded)
        else:
            self._close([loaded])

    async def _watch(self, loaded: LoadedRevision) -> None:
        """Roll *loaded* back if it gets out of bounds; otherwise close its predecessor."""
        window = loaded.bundle.runtime.fallback.window
        now = self._clock.monotonic()
        ends_at, asks_at = now + window.total_seconds(), now + _PENDING_SECONDS
        while self._clock.monotonic() < ends_at:
            await self._sleep(_PROBATION_TICK)
            why = self._revisions.failure()
            if why is None and self._clock.monotonic() >= asks_at:
                why = await self._why_pending(loaded)
                asks_at = self._clock.monotonic() + _PENDING_SECONDS
            if why is not None:
                await self._roll_back(why)
                return
        self._probation = None
        self._reports.timeline.kept()
        self._close(self._revisions.pass_probation())

    async def _why_pending(self, loaded: LoadedRevision) -> str | None:
        """Why *loaded* is to be rolled back for pods that wait; None if it is not."""
        previous, revision = self._revisions.previous, loaded.bundle.revision
        most = loaded.bundle.runtime.fallback.pending
        # What is gone back to may keep waiting what it kept waiting before.
        is_meant = loaded.was_in_force or self.offers.means(revision)
        if previous is None or not most or not self.is_active or is_meant:
            return None
        try:
            found = await newly_pending(loaded, previous, self._world)
        except Exception:
            log.exception("Whether pods wait for the policies on probation is not known")
            return None
        count = len(found.pods)
        if count < most:
            self._reports.keeps_waiting(loaded, None)
            return None
        why = (
            f"{count} pods wait that revision {previous.bundle.revision} would place, such as "
            f"`{found.pods[0].key}`"
        )
        if found.alone:
            why += f"; they are of namespace `{found.alone}` alone, so nothing is rolled back"
            self._reports.keeps_waiting(loaded, Loss(PENDING, count, found.asked, why))
            return None
        how = self.offers.how_to_mean(revision) or "`fallback.pending: 0` says so"
        return f"{why}; if this is meant, {how}"

    async def _roll_back(self, why: str) -> None:
        previous = self._revisions.previous
        assert previous is not None
        await self._world.prepare(previous.bundle)
        # An edit that comes into force meanwhile cancels the probation, and with it this.
        self._probation = None
        bad = self._revisions.roll_back()
        self._reports.in_force(previous)
        self._on_switch(previous, bad)
        self._close([bad])
        revision = bad.bundle.revision
        self._reports.rolled_back(revision, previous.bundle.revision, why)
        self._saved.remember_rolled_back(revision, previous)
        await self._saved.save()
        if self._reports.refused_by_gate:
            self.offers.repeat()  # it was compared with what is not in force any more


def _unread(why: str) -> Problem:
    return Problem("", 0, 0, f"the policies read what is not known: {why}")
