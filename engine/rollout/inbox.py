"""The offers of a policy source, of which only the newest counts.

Owns following the source and starting it again. What becomes of an offer is `rollout`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from engine.io.binding.event_recorder import Reference
from engine.lib.short import shortened
from engine.rollout.sources import MEANT_ANNOTATION, Offer, PolicySource

log = structlog.get_logger(component="rollout")

_RESTART_SECONDS: Final = 5.0
# Characters of an annotation.
_SHOWN: Final = 60


class CandidateInbox:
    """The offers of *source*, one at a time.

    Attributes:
        latest: The newest offer, taken or not.
        reference: The object that the newest offers come from, for events; None if there is none.
        stop_changed: Set when `is_stopped` has changed; the component that waits for it clears it.
    """

    def __init__(self, source: PolicySource, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._source = source
        self._sleep = sleep
        self._waiting: Offer | None = None
        self._arrived = asyncio.Event()
        self.latest: Offer | None = None
        self.reference: Reference | None = None
        self.stop_changed = asyncio.Event()

    @property
    def is_stopped(self) -> bool:
        """The kill switch is set."""
        return self.latest is not None and self.latest.is_stopped

    def means(self, revision: str) -> bool:
        """True if who wrote *revision* has said that what it takes away is meant."""
        return self.latest is not None and revision in self.latest.means

    def how_to_mean(self, revision: str) -> str:
        """How to say so, and what is said instead; "" if the source has no place to say it."""
        if self.reference is None:
            return ""
        said = "" if self.latest is None else ", ".join(sorted(self.latest.means))
        instead = f" (it names {shortened(said, _SHOWN)} now)" if said else ""
        return f"annotate the ConfigMap: {MEANT_ANNOTATION}={revision}{instead}"

    def supersedes(self, files: Mapping[str, str]) -> bool:
        """True if an offer that was not taken yet holds something else than *files*.

        One that holds the same, because something else about its object changed, is dropped.
        """
        waiting = self._waiting
        if waiting is None:
            return False
        if waiting.files == files and not waiting.problems:
            self._waiting = None
            return False
        return True

    async def follow(self) -> None:
        """Run the source until cancelled; an exception in it only starts it again."""
        while True:
            try:
                await self._source.run(self.add)
            except Exception:
                log.exception("Unexpected exception in the source of policies")
            await self._sleep(_RESTART_SECONDS)

    def add(self, offer: Offer) -> None:
        """Offer *offer* in place of one that was not taken yet; the switch alone is no edit."""
        before, self.latest = self.latest, offer
        if offer.reference is not None:
            self.reference = offer.reference
        if before is not None and before.is_stopped != offer.is_stopped:
            self.stop_changed.set()
            if (before.files, before.problems) == (offer.files, offer.problems):
                if self._waiting is not None:
                    self._waiting = offer
                return
        self._waiting = offer
        self._arrived.set()

    def repeat(self) -> None:
        """Offer the newest one again."""
        if self.latest is not None:
            self.add(self.latest)

    async def arrived(self) -> None:
        """Return when there is an offer to take."""
        await self._arrived.wait()

    def take(self) -> Offer | None:
        """The offer that waits, or None if there is none."""
        self._arrived.clear()
        offer, self._waiting = self._waiting, None
        return offer
