"""The roll-out: which policies are in force, how others replace them, and when they are taken back.

Owns the state: the revision in force, the one before it while the new one is on probation, the
last rejection, the history. A candidate that fails anything changes nothing but what is reported.

    offered --check--> --test--> --load--> --trial--> in force --probation--> last good
       any failure --> rejected (what is in force stays)
       in force --failures or latency out of bounds--> rolled back (the one before is in force)
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from engine.binding.event_recorder import NORMAL, WARNING, Reference
from engine.lib.background import cancelled
from engine.lib.clock import Clock
from engine.policy.bundle import Bundle
from engine.policy.config import Fallback
from engine.policy.errors import Problem
from engine.rollout.decision_counts import DecisionCounts
from engine.rollout.last_good import LastGood, Store, StoreError
from engine.rollout.sources import Offer, PolicySource
from engine.rollout.trial import CandidateStages, LoadedRevision, Rejected, World, digest, first_of
from engine.telemetry.metrics import Metrics

log = structlog.get_logger(component="rollout")

ACCEPTED_REASON: Final = "PolicyAccepted"
REJECTED_REASON: Final = "PolicyRejected"
ROLLED_BACK_REASON: Final = "PolicyRolledBack"
SOURCE_GONE_REASON: Final = "PolicySourceGone"

_HISTORY: Final = 50
#: There are pods to decide: a store that does not answer holds up a start or a new leader no longer
#: than this. It is asked again in the background.
_SAVE_TIMEOUT: Final = 2.0
_LOAD_TIMEOUT: Final = 10.0
_SAVE_AGAIN_SECONDS: Final = 10.0
_LONGEST_SAVE_PAUSE: Final = 300.0
_LOAD_TRIES: Final = 4
_LOAD_PAUSE_SECONDS: Final = 0.5
_SOURCE_RESTART_SECONDS: Final = 5.0
_PROBATION_TICK: Final = 0.5


def out_of_bounds(counts: DecisionCounts, bounds: Fallback) -> str | None:
    """Why a revision with these counts is to be taken back, or None."""
    # Time is lost to everybody, so few decisions are enough to tell; one alone may be chance.
    if counts.stalled > 1 and counts.lost_seconds > bounds.lost_time.total_seconds():
        return (
            f"{counts.stalled} of {counts.decisions} decisions ran into limits and took "
            f"{counts.lost_seconds:.1f} s, want at most {bounds.lost_time.total_seconds():g} s"
        )
    if counts.decisions < bounds.min_decisions:
        return None
    share = counts.failed / counts.decisions
    if share > bounds.error_rate:
        return (
            f"{counts.failed} of {counts.decisions} decisions failed, "
            f"want at most {bounds.error_rate:.0%}"
        )
    # The 99th percentile is above the bound if more than 1 % of the decisions are.
    if bounds.latency is not None and counts.slow > counts.decisions / 100:
        return (
            f"{counts.slow} of {counts.decisions} decisions took longer than "
            f"{bounds.latency.total_seconds() * 1000:g} ms, want at most 1%"
        )
    return None


def _counts_for(loaded: LoadedRevision) -> DecisionCounts:
    latency = loaded.bundle.runtime.fallback.latency
    return DecisionCounts(
        slow_seconds=math.inf if latency is None else latency.total_seconds(),
        unchanged=loaded.unchanged,
    )


@contextlib.contextmanager
def _faults_reject() -> Iterator[None]:
    """Have a fault of ours cost the candidate: it must end neither the start nor the following."""
    try:
        yield
    except Rejected:
        raise
    except Exception as error:
        log.exception("Unexpected exception while examining policies")
        problem = Problem("", 0, 0, f"internal error: {type(error).__name__}: {error}")
        raise Rejected("internal", [problem]) from error


Tell = Callable[[Reference, str, str, str, str], None]
"""(about, `Normal` or `Warning`, reason, note, revision): writes an event."""

OnSwitch = Callable[[LoadedRevision, LoadedRevision | None], None]
"""(new, old): called between two scheduling cycles when *new* is to decide from now on."""


class Rollout:
    """Keeps policies in force.

    Args:
        source: Where candidates come from.
        store: Where the last good policies are kept.
        stages: Takes candidates through their stages.
        world: What the trial decides on, and what has to be known before a switch.
        on_switch: Puts a loaded revision in force.
        tell: Writes events; nothing is written while `is_active` is False.
        metrics, clock: Measure.
        save_timeout, load_timeout: Seconds for which a new leader waits for *store*.
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
        tell: Tell,
        metrics: Metrics,
        clock: Clock,
        save_timeout: float = _SAVE_TIMEOUT,
        load_timeout: float = _LOAD_TIMEOUT,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._store = store
        self._stages = stages
        self._world = world
        self._on_switch = on_switch
        self._tell = tell
        self._metrics = metrics
        self._clock = clock
        self._save_timeout = save_timeout
        self._load_timeout = load_timeout
        self._sleep = sleep
        self._offer: Offer | None = None  # not looked at yet
        self._latest: Offer | None = None
        self._offered = asyncio.Event()
        self._reference: Reference | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._probation: asyncio.Task[None] | None = None
        self._active: LoadedRevision | None = None
        self._previous: LoadedRevision | None = None
        self._last_good: LastGood | None = None
        self._unsaved: LastGood | None = None
        self._is_unread = False  # nobody knows what is in the store: nothing is saved over it
        self._accepted_at = 0.0
        self._last_rejected: dict[str, Any] | None = None
        self._is_source_gone = False
        self._untold = ""  # the revision that came into force while somebody else led
        self._history: deque[dict[str, Any]] = deque(maxlen=_HISTORY)
        self._saving = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self.counts = DecisionCounts()
        #: False on a standby: it keeps up, and leaves telling and saving to the leader.
        self.is_active = True

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> LoadedRevision:
        """Choose what is in force at first, before there is a snapshot to try it on.

        The source's policies if they pass checks and tests; else the last good ones; else the
        built-in ones, loudly. Waits for the source as long as it takes: nothing is decided before
        it is known what it says.
        """
        # 1. What the source says now, and what was in force before.
        self._tasks.append(asyncio.ensure_future(self._follow_source()))
        await self._offered.wait()
        self._last_good = await self._load_in_time(
            "the source's policies are examined as at a first start"
        )
        offer = self._next_offer()
        # 2. The source's, unless they do not pass.
        chosen: LoadedRevision | None = None
        if offer is not None and offer.files is not None:
            try:
                with _faults_reject():
                    chosen = await self._prepare(offer)
            except Rejected as rejection:
                self._reject(rejection, offer)
        elif offer is not None:
            self._source_gone(offer)
        # 3. The last good, 4. the built-in ones.
        loaded = chosen or await self._prepare_last_good() or await self._prepare_builtin()
        self._put_in_force(loaded)
        return loaded

    async def run(self) -> None:
        """Try the first policies on the live snapshot, then follow the source until cancelled."""
        self._tasks.append(asyncio.ensure_future(self._keep_saving()))
        try:
            await self._try_first()
            while True:
                await self._offered.wait()
                offer = self._next_offer()
                if offer is not None:
                    await self._consider(offer)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the tasks and the sandboxes."""
        tasks = [t for t in (*self._tasks, self._probation) if t is not None]
        self._tasks.clear()
        self._probation = None
        await cancelled(tasks)
        # What was accepted a moment ago must be found again after a restart.
        await self._save_soon()
        self._stages.close()
        for loaded in (self._active, self._previous):
            if loaded is not None:
                self._dispose(loaded)
        self._active = self._previous = None
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _dispose(self, loaded: LoadedRevision) -> None:
        """Close what decides no more, in a thread: a sandbox may take its time to end."""
        task = asyncio.ensure_future(asyncio.to_thread(loaded.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def lead(self) -> None:
        """This process leads from now on: it saves, tells, and follows the leader before it.

        A standby judges candidates for itself, without load. What the last leader took back, or
        kept in force while we fell back to less, is in the store.
        """
        self.is_active = True
        await self._take_over(await self._load_in_time("what is in force stays"))

    async def _take_over(self, stored: LastGood | None) -> None:
        """Go on from what is *stored*; None if nothing is, or if it cannot be read."""
        active = self.active
        adopted: LoadedRevision | None = None
        if stored is not None:
            ours = self._last_good if self._last_good is not None else stored
            self._last_good = replace(ours, rolled_back=stored.rolled_back)
            is_taken_back = active.bundle.revision in stored.rolled_back
            is_makeshift = active.origin != self._source.name
            if stored.revision != active.bundle.revision and (is_taken_back or is_makeshift):
                self._last_good = stored
            if self._unsaved is not None:
                self._unsaved = self._last_good  # the one before does not know what was taken back
            if self._last_good is stored:
                adopted = await self._prepare_last_good()
                if adopted is not None:
                    await self._fall_back(adopted, active)
        active = self.active
        if active.origin == self._source.name:
            # Whoever led before has saved what he told of.
            if self._untold == active.bundle.revision and (
                stored is None or stored.revision != self._untold
            ):
                self._told_accepted(active)
            self._remember(active)
        await self._save_soon()
        is_otherwise = self._last_rejected is not None or adopted is not None
        if self._latest is not None and (is_otherwise or self._is_source_gone):
            self._take_offer(self._latest)  # judged again, and told this time

    async def _follow_source(self) -> None:
        """Run the source for ever; a fault in it must not end the following."""
        while True:
            try:
                await self._source.run(self._take_offer)
            except Exception:
                log.exception("Unexpected exception in the source of policies")
            await self._sleep(_SOURCE_RESTART_SECONDS)

    # --- a candidate -----------------------------------------------------------------------

    def _take_offer(self, offer: Offer) -> None:
        # Only the newest counts: what is replaced before it was looked at need not be.
        self._offer = self._latest = offer
        if offer.reference is not None:
            self._reference = offer.reference
        self._offered.set()

    def _next_offer(self) -> Offer | None:
        self._offered.clear()
        offer, self._offer = self._offer, None
        return offer

    async def _consider(self, offer: Offer) -> None:
        """Take an offer through all stages; on success it is in force when this returns."""
        if offer.files is None:
            self._source_gone(offer)
            return
        was_gone, self._is_source_gone = self._is_source_gone, False
        started = before = self._clock.monotonic()
        candidate: LoadedRevision | None = None
        took: dict[str, float] = {}

        def note(stage: str) -> None:
            nonlocal before
            now = self._clock.monotonic()
            took[f"{stage}_ms"] = round((now - before) * 1000, 1)
            before = now

        try:
            with _faults_reject():
                bundle = await self._build(offer)
                note("check")
                if self._active is not None and bundle.revision == self._active.bundle.revision:
                    self._unchanged(self._active, was_gone)
                    await self._save()
                    return
                self._refuse_rolled_back(bundle.revision)
                await self._stages.test(bundle, offer.files)
                note("test")
                candidate = await self._load_as(self._source.name, bundle, offer.files)
                measure = self._active
                if measure is not None:
                    await candidate.follow(measure)
                note("load")
                await self._stages.try_out(candidate, self._world)
                note("trial")
                await self._world.prepare(bundle)
                # What it would be taken back to may be another by now, or while that is looked at.
                while (back_to := self._proven()) is not measure:
                    measure = back_to
                    if measure is not None:
                        await candidate.compare(measure)
                note("facts")
        except Rejected as rejection:
            if candidate is not None:
                self._dispose(candidate)
            self._reject(rejection, offer)
            return
        finally:
            self._metrics.reload_seconds.observe(self._clock.monotonic() - started)
        self._accept(candidate, started, took)
        await self._save()

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
        if self._last_good is None or bundle.revision != self._last_good.revision:
            await self._stages.test(bundle, files)  # the last good ones have passed theirs before
        return await self._load_as(self._source.name, bundle, files)

    async def _prepare_last_good(self) -> LoadedRevision | None:
        last_good = self._last_good
        if last_good is None or not last_good.revision:
            return None
        try:
            with _faults_reject():
                bundle = await self._stages.build(last_good.files)
                loaded = await self._load_as("last-good", bundle, last_good.files)
        except Rejected as rejection:
            log.error("The last good policies do not load any more", reason=rejection.note())
            return None
        log.warning("Running the last good policies", revision=bundle.revision)
        return loaded

    async def _prepare_builtin(self) -> LoadedRevision:
        bundle = await self._stages.build({})
        loaded = await self._load_as("builtin", bundle, {})
        log.error(
            "No usable policies: running the built-in ones alone",
            source=self._source.name,
            revision=bundle.revision,
        )
        return loaded

    async def _load_as(
        self, origin: str, bundle: Bundle, files: Mapping[str, str]
    ) -> LoadedRevision:
        loaded = await self._stages.load(bundle, files)
        loaded.origin = origin
        return loaded

    async def _try_first(self) -> None:
        """The trial of the policies chosen at start, now that there is a snapshot."""
        await self._world.until_idle()  # the first decisions need the cores more
        first = self._active
        assert first is not None
        # The one in force is busy deciding; the trial needs a sandbox of its own.
        twin: LoadedRevision | None = None
        try:
            twin = await self._stages.load(first.bundle, first.files)
            await twin.follow(first)
            await self._stages.try_out(twin, self._world)
        except Rejected as rejection:
            if first.origin == "builtin":
                log.error("The built-in policies failed their trial", reason=rejection.note())
                return
            self._reject(rejection, Offer(first.files, reference=self._reference))
            fallback = None
            if self._last_good is not None and self._last_good.revision != first.bundle.revision:
                fallback = await self._prepare_last_good()
            await self._fall_back(fallback or await self._prepare_builtin(), first)
        except Exception:
            # A fault of ours in the trial: what was checked, tested and loaded goes on deciding.
            log.exception("Unexpected exception while trying the first policies")
        else:
            if self._active is first and first.origin == self._source.name:
                self._told_accepted(first)
                self._remember(first)
                await self._save()
        finally:
            if twin is not None:
                self._dispose(twin)

    def _refuse_rolled_back(self, revision: str) -> None:
        if self._last_good is not None and revision in self._last_good.rolled_back:
            text = f"revision `{revision}` was taken back before; change the policies to try again"
            raise Rejected("rolled_back", [Problem("", 0, 0, text)], revision)

    # --- outcomes --------------------------------------------------------------------------

    def _put_in_force(self, loaded: LoadedRevision) -> None:
        old, self._active = self._active, loaded
        self._accepted_at = self._clock.now()
        self.counts = _counts_for(loaded)
        self._metrics.set_revision(loaded.bundle.revision, self._accepted_at)
        if warnings := loaded.bundle.warnings:
            revision, reason = loaded.bundle.revision, first_of(warnings)
            log.warning("Policies have warnings", revision=revision, reason=reason)
        self._on_switch(loaded, old)

    def _switch(self, loaded: LoadedRevision, *, keep_previous: bool) -> None:
        """Put *loaded* in force; what is proven is kept for a probation, the rest closed."""
        before = self._active, self._previous
        kept = self._proven() if keep_previous else None
        if self._probation is not None:
            self._probation.cancel()
            self._probation = None
        self._put_in_force(loaded)
        self._previous = kept
        for old in before:
            if old is not None and old is not kept:
                self._dispose(old)
        if kept is not None:
            self._probation = asyncio.ensure_future(self._watch(loaded))

    def _proven(self) -> LoadedRevision | None:
        """What an edit that comes into force now would be taken back to.

        What is in force, unless it is on probation and has shown nothing yet: an edit on top of a
        bad one must not make that the one to go back to, nor the measure of what has changed.
        """
        active, previous = self._active, self._previous
        if active is None or previous is None:
            return active
        counts, bounds = self.counts, active.bundle.runtime.fallback
        is_enough = counts.decisions >= bounds.min_decisions and not counts.stalled
        return active if is_enough and out_of_bounds(counts, bounds) is None else previous

    async def _fall_back(self, loaded: LoadedRevision, before: LoadedRevision) -> None:
        """Put *loaded* in force instead of *before*; not over an edit that came meanwhile."""
        await self._world.prepare(loaded.bundle)
        if self._active is before:
            self._switch(loaded, keep_previous=False)
        else:
            self._dispose(loaded)

    def _accept(self, candidate: LoadedRevision, started: float, took: Mapping[str, float]) -> None:
        self._switch(candidate, keep_previous=True)
        self._last_rejected = None
        self._metrics.policy_reloads.labels("accepted").inc()
        self._metrics.last_reload_ok.set(1)
        duration_ms = round((self._clock.monotonic() - started) * 1000, 1)
        revision = candidate.bundle.revision
        log.info("Policies in force", revision=revision, duration_ms=duration_ms, **took)
        self._note("accepted", revision, duration_ms=duration_ms)
        self._told_accepted(candidate)
        self._remember(candidate)

    def _told_accepted(self, loaded: LoadedRevision) -> None:
        self._untold = "" if self.is_active else loaded.bundle.revision
        if not self.is_active or self._reference is None:
            return
        count = len(loaded.files)
        note = f"revision {loaded.bundle.revision} is in force ({count} files)"
        if loaded.bundle.warnings:
            note += f"; warning: {first_of(loaded.bundle.warnings)}"
        self._tell(self._reference, NORMAL, ACCEPTED_REASON, note, loaded.bundle.revision)

    def _reject(self, rejection: Rejected, offer: Offer) -> None:
        note = rejection.note()
        revision = rejection.revision or digest(offer.files or {})
        self._metrics.policy_reloads.labels("rejected").inc()
        self._metrics.last_reload_ok.set(0)
        in_force = self._active.bundle.revision if self._active is not None else ""
        log.error(
            "Policies rejected",
            revision=revision,
            stage=rejection.stage,
            reason=note,
            in_force=in_force,
        )
        problems = _plain(rejection.problems)
        self._last_rejected = self._note(
            "rejected", revision, stage=rejection.stage, note=note, problems=problems
        )
        reference = offer.reference or self._reference
        if self.is_active and reference is not None:
            self._tell(reference, WARNING, REJECTED_REASON, note, revision)

    def _unchanged(self, active: LoadedRevision, was_gone: bool) -> None:
        """The source says what is in force already: a comment in another key, or a revert.

        Told if the last that was said of it was something else: who mends the source looks there.
        """
        is_news = was_gone or self._last_rejected is not None or active.origin != self._source.name
        self._last_rejected = None
        self._metrics.policy_reloads.labels("unchanged").inc()
        self._metrics.last_reload_ok.set(1)
        if is_news:
            active.origin = self._source.name
            log.info("The source says what is in force", revision=active.bundle.revision)
            self._note("unchanged", active.bundle.revision)
            self._told_accepted(active)
            self._remember(active)

    def _source_gone(self, offer: Offer) -> None:
        self._is_source_gone = True
        log.warning(
            "The policies' source is gone; what is in force stays", source=self._source.name
        )
        self._note("source_gone", self._active.bundle.revision if self._active else "")
        if self.is_active and offer.reference is not None:
            note = "the policies' source is gone; what is in force stays"
            self._tell(offer.reference, WARNING, SOURCE_GONE_REASON, note, "")

    # --- probation -------------------------------------------------------------------------

    async def _watch(self, loaded: LoadedRevision) -> None:
        """Take *loaded* back if it gets out of bounds; let go of its predecessor if not."""
        bounds = loaded.bundle.runtime.fallback
        ends_at = self._clock.monotonic() + bounds.window.total_seconds()
        while self._clock.monotonic() < ends_at:
            await self._sleep(_PROBATION_TICK)
            why = out_of_bounds(self.counts, bounds)
            if why is not None:
                await self._roll_back(loaded, why)
                return
        self._probation = None
        if self._previous is not None:
            self._dispose(self._previous)
            self._previous = None

    async def _roll_back(self, bad: LoadedRevision, why: str) -> None:
        if self._previous is not None:
            await self._world.prepare(self._previous.bundle)
        previous, self._previous = self._previous, None
        assert previous is not None
        revision, back_to = bad.bundle.revision, previous.bundle.revision
        self._probation = None
        self._put_in_force(previous)
        previous.origin = "rolled-back"
        self._dispose(bad)
        self._metrics.policy_reloads.labels("rolled_back").inc()
        self._metrics.last_reload_ok.set(0)
        log.error("Policies rolled back", revision=revision, in_force=back_to, reason=why)
        note = f"revision {revision} was taken back: {why}; revision {back_to} is in force"
        self._last_rejected = self._note(
            "rolled_back", revision, stage="probation", note=note, problems=[]
        )
        if self.is_active and self._reference is not None:
            self._tell(self._reference, WARNING, ROLLED_BACK_REASON, note, revision)
        rolled_back = (self._last_good or LastGood()).without(revision)
        self._last_good = self._unsaved = LastGood(back_to, dict(previous.files), rolled_back)
        await self._save()

    # --- memory ----------------------------------------------------------------------------

    def _remember(self, loaded: LoadedRevision) -> None:
        rolled_back = self._last_good.rolled_back if self._last_good is not None else ()
        last_good = LastGood(loaded.bundle.revision, dict(loaded.files), rolled_back)
        if last_good != self._last_good:
            self._last_good = self._unsaved = last_good

    async def _load(self) -> LastGood | None:
        """What was saved last, or None; a store that cannot be read is asked a few times."""
        for attempt in range(1, _LOAD_TRIES + 1):
            try:
                return await self._store.load()
            except StoreError as error:
                log.warning("Cannot read the last good policies", reason=str(error))
                if attempt < _LOAD_TRIES:
                    await self._sleep(_LOAD_PAUSE_SECONDS)
        return None

    async def _load_in_time(self, instead: str) -> LastGood | None:
        """As `_load`, but somebody waits: what takes longer is asked for again by `_keep_saving`.

        *instead* is what happens until then, for the log.
        """
        try:
            async with asyncio.timeout(self._load_timeout):
                stored = await self._load()
        except TimeoutError:
            reason = f"no answer for {self._load_timeout:g} s"
            log.warning("Cannot read the last good policies", reason=reason, until_then=instead)
            self._is_unread = True
            return None
        self._is_unread = False
        return stored

    async def _read_at_last(self) -> None:
        """Take over what a store that did not answer holds, as soon as it does.

        Until then what was taken back may be in force again, for nobody knew.
        """
        if not self._is_unread or not self.is_active:
            return
        ours = self._last_good.rolled_back if self._last_good is not None else ()
        stored = await self._load_in_time("what is in force stays")
        if self._is_unread:
            return
        if stored is not None:
            log.info("Read the last good policies", revision=stored.revision)
            for revision in ours:
                if revision not in stored.rolled_back:
                    stored = replace(stored, rolled_back=stored.without(revision))
        await self._take_over(stored)

    async def _save(self) -> None:
        if self._unsaved is None or not self.is_active or self._is_unread:
            return
        async with self._saving:
            unsaved = self._unsaved
            if unsaved is None:
                return
            try:
                is_saved = await self._store.save(unsaved)
            except StoreError as error:
                # In force all the same; tried again, or saved with the next change.
                log.warning("Cannot save the last good policies", reason=str(error))
                return
            if is_saved and self._unsaved is unsaved:
                self._unsaved = None

    async def _save_soon(self) -> None:
        """As `_save`, but somebody waits: what takes longer is `_keep_saving`'s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._save_timeout):
                await self._save()

    async def _keep_saving(self) -> None:
        """Save what could not be saved, or was deleted, as soon as possible, until cancelled.

        A restart must neither find an older state, nor try again what was taken back.
        """
        pause = _SAVE_AGAIN_SECONDS
        while True:
            await self._sleep(pause)
            await self._read_at_last()
            await self._look_for_loss()
            await self._save()
            is_saved = self._unsaved is None or not self.is_active or self._is_unread
            pause = _SAVE_AGAIN_SECONDS if is_saved else min(2 * pause, _LONGEST_SAVE_PAUSE)

    async def _look_for_loss(self) -> None:
        """Have the last good policies saved again that somebody has deleted."""
        kept = self._last_good
        if kept is None or self._unsaved is not None or not self.is_active or self._is_unread:
            return
        if not kept.revision and not kept.rolled_back:
            return  # looks the same when it is there
        with contextlib.suppress(StoreError):  # asked again soon
            if await self._store.is_lost():
                log.warning("The last good policies were deleted; saving them again")
                self._unsaved = self._last_good

    def _note(self, result: str, revision: str, **more: Any) -> dict[str, Any]:
        entry = {"at": self._clock.now(), "result": result, "revision": revision, **more}
        self._history.append(entry)
        return entry

    def describe(self) -> dict[str, Any]:
        """The state as plain data, for `/policies`."""
        active = self._active
        in_force: dict[str, Any] | None = None
        if active is not None:
            in_force = {
                "revision": active.bundle.revision,
                "origin": active.origin,
                "since": self._accepted_at,
                "files": sorted(active.files),
                "profiles": [profile.scheduler_name for profile in active.bundle.profiles],
                "decisions": self.counts.decisions,
                "failed_decisions": self.counts.failed,
                "lost_seconds": round(self.counts.lost_seconds, 3),
                "on_probation": self._previous is not None,
                "warnings": _plain(active.bundle.warnings),
            }
        return {
            "source": {"name": self._source.name, "gone": self._is_source_gone},
            "active": in_force,
            "last_rejected": self._last_rejected,
            "last_good": self._last_good.revision if self._last_good is not None else None,
            "rolled_back": list(self._last_good.rolled_back) if self._last_good else [],
            "history": list(self._history),
        }

    @property
    def active(self) -> LoadedRevision:
        """What is in force. Raises `LookupError` before `start` and after `stop`."""
        if self._active is None:
            raise LookupError("no policies are in force")
        return self._active


def _plain(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The problems as `/policies` tells them."""
    return [
        {
            "file": problem.file,
            "line": problem.line,
            "column": problem.column,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
