"""A simulated component of a cluster: it reacts to changes of objects, each some time later.

Owns the subscription to tables and the reactions that are due; what they are is up to the
components, in `fleet` and `controllers`. They act on the API directly, one iteration of the event
loop after the change at the earliest.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from devkit.cluster.api import Api
from devkit.cluster.store import Change, Version
from engine.core.manifests.errors import ApiStatus
from engine.core.manifests.kinds import Kind

_Act = tuple[Callable[..., None], tuple[Any, ...]]


class Companion:
    """A task that reacts to the changes of the objects of some kinds."""

    #: One for each table that it follows.
    _kinds: tuple[Kind, ...]

    def __init__(self, api: Api) -> None:
        self._api = api
        self._feeds = [_Feed(kind, self) for kind in self._kinds]
        # In the order in which they became due, each once.
        self._due: dict[_Act, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        """Begin with what is there already."""
        self._consider_all()
        for feed in self._feeds:
            self._api.store.table(feed.kind.storage).subscribers.append(feed)
        self._task = asyncio.create_task(self._run(), name=type(self).__name__)

    async def stop(self) -> None:
        """Stop; reactions that are still due do not happen."""
        for feed in self._feeds:
            subscribers = self._api.store.table(feed.kind.storage).subscribers
            if feed in subscribers:
                subscribers.remove(feed)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def consider(self, kind: Kind, version: Version) -> None:
        """Decide what to do about an object that is there, and when."""
        raise NotImplementedError

    def consider_gone(self, kind: Kind, version: Version) -> None:
        """Decide what to do now that the object is gone whose last state is *version*."""

    def look_again(self) -> None:
        """Look at everything again: changes were missed, as after a restore from a backup."""
        self._consider_all()

    def _consider_all(self) -> None:
        for feed in self._feeds:
            for version in tuple(self._api.store.table(feed.kind.storage).objects.values()):
                self.consider(feed.kind, version)

    def _after(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        """Call *act* with *args* in so many seconds; 0: soon, and once however often it is due."""

        def ring() -> None:
            self._due[act, args] = None
            self._wake.set()

        if seconds <= 0:
            ring()
            return
        timer: asyncio.TimerHandle

        def ring_late() -> None:
            self._timers.discard(timer)
            ring()

        timer = asyncio.get_running_loop().call_later(seconds, ring_late)
        self._timers.add(timer)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = self._due, {}
            for count, (act, args) in enumerate(due, 1):
                try:
                    act(*args)
                except ApiStatus:
                    continue  # changed or gone meanwhile: a later change will come up again
                if count % 100 == 0:
                    await asyncio.sleep(0)


class _Feed:
    """The changes of one table, for a companion."""

    def __init__(self, kind: Kind, companion: Companion) -> None:
        self.kind = kind
        self._companion = companion

    def offer(self, change: Change) -> None:
        """Take note of *change*."""
        if change.new is None:
            self._companion.consider_gone(self.kind, change.last)
        else:
            self._companion.consider(self.kind, change.new)
