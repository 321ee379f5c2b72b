"""The last good policies as this process knows them, and saving them to the store.

Owns when the store is read and written, and what a new leader takes over from it. The stores are
`last_good`'s, what is good is `rollout`'s.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog

from engine.lib.saved_state import SavedStates, Unread
from engine.rollout.last_good import LastGood, Progress, Store, StoreError
from engine.rollout.trial import LoadedRevision

log = structlog.get_logger(component="rollout")

#: Pods wait to be decided: a store that takes nothing holds up a start or a new leader no longer
#: than this. It is written again in the background.
SAVE_TIMEOUT: Final = 2.0
_SAVE_AGAIN_SECONDS: Final = 10.0
_LONGEST_SAVE_PAUSE: Final = 300.0


class SavedPolicies:
    """The last good policies of this process and of its store.

    Args:
        store: Where they are saved.
        is_leader: Whether this process may write to *store*.
        states: Reads *store* until that succeeds.
        save_timeout: Seconds for which a start or a new leader waits for *store* to take something.
        sleep: Waits between two looks at *store*.

    Attributes:
        last_good: What is to be found after a restart; None if nothing is known of it.
    """

    def __init__(
        self,
        store: Store,
        is_leader: Callable[[], bool],
        *,
        states: SavedStates,
        save_timeout: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.last_good: LastGood | None = None
        self._store = store
        self._is_leader = is_leader
        self._state = states.add("last-good", store.load, "Cannot read the last good policies")
        self._save_timeout = save_timeout
        self._sleep = sleep
        self._unsaved: LastGood | None = None
        self._is_loading = False
        self._is_everywhere = False  # every store has it, as far as it can be read
        self._saving = asyncio.Lock()

    @property
    def is_unread(self) -> bool:
        """What the store holds is not known, so it must not be overwritten."""
        return not self._state.is_known

    @property
    def revision(self) -> str | None:
        """The revision of the last good policies; "" if none were ever accepted."""
        return self.last_good.revision if self.last_good is not None else None

    @property
    def rolled_back(self) -> tuple[str, ...]:
        """Revisions that were rolled back, the newest last."""
        return self.last_good.rolled_back if self.last_good is not None else ()

    def knows(self, revision: str) -> bool:
        """True if *revision* was in force, and was not given up since."""
        last_good = self.last_good
        if last_good is None or revision in last_good.rolled_back:
            return False
        return revision in (last_good.revision, *last_good.known)

    def has_refused(self, revision: str, base: str) -> bool:
        """True if a gate refused *revision* next to *base*."""
        return self.last_good is not None and f"{revision}/{base}" in self.last_good.refused

    # --- changes -------------------------------------------------------------------------------

    def remember(self, loaded: LoadedRevision) -> None:
        """Have *loaded* saved as the last good policies, unless it was rolled back before."""
        self._set(self._with(loaded, self.rolled_back))

    def remember_rolled_back(self, revision: str, back_to: LoadedRevision) -> None:
        """Have *back_to* saved, and that *revision* was rolled back."""
        self._set(self._with(back_to, (self.last_good or LastGood()).without(revision)))

    def forgive(self, revision: str) -> None:
        """Have saved that *revision* may be tried again: who wrote it has said that it is meant."""
        if revision in self.rolled_back:
            kept = tuple(one for one in self.rolled_back if one != revision)
            self._set(replace(self.last_good or LastGood(), rolled_back=kept))

    def remember_refused(self, revision: str, base: str) -> None:
        """Have saved that a gate refused *revision* next to *base*."""
        last_good = self.last_good or LastGood()
        self._set(replace(last_good, refused=last_good.refusing(revision, base)))

    @property
    def progress(self) -> Progress | None:
        """How far the edit that is on its way had come."""
        return self.last_good.progress if self.last_good is not None else None

    def remember_progress(self, progress: Progress) -> None:
        """Have *progress* saved, with the last good policies."""
        self._set(replace(self.last_good or LastGood(), progress=progress))

    def adopt(self, stored: LastGood, active: str, *, is_fallback: bool) -> bool:
        """Take over what another leader saved; True if its policies are to replace ours.

        They do if the revision *active* was rolled back, or if it was only our fallback: what a
        standby has in force while an edit goes through its stages elsewhere.
        """
        ours = self.last_good if self.last_good is not None else stored
        self.last_good = replace(
            ours,
            rolled_back=stored.rolled_back,
            progress=stored.progress,
            known=stored.known,
            refused=stored.refused,
        )
        is_replaced = stored.revision != active and (active in stored.rolled_back or is_fallback)
        if is_replaced:
            self.last_good = stored
        if self._unsaved is not None:
            self._unsaved = self.last_good  # it did not know what was rolled back
        return is_replaced

    def _with(self, loaded: LoadedRevision, rolled_back: tuple[str, ...]) -> LastGood:
        """*loaded* as the last good policies; those known so far if it is among *rolled_back*.

        A revision that the leader before rolled back may be in force until the store is read and
        its successor is loaded. How far an edit has come is known as long as *loaded* is what it is
        compared with, also to a process that has just begun to lead.
        """
        revision, progress = loaded.bundle.revision, self.progress
        before = self.last_good or LastGood()
        if revision in rolled_back:
            return replace(before, rolled_back=rolled_back)
        if progress is not None and (
            progress.base != revision or progress.candidate in rolled_back
        ):
            progress = None
        known = before.known_before(revision, rolled_back)
        return LastGood(revision, dict(loaded.files), rolled_back, progress, known, before.refused)

    def _set(self, last_good: LastGood) -> None:
        if last_good != self.last_good:
            self.last_good = self._unsaved = last_good

    # --- the store -----------------------------------------------------------------------------

    async def load(self) -> LastGood | None:
        """What the store holds; None if nothing, as soon as it can be read.

        Raises `Unread` after some time if the process is to go on without it then; `keep_saving`
        reads it again, and nothing is saved until that succeeds.
        """
        self._is_loading = True
        self._is_everywhere = False
        try:
            return await self._state.read()
        finally:
            self._is_loading = False

    async def save(self) -> None:
        """Save what is not saved yet; a store that refuses is tried again by `keep_saving`."""
        if self._unsaved is None or not self._may_save():
            return
        async with self._saving:
            unsaved = self._unsaved
            if unsaved is None:
                return
            try:
                is_saved = await self._store.save(unsaved)
            except StoreError as error:
                log.warning("Cannot save the last good policies", reason=str(error))
                return
            self._is_everywhere = is_saved
            if is_saved and self._unsaved is unsaved:
                self._unsaved = None

    async def save_in_time(self) -> None:
        """As `save`, but leave it to `keep_saving` if it takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._save_timeout):
                await self.save()

    async def keep_saving(self, take_over: Callable[[LastGood | None], Awaitable[None]]) -> None:
        """Save what could not be saved, or was deleted, until cancelled.

        A restart must neither find an older state, nor try again what was rolled back. *take_over*
        is called with the content of a store that did not answer when this process began to lead.
        """
        pause = _SAVE_AGAIN_SECONDS
        while True:
            await self._sleep(pause)
            if self.is_unread and not self._is_loading and self._is_leader():
                await self._load_again(take_over)
            await self._restore_deleted()
            await self.save()
            is_saved = self._unsaved is None or not self._may_save()
            pause = _SAVE_AGAIN_SECONDS if is_saved else min(2 * pause, _LONGEST_SAVE_PAUSE)

    def _may_save(self) -> bool:
        return self._is_leader() and not (self.is_unread or self._is_loading)

    async def _load_again(self, take_over: Callable[[LastGood | None], Awaitable[None]]) -> None:
        # A revision that was rolled back earlier may be in force until the store is read.
        ours = self.rolled_back
        try:
            stored = await self._state.once()
        except Unread:
            return
        if stored is not None:
            log.info("Read the last good policies", revision=stored.revision)
            for revision in ours:
                if revision not in stored.rolled_back:
                    stored = replace(stored, rolled_back=stored.without(revision))
        await take_over(stored)

    async def _restore_deleted(self) -> None:
        """Have the last good policies saved again if they were deleted from the store."""
        kept = self.last_good
        if kept is None or self._unsaved is not None or not self._may_save():
            return
        if not kept.revision and not kept.rolled_back:
            return  # an empty state looks the same as none
        with contextlib.suppress(StoreError):  # tried again soon
            if not await self._store.is_lost():
                self._is_everywhere = True
                return
            if self._is_everywhere:
                log.warning("The last good policies were deleted; saving them again")
            else:
                # The state directory of a new pod: nothing was deleted there.
                log.info("Saving the last good policies where they are missing")
            self._unsaved = self.last_good
