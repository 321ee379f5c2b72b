"""The roll-out: which policies are in force, how others replace them, and when to roll back.

Owns the tasks that an edit goes through, and what each action of its life does. What follows on
what is one table, `transitions`. Which revisions there are is `revisions`', how they are made
`preparing`'s, how a candidate is examined `trial`'s, how it is compared with what is in force
`staging`'s, what the source offers `inbox`'s, what is saved `saved_policies`', and what is reported
`reports`'. A candidate that fails anything changes nothing but what is reported.

    offered --check--> --test--> --load--> --trial--> --stages--> in force --probation--> last good
       any failure --> rejected (what is in force stays)
       in force --failures or latency out of bounds--> rolled back (the one before is in force)
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from engine.io.binding.binder import always_allowed
from engine.io.binding.event_recorder import Reference
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.lib.printable import counted
from engine.lib.saved_state import WAIT, SavedStates, Unread
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.rollout.admission import Admission
from engine.rollout.comparing import Comparing, NoComparing
from engine.rollout.control import AT_ONCE, Control, NoControl, RolloutControl
from engine.rollout.inbox import CandidateInbox
from engine.rollout.last_good import LastGood, Progress, Store, StoreError
from engine.rollout.last_resort import WAITING, LastResort
from engine.rollout.losses import count_losses, newly_pending
from engine.rollout.measures import PENDING, Loss
from engine.rollout.preparing import PASSING_STAGES, Preparing, faults_reject
from engine.rollout.reports import Reports, WriteEvent
from engine.rollout.revisions import DecisionCounts, Revisions
from engine.rollout.saved_policies import SAVE_TIMEOUT, SavedPolicies
from engine.rollout.sources import Offer, PolicySource
from engine.rollout.staging import ABORT, GATED_STAGES, Staging, Superseded, Twins
from engine.rollout.status import RolloutStatus
from engine.rollout.timeline import Timeline
from engine.rollout.transitions import Action, Event, State, step
from engine.rollout.trial import CandidateStages, LoadedRevision, Rejected, World
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="rollout")

_PROBATION_TICK: Final = 0.5
_PENDING_SECONDS: Final = 5.0
_OFFER_AGAIN_SECONDS: Final = 10.0
_LONGEST_OFFER_PAUSE: Final = 300.0

OnSwitch = Callable[[LoadedRevision, LoadedRevision | None], None]
"""(new, old): called between two scheduling cycles when *new* is to decide from now on."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a roll-out goes by.

    Attributes:
        source: Where candidates come from.
        store: Where the last good policies are saved.
        control: Who may skip stages wants this.
        last_resort: What is in force where the policies that the source offers, and the last good
            ones, are not usable.
    """

    source: PolicySource
    store: Store
    control: RolloutControl = field(default_factory=NoControl)
    last_resort: LastResort = field(default_factory=LastResort)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a roll-out is seen through, and its time.

    Attributes:
        write_event: Writes events; none are written while the roll-out is not active.
        metrics, clock: Measure.
        sleep: Waits between two looks at the source, the store and an edit on probation.
    """

    write_event: WriteEvent
    metrics: Metrics
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Saving:
    """How what was saved is read and written.

    Attributes:
        states: Reads what was saved before; None: it is waited for as long as it takes.
        may_save: False once another replica may lead, by the clock: also before this one knows.
        timeout: Seconds for which a new leader waits for the store.
    """

    states: SavedStates | None = None
    may_save: Callable[[], bool] = always_allowed
    timeout: float = SAVE_TIMEOUT


@dataclass(slots=True)
class _Edit:
    """An edit on its way, and what is known of it.

    Attributes:
        offer: What the source offered.
        state: Where it is.
        loaded: Its revision, once there is a sandbox for it.
        base: What was in force when it was examined.
        rejection: Why it failed; None if it did not.
        why: What a report says.
        is_again: It was offered again by itself.
        was_gone: There was no source before.
        took: Milliseconds for each stage of its examination.
        duration_ms: For all of them.
    """

    offer: Offer
    state: State = State.EXAMINED
    loaded: LoadedRevision | None = None
    base: LoadedRevision | None = None
    rejection: Rejected | None = None
    why: str = ""
    is_again: bool = False
    was_gone: bool = False
    took: dict[str, float] = field(default_factory=dict)
    duration_ms: float = 0.0

    @property
    def own(self) -> LoadedRevision:
        """Its revision, which is loaded by now."""
        assert self.loaded is not None
        return self.loaded

    @property
    def revision(self) -> str:
        return self.own.bundle.revision


class Rollout:
    """Keeps policies in force.

    Args:
        inputs, surroundings, saving: See there.
        stages: Takes candidates through their stages.
        world: What the trial decides on, and what has to be known before a switch.
        on_switch: Puts a loaded revision in force.
        comparing: Compares a candidate with what is in force; None: this process decides nothing.
    """

    def __init__(
        self,
        inputs: Inputs,
        stages: CandidateStages,
        world: World,
        on_switch: OnSwitch,
        surroundings: Surroundings,
        comparing: Comparing | None = None,
        saving: Saving | None = None,
    ) -> None:
        source, control, saving = inputs.source, inputs.control, saving or Saving()
        self.source_name: Final = source.name
        self._stages = stages
        self._world = world
        self._on_switch = on_switch
        self._clock = clock = surroundings.clock
        self._sleep = sleep = surroundings.sleep
        self._control = control
        #: False on a standby: it follows the source, and leaves events and saving to the leader.
        self.is_active = True
        self.inbox = CandidateInbox(source, sleep)
        self._revisions = Revisions()
        # 1. What was saved. Nothing can stand in for what the source offers.
        states = saving.states or SavedStates(clock, sleep=sleep)
        failed = "Cannot read the policies"
        self._offered = states.add(
            "policies", self.inbox.arrived, failed, when_unread=WAIT, trouble=source.trouble
        )
        failed = "Cannot read the mode of roll-outs"
        self._mode = states.add(
            "rollout-mode", self._control_known, failed, trouble=control.trouble
        )
        self._saved = SavedPolicies(
            inputs.store,
            lambda: self.is_active and saving.may_save(),
            states=states,
            save_timeout=saving.timeout,
            sleep=sleep,
        )
        # 2. What an edit goes through.
        self._reports = Reports(
            source.name,
            inbox=self.inbox,
            write_event=surroundings.write_event,
            is_leader=lambda: self.is_active,
            metrics=surroundings.metrics,
            clock=clock,
        )
        self._preparing = Preparing(
            source.name, stages, self._saved, inputs.last_resort, self.inbox, control, sleep
        )
        self._staging = self._make_staging(comparing or NoComparing())
        #: Judges edits before they are written.
        self.admission = Admission(
            source,
            stages,
            self._saved,
            inputs.last_resort,
            control,
            world,
            active=lambda: self.active,
            is_leader=lambda: self.is_active,
            sleep=sleep,
        )
        # 3. What is under way.
        self._is_again = False
        self._examined: Bundle | None = None
        self._is_taking_over = False
        self._profiles: frozenset[str] = frozenset()
        self._tasks: list[asyncio.Task[None]] = []
        self._probation: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def _make_staging(self, comparing: Comparing) -> Staging:
        """What takes a candidate through its stages, made of the parts that exist by now."""
        return Staging(
            comparing=comparing,
            control=self._control,
            inbox=self.inbox,
            cannot_measure_reason=self._cannot_measure_reason,
            reports=self._reports,
            twins=Twins(self._control_of, lambda loaded: self._close([loaded])),
            clock=self._clock,
            sleep=self._sleep,
        )

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
            return self._preparing.waits_for or "no policies are chosen yet"
        return self._preparing.waits_for if self.origin == WAITING else None

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
        prepare = self._preparing
        # 1. What the source offers now, and what was in force before.
        with contextlib.suppress(Unread):
            await self._mode.read()
        self._tasks.append(asyncio.ensure_future(self.inbox.follow()))
        await self._offered.read()
        try:
            self._saved.last_good = await self._saved.load()
        except StoreError as error:
            self._saved.last_good = error.otherwise
        except Unread:
            self._saved.last_good = None
        offer = self.inbox.take()
        # 2. The source's, unless they do not pass.
        chosen: LoadedRevision | None = None
        why = "they do not exist"
        if offer is not None and offer.files is not None:
            try:
                with faults_reject():
                    chosen = await prepare.offered(offer)
            except Rejected as rejection:
                why = f"they were rejected: {rejection.note()}"
                await self._fail(_Edit(offer), rejection)
        elif offer is not None:
            await self._advance(_Edit(offer), Event.SOURCE_GONE)
        # 3. The last good, also if an edit goes through stages from those; 4. the last resort.
        is_to_be_staged = (
            offer is not None
            and chosen is not None
            and await prepare.is_to_be_staged(offer, chosen)
        )
        if is_to_be_staged and (last_good := await prepare.last_good()) is not None:
            self._close([] if chosen is None else [chosen])
            chosen = last_good
            self.inbox.repeat()
        loaded = chosen or await prepare.last_good()
        if loaded is None:
            files = None if offer is None else offer.files
            if files is not None:
                self._stages.require_usable(files)
            loaded = await prepare.last_resort_at_last(files, why)
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
                await self.inbox.arrived()
                offer = self.inbox.take()
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
        await self.admission.stop()
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
                adopted = await self._preparing.last_good()
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
            self.inbox.repeat()  # examined again, and reported this time

    # --- an edit -------------------------------------------------------------------------------

    async def _advance(self, edit: _Edit, event: Event) -> None:
        """Have done what follows on *event*, as `transitions` has it."""
        edit.state, actions = step(edit.state, event)
        for action in actions:
            done = self._act(action, edit)
            if done is not None:
                await done

    async def _fail(self, edit: _Edit, rejection: Rejected) -> None:
        """*edit* does not pass a stage of its examination."""
        edit.rejection = rejection
        may_pass = rejection.stage in PASSING_STAGES
        await self._advance(edit, Event.NOT_LOADED if may_pass else Event.REJECTED)

    async def _consider(self, offer: Offer) -> None:
        """Take an offer through all stages; on success it is in force when this returns."""
        edit = _Edit(offer)
        if offer.files is None:
            await self._advance(edit, Event.SOURCE_GONE)
            return
        edit.was_gone, self._reports.is_source_gone = self._reports.is_source_gone, False
        edit.is_again, self._is_again = self._is_again, False
        self._reports.timeline.offered(offer.files, offer.written_by)
        started = self._clock.monotonic()
        try:
            with faults_reject():
                is_new = await self._examine(edit)
        except Rejected as rejection:
            await self._fail(edit, rejection)
            return
        finally:
            edit.duration_ms = round((self._clock.monotonic() - started) * 1000, 1)
            self._reports.examined(edit.duration_ms / 1000)
        if not is_new:
            await self._advance(edit, Event.UNCHANGED)
            return
        await self._advance(edit, Event.TRIED)
        try:
            with faults_reject():
                await self._pass_stages(edit)
        except Superseded as why:
            edit.why = str(why)
            await self._advance(edit, Event.SUPERSEDED)
        except Rejected as rejection:
            edit.rejection = rejection
            is_refused = rejection.stage in GATED_STAGES
            event = Event.REFUSED if is_refused else Event.REJECTED
            await self._advance(edit, Event.ABORTED if rejection.stage == ABORT else event)
        except asyncio.CancelledError:
            await self._advance(edit, Event.CANCELLED)
            raise
        else:
            edit.own.was_in_force = self._saved.knows(edit.revision)
            is_alone = self.origin == WAITING
            await self._advance(edit, Event.PASSED_ALONE if is_alone else Event.PASSED)

    async def _examine(self, edit: _Edit) -> bool:
        """Load and try *edit*; False if it is what is in force. Raises `Rejected`."""
        offer, prepare, timeline = edit.offer, self._preparing, self._reports.timeline
        before = self._clock.monotonic()

        def end_stage(stage: str) -> None:
            nonlocal before
            now = self._clock.monotonic()
            edit.took[f"{stage}_ms"] = round((now - before) * 1000, 1)
            timeline.passed(stage, now - before)
            before = now

        bundle, files = await prepare.build(offer), offer.files or {}
        timeline.named(bundle.revision)
        end_stage("check")
        # What it is compared with: other policies may come into force while it is examined.
        base = edit.base = self.active
        if bundle.revision == base.bundle.revision:
            return False
        if self.inbox.means(bundle.revision):
            self._saved.forgive(bundle.revision)
        prepare.refuse_rolled_back(bundle.revision)
        prepare.refuse_refused(bundle.revision, base)
        await self._stages.test(bundle, files)
        end_stage("test")
        candidate = edit.loaded = await prepare.load(self.source_name, bundle, files)
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
        return True

    async def _pass_stages(self, edit: _Edit) -> None:
        """Take an edit that passed its trial to where it may come into force after its base.

        Raises `Rejected` and `Superseded`.
        """
        candidate, base, revision = edit.own, edit.base, edit.revision
        assert base is not None

        def check() -> None:
            if self._revisions.active is not base:
                self.inbox.repeat()
                raise Superseded("other policies have come into force")
            # The store may have answered meanwhile.
            self._preparing.refuse_rolled_back(revision)
            self._preparing.refuse_refused(revision, base)

        async def save(progress: Progress) -> None:
            self._saved.remember_progress(progress)
            await self._saved.save_in_time()

        begun = lambda: self._saved.progress  # noqa: E731
        known = lambda: self._saved.knows(revision)  # noqa: E731
        await self._staging.run(
            candidate, base, check=check, begun=begun, save=save, is_known=known
        )
        # The revision that a roll-back would restore may have changed, also during the comparison.
        compared_with: LoadedRevision | None = base
        while (back_to := self._revisions.proven()) is not compared_with:
            compared_with = back_to
            if compared_with is not None:
                await candidate.compare(compared_with)
        check()

    # --- actions -------------------------------------------------------------------------------

    def _act(self, action: Action, edit: _Edit) -> Awaitable[None] | None:
        """Do what *action* stands for; returns what is to be waited for, if anything is."""
        reports, saved, a = self._reports, self._saved, Action
        in_force = self._revisions.active_revision
        match action:
            case a.REPORT_GONE:
                reports.source_gone(edit.offer, in_force)
            case a.REPORT_UNCHANGED:
                self._unchanged(self.active, edit.was_gone)
            case a.REPORT_REJECTED:
                assert edit.rejection is not None
                reports.rejected(edit.rejection, edit.offer, in_force, is_again=edit.is_again)
            case a.REPORT_SUPERSEDED:
                reports.timeline.superseded(edit.why)
            case a.REPORT_ACCEPTED:
                reports.accepted(edit.own, edit.duration_ms, edit.took)
            case a.REPORT_FIRST:
                reports.write_accepted(edit.own)
            case a.REPORT_FIRST_LATER:
                # If it stays, `_go_on_from` reports and saves it.
                reports.unreported = edit.revision
            case a.REPORT_ROLLED_BACK:
                reports.rolled_back(edit.revision, in_force, edit.why)
            case a.REPORT_KEPT:
                reports.timeline.kept()
            case a.OFFER_LATER:
                self._preparing.may_pass.set()
            case a.OFFER_REFUSED:
                if reports.refused_by_gate:
                    self.inbox.repeat()
            case a.REMEMBER:
                saved.remember(edit.own)
            case a.REMEMBER_ROLLED_BACK:
                saved.remember_rolled_back(edit.revision, self.active)
            case a.REMEMBER_REFUSED:
                assert edit.base is not None
                saved.remember_refused(edit.revision, edit.base.bundle.revision)
            case a.SAVE:
                return saved.save()
            case a.PUT_IN_FORCE:
                self._switch(edit.own)
            case a.PUT_ON_PROBATION:
                self._switch(edit.own, on_probation=edit)
            case a.PUT_BACK:
                return self._roll_back()
            case a.REPLACE_FIRST:
                return self._replace_first(edit.own)
            case a.CLOSE:
                self._close([] if edit.loaded is None else [edit.loaded])
            case a.CLOSE_PREVIOUS:
                self._close(self._revisions.pass_probation())
        return None

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
                self.inbox.repeat()
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

    def _cannot_measure_reason(self) -> str:
        if not self.is_active:
            return "this process does not lead"
        if self._is_taking_over or self._saved.is_unread:
            return "it is not known yet what the leader before has saved"
        return ""

    def _report_waiting(self) -> None:
        if self.origin == WAITING:
            self._reports.waits(self._preparing.waits_for)

    async def _offer_again(self) -> None:
        """Try again what did not load, less and less often, until cancelled.

        What goes out of force because the machine is short of memory comes back by itself.
        """
        pause = _OFFER_AGAIN_SECONDS
        while True:
            await self._preparing.may_pass.wait()
            self._preparing.may_pass.clear()
            await self._sleep(pause)
            pause = min(2 * pause, _LONGEST_OFFER_PAUSE)
            if self._preparing.last_good_may_load and self.origin in (WAITING, "builtin"):
                active, loaded = self.active, await self._preparing.last_good()
                if loaded is not None:
                    await self._fall_back(loaded, active)
            rejected = self._reports.last_rejected
            if rejected is not None and rejected["stage"] in PASSING_STAGES:
                self._is_again = True
                self.inbox.repeat()
            elif not self._preparing.may_pass.is_set():
                pause = _OFFER_AGAIN_SECONDS

    async def _try_first(self) -> None:
        """The trial of the policies chosen at start, now that there is a snapshot."""
        await self._world.until_idle()  # the first decisions need the cores more
        first = self.active
        edit = _Edit(Offer(first.files, reference=self.inbox.reference), State.CHOSEN, first)
        # The one in force is busy deciding; the trial needs a sandbox of its own.
        twin: LoadedRevision | None = None
        try:
            twin = await self._stages.load(first.bundle, first.files)
            await twin.follow(first)
            # What was in force before is no worse than what it was.
            is_known = self._saved.knows(edit.revision)
            await self._stages.try_out(twin, self._world, first if is_known else None)
            first.losses = await self._preparing.losses_since_last_good(twin, self._world)
        except Rejected as rejection:
            edit.rejection = rejection
            if first.origin in ("builtin", WAITING):
                log.error("The built-in policies failed their trial", reason=rejection.note())
            elif edit.revision == self._saved.revision:
                # They were good, and are no worse than the built-in ones would be.
                log.error(
                    "The last good policies failed their trial and stay in force",
                    revision=edit.revision,
                    reason=rejection.note(),
                )
            else:
                await self._advance(edit, Event.REJECTED)
        except Exception:
            # A bug in the trial itself: what was checked, tested and loaded goes on deciding.
            log.exception("Unexpected exception while trying the first policies")
        else:
            # Meanwhile an edit may have come into force, or the store may have answered that the
            # leader before rolled this revision back; then `_go_on_from` is about to replace it.
            is_current = self._revisions.active is first and first.origin == self.source_name
            if not is_current or edit.revision in self._saved.rolled_back:
                await self._advance(edit, Event.REPLACED)
            else:
                is_early = self._is_taking_over
                await self._advance(edit, Event.TRIED_EARLY if is_early else Event.TRIED)
        finally:
            if twin is not None:
                self._close([twin])

    async def _replace_first(self, first: LoadedRevision) -> None:
        """Fall back from *first*, which failed its trial, to the last good ones.

        Without any, *first* stays: the pods that it fails for wait, and others are decided by no
        other rules, unless the operator wants the built-in ones then.
        """
        loaded = await self._preparing.last_good()
        if loaded is None and self._preparing.has_builtin:
            try:
                loaded = await self._preparing.builtin(first.files)
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

    # --- switching -----------------------------------------------------------------------------

    def _switch(self, loaded: LoadedRevision, *, on_probation: _Edit | None = None) -> None:
        """Put *loaded* in force; what is not needed any more is closed."""
        if self._probation is not None:
            self._probation.cancel()
            self._probation = None
        self._profiles |= {profile.scheduler_name for profile in loaded.bundle.profiles}
        old = self._revisions.active
        unneeded = self._revisions.replace(loaded, on_probation=on_probation is not None)
        self._reports.in_force(loaded, on_probation=self._revisions.previous is not None)
        self._on_switch(loaded, old)
        self._close(unneeded)
        if on_probation is not None and self._revisions.previous is not None:
            self._probation = asyncio.ensure_future(self._watch(on_probation))

    async def _fall_back(self, loaded: LoadedRevision, before: LoadedRevision) -> None:
        """Put *loaded* in force instead of *before*; not over an edit that came meanwhile."""
        await self._world.prepare(loaded.bundle)
        if self._revisions.active is before:
            self._switch(loaded)
        else:
            self._close([loaded])

    async def _watch(self, edit: _Edit) -> None:
        """Roll *edit* back if it gets out of bounds; otherwise close its predecessor."""
        loaded = edit.own
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
                edit.why = why
                await self._advance(edit, Event.OUT_OF_BOUNDS)
                return
        self._probation = None
        await self._advance(edit, Event.KEPT)

    async def _why_pending(self, loaded: LoadedRevision) -> str | None:
        """Why *loaded* is to be rolled back for pods that wait; None if it is not."""
        previous, revision = self._revisions.previous, loaded.bundle.revision
        most = loaded.bundle.runtime.fallback.pending
        # What is gone back to may keep waiting what it kept waiting before.
        is_meant = loaded.was_in_force or self.inbox.means(revision)
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
        wait = f"{counted(count, 'pod')} wait{'s' if count == 1 else ''}"
        why = (
            f"{wait} that revision {previous.bundle.revision} would place, such as "
            f"`{found.pods[0].key}`"
        )
        if found.alone:
            why += f"; they are of namespace `{found.alone}` alone, so nothing is rolled back"
            self._reports.keeps_waiting(loaded, Loss(PENDING, count, found.asked, why))
            return None
        how = self.inbox.how_to_mean(revision) or "`fallback.pending: 0` says so"
        return f"{why}; if this is meant, {how}"

    async def _roll_back(self) -> None:
        """Let what decided before decide again."""
        previous = self._revisions.previous
        assert previous is not None
        await self._world.prepare(previous.bundle)
        # An edit that comes into force meanwhile cancels the probation, and with it this.
        self._probation = None
        bad = self._revisions.roll_back()
        self._reports.in_force(previous)
        self._on_switch(previous, bad)
        self._close([bad])


def _unread(why: str) -> Problem:
    return Problem("", 0, 0, f"the policies read what is not known: {why}")
