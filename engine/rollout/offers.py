"""The offers of a policy source, of which only the newest counts.

Owns following the source and starting it again. What becomes of an offer is `rollout`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from engine.binding.event_recorder import Reference
from engine.rollout.sources import Offer, PolicySource

log = structlog.get_logger(component="rollout")

_RESTART_SECONDS: Final = 5.0


class Offers:
    """The offers of *source*, one at a time.

    Attributes:
        latest: The newest offer, taken or not.
        reference: The object that the newest offers come from, for events; None if there is none.
    """

    def __init__(self, source: PolicySource, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._source = source
        self._sleep = sleep
        self._waiting: Offer | None = None
        self._arrived = asyncio.Event()
        self.latest: Offer | None = None
        self.reference: Reference | None = None

    async def follow(self) -> None:
        """Run the source until cancelled; an exception in it only starts it again."""
        while True:
            try:
                await self._source.run(self.add)
            except Exception:
                log.exception("Unexpected exception in the source of policies")
            await self._sleep(_RESTART_SECONDS)

    def add(self, offer: Offer) -> None:
        """Offer *offer* in place of one that was not taken yet."""
        self._waiting = self.latest = offer
        if offer.reference is not None:
            self.reference = offer.reference
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
