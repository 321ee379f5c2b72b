"""Makes revisions of what is offered, saved or built in, and refuses what was given up before.

Owns which of these are tried, and in which order. Building, testing and loading is `trial`'s, what
the last resort is `last_resort`'s.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import structlog

from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.evaluator import Files
from engine.rollout.control import AT_ONCE, RolloutControl
from engine.rollout.inbox import CandidateInbox
from engine.rollout.last_resort import BUILTIN, WAITING, LastResort
from engine.rollout.losses import count_losses
from engine.rollout.measures import NO_LOSSES, Losses
from engine.rollout.saved_policies import SavedPolicies
from engine.rollout.sources import Offer
from engine.rollout.staging import Superseded, promoted
from engine.rollout.trial import BuiltRevision, CandidateStages, LoadedRevision, Rejected, World

log = structlog.get_logger(component="rollout")

#: The stage of a fault of ours.
INTERNAL: Final = "internal"
#: Stages that fail for want of memory or of a live sandbox, too: the same text may pass later.
PASSING_STAGES: Final = frozenset({"load", INTERNAL})
_START_AGAIN_SECONDS: Final = 5.0
_ADDED: Final = "it was added beside the files of the chart: an upgrade or a rollback leaves it"
_ADDED_HINT: Final = "give it to the chart in `policyFiles`, or remove its key from the ConfigMap"


@contextlib.contextmanager
def faults_reject() -> Iterator[None]:
    """Reject the candidate on an unexpected exception, which must end neither start nor `run`."""
    try:
        yield
    except (Rejected, Superseded):
        raise
    except Exception as error:
        log.exception("Unexpected exception while examining policies")
        problem = Problem("", 0, 0, f"internal error: {type(error).__name__}: {error}")
        raise Rejected(INTERNAL, [problem]) from error


class Preparing:
    """Makes revisions that can decide; each but a saved one is refused if it was given up before.

    Args:
        source_name: How the operator wrote the source.
        stages: Builds, tests and loads.
        saved: What was saved.
        last_resort: What is in force where nothing else is usable.
        inbox: Says what its authors mean; what may load later is offered again.
        control: Who may skip stages wants this.
        sleep: Waits between two starts of a sandbox that nothing can replace.

    Attributes:
        last_good_may_load: The last good policies did not load, and may do so later.
        may_pass: Set when something did not load that may do so later.
        waits_for: Why every pod waits, while that is so.
    """

    def __init__(
        self,
        source_name: str,
        stages: CandidateStages,
        saved: SavedPolicies,
        last_resort: LastResort,
        inbox: CandidateInbox,
        control: RolloutControl,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._source_name = source_name
        self._stages = stages
        self._saved = saved
        self._last_resort = last_resort
        self._inbox = inbox
        self._control = control
        self._sleep = sleep
        self.last_good_may_load = False
        self.may_pass = asyncio.Event()
        self.waits_for = ""

    async def build(self, offer: Offer) -> Bundle:
        """The bundle of *offer*. Raises `Rejected`."""
        if offer.problems:
            raise Rejected("read", offer.problems)
        assert offer.files is not None
        bundle = await self._stages.build(offer.files)
        if not offer.added:
            return bundle
        added = (Problem(name, 0, 0, _ADDED, _ADDED_HINT, "warning") for name in offer.added)
        return dataclasses.replace(bundle, warnings=(*bundle.warnings, *added))

    async def offered(self, offer: Offer) -> LoadedRevision:
        """The revision of *offer*, checked, tested and loaded, not tried. Raises `Rejected`."""
        bundle = await self.build(offer)
        files = offer.files or {}
        self.refuse_rolled_back(bundle.revision)
        if bundle.revision != self._saved.revision:
            await self._stages.test(bundle, files)  # the last good ones have passed theirs before
        return await self.load(self._source_name, bundle, files)

    async def load(self, origin: str, bundle: Bundle, files: Mapping[str, str]) -> LoadedRevision:
        """*bundle* with a sandbox; *origin* is where it comes from. Raises `Rejected`."""
        loaded = await self._stages.load(bundle, files)
        loaded.origin = origin
        return loaded

    async def last_good(self) -> LoadedRevision | None:
        """The last good policies; None if there are none, or if they do not load."""
        last_good = self._saved.last_good
        if last_good is None or not last_good.revision:
            return None
        try:
            with faults_reject():
                bundle = await self._stages.build(last_good.files)
                loaded = await self.load("last-good", bundle, last_good.files)
        except Rejected as rejection:
            log.error("The last good policies do not load any more", reason=rejection.note())
            self.last_good_may_load = rejection.stage in PASSING_STAGES
            if self.last_good_may_load:
                self.may_pass.set()
            return None
        self.last_good_may_load = False
        log.warning("Running the last good policies", revision=bundle.revision)
        return loaded

    @property
    def has_builtin(self) -> bool:
        """True if the operator wants the built-in policies to decide then."""
        return self._last_resort.when_none == BUILTIN

    async def builtin(self, offered: Files | None) -> LoadedRevision:
        """The built-in policies, for the profiles of *offered*. Raises `Rejected`."""
        files: Files = {}
        # A fault in reading what is offered must not keep the built-in ones from a start.
        with contextlib.suppress(Rejected), faults_reject():
            files = self._last_resort.builtin(offered)
        bundle = await self._stages.build(files)
        loaded = await self.load("builtin", bundle, files)
        log.error(
            "No usable policies: running the built-in ones alone",
            source=self._source_name,
            revision=bundle.revision,
            profiles=", ".join(profile.scheduler_name for profile in bundle.profiles),
        )
        return loaded

    async def _waiting(self, offered: Files | None, why: str) -> LoadedRevision:
        reason = f"no policies are in force from {self._source_name}"
        try:
            bundle, files = await asyncio.to_thread(self._last_resort.waiting, offered, reason)
        except Exception:
            # What is offered names profiles that cannot be: the pods of the others wait.
            log.exception("Unexpected exception while reading the names of profiles")
            bundle, files = await asyncio.to_thread(self._last_resort.waiting, None, reason)
        loaded = await self.load(WAITING, bundle, files)
        log.error(
            "No usable policies: every pod waits",
            source=self._source_name,
            reason=why,
            profiles=", ".join(profile.scheduler_name for profile in bundle.profiles),
            hint="correct the policies; --when-no-policies=builtin has the built-in ones decide",
        )
        return loaded

    async def last_resort_at_last(self, offered: Files | None, why: str) -> LoadedRevision:
        """The last resort, however often its sandbox dies: nothing else could be in force."""
        self.waits_for = f"no policies are in force from {self._source_name}: {why}"
        # No files are a choice, too: that of the built-in policies.
        is_wanted = self.has_builtin or offered == {}
        while True:
            try:
                if is_wanted:
                    return await self.builtin(offered)
                return await self._waiting(offered, why)
            except Rejected as rejection:
                log.error("Not even the built-in policies load", reason=rejection.note())
            self._inbox.repeat()  # may load, too, when these do
            await self._sleep(_START_AGAIN_SECONDS)

    async def is_to_be_staged(self, offer: Offer, chosen: LoadedRevision) -> bool:
        """True if *chosen* has to pass stages before it replaces the last good policies."""
        last_good = self._saved.last_good
        if last_good is None or last_good.revision in ("", chosen.bundle.revision):
            return False
        try:
            with faults_reject():
                bundle = await self._stages.build(last_good.files)
        except Rejected:
            return False
        return offer.is_stopped or bundle.runtime.rollout.is_staged

    async def losses_since_last_good(self, first: LoadedRevision, world: World) -> Losses:
        """What *first* takes away next to what was in force before this process began."""
        last_good = self._saved.last_good
        if last_good is None or last_good.revision in ("", first.bundle.revision):
            return NO_LOSSES
        try:
            bundle = await self._stages.build(last_good.files)
        except Rejected:
            return NO_LOSSES  # it could not be gone back to either
        before = BuiltRevision(bundle, last_good.files)
        return await count_losses(self._stages, first, before, world)

    def refuse_rolled_back(self, revision: str) -> None:
        """Raise `Rejected` if *revision* was rolled back before."""
        if revision in self._saved.rolled_back:
            text = f"revision `{revision}` was rolled back before; change the policies to try again"
            how = self._inbox.how_to_mean(revision)
            hint = f"if the pods that it keeps waiting are to wait, {how}" if how else ""
            raise Rejected("rolled_back", [Problem("", 0, 0, text, hint)], revision)

    def refuse_refused(self, revision: str, base: LoadedRevision) -> None:
        """Raise `Rejected` if a gate refused *revision* next to *base*, which is in force."""
        in_force = base.bundle.revision
        if self._saved.knows(revision) or not self._saved.has_refused(revision, in_force):
            return
        control = self._control.current
        is_allowed = control.promotes(revision) or control.mode == AT_ONCE
        if is_allowed or self._inbox.means(revision):
            return
        text = (
            f"revision `{revision}` was refused by a gate next to `{in_force}`, which is in force"
        )
        hint = f"change the policies to try again, or {promoted(revision)}"
        if how := self._inbox.how_to_mean(revision):
            hint += f"; if what it moves or takes away is meant, {how}"
        raise Rejected("refused", [Problem("", 0, 0, text, hint)], revision)
