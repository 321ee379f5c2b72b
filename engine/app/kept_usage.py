"""What queues used in the past, for the next start: saved every minute by the leader.

Owns its form, beside what is learned of pods in the same store, and how much of it is saved. Every
replica follows what queues use, so that a new leader knows as much; a process that starts goes on
from what was saved, with the time that has passed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from engine.core.kernel.events import Event, UsageRestored
from engine.core.kernel.queue_shares import QueueShares
from engine.io.facts.learned import LearnedStore, LearnedStoreError
from engine.io.facts.source import ProblemLog
from engine.lib.clock import Clock
from engine.lib.deep_json import UNREADABLE
from engine.lib.saved_state import SavedState, SavedStates, Unread

log = structlog.get_logger(component="app")

#: The key that it is saved under.
NAME: Final = "queue-usage"
#: In logs, metrics and `/readyz`.
STATE: Final = "learned:queue-usage"

_SAVE_SECONDS: Final = 60.0
# Of a ConfigMap, which holds a mebibyte and what else is learned: some 3,000 queues.
_MOST_BYTES: Final = 256 * 1024


class SavedUsage(msgspec.Struct, frozen=True):
    """What is saved: billionths of the cluster by path and resource, at a time of the epoch."""

    at: float
    queues: dict[str, dict[str, int]]


class KeptUsage:
    """Saves what queues used, and restores it.

    Args:
        shares: The queues.
        store: Where it is saved.
        states: Reads it until that succeeds.
        may_save: False while another replica is to save.
        report: Takes what was read, as an event.
        clock: Time.
    """

    def __init__(
        self,
        shares: QueueShares,
        store: LearnedStore,
        *,
        states: SavedStates,
        may_save: Callable[[], bool],
        report: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self._shares = shares
        self._store = store
        self._states = states
        self._may_save = may_save
        self._report = report
        self._clock = clock
        self._kept: SavedState[SavedUsage | None] | None = None
        self._problems = ProblemLog(STATE)

    def begin(self) -> None:
        """Have decisions wait for what was saved, if the policies in force keep it."""
        if self._shares.keeps_usage:
            message = "Cannot read what queues used"
            self._kept = self._states.add(STATE, self._load, message)

    async def run(self) -> None:
        """Restore it, then save it, until cancelled."""
        if self._kept is not None:
            await self._restore(self._kept)
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            if self._shares.keeps_usage and self._may_save():
                await self._save()

    async def _restore(self, state: SavedState[SavedUsage | None]) -> None:
        while not state.is_known:
            # Going on without it would in the end overwrite it.
            with contextlib.suppress(Unread):
                kept = await state.read()
        if kept is not None:
            age = max(0.0, self._clock.now() - kept.at)
            self._report(UsageRestored(kept.queues, age))
            log.info("Restored what queues used", queues=len(kept.queues), age_seconds=round(age))

    async def _load(self) -> SavedUsage | None:
        """What was saved; None if nothing was. Raises `Unread`."""
        try:
            text = await self._store.load(NAME)
            return None if text is None else msgspec.json.decode(text, type=SavedUsage)
        except UNREADABLE as error:
            raise Unread(f"what was saved as `{NAME}` is damaged: {error}") from error

    async def _save(self) -> None:
        used = self._shares.usage_to_save(self._clock.monotonic())
        saved = SavedUsage(self._clock.now(), _bounded(used))
        try:
            await self._store.save(NAME, msgspec.json.encode(saved))
            self._problems.clear()
        except LearnedStoreError as error:
            self._problems.report("Cannot save what queues used", str(error))


def _bounded(used: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Of *used*, as much as may be saved, in its order."""
    kept: dict[str, dict[str, int]] = {}
    left = _MOST_BYTES
    for path, parts in used.items():
        left -= len(msgspec.json.encode({path: parts}))
        if left < 0:
            break
        kept[path] = dict(parts)
    return kept
