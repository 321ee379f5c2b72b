"""What happened in the last hour, for the next leader: saved every minute by this one.

Owns when it is read and saved, next to what is learned of pods in the same store. No decision waits
for it: a leader reads it while it decides, and saves nothing before it has read what was there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from engine.io.facts.learned import LearnedStore, LearnedStoreError
from engine.io.facts.source import ProblemLog
from engine.lib.deep_json import UNREADABLE
from engine.lib.saved_state import Unread
from engine.surfaces.live.activity import Activity, History

#: The key that it is saved under.
NAME: Final = "activity"

_SAVE_SECONDS: Final = 60.0
_LOAD_AGAIN_SECONDS: Final = 10.0


class KeptActivity:
    """Restores *activity* from *store*, and saves it there.

    Args:
        activity: What happened.
        store: Where it is saved.
        may_save: False while another replica is to save.
        sleep: Waits.
    """

    def __init__(
        self,
        activity: Activity,
        store: LearnedStore,
        *,
        may_save: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._activity = activity
        self._store = store
        self._may_save = may_save
        self._sleep = sleep
        self._problems = ProblemLog("activity")

    async def run(self) -> None:
        """Restore it, then save it, until cancelled. To be run by a leader."""
        while not await self._restored():
            await self._sleep(_LOAD_AGAIN_SECONDS)
        while True:
            await self._sleep(_SAVE_SECONDS)
            if self._may_save():
                await self._save()

    async def _restored(self) -> bool:
        """Read what was saved; False if it cannot be read."""
        try:
            text = await self._store.load(NAME)
            if text is not None:
                self._activity.restore(msgspec.json.decode(text, type=History))
        except (Unread, *UNREADABLE) as error:
            self._problems.report("Cannot read what happened before", str(error))
            return False
        self._problems.clear()
        return True

    async def _save(self) -> None:
        try:
            await self._store.save(NAME, msgspec.json.encode(self._activity.history()))
            self._problems.clear()
        except LearnedStoreError as error:
            self._problems.report("Cannot save what happened", str(error))
